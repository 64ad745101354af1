# SPDX-License-Identifier: Apache-2.0
"""The tests that prove the requirements of the classes stream, dtx and tunnel of AMQP 0-9.

The other classes are in `tests.requirements_amqp09`, where the ids are explained.
"""

from __future__ import annotations

from typing import Final

from tests.proofs import Proof, Unproved

_CHANNELS = "tests.wire.amqp09.test_channels"
_VIOLATIONS = f"{_CHANNELS}.ViolationTests.test_each"
_CLASSES = "tests.frontends.amqp09.test_content_classes"
_STREAM = "tests.frontends.amqp09.test_stream_class"
_DELIVERY = f"{_STREAM}.DeliveryTests"
_CONSUMER = f"{_STREAM}.ConsumerTests"
_QOS = f"{_STREAM}.QosTests"
_DTX = "tests.frontends.amqp09.test_dtx_class"
_TUNNEL = "tests.frontends.amqp09.test_tunnel_class"
_CRASH = "tests.integration.test_dtx_crash.DtxCrashTests.test_each_step"

PROVED_CLASSES: Final[dict[str, Proof | Unproved]] = {
    "09-QUEUE-01": Proof(
        "a queue takes contents of all classes in any mix, each with its own consumers",
        f"{_CLASSES}.MixedQueueTests.test_consumers",
        f"{_CLASSES}.MixedQueueTests.test_consumers_first",
    ),
    "09-QUEUE-02": Proof(
        "consume and get of 0-9 return content of their own class only; 0-9-1 gets all",
        f"{_CLASSES}.MixedQueueTests.test_consumers",
        f"{_CLASSES}.MixedQueueTests.test_get",
        f"{_CLASSES}.MixedQueueTests.test_0_9_1_gets_all",
    ),
    # ------------------------------------------------------------------------------- stream
    "09-STRM-01": Proof(
        "a message is one packet, gone when it is sent", f"{_DELIVERY}.test_delivered"
    ),
    "09-STRM-02": Proof(
        "over its limit a queue drops the lowest priority first",
        f"{_STREAM}.OverrunTests.test_dropped_by_priority",
    ),
    "09-STRM-03": Proof(
        "over its limit a queue drops streams by priority, and counts what is lost",
        f"{_STREAM}.OverrunTests.test_dropped_by_priority",
        f"{_STREAM}.OverrunTests.test_refused",
    ),
    "09-STRM-04": Proof(
        "of three priorities the highest is served first", f"{_DELIVERY}.test_priorities"
    ),
    "09-STRM-05": Proof(
        "a queue with ten priorities serves the highest first, and tells 0, 4 and 9 apart",
        f"{_DELIVERY}.test_priorities",
    ),
    "09-STRM-06": Proof(
        "a message leaves the queue when it is delivered, and its tag cannot be acknowledged",
        f"{_DELIVERY}.test_delivered",
    ),
    "09-STRM-07": Proof(
        "windows in octets and messages, also without acknowledgements, global for the connection",
        f"{_QOS}.test_rate_and_count",
        f"{_QOS}.test_rate_and_size",
        f"{_QOS}.test_windows_without_rate",
        f"{_QOS}.test_global",
    ),
    "09-STRM-08": Proof(
        "consume-rate paces the deliveries; 0 is as fast as the transport takes them",
        f"{_QOS}.test_rate",
        f"{_QOS}.test_windows_without_rate",
    ),
    "09-STRM-09": Proof(
        "a consumer ends with cancel or its channel",
        f"{_CONSUMER}.test_cancel",
        f"{_CONSUMER}.test_ends_with_its_channel",
    ),
    "09-STRM-10": Proof(
        "sixteen consumers of one queue get equal shares of what comes", f"{_CONSUMER}.test_many"
    ),
    "09-STRM-11": Unproved("advice to applications: one channel for each stream resolution"),
    "09-STRM-12": Proof(
        "content and properties are delivered as they were published, in another organization, too",
        f"{_DELIVERY}.test_delivered",
        "tests.frontends.amqp09.test_class_journeys.StreamJourneyTests.test_there_and_back",
    ),
    "09-STRM-13": Proof(
        "an empty queue name is the queue last declared", f"{_CONSUMER}.test_current_queue"
    ),
    "09-STRM-14": Proof(
        "tags count per connection; an empty one is replaced", f"{_CONSUMER}.test_tags"
    ),
    "09-STRM-15": Proof(
        "an exclusive consumer keeps others out, of every class", f"{_CONSUMER}.test_exclusive"
    ),
    "09-STRM-16": Proof("with nowait only a failure is answered", f"{_CONSUMER}.test_nowait"),
    "09-STRM-17": Proof("the filter has a priority among consumers", f"{_CONSUMER}.test_filter"),
    "09-STRM-18": Proof(
        "deliveries carry the tag of consume-ok, and cancel takes it",
        f"{_CONSUMER}.test_many",
        f"{_CONSUMER}.test_cancel",
    ),
    "09-STRM-19": Proof(
        "after cancel-ok nothing is sent to the consumer any more", f"{_CONSUMER}.test_cancel"
    ),
    "09-STRM-20": Proof(
        "a publish is routed by its exchange and given to consumers that are there",
        f"{_DELIVERY}.test_through_an_exchange",
        f"{_DELIVERY}.test_in_a_transaction",
    ),
    "09-STRM-21": Proof(
        "the empty exchange is the default one; an unknown one is 404",
        f"{_DELIVERY}.test_delivered",
        f"{_DELIVERY}.test_unknown_exchange",
    ),
    "09-STRM-22": Proof(
        "mandatory without a queue: returned with 312; dropped without the flag",
        f"{_DELIVERY}.test_returned",
    ),
    "09-STRM-23": Proof(
        "immediate without a consumer: returned with 313",
        f"{_DELIVERY}.test_returned",
        f"{_DELIVERY}.test_immediate",
    ),
    "09-STRM-24": Proof(
        "return has code, exchange and key, and the whole content (I-04)",
        f"{_DELIVERY}.test_returned",
        f"{_DELIVERY}.test_large",
    ),
    "09-STRM-25": Proof(
        "deliver names the queue; a channel has consumers on several",
        f"{_DELIVERY}.test_delivered",
        f"{_CONSUMER}.test_many",
    ),
    # ---------------------------------------------------------------------------------- dtx
    "09-DTX-01": Proof(
        "prepare, commit and roll-back are commands to the coordinator's node",
        f"{_DTX}.BranchTests.test_two_phases",
        f"{_DTX}.BranchTests.test_rolled_back",
        _CRASH,
    ),
    "09-DTX-02": Proof(
        "select is answered by select-ok; where it is switched off, by 540 with the setting's name",
        f"{_DTX}.RefusedTests.test_twice",
        f"{_DTX}.SwitchedOffTests.test_switched_off",
    ),
    "09-DTX-03": Proof(
        "dtx.start without dtx.select closes the channel with 406",
        _VIOLATIONS,
        f"{_DTX}.RefusedTests.test_without_select",
    ),
    "09-DTX-04": Proof(
        "start behind a publish or a consume of any class: 406",
        _VIOLATIONS,
        f"{_DTX}.RefusedTests.test_without_select",
    ),
    "09-DTX-05": Proof(
        "the identifier is the XID by which the coordinator knows the branch",
        f"{_DTX}.BranchTests.test_two_phases",
        f"{_DTX}.IdentifierTests.test_there_and_back",
    ),
    "09-DTX-06": Proof(
        "a start that fails closes the channel: 406",
        f"{_DTX}.RefusedTests.test_identifiers",
        f"{_DTX}.RefusedTests.test_state_of_the_branch",
        f"{_DTX}.RefusedTests.test_places",
    ),
    # ------------------------------------------------------------------------------- tunnel
    "09-TUN-01": Proof(
        "a block of octets reaches the consumers of a node, here and in another organization",
        f"{_TUNNEL}.RequestTests.test_handed_over",
        f"{_TUNNEL}.AbroadTests.test_another_organization",
        "tests.frontends.amqp09.test_class_journeys.TunnelJourneyTests.test_there_and_back",
    ),
    "09-TUN-02": Proof(
        "request comes with content and the class's own properties",
        f"{_CHANNELS}.ContentTests.test_other_classes",
        f"{_TUNNEL}.RequestTests.test_handed_over",
    ),
    "09-TUN-03": Proof(
        "meta-data is any table, and arrives as it was sent",
        f"{_TUNNEL}.RequestTests.test_handed_over",
        "tests.translation.test_content_classes.RoundTripTests.test_meta_data",
    ),
    "09-TUN-04": Proof(
        "request has no answer, and is settled when it is sent",
        f"{_TUNNEL}.RequestTests.test_settled_when_sent",
    ),
    "09-TUN-05": Proof(
        "consumers get requests: both directions (I-03)",
        f"{_TUNNEL}.RequestTests.test_handed_over",
        f"{_TUNNEL}.BroadcastTests.test_everybody",
    ),
    # ------------------------------------------------------------------------------- fields
    "09-X-87": Proof(
        "windows in octets and messages, and the rate, are honored", f"{_QOS}.test_rate_and_size"
    ),
    "09-X-88": Proof(
        "the lowest priority is dropped first", f"{_STREAM}.OverrunTests.test_dropped_by_priority"
    ),
    "09-X-89": Proof("the ticket has to cover reading: 403", f"{_CONSUMER}.test_tickets"),
    "09-X-90": Proof("no queue declared on the channel: 530", f"{_CONSUMER}.test_current_queue"),
    "09-X-91": Proof("a tag that is in use: 530", f"{_CONSUMER}.test_tags"),
    "09-X-92": Proof(
        "exclusive access to a queue with consumers: 405", f"{_CONSUMER}.test_exclusive"
    ),
    "09-X-93": Proof("the ticket has to cover writing: 403", f"{_CONSUMER}.test_tickets"),
    "09-X-94": Proof(
        "blank is the default exchange; an internal one refuses with 403",
        f"{_DELIVERY}.test_delivered",
        f"{_DELIVERY}.test_internal_exchange",
    ),
    "09-X-95": Proof(
        "mandatory and immediate have publishes returned, with 312 and 313",
        f"{_DELIVERY}.test_returned",
    ),
    "09-X-113": Proof(
        "the classes work on connections of 0-9, are told there, and are unknown in 0-9-1; "
        "channel.resume is refused with 540",
        f"{_CLASSES}.AnnouncementTests.test_server_properties",
        f"{_CLASSES}.MixedQueueTests.test_unknown_to_0_9_1",
        _VIOLATIONS,
    ),
}
"""By the id of the requirement."""
