# SPDX-License-Identifier: Apache-2.0
"""From the queue to the collector: bounds, failures, and what arrives."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ConfigError
from amqproute.trace_context import TraceContext
from amqproute.tracing.collector_connection import (
    MOST_ANSWER,
    MOST_HEADERS,
    CollectorConnection,
    CollectorTerms,
    read_headers,
)
from amqproute.tracing.otlp_exporter import OtlpSink
from amqproute.tracing.span_export import TRIES, ExportFailure, SpanExport
from amqproute.tracing.span_queue import SpanFacts, SpanKindName, SpanQueue
from tests.integration.support import certificates
from tests.support.patience import until
from tests.tracing.rig import CLIENT_SPAN, START_US, TRACE, Collector


def span(number: int = 1, **changes: Any) -> SpanFacts:
    """Return a span."""
    facts: dict[str, Any] = {
        "name": f"publish {number}",
        "context": TraceContext(TRACE, f"{number:016x}", 0),
        "parent_id": CLIENT_SPAN,
        "is_parent_remote": True,
        "kind": SpanKindName.SERVER,
        "start_us": START_US,
        "end_us": START_US + 5,
        "attributes": {"messaging.system": "amqproute", "amqproute.entry": number},
    }
    return SpanFacts(**{**facts, **changes})


class QueueTests(SynchronousTestCase):
    """The bounded queue."""

    def test_bound(self) -> None:
        """The spans of one message fit together or are dropped together, and counted."""
        queue = SpanQueue(5)
        queue.put([span(n) for n in range(4)])
        queue.put([span(8), span(9)])
        queue.put([span(4)])
        self.assertEqual((len(queue), queue.dropped), (5, 2))
        self.assertEqual([each.name[-1] for each in queue.take(3, 0)], ["0", "1", "2"])
        self.assertEqual(len(queue.take(3, 0)), 2)

    def test_closed(self) -> None:
        """A closed queue gives what is left, and takes nothing."""
        queue = SpanQueue(5)
        queue.put([span()])
        queue.close()
        queue.put([span(), span()])
        self.assertEqual((len(queue.take(5, 60)), queue.take(5, 60), queue.dropped), (1, [], 2))
        queue.discard()
        self.assertEqual(queue.dropped, 2)


class Sink:
    """A collector that does as it is told."""

    place = "http://collector.example"

    def __init__(self, *results: Exception | tuple[int, str]) -> None:
        self.results = [*results]
        self.batches: list[int] = []
        self.closed = 0

    def export(self, spans: Sequence[SpanFacts]) -> tuple[int, str]:
        self.batches.append(len(spans))
        result = self.results.pop(0) if self.results else (0, "")
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self.closed += 1


class ExportTests(SynchronousTestCase):
    """Repetitions, and what is given up."""

    def export(self, sink: Sink, count: int = 1) -> tuple[SpanExport, list[float]]:
        """Export spans with pauses that take no time; return the pauses."""
        queue = SpanQueue(10_000)
        queue.put([span(n) for n in range(count)])
        export = SpanExport(queue, sink, lambda: 0.0)
        pauses: list[float] = []
        export._hurry.wait = lambda seconds=None: bool(pauses.append(seconds or 0.0))  # type: ignore[method-assign]
        take = queue.take
        queue.take = lambda most, _: take(most, 0) if len(queue) else []  # type: ignore[method-assign]
        export.run()
        return export, pauses

    def test_batches(self) -> None:
        """Spans go in batches."""
        sink = Sink()
        export, _ = self.export(sink, 1000)
        self.assertEqual((sink.batches, sink.closed), ([512, 488], 1))
        self.assertEqual((export.figures.exported, export.figures.failed), (1000, 0))

    def test_repeated(self) -> None:
        """A batch that was not taken is sent again, after growing pauses."""
        sink = Sink(ExportFailure("busy"), ExportFailure("busy", retry_after=30))
        export, pauses = self.export(sink, 3)
        self.assertEqual((sink.batches, pauses), ([3, 3, 3], [1.0, 30.0]))
        figures = export.figures
        self.assertEqual((figures.exported, figures.failed, figures.failures), (3, 0, 2))

    def test_given_up(self) -> None:
        """A batch is given up after some tries; one that is refused for good, at once."""
        sink = Sink(*(ExportFailure("down", retry_after=9e9) for _ in range(TRIES)))
        export, pauses = self.export(sink, 600)
        self.assertEqual(sink.batches, [512] * TRIES + [88])
        self.assertEqual((export.figures.failed, export.figures.exported), (512, 88))
        self.assertLessEqual(max(pauses), 60.0)
        sink = Sink(ExportFailure("it answers 400 Bad Request", is_final=True))
        export, pauses = self.export(sink, 2)
        self.assertEqual((sink.batches, pauses, export.figures.failed), ([2], [], 2))

    def test_partial(self) -> None:
        """Spans that the collector rejects among others are counted."""
        export, _ = self.export(Sink((2, "too old")), 5)
        self.assertEqual((export.figures.exported, export.figures.failed), (3, 2))

    def test_fault(self) -> None:
        """A fault of ours costs its batch, not the thread."""
        export, _ = self.export(Sink(ZeroDivisionError("a bug")), 600)
        self.assertEqual((export.figures.failed, export.figures.exported), (512, 88))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stop(self) -> None:
        """At a stop nothing is tried twice."""
        queue, sink = SpanQueue(100), Sink(ExportFailure("down"))
        queue.put([span()])
        export = SpanExport(queue, sink, lambda: 0.0)
        export.stop()
        export.run()
        self.assertEqual((sink.batches, export.figures.failed), ([1], 1))

    def test_abandoned(self) -> None:
        """What cannot be delivered before the process ends is dropped and counted."""
        queue, sink = SpanQueue(100), Sink()
        queue.put([span()])
        SpanExport(queue, sink, lambda: 0.0).abandon()
        self.assertEqual((sink.batches, sink.closed, queue.dropped), ([], 1, 1))

    def test_replaced(self) -> None:
        """A reload sends what waits to the new place at once, and closes the old."""
        queue, old, new = SpanQueue(100), Sink(ExportFailure("down")), Sink()
        export = SpanExport(queue, old, lambda: 0.0)
        thread = threading.Thread(target=export.run)
        thread.start()
        queue.put([span()])
        until(lambda: len(old.batches) == 1)
        export.replace(new)
        until(lambda: new.batches == [1])
        export.stop()
        thread.join()
        self.assertEqual((old.closed, new.closed, export.figures.exported), (1, 1, 1))


class CollectorTests(SynchronousTestCase):
    """Over HTTP, with a collector on loopback."""

    def setUp(self) -> None:
        self.collector = Collector()
        self.addCleanup(self.collector.stop)

    def sink(self, **terms: Any) -> OtlpSink:
        """Return a sink for the collector."""
        sink = OtlpSink(
            CollectorTerms(**{"endpoint": self.collector.url, "timeout_seconds": 60.0, **terms}),
            {"service.name": "amqproute", "service.instance.id": "mx.a"},
        )
        self.addCleanup(sink.close)
        return sink

    def failure(self, call: Callable[[], object]) -> ExportFailure:
        """Return the failure of a call."""
        with self.assertRaises(ExportFailure) as caught:
            call()
        return caught.exception

    def test_span(self) -> None:
        """Everything of a span arrives."""
        link = TraceContext("1" * 32, "2" * 16, 0)
        one = span(7, error="relay.expired", links=(link,))
        self.assertEqual(self.sink(headers={"X-Token": "secret"}).export([one]), (0, ""))
        (headers,) = self.collector.headers
        self.assertEqual(headers["X-Token"], "secret")
        self.assertEqual(headers[":path"], "/v1/traces")
        self.assertEqual(headers["Content-Type"], "application/x-protobuf")
        (found,) = self.collector.spans()
        self.assertEqual(
            found,
            {
                "service": {"service.name": "amqproute", "service.instance.id": "mx.a"},
                "scope": "amqproute.tracing",
                "name": "publish 7",
                "kind": 2,  # SPAN_KIND_SERVER
                "trace": TRACE,
                "id": f"{7:016x}",
                "parent": CLIENT_SPAN,
                "start": START_US * 1000,
                "end": (START_US + 5) * 1000,
                "status": 2,  # STATUS_CODE_ERROR
                "attributes": {
                    "messaging.system": "amqproute",
                    "amqproute.entry": 7,
                    "error.type": "relay.expired",
                },
                "links": ["1" * 32],
            },
        )
        self.sink().export([span(8, parent_id=None)])
        self.assertEqual(self.collector.spans()[-1]["parent"], "")

    def test_kept_alive(self) -> None:
        """One connection serves, and a new one when the collector has closed it."""
        sink = self.sink()
        sink.export([span(1)])
        first = sink._connection._connection
        sink.export([span(2)])
        self.assertIs(sink._connection._connection, first)
        assert first is not None
        assert first.sock is not None
        first.sock.shutdown(socket.SHUT_RDWR)  # as if the other end had
        sink.export([span(3)])
        self.assertEqual(len(self.collector.spans()), 3)

    def test_statuses(self) -> None:
        """Which refusals are for good; a redirect is one, and is not followed."""
        self.collector.answer_headers = {"Retry-After": "17", "Location": self.collector.url}
        sink = self.sink()
        for status, is_final in (
            (400, True), (401, True), (404, True), (302, True), (307, True), (500, True),
            (429, False), (502, False), (503, False), (504, False),
        ):  # fmt: skip
            self.collector.statuses = [status]
            error = self.failure(lambda: sink.export([span()]))
            self.assertEqual((error.is_final, error.retry_after), (is_final, 17.0), status)
            self.assertIn(str(status), str(error))
        self.assertEqual((self.collector.spans(), len(self.collector.headers)), ([], 10))

    def test_partial_success(self) -> None:
        """The collector says how many it has rejected; nonsense is no rejection."""
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = 2
        answer.partial_success.error_message = "too\nold"
        over = ExportTraceServiceResponse()
        over.partial_success.rejected_spans = 99
        self.collector.answers = [
            answer.SerializeToString(), over.SerializeToString(), b"<html>", b"x" * MOST_ANSWER * 3,
        ]  # fmt: skip
        sink = self.sink()
        spans = [span(1), span(2), span(3)]
        self.assertEqual(sink.export(spans), (2, "too\\nold"))
        self.assertEqual(sink.export(spans)[0], 3)
        self.assertEqual(sink.export(spans)[0], 0)
        self.assertEqual(sink.export(spans)[0], 0)  # read no further than the bound
        self.assertEqual(sink.export(spans), (0, ""))

    def test_slow(self) -> None:
        """A collector that does not answer costs the timeout."""
        go = threading.Event()
        self.addCleanup(go.set)
        self.collector.hold = go.wait
        sink = self.sink(timeout_seconds=0.2)
        self.assertIn("in time", str(self.failure(lambda: sink.export([span()]))))

    def test_trickle(self) -> None:
        """Nor does one last longer that sends an octet now and then."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            is_over = threading.Event()

            def trickle() -> None:
                client, _ = server.accept()
                with client:
                    client.recv(65536)
                    try:
                        for octet in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000:
                            client.sendall(bytes((octet,)))
                            if is_over.wait(0.01):
                                return
                    except OSError:
                        pass

            thread = threading.Thread(target=trickle)
            thread.start()
            sink = self.sink(endpoint=f"http://127.0.0.1:{port}/", timeout_seconds=0.3)
            began = time.monotonic()
            self.failure(lambda: sink.export([span()]))
            self.assertLess(time.monotonic() - began, 300)  # by itself it would take 1000 s
            is_over.set()
            thread.join()

    def test_nobody(self) -> None:
        """Nobody listens; or the sink was closed."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        sink = self.sink(endpoint=f"http://127.0.0.1:{port}/v1/traces")
        self.assertIn("refused", str(self.failure(lambda: sink.export([span()]))).lower())
        sink = self.sink()
        sink.close()
        self.assertTrue(self.failure(lambda: sink.export([span()])).is_final)

    def test_closed_meanwhile(self) -> None:
        """A close ends an export under way."""
        arrived, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def hold() -> None:
            arrived.set()
            go.wait()

        self.collector.hold = hold
        sink = self.sink()
        closer = threading.Thread(target=lambda: (arrived.wait(), sink.close()))
        closer.start()
        self.failure(lambda: sink.export([span()]))
        closer.join()

    def test_tls(self) -> None:
        """The collector has to prove its name, to an authority that is trusted, and so do we."""
        issued = certificates().issue("collector.example")
        ours = certificates().issue("alpha.example")
        local = certificates().issue("localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(local.chain, local.private_key)
        context.load_verify_locations(certificates().trust)
        context.verify_mode = ssl.CERT_REQUIRED
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        other.load_cert_chain(issued.chain, issued.private_key)
        self.collector.wrap(lambda sock: context.wrap_socket(sock, server_side=True))
        terms: dict[str, Any] = {
            "endpoint": f"https://localhost:{self.collector.port}/v1/traces",
            "trust": certificates().trust,
            "certificate": ours.chain,
            "private_key": ours.private_key,
        }
        self.assertEqual(self.sink(**terms).export([span()]), (0, ""))
        self.failure(lambda: self.sink(**{**terms, "trust": None}).export([span()]))
        nobody = {**terms, "certificate": None, "private_key": None}
        self.failure(lambda: self.sink(**nobody).export([span()]))
        wrong = {**terms, "endpoint": terms["endpoint"].replace("localhost", "127.0.0.1")}
        self.failure(lambda: self.sink(**wrong).export([span()]))
        self.assertEqual(len(self.collector.spans()), 1)


class FileTests(SynchronousTestCase):
    """Files with secrets."""

    def write(self, octets: bytes) -> Path:
        path = Path(self.mktemp())
        path.write_bytes(octets)
        return path

    def problems(self, call: Callable[[], object]) -> list[str]:
        with self.assertRaises(ConfigError) as caught:
            call()
        return caught.exception.problems

    def test_headers(self) -> None:
        """One per line, with comments."""
        path = self.write(b"# of the collector\nAuthorization: Bearer a:b \n\nX-Org:1\r\n")
        self.assertEqual(read_headers(path), {"Authorization": "Bearer a:b", "X-Org": "1"})

    def test_wrong_headers(self) -> None:
        """What is wrong is named by its line, without the secret."""
        path = self.write(b"ok: 1\nsecret\nna me: secret\n: secret\nHost: secret\nx: se\x01cret\n")
        problems = self.problems(lambda: read_headers(path))
        lines = [each.removeprefix(f"{path}:").partition(":")[0] for each in problems]
        self.assertEqual(lines, ["2", "3", "4", "5", "6"])
        self.assertNotIn("secret", "".join(problems).replace(str(path), ""))
        for octets in (b"x: \xff\n", b"x" * (MOST_HEADERS + 1)):
            self.assertEqual(len(self.problems(lambda o=octets: read_headers(self.write(o)))), 1)  # type: ignore[misc]
        self.assertEqual(len(self.problems(lambda: read_headers(Path("/nonexistent")))), 1)

    def test_wrong_certificates(self) -> None:
        """Files that are no certificates are named at once."""
        nothing = self.write(b"nothing")
        url = "https://localhost/v1/traces"
        for terms in (
            CollectorTerms(url, trust=nothing),
            CollectorTerms(url, certificate=nothing, private_key=nothing),
        ):
            (problem,) = self.problems(lambda t=terms: CollectorConnection(t))  # type: ignore[misc]
            self.assertIn(str(nothing), problem)

    def test_secrets_are_not_shown(self) -> None:
        """Nor are headers in what is printed of the terms."""
        self.assertNotIn("secret", repr(CollectorTerms("http://x/", {"a": "secret"})))
