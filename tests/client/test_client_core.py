# SPDX-License-Identifier: Apache-2.0
"""The sans-IO part of a client, against an engine in the server role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.client.client_core import ClientCore, Ending, LinkEvent
from amqproute.client.link_terms import OUTCOME_SYMBOLS, make_source, refused_term
from amqproute.client.login import ClientLogin
from amqproute.errors import AuthenticationFailed
from amqproute.url import Url
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    ConnectionClosed,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    OpenReceived,
    SessionBegun,
    SessionEnded,
)
from amqproute.wire.amqp10.link import Link
from amqproute.wire.sasl_mechanisms import ServerContext, server_mechanism


class Anonymous:
    """The broker's one mechanism."""

    mechanisms = ("ANONYMOUS",)

    def start(self, name: str) -> Any:
        return server_mechanism(name, ServerContext({}.get, "n", b"k", confidential=False))


class RecordingEnd:
    """An end of a link that keeps the kinds of events it got."""

    def __init__(self) -> None:
        self.kinds: list[type] = []

    def event(self, event: LinkEvent) -> None:
        self.kinds.append(type(event))


class CoreTests(SynchronousTestCase):
    """A `ClientCore`, and a broker's engine that answers."""

    def setUp(self) -> None:
        login = ClientLogin(Url("amqp", "b.example", 5672), "n", lambda: False)
        self.core = ClientCore[RecordingEnd](
            "us", "b.example", login, tls="none", handshake_seconds=10.0
        )
        self.broker = Connection(
            ConnectionSettings(role="server", container_id="broker"), sasl_server=Anonymous()
        )
        self.core.engine.start(0.0)
        self.broker.start(0.0)
        self.core.open()

    def pump(self) -> list[Ending[RecordingEnd]]:
        """Pass octets until both are silent; return what has ended at the client."""
        endings: list[Ending[RecordingEnd]] = []
        while True:
            sent = b"".join(self.core.engine.data_to_send())
            got: Sequence[Any] = self.broker.receive_data(sent, 0.0) if sent else ()
            for event in got:
                self.answer(event)
            back = b"".join(self.broker.data_to_send())
            if not sent and not back:
                return endings
            for event in self.core.engine.receive_data(back, 0.0) if back else ():
                ending = self.core.take(event)
                if ending is not None:
                    endings.append(ending)

    def answer(self, event: Any) -> None:
        """Do what a broker does."""
        if isinstance(event, OpenReceived):
            self.broker.open()
        elif isinstance(event, SessionBegun):
            event.session.accept()
        elif isinstance(event, LinkAttached):
            event.link.accept(source=event.attach.source)

    def attach(self) -> tuple[Link, RecordingEnd]:
        """Attach a link to receive on, whose end is known."""
        link = self.core.session.attach("l", "receiver", make_source("queue"), spec.Target())
        end = self.core.links[link] = RecordingEnd()
        return link, end

    def test_begins(self) -> None:
        """Connection and session stand after one exchange."""
        self.assertFalse(self.core.is_open)
        self.assertFalse(self.core.has_begun)
        self.assertEqual(self.pump(), [])
        self.assertTrue(self.core.is_open)
        self.assertTrue(self.core.has_begun)

    def test_events_of_a_link(self) -> None:
        """Its end gets them; a link without an end troubles nobody."""
        self.pump()
        _, end = self.attach()
        self.core.session.attach("other", "receiver", make_source("queue"), spec.Target())
        self.assertEqual(self.pump(), [])
        self.assertEqual([kind for kind in end.kinds if kind is not LinkFlowed], [LinkAttached])

    def test_end_of_a_link(self) -> None:
        """It is told once, with its end, and forgotten; one that nobody expects is not told."""
        self.pump()
        link, end = self.attach()
        self.core.session.attach("x", "receiver", make_source("q"), spec.Target())
        self.pump()
        for theirs in list(self.broker.sessions[0].links):
            theirs.detach(error=spec.Error(condition="amqp:not-found"))
        [ending] = self.pump()
        self.assertIs(ending.end, end)
        assert isinstance(ending.event, LinkDetached)
        self.assertIs(ending.event.link, link)
        self.assertEqual(ending.event.error and ending.event.error.condition, "amqp:not-found")
        self.assertNotIn(link, self.core.links)

    def test_end_of_the_connection(self) -> None:
        """The session ends with it; the last word is the connection's."""
        self.pump()
        self.broker.close(spec.Error(condition="amqp:connection:forced"))
        endings = self.pump()
        self.assertEqual([type(each.event) for each in endings], [SessionEnded, ConnectionClosed])
        self.assertTrue(all(each.end is None for each in endings))


class LoginTests(SynchronousTestCase):
    """`ClientLogin`."""

    def chosen(
        self, url: Url, *offered: str, private: bool = False, has_certificate: bool = False
    ) -> str:
        """Return the mechanism for a URL."""
        login = ClientLogin(url, "nonce", lambda: private, has_certificate=has_certificate)
        return login.choose(offered).name

    def test_table(self) -> None:
        """The best that fits to the URL, and PLAIN only where nobody listens."""
        every = ("PLAIN", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-256")
        ann = Url("amqps", "b", 5671, user="ann", password="secret")
        nobody, local = Url("amqp", "b", 5672), Url("unix", path="/s")
        self.assertEqual(self.chosen(ann, *every), "SCRAM-SHA-256")
        self.assertEqual(self.chosen(ann, "PLAIN", "EXTERNAL", private=True), "PLAIN")
        self.assertEqual(self.chosen(nobody, *every), "ANONYMOUS")
        self.assertEqual(self.chosen(nobody, *every, has_certificate=True), "EXTERNAL")
        self.assertEqual(self.chosen(local, *every), "EXTERNAL")
        self.assertEqual(self.chosen(local, "ANONYMOUS"), "ANONYMOUS")

    def test_none_fits(self) -> None:
        """The words say what both sides have, and why PLAIN is not among it."""
        ann = Url("amqp", "b", 5672, user="ann", password="secret")
        error = self.assertRaises(AuthenticationFailed, self.chosen, ann, "PLAIN", "EXTERNAL")
        self.assertEqual(
            str(error),
            "the broker offers PLAIN, EXTERNAL here, we could use SCRAM-SHA-256 or PLAIN "
            "(PLAIN only over TLS)",
        )


class TermsTests(SynchronousTestCase):
    """The requests, and the grants."""

    def test_source(self) -> None:
        """As the standard and the registered filter have it."""
        plain = make_source("q")
        self.assertEqual(
            (plain.address, plain.dynamic, plain.outcomes), ("q", False, OUTCOME_SYMBOLS)
        )
        self.assertIsNone(plain.filter)
        self.assertTrue(make_source(None).dynamic)
        asked = make_source("q", browses=True, selector="a = 1")
        self.assertEqual(asked.distribution_mode, "copy")
        [(name, value)] = (asked.filter or {}).items()
        self.assertEqual((name, value.descriptor, value.value), (name, name, "a = 1"))

    def test_granted(self) -> None:
        """The broker's own source counts, and not ours."""

        class Answered:
            def __init__(self, source: spec.Source | None) -> None:
                self.source = source

        def refused(source: spec.Source | None, browses: bool, selects: bool) -> str:
            link: Any = Answered(source)
            return refused_term(link, browses=browses, selects=selects)

        full = make_source("q", browses=True, selector="a = 1")
        self.assertEqual(refused(full, True, True), "")
        self.assertEqual(refused(make_source("q"), False, False), "")
        self.assertEqual(refused(make_source("q"), True, False), "let itself be browsed")
        self.assertEqual(refused(make_source("q", browses=True), True, True), "select")
        self.assertEqual(refused(None, False, True), "select")
