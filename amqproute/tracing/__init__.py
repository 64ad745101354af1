# SPDX-License-Identifier: Apache-2.0
"""Traces for OpenTelemetry, made from the audit journal.

Theory of operation
===================

A message's spans are made when its story is over, from what the journal says about it. The path of
messages does not know of them: its only part is the trace context that the relay writes for peers
whose contract wants it (`amqproute.trace_context`), and the journal's thread reads the context that
came with a message. With tracing switched off there is neither, and nothing here is imported::

    journal's files --follow--> tracer            a thread: records to stories
                                  |  story         which records belong to one message
                                  |  sampling      whether an ended story is exported
                                  v  story_spans   its spans, as plain values
                                span_queue         bounded; what does not fit is counted
                                  v
                                span_export        a thread: batches, retries, back-off
                                  v
                                otlp_exporter      the only module that imports OpenTelemetry
                                  v
                                collector_connection   HTTP, with bounds

**Ids without state.** The relay has to name a span before it exists, and a restart may lie between.
So ids are derived from the entry's id and a secret (`amqproute.trace_context.TraceIds`); the thread
derives the same ones later. The secret is a file of the state directory.

**Everything is bounded.** Stories, records of each, spans that wait, tries of an export, and the
time at a stop. A thread that cannot follow the journal skips to its end. What is left out is
counted (`docs/metrics.md`). A collector that is slow, absent or broken costs spans, never messages.

**After a restart** the thread reads the latest records before the journal's end again, so that it
knows the messages that are still here; stories that had ended there are not exported again.

Why so
======

* From the journal's files rather than from its events: they are read at the reader's pace, and a
  reader that is late needs no memory for it. The price is to parse JSON that the same process has
  written, about 10 µs a record, on a thread of its own.
* Decided at the end of a story rather than at its beginning: a failed or slow message is what an
  operator looks for, and at its beginning nobody knows which it will be.
"""

__all__ = [
    "collector_connection",
    "otlp_exporter",
    "sampling",
    "span_export",
    "span_queue",
    "story",
    "story_spans",
    "tracer",
]
