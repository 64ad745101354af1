# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.config.endpoint`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import endpoints
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config.endpoint import Endpoint, parse_endpoint


class EndpointTests(SynchronousTestCase):
    """The endpoint of each description."""

    def test_accepted(self) -> None:
        """Twisted takes each of these, and they mean this."""
        table = [
            ("tcp:5671", Endpoint("tcp", 5671, "", False, False)),
            ("tcp4:5671", Endpoint("tcp", 5671, "", False, False)),
            ("tcp:port=0", Endpoint("tcp", 0, "", False, False)),
            ("tcp:1:interface=127.0.0.1", Endpoint("tcp", 1, "127.0.0.1", False, True)),
            ("tcp:1:interface=192.0.2.1:backlog=9", Endpoint("tcp", 1, "192.0.2.1", False, False)),
            ("tcp6:1:interface=\\:\\:1", Endpoint("tcp6", 1, "::1", False, True)),
            ("unix:/run/a.sock", Endpoint("unix", None, "/run/a.sock", True, True)),
            ("unix:/run/a\\:b:mode=660", Endpoint("unix", None, "/run/a:b", True, True)),
        ]
        for text, expected in table:
            self.assertEqual(parse_endpoint(text), expected, text)
            if not text.startswith("tcp4"):
                endpoints.serverFromString(MemoryReactorClock(), text)

    def test_systemd(self) -> None:
        """Sockets of systemd are taken, here where there is no systemd."""
        self.assertFalse(parse_endpoint("systemd:domain=INET:index=0").is_unix)
        self.assertTrue(parse_endpoint("systemd:domain=UNIX:name=amqp").is_unix)

    def test_refused(self) -> None:
        """Each of these is refused with these words."""
        for text, words in [
            ("", "not an endpoint"),
            ("tcp", "not an endpoint"),
            ("udp:5", "not an endpoint"),
            ("ssl:5671:privateKey=x", "tls: implicit"),
            ("tcp:", "not a number"),
            ("tcp:amqp", "not a number"),
            ("tcp:65536", "between 0 and 65535"),
            ("tcp:1:foo=2", "no option 'foo'"),
            ("tcp:1:2", "option=value"),
            ("tcp:1:port=2", "twice"),
            ("tcp:1:interface=here", "not an IP address"),
            ("tcp:1:interface=\\:\\:1", "write tcp6:"),
            ("tcp6:1:interface=127.0.0.1", "write tcp:"),
            ("tcp:1:backlog=0", "backlog"),
            ("tcp:1\\", "backslash"),
            ("unix:", "no path"),
            ("unix:/" + "a" * 107, "107 octets"),
            ("unix:/a:mode=999", "octal"),
            ("systemd:domain=FOO:index=0", "INET"),
            ("systemd:domain=INET", "index=N or name=NAME"),
            ("systemd:domain=INET:index=0:name=a", "index=N or name=NAME"),
        ]:
            error = self.assertRaises(ValueError, parse_endpoint, text)
            self.assertIn(words, str(error), text)

    @given(st.text(alphabet="tcpunixsyemd6:=\\/0159.ab", max_size=30))
    def test_any_text(self, text: str) -> None:
        """Any text is an endpoint or a ValueError; the parser always ends."""
        for candidate in (text, "tcp:" + text, "unix:" + text):
            try:
                parse_endpoint(candidate)
            except ValueError:
                pass
