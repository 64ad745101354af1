# SPDX-License-Identifier: Apache-2.0
"""Brokers that report to senders."""

from __future__ import annotations

from typing import Any

from amqproute.daemon.reporting import make_reporter
from amqproute.message import Message
from amqproute.services.delay_reports import DELAY_NOTES, DelayReports
from amqproute.services.sender_reports import Reporter, ReportTerms
from amqproute.values import REPORT, RETURN_TO, NextHop
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Symbol
from tests.support.memory_broker import MemoryBroker

CAPABILITIES = (
    "AMQPROUTE:TRANSFER",
    "AMQPROUTE:REPORT",
    "AMQPROUTE:SECURE-PATH",
    "ANONYMOUS-RELAY",
)


def let_report(house: MemoryBroker, **terms: Any) -> Reporter:
    """Make a broker report as a daemon does."""
    broker, relay = house.broker, house.relay

    def return_target(address: str) -> Any:
        route = house.transfer.rules.router.route(address)
        if isinstance(route, NextHop):
            return relay.take_on_trust(house.transfer.rules.router.direct(address))
        return broker.target(route.node)

    broker.return_to = return_target
    fields = {"domain": house.domain, "container": house.id, **terms}
    return make_reporter(broker, relay, lambda: house.transfer.rules.router, ReportTerms(**fields))


def watch_delays(house: MemoryBroker, reporter: Reporter, seconds: float) -> DelayReports:
    """Make a broker warn of waiting messages."""
    watch = DelayReports(house.broker, house.store, reporter, house.clock, seconds)
    watch.recovered(house.store.notes.get(DELAY_NOTES, {}))
    watch.start()
    return watch


def asking(
    body: bytes = b"x",
    *words: str,
    to: str | None = None,
    return_to: str | None = "back",
    annotations: dict[str, Any] | None = None,
    durable: bool = True,
    ttl: Any = None,
    **properties: Any,
) -> Message:
    """Return a message whose sender requests reports, by default the usual ones."""
    marks: dict[Any, Any] = {Symbol(key): value for key, value in (annotations or {}).items()}
    if return_to is not None:
        marks[RETURN_TO] = return_to
    if words:
        marks[REPORT] = [Symbol(word) for word in words]
    parts = [sections.encode_header(spec.Header(durable=durable, ttl=ttl))]
    if marks:
        parts.append(sections.encode_section(spec.SECTION_MESSAGE_ANNOTATIONS, marks))
    parts.append(codec.encode(spec.Properties(to=to, **properties)))
    parts.append(sections.encode_section(spec.SECTION_DATA, body))
    return Message(b"".join(parts))


def reports_on(house: MemoryBroker, name: str = "back") -> list[dict[str, Any]]:
    """Return the bodies of the reports on a node, in order."""
    found = []
    for row in house.store.rows(name):
        message = Message(row.encoded)
        if message.offsets.body_code == 0x77:
            found.append(message.body_values()[0])
    return found
