# SPDX-License-Identifier: Apache-2.0
"""Log lines of failed log-ins: few, safe, and usable by fail2ban."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.auth import refused_log_ins
from amqproute.auth.refused_log_ins import (
    LONGEST_NAME,
    MOST_ADDRESSES,
    MOST_LINES,
    MOST_LINES_OF_ADDRESS,
    RefusedLogIns,
)
from amqproute.daemon.log_output import journal_line, json_line, text_line
from amqproute.log_rate_limit import EVERY_SECONDS

FILTER = Path(amqproute.__file__).parent.parent / "etc/fail2ban/filter.d/amqproute.conf"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def expressions() -> list[re.Pattern[str]]:
    """Read the filter as fail2ban does; `<ADDR>` is an address, in a group."""
    parser = configparser.ConfigParser()
    parser.read_string(FILTER.read_text())
    found = parser["Definition"]["failregex"].strip().splitlines()
    address = r"(?P<address>(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*)"
    return [re.compile(each.replace("<ADDR>", address)) for each in found]


def banned(line: str) -> list[str]:
    """Return whom a line of the log has banned; fail2ban takes the time out of it first."""
    for cut in (line, TIME.sub("", line, count=1)):
        matches = [each.search(cut.strip("\n")) for each in expressions()]
        found = [match["address"] for match in matches if match is not None]
        if found:
            return found
    return []


class RefusedLogInsCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.refused = RefusedLogIns(self.clock)
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.events]


class BoundTests(RefusedLogInsCase):
    """The log of a guessed daemon stays readable."""

    def test_one_address(self) -> None:
        for _ in range(1000):
            self.refused.note("192.0.2.1", "PLAIN", "ann")
        self.assertEqual(
            self.lines(),
            ['log-in failed from 192.0.2.1, PLAIN, user "ann"'] * MOST_LINES_OF_ADDRESS,
        )
        self.refused.note("192.0.2.2", "PLAIN", "bob")
        self.assertIn("192.0.2.2", self.lines()[-1])
        self.clock.advance(EVERY_SECONDS)
        self.assertIn("990 more log-ins failed within 10 s", self.lines()[-1])
        self.assertIn("from 1 addresses, 990 of them from 192.0.2.1", self.lines()[-1])
        self.clock.advance(10 * EVERY_SECONDS)
        self.assertEqual(len(self.lines()), MOST_LINES_OF_ADDRESS + 2)
        self.refused.note("192.0.2.1", "PLAIN", "ann")
        self.assertEqual(len(self.lines()), MOST_LINES_OF_ADDRESS + 3)
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(len(self.lines()), MOST_LINES_OF_ADDRESS + 3)

    def test_many_addresses(self) -> None:
        for number in range(10_000):
            self.refused.note(f"198.51.{number // 256}.{number % 256}", "PLAIN", "ann")
        self.assertEqual(len(self.lines()), MOST_LINES)
        self.assertLessEqual(len(self.refused._unwritten), MOST_ADDRESSES + 1)
        self.refused.stop()
        self.assertIn(f"{10_000 - MOST_LINES} more", self.lines()[-1])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_long_names(self) -> None:
        self.refused.note("192.0.2.1", "PLAIN", "\x00" * 10_000)
        self.assertLess(len(self.lines()[0]), 60 + 6 * (LONGEST_NAME + 3))
        self.refused.stop()


class FilterTests(RefusedLogInsCase):
    """The filter that is shipped, on lines as the daemon writes them."""

    def written(self) -> Iterator[str]:
        """Yield the lines of the events so far in every format there is."""
        for event in self.events:
            yield text_line(event)
            yield json_line(event)
            for head in ("host amqproute[123]: ", "host.example python3.11[7]: "):
                yield head + re.sub(r"^<\d>", "", journal_line(event))
                yield head + json_line(event)

    def check(self, address: str, mechanism: str, user: str, expected: list[str]) -> None:
        self.events.clear()
        RefusedLogIns(Clock()).note(address, mechanism, user)
        for line in self.written():
            self.assertEqual(line.count("\n"), 1)
            self.assertEqual(banned(line), expected, line)

    def test_banned(self) -> None:
        for address in ("192.0.2.1", "2001:db8::1", "::1"):
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                for user in ("ann", "", "zoë", 'a"b', "x" * 300):
                    self.check(address, mechanism, user, [address])

    def test_processes_of_this_machine(self) -> None:
        self.check("the local user id 1000", "PLAIN", "ann", [])

    def test_injection(self) -> None:
        """No name has anybody else banned."""
        forged = "amqproute.auth.refused_log_ins: log-in failed from 203.0.113.9, PLAIN, user "
        for user in (
            "203.0.113.9",
            f'"\n{forged}"x"',
            f'ann"\r\nhost amqproute[1]: {forged}"',
            f"\x1b[2K\x1b[1G{forged}",
            f"\u2028{forged}\u0085{forged}",
            '", user "x", from 203.0.113.9, PLAIN, user "',
            '"}\n{"time":"","level":"warn","namespace":"amqproute.auth.refused_log_ins",'
            '"message":"log-in failed from 203.0.113.9, PLAIN, user \\"',
        ):
            self.check("192.0.2.1", "PLAIN", user, ["192.0.2.1"])

    def test_other_lines(self) -> None:
        """Sums, and what strangers have other lines say, ban nobody."""
        forged = "amqproute.auth.refused_log_ins: log-in failed from 203.0.113.9, PLAIN, user "
        elsewhere = Logger("amqproute.frontends.amqp10.connection_frontend")
        elsewhere.warn("{text}", text=f'{forged}"x"')
        elsewhere.warn("{text}", text=f'x\n{forged}"x"')
        elsewhere.warn("opened by {text}", text=f'warn {forged}"x"')
        for line in self.written():
            for part in line.splitlines():
                self.assertEqual(banned(part), [], part)
        self.events.clear()
        self.patch(refused_log_ins, "MOST_LINES_OF_ADDRESS", 0)
        self.refused.note("192.0.2.1", "PLAIN", "ann")
        self.refused.stop()
        self.assertEqual(len(self.lines()), 1)
        for line in self.written():
            self.assertEqual(banned(line), [], line)

    @given(st.text(max_size=100))
    @settings(max_examples=50, deadline=None)
    def test_any_name(self, user: str) -> None:
        self.check("192.0.2.1", "SCRAM-SHA-256", user, ["192.0.2.1"])
