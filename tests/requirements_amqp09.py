# SPDX-License-Identifier: Apache-2.0
"""The tests that prove each requirement of AMQP 0-9 and 0-9-1.

The ids are those of the project's list of requirements for these versions: 09-W the wire, 09-DOM
domains, 09-ERR reply codes, 09-CONN, 09-CHAN and so on the classes, 09-X rules of single fields.
09-M is the mapping to 1.0. First are the rows that the engine decides, and those that exchange
matching and translation decide by themselves; then those that the frontend decides.
"""

from __future__ import annotations

from typing import Final

from tests.proofs import Proof, Unproved

_T = "tests.wire.amqp09.test_field_tables"
_M = "tests.wire.amqp09.test_methods"
_H = "tests.wire.amqp09.test_handshake"
_C = "tests.wire.amqp09.test_channels"
_D = "tests.wire.amqp09.test_deliveries"
_S = "tests.wire.amqp09.test_streams"
_G = "tests.broker.exchanges.test_exchange_graph"
_A = "tests.broker.exchanges.test_argument_rules"
_TOPOLOGY = "tests.broker.exchanges.test_topology"
_DECLARED = "tests.broker.test_queue_declarations"
_L = "tests.translation.test_tables"
_VIOLATIONS = f"{_C}.ViolationTests.test_each"
_ORDER = f"{_H}.ServerTests.test_order"
_Q = "tests.frontends.amqp09.test_queue_methods.QueueMethodTests"
_E = "tests.frontends.amqp09.test_queue_methods.ExchangeMethodTests"
_P = "tests.frontends.amqp09.test_publishing"
_R = "tests.frontends.amqp09.test_consuming.ConsumeTests"
_I = "tests.integration.test_amqp09_clients.ClientTests"
_CRASH = "tests.integration.test_amqp09_crash.CrashTests.test_kill"

PROVED_09: Final[dict[str, Proof | Unproved]] = {
    # ------------------------------------------------------------------------------ domains
    "09-DOM-03": Proof(
        "tags count from 1 on each channel, and one of another channel is refused",
        f"{_D}.TagTests.test_tags",
        f"{_D}.SettlementTests.test_other_channel",
    ),
    "09-DOM-08": Proof(
        "known-hosts is sent as the user gives it", f"{_H}.ServerTests.test_open_in_0_9"
    ),
    "09-DOM-14": Proof(
        "the codes are those of the reference, and texts fit a short string",
        f"{_M}.GeneratedTests.test_reply_codes",
        f"{_M}.ReplyTextTests.test_cut",
    ),
    "09-DOM-16": Proof(
        "in 0-9 each channel.open-ok carries an id of its own", f"{_C}.ChannelTests.test_open"
    ),
    # -------------------------------------------------------------------------- reply codes
    "09-ERR-01": Proof(
        "after a channel error another channel is used, and the channel itself opened again",
        _VIOLATIONS,
    ),
    "09-ERR-02": Proof("after a connection error nothing is acted on", _VIOLATIONS),
    "09-ERR-05": Proof(
        "a body that is too large by its header is refused with 311, its frames skipped",
        _VIOLATIONS,
    ),
    "09-ERR-14": Proof(
        "arguments, headers and frames that are cut short end the connection with 501",
        f"{_M}.MethodTests.test_cut_short",
        _VIOLATIONS,
    ),
    "09-ERR-15": Proof(
        "values that their fields cannot hold end the connection with 502",
        f"{_M}.MethodTests.test_illegal_values",
        _VIOLATIONS,
    ),
    "09-ERR-16": Proof(
        "methods to the wrong peer, replies that nobody asked for: 503",
        f"{_H}.ServerTests.test_out_of_order",
        _VIOLATIONS,
    ),
    "09-ERR-17": Proof("methods and contents on a channel that is not open: 504", _VIOLATIONS),
    "09-ERR-18": Proof(
        "too many contents that are begun and do not end, and frames without effect: 506",
        _VIOLATIONS,
        f"{_C}.ContentTests.test_begun",
    ),
    "09-ERR-19": Proof("a channel above channel-max, a tag in use: 530", _VIOLATIONS),
    "09-ERR-20": Proof(
        "unknown methods, and in 0-9-1 those that it has removed: 540",
        f"{_C}.ViolationTests.test_removed",
        _VIOLATIONS,
    ),
    # --------------------------------------------------------------------------- connection
    "09-CONN-01": Proof(
        "another header gets a header and the end, never a method",
        f"{_H}.HeaderTests.test_other_versions",
        f"{_H}.HeaderTests.test_strangers",
    ),
    "09-CONN-02": Proof(
        "start offers 0-9 to both headers, nothing higher", f"{_H}.HeaderTests.test_start"
    ),
    "09-CONN-03": Proof(
        "our client goes when another version or a header comes",
        f"{_H}.HeaderTests.test_refused_client",
    ),
    "09-CONN-04": Proof(
        "start gives the version as 0 and 9, not as in the header", f"{_H}.HeaderTests.test_start"
    ),
    "09-CONN-05": Proof(
        "start-ok is taken after start, anything else ends the connection",
        _ORDER,
        f"{_H}.ServerTests.test_out_of_order",
    ),
    "09-CONN-06": Proof(
        "mechanisms are offered with spaces between them", f"{_H}.HeaderTests.test_start"
    ),
    "09-CONN-07": Proof(
        "locales stand with spaces between, and the one chosen is told",
        f"{_H}.HeaderTests.test_start",
        f"{_H}.ServerTests.test_locale",
    ),
    "09-CONN-08": Proof(
        "a mechanism that was not offered drops the transport",
        f"{_H}.ServerTests.test_mechanism_not_offered",
    ),
    "09-CONN-09": Proof("the user gets the octets of the response as they came", _ORDER),
    "09-CONN-10": Proof(
        "the locale chosen is told; one that was not offered, as clients send them, is the first",
        f"{_H}.ServerTests.test_locale",
    ),
    "09-CONN-11": Proof("secure and secure-ok are exchanged as often as needed", _ORDER),
    "09-CONN-12": Proof("challenge and response of any octets pass unchanged", _ORDER),
    "09-CONN-13": Proof("tune is sent, and what tune-ok says is in force", _ORDER),
    "09-CONN-14": Proof(
        "0 leaves the server's channel-max in force", f"{_H}.ServerTests.test_tune"
    ),
    "09-CONN-15": Proof("frame-max may be lowered, down to 4096", f"{_H}.ServerTests.test_tune"),
    "09-CONN-16": Proof(
        "tune says the heartbeat that is wanted", _ORDER, f"{_H}.HeartbeatTests.test_off"
    ),
    "09-CONN-17": Proof(
        "the highest channel that was agreed opens, the next one ends the connection",
        f"{_C}.ChannelTests.test_channel_max",
        _VIOLATIONS,
    ),
    "09-CONN-18": Proof(
        "frames in and out keep to the frame-max of tune-ok",
        f"{_C}.FrameTests.test_frame_max",
        f"{_D}.DeliverTests.test_parts",
    ),
    "09-CONN-19": Proof(
        "bodies in frames of any size are read, and sent in as few as there can be",
        f"{_C}.ContentTests.test_publish",
        f"{_D}.DeliverTests.test_parts",
    ),
    "09-CONN-20": Proof(
        "the client's interval is in force, 0 is none",
        f"{_H}.HeartbeatTests.test_sent",
        f"{_H}.HeartbeatTests.test_off",
    ),
    "09-CONN-21": Proof("open tells the user which virtual host is wanted", _ORDER),
    "09-CONN-22": Unproved("a permission: the limits are the broker's, whatever they count"),
    "09-CONN-23": Proof(
        "402 for an unknown virtual host goes out by connection.close",
        f"{_H}.ServerTests.test_refused_host",
    ),
    "09-CONN-24": Proof(
        "the capabilities that open names are told", f"{_H}.ServerTests.test_open_in_0_9"
    ),
    "09-CONN-25": Proof(
        "a redirect is understood by the client; the server never sends one",
        f"{_H}.ClientTests.test_redirected",
    ),
    "09-CONN-26": Proof(
        "that the client insists on this server is told", f"{_H}.ServerTests.test_open_in_0_9"
    ),
    "09-CONN-27": Proof("open-ok goes out when the user consents", _ORDER),
    "09-CONN-28": Proof(
        "a redirected client is told of host and known-hosts, and is at the end",
        f"{_H}.ClientTests.test_redirected",
    ),
    "09-CONN-29": Unproved("no redirect is ever sent here, so there is none to choose"),
    "09-CONN-30": Proof(
        "the user gets host and port as they stand", f"{_H}.ClientTests.test_redirected"
    ),
    "09-CONN-31": Proof(
        "a connection's close is answered, whichever peer sends it",
        f"{_H}.CloseTests.test_peers",
        f"{_H}.CloseTests.test_ours",
    ),
    "09-CONN-32": Proof(
        "a close names the method that caused it, and none if there is none",
        f"{_C}.ViolationTests.test_cause",
        f"{_H}.CloseTests.test_ours",
    ),
    "09-CONN-33": Proof(
        "behind our close everything is dropped but the answer",
        f"{_H}.CloseTests.test_ours",
        f"{_H}.CloseTests.test_deaf",
    ),
    "09-CONN-34": Proof("when close-ok comes the connection is over", f"{_H}.CloseTests.test_ours"),
    "09-CONN-35": Proof(
        "an end without close-ok is told as not clean", f"{_H}.CloseTests.test_unanswered"
    ),
    # ------------------------------------------------------------------------------ channel
    "09-CHAN-01": Proof(
        "a channel is opened, used, closed and opened again",
        f"{_C}.ChannelTests.test_peers_close",
        f"{_S}.ModelTests.test_channels",
    ),
    "09-CHAN-02": Proof("a second open of one channel ends the connection with 504", _VIOLATIONS),
    "09-CHAN-03": Proof("open-ok, and the channel can be used", f"{_C}.ChannelTests.test_open"),
    "09-CHAN-04": Proof(
        "an open with out-of-band is as one without",
        f"{_C}.ChannelTests.test_open",
        f"{_M}.MethodTests.test_reserved_fields",
    ),
    "09-CHAN-05": Proof(
        "in 0-9 open-ok carries an id of the channel, in 0-9-1 none", f"{_C}.ChannelTests.test_open"
    ),
    "09-CHAN-06": Proof(
        "deliveries go out on a channel that was just opened", f"{_D}.DeliverTests.test_deliver"
    ),
    "09-CHAN-07": Proof("a client may send flow right after open", f"{_C}.ChannelTests.test_flow"),
    "09-CHAN-08": Proof(
        "methods come through while a content is being sent",
        f"{_D}.LargeBodyTests.test_cut_short",
    ),
    "09-CHAN-09": Proof(
        "our flow asks the client to stop its contents", f"{_C}.ChannelTests.test_our_flow"
    ),
    "09-CHAN-10": Unproved("a permission of which no use is made: back-pressure is TCP's"),
    "09-CHAN-11": Proof("no content begins on a stopped channel", f"{_C}.ChannelTests.test_flow"),
    "09-CHAN-12": Proof(
        "a stopped channel sends methods and no contents", f"{_C}.ChannelTests.test_flow"
    ),
    "09-CHAN-13": Proof(
        "flow goes off and on again, without any credit", f"{_C}.ChannelTests.test_flow"
    ),
    "09-CHAN-14": Proof(
        "flow-ok repeats the setting, both ways",
        f"{_C}.ChannelTests.test_flow",
        f"{_C}.ChannelTests.test_our_flow",
    ),
    "09-CHAN-15": Proof(
        "a channel's close is answered, whichever peer sends it",
        f"{_C}.ChannelTests.test_peers_close",
        f"{_C}.ChannelTests.test_our_close",
    ),
    "09-CHAN-16": Proof(
        "channel.close names the method that caused it", f"{_C}.ViolationTests.test_cause"
    ),
    "09-CHAN-17": Proof(
        "behind our close everything on the channel is skipped but the answer",
        f"{_C}.ChannelTests.test_our_close",
        _VIOLATIONS,
    ),
    "09-CHAN-18": Proof(
        "the number may be used again after close-ok",
        f"{_C}.ChannelTests.test_peers_close",
        _VIOLATIONS,
    ),
    "09-CHAN-19": Proof(
        "channels that end with the transport are told", f"{_H}.CloseTests.test_unanswered"
    ),
    "09-CHAN-20": Proof("resume is decoded and refused with 540 (I-19)", _VIOLATIONS),
    "09-CHAN-21": Proof(
        "ping is answered by ok and a pong of ours", f"{_C}.ChannelTests.test_ping"
    ),
    "09-CHAN-22": Proof(
        "a pong is answered by ok, as a request is", f"{_C}.ChannelTests.test_ping"
    ),
    "09-CHAN-23": Proof(
        "ok is taken where it is due and nowhere else", f"{_C}.ChannelTests.test_ping"
    ),
    "09-CHAN-24": Proof("any other method there ends the connection with 504", _VIOLATIONS),
    # ------------------------------------- other classes, as far as the engine decides them
    "09-BASIC-23": Proof(
        "an empty tag is replaced by one that nobody has",
        f"{_C}.ConsumerTagTests.test_generated",
    ),
    "09-BASIC-24": Proof(
        "in 0-9 a tag is taken for the whole connection, in 0-9-1 for its channel (I-13)",
        f"{_C}.ConsumerTagTests.test_scope",
        _VIOLATIONS,
    ),
    "09-BASIC-41": Proof(
        "deliver has its fields, as an independent decoder reads them",
        f"{_D}.DeliverTests.test_deliver",
    ),
    "09-BASIC-50": Proof(
        "deliver and get-ok share tags, and acks cover both",
        f"{_D}.DeliverTests.test_get_and_return",
        f"{_D}.SettlementTests.test_kinds",
    ),
    "09-BASIC-51": Proof(
        "an ack settles one tag, or all up to one",
        f"{_D}.TagTests.test_tags",
        f"{_D}.SettlementTests.test_kinds",
    ),
    "09-BASIC-52": Proof(
        "tag 0 with multiple is all, and no error if there is nothing",
        f"{_D}.TagTests.test_tags",
        f"{_D}.SettlementTests.test_kinds",
    ),
    "09-BASIC-53": Proof(
        "a reject is told while its content is being sent",
        f"{_D}.LargeBodyTests.test_cut_short",
    ),
    "09-BASIC-54": Proof(
        "in 0-9 an empty body frame ends a content that is cut short (I-09)",
        f"{_D}.LargeBodyTests.test_cut_short",
    ),
    "09-BASIC-61": Proof(
        "recover in a transaction: 406 in 0-9, permitted in 0-9-1",
        _VIOLATIONS,
        f"{_C}.MethodTests.test_recover_in_0_9_1",
    ),
    "09-TX-05": Proof("commit and rollback without select close the channel with 406", _VIOLATIONS),
    "09-DTX-03": Proof("dtx.start without select closes the channel with 406", _VIOLATIONS),
    "09-DTX-04": Proof("dtx.start behind a publish or a consume: 406", _VIOLATIONS),
    "09-TUN-02": Proof(
        "request comes with content and the class's own properties",
        f"{_C}.ContentTests.test_other_classes",
    ),
    # ------------------------------------------------------------------------------- fields
    "09-X-01": Proof(
        "a tag of another channel is unknown: 406", f"{_D}.SettlementTests.test_other_channel"
    ),
    "09-X-02": Proof("the first tag is 1, and 0 stands for all", f"{_D}.TagTests.test_tags"),
    "09-X-07": Proof(
        "en_US is among the locales that start offers", f"{_H}.HeaderTests.test_start"
    ),
    "09-X-09": Proof(
        "a mechanism not offered: the transport goes, nothing is sent",
        f"{_H}.ServerTests.test_mechanism_not_offered",
    ),
    "09-X-11": Proof(
        "frames up to 4096 octets, and up to 8192 for large tokens, then no more",
        f"{_H}.ServerTests.test_frames_before_tuning",
    ),
    "09-X-12": Proof(
        "no frame-max below 4096 is agreed or offered",
        f"{_H}.ServerTests.test_tune",
        f"{_H}.ServerTests.test_settings",
    ),
    "09-X-13": Proof("a channel-max above ours drops the transport", f"{_H}.ServerTests.test_tune"),
    "09-X-14": Proof("a frame-max above ours drops the transport", f"{_H}.ServerTests.test_tune"),
    "09-X-18": Proof(
        "the order stands, and anything else ends the connection",
        _ORDER,
        f"{_H}.ServerTests.test_out_of_order",
    ),
    "09-X-19": Proof("what stands in out-of-band is not looked at", f"{_C}.ChannelTests.test_open"),
    "09-X-60": Proof("a tag in use ends the connection with 530", _VIOLATIONS),
    "09-X-61": Proof("a cancel of another channel's consumer: 530", _VIOLATIONS),
    "09-X-71": Proof(
        "an unknown tag, or the same one twice, is refused with 406",
        f"{_D}.TagTests.test_unknown",
        f"{_D}.SettlementTests.test_twice",
        _VIOLATIONS,
    ),
    "09-X-111": Proof(
        "methods of classes that a version lacks: 540", f"{_C}.ViolationTests.test_removed"
    ),
    # --------------------------------------------------------------------------------- wire
    "09-W-01": Proof(
        "strangers and TLS are told by their first octets",
        f"{_H}.HeaderTests.test_strangers",
        "tests.wire.test_header.RecognizeTests.test_a_stranger_is_told_at_once",
    ),
    "09-W-02": Proof(
        "either header is answered with start, and none is sent", f"{_H}.HeaderTests.test_start"
    ),
    "09-W-03": Proof(
        "0-x learns of 0-9-1, all else of 1.0 with SASL",
        f"{_H}.HeaderTests.test_other_versions",
        f"{_H}.HeaderTests.test_strangers",
        "tests.wire.test_header.RecognizeTests.test_answers",
    ),
    "09-W-04": Proof(
        "start names version 0-9 to clients of either", f"{_H}.HeaderTests.test_start"
    ),
    "09-W-05": Proof(
        "in 0-9 there are the methods of both and the extensions",
        f"{_C}.MethodTests.test_told",
        f"{_C}.MethodTests.test_extensions",
        f"{_C}.VersionTests.test_union",
    ),
    "09-W-10": Proof(
        "an independent decoder reads our frames, and we its",
        f"{_C}.FrameTests.test_frame_max",
        f"{_D}.DeliverTests.test_parts",
    ),
    "09-W-11": Proof(
        "the whole frame counts, eight octets more are taken; what cannot be split is not sent",
        f"{_C}.FrameTests.test_frame_max",
        f"{_D}.DeliverTests.test_too_large_for_a_frame",
    ),
    "09-W-12": Proof("a wrong frame end: 501, in 0-9-1 without a word", _VIOLATIONS),
    "09-W-13": Proof(
        "before tune-ok no frame of more than 8192 octets",
        f"{_H}.ServerTests.test_frames_before_tuning",
    ),
    "09-W-14": Proof("types 4 to 7, 9, 10 and others: 501, in 0-9-1 without a word", _VIOLATIONS),
    "09-W-15": Proof("503 and 504 for methods and contents on the wrong channel", _VIOLATIONS),
    "09-W-16": Proof(
        "the heartbeat is a frame of type 8, octet by octet", f"{_H}.HeartbeatTests.test_sent"
    ),
    "09-W-17": Proof(
        "0 leaves the server's values; channel-max is a number, not a count",
        f"{_H}.ServerTests.test_tune",
        f"{_C}.ChannelTests.test_channel_max",
    ),
    "09-W-20": Proof(
        "flags by property, unknown ones and a second word are 502",
        f"{_M}.PropertyTests.test_any_properties",
        f"{_M}.PropertyTests.test_unknown_flags",
        _VIOLATIONS,
    ),
    "09-W-21": Proof(
        "values follow in the order of their flags",
        f"{_M}.PropertyTests.test_any_properties",
        f"{_M}.PropertyTests.test_check_value",
    ),
    "09-W-22": Proof("a content of any weight but 0 is refused with 540", _VIOLATIONS),
    "09-W-23": Proof("a header of another class than its method: 501", _VIOLATIONS),
    "09-W-24": Proof(
        "no body for size 0; empty frames are tolerated", f"{_C}.ContentTests.test_empty_bodies"
    ),
    "09-W-25": Proof("a body of more octets than its header says: 501", _VIOLATIONS),
    "09-W-26": Proof("503 in 0-9, 505 in 0-9-1, whatever is out of its place", _VIOLATIONS),
    "09-W-27": Proof(
        "absent stays absent, empty stays empty, and the octets are kept",
        f"{_M}.PropertyTests.test_any_properties",
        f"{_C}.ContentTests.test_publish",
    ),
    "09-W-30": Proof("s, l and L are read as clients write them", f"{_T}.TableTests.test_each_tag"),
    "09-W-31": Proof(
        "new values have common tags, and a table can be reduced to them",
        f"{_T}.TableTests.test_python_values",
        f"{_T}.TableTests.test_plain",
    ),
    "09-W-32": Proof(
        "names with dots, hyphens and without any letter are read", f"{_T}.TableTests.test_names"
    ),
    "09-W-33": Proof(
        "each tag that nobody knows ends the connection with 502",
        f"{_T}.TableTests.test_unknown_tag",
        _VIOLATIONS,
    ),
    "09-W-34": Proof(
        "lengths, depth and number of values are bounded",
        f"{_T}.TableTests.test_lengths",
        f"{_T}.TableTests.test_depth",
        f"{_T}.TableTests.test_number_of_values",
    ),
    "09-W-35": Proof("the last of two equal names counts", f"{_T}.TableTests.test_repeated_name"),
    "09-W-36": Proof(
        "a table that was read is written octet by octet as it came",
        f"{_T}.TableTests.test_any_table",
        f"{_T}.TableTests.test_odd_values_stay",
    ),
    "09-W-40": Proof(
        "tune-ok decides; 0 is none in both directions",
        f"{_H}.HeartbeatTests.test_sent",
        f"{_H}.HeartbeatTests.test_off",
    ),
    "09-W-41": Proof(
        "after half an interval of silence, and any octet counts",
        f"{_H}.HeartbeatTests.test_sent",
        f"{_H}.HeartbeatTests.test_any_octet_counts",
    ),
    "09-W-42": Proof(
        "after two intervals the transport goes, without a close",
        f"{_H}.HeartbeatTests.test_missed",
    ),
    "09-W-43": Proof(
        "a heartbeat on a channel or with data: 501", f"{_H}.HeartbeatTests.test_wrong"
    ),
    "09-W-50": Proof(
        "the transport goes; who says that it understands gets 403 first",
        f"{_H}.ServerTests.test_wrong_password",
    ),
    "09-W-60": Proof(
        "a close without a cause has 0 and 0",
        f"{_H}.CloseTests.test_ours",
        f"{_C}.ChannelTests.test_our_close",
    ),
    "09-W-61": Proof(
        "a close that crosses ours is answered, and ours waited for",
        f"{_H}.CloseTests.test_both",
        f"{_C}.ChannelTests.test_our_close",
    ),
    "09-W-62": Proof(
        "the number is taken until close-ok, and contents are skipped",
        f"{_C}.ChannelTests.test_number_is_taken_until_answered",
        _VIOLATIONS,
    ),
    "09-W-63": Proof(
        "texts are cut to 255 octets, between characters",
        f"{_M}.ReplyTextTests.test_cut",
        f"{_H}.CloseTests.test_ours",
    ),
    "09-W-64": Proof(
        "402, 403 and 404 of open go out by connection.close",
        f"{_H}.ServerTests.test_refused_host",
    ),
    "09-W-65": Proof(
        "errors before open drop the transport without a close",
        f"{_H}.ServerTests.test_out_of_order",
        f"{_H}.CloseTests.test_close_before_open",
    ),
    "09-W-71": Proof(
        "a return that the broker gives before the confirm goes out before it",
        f"{_D}.ConfirmTests.test_server",
    ),
    "09-W-72": Proof("confirm mode on a transacted channel, and the reverse: 406", _VIOLATIONS),
    # ------------------------------------------------------ exchanges, bindings and translation
    "09-EXCH-03": Proof(
        "each type has its predeclared exchange, headers two, and a queue can be bound to each",
        f"{_G}.DeclareTests.test_predeclared",
    ),
    "09-EXCH-04": Proof(
        "amq.direct and the nameless exchange are there from the start, and cannot be deleted",
        f"{_G}.DeclareTests.test_predeclared",
    ),
    "09-EXCH-15": Proof(
        "an auto-delete exchange goes with the last queue bound to it, in the store as well",
        f"{_TOPOLOGY}.RestartTests.test_queue_of_a_connection",
        f"{_G}.DeclareTests.test_auto_delete",
    ),
    "09-EXCH-20": Proof(
        "the bindings of a deleted exchange are gone, in memory and in the store",
        f"{_TOPOLOGY}.RestartTests.test_deleted",
    ),
    "09-QUEUE-22": Proof(
        "a binding is durable exactly if its exchange and its queue are",
        f"{_TOPOLOGY}.RestartTests.test_restart",
        f"{_TOPOLOGY}.RestartTests.test_transient",
        f"{_TOPOLOGY}.RestartTests.test_queue_of_a_connection",
    ),
    "09-QUEUE-55": Proof(
        "the number of messages that went with a queue is told",
        f"{_DECLARED}.LifeTests.test_deleted",
    ),
    "09-X-37": Proof(
        "a durable queue is there again after a restart",
        f"{_DECLARED}.LifeTests.test_restart",
    ),
    "09-X-38": Proof(
        "a durable and a transient queue are declared, and differ over a restart",
        f"{_DECLARED}.LifeTests.test_restart",
        f"{_DECLARED}.LifeTests.test_transient",
    ),
    "09-X-40": Proof(
        "an exclusive queue goes with its connection, a shared one stays",
        f"{_DECLARED}.LifeTests.test_exclusive",
        f"{_DECLARED}.LifeTests.test_transient",
    ),
    "09-EXCH-07": Unproved("a permission of which no use is made: other types are refused by name"),
    "09-QUEUE-29": Proof(
        "an empty key is a key for direct and topic exchanges, and nothing to fanout and headers",
        f"{_G}.RouteTests.test_empty_key",
        "tests.broker.exchanges.test_topic_trie.MatchTests.test_table",
    ),
    "09-QUEUE-31": Proof(
        "headers exchanges match by arguments, to other types they are a part of the binding",
        "tests.broker.exchanges.test_header_match.PatternTests.test_definition",
        f"{_G}.ModelTests.test_any_arguments",
        f"{_G}.BindTests.test_wrong_arguments",
    ),
    "09-QUEUE-35": Proof(
        "bindings that differ in one of the four are several, and each is removed by itself",
        f"{_G}.BindTests.test_identity",
        f"{_G}.ModelTests.test_graph",
    ),
    "09-X-46": Proof(
        "a direct exchange finds every queue bound with the key, each once, and no other",
        f"{_G}.RouteTests.test_types",
        f"{_G}.RouteTests.test_several_keys",
        f"{_G}.ModelTests.test_graph",
    ),
    "09-W-74": Proof(
        "each usual argument has its values and its errors; others are kept and compared",
        f"{_A}.QueueArgumentTests.test_each",
        f"{_A}.QueueArgumentTests.test_unknown",
        f"{_A}.RedeclareTests.test_different",
        "tests.broker.exchanges.test_topology_policies.InForceTests.test_declared",
    ),
    "09-M-02": Proof(
        "a key with an at sign is an address to the default exchange, and a queue to no other",
        f"{_G}.RouteTests.test_default_exchange",
        f"{_A}.NameTests.test_standard_names",
    ),
    "09-M-08": Proof(
        "exchange and key of a publish come back; without them it is the queue's name",
        f"{_L}.ToContentTests.test_route",
        "tests.translation.test_round_trips.OldRoundTripTests.test_octet_by_octet",
    ),
    # ------------------------------------------------------- what the frontend decides
    "09-DOM-09": Proof("with no-ack a message is gone when it is sent", f"{_R}.test_without_acks"),
    "09-DOM-10": Proof(
        "a no-local consumer gets what others publish and not what its connection does",
        f"{_R}.test_no_local",
    ),
    "09-DOM-13": Proof(
        "what was delivered before is marked, to the same client and to others",
        f"{_R}.test_reject",
        f"{_R}.test_end_of_a_channel",
    ),
    "09-EXCH-05": Proof(
        "the default exchange finds the queue that has the key as name",
        f"{_P}.PublishTests.test_to_a_queue",
    ),
    "09-EXCH-06": Proof(
        "in 0-9-1 nobody binds to the default exchange, or declares it",
        f"{_E}.test_default_exchange",
        f"{_E}.test_declare",
    ),
    "09-EXCH-09": Proof(
        "a second declare is answered, another type refused",
        f"{_E}.test_declare",
        f"{_E}.test_codes_of_0_9",
    ),
    "09-EXCH-13": Proof("a passive declare tells whether there is one", f"{_E}.test_declare"),
    "09-EXCH-14": Proof("a durable exchange and its binding route after kill -9", _CRASH),
    "09-EXCH-16": Proof(
        "a publish to an internal exchange is refused", f"{_P}.PublishTests.test_wrong_exchange"
    ),
    "09-EXCH-17": Proof(
        "with nowait an exchange is declared and nothing is answered", f"{_Q}.test_without_answers"
    ),
    "09-EXCH-19": Proof(
        "a declare is answered by exchange.declare-ok, also the second", f"{_E}.test_declare"
    ),
    "09-EXCH-21": Proof("an exchange with bindings stays under if-unused", f"{_E}.test_bindings"),
    "09-EXCH-23": Proof(
        "a delete is answered by exchange.delete-ok, in 0-9-1 each time", f"{_E}.test_bindings"
    ),
    "09-QUEUE-04": Proof("a new queue gets what is published with its name", f"{_Q}.test_declare"),
    "09-QUEUE-06": Proof(
        "a second declare is answered, another one refused",
        f"{_Q}.test_declare",
        f"{_Q}.test_declared_otherwise",
    ),
    "09-QUEUE-08": Proof(
        "a passive declare of a missing queue fails with 404", f"{_Q}.test_missing_queue"
    ),
    "09-QUEUE-09": Proof(
        "after kill -9 a durable queue is there and a transient one is not", _CRASH
    ),
    "09-QUEUE-11": Proof(
        "each method of another connection on an exclusive queue gets 405", f"{_Q}.test_exclusive"
    ),
    "09-QUEUE-13": Proof(
        "an auto-delete queue goes with its last consumer, and not before it had one",
        f"{_Q}.test_auto_delete",
    ),
    "09-QUEUE-14": Proof(
        "with nowait nothing is answered but errors", f"{_Q}.test_without_answers"
    ),
    "09-QUEUE-16": Proof(
        "the answer has the name that the broker made", f"{_Q}.test_generated_name"
    ),
    "09-QUEUE-17": Proof("the answer counts the messages that wait", f"{_Q}.test_declare"),
    "09-QUEUE-19": Proof("a repeated bind is answered and changes nothing", f"{_E}.test_bindings"),
    "09-QUEUE-23": Proof("the binding routes after kill -9", _CRASH),
    "09-QUEUE-27": Proof(
        "an empty name means the queue last declared", f"{_Q}.test_generated_name"
    ),
    "09-QUEUE-32": Proof(
        "queue.bind is answered by queue.bind-ok, each time", f"{_E}.test_bindings"
    ),
    "09-QUEUE-37": Proof(
        "a purged queue has no messages, and its messages are counted", f"{_Q}.test_generated_name"
    ),
    "09-QUEUE-45": Proof(
        "purge-ok has the number of messages that went", f"{_Q}.test_generated_name"
    ),
    "09-QUEUE-47": Proof("the consumers of a deleted queue are cancelled", f"{_R}.test_node_gone"),
    "09-QUEUE-52": Proof(
        "a queue with consumers stays under if-unused", f"{_Q}.test_delete_with_conditions"
    ),
    "09-QUEUE-53": Proof(
        "a queue with messages stays under if-empty", f"{_Q}.test_delete_with_conditions"
    ),
    "09-BASIC-01": Proof("persistent messages are there after kill -9", _CRASH),
    "09-BASIC-04": Proof(
        "a publisher that is faster than the disk is not read", f"{_P}.PublishTests.test_slow_disk"
    ),
    "09-BASIC-10": Proof(
        "consumers without acknowledgement are served, and what was sent is gone",
        f"{_R}.test_without_acks",
    ),
    "09-BASIC-11": Proof(
        "what is not acknowledged when channel or connection end is delivered again",
        f"{_R}.test_end_of_a_channel",
    ),
    "09-BASIC-13": Proof(
        "qos is answered by qos-ok, in its place among the answers", f"{_R}.test_order_of_answers"
    ),
    "09-BASIC-14": Proof("a window in octets is not exceeded", f"{_R}.test_prefetch_in_octets"),
    "09-BASIC-16": Proof(
        "the windows of consumer, channel and connection hold together",
        f"{_R}.test_prefetch",
        f"{_R}.test_prefetch_of_a_channel",
        f"{_R}.test_prefetch_of_a_connection",
    ),
    "09-BASIC-18": Proof(
        "global in 0-9 bounds all channels of the connection", f"{_R}.test_prefetch_of_a_connection"
    ),
    "09-BASIC-25": Proof(
        "an exclusive consumer is alone on its queue, or is refused", f"{_R}.test_exclusive"
    ),
    "09-BASIC-28": Proof(
        "consume-ok comes before the first delivery", f"{_R}.test_consume_and_ack"
    ),
    "09-BASIC-29": Proof(
        "nothing comes behind cancel-ok, and what had come can be acknowledged", f"{_R}.test_cancel"
    ),
    "09-BASIC-31": Proof("a cancel of a tag that is gone is answered", f"{_R}.test_cancel"),
    "09-BASIC-33": Proof("cancel is answered by cancel-ok with the tag", f"{_R}.test_cancel"),
    "09-BASIC-34": Proof(
        "what is published on a transacted channel counts with the commit",
        f"{_P}.TransactionTests.test_commit_and_rollback",
    ),
    "09-BASIC-36": Proof(
        "a publish to a missing exchange closes the channel with 404",
        f"{_P}.PublishTests.test_wrong_exchange",
    ),
    "09-BASIC-38": Proof(
        "a mandatory message comes back, another is dropped",
        f"{_P}.PublishTests.test_return_before_ack",
        f"{_P}.PublishTests.test_nowhere",
        f"{_I}.test_pika_unroutable",
    ),
    "09-BASIC-39": Proof(
        "an immediate message comes back unless somebody takes it at once",
        f"{_P}.PublishTests.test_immediate",
    ),
    "09-BASIC-40": Proof(
        "what comes back has code, exchange, key, properties and body",
        f"{_P}.PublishTests.test_return_before_ack",
    ),
    "09-BASIC-44": Proof("get is answered by get-ok or get-empty", f"{_R}.test_get"),
    "09-BASIC-48": Proof("message-count leaves out the message itself", f"{_R}.test_get"),
    "09-BASIC-58": Proof(
        "reject with requeue puts a message back, without it is gone", f"{_R}.test_reject"
    ),
    "09-BASIC-59": Proof("recover sends all that is unacknowledged again", f"{_R}.test_recover"),
    "09-BASIC-60": Proof("what recover sends is marked redelivered", f"{_R}.test_recover"),
    "09-BASIC-62": Proof(
        "recover without requeue goes to the same consumer, with it to any", f"{_R}.test_recover"
    ),
    "09-TX-06": Proof(
        "a commit has publishes and acknowledgements count, and the next transaction begins",
        f"{_P}.TransactionTests.test_commit_and_rollback",
        f"{_P}.TransactionTests.test_acks",
        _CRASH,
    ),
    "09-TX-07": Proof(
        "a commit that fails closes the channel", f"{_P}.TransactionTests.test_timeout"
    ),
    "09-TX-08": Proof(
        "a rollback drops publishes and acknowledgements",
        f"{_P}.TransactionTests.test_commit_and_rollback",
        f"{_P}.TransactionTests.test_acks",
    ),
    "09-X-23": Proof("declare without the right create gets 403", f"{_Q}.test_rights"),
    "09-X-24": Proof("an exchange amq.mine is refused with 403", f"{_E}.test_declare"),
    "09-X-25": Proof("another type gets 530 in 0-9", f"{_E}.test_codes_of_0_9"),
    "09-X-26": Proof("an unknown exchange type gets 503 in 0-9", f"{_E}.test_codes_of_0_9"),
    "09-X-27": Proof("a passive declare of a missing exchange gets 404", f"{_E}.test_declare"),
    "09-X-34": Proof(
        "without a name the broker makes one and tells it", f"{_Q}.test_generated_name"
    ),
    "09-X-36": Proof("a passive declare of a missing queue gets 404", f"{_Q}.test_missing_queue"),
    "09-X-43": Proof(
        "bind without any queue gets 530 in 0-9, 404 in 0-9-1", f"{_Q}.test_no_queue_declared"
    ),
    "09-X-44": Proof("a bind of a missing queue gets 404", f"{_Q}.test_missing_queue"),
    "09-X-45": Proof("bind to a missing exchange gets 404", f"{_Q}.test_missing_queue"),
    "09-X-50": Proof("purge without any queue gets 530 in 0-9", f"{_Q}.test_no_queue_declared"),
    "09-X-51": Proof("purge of a missing queue gets 404", f"{_Q}.test_missing_queue"),
    "09-X-52": Proof("delete without any queue gets 530 in 0-9", f"{_Q}.test_no_queue_declared"),
    "09-X-53": Proof(
        "delete of a missing queue gets 404 in 0-9 and succeeds in 0-9-1",
        f"{_Q}.test_missing_queue",
    ),
    "09-X-54": Proof(
        "with if-unused a queue that has a consumer stays", f"{_Q}.test_delete_with_conditions"
    ),
    "09-X-55": Proof(
        "with if-empty a queue that has a message stays", f"{_Q}.test_delete_with_conditions"
    ),
    "09-X-56": Proof(
        "a message that is alone comes, however large", f"{_R}.test_prefetch_in_octets"
    ),
    "09-X-57": Proof(
        "no more is sent ahead than the windows permit",
        f"{_R}.test_prefetch",
        f"{_R}.test_prefetch_in_octets",
    ),
    "09-X-58": Proof("consume without the right consume gets 403", f"{_Q}.test_rights"),
    "09-X-59": Proof("consume without any queue gets 530 in 0-9", f"{_Q}.test_no_queue_declared"),
    "09-X-62": Proof("a second consumer beside an exclusive one gets 403", f"{_R}.test_exclusive"),
    "09-X-63": Proof("publish needs the right on the exchange", f"{_P}.PublishTests.test_rights"),
    "09-X-66": Proof(
        "a publish to an internal exchange gets 403", f"{_P}.PublishTests.test_wrong_exchange"
    ),
    "09-X-67": Proof(
        "a mandatory message that goes nowhere comes back",
        f"{_P}.PublishTests.test_return_before_ack",
    ),
    "09-X-68": Proof(
        "an immediate message that nobody takes comes back", f"{_P}.PublishTests.test_immediate"
    ),
    "09-X-69": Proof("get without the right consume gets 403", f"{_Q}.test_rights"),
    "09-X-70": Proof("get without any queue gets 530 in 0-9", f"{_Q}.test_no_queue_declared"),
    "09-X-112": Proof(
        "a commit and a rollback do what they say, for pika too",
        f"{_P}.TransactionTests.test_commit_and_rollback",
        f"{_I}.test_pika_transaction",
    ),
    "09-W-73": Proof(
        "a confirm comes with the commit, as a range", f"{_P}.PublishTests.test_confirms", _CRASH
    ),
    "09-M-01": Proof(
        "a key NAME@DOMAIN on the default exchange is relayed",
        f"{_P}.FederationTests.test_to_another_organization",
    ),
    "09-M-04": Proof(
        "mandatory comes back where there is no way, and not where the message is stored",
        f"{_P}.FederationTests.test_unknown_domain",
        f"{_P}.FederationTests.test_to_another_organization",
    ),
    "09-M-05": Proof(
        "immediate to another organization comes back", f"{_P}.FederationTests.test_immediate"
    ),
    "09-M-10": Proof(
        "a body that comes in parts goes to the disk, and on when it is complete",
        "tests.frontends.amqp09.test_large_bodies.PublishTests.test_through",
        "tests.frontends.amqp09.test_large_bodies.PublishTests.test_cut",
    ),
    "09-M-09": Proof(
        "ack, reject and nack are the outcomes of 1.0",
        f"{_R}.test_reject",
        f"{_R}.test_consume_and_ack",
    ),
}
