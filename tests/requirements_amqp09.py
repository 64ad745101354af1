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
_RULES = "tests.frontends.amqp09.test_rules"
_REALMS = "tests.frontends.amqp09.test_access_realms"
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
        "classes that a version lacks: 503; methods that it lacks: 540",
        f"{_C}.ViolationTests.test_removed",
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
    # --------------------------------------- rows of the classes that the frontend decides
    "09-ACC-01": Proof(
        "work that names a ticket needs one that was given",
        f"{_REALMS}.UseTests.test_each_use",
        f"{_REALMS}.UseTests.test_never_given",
    ),
    "09-ACC-02": Proof(
        "a ticket is good for the uses of its realm that were asked for",
        f"{_REALMS}.UseTests.test_each_use",
        f"{_REALMS}.UseTests.test_other_realm",
    ),
    "09-ACC-03": Proof(
        "access.request is answered by a ticket of its own", f"{_REALMS}.RequestTests.test_granted"
    ),
    "09-ACC-04": Proof(
        "a realm without a right to it: 403 of the channel (I-05)",
        f"{_REALMS}.RequestTests.test_rights_of_the_user",
    ),
    "09-ACC-05": Proof(
        "a ticket ends with its channel and is no other's",
        f"{_REALMS}.RequestTests.test_end",
        f"{_REALMS}.UseTests.test_of_another_channel",
    ),
    "09-ACC-06": Proof(
        "a realm has the exchanges and queues that its patterns name",
        f"{_REALMS}.UseTests.test_other_realm",
        f"{_REALMS}.UseTests.test_realms_change",
    ),
    "09-ACC-07": Proof(
        "a second request for a realm destroys the first ticket",
        f"{_REALMS}.RequestTests.test_second_request",
    ),
    "09-ACC-08": Proof(
        "an exclusive ticket keeps others from tickets for the realm",
        f"{_REALMS}.RequestTests.test_exclusive",
        f"{_REALMS}.RequestTests.test_exclusive_in_a_virtual_host",
    ),
    "09-ACC-09": Proof(
        "a passive ticket is good for passive declarations only",
        f"{_REALMS}.UseTests.test_each_use",
        f"{_REALMS}.UseTests.test_passive_declare_of_a_queue",
    ),
    "09-ACC-10": Proof(
        "declare, bind, unbind and delete need an active ticket",
        f"{_REALMS}.UseTests.test_each_use",
    ),
    "09-ACC-11": Proof(
        "publishing with a ticket needs one for writing",
        f"{_REALMS}.UseTests.test_publish",
        f"{_REALMS}.UseTests.test_publish_by_a_known_way",
        f"{_REALMS}.UseTests.test_large_publish",
    ),
    "09-ACC-12": Proof(
        "consume and get need a ticket for reading", f"{_REALMS}.UseTests.test_each_use"
    ),
    "09-ACC-13": Proof(
        "another channel's ticket closes the connection with 530",
        f"{_REALMS}.UseTests.test_of_another_channel",
    ),
    "09-ACC-14": Proof(
        "a ticket is good until its channel ends or it is replaced",
        f"{_REALMS}.RequestTests.test_second_request",
        f"{_REALMS}.RequestTests.test_end",
    ),
    "09-BASIC-02": Proof(
        "persistent messages are on the disk before they are confirmed",
        _CRASH,
        f"{_P}.PublishTests.test_confirms",
    ),
    "09-BASIC-03": Unproved(
        "queues page and never overflow, unless a client gives one a length (09-W-74)"
    ),
    "09-BASIC-05": Unproved(
        "a permission: what does not fit into memory is paged, whatever its delivery-mode"
    ),
    "09-BASIC-06": Unproved("a permission of which use is made with a length only (09-W-74)"),
    "09-BASIC-07": Proof(
        "9 goes before 0 on a queue of a 0-9 client, and with x-max-priority in both versions",
        f"{_RULES}.BasicRuleTests.test_priorities_of_0_9",
        f"{_RULES}.BasicRuleTests.test_priorities",
    ),
    "09-BASIC-08": Proof(
        "ten priorities are told apart, as messages of 9, 5, 4 and 0 show",
        f"{_RULES}.BasicRuleTests.test_priorities",
    ),
    "09-BASIC-09": Proof(
        "messages of one priority keep their order, persistent or not",
        f"{_RULES}.BasicRuleTests.test_order",
        f"{_RULES}.BasicRuleTests.test_priorities",
    ),
    "09-BASIC-12": Proof(
        "delivery-mode 2 is stored, 1 is not; priorities are those of the property",
        f"{_RULES}.QueueRuleTests.test_transient_messages",
        f"{_RULES}.BasicRuleTests.test_priorities",
    ),
    "09-BASIC-15": Proof(
        "a window of 0 is no window, and the others hold",
        f"{_RULES}.BasicRuleTests.test_no_window_without_acks",
    ),
    "09-BASIC-17": Proof(
        "windows do not hold for consumers without acknowledgements",
        f"{_RULES}.BasicRuleTests.test_no_window_without_acks",
    ),
    "09-BASIC-19": Proof(
        "another qos holds at once for consumers that are there (0-9)",
        f"{_RULES}.BasicRuleTests.test_qos_while_consuming",
    ),
    "09-BASIC-20": Proof(
        "a consumer is there until it is cancelled or its channel ends",
        f"{_R}.test_cancel",
        f"{_R}.test_end_of_a_channel",
    ),
    "09-BASIC-21": Proof(
        "twenty consumers on one queue are taken", f"{_RULES}.QueueRuleTests.test_many"
    ),
    "09-BASIC-22": Proof(
        "consume without a name takes the queue declared last",
        f"{_RULES}.QueueRuleTests.test_last_declared",
    ),
    "09-BASIC-26": Proof(
        "consume with nowait has no answer but deliveries",
        f"{_RULES}.BasicRuleTests.test_nowait",
        f"{_RULES}.QueueRuleTests.test_without_answers",
    ),
    "09-BASIC-27": Proof(
        "arguments of consume that nobody knows are taken",
        f"{_RULES}.BasicRuleTests.test_unknown_consume_arguments",
    ),
    "09-BASIC-30": Unproved(
        "a permission to the server: it sends nothing behind a cancel that it has read"
    ),
    "09-BASIC-32": Proof(
        "cancel with nowait has no answer at all", f"{_RULES}.BasicRuleTests.test_nowait"
    ),
    "09-BASIC-35": Proof(
        "an empty exchange name is the default exchange", f"{_P}.PublishTests.test_to_a_queue"
    ),
    "09-BASIC-37": Proof(
        "what a routing key means is decided by the type of the exchange",
        f"{_G}.RouteTests.test_types",
        f"{_G}.RouteTests.test_empty_key",
    ),
    "09-BASIC-42": Proof(
        "deliveries are counted, and x-delivery-count says so",
        f"{_RULES}.BasicRuleTests.test_delivery_limit",
    ),
    "09-BASIC-43": Proof(
        "beyond x-delivery-limit a message is a dead letter",
        f"{_RULES}.BasicRuleTests.test_delivery_limit",
    ),
    "09-BASIC-45": Proof(
        "get without a name takes the queue declared last",
        f"{_RULES}.QueueRuleTests.test_last_declared",
    ),
    "09-BASIC-46": Proof(
        "a message from get is unacknowledged unless no-ack is set",
        f"{_RULES}.BasicRuleTests.test_get_needs_an_ack",
    ),
    "09-BASIC-47": Proof(
        "get-ok has an empty exchange for the default exchange",
        f"{_RULES}.BasicRuleTests.test_get_needs_an_ack",
    ),
    "09-BASIC-49": Unproved("a rule for clients; the field of get-empty is sent empty"),
    "09-BASIC-55": Proof(
        "a rejected message with requeue is for the next consumer",
        f"{_RULES}.BasicRuleTests.test_rejected",
        f"{_R}.test_reject",
    ),
    "09-BASIC-56": Unproved("a rule for clients, who cannot be kept from it"),
    "09-BASIC-57": Proof(
        "without requeue a rejected message is dropped or a dead letter",
        f"{_R}.test_reject",
        f"{_DECLARED}.DeadLetterTests.test_reasons",
    ),
    "09-DOM-01": Proof(
        "tickets of a channel are void when it closes",
        f"{_REALMS}.RequestTests.test_end",
        f"{_REALMS}.UseTests.test_of_another_channel",
    ),
    "09-DOM-02": Proof(
        "in 0-9 a consumer tag is in use for the whole connection",
        "tests.wire.amqp09.test_channels.ConsumerTagTests.test_scope",
    ),
    "09-DOM-06": Proof(
        "names of exchanges: the standard's alphabet, each virtual host its own (I-07)",
        f"{_RULES}.QueueRuleTests.test_names",
        "tests.frontends.test_virtual_hosts.BorderTests.test_exchanges",
    ),
    "09-DOM-07": Proof(
        "names of queues: the standard's alphabet, each virtual host its own",
        f"{_RULES}.QueueRuleTests.test_names",
        "tests.frontends.test_virtual_hosts.BorderTests.test_queues_of_one_name",
    ),
    "09-DOM-11": Proof(
        "a virtual host is named with a slash and without (I-08)",
        "tests.frontends.test_virtual_hosts.OpenTests.test_names",
    ),
    "09-DOM-12": Proof(
        "clients with other properties are served the same",
        f"{_RULES}.ConnectionRuleTests.test_properties_change_nothing",
    ),
    "09-ERR-03": Proof(
        "answers have no reply code, and 200 is never one",
        f"{_RULES}.ConnectionRuleTests.test_success_is_never_sent",
    ),
    "09-ERR-04": Unproved("no method of these classes asks for a specific message"),
    "09-ERR-06": Proof(
        "a mandatory message without a way comes back with 312",
        f"{_P}.PublishTests.test_return_before_ack",
    ),
    "09-ERR-07": Proof(
        "an immediate message that nobody takes comes back with 313",
        f"{_P}.PublishTests.test_immediate",
    ),
    "09-ERR-08": Proof(
        "a connection that the daemon closes is told 320",
        f"{_RULES}.ConnectionRuleTests.test_operator_closes",
    ),
    "09-ERR-09": Proof(
        "a virtual host that is not there: 402 in 0-9, 530 in 0-9-1",
        "tests.frontends.test_virtual_hosts.OpenTests.test_unknown",
    ),
    "09-ERR-10": Proof(
        "each method without its right: 403 of the channel",
        f"{_Q}.test_rights",
        f"{_P}.PublishTests.test_rights",
    ),
    "09-ERR-11": Proof(
        "what is not there: 404 of the channel",
        f"{_Q}.test_missing_queue",
        f"{_P}.PublishTests.test_wrong_exchange",
    ),
    "09-ERR-12": Proof(
        "another connection's exclusive queue: 405 of the channel", f"{_Q}.test_exclusive"
    ),
    "09-ERR-13": Proof(
        "a precondition that does not hold: 406 of the channel",
        f"{_Q}.test_delete_with_conditions",
        f"{_Q}.test_declared_otherwise",
    ),
    "09-ERR-21": Unproved(
        "a fault of the broker's own is logged and answered by 541; none is known"
    ),
    "09-EXCH-01": Proof(
        "fanout and direct exchanges route as they have to", f"{_G}.RouteTests.test_types"
    ),
    "09-EXCH-02": Proof(
        "topic and headers exchanges are there as well", f"{_G}.RouteTests.test_types"
    ),
    "09-EXCH-08": Proof(
        "exchanges come from clients and from definitions, and are there after a restart",
        "tests.broker.exchanges.test_topology.RestartTests.test_restart",
    ),
    "09-EXCH-10": Proof(
        "a user may declare twenty exchanges and more", f"{_RULES}.QueueRuleTests.test_many"
    ),
    "09-EXCH-11": Proof(
        "a new exchange belongs to the realm of its ticket, or is refused",
        f"{_REALMS}.UseTests.test_other_realm",
    ),
    "09-EXCH-12": Proof(
        "the type of an exchange cannot change: 530 in 0-9, 406 in 0-9-1",
        f"{_E}.test_declare",
        f"{_E}.test_codes_of_0_9",
    ),
    "09-EXCH-18": Proof(
        "a passive declare looks at no argument of an exchange",
        f"{_RULES}.QueueRuleTests.test_passive_ignores_arguments",
    ),
    "09-EXCH-22": Proof(
        "delete of an exchange with nowait has no answer but errors",
        f"{_RULES}.QueueRuleTests.test_without_answers",
    ),
    "09-M-03": Proof(
        "a key of 255 octets finds its queue; longer ones are no short strings",
        f"{_RULES}.ConnectionRuleTests.test_longest_routing_key",
    ),
    "09-M-06": Proof(
        "a bare reply-to becomes an address of ours when it leaves, and leads back",
        "tests.frontends.amqp09.test_direct_replies.FederationTests.test_responder_elsewhere",
        "tests.frontends.test_virtual_hosts.BorderTests.test_replies_to_partners",
    ),
    "09-M-07": Proof(
        "a message that goes on has less time to live by what it was held",
        f"{_RULES}.ConnectionRuleTests.test_time_held",
    ),
    "09-QUEUE-03": Proof(
        "a queue gets from an exchange only what comes behind its binding",
        f"{_RULES}.QueueRuleTests.test_nothing_before_a_binding",
    ),
    "09-QUEUE-05": Proof(
        "three hundred queues of one connection are taken", f"{_RULES}.QueueRuleTests.test_many"
    ),
    "09-QUEUE-07": Proof(
        "a new queue belongs to the realm of its ticket, or is refused",
        f"{_REALMS}.UseTests.test_other_realm",
    ),
    "09-QUEUE-10": Proof(
        "a durable queue stores persistent messages and no others",
        f"{_RULES}.QueueRuleTests.test_transient_messages",
    ),
    "09-QUEUE-12": Proof(
        "an exclusive queue goes with its connection, used or not (I-12)",
        f"{_RULES}.QueueRuleTests.test_exclusive_ends_with_its_connection",
    ),
    "09-QUEUE-15": Proof(
        "a passive declare looks at no argument of a queue",
        f"{_RULES}.QueueRuleTests.test_passive_ignores_arguments",
    ),
    "09-QUEUE-18": Proof(
        "consumers count, also those of a stopped channel: if-unused has to see them (I-32)",
        f"{_RULES}.QueueRuleTests.test_stopped_consumers",
    ),
    "09-QUEUE-20": Proof(
        "a bind that fails closes the channel with 404 (I-06)",
        f"{_RULES}.QueueRuleTests.test_failed_bind",
    ),
    "09-QUEUE-21": Proof(
        "a durable queue on a transient exchange: 530 in 0-9, bound in 0-9-1",
        f"{_RULES}.QueueRuleTests.test_what_0_9_does_not_bind",
    ),
    "09-QUEUE-24": Proof(
        "a queue on an internal exchange: 530 in 0-9, bound in 0-9-1",
        f"{_RULES}.QueueRuleTests.test_what_0_9_does_not_bind",
    ),
    "09-QUEUE-25": Proof(
        "twenty bindings of one queue are taken", f"{_RULES}.QueueRuleTests.test_many"
    ),
    "09-QUEUE-26": Proof(
        "bind with a ticket needs an active one for the queue", f"{_REALMS}.UseTests.test_each_use"
    ),
    "09-QUEUE-28": Proof(
        "without names a queue is bound by its own name",
        f"{_RULES}.QueueRuleTests.test_last_declared",
    ),
    "09-QUEUE-30": Proof(
        "bind with nowait has no answer but errors",
        f"{_Q}.test_without_answers",
        f"{_RULES}.QueueRuleTests.test_without_answers",
    ),
    "09-QUEUE-33": Proof(
        "an unbind that fails closes the channel with 404 in 0-9, and succeeds in 0-9-1",
        f"{_RULES}.QueueRuleTests.test_failed_bind",
    ),
    "09-QUEUE-34": Proof(
        "unbind with a ticket needs an active one for the queue",
        f"{_REALMS}.UseTests.test_each_use",
    ),
    "09-QUEUE-36": Proof(
        "unbind is always answered by unbind-ok",
        f"{_RULES}.QueueRuleTests.test_last_declared",
        f"{_RULES}.QueueRuleTests.test_failed_bind",
    ),
    "09-QUEUE-38": Proof(
        "a purge leaves the consumers of the queue at work", f"{_RULES}.QueueRuleTests.test_purge"
    ),
    "09-QUEUE-39": Proof(
        "a purge leaves what a client has, on transacted channels and others",
        f"{_RULES}.QueueRuleTests.test_purge",
    ),
    "09-QUEUE-40": Unproved(
        "a permission of which no use is made: what is purged is gone, but for the journal's record"
    ),
    "09-QUEUE-41": Proof(
        "a purge leaves nothing of the messages in the queue", f"{_RULES}.QueueRuleTests.test_purge"
    ),
    "09-QUEUE-42": Proof(
        "purge with a ticket needs one for reading (09-X-49)", f"{_REALMS}.UseTests.test_each_use"
    ),
    "09-QUEUE-43": Proof(
        "purge without a name takes the queue declared last",
        f"{_RULES}.QueueRuleTests.test_last_declared",
    ),
    "09-QUEUE-44": Proof(
        "purge with nowait has no answer but errors",
        f"{_RULES}.QueueRuleTests.test_without_answers",
        f"{_Q}.test_without_answers",
    ),
    "09-QUEUE-46": Unproved(
        "no dead-letter node is for deleted queues: messages go with theirs, as at RabbitMQ"
    ),
    "09-QUEUE-48": Unproved(
        "the same decision: what is on a deleted queue is told to senders who asked for reports"
    ),
    "09-QUEUE-49": Unproved("a permission; operators move messages between queues that are there"),
    "09-QUEUE-50": Proof(
        "delete with a ticket needs an active one for the queue",
        f"{_REALMS}.UseTests.test_each_use",
    ),
    "09-QUEUE-51": Proof(
        "delete without a name takes the queue declared last",
        f"{_RULES}.QueueRuleTests.test_last_declared",
        f"{_Q}.test_generated_name",
    ),
    "09-QUEUE-54": Proof(
        "delete of a queue with nowait has no answer but errors",
        f"{_RULES}.QueueRuleTests.test_without_answers",
        f"{_Q}.test_without_answers",
    ),
    "09-TX-01": Proof(
        "commit-ok comes when the committed work is on the disk",
        f"{_RULES}.TransactionRuleTests.test_committed_is_stored",
    ),
    "09-TX-02": Unproved("a rule for clients; redelivered is set where a duplicate may be"),
    "09-TX-03": Unproved("a rule for clients, who cannot be kept from it"),
    "09-TX-04": Proof(
        "select is answered by select-ok, in either version",
        f"{_RULES}.TransactionRuleTests.test_committed_is_stored",
    ),
    "09-TX-09": Unproved("a rollback writes nothing to the store and cannot fail"),
    "09-W-51": Proof(
        "PLAIN is offered where nobody can listen, and AMQPLAIN with it",
        "tests.frontends.amqp09.test_log_in.MechanismTests.test_offered",
    ),
    "09-W-70": Proof(
        "the capabilities announced are those of RabbitMQ, direct reply-to among them, and work",
        "tests.integration.test_side_by_side.SideBySideTests.test_differences",
    ),
    "09-X-03": Proof(
        "what another client had and did not acknowledge is redelivered",
        f"{_RULES}.BasicRuleTests.test_redelivered_is_said",
    ),
    "09-X-04": Unproved(
        "a rule for clients, who cannot be kept from it; the bit is set where it is known"
    ),
    "09-X-06": Proof(
        "server-properties have product, version, platform and information",
        "tests.integration.test_side_by_side.SideBySideTests.test_differences",
    ),
    "09-X-08": Proof(
        "client-properties of any kind are taken, and the product is logged",
        f"{_RULES}.ConnectionRuleTests.test_properties_change_nothing",
    ),
    "09-X-10": Unproved("a rule for clients; the mechanisms stand in the order of their strength"),
    "09-X-15": Proof(
        "no form of an address leads from one virtual host to another",
        "tests.frontends.test_virtual_hosts.BorderTests.test_default_exchange",
        "tests.frontends.test_virtual_hosts.BorderTests.test_declare_and_delete",
    ),
    "09-X-16": Unproved("no redirect is ever sent, so insist changes nothing"),
    "09-X-17": Proof(
        "whom the rules of a virtual host allow nothing may not open it",
        "tests.frontends.test_virtual_hosts.OpenTests.test_not_allowed",
    ),
    "09-X-20": Proof(
        "an undefined and a forbidden realm get the same answer",
        f"{_REALMS}.RequestTests.test_unknown_realm",
    ),
    "09-X-21": Proof(
        "exclusive access is refused while others have tickets, not for one's own",
        f"{_REALMS}.RequestTests.test_exclusive",
    ),
    "09-X-22": Proof(
        "a ticket is never 0, which stands for none (I-15)",
        f"{_REALMS}.RequestTests.test_granted",
        f"{_REALMS}.RequestTests.test_numbers_go_round",
        f"{_REALMS}.UseTests.test_no_ticket",
    ),
    "09-X-114": Proof(
        "names of 127 octets are taken in 0-9, longer ones are not",
        f"{_RULES}.QueueRuleTests.test_names",
    ),
    "09-X-115": Proof(
        "names of exchanges and queues have the alphabet of the standard in 0-9",
        f"{_RULES}.QueueRuleTests.test_names",
    ),
    "09-X-116": Proof(
        "EXTERNAL has an empty response, and channel-max 0 is usual: neither is an error",
        "tests.frontends.amqp09.test_log_in.MechanismTests.test_external",
    ),
    "09-X-28": Proof(
        "durable exchanges are there after a restart, transient ones are not",
        "tests.broker.exchanges.test_topology.RestartTests.test_restart",
        "tests.broker.exchanges.test_topology.RestartTests.test_transient",
    ),
    "09-X-29": Proof(
        "in 0-9 durable is ignored for what is there",
        f"{_RULES}.QueueRuleTests.test_flags_of_what_is_there",
    ),
    "09-X-39": Proof(
        "in 0-9 durable is ignored for what is there",
        f"{_RULES}.QueueRuleTests.test_flags_of_what_is_there",
    ),
    "09-X-30": Proof(
        "in 0-9 auto-delete is ignored for what is there",
        f"{_RULES}.QueueRuleTests.test_flags_of_what_is_there",
    ),
    "09-X-42": Proof(
        "in 0-9 auto-delete is ignored for what is there",
        f"{_RULES}.QueueRuleTests.test_flags_of_what_is_there",
    ),
    "09-X-31": Proof(
        "exchange.delete with a ticket needs an active one", f"{_REALMS}.UseTests.test_each_use"
    ),
    "09-X-32": Proof(
        "a missing exchange is not deleted: 404 in 0-9, success in 0-9-1",
        f"{_RULES}.QueueRuleTests.test_missing_exchange",
    ),
    "09-X-33": Proof(
        "queue.declare with a ticket needs an active one",
        f"{_REALMS}.UseTests.test_each_use",
        f"{_REALMS}.UseTests.test_passive_declare_of_a_queue",
    ),
    "09-X-35": Proof(
        "a new queue amq.x: 530 in 0-9, 403 in 0-9-1, and passive is permitted",
        f"{_RULES}.QueueRuleTests.test_reserved_names",
    ),
    "09-X-41": Proof(
        "another connection's exclusive queue is not declared: 405 (I-06)", f"{_Q}.test_exclusive"
    ),
    "09-X-47": Proof(
        "unbind of a missing queue: 404 in 0-9, success in 0-9-1",
        f"{_RULES}.QueueRuleTests.test_failed_bind",
    ),
    "09-X-48": Proof(
        "unbind from a missing exchange: 404 in 0-9, success in 0-9-1",
        f"{_RULES}.QueueRuleTests.test_failed_bind",
    ),
    "09-X-49": Proof(
        "purge with a ticket needs one for reading", f"{_REALMS}.UseTests.test_each_use"
    ),
    "09-X-64": Proof(
        "a publish without an exchange name goes by the default exchange",
        f"{_P}.PublishTests.test_to_a_queue",
        f"{_RULES}.BasicRuleTests.test_get_needs_an_ack",
    ),
    "09-X-65": Unproved("a permission of which no use is made: exchanges take every content"),
    "09-X-72": Proof(
        "a rejected message goes to one consumer and to none twice at a time",
        f"{_RULES}.BasicRuleTests.test_rejected",
    ),
}
