# SPDX-License-Identifier: Apache-2.0
"""Senders' statements about themselves; forged ones are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from amqproute.auth.policy import Rule, Verb
from amqproute.errors import ResourceLimitExceeded
from amqproute.message import Message
from amqproute.services.provenance import Provenance
from amqproute.values import (
    ORIGIN,
    REPORT,
    REPORT_KIND,
    RETURN_TO,
    SECURE_PATH,
    SECURITY_LEVELS,
    Origin,
    Principal,
)
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol, ULong
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import ANN, MemoryBroker, Network
from tests.support.reporting import CAPABILITIES, asking, let_report, reports_on

A, B, C = "alpha.example", "beta.example", "gamma.example"
BETA = Principal("peer", B, frozenset({B, "b.example"}))
DELEGATED = ("*.delegated.example",)
FACTOR = 25 if os.environ.get("AMQPROUTE_HYPOTHESIS") == "long" else 1
"""The long form sends more than 10,000 messages."""

EVERYBODY = [Rule.of(who="*", node="*", allow=list(Verb))]
RULES = [
    Rule.of(who="peer:*", node="open", allow=["transfer"]),
    Rule.of(who="user:*", node="*", allow=["publish", "consume"]),
    Rule.of(who="user:deputy", node="an*", allow=["impersonate"]),
]


class ProvenanceCase(HouseTestCase):
    """Alpha with the nodes ``open``, which peers may reach, and ``secret``."""

    def setUp(self) -> None:
        super().setUp()
        self.build()

    def build(self) -> None:
        """Make the broker."""
        self.clock = Clock()
        self.network = Network(self.clock)
        self.alpha = MemoryBroker(
            self.network, A, node("open"), node("secret"), rules=RULES, relay_for=["c.example"]
        )
        self.network.dead.update(("c.example", "d.example"))
        self.alpha.transfer.rules.partners.origins = lambda _: DELEGATED
        self.alpha.transfer.reload(self.alpha.transfer.rules)

    def send(self, principal: Principal, *messages: Message, address: Any = "amqp$transfer") -> Any:
        """Send as somebody; return the client."""
        client = self.alpha.client(principal)
        link = client.sender(address)
        self.run_now()
        if link.is_active:
            client.send(link, *messages)
            self.run_now()
        return client

    def kept(self, name: str = "open") -> list[Message]:
        """Return what is on a node."""
        return [Message(row.encoded) for row in self.alpha.store.rows(name)]


class PeerTests(ProvenanceCase):
    """Messages that a peer may transfer."""

    def claiming(self, origin: Any) -> Any:
        return message(to="open", annotations={ORIGIN: origin, "x-opt-a": 1})

    def test_own(self) -> None:
        """A name that its certificate proves, or one that is delegated to it."""
        for origin in (B, "b.example", "x.delegated.example"):
            self.assertOutcomes(self.send(BETA, self.claiming(origin)), "Accepted")
        kept = [each.annotations[ORIGIN] for each in self.kept()]
        self.assertEqual(kept, [B, "b.example", "x.delegated.example"])

    def test_missing(self) -> None:
        """Without an origin a message gets the one that is proved; nothing else changes."""
        sent = message(b"body", to="open", ttl=5000, annotations={"x-opt-a": 1}, footer={"f": 1})
        self.assertOutcomes(self.send(BETA, sent, message(to="open")), "Accepted", "Accepted")
        first, second = self.kept()
        self.assertEqual(first.annotations, {ORIGIN: B, "x-opt-a": 1})
        self.assertEqual(second.annotations, {ORIGIN: B})
        self.assertEqual((first.bare, first.header.ttl), (sent.bare, 5000))
        self.assertIn(b"f", first.encoded[first.offsets.footer_start :])

    def test_forged(self) -> None:
        """Anybody else, the broker itself among them, and whatever is no domain: refused."""
        forged = (A, C, "", "delegated.example", "B.EXAMPLE", 7, None, [B], Symbol("gamma.example"))
        for origin in forged:
            client = self.send(BETA, self.claiming(origin))
            self.assertOutcomes(client, "Rejected")
            error = client.updates[0][1].error
            self.assertEqual(error.condition, "amqp:not-allowed", origin)
            info = {str(key): value for key, value in error.info.items()}
            self.assertEqual(
                info, {"code": "policy.origin", "proven": B, "claimed": str(origin)}, origin
            )
        self.assertEqual(self.kept(), [])

    def test_delegation_is_no_way_into_our_own_nodes(self) -> None:
        """A sender for everybody still has messages returned only where it may transfer."""
        self.alpha.transfer.rules.partners.origins = lambda _: ("*",)
        self.alpha.transfer.reload(self.alpha.transfer.rules)
        for back in (f"secret@{A}", f"$management@{A}", f"amqp$transfer@{A}", "*"):
            client = self.send(BETA, asking(to="open", return_to=back))
            self.assertOutcomes(client, "Rejected")
            self.assertEqual(client.updates[0][1].error.condition, "amqp:not-allowed", back)
        client = self.send(
            BETA,
            asking(to="open", return_to=f"open@{A}"),
            asking(to="open", return_to="x@far.example"),
            asking(to="open", return_to="/queues/x%40far.example"),
        )
        self.assertOutcomes(client, "Accepted", "Accepted", "Accepted")

    def test_returned_here(self) -> None:
        """A message returned to a local node keeps its origin: it is not from a client here."""
        let_report(self.alpha)
        self.assertOutcomes(
            self.send(BETA, asking(b"forged", "return", to="open", return_to="open", ttl=500)),
            "Accepted",
        )
        self.run_for(3)
        (back,) = self.kept()
        self.assertNotIn(RETURN_TO, back.annotations)
        self.assertEqual(back.annotations["x-opt-dead-letter-reason"], "expired")
        self.assertEqual(back.annotations.get(ORIGIN), B)

    def returning(self, *words: str, back: str, to: str = "open", origin: Any = B) -> None:
        """Have beta send a message that ends at once and is to go back somewhere."""
        marks = {} if origin is None else {ORIGIN: origin}
        sent = asking(b"theirs", *words, to=to, return_to=back, ttl=500, annotations=marks)
        self.assertOutcomes(self.send(BETA, sent), "Accepted")
        self.run_for(5)

    def test_no_words_of_others_in_our_name(self) -> None:
        """A third domain hears from us what became of a peer's message, and not what it says."""
        let_report(self.alpha)
        gamma = MemoryBroker(self.network, C, node("open"), rules=EVERYBODY)
        self.alpha.transfer.rules.partners.relay_for = lambda _: (C,)
        for words in (("return",), ("failure", "return"), (), ("failure",)):
            self.returning(*words, back=f"open@{C}")
        self.returning("return", back=f"/queues/open%40{C}", origin=None)
        kept = [Message(row.encoded) for row in gamma.store.rows("open")]
        self.assertEqual([each.annotations[REPORT_KIND] for each in kept], ["failure"] * 5)
        self.assertEqual([each.annotations[ORIGIN] for each in kept], [A] * 5)
        self.assertEqual(self.kept(), [])
        for each in kept:
            self.assertNotIn(b"theirs", each.encoded)
            self.assertEqual(each.body_values()[0]["origin"], B)

    def test_nor_when_there_is_no_way_for_a_report(self) -> None:
        """A relay that has as many ways out as it may: a way that there is takes no body either."""
        reporter = let_report(self.alpha)
        gamma = MemoryBroker(self.network, C, node("open"), rules=EVERYBODY)
        self.alpha.transfer.rules.partners.relay_for = lambda _: (C,)

        def full(address: str) -> Any:
            raise ResourceLimitExceeded("there are too many next hops")

        self.patch(reporter, "_place", full)
        self.returning("return", back=f"open@{C}")
        self.assertEqual(gamma.store.rows("open"), [])

    def test_returned_to_where_it_comes_from(self) -> None:
        """The body goes back to its own domain only, and is marked: it is not what we say."""
        let_report(self.alpha)
        beta = MemoryBroker(self.network, B, node("back"), rules=EVERYBODY)
        other = MemoryBroker(self.network, "x.delegated.example", node("back"), rules=EVERYBODY)
        self.returning("return", back=f"back@{B}")
        self.returning("return", back="back@x.delegated.example", origin="x.delegated.example")
        self.returning("return", back="back@x.delegated.example")  # beta's words: a report
        for house, kinds in ((beta, ["return"]), (other, ["return", "failure"])):
            kept = [Message(row.encoded) for row in house.store.rows("back")]
            self.assertEqual([each.annotations[REPORT_KIND] for each in kept], kinds)
            self.assertEqual(kept[0].body_values()[0], b"theirs")
            self.assertEqual(kept[0].annotations[ORIGIN], A)

    def test_what_began_here_is_returned_anywhere(self) -> None:
        """A client's own message carries our name in any case."""
        let_report(self.alpha)
        gamma = MemoryBroker(self.network, C, node("open"), rules=EVERYBODY)
        sent = asking(b"ours", "return", return_to=f"open@{C}", ttl=500)
        self.assertOutcomes(self.send(ANN, sent, address="open"), "Accepted")
        self.run_for(5)
        (back,) = [Message(row.encoded) for row in gamma.store.rows("open")]
        self.assertEqual(back.body_values()[0], b"ours")
        self.assertEqual((back.annotations[ORIGIN], back.annotations[REPORT_KIND]), (A, "return"))

    def test_messages_that_are_given_up_do_not_fill_the_log(self) -> None:
        """Neither what is dropped, nor reports and returns that nobody takes."""
        let_report(self.alpha)
        told: list[Any] = []
        globalLogPublisher.addObserver(told.append)
        self.addCleanup(globalLogPublisher.removeObserver, told.append)
        self.alpha.transfer.rules.allows = lambda *_: True
        for _ in range(50):
            self.send(
                BETA,
                asking(b"x", "return", to="open", return_to="nobody", ttl=20),
                asking(b"x", "failure", to="open", return_to="nobody", ttl=30),
                message(to="open", ttl=10),
            )
            self.run_for(0.1, 0.01)
        self.assertEqual(self.kept(), [])
        lines = [each for each in told if each["log_level"].name in ("info", "warn")]
        self.assertLess(len([each for each in lines if "dropped" in each["log_format"]]), 5)
        self.assertLess(len([each for each in lines if "letter" in each["log_format"]]), 5)

    def test_straight_to_a_node(self) -> None:
        """The same on a link straight to a node."""
        self.assertOutcomes(self.send(BETA, self.claiming(C), address="open"), "Rejected")
        self.assertEqual(self.kept(), [])

    def test_user_id(self) -> None:
        """A peer's user-id is its own broker's matter (M-17)."""
        self.assertOutcomes(self.send(BETA, asking(to="open", user_id=b"root")), *["Rejected"])
        sent = asking(to="open", user_id=b"root", return_to=None)
        self.assertOutcomes(self.send(BETA, sent), "Accepted")

    def test_relayed_on(self) -> None:
        """A message leaves with the origin it came with; a local one gets our name."""
        gamma = MemoryBroker(self.network, C, node("open"))
        gamma.transfer.rules.partners.origins = lambda _: (B,)
        gamma.transfer.reload(gamma.transfer.rules)
        self.alpha.transfer.rules.partners.relay_for = lambda _: (C,)
        to = f"open@{C}"
        self.send(BETA, message(b"theirs", to=to))
        self.send(ANN, message(b"ours", to=to))
        self.run_for(2)
        kept = [Message(row.encoded) for row in gamma.store.rows("open")]
        self.assertEqual(
            [(each.body_values()[0], each.annotations[ORIGIN]) for each in kept],
            [(b"theirs", B), (b"ours", A)],
        )


class ClientTests(ProvenanceCase):
    """Claims of a client."""

    def test_marks_of_brokers(self) -> None:
        """Origin and report mark are taken off; what is the client's own stays."""
        marks = {ORIGIN: C, REPORT_KIND: Symbol("failure"), "x-opt-own": 1}
        self.assertOutcomes(self.send(ANN, message(annotations=marks), address="open"), "Accepted")
        self.assertEqual(self.kept()[0].annotations, {"x-opt-own": 1})

    def test_user_id(self) -> None:
        """Its own name, none, or one that a rule grants (M-17)."""
        deputy = Principal("user", "deputy")

        def outcome(principal: Principal, user: Any) -> Any:
            sent = asking(user_id=user, return_to=None)
            return self.send(principal, sent, address="open").updates[0][1]

        for principal, user in ((ANN, b"ann"), (ANN, b""), (ANN, None), (deputy, b"anna")):
            self.assertIsInstance(outcome(principal, user), spec.Accepted, user)
        for principal, user in ((ANN, b"bob"), (ANN, b"\xff"), (deputy, b"bob")):
            state = outcome(principal, user)
            self.assertEqual(state.error.condition, "amqp:unauthorized-access")
            self.assertEqual(state.error.info["code"], "policy.user-id")
        self.assertEqual(state.error.info["proven"], "user:deputy")

    def test_reserved_names(self) -> None:
        """M-13: application properties have no names of the standard's; peers' are their own."""
        for name in ("amqp.priority", "amqp.", "amqp.tomorrow"):
            sent = message(b"x", application={"color": "red", name: 1})
            (state,) = [each[1] for each in self.send(ANN, sent, address="open").updates]
            self.assertEqual(state.error.condition, "amqp:invalid-field")
            self.assertEqual(state.error.info["code"], "policy.property-name")
        for name, value in (("amqp", 1), ("my.amqp.name", 1), ("color", "amqp.")):
            sent = message(b"x", application={name: value})
            self.assertOutcomes(self.send(ANN, sent, address="open"), "Accepted")
        self.assertOutcomes(self.send(ANN, message(b"amqp."), address="open"), "Accepted")
        from_peer = message(b"x", to="open", application={"amqp.x": 1})
        self.assertOutcomes(self.send(BETA, from_peer), "Accepted")

    def test_demands(self) -> None:
        """A report or a path that there is not: said at once."""
        for marks in ({REPORT: "bogus", RETURN_TO: "open"}, {SECURE_PATH: "magic"},
                      {SECURE_PATH: 1}):  # fmt: skip
            client = self.send(ANN, message(annotations=marks), address="open")
            self.assertEqual(client.updates[0][1].error.condition, "amqp:invalid-field")

    def test_cost(self) -> None:
        """A few calls for each message whose annotations were seen before."""
        rules = Provenance(Everything())
        sent = asking(b"x" * 1000, to="open", return_to=None, message_id="m1")
        theirs = message(to="open", annotations={ORIGIN: B, "x-opt-amqproute-trace": ["ct"]})
        for each, origin in ((sent, Origin(ANN)), (theirs, Origin(BETA, True))):
            each.offsets  # noqa: B018 - located already where this runs
            rules.admitted(each, origin)
            called = calls_of(lambda e=each, o=origin: rules.admitted(e, o))
            self.assertLessEqual(len(called), MOST_CALLS, called)


MOST_CALLS = 16
"""Calls for one message."""


def calls_of(act: Callable[[], object]) -> list[str]:
    """Return the names of the functions that a call enters."""
    called: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return called


class Everything:
    """Rules that allow every claim of a client."""

    def allows(self, principal: Principal, verb: Verb, name: str) -> bool:
        return True

    def origins(self, principal: Principal) -> Sequence[str]:
        return ()

    def may_return_to(self, address: object, origin: Origin) -> bool:
        return True

    def check_trail(self, section: bytes) -> None:
        pass


DOMAINS = st.sampled_from(
    (A, B, C, "b.example", "x.delegated.example", "delegated.example", "c.example", "d.example",
     f"{B}.", B.upper(), f"x.{B}", "", "*", f"{B}\x00", f"{B}@{C}")
)  # fmt: skip
NODES = st.sampled_from(
    ("open", "secret", "amqp$transfer", "$management", "amqp$out/c.example", "", "/queues/secret",
     "/queues/open", "OPEN", "open ", "reply-1")
)  # fmt: skip
ADDRESSES = st.one_of(
    NODES, st.builds(lambda name, domain: f"{name}@{domain}", NODES, DOMAINS), st.text(max_size=20)
)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(0, 9).map(ULong), st.text(max_size=9),
    st.binary(max_size=9), st.lists(st.text(max_size=5), max_size=3),
)  # fmt: skip
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        str(ORIGIN): st.one_of(DOMAINS, DOMAINS.map(Symbol), JUNK),
        str(RETURN_TO): st.one_of(ADDRESSES, JUNK),
        str(REPORT): st.one_of(st.sampled_from(("failure", "delivered", "never")), JUNK),
        str(REPORT_KIND): st.one_of(st.just(Symbol("failure")), JUNK),
        "x-opt-amqproute-trace": st.one_of(
            st.lists(st.sampled_from((f"ct-{A}", f"ct-{B}", "x")), max_size=20), JUNK
        ),
        str(SECURE_PATH): st.one_of(st.sampled_from(SECURITY_LEVELS), JUNK),
        "x-opt-dead-letter-reason": JUNK,
    },
)
FORGERIES = st.builds(
    lambda to, marks, user: asking(
        b"forged", to=to, return_to=None, annotations=marks, user_id=user
    ),
    st.one_of(st.none(), ADDRESSES),
    ANNOTATIONS,
    st.sampled_from((None, b"ann", b"root", B.encode())),
)
TARGETS = st.sampled_from(("amqp$transfer", None, "open", "secret", f"@{A}", f"open@{A}"))


class ForgeryTests(ProvenanceCase):
    """An authenticated peer that lies in every field it can."""

    @given(messages=st.lists(FORGERIES, min_size=1, max_size=12), target=TARGETS)
    @settings(max_examples=100 * FACTOR)
    def test_nothing_forged_arrives(self, messages: list[Message], target: Any) -> None:
        """Messages on a queue afterwards are allowed there, and name their true origin."""
        self.build()
        reporter = let_report(self.alpha)
        self.send(BETA, *messages, address=target)
        self.run_for(3, 1)
        store = self.alpha.store
        for name in list(store._numbers):
            for row in store.rows(name):
                self.check(name, Message(row.encoded))
        self.assertIsNotNone(reporter)

    def check(self, name: str, kept: Message) -> None:
        """Check one message where it stands."""
        self.assertIn(name, ("open", "amqp$out/c.example"))
        annotations = kept.annotations
        if kept.offsets.body_code == 0x77:
            self.assertNotIn(ORIGIN, annotations)  # our own report about one of theirs
            return
        origin = annotations.get(ORIGIN)
        if name == "open" or "x-opt-dead-letter-source" not in annotations:
            self.assertTrue(origin in (B, "b.example", "x.delegated.example"), (name, annotations))
        back = annotations.get(RETURN_TO)
        if back is not None:
            self.assertTrue(self.may_return(str(back)), back)

    def may_return(self, address: str) -> bool:
        domain = address.rpartition("@")[2] if "@" in address else A
        allowed = (B, "b.example", "x.delegated.example", "c.example")
        plain = domain.lower().removesuffix(".")
        return plain in allowed or (plain == A and "open" in address)


class SecurePathTests(HouseTestCase):
    """`x-opt-require-secure-path`: below the level nothing goes on the wire."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = MemoryBroker(self.network, A, node("back"), capabilities=CAPABILITIES)
        let_report(self.alpha)

    def outcome(self, demanded: str, level: str, capabilities: Any = CAPABILITIES) -> str:
        """Send a message that demands a level over a connection that has one."""
        self.network.levels[B] = level
        beta = MemoryBroker(self.network, B, node("orders"), capabilities=capabilities)
        heard: list[bytes] = []
        accept = beta.accept

        def listening(principal: Principal, **changes: Any) -> Any:
            engine, frontend = accept(principal, **changes)
            receive = engine.receive_data

            def hear(data: Any, now: float) -> Any:
                heard.append(bytes(data))
                return receive(data, now)

            engine.receive_data = hear  # type: ignore[method-assign]
            return engine, frontend

        beta.accept = listening  # type: ignore[method-assign]
        client = self.alpha.client()
        link = client.sender("amqp$transfer")
        self.run_now()
        marks = {SECURE_PATH: Symbol(demanded)}
        client.send(
            link, asking(b"for your eyes only", "failure", to=f"orders@{B}", annotations=marks)
        )
        self.run_for(2)
        self.assertOutcomes(client, "Accepted")
        if beta.depth("orders"):
            kept = Message(beta.store.rows("orders")[0].encoded)
            self.assertEqual(kept.annotations[SECURE_PATH], demanded)
            self.assertEqual(reports_on(self.alpha), [])
            return "delivered"
        self.assertNotIn(b"for your eyes only", b"".join(heard))
        (report,) = reports_on(self.alpha)
        self.assertEqual(report["to"], f"orders@{B}")
        return str(report["code"])

    def test_levels(self) -> None:
        """Each demand over each connection: delivered, or reported and nothing on the wire."""
        for place, demanded in enumerate(SECURITY_LEVELS[1:], 1):
            for reached, level in enumerate(SECURITY_LEVELS):
                self.setUp()
                expected = "delivered" if reached >= place else "policy.path"
                self.assertEqual(self.outcome(demanded, level), expected, (demanded, level))

    def test_next_hop_does_not_promise(self) -> None:
        """A peer that would pass it on over anything does not get it either."""
        bare = ("AMQPROUTE:TRANSFER", "ANONYMOUS-RELAY")
        self.assertEqual(self.outcome("tls", "dane", bare), "policy.path")

    def test_two_hops(self) -> None:
        """The second hop is below the level: the sender hears of it from the first."""
        self.network.levels.update({B: "authenticated", C: "tls", A: "authenticated"})
        everybody = [Rule.of(who="*", node="*", allow=list(Verb))]
        beta = MemoryBroker(
            self.network, B, node("dead"), capabilities=CAPABILITIES, relay_for=[C], rules=everybody
        )
        let_report(beta)
        gamma = MemoryBroker(self.network, C, node("orders"), capabilities=CAPABILITIES)
        gamma.transfer.rules.partners.origins = lambda _: (A,)
        gamma.transfer.reload(gamma.transfer.rules)
        peer = Principal("peer", A, frozenset({A}))
        client = beta.client(peer)
        link = client.sender("amqp$transfer")
        self.run_now()
        for demanded in ("tls", "authenticated", "magic"):
            marks = {SECURE_PATH: demanded, ORIGIN: A}
            sent = asking(b"x", "failure", to=f"orders@{C}", return_to=f"back@{A}",
                          annotations=marks, subject=demanded)  # fmt: skip
            client.send(link, sent)
            self.run_for(3)
        self.assertOutcomes(client, "Accepted", "Accepted", "Rejected")
        self.assertEqual(client.updates[2][1].error.info["code"], "policy.path")
        self.assertEqual(gamma.depth("orders"), 1)
        (report,) = reports_on(self.alpha)
        self.assertEqual((report["code"], report["subject"]), ("policy.path", "authenticated"))
        self.assertEqual((report["reporter"], report["origin"]), (B, A))
        self.assertEqual(beta.store.rows("dead"), [])
