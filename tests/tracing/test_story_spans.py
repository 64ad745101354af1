# SPDX-License-Identifier: Apache-2.0
"""The spans of stories: tree, times, attributes, errors."""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import (
    network_attributes,
    server_attributes,
)
from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import RecordKind
from amqproute.tracing.span_queue import SpanFacts, SpanKindName
from tests.tracing.rig import (
    CLIENT_SPAN,
    START_US,
    STREAM,
    TRACE,
    TRACEPARENT,
    Records,
    make_ids,
    spans_of,
)

SECOND = 1_000_000
OUT = "amqp$out/b.example"


class SpanTests(SynchronousTestCase):
    """What is made of records."""

    def setUp(self) -> None:
        self.record = Records()

    def tree(self, spans: list[SpanFacts]) -> dict[str, str]:
        """Return the name of each span's parent, and check that ids are unique."""
        names = {span.context.parent_id: span.name for span in spans}
        self.assertEqual(len(names), len(spans))
        return {span.name: names.get(span.parent_id or "", span.parent_id or "") for span in spans}

    def test_delivered(self) -> None:
        """A message for a consumer here."""
        records = [
            self.record(
                RecordKind.RECEIVED, 1, node="orders", to="orders@a.example", message_id="m-1",
                sender="user:ann", size=512, durable=True, settle_us=5000, traceparent=TRACEPARENT,
                protocol="AMQP 0-9-1", level="tls",
            ),
            self.record(
                RecordKind.DELIVERED, 1, node="orders", peer="user:bob", wire_us=20, attempt=2
            ),
        ]  # fmt: skip
        spans = spans_of(records)
        self.assertEqual(
            self.tree(spans),
            {
                "publish orders": CLIENT_SPAN,
                "route orders": "publish orders",
                "store orders": "publish orders",
                "deliver orders": "publish orders",
            },
        )
        publish, _, store, deliver = spans
        self.assertEqual({span.context.trace_id for span in spans}, {TRACE})
        self.assertEqual((publish.kind, publish.is_parent_remote), (SpanKindName.SERVER, True))
        self.assertEqual((store.start_us, store.end_us - store.start_us), (records[0].time, 5000))
        self.assertEqual((deliver.end_us, deliver.end_us - deliver.start_us), (records[1].time, 20))
        self.assertEqual(deliver.kind, SpanKindName.CLIENT)
        self.assertEqual(
            publish.attributes,
            {
                "messaging.system": "amqproute",
                "messaging.operation.name": "publish",
                "messaging.destination.name": "orders@a.example",
                "messaging.message.id": "m-1",
                "messaging.message.envelope.size": 512,
                "network.protocol.name": "amqp",
                "network.protocol.version": "0-9-1",
                "amqproute.node": "orders",
                "amqproute.entry": 1,
                "amqproute.sender": "user:ann",
                "amqproute.security.level": "tls",
                "amqproute.sampling.reason": "rate",
            },
        )
        self.assertEqual(deliver.attributes["amqproute.peer"], "user:bob")
        self.assertEqual(deliver.attributes["amqproute.attempt"], 2)

    def test_relayed(self) -> None:
        """A message for another organization, after failures on the way."""
        received = self.record(
            RecordKind.RECEIVED, 1, node=OUT, to="q@b.example", durable=False, time=START_US
        )
        records = [
            self.record(RecordKind.ATTEMPT, None, node=OUT, time=START_US - 1, code="tcp.refused"),
            received,
            self.record(
                RecordKind.ATTEMPT, None, node=OUT, host="[2001:db8::1]:5671",
                time=START_US + SECOND, code="tcp.refused", words="refused", resolve_us=7,
                connect_us=5_000_000,
            ),
            self.record(
                RecordKind.ATTEMPT, None, node=OUT, host="mx.b.example:5671",
                time=START_US + 3 * SECOND, connect_us=SECOND, level="dane",
            ),
            self.record(
                RecordKind.DEFERRED, 1, node=OUT, time=START_US + 4 * SECOND, code="peer.full",
                condition="amqp:resource-limit-exceeded", attempt=1,
            ),
            self.record(
                RecordKind.RELAYED, 1, node=OUT, peer="peer:b.example", attempt=2, wire_us=SECOND,
                time=START_US + 9 * SECOND,
            ),
            self.record(RecordKind.ATTEMPT, None, node=OUT, time=START_US + 10 * SECOND),
        ]  # fmt: skip
        spans = spans_of(records)
        names = [span.name for span in spans]
        self.assertEqual(
            names,
            ["publish b.example", "route b.example", "attempt b.example", "relay b.example"]
            + 3 * ["attempt b.example"],
        )
        deferred, relay, refused, connected, handed = spans[2:]
        self.assertEqual(relay.context.parent_id, make_ids().span_id("relay", STREAM, 1))
        self.assertEqual(relay.parent_id, spans[0].context.parent_id)
        self.assertEqual((relay.start_us, relay.end_us), (START_US, START_US + 9 * SECOND))
        self.assertEqual((relay.kind, relay.error), (SpanKindName.CLIENT, None))
        for each in (deferred, refused, connected, handed):
            self.assertEqual(each.parent_id, relay.context.parent_id)
        self.assertEqual((deferred.error, refused.error), ("peer.full", "tcp.refused"))
        self.assertEqual((connected.error, handed.error), (None, None))
        self.assertEqual((refused.start_us, refused.end_us), (START_US, START_US + SECOND))
        self.assertEqual(connected.start_us, START_US + 2 * SECOND)
        self.assertEqual(handed.start_us, START_US + 8 * SECOND)
        self.assertEqual(refused.attributes["server.address"], "2001:db8::1")
        self.assertEqual(refused.attributes["server.port"], 5671)
        self.assertEqual(connected.attributes["amqproute.security.level"], "dane")
        self.assertEqual(relay.attributes["messaging.operation.type"], "send")

    def test_own_trace(self) -> None:
        """Without a context the trace begins here: the first span has no parent."""
        records = [
            self.record(RecordKind.RECEIVED, 1, node="q"),
            self.record(RecordKind.DELIVERED, 1, node="q"),
        ]
        publish, *_ = spans_of(records)
        self.assertIsNone(publish.parent_id)
        self.assertEqual(publish.context.trace_id, make_ids().trace_id(STREAM, 1))

    def test_failures(self) -> None:
        """Each end that is a failure has its span, with the reason."""
        for kind, name, type_ in (
            (RecordKind.REJECTED, "reject", "settle"),
            (RecordKind.EXPIRED, "expire", "settle"),
            (RecordKind.RETURNED, "return", "settle"),
            (RecordKind.DEAD_LETTERED, "dead-letter", "settle"),
        ):
            records = [
                self.record(RecordKind.RECEIVED, 1, node="q"),
                self.record(kind, 1, node="q", condition="amqp:not-found", words="gone"),
            ]
            last = spans_of(records)[-1]
            self.assertEqual((last.name, last.error), (f"{name} q", "amqp:not-found"))
            self.assertEqual(last.attributes["messaging.operation.type"], type_)
            self.assertEqual(last.attributes["amqproute.words"], "gone")
        records = [
            self.record(RecordKind.RECEIVED, 1, node=OUT),
            self.record(RecordKind.EXPIRED, 1, node=OUT, code="relay.expired"),
        ]
        last = spans_of(records)[-1]
        self.assertEqual((last.name, last.error), ("relay b.example", "relay.expired"))
        records = [
            self.record(RecordKind.RECEIVED, 1, node="q"),
            self.record(RecordKind.DELETED, 1, node="q", code="operator.purged"),
        ]
        last = spans_of(records)[-1]
        self.assertEqual((last.name, last.error), ("delete q", None))

    def test_unfinished(self) -> None:
        """A story that had to make room says so."""
        records = [self.record(RecordKind.RECEIVED, 1, node="q")]
        publish, *_ = spans_of(records, only_ended=False)
        self.assertTrue(publish.attributes["amqproute.unfinished"])

    def test_times(self) -> None:
        """No span ends before it begins, whatever the clock did."""
        records = [
            self.record(RecordKind.RECEIVED, 1, node=OUT, time=START_US, durable=True, settle_us=0),
            self.record(RecordKind.RELAYED, 1, node=OUT, time=START_US - 5, wire_us=7),
        ]
        for span in spans_of(records):
            self.assertLessEqual(span.start_us, span.end_us)

    def test_conventions(self) -> None:
        """Names are those that OpenTelemetry defines today, as its own package has them."""
        for name in (
            messaging_attributes.MESSAGING_SYSTEM,
            messaging_attributes.MESSAGING_OPERATION_NAME,
            messaging_attributes.MESSAGING_OPERATION_TYPE,
            messaging_attributes.MESSAGING_DESTINATION_NAME,
            messaging_attributes.MESSAGING_MESSAGE_ID,
            messaging_attributes.MESSAGING_MESSAGE_ENVELOPE_SIZE,
            network_attributes.NETWORK_PROTOCOL_NAME,
            network_attributes.NETWORK_PROTOCOL_VERSION,
            server_attributes.SERVER_ADDRESS,
            server_attributes.SERVER_PORT,
        ):
            self.assertIn(name, self.used())
        types = {each.value for each in messaging_attributes.MessagingOperationTypeValues}
        self.assertLessEqual({"send", "settle"}, types)

    def used(self) -> set[str]:
        """Return the attributes of a message that has everything."""
        records = [
            self.record(RecordKind.RECEIVED, 1, node=OUT, to="q@b.example", message_id="m", size=1),
            self.record(RecordKind.ATTEMPT, None, node=OUT, host="mx.b.example:5671"),
            self.record(RecordKind.RELAYED, 1, node=OUT),
        ]
        return {name for span in spans_of(records) for name in span.attributes}
