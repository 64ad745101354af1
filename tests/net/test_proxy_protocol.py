# SPDX-License-Identifier: Apache-2.0
"""A balancer's statements about the client, octet by octet."""

from __future__ import annotations

import contextlib
import struct
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.proxy_protocol import (
    MOST_LINE_OCTETS,
    MOST_OCTETS,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")


def header(
    host: str = "192.0.2.1", port: int = 4711, more: bytes = b"", version: int = 0x21
) -> bytes:
    """Return a header as a balancer sends it."""
    address = ip_address(host)
    family = 0x11 if address.version == 4 else 0x21
    body = address.packed + b"\x7f" * len(address.packed) + struct.pack("!HH", port, 5671) + more
    return SIGNATURE + struct.pack("!BBH", version, family, len(body)) + body


class ProxyHeaderTests(SynchronousTestCase):
    def refused(self, data: bytes) -> str:
        with self.assertRaises(ProxyHeaderError) as caught:
            read_proxy_header(data)
        return str(caught.exception)

    def test_addresses(self) -> None:
        for host, shown in (
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ):
            data = header(host)
            self.assertEqual(read_proxy_header(data), ProxyHeader(len(data), shown, 4711))
            self.assertEqual(read_proxy_header(data + b"AMQP"), ProxyHeader(len(data), shown, 4711))

    def test_in_parts(self) -> None:
        """Any beginning of a header is waited on."""
        data = header("2001:db8::1", more=b"\x04\x00\x02xx")
        for size in range(len(data)):
            self.assertIsNone(read_proxy_header(data[:size]), size)

    def test_extensions(self) -> None:
        """Extensions are skipped; those that do not end where the header ends are refused."""
        good = b"\x03\x00\x04abcd" + b"\x04\x00\x00"
        data = header(more=good)
        self.assertEqual(read_proxy_header(data), ProxyHeader(len(data), "192.0.2.1", 4711))
        for bad in (b"\x03", b"\x03\x00", b"\x03\x00\x05abcd", good + b"\x01"):
            self.assertIn("extension", self.refused(header(more=bad)))

    def test_local(self) -> None:
        """The balancer's own connections name nobody, whatever is in the rest."""
        for rest in (b"", b"\xff" * 12):
            data = SIGNATURE + struct.pack("!BBH", 0x20, 0, len(rest)) + rest
            self.assertEqual(read_proxy_header(data), ProxyHeader(len(data), None, 0))

    def test_refused(self) -> None:
        for data, words in (
            (b"AMQP\x00\x01\x00\x00", "no header"),
            (b"\x16\x03\x01", "no header"),
            (b"\r\n\r\nX", "no header"),
            (header(version=0x11), "version 1"),
            (header(version=0x31), "version 3"),
            (header(version=0x22), "command 2"),
            (SIGNATURE + struct.pack("!BBH", 0x21, 0x00, 0), "not TCP"),
            (SIGNATURE + struct.pack("!BBH", 0x21, 0x31, 216) + bytes(216), "not TCP"),
            (SIGNATURE + struct.pack("!BBH", 0x21, 0x12, 12) + bytes(12), "not TCP"),
            (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 11) + bytes(11), "too short"),
            (SIGNATURE + struct.pack("!BBH", 0x21, 0x21, 35) + bytes(35), "too short"),
            (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, MOST_OCTETS), "the most is"),
        ):
            self.assertIn(words, self.refused(data))

    def test_line(self) -> None:
        """Version 1 is one line of text."""
        for line, shown in (
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n", ("192.0.2.1", 4711)),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 0 65535\r\n", ("192.0.2.1", 0)),
            (b"PROXY TCP6 2001:db8::1 ::1 65535 443\r\n", ("2001:db8::1", 65535)),
            (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", ("192.0.2.1", 1)),
            (b"PROXY UNKNOWN\r\n", (None, 0)),
            (b"PROXY UNKNOWN \xff\x00 whatever 1 2\r\n", (None, 0)),
        ):
            host, port = shown
            self.assertEqual(read_proxy_header(line), ProxyHeader(len(line), host, port), line)
            expected = ProxyHeader(len(line), host, port)
            self.assertEqual(read_proxy_header(line + b"GET / HTTP/1.1\r\n"), expected)
            for size in range(len(line)):
                self.assertIsNone(read_proxy_header(line[:size]), size)

    def test_longest_line(self) -> None:
        """The longest line that the standard has is taken, and no longer one."""
        address = b"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        line = b"PROXY UNKNOWN " + address + b" " + address + b" 65535 65535\r\n"
        self.assertEqual(len(line), MOST_LINE_OCTETS)
        self.assertEqual(read_proxy_header(line), ProxyHeader(len(line), None, 0))
        self.assertIsNone(read_proxy_header(line[:-1]))
        self.assertIn("more than 107", self.refused(line[:-2] + b" \r\n"))
        self.assertIn("more than 107", self.refused(b"PROXY " + b"a" * 101))

    def test_refused_lines(self) -> None:
        for line, words in (
            (b"PROXY\r\n", "no header"),
            (b"PROXY \r\n", "a family"),
            (b"PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "a family"),
            (b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", "a family"),
            (b"PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n", "a family"),
            (b"PROXY TCP4\r\n", "two addresses"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "two addresses"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n", "two addresses"),
            (b"PROXY TCP4 192.0.2.1\n192.0.2.2 192.0.2.3 1 2\r\n", "not IPv4"),
            (b"PROXY TCP4 ::1 ::1 1 2\r\n", "not IPv4"),
            (b"PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n", "not IPv4"),
            (b"PROXY TCP4 192.0.2.1 192.0.2 1 2\r\n", "not IPv4"),
            (b"PROXY TCP4 \xd9\xa1.0.2.1 192.0.2.2 1 2\r\n", "not IPv4"),
            (b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n", "not IPv6"),
            (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "a scope"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", "beyond 65535"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n", "beyond 65535"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n", "not a number"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n", "not a number"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n", "not a number"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 100000\r\n", "not a number"),
        ):
            self.assertIn(words, self.refused(line), line)

    @given(st.binary(max_size=200), st.sampled_from((b"", SIGNATURE, b"PROXY ", b"PROXY TCP4 ")))
    def test_anything(self, data: bytes, first: bytes) -> None:
        """Nothing else comes of any octets than a header within them, waiting, or a refusal."""
        data = first + data
        with contextlib.suppress(ProxyHeaderError):
            found = read_proxy_header(data)
            if found is not None:
                self.assertLessEqual(found.size, len(data))
                if found.host is not None:
                    ip_address(found.host)
