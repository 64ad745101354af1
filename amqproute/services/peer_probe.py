# SPDX-License-Identifier: Apache-2.0
"""Probes of peers: the node ``amqp$probe``, and a memory of refused connections.

`amqproute peer test` of another organization does what its relay would: it connects, proves its
name, opens, attaches to ``amqp$transfer``. A broker whose open offers the capability
``AMQPROUTE:PROBE`` has a node ``amqp$probe`` besides, for the peers that may connect. A message
sent there is never queued: its delivery is rehearsed (rights, trail, origin, limits, capacity), and
the outcome is the answer: `accepted`, or `rejected` with the condition and the code with which the
message itself would be refused. A probe without ``to`` asks about the broker as a whole. While
publishers get no credit (`broker.publish_gate`), every probe is rejected with the code `NO_CREDIT`
and the names of the full resources; a message would wait at its sender. The answering attach has
the prober's proved identity under ``amqproute:seen-as``.

The open of a prober has the property ``amqproute:probe``, an id that both sides show. A connection
refused before the open, by TLS or SASL, has no id yet: it is found by address, port and time, which
the prober shows as well.

`PeerProbes` keeps the latest results, also of peers that did not probe: operators find there why a
partner cannot connect. It is in memory only, and bounded: `MOST_KEPT` rows of parties with a proved
name, as many of others, `MOST_OF_ONE` of one name or address. At the bound, the party with the most
rows loses its oldest: a stranger that keeps connecting evicts its own rows, and never those of a
partner.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from zope.interface import implementer

from amqproute.address import PROBE_NODE
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.errors import AmqpError, ResourceLimitExceeded, Unresolved
from amqproute.interfaces import ITarget
from amqproute.log_rate_limit import source_of
from amqproute.message import Message
from amqproute.values import ANONYMOUS_PRINCIPAL, NO_CREDIT, Origin

__all__ = ["MOST_KEPT", "PeerProbes", "ProbeService"]

MOST_KEPT: Final = 200
"""Rows of authenticated parties, and the same of others."""
MOST_OF_ONE: Final = 20
"""Rows of one principal, or of one address (for IPv6 a /64, which is one customer)."""
UNKNOWN: Final = ("", str(ANONYMOUS_PRINCIPAL))
LONGEST: Final = 512
"""Characters kept of a stranger's text."""


class PeerProbes:
    """The latest probes and refused connections.

    Args:
        now_ms: the wall clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._known = ProbeResults()
        self._strangers = ProbeResults()
        self._numbers = itertools.count()

    def note(
        self, step: str, remote: str, who: str, code: str = "ok", words: str = "", probe: str = ""
    ) -> None:
        """Keep a result.

        Args:
            step: ``tls``, ``sasl``, ``open``, ``attach`` or ``probe``.
            remote: its address.
            who: its identity, as far as proved.
            code: ``ok``, or the code of the refusal.
            words: the code as text.
            probe: the id of the probe, if there was one.
        """
        is_known = who not in UNKNOWN
        (self._known if is_known else self._strangers).put(
            who if is_known else _customer(remote),
            next(self._numbers),
            {
                "type": "probe",
                "at-ms": self._now_ms(),
                "probe": probe[:LONGEST],
                "step": step,
                "code": str(code),
                "remote": remote,
                "who": who,
                "description": words[:LONGEST],
            },
        )

    def rows(self) -> Iterable[dict[str, object]]:
        """Return the rows, the newest first."""
        rows = dict(sorted((self._known.rows() | self._strangers.rows()).items(), reverse=True))
        return [{**row, "name": str(place)} for place, row in enumerate(rows.values(), 1)]


class ProbeResults:
    """Bounded rows by subject; subjects with few rows keep them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[int, dict[str, object]]]] = {}
        self._count = 0

    def put(self, subject: str, number: int, row: dict[str, object]) -> None:
        """Add a row.

        If there are too many, the subject with the most rows, or the one not seen for the longest
        time, loses one.
        """
        rows = self._rows.pop(subject, [])
        self._rows[subject] = rows
        rows.append((number, row))
        self._count += 1
        if len(rows) > MOST_OF_ONE:
            self._drop(subject)
        elif self._count > MOST_KEPT:
            self._drop(max(self._rows, key=lambda each: len(self._rows[each])))

    def _drop(self, subject: str) -> None:
        rows = self._rows[subject]
        del rows[0]
        self._count -= 1
        if not rows:
            del self._rows[subject]

    def rows(self) -> dict[int, dict[str, object]]:
        """Return all rows, by number."""
        return {number: row for rows in self._rows.values() for number, row in rows}


def _customer(remote: str) -> str:
    """Return the address without its port, which identifies one customer."""
    if remote.startswith("unix:"):
        return remote
    return source_of(remote.rpartition(":")[0].strip("[]"))  # it may be a name


@implementer(ITarget)
class ProbeService:
    """Answers probes; nothing is queued.

    Args:
        broker: makes the batch that is rolled back.
        transfer: the target of the rehearsal.
        probes: keeps the results.
    """

    name = PROBE_NODE
    acts_at_once = True
    """Nothing is kept: no transaction has anything to roll back."""

    def __init__(self, broker: Broker, transfer: ITarget, probes: PeerProbes) -> None:
        self._broker = broker
        self._transfer = transfer
        self._probes = probes

    def space(self) -> int:
        """Return how many more probes can be taken: nothing is kept, so always many."""
        return 1 << 31

    def when_space(self, notify: Callable[[], None]) -> None:
        """Do nothing: there is always space."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Rehearse the delivery of a message. See `ITarget.put`."""
        probe = str(message.application_properties.get("probe", ""))
        to = message.to
        try:
            self._check_gate()
            if to:
                self._rehearse(message, origin)
        except AmqpError as error:
            code = str(error.info.get("code") or error.condition)
            self._note(origin, code, f"to {to}: {error.description}", probe)
            raise
        self._note(origin, "ok", f"to {to}" if to else "", probe)

    def _note(self, origin: Origin, code: str, words: str, probe: str) -> None:
        self._probes.note("probe", origin.container_id, str(origin.principal), code, words, probe)

    def _check_gate(self) -> None:
        """Refuse while publishers get no credit.

        Raises:
            ResourceLimitExceeded: with the names of the full resources, but without our figures.
        """
        gate = self._broker.gate
        if not gate.is_open:
            full = ", ".join(sorted(gate.reasons))
            raise ResourceLimitExceeded(
                "this broker gives no credit at present; messages wait at their senders",
                info={"code": NO_CREDIT, "limiter": full},
            )

    def _rehearse(self, message: Message, origin: Origin) -> None:
        rehearsal = self._broker.begin()
        rehearsal.is_rehearsal = True
        try:
            self._transfer.put(message, rehearsal, replace(origin, stream=None, tag=b""))
        except Unresolved:
            pass  # the next hop would be looked up first
        finally:
            rehearsal.abandon()
