# SPDX-License-Identifier: Apache-2.0
"""Decisions about next hops: places, the proof required at each, or the reason for failure.

One function derives them from the DNS and the required levels. The daemon makes one at each look-up
of a hop, keeps the last for operators, and logs changes; `amqproute explain` makes one with the
same function from the same inputs. The order of the places is not part of it, because among equal
priorities each look-up draws its own (RFC 2782); nor are times.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypedDict

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.errors import ResolveError
from amqproute.net.peer_trust import TrustDemand, TrustMethod
from amqproute.values import Candidate, NextHop

__all__ = ["MOST_KEPT", "OK", "Decision", "Find", "RoutingDecisions", "decision_of", "demands_of"]

Find: TypeAlias = Callable[[Candidate, str, Sequence[str]], Awaitable[TrustDemand]]
"""`Connector.demand_for`: a coroutine that returns the proof required at a candidate."""

OK: Final = "ok"
MOST_KEPT: Final = 1000


class Decision(TypedDict):
    """A decision about a hop.

    Attributes:
        code: ``ok``, or the code of the failure.
        permanent: whether messages are returned for it.
        places: sorted by priority, weight, host and port.
    """

    hop: str
    domain: str
    via: str
    target: str
    code: str
    permanent: bool
    places: list[dict[str, object]]


async def demands_of(
    hop: NextHop, candidates: Iterable[Candidate], find: Find
) -> list[TrustDemand]:
    """Return the proof required at each candidate."""
    return [await find(each, hop.domain, hop.names) for each in candidates]


def decision_of(
    hop: NextHop,
    candidates: Sequence[Candidate] = (),
    demands: Sequence[TrustDemand] = (),
    error: ResolveError | None = None,
) -> Decision:
    """Return the decision about a hop.

    Args:
        hop: the next hop.
        candidates: the candidates from the resolver.
        demands: the proof required at each candidate.
        error: why there are no candidates.
    """
    pairs = sorted(
        zip(candidates, demands, strict=True),
        key=lambda pair: (pair[0].priority, -pair[0].weight, pair[0].host, pair[0].port),
    )
    code = OK
    if error is not None:
        code = error.code
    elif all(wanted.method is TrustMethod.REFUSED for _, wanted in pairs):
        code = pairs[0][1].code if pairs else "dns.no-address"
    return {
        "hop": hop.key,
        "domain": hop.domain,
        "via": hop.via or "",
        "target": hop.target,
        "code": code,
        "permanent": error is not None and error.permanent,
        "places": [_place(candidate, wanted) for candidate, wanted in pairs],
    }


def _place(candidate: Candidate, wanted: TrustDemand) -> dict[str, object]:
    return {
        "host": candidate.host,
        "port": candidate.port,
        "security": candidate.security.value,
        "addresses": sorted(candidate.addresses),
        "priority": candidate.priority,
        "weight": candidate.weight,
        "source": candidate.source,
        "dnssec": "secure" if candidate.secure else "insecure",
        "tlsa": "" if candidate.tlsa is None else candidate.tlsa.state.value,
        "verdict": wanted.code,
        "proof": wanted.method.value,
        "reaches": wanted.level,
        "names": list(wanted.names),
        "server-name": wanted.server_name or "",
    }


class RoutingDecisions:
    """The last decision about each hop.

    Args:
        find: `Connector.demand_for` of the connector that connects.
    """

    log = Logger()

    def __init__(self, find: Find) -> None:
        self._find = find
        self._kept: OrderedDict[str, Decision] = OrderedDict()

    def made(
        self,
        hop: NextHop,
        candidates: Sequence[Candidate] = (),
        error: ResolveError | None = None,
    ) -> None:
        """Keep the decision about a hop; see `decision_of`."""
        kept = Deferred.fromCoroutine(self._keep(hop, candidates, error))
        kept.addErrback(self._broken, hop)

    async def _keep(
        self, hop: NextHop, candidates: Sequence[Candidate], error: ResolveError | None
    ) -> None:
        demands = await demands_of(hop, candidates, self._find)
        decision = decision_of(hop, candidates, demands, error)
        if self._kept.pop(hop.key, None) != decision:
            places = [f"{each['host']}:{each['port']}" for each in decision["places"]]
            self.log.info(
                "{destination}: {code}{places}",
                destination=hop.key,
                code=decision["code"],
                places=f", {', '.join(places)}" if places else "",
                decision=decision,
            )
        self._kept[hop.key] = decision
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _broken(self, failure: Failure, hop: NextHop) -> None:
        self.log.failure("{destination}: no decision kept", failure, destination=hop.key)

    def rows(self) -> list[dict[str, object]]:
        """Return all decisions, for the management node."""
        return [_row(key, decision) for key, decision in self._kept.items()]

    def row(self, key: str) -> dict[str, object] | None:
        """Return the decision about one hop; None if none is kept."""
        decision = self._kept.get(key)
        return None if decision is None else _row(key, decision)


def _row(key: str, decision: Decision) -> dict[str, object]:
    return {"name": key, "type": "decision", **decision}
