# SPDX-License-Identifier: Apache-2.0
"""Shared code of the tests of tracing: records, stories, and a collector on loopback."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from amqproute.journal.event import MessageRun
from amqproute.journal.record import JournalRecord, RecordKind, assemble, read_line
from amqproute.trace_context import TraceIds
from amqproute.tracing.sampling import SamplingReason
from amqproute.tracing.span_queue import SpanFacts
from amqproute.tracing.story import LINGER_US, Stories, Story
from amqproute.tracing.story_spans import story_spans

STREAM: Final = "store-a"
START_US: Final = 1_795_345_200_000_000
KEY: Final = b"k" * 32
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN: Final = "b7ad6b7169203331"
TRACEPARENT: Final = f"00-{TRACE}-{CLIENT_SPAN}-01"


def make_ids(rate: float = 0.0, key: bytes = KEY) -> TraceIds:
    """Return ids of a broker."""
    return TraceIds(key, lambda: rate)


class Records:
    """Makes records, a second after one another."""

    def __init__(self) -> None:
        self.seq = 0

    def __call__(self, kind: RecordKind, entry: int | None = None, **facts: Any) -> JournalRecord:
        """Return the next record."""
        self.seq += 1
        time = facts.pop("time", START_US + 1_000_000 * self.seq)
        stream = facts.pop("stream", STREAM)
        return JournalRecord(
            1, kind.value, "j", "mx.a", "a.example", stream, self.seq, time, entry, **facts
        )


def records_of(
    runs: Iterable[MessageRun], stream: str, domain: str = "a.example"
) -> list[JournalRecord]:
    """Return the records in runs, as a journal's reader gets them."""
    found: list[JournalRecord] = []
    for run in runs:
        body = assemble(
            run.kind, "0" * 16, f"mx.{domain}", domain, stream, len(found) + 1, run.count,
            run.time_us, run.shared, run.columns,
        )  # fmt: skip
        found += read_line(b'{"h":"%s",%s' % (b"0" * 64, body)).records()
    return found


def told(records: Iterable[JournalRecord], most: int = 1000) -> list[Story]:
    """Return the stories of records that are over."""
    stories = Stories(make_ids(), most)
    for record in records:
        stories.add(record)
    return stories.due(1 << 62)


def spans_of(
    records: Sequence[JournalRecord], ids: TraceIds | None = None, *, only_ended: bool = True
) -> list[SpanFacts]:
    """Return the spans of all stories."""
    ids = ids or make_ids()
    stories = Stories(ids, 1000)
    for record in records:
        stories.add(record)
    found = stories.due(max(each.time for each in records) + LINGER_US)
    if not only_ended:
        stories.most = 0
        found += stories.due(0)
    return [
        span
        for story in found
        for span in story_spans(story, ids, stories.attempts, SamplingReason.RATE)
    ]


class Collector:
    """A collector of OTLP on loopback; it decodes with the protocol's own definitions.

    Attributes:
        requests: what came, decoded; and the headers of each.
        statuses: answered one after the other, then 200 for ever.
        hold: called before each answer.
    """

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        self.answers: list[bytes] = []
        self.answer_headers: dict[str, str] = {}
        self.hold: Callable[[], object] = lambda: None
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                collector.headers.append({**self.headers, ":path": self.path})
                collector.hold()
                status = collector.statuses.pop(0) if collector.statuses else 200
                if status == 200:
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                if collector.answers:
                    answer = collector.answers.pop(0)
                self.send_response(status)
                for name, value in collector.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # Clients that are gone before their answer are part of the tests.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where it takes traces."""
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def wrap(self, wrap: Callable[[Any], Any]) -> None:
        """Have TLS around its socket."""
        self._server.socket = wrap(self._server.socket)

    def stop(self) -> None:
        """Close it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[dict[str, Any]]:
        """Return all spans as plain values, each with the attributes of its resource."""
        found = []
        for request in self.requests:
            for resource in request.resource_spans:
                service = values(resource.resource.attributes)
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.append(
                            {
                                "service": service,
                                "scope": scope.scope.name,
                                "name": span.name,
                                "kind": span.kind,
                                "trace": span.trace_id.hex(),
                                "id": span.span_id.hex(),
                                "parent": span.parent_span_id.hex(),
                                "start": span.start_time_unix_nano,
                                "end": span.end_time_unix_nano,
                                "status": span.status.code,
                                "attributes": values(span.attributes),
                                "links": [each.trace_id.hex() for each in span.links],
                            }
                        )
        return found


def values(attributes: Iterable[Any]) -> dict[str, Any]:
    """Return attributes of OTLP as plain values."""
    return {
        each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes
    }
