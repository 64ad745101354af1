# SPDX-License-Identifier: Apache-2.0
"""The tests that prove each requirement of the classes file and message of AMQP 0-9."""

from __future__ import annotations

from typing import Final

from tests.proofs import Proof, Unproved

_FILE = "tests.frontends.amqp09.test_file_class"
_STAGE = f"{_FILE}.StageTests"
_PUBLISH = f"{_FILE}.PublishTests"
_CONSUME = f"{_FILE}.ConsumeTests"
_MESSAGE = "tests.frontends.amqp09.test_message_class"
_TRANSFER = f"{_MESSAGE}.TransferTests"
_REFERENCE = f"{_MESSAGE}.ReferenceTests"
_TAKE = f"{_MESSAGE}.ConsumeTests"
_ALIKE = "tests.frontends.amqp09.test_classes_alike.AlikeTests"
_WAY = "tests.frontends.amqp09.test_class_journeys"
_STORED = "tests.store.test_staging"
_KILL = "tests.integration.test_staging_crash.StagingCrashTests.test_kill"

PROVED_FILE_MESSAGE: Final[dict[str, Proof | Unproved]] = {
    # --------------------------------------------------------------------------------- file
    "09-FILE-01": Proof(
        "publishes and acknowledgements of files wait for the commit, and a rollback undoes them",
        f"{_PUBLISH}.test_transactions",
    ),
    "09-FILE-02": Proof(
        "basic.get passes over files, and the class has no method of its own for it",
        f"{_CONSUME}.test_of_its_class",
    ),
    "09-FILE-03": Proof(
        "files are durable messages, and what is staged survives a kill",
        f"{_STAGE}.test_published",
        f"{_STORED}.KillTests.test_kill",
        _KILL,
    ),
    "09-FILE-04": Proof(
        "what is too much for memory is on the disk; only a declared bound has files dropped",
        f"{_ALIKE}.test_nothing_is_discarded",
        f"{_ALIKE}.test_overflow",
    ),
    "09-FILE-05": Proof(
        "a client that publishes files is not read while the broker takes nothing",
        f"{_ALIKE}.test_watermarks",
    ),
    "09-FILE-06": Proof(
        "a file of priority 9 overtakes those of 0, as on any queue",
        f"{_CONSUME}.test_priorities",
    ),
    "09-FILE-07": Proof(
        "files of ten priorities come in their order",
        f"{_ALIKE}.test_ten_levels",
    ),
    "09-FILE-08": Proof(
        "with no-ack a file is gone when it is delivered, else when it is acknowledged",
        f"{_CONSUME}.test_no_ack",
        f"{_CONSUME}.test_settled",
    ),
    "09-FILE-09": Proof(
        "windows in files and octets bound what is staged ahead, of channel and connection",
        f"{_CONSUME}.test_windows",
    ),
    "09-FILE-10": Proof(
        "a consumer ends with its cancel or its channel, not before",
        f"{_CONSUME}.test_cancel",
        f"{_CONSUME}.test_cut",
    ),
    "09-FILE-11": Proof(
        "sixteen consumers of files on one queue get one each",
        f"{_ALIKE}.test_consumers",
    ),
    "09-FILE-12": Proof(
        "an empty queue name is the queue last declared on the channel",
        f"{_CONSUME}.test_last_declared",
    ),
    "09-FILE-13": Proof(
        "a tag that another channel uses is refused with 530, and an empty one is made up",
        f"{_CONSUME}.test_tags",
    ),
    "09-FILE-14": Proof(
        "beside an exclusive consumer there is no other one: 405",
        f"{_CONSUME}.test_exclusive",
    ),
    "09-FILE-15": Proof(
        "with nowait neither consume nor cancel is answered",
        f"{_CONSUME}.test_tags",
        f"{_CONSUME}.test_cancel",
    ),
    "09-FILE-16": Proof(
        "the filter has a priority among consumers of files",
        f"{_ALIKE}.test_filter",
    ),
    "09-FILE-17": Unproved("a rule for clients; another tag than theirs names no consumer"),
    "09-FILE-18": Proof(
        "nothing comes after cancel-ok; what was being staged is delivered before it",
        f"{_CONSUME}.test_cancel",
    ),
    "09-FILE-19": Proof(
        "open, open-ok, stage and publish, in this order, make a message",
        f"{_STAGE}.test_published",
    ),
    "09-FILE-20": Proof(
        "the broker opens and stages to its client before it delivers",
        f"{_STAGE}.test_round_trip",
    ),
    "09-FILE-21": Proof(
        "a content is found again by its identifier, and a message has the same one each time",
        f"{_STAGE}.test_resumed",
        f"{_CONSUME}.test_cut",
    ),
    "09-FILE-22": Proof(
        "what is announced counts for its user at once, and too much of it is refused with 311",
        f"{_STAGE}.test_bounds",
    ),
    "09-FILE-23": Proof(
        "open-ok says how many octets are here, wherever the transfer was cut",
        f"{_STAGE}.test_resumed",
        f"{_STORED}.CutTests.test_cut",
    ),
    "09-FILE-24": Proof(
        "a stage that no open-ok precedes closes the connection with 503",
        f"{_STAGE}.test_wrong",
    ),
    "09-FILE-25": Proof(
        "the broker stages from the offset that its client names",
        f"{_CONSUME}.test_cut",
        f"{_PUBLISH}.test_large",
    ),
    "09-FILE-26": Proof(
        "a publish names what is staged, and its exchange routes it",
        f"{_PUBLISH}.test_exchanges",
        f"{_PUBLISH}.test_transactions",
    ),
    "09-FILE-27": Proof(
        "without an exchange it is the default one; one that is not there is refused with 404",
        f"{_PUBLISH}.test_exchanges",
    ),
    "09-FILE-28": Proof(
        "an unroutable file comes back with 312 if it is mandatory, else it is dropped",
        f"{_PUBLISH}.test_returned",
    ),
    "09-FILE-29": Proof(
        "an immediate file that nobody takes comes back with 313", f"{_PUBLISH}.test_returned"
    ),
    "09-FILE-30": Proof(
        "a publish ahead of its stage waits for it, and one of nothing is refused with 404",
        f"{_STAGE}.test_publish_ahead",
        f"{_STAGE}.test_wrong",
    ),
    "09-FILE-31": Proof(
        "a return has reason, exchange and routing key, and an empty body",
        f"{_PUBLISH}.test_returned",
    ),
    "09-FILE-32": Proof(
        "deliver names what was staged before it, and has no content",
        f"{_STAGE}.test_round_trip",
    ),
    "09-FILE-33": Unproved("a permission of which no use is made: the stage comes first"),
    "09-FILE-34": Proof(
        "a file that was delivered before is marked as redelivered", f"{_CONSUME}.test_settled"
    ),
    "09-FILE-35": Proof(
        "a file that has come back too often is a dead letter",
        f"{_ALIKE}.test_delivery_limit",
    ),
    "09-FILE-36": Proof(
        "ack covers one tag, all up to one, and with 0 all; an unknown one is refused with 406",
        f"{_CONSUME}.test_settled",
    ),
    "09-FILE-37": Proof(
        "a file that is rejected with requeue is delivered again", f"{_CONSUME}.test_settled"
    ),
    "09-FILE-38": Unproved("a rule for clients, who cannot be kept from selecting by reject"),
    "09-FILE-39": Proof(
        "a rejected file is a dead letter where its queue has a place for these",
        f"{_ALIKE}.test_rejected",
    ),
    "09-FILE-40": Proof(
        "reject comes after the stage, and settles what was delivered", f"{_CONSUME}.test_settled"
    ),
    "09-FILE-41": Proof(
        "without requeue a rejected file is gone, with it it comes again",
        f"{_CONSUME}.test_settled",
    ),
    "09-X-73": Proof(
        "never more is staged ahead than the windows permit", f"{_CONSUME}.test_windows"
    ),
    "09-X-74": Proof(
        "without the right to the queue there is no consumer of files",
        "tests.frontends.amqp09.test_class_tickets.TicketTests.test_reading",
    ),
    "09-X-75": Proof(
        "without a queue declared on the channel an empty name is refused with 530",
        f"{_CONSUME}.test_tags",
    ),
    "09-X-76": Proof(
        "the tag of a consumer that is there is not taken by another one", f"{_CONSUME}.test_tags"
    ),
    "09-X-77": Proof(
        "exclusive access where there is a consumer is refused with 405",
        f"{_CONSUME}.test_exclusive",
    ),
    "09-X-78": Proof(
        "a stage of another size than was announced ends the connection with 501; 0 is permitted",
        f"{_STAGE}.test_wrong",
        f"{_STAGE}.test_empty",
    ),
    "09-X-79": Proof(
        "the octets behind those that open-ok counts complete the content",
        f"{_STAGE}.test_resumed",
    ),
    "09-X-80": Proof(
        "contents expire when nothing is added for long enough, held or not",
        f"{_STAGE}.test_expired",
        f"{_STORED}.DiskTests.test_age",
    ),
    "09-X-81": Proof(
        "the methods of staging are served both ways, and not on 0-9-1",
        f"{_STAGE}.test_round_trip",
        f"{_STAGE}.test_not_at_all_elsewhere",
    ),
    "09-X-82": Proof(
        "without the right to publish, or with a ticket that lacks it, a file is refused with 403",
        f"{_PUBLISH}.test_rights",
        "tests.frontends.amqp09.test_class_tickets.TicketTests.test_writing",
    ),
    "09-X-83": Proof(
        "files follow the rules of exchanges that publishes of basic follow",
        f"{_PUBLISH}.test_exchanges",
    ),
    "09-X-84": Proof(
        "mandatory and immediate have their files returned", f"{_PUBLISH}.test_returned"
    ),
    "09-X-85": Proof(
        "an ack or reject of a tag that is unknown closes the channel with 406",
        f"{_CONSUME}.test_settled",
    ),
    "09-X-86": Unproved(
        "a rejected file may come back to the only consumer there is, as in class basic"
    ),
    # ------------------------------------------------------------------------------ message
    "09-MSG-01": Proof(
        "a transfer with delivery-mode 2 is a durable message, and survives a kill",
        f"{_TRANSFER}.test_published",
        _KILL,
    ),
    "09-MSG-02": Proof(
        "a transfer is answered by ok when it is on the disk", f"{_TRANSFER}.test_published", _KILL
    ),
    "09-MSG-03": Proof(
        "what is too much for memory is on the disk; only a declared bound has transfers dropped",
        f"{_ALIKE}.test_nothing_is_discarded",
        f"{_ALIKE}.test_overflow",
    ),
    "09-MSG-04": Proof(
        "a client that transfers is not read while the broker takes nothing",
        f"{_ALIKE}.test_watermarks",
    ),
    "09-MSG-05": Proof(
        "what is too much for memory is on the disk",
        f"{_ALIKE}.test_nothing_is_discarded",
    ),
    "09-MSG-06": Proof(
        "a queue over its length makes dead letters of the oldest",
        f"{_ALIKE}.test_overflow",
    ),
    "09-MSG-07": Proof(
        "a transfer of priority 9 overtakes those of 0 that wait", f"{_TAKE}.test_priorities"
    ),
    "09-MSG-08": Proof(
        "transfers of ten priorities come in their order",
        f"{_ALIKE}.test_ten_levels",
    ),
    "09-MSG-09": Proof(
        "transfers of one priority are delivered in the order of their publishing",
        f"{_TAKE}.test_priorities",
    ),
    "09-MSG-10": Proof(
        "with no-ack a transfer is gone when it is sent, and an answer is ignored",
        f"{_TAKE}.test_no_ack",
    ),
    "09-MSG-11": Proof(
        "what has no answer when the connection ends is delivered again", f"{_TAKE}.test_cut"
    ),
    "09-MSG-12": Proof(
        "a client's transfer names an exchange, the broker's its consumer",
        f"{_TRANSFER}.test_round_trip",
    ),
    "09-MSG-13": Proof(
        "a transfer in a transaction is handed on when it is committed",
        f"{_TRANSFER}.test_transactions",
    ),
    "09-MSG-14": Proof(
        "ok accepts and reject refuses, in the order of the transfers", f"{_TAKE}.test_answers"
    ),
    "09-MSG-15": Proof(
        "the answer to a transfer by reference comes when its message is kept",
        f"{_REFERENCE}.test_published",
        f"{_REFERENCE}.test_ahead",
    ),
    "09-MSG-16": Proof(
        "a destination that does not exist closes the channel with 404",
        f"{_TRANSFER}.test_refused",
    ),
    "09-MSG-17": Proof(
        "an immediate transfer that nobody takes is rejected with code 1",
        f"{_TRANSFER}.test_refused",
    ),
    "09-MSG-18": Proof(
        "a transfer expires so many milliseconds after it came, and is not delivered then",
        f"{_TRANSFER}.test_ttl",
    ),
    "09-MSG-19": Proof(
        "the timestamp of a delivery is the time at which it arrived",
        f"{_TRANSFER}.test_round_trip",
    ),
    "09-MSG-20": Proof(
        "the expiration of a delivery is its arrival and its ttl together",
        f"{_TRANSFER}.test_ttl",
    ),
    "09-MSG-21": Proof(
        "a consumer lasts until its cancel, or until its channel ends", f"{_TAKE}.test_cancel"
    ),
    "09-MSG-22": Proof(
        "sixteen consumers of transfers on one queue get one each",
        f"{_ALIKE}.test_consumers",
    ),
    "09-MSG-23": Proof(
        "an empty queue name in consume is the queue last declared", f"{_TAKE}.test_destinations"
    ),
    "09-MSG-24": Proof(
        "a destination counts per connection, and another one may use the same",
        f"{_TAKE}.test_destinations",
    ),
    "09-MSG-25": Proof(
        "beside an exclusive consumer of transfers there is no other one: 403",
        f"{_TAKE}.test_exclusive",
    ),
    "09-MSG-26": Proof(
        "the filter has a priority among consumers of transfers",
        f"{_ALIKE}.test_filter",
    ),
    "09-MSG-27": Proof("nothing comes behind the answer to a cancel", f"{_TAKE}.test_cancel"),
    "09-MSG-28": Proof(
        "a cancel of what is not there any more is answered by ok", f"{_TAKE}.test_cancel"
    ),
    "09-MSG-29": Proof("get is answered by ok and one transfer, or by empty", f"{_TAKE}.test_get"),
    "09-MSG-30": Proof(
        "an empty queue name in get needs a queue declared before: 530", f"{_TAKE}.test_get"
    ),
    "09-MSG-31": Proof(
        "recover has everything without an answer sent again, which may be nothing",
        f"{_TAKE}.test_recover",
    ),
    "09-MSG-32": Proof(
        "what recover sends again is marked as redelivered", f"{_TAKE}.test_recover"
    ),
    "09-MSG-33": Proof(
        "recover on a transacted channel is refused with 406", f"{_TRANSFER}.test_transactions"
    ),
    "09-MSG-34": Proof(
        "recover without requeue is for the same consumer, with it for any",
        f"{_TAKE}.test_recover",
    ),
    "09-MSG-35": Proof(
        "a reference collects what is appended, beyond any frame and memory",
        f"{_REFERENCE}.test_large",
        _KILL,
    ),
    "09-MSG-36": Proof(
        "from open to close any transfer may use a reference, several of them, too",
        f"{_REFERENCE}.test_ahead",
    ),
    "09-MSG-37": Proof(
        "with its channel a reference is gone that has no checkpoint",
        f"{_REFERENCE}.test_resumed",
    ),
    "09-MSG-38": Proof(
        "what is appended behind close is not in scope: 404", f"{_REFERENCE}.test_scope"
    ),
    "09-MSG-39": Proof(
        "the answer to a transfer waits for the close of its reference",
        f"{_REFERENCE}.test_published",
    ),
    "09-MSG-40": Proof(
        "octets are added in the order of the appends", f"{_REFERENCE}.test_published"
    ),
    "09-MSG-41": Proof(
        "a checkpoint saves a reference by the name of the sender",
        f"{_REFERENCE}.test_resumed",
        f"{_STORED}.DiskTests.test_power",
    ),
    "09-MSG-42": Unproved("a permission: all that was appended before is saved"),
    "09-MSG-43": Proof(
        "wherever it is cut the message is whole when it goes on at the offset",
        f"{_REFERENCE}.test_resumed",
    ),
    "09-MSG-44": Proof(
        "another identifier than that of the checkpoint finds nothing: 404",
        f"{_REFERENCE}.test_scope",
    ),
    "09-MSG-45": Proof(
        "resume is answered by the offset of the last checkpoint", f"{_REFERENCE}.test_resumed"
    ),
    "09-MSG-46": Proof(
        "windows in messages and octets bound what is sent ahead, and qos is answered by ok",
        f"{_TAKE}.test_windows",
    ),
    "09-MSG-47": Proof("each request is answered once, in its turn", f"{_REFERENCE}.test_ahead"),
    "09-MSG-48": Proof("get of an empty queue is answered by empty", f"{_TAKE}.test_get"),
    "09-MSG-49": Proof(
        "reject has a code and a text, both ways",
        f"{_TAKE}.test_answers",
        f"{_TRANSFER}.test_refused",
    ),
    "09-MSG-50": Proof(
        "offset counts the octets of the reference that are kept", f"{_REFERENCE}.test_resumed"
    ),
    "09-X-05": Proof(
        "a reject code other than 0 and 1 ends the connection with 502",
        f"{_TAKE}.test_reject_code",
    ),
    "09-X-96": Proof(
        "write access, default and missing exchanges, immediate: as for publishes of basic",
        f"{_TRANSFER}.test_refused",
        "tests.frontends.amqp09.test_class_tickets.TicketTests.test_writing",
    ),
    "09-X-97": Proof(
        "at another organization the ttl is less, and timestamp and expiration are not there",
        f"{_WAY}.MessageJourneyTests.test_times",
        f"{_WAY}.MessageJourneyTests.test_there_and_back",
    ),
    "09-X-98": Proof(
        "consume without a queue declared before is refused with 530",
        f"{_TAKE}.test_destinations",
    ),
    "09-X-99": Proof(
        "the destination of a consumer that is there is refused with 530",
        f"{_TAKE}.test_destinations",
    ),
    "09-X-100": Proof(
        "a consumer is not cancelled on another channel: 530", f"{_TAKE}.test_destinations"
    ),
    "09-X-101": Proof(
        "exclusive access where there is a consumer is refused with 403",
        f"{_TAKE}.test_exclusive",
    ),
    "09-X-102": Proof(
        "consume and get need a ticket with read access, if they name one",
        "tests.frontends.amqp09.test_class_tickets.TicketTests.test_reading",
    ),
    "09-X-103": Proof(
        "get with an empty name needs a queue declared before on its channel",
        f"{_TAKE}.test_get",
    ),
    "09-X-104": Proof(
        "open of a reference in scope, and of a second one, ends the connection with 503",
        f"{_REFERENCE}.test_scope",
    ),
    "09-X-105": Proof(
        "close of a reference that is not in scope is refused with 404",
        f"{_REFERENCE}.test_scope",
    ),
    "09-X-106": Proof(
        "append to a reference that is not in scope is refused with 404",
        f"{_REFERENCE}.test_scope",
    ),
    "09-X-107": Proof(
        "checkpoint of a reference that is not in scope is refused with 404",
        f"{_REFERENCE}.test_scope",
    ),
    "09-X-108": Proof(
        "resume beside a reference in scope ends the connection with 503",
        f"{_REFERENCE}.test_scope",
    ),
    "09-X-109": Proof(
        "a window in octets lets one message pass that is larger", f"{_TAKE}.test_windows"
    ),
    "09-X-110": Proof(
        "never more transfers are sent ahead than the windows permit", f"{_TAKE}.test_windows"
    ),
    "09-DOM-04": Proof(
        "an empty destination of a client's transfer is the default exchange",
        f"{_TRANSFER}.test_published",
    ),
    "09-DOM-05": Proof(
        "ttl and expiration are milliseconds, the former of a duration",
        f"{_TRANSFER}.test_ttl",
    ),
    "09-DOM-15": Proof(
        "a security token of any octets reaches the recipient", f"{_TRANSFER}.test_round_trip"
    ),
}
