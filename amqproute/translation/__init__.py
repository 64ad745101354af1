# SPDX-License-Identifier: Apache-2.0
"""Lossless translation of AMQP 0-9 and 0-9-1 contents to AMQP 1.0 messages, and back.

The broker stores messages of 1.0 only. `content_message` translates contents published by clients
of 0-9 or 0-9-1, `message_content` translates messages delivered to them. The tables are those of
09: part 5; `field_values` has the types of values, with `decimal_numbers`. `dead_letters` is the
header ``x-death``. `content_classes` translates contents of the classes file, stream and tunnel to
contents of class basic first, and back from these. Bodies outside of memory are framed by
`body_framing` on their way in; `body_layout` finds the body in them on their way out.

No loss
-------

No table is lossless: 0-9 has tags, and a distinction of absent and empty values, that 1.0 lacks,
and 1.0 has types and sections that 0-9 lacks. So each direction stores, beside the translation, the
parts that the other protocol cannot express, and uses them where the translation is unchanged:

=====================  ================================  =====================================
from                   stores                            as
=====================  ================================  =====================================
0-9 or 0-9-1           flags and values of properties    message annotation ``x-opt-amqp09``
1.0, where necessary   sections before and around the    header ``x-opt-amqp10``
                       body (`message_snapshot`)
=====================  ================================  =====================================

Parts are compared one by one (`message_parts.project`): a part of the message is restored from its
stored form if the properties and headers that show it are unchanged. So a client that adds a header
changes that header only, and an annotation that a broker adds on the way becomes an additional
header. Stored parts are never trusted beyond the message itself: a user-id that only
``x-opt-amqp09`` contains, for instance, is not shown to anybody.

Exceptions: an expiration is reduced by the time held; BCC is for routing and is not passed on.

Bounds: a cache of a thousand translations of properties of at most 512 octets, in each direction;
sections are limited by the engines.
"""

__all__: list[str] = []
