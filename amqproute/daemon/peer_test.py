# SPDX-License-Identifier: Apache-2.0
"""`peer test`: connects to a peer as the relay would, and reports each step.

It runs in the command, and in the daemon (`peer_tester`), with the configuration's own resolver,
trust, certificate and settings: DNS, and then for each place TCP with TLS, SASL, open, attach to
the node that messages go to, and a probe (`amqproute.services.peer_probe`) that rehearses a message
and is never queued. It continues after the first place that works: one of several hosts may have
been forgotten.

Why so: an operator who has set up a partner wants to know before there is traffic what is wrong, on
whose side, and what to do about it. So each failure has a code, a remedy, and both names where
names do not match.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from cryptography import x509
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.address import PROBE_NODE, TRANSFER_NODE, Address
from amqproute.config.schema import Config
from amqproute.daemon.peer_assembly import (
    make_contexts,
    make_resolver,
    make_targets,
    peer_engine,
    peer_policy,
)
from amqproute.daemon.routes import make_router
from amqproute.errors import AmqprouteError, ConnectError, ResolveError, TlsError
from amqproute.interfaces import IConnectionPump
from amqproute.net.certificate_identity import peer_domains
from amqproute.net.connector import Connector, ConnectPace
from amqproute.net.pump import EngineProtocol, IUpgradableUser, PumpLimits, TransportFacts
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.relay.connect_agent import static_candidate
from amqproute.resolver.srv import SrvResolver
from amqproute.values import (
    NO_CREDIT,
    PROBE,
    PROBE_CAPABILITY,
    SEEN_AS,
    TRANSFER_CAPABILITY,
    Candidate,
    NextHop,
    RouteRule,
)
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.link import Link
from amqproute.wire.header import UNANSWERED_HEADER

__all__ = ["FAILED", "OK", "PeerTest", "PeerTestStep"]

ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
OK: Final = "ok"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
CREDIT_SECONDS: Final = 5.0
"""Seconds that a peer may take to grant credit on the link for messages."""


@dataclass(slots=True)
class PeerTestStep:
    """One step and its result.

    Attributes:
        step: ``configuration``, ``dns``, ``tcp``, ``tls``, ``sasl``, ``open``, ``attach``,
            ``capability`` or ``probe``; ``credit`` where the peer gives none.
        place: host and port, if the step has one.
        state: ``ok``, ``failed`` or ``skipped``.
        ms: duration.
        code: ``ok``, or the code of the failure.
        words: the finding.
        details: more lines.
    """

    step: str
    place: str
    state: str
    ms: float
    code: str = OK
    words: str = ""
    details: tuple[str, ...] = ()

    def facts(self) -> dict[str, object]:
        """Return the step for JSON."""
        return {**asdict(self), "ms": round(self.ms, 1), "details": list(self.details)}


class PeerTest:
    """A test of one peer.

    Args:
        config: the configuration to test.
        reactor: the reactor for connections and timers.
        address: the domain, and optionally the node that a message would go to.
        probe: identifies the test on both sides.
        size: octets of the rehearsed message.
        made: the routes made at runtime.
        on_step: called with each step.

    Attributes:
        steps: so far.
        own: description of our certificate; empty without one.
        seen_as: our identity as reported by the partner, if it did.
        is_ended: set to have no further place tried.
    """

    def __init__(
        self,
        config: Config,
        reactor: IReactor,
        address: Address,
        probe: str,
        size: int = 0,
        made: tuple[RouteRule, ...] = (),
        on_step: Callable[[PeerTestStep], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.reactor = reactor
        self.address = address
        self.probe = probe
        self.size = size
        self.made = made
        self.on_step = on_step
        self.steps: list[PeerTestStep] = []
        self.own = ""
        self.seen_as = ""
        self.is_ended = False
        self._begun = 0.0

    @property
    def is_good(self) -> bool:
        """Whether at least one place works up to the end."""
        bad = {step.place for step in self.steps if step.state == FAILED}
        good = {step.place for step in self.steps if step.step == "attach"} - bad
        return bool(good) and "" not in bad

    def begin(self) -> None:
        """Begin a step."""
        self._begun = time.monotonic()

    def note(
        self,
        step: str,
        place: str,
        state: str = OK,
        code: str = OK,
        words: str = "",
        details: Sequence[str] = (),
    ) -> None:
        """Record the result of a step, and begin the next one."""
        took = (time.monotonic() - self._begun) * 1000
        made = PeerTestStep(step, place, state, took, code, words, tuple(details))
        self.steps.append(made)
        self.on_step(made)
        self.begin()

    async def run(self) -> None:
        """Take all steps."""
        self.begin()
        domain = self.address.domain
        assert domain is not None
        router = make_router(self.config, self.config.container_id or "", self.made)
        if domain in router.own_names:
            words = f"{domain} is one of our own domains: there is no peer"
            self.note("configuration", "", FAILED, "route.local", words)
            return
        hop = router.hop(domain, self.address.node)
        patterns = {rule.pattern for rule in self.made}
        targets = make_targets(lambda: self.config, patterns.__contains__)
        try:
            contexts = make_contexts(self.config)
            resolver = make_resolver(self.config, self.reactor, targets)
        except AmqprouteError as error:
            code = getattr(error, "code", "config")
            self.note("configuration", "", FAILED, code, str(error))
            return
        level = peer_policy(self.config, hop.domain).level
        if contexts is None and level != "none":
            words = "tls.certificate is not configured: this broker cannot prove its domain"
            self.note("configuration", "", FAILED, "tls.file", words)
            return
        if contexts is not None and contexts.certificate is not None:
            self.own = _what_is_shown(contexts.certificate)
        words = f"next hop {hop.key}, level {level}"
        self.note("configuration", "", words=words, details=self._about_us(contexts))
        candidates = await self._places(hop, resolver)
        limits = self.config.limits
        seconds = self.config.relay.connect_timeout
        connector = Connector(
            self.reactor,
            contexts,
            pace=ConnectPace(connect_seconds=min(10.0, seconds), total_seconds=seconds),
            limits=PumpLimits(tls_seconds=limits.handshake_timeout),
            policy_for=lambda name: peer_policy(self.config, name),
            tlsa=resolver.tlsa,
            targets=targets,
        )
        for candidate in candidates:
            if not self.is_ended:
                await self._try(hop, candidate, connector)

    def _about_us(self, contexts: TlsContexts | None) -> list[str]:
        """Return the certificate that partners see, and whether it names one of our domains."""
        certificate = contexts.certificate if contexts is not None else None
        if certificate is None:
            return []
        findings = [f"we show a certificate that names {self.own}"]
        proved = peer_domains(certificate)
        if self.config.domains and not proved.intersection(self.config.domains):
            ours = ", ".join(self.config.domains)
            findings.append(
                f"none of our domains ({ours}) is among them: partners know us by these"
            )
        return findings

    async def _places(self, hop: NextHop, resolver: SrvResolver) -> Sequence[Candidate]:
        if hop.via is not None:
            self.note("dns", "", SKIPPED, words=f"a route leads to {hop.via}")
            return (static_candidate(hop.via),)
        try:
            found = await resolver.resolve(hop.domain)
        except ResolveError as error:
            self.note("dns", "", FAILED, error.code, str(error), error.attempts)
            return ()
        places = ", ".join(f"{each.host}:{each.port}" for each in found.candidates)
        proved = "authenticated by DNSSEC" if found.authenticated else "not authenticated"
        self.note("dns", "", words=f"{places} ({proved})", details=found.attempts)
        return tuple(found.candidates)

    async def _try(self, hop: NextHop, candidate: Candidate, connector: Connector) -> None:
        place = f"{candidate.host}:{candidate.port}"
        sessions: list[ProbeSession] = []

        def make(facts: TransportFacts) -> tuple[Connection, ProbeSession]:
            engine = peer_engine(
                self.config,
                hop,
                candidate.security,
                f"{self.config.container_id or hop.domain}/probe",
                {PROBE: self.probe},
            )
            session = ProbeSession(self, engine, hop, place, facts)
            sessions.append(session)
            return engine, session

        try:
            await connector.connect(candidate, hop.domain, make, extra_names=hop.names)
        except ConnectError as error:
            if not (sessions and sessions[-1].is_over):
                is_tcp = error.code.startswith("connect.")
                if not is_tcp:
                    self.note("tcp", place, words=f"at {', '.join(candidate.addresses)}")
                step = "tcp" if is_tcp else "tls"
                # For a single address the error says everything.
                lines = error.attempts if len(error.attempts) > 1 else ()
                self.note(step, place, FAILED, error.code, str(error), lines)
            return
        session = sessions[-1]
        patience = self.config.limits.handshake_timeout + self.config.relay.connect_timeout
        session.done.addTimeout(patience, self.reactor)
        try:
            await session.done
        except (TimeoutError, CancelledError):
            session.fail("peer.timeout", f"no answer within {patience:.0f} s")
        finally:
            await session.close()


def _what_is_shown(certificate: x509.Certificate) -> str:
    """Describe a certificate."""
    names = ", ".join(sorted(peer_domains(certificate))) or "no domain"
    return (
        f"{names}; valid until {certificate.not_valid_after_utc:%Y-%m-%d}, issued by "
        f"{certificate.issuer.rfc4514_string()}"
    )


@implementer(IUpgradableUser)
class ProbeSession:
    """One connection of a test, from SASL to the probe's outcome.

    Args:
        test: records the steps.
        connection: the engine.
        hop: the next hop.
        place: host and port, for the steps.
        facts: about the transport.

    Attributes:
        done: fires when the test of this connection is over.
        is_over: the last step was recorded.
    """

    def __init__(
        self,
        test: PeerTest,
        connection: Connection,
        hop: NextHop,
        place: str,
        facts: TransportFacts,
    ) -> None:
        self.done: Deferred[None] = Deferred()
        self.is_over = False
        self._test = test
        self._connection = connection
        self._hop = hop
        self._place = place
        self._facts = facts
        self._pump: IConnectionPump | None = None
        self._step = "tls"
        self._link: Link | None = None
        self._messages: Link | None = None
        self._patience: IDelayedCall | None = None
        self._target: str | None = hop.target
        self._refused = False
        self._gone: Deferred[None] = Deferred()

    # -- steps ---------------------------------------------------------------------------------

    def _ok(self, step: str, words: str = "", details: Sequence[str] = ()) -> None:
        self._test.note(step, self._place, words=words, details=details)

    def fail(self, code: str, words: str) -> None:
        """Record the failure of the current step."""
        if not self.is_over:
            self._test.note(self._step, self._place, FAILED, str(code), words)
            self._end()

    def _end(self) -> None:
        self.is_over = True
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        if not self.done.called:
            self.done.callback(None)

    async def close(self) -> None:
        """Close the connection, with a close frame if possible."""
        if self._pump is None:
            return
        if self._connection.remote_open is not None:
            self._connection.close()
            self._pump.schedule_flush()
        else:
            self._pump.abort()
        self._gone.addTimeout(2.0, self._test.reactor)
        try:
            await self._gone
        except (TimeoutError, CancelledError):
            if self._pump is not None:
                self._pump.abort()

    # -- IConnectionUser -------------------------------------------------------------------------

    def connected(self, pump: IConnectionPump) -> None:
        """See `IConnectionUser.connected`."""
        self._pump = pump
        # It was made by a connector of ours, and so has a transport.
        transport = cast("EngineProtocol", pump).transport
        assert transport is not None
        here: Any = transport.getHost()
        own = f"{here.host}:{here.port}" if hasattr(here, "port") else str(here)
        self._ok("tcp", f"{own} to {self._facts.remote}")
        if self._facts.tls_version is not None:
            self._secured()
        elif self._connection.settings.tls == "none":
            self._step = "sasl"

    def secured(self, facts: TransportFacts) -> None:
        """The connection has been upgraded to TLS."""
        self._facts = facts
        self._secured()

    def _secured(self) -> None:
        facts = self._facts
        details = []
        if facts.certificate is not None:
            details = [f"its certificate names {_what_is_shown(facts.certificate)}"]
        self._ok("tls", f"{facts.tls_version}, level {facts.level}", details)
        self._step = "sasl"

    def events(self, events: Sequence[object]) -> None:
        """See `IConnectionUser.events`."""
        for event in events:
            if self.is_over:
                return
            if isinstance(event, ev.Authenticated):
                self._ok("sasl", "EXTERNAL" if event.identity is None else str(event.identity))
                self._step = "open"
                self._connection.open()
            elif isinstance(event, ev.AuthenticationRejected):
                self.fail("sasl.refused", event.reason)
            elif isinstance(event, ev.OpenReceived):
                self._opened(event.open)
            elif isinstance(event, ev.LinkAttached) and event.is_answer:
                self._attached(event.attach)
            elif isinstance(event, ev.LinkDetached):
                self._detached(event.error)
            elif isinstance(event, ev.DeliveriesUpdated):
                self._decided(event.state)
            elif isinstance(event, ev.LinkFlowed):
                if self._step == "credit":
                    self._look_at_credit()
                else:
                    self._send()
            elif isinstance(event, ev.SessionEnded) and event.error is not None:
                self.fail(str(event.error.condition), event.error.description or "session ended")
            elif isinstance(event, ev.ConnectionClosed):
                error = event.error
                if error is None:
                    self._ended_silently()
                else:
                    self.fail(str(error.condition), error.description or "the peer closed")

    def paused(self) -> None:
        """See `IConnectionUser.paused`."""

    def writable(self) -> None:
        """See `IConnectionUser.writable`."""

    def lost(self, reason: Failure) -> None:
        """See `IConnectionUser.lost`."""
        self._pump = None
        error: Any = reason.value
        if isinstance(error, TlsError):
            # In TLS 1.3 we are done before the server has looked at our certificate.
            self._step = "tls"
            self.fail(error.code, str(error))
        else:
            self._ended_silently()
        if not self._gone.called:
            self._gone.callback(None)

    def _ended_silently(self) -> None:
        """Record that the connection was lost without a reason."""
        words = "the peer ended the connection without a word"
        if not self._connection.has_heard and self._facts.tls_version is None:
            words = UNANSWERED_HEADER
        if self._step in ("sasl", "open") and self._facts.tls_version is not None:
            # A certificate that its judge refuses after the handshake gets no alert.
            words += " after the handshake: as a rule it does not take our certificate, "
            words += f"which names {self._test.own}" if self._test.own else "or the lack of one"
        self.fail("peer.lost", words)

    # -- open and attach -------------------------------------------------------------------------

    def _opened(self, opened: spec.Open) -> None:
        product = (opened.properties or {}).get("product", "an unknown product")
        offered = sorted(map(str, opened.offered_capabilities))
        self._ok(
            "open",
            f"container {opened.container_id}, {product}",
            [
                f"frames up to {opened.max_frame_size} octets",
                f"offers {', '.join(offered) or 'nothing'}",
            ],
        )
        self._step = "attach"
        self._attach(self._hop.target)

    def _attach(self, target: str) -> None:
        self._target = None if target == "anonymous" else target
        self._link = self._connection.begin().attach(
            f"probe-{self._test.probe}-{target}",
            "sender",
            source=spec.Source(address=self._hop.key),
            target=spec.Target(address=self._target),
            snd_settle_mode=spec.SENDER_UNSETTLED,
            rcv_settle_mode=spec.RECEIVER_FIRST,
        )

    def _attached(self, attach: spec.Attach) -> None:
        if attach.target is None:
            self._refused = True  # the detach that follows says why
            return
        most = int(attach.max_message_size or 0)
        if self._step == "attach":
            takes = f"takes messages up to {most} octets" if most else "takes messages of any size"
            self._ok("attach", f"{self._target or 'the anonymous terminus'}: {takes}")
            self._messages = self._link
            if 0 < most < self._test.size:
                self._step = "probe"
                words = f"a message of {self._test.size} octets is larger than {most}"
                self.fail(conditions.LINK_MESSAGE_SIZE_EXCEEDED, words)
            elif PROBE_CAPABILITY not in self._offers:
                self._without_probe()
            else:
                self._step = "probe"
                self._attach(PROBE_NODE)
            return
        seen_as = (attach.properties or {}).get(SEEN_AS)
        if seen_as:
            self._test.seen_as = str(seen_as)
            self._ok("capability", f"it is an amqproute, and takes us for {seen_as}")
        self._send()

    @property
    def _offers(self) -> frozenset[str]:
        opened = self._connection.remote_open
        return frozenset(map(str, opened.offered_capabilities)) if opened else frozenset()

    def _without_probe(self) -> None:
        words = "no amqproute that answers probes: what it does with a message is not known"
        if TRANSFER_CAPABILITY not in self._offers:
            words += "; messages in doubt after a lost connection may arrive twice there"
        self._test.note("capability", self._place, SKIPPED, "peer.no-probe", words)
        self._await_credit()

    def _await_credit(self) -> None:
        """Finish when the peer has granted credit for messages; fail if it grants none."""
        self._step = "credit"
        self._patience = self._test.reactor.callLater(CREDIT_SECONDS, self._without_credit)
        self._look_at_credit()

    def _look_at_credit(self) -> None:
        if self._messages is not None and self._messages.credit > 0:
            self._end()

    def _without_credit(self) -> None:
        words = f"the peer gave no credit within {CREDIT_SECONDS:.0f} s: messages would wait here"
        self.fail(NO_CREDIT, words)

    def _detached(self, error: spec.Error | None) -> None:
        falls_back = self._refused and self._step == "attach" and self._target == TRANSFER_NODE
        if falls_back and ANONYMOUS_RELAY in self._offers:
            self._refused = False
            self._attach("anonymous")
            return
        code: str = conditions.LINK_DETACH_FORCED
        words = "the peer detached the link"
        info: Any = None
        if error is not None:
            code, words, info = error.condition, error.description or words, error.info
        self.fail(str((info or {}).get("code") or code), words)

    # -- the probe -------------------------------------------------------------------------------

    def _send(self) -> None:
        link = self._link
        if self._step != "probe" or link is None or link.sendable <= 0 or link.unsettled:
            return
        to = str(self._test.address) if self._test.address.node else None
        payload = b"".join(
            (
                codec.encode(spec.Header(durable=True)),
                codec.encode(spec.Properties(to=to)),
                sections.encode_section(
                    spec.SECTION_APPLICATION_PROPERTIES, {"probe": self._test.probe}
                ),
                sections.encode_section(spec.SECTION_DATA, b"\0" * min(self._test.size, 65536)),
            )
        )
        link.send((payload,), b"probe")
        if self._pump is not None:
            self._pump.schedule_flush()

    def _decided(self, state: object) -> None:
        if isinstance(state, spec.Accepted):
            node = self._test.address.node
            words = f"a message for {self._test.address} would be taken" if node else "answered"
            self._ok("probe", f"{words}; nothing was queued")
            self._await_credit()
            return
        error = getattr(state, "error", None)
        info: Any = (error.info if error is not None else None) or {}
        code = info.get("code") or (error.condition if error is not None else "message.rejected")
        limiter = f" (limit: {info['limiter']})" if info.get("limiter") else ""
        words = (error.description if error is not None else "") or "rejected without a reason"
        self.fail(str(code), words + limiter)
