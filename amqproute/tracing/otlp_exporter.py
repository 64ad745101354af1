# SPDX-License-Identifier: Apache-2.0
"""Export to an OpenTelemetry collector, as OTLP over HTTP.

The only module that imports OpenTelemetry, which comes with the extra ``tracing``. It is imported
when tracing is switched on.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from amqproute import __version__
from amqproute.printable import printable
from amqproute.trace_context import TraceContext
from amqproute.tracing.collector_connection import CollectorConnection, CollectorTerms
from amqproute.tracing.span_queue import SpanFacts

__all__ = ["OtlpSink"]

CONTENT_TYPE: Final = "application/x-protobuf"
_SCOPE: Final = InstrumentationScope("amqproute.tracing", __version__)


class OtlpSink:
    """A collector that takes OTLP, a `amqproute.tracing.span_export.SpanSink`.

    Args:
        terms: the collector.
        resource: attributes of all spans.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, terms: CollectorTerms, resource: Mapping[str, str]) -> None:
        self.place = terms.endpoint
        self._resource = Resource(dict(resource))
        self._connection = CollectorConnection(terms)

    def export(self, spans: Sequence[SpanFacts]) -> tuple[int, str]:
        """See `SpanSink.export`."""
        request = encode_spans([self._span(each) for each in spans])
        body = gzip.compress(request.SerializeToString(), compresslevel=1)
        answer = self._connection.post(body, CONTENT_TYPE)
        try:
            partial = ExportTraceServiceResponse.FromString(answer).partial_success
        except ProtobufError:  # of a proxy, perhaps: the status has said that all is well
            return 0, ""
        rejected = min(max(0, partial.rejected_spans), len(spans))
        return rejected, printable(partial.error_message[:200])

    def close(self) -> None:
        """See `SpanSink.close`."""
        self._connection.close()

    def _span(self, facts: SpanFacts) -> ReadableSpan:
        status = Status(StatusCode.UNSET)
        attributes = dict(facts.attributes)
        if facts.error is not None:
            status = Status(StatusCode.ERROR, facts.error)
            attributes["error.type"] = facts.error
        parent = None
        if facts.parent_id is not None:
            upstream = facts.context._replace(parent_id=facts.parent_id)
            parent = _context(upstream, is_remote=facts.is_parent_remote)
        return ReadableSpan(
            facts.name,
            _context(facts.context, is_remote=False),
            parent,
            self._resource,
            attributes,
            links=[Link(_context(each, is_remote=False)) for each in facts.links],
            kind=SpanKind[facts.kind.value],
            status=status,
            start_time=facts.start_us * 1000,
            end_time=facts.end_us * 1000,
            instrumentation_scope=_SCOPE,
        )


def _context(context: TraceContext, *, is_remote: bool) -> SpanContext:
    # What is exported has been sampled, whatever the flag said at the beginning.
    flags = TraceFlags(context.flags | TraceFlags.SAMPLED)
    return SpanContext(int(context.trace_id, 16), int(context.parent_id, 16), is_remote, flags)
