# SPDX-License-Identifier: Apache-2.0
"""Contents of AMQP 0-9 and 0-9-1 as messages of AMQP 1.0, and back, with nothing lost.

The broker keeps messages of 1.0 and no others. `content_message` makes one of what a client of 0-9
or 0-9-1 publishes, `message_content` makes a content of what is delivered to one. The tables are
those of 09: part 5; `field_values` has the types of values, with `decimal_numbers`.
`dead_letters` is the header ``x-death``. Bodies that are not in memory are framed by `body_framing`
on their way in; `body_layout` finds out, on their way out, what of them is body.

Nothing gets lost
-----------------

No table is lossless: 0-9 has tags, and a difference between what is absent and what is empty, that
1.0 has not, and 1.0 has types and sections that 0-9 has not. So each direction keeps beside the
translation what the other protocol cannot say, and believes it where the translation is unchanged:

=====================  ================================  =====================================
from                   keeps                             as
=====================  ================================  =====================================
0-9 or 0-9-1           flags and values of properties    message annotation ``x-opt-amqp09``
1.0, where necessary   sections before and around the    header ``x-opt-amqp10``
                       body (`message_snapshot`)
=====================  ================================  =====================================

"Unchanged" is decided part by part (`message_parts.project`): a part of the message counts as it
was kept if the properties and headers in which it shows are the same. So a client that adds a
header changes that header and nothing else, and an annotation that a broker adds on the way shows
as a header beside the ones that were there. What is kept is never trusted for more than the message
says by itself: a user-id, say, that only ``x-opt-amqp09`` names is not shown to anybody.

Exceptions: an expiration is less the time held; BCC is for routing and goes no further.

Bounds: what is remembered is a thousand translations of properties of at most 512 octets, in each
direction; sections are no larger than the engines let in.
"""

__all__: list[str] = []
