# SPDX-License-Identifier: Apache-2.0
"""Failures around brokers: name servers, certificates, the disk, the clock."""

from __future__ import annotations

import contextlib
import datetime
import functools
import mmap
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import dns.rdataset
from cryptography import x509

from amqproute.net.authority import Issued, make_authority
from amqproute.net.dane import record_of
from amqproute.resolver.zone import ZoneAuthority, ZoneReply
from amqproute.tools.daemon_pair import DaemonPair
from amqproute.tools.daemon_pair import DaemonProcess as PairDaemon
from tests.integration.support import (
    Daemon,
    Wire,
    Zone,
    body_of,
    certificates,
    message,
    new_directory,
    until,
)
from tests.network.campaign import CannotRun, Finding, Scenario
from tests.network.course import Course, Tally
from tests.network.grounds import (
    lined_pair,
    logged,
    put_certificate,
    quiet,
    wait_logged,
)
from tests.network.line import Line
from tests.support.patience import PATIENCE
from tests.support.signing import SignedTree

__all__ = ["ClockJumps", "ExpiringCertificates", "FullDisk", "TroubledNameServer"]

ORDERS = "orders@beta.example"


# -- the DNS ---------------------------------------------------------------------------------------


class Mute:
    """A name server that has died: no answer at all."""

    def respond(self, wire: bytes, *, udp: bool) -> ZoneReply | None:
        """Say nothing."""
        return None


class Late:
    """A name server whose answers come late.

    Args:
        authority: what it would say in time.
        seconds: how late.
    """

    def __init__(self, authority: ZoneAuthority, seconds: float) -> None:
        self._authority = authority
        self._seconds = seconds

    def respond(self, wire: bytes, *, udp: bool) -> ZoneReply | None:
        """Answer late."""
        reply = self._authority.respond(wire, udp=udp)
        return None if reply is None else ZoneReply(reply.wire, self._seconds)


class Garbled:
    """A name server that answers octets that are no DNS message."""

    def respond(self, wire: bytes, *, udp: bool) -> ZoneReply | None:
        """Answer nonsense."""
        return ZoneReply(wire[:2] + b"\x84\x00" + b"\xff" * 40)


@dataclass(frozen=True)
class TroubledNameServer(Scenario):
    """A name server that dies, delays, sends garbage and forges answers.

    The zones are signed and both brokers validate for themselves. In each phase something is wrong,
    alpha's connection is cut, so that it has to look where beta is, and messages are published.

    Attributes:
        messages: published in each phase.
        rounds: through all the phases.
        pause: seconds for which a phase lasts after its messages were published.
    """

    messages: int = 500
    rounds: int = 5
    pause: float = 1.0
    claim: ClassVar[str] = (
        "alpha takes all messages in every phase, sends none to a forged address, gives up "
        "none, and beta has each of them once, in order"
    )

    def run(self, finding: Finding) -> None:
        """Go through the phases."""
        with contextlib.ExitStack() as stack:
            tree = SignedTree({"alpha.example": "", "beta.example": ""}, now=time.time())
            zone = stack.enter_context(contextlib.closing(Zone()))
            zone.authority = tree.authority
            anchors = new_directory() / "anchors"
            anchors.write_text(tree.anchor_text)
            alpha, beta = (self._daemon(name, zone, anchors) for name in ("alpha", "beta"))
            for daemon in (alpha, beta):
                stack.callback(daemon.stop)
            line = stack.enter_context(contextlib.closing(Line(beta.tls)))
            impostor = stack.enter_context(contextlib.closing(Line(beta.tls)))
            ports = {"alpha": alpha.tls, "beta": line.port}
            for name, port in ports.items():
                tree.replace(f"{name}.example", _records(name, port), ttl=1)
            alpha.start()
            beta.start()
            self._phases(finding, tree, zone, alpha, beta, line, impostor)
            for daemon in (alpha, beta):
                try:
                    daemon.check()
                except AssertionError as error:
                    finding.hold(False, str(error)[:300])

    def _daemon(self, name: str, zone: Zone, anchors: Path) -> Daemon:
        return Daemon(
            f"{name}.example",
            issued=_issued(name),
            changes={
                "nodes": [{"name": "orders"}],
                "peers": {"*": {"level": "dane"}},
                "relay": {"first-retry": 0.1, "last-retry": 0.5, "dead-letter": "orders"},
                "resolver": {
                    "nameservers": [f"127.0.0.1:{zone.port}"],
                    "validate": "self",
                    "anchors": str(anchors),
                    "timeout": 0.5,
                    "cache-longest-negative": 1,
                    "allow-targets": ["127.0.0.0/8"],
                },
            },
        )

    def _phases(
        self,
        finding: Finding,
        tree: SignedTree,
        zone: Zone,
        alpha: Daemon,
        beta: Daemon,
        line: Line,
        impostor: Line,
    ) -> None:
        true = tree.authority
        forged = dns.rdataset.from_text(
            "IN", "SRV", 1, f"0 0 {impostor.port} broker1.beta.example."
        )

        def lie() -> None:
            # Not an empty one: the forger of an answer does not have the key.
            tree.replace(
                "beta.example",
                _records("beta", line.port),
                ttl=1,
                change=lambda z: z.replace_rdataset("_amqps._tcp.beta.example.", forged),
            )

        def deny() -> None:
            tree.replace(
                "beta.example",
                _records("beta", line.port),
                ttl=1,
                change=lambda z: z.delete_node("_amqps._tcp.beta.example."),
            )

        def heal() -> None:
            zone.authority = true
            tree.replace("beta.example", _records("beta", line.port), ttl=1)

        def anew(change: Callable[[], None]) -> Callable[[], None]:
            # What helped over the last outage is used for half a minute: alpha starts over, or it
            # would not hear the lie.
            def both() -> None:
                alpha.kill()
                change()
                alpha.start()

            return both

        phases: dict[str, Callable[[], None]] = {
            "well": lambda: None,
            "forged SRV": anew(lie),
            "forged denial": anew(deny),
            "dead": lambda: setattr(zone, "authority", Mute()),
            "late": lambda: setattr(zone, "authority", Late(true, 0.7)),
            "nonsense": lambda: setattr(zone, "authority", Garbled()),
        }
        number, arrived = 0, 0
        bodies: list[bytes] = []
        for _ in range(self.rounds):
            for change in phases.values():
                change()
                time.sleep(1.1)  # the TTL: what was known is not known any more
                line.cut()
                new = [b"%d" % n for n in range(number, number + self.messages)]
                number += self.messages
                bodies += new
                with Wire(alpha.plain) as wire:
                    wire.publish(ORDERS, [message(each, ORDERS) for each in new])
                time.sleep(self.pause)
                heal()
                with Wire(beta.plain) as wire:
                    got = [body_of(each) for each in wire.consume("orders", self.messages)]
                finding.hold(got == new, f"{len(got)} came, or not in order")
                arrived += len(got)
        with Wire(alpha.plain) as wire:
            link = wire.attach("receiver", "orders")
            link.flow(10, drain=True)
            until(lambda: wire.read() and link.credit == 0, "a drained link")
            finding.hold(not link.unsettled, "alpha gave messages up")
        finding.figures.update(
            {
                "phases": ", ".join(phases),
                "messages": number,
                "arrived": arrived,
                "calls of the forged address": impostor.calls,
                "reported as dns.bogus": len(
                    [each for each in alpha.log().splitlines() if "dns.bogus" in each]
                ),
            }
        )
        finding.hold(not impostor.calls, f"{impostor.calls} calls where the lie points to")
        finding.hold("dns.bogus" in alpha.log(), "the log does not say that somebody lies")


@functools.cache
def _issued(name: str) -> Issued:
    return certificates().issue(f"{name}.example")


def _records(name: str, port: int) -> str:
    record = record_of(x509.load_pem_x509_certificates(_issued(name).chain.read_bytes())[0])
    return (
        f"_amqps._tcp SRV 0 0 {port} broker1\nbroker1 A 127.0.0.1\n"
        f"_{port}._tcp.broker1 TLSA {record}\n"
    )


# -- certificates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpiringCertificates(Scenario):
    """Certificates that expire during the run, renewed by replacing files.

    Attributes:
        messages: published.
        renewals: of both sides' certificates, one after the other, before they expire.
        valid_seconds: how long each is valid.
        lapses: how often beta's is renewed too late: for a while it has expired.
        seed: of all that is random.
    """

    messages: int = 5000
    renewals: int = 8
    valid_seconds: float = 8.0
    lapses: int = 2
    seed: int = 4
    claim: ClassVar[str] = (
        "0 lost, 0 duplicated; after a renewal in time nothing waits; after a lapse messages "
        "wait, with tls.expired in the log, until the renewal"
    )

    def run(self, finding: Finding) -> None:
        """Renew, in time and too late, while the line is cut again and again."""
        settings = {"tls": {"watch": 0.2}}
        with lined_pair(settings) as (pair, line):
            course = Course(pair, self.messages, random.Random(self.seed))
            # The first ones are valid for long: a start on a busy machine takes its time.
            pair.start()
            steps = self.renewals + self.lapses
            share = -(-self.messages // steps)
            lapses = 0
            for step in range(steps):
                course.publish(share, share // 2)
                if step >= self.renewals:
                    lapses += self.lapse(finding, pair, line, course, share)
                self.renew(pair, pair.alpha, pair.beta)
                self.wait_taken(pair)
                line.cut()
                time.sleep(self.valid_seconds / 4)
            course.publish(self.messages)
            course.disconnect()
            self.renew(pair, pair.alpha, pair.beta)
            tally = Tally(course, course.count())
            finding.figures.update(
                {
                    "messages": self.messages,
                    "certificates put into use": sum(
                        len(logged(each, "certificate of ours replaced")) for each in pair.daemons
                    ),
                    "lapses": lapses,
                    "lost": len(tally.lost),
                    "duplicated": len(tally.twice) + len(tally.extra),
                }
            )
            finding.hold(not tally.wrong, f"{tally.wrong}")
            quiet(finding, pair.daemons)

    def renew(self, pair: DaemonPair, *daemons: PairDaemon) -> None:
        """Put new certificates where the old ones are."""
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.valid_seconds)
        for daemon in daemons:
            put_certificate(pair, daemon, not_after=ends)

    def wait_taken(self, pair: DaemonPair) -> None:
        """Wait until both sides use what has been put there."""
        for daemon in pair.daemons:
            chain = pair.directory / "tls" / daemon.domain / "chain.pem"
            serial = x509.load_pem_x509_certificates(chain.read_bytes())[0].serial_number
            wait_logged(daemon, f"certificate of ours replaced.*{serial:x}")

    def lapse(
        self, finding: Finding, pair: DaemonPair, line: Line, course: Course, share: int
    ) -> bool:
        """Let beta's certificate expire, and make sure that nothing is handed over meanwhile."""
        time.sleep(self.valid_seconds + 0.5)
        self.renew(pair, pair.alpha)
        mark = len(pair.alpha.log_path.read_text())
        line.cut()
        course.publish(share, share // 2)
        wait_logged(pair.alpha, r"tls\.expired", since=mark)
        connected = logged(pair.alpha, r"beta\.example connected", mark)
        finding.hold(not connected, "alpha connected to a beta whose certificate had expired")
        return True


# -- the disk --------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a small file system.

    Raises:
        CannotRun: that is not allowed here.
    """
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "amqproute", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise CannotRun(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        # Lazy: a daemon that is being killed may still have a file open there.
        subprocess.run(["umount", "-l", str(path)], capture_output=True, timeout=PATIENCE)


@dataclass(frozen=True)
class FullDisk(Scenario):
    """The disk of one side, then of the other, fills up and is freed.

    Attributes:
        messages: published.
        times: on each side.
        seconds: the disk stays full each time.
        mebibytes: the size of the disk.
        seed: of all that is random.
    """

    messages: int = 4000
    times: int = 4
    seconds: float = 4.0
    mebibytes: int = 96
    seed: int = 5
    claim: ClassVar[str] = (
        "0 accepted messages lost, 0 duplicated; messages flow again when there is room"
    )

    def run(self, finding: Finding) -> None:
        """Fill, publish, make room."""
        with contextlib.ExitStack() as stack:
            pair, _ = stack.enter_context(lined_pair())
            homes = [daemon.config_path.parent / "state" for daemon in pair.daemons]
            stack.callback(pair.stop)
            for home in homes:
                stack.enter_context(small_disk(home, self.mebibytes))
            stack.callback(pair.stop)
            course = Course(pair, self.messages, random.Random(self.seed))
            pair.start()
            share = -(-self.messages // (2 * self.times + 1))
            restarts = 0
            full_accepted = 0
            for step in range(2 * self.times):
                course.publish(share, share // 2)
                filler = homes[step % 2] / "filler"
                fill(filler)
                before = course.accepted
                course.turn_for(share, self.seconds)
                full_accepted += course.accepted - before
                filler.unlink()
                for daemon in pair.daemons:
                    if daemon.has_ended:  # what systemd does: Restart=on-failure
                        daemon.start()
                        daemon.wait_ready()
                        restarts += 1
            course.publish(self.messages)
            course.disconnect()
            tally = Tally(course, course.count())
            finding.figures.update(
                {
                    "messages": self.messages,
                    "accepted while a disk was full": full_accepted,
                    "errors to the publisher": ", ".join(
                        f"{count} {name}" for name, count in course.refused.items()
                    )
                    or "nothing",
                    "restarts": restarts,
                    "lost": len(tally.lost),
                    "duplicated": len(tally.twice) + len(tally.extra),
                }
            )
            finding.hold(not tally.wrong, f"{tally.wrong}")
            quiet(finding, pair.daemons, allowed="disk|full|space|room")


def fill(path: Path) -> None:
    """Write a file until the disk takes no more."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


# -- the clock -------------------------------------------------------------------------------------

SHIFT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *seconds;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("AMQPROUTE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, 2 * sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) seconds = found;
    close(file);
}

static long slept(void) { return seconds ? seconds[1] : 0; }
static long shift(void) { return seconds ? seconds[0] + slept() : 0; }

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
    if (which == CLOCK_BOOTTIME) now->tv_sec += slept();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClock:
    """The wall clock of children, in a library that stands before the C library.

    Args:
        directory: where library and shift are put.

    Raises:
        CannotRun: there is no C compiler.
    """

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise CannotRun("no C compiler for the library that shifts the wall clock")
        source, library = directory / "clock.c", directory / "clock.so"
        source.write_text(SHIFT)
        done = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise CannotRun(f"the library that shifts the clock: {done.stderr.strip()[:200]}")
        path = directory / "shift"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._environment = {"LD_PRELOAD": str(library), "AMQPROUTE_TEST_CLOCK": str(path)}

    def set(self, seconds: int) -> None:
        """Let it be this many seconds ahead of the true time, or behind if negative."""
        self._shift[:8] = seconds.to_bytes(8, "little", signed=True)

    def sleep(self, seconds: int) -> None:
        """Let the machine have slept for so long, in all."""
        self._shift[8:16] = seconds.to_bytes(8, "little", signed=True)

    @contextlib.contextmanager
    def for_children(self) -> Iterator[None]:
        """Give it to the processes that are started meanwhile."""
        before = {name: os.environ.get(name) for name in self._environment}
        os.environ.update(self._environment)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


@dataclass(frozen=True)
class ClockJumps(Scenario):
    """The wall clock jumps by an hour, forward and back, under load.

    Both brokers have the clock; after each jump the connection is cut, so that there is a new one.

    Attributes:
        messages: published.
        jumps: how many.
        longest_seconds: for what was published after a jump to be at beta.
        seed: of all that is random.
    """

    messages: int = 5000
    jumps: int = 12
    longest_seconds: float = 10.0
    seed: int = 6
    claim: ClassVar[str] = (
        "0 lost, 0 duplicated, and no timer waits for the hour: a message published after a "
        "jump is at beta at once"
    )

    def run(self, finding: Finding) -> None:
        """Jump, cut, publish."""
        slowest = 0.0
        with lined_pair() as (pair, line):
            clock = WallClock(pair.directory)
            # Authority and certificates that were valid an hour ago, too.
            begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
            tls = pair.directory / "tls"
            for name in ("ca.pem", "ca-key.pem"):
                (tls / name).unlink()
            make_authority(tls, now=begins)
            for daemon in pair.daemons:
                put_certificate(pair, daemon, not_before=begins)
            course = Course(pair, self.messages, random.Random(self.seed))
            with clock.for_children():
                pair.start()
            share = -(-self.messages // (self.jumps + 1))
            for step in range(self.jumps):
                course.publish(share)
                clock.set((3600, 0, -3600, 0)[step % 4])
                line.cut()
                started = time.monotonic()
                course.publish(share)
                course.wait_relayed()
                slowest = max(slowest, time.monotonic() - started)
            course.publish(self.messages)
            course.disconnect()
            tally = Tally(course, course.count())
            quiet(finding, pair.daemons)
        finding.figures.update(
            {
                "messages": self.messages,
                "jumps": self.jumps,
                "slowest after a jump (s)": f"{slowest:.1f}",
                "lost": len(tally.lost),
                "duplicated": len(tally.twice) + len(tally.extra),
            }
        )
        finding.hold(not tally.wrong, f"{tally.wrong}")
        finding.hold(slowest <= self.longest_seconds, f"{slowest:.1f} s after a jump")
