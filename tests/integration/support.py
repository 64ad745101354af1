# SPDX-License-Identifier: Apache-2.0
"""Daemons as separate processes, behind sockets, with a configuration file.

`Daemon` is one such process in a directory of its own, on free ports of the loopback interface;
it is ready when it says so to the service manager (a datagram to NOTIFY_SOCKET), and it is stopped
by its process id. `Zone` answers for the domains of a test. Clients of our own are in `clients`
and can be had from here too; the independent ones, Qpid Proton and rhea, are in the modules that
use them.

Every wait has a deadline, and what did not come in time is told together with the log of the
daemon. A daemon that logs an error or a traceback fails the test that saw it (`Daemon.check`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.auth.users import add_user
from amqproute.net.authority import Issued, issue, make_authority
from amqproute.resolver.zone import ZoneAuthority
from amqproute.tools.daemon_pair import free_ports
from tests.integration.clients import (
    AMQP,
    SASL,
    TLS,
    Raw,
    Refused,
    Wire,
    body_of,
    frame,
    message,
    opening,
    sasl_frame,
    sending_link,
    transfer,
)
from tests.support.patience import PATIENCE, until
from tests.support.program import Process

T = TypeVar("T")
SHARED_AT_ONCE: Final = 2
"""So many results of `shared` are kept."""
TROUBLE = re.compile(r"Traceback|Unhandled|^\S+ (error|critical) ", re.MULTILINE)
"""Words of a log that show a fault of this project."""


@functools.cache
def workplace() -> Path:
    """Return a directory that goes when this process does. Short, for unix sockets' sake."""
    path = Path(tempfile.mkdtemp(prefix="amqproute-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def new_directory(prefix: str = "t") -> Path:
    """Return a new directory in the workplace."""
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=workplace()))


class Certificates:
    """An authority, made when first asked for, and what it issues."""

    def __init__(self) -> None:
        self.directory = new_directory("ca") / "ca"
        self.trust = make_authority(self.directory)
        self._count = 0

    def issue(self, name: str, **options: Any) -> Issued:
        """Issue a certificate; see `amqproute.net.authority.issue`."""
        self._count += 1
        (issued,) = issue(self.directory, [name], folder=f"{name}-{self._count}", **options)
        return issued


@functools.cache
def certificates() -> Certificates:
    """Return the authority that all daemons of this process trust."""
    return Certificates()


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing is left behind


RUN = (sys.executable, "-m", "amqproute", "serve", "--config")


class Daemon:
    """One daemon.

    Its directory goes with this object: some 70 MB, which hundreds of tests would add up.

    Args:
        name: its first domain.
        domains: further ones.
        issued: its certificate; made for all its domains if None.
        nameserver: the port of a `Zone`.
        changes: settings, by their keys in the file; they replace those that are set here.

    Attributes:
        is_executed: started as a program, as everybody does. Else it is forked off one that has
            loaded the program already (`tests.support.program`), which is quick.
        plain: a port with ANONYMOUS and without TLS.
        upgrade: a port where TLS may be asked for; all mechanisms.
        tls: a port with TLS from the first octet; all mechanisms but ANONYMOUS.
        socket: the unix socket.
    """

    def __init__(
        self,
        name: str,
        *,
        domains: Sequence[str] = (),
        issued: Issued | None = None,
        nameserver: int | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.directory = new_directory(name.partition(".")[0])
        removal = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        removal.atexit = False  # then the whole workplace goes
        self.file = self.directory / "amqproute.yaml"
        self.users = self.directory / "users.yaml"
        self.log_file = self.directory / "log"
        self.socket = str(self.directory / "s")
        self.plain, self.upgrade, self.tls = free_ports(3)
        self.is_executed = False
        self.process: subprocess.Popen[bytes] | Process | None = None
        self._notify: socket.socket | None = None
        self._checked = 0
        all_names = [name, *domains]
        if issued is None:
            issued = certificates().issue(
                name,
                dns_names=all_names,
                srv_names=[f"{s}.{n}" for n in all_names for s in ("_amqps", "_amqp")],
            )
        for user, password in (("anna", "secret"), ("bob", "hidden")):
            add_user(self.users, user, password, iterations=4096)
        everything = ["publish", "consume", "create", "browse", "manage"]
        self.settings: dict[str, Any] = {
            "container-id": f"broker1.{name}",
            "domains": all_names,
            "state-directory": str(self.directory / "state"),
            "tls": {
                "certificate": str(issued.chain),
                "private-key": str(issued.private_key),
                "trust": str(certificates().trust),
            },
            "listen": [
                {"endpoint": f"unix:{self.socket}", "mechanisms": ["EXTERNAL"]},
                {"endpoint": self.endpoint(self.plain), "mechanisms": ["ANONYMOUS"]},
                {
                    "endpoint": self.endpoint(self.upgrade),
                    "tls": "upgrade",
                    "client-certificate": "optional",
                    "mechanisms": ["EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS"],
                },
                {
                    "endpoint": self.endpoint(self.tls),
                    "tls": "implicit",
                    "client-certificate": "optional",
                    "mechanisms": ["EXTERNAL", "SCRAM-SHA-256", "PLAIN"],
                },
            ],
            "users": {"file": str(self.users)},
            "access": [
                {"allow": everything, "who": "anonymous"},
                {"allow": ["impersonate"], "who": "anonymous", "node": "anna"},
                {"allow": everything, "who": "user:anna"},
                {"allow": ["transfer"], "who": "peer:*"},
            ],
            "relay": {"first-retry": 0.2, "last-retry": 1.0},
            "log": {"format": "text"},
            "resolver": {
                "nameservers": [f"127.0.0.1:{nameserver or free_ports(1)[0]}"],
                "timeout": 0.5,
                "cache-longest": 0.2,  # zones change while tests look on
                # Every broker of a test is on this machine; named in words, or nobody dials it.
                "allow-targets": ["127.0.0.0/8", "::1/128"],
            },
            # Where nobody answers for the DNS, nobody can be taken by it either.
            **({} if nameserver else {"peers": {"*": {"level": "pkix"}}}),
            **(changes or {}),
        }
        self.write()

    @staticmethod
    def endpoint(port: int) -> str:
        """Return the endpoint description of a port."""
        return f"tcp:{port}:interface=127.0.0.1"

    def write(self, **changes: Any) -> None:
        """Write the configuration file (JSON is YAML)."""
        self.settings.update(changes)
        self.file.write_text(json.dumps(self.settings, indent=1))

    # -- the process -------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the process and do not wait."""
        if self.is_executed:
            self._spawn([*RUN, str(self.file)], {}, ())
            return
        arguments = ["serve", "--config", str(self.file)]
        with self._output() as log:
            file = log.fileno()
            self.process = Process(arguments, environ=self._environ(), stdout=file, stderr=file)
        _alive.add(self)

    def activate(self, sockets: Sequence[socket.socket]) -> Daemon:
        """Start it as systemd does, with listening sockets, and wait until it is ready."""
        # A shell in between: LISTEN_PID is the id of the very process that gets the sockets, and
        # they have to stand at descriptor 3 and above.
        script = "".join(
            f"exec {3 + place}<&{each.fileno() + 100} {each.fileno() + 100}<&-; "
            for place, each in enumerate(sockets)
        )
        copies = [os.dup2(each.fileno(), each.fileno() + 100) for each in sockets]
        names = ":".join(f"socket{place}" for place in range(len(sockets)))
        variables = {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
        command = ["/bin/bash", "-c", f'{script}LISTEN_PID=$$ exec "$@"', "bash"]
        try:
            self._spawn([*command, *RUN, str(self.file)], variables, copies)
        finally:
            for each in copies:
                os.close(each)
        return self.wait_ready()

    def _spawn(
        self, command: Sequence[str], variables: Mapping[str, str], files: Sequence[int]
    ) -> None:
        with self._output() as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environ(), **variables},
                pass_fds=tuple(files),
                preexec_fn=die_with_parent,
            )
        _alive.add(self)

    def _output(self) -> IO[bytes]:
        return self.log_file.open("ab")

    def _environ(self) -> dict[str, str]:
        """Return the environment of a new process, whose notices come to a new socket."""
        path = self.directory / "notify"
        path.unlink(missing_ok=True)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(path))
        root = str(Path(amqproute.__file__).parent.parent)
        environ = {**os.environ, "NOTIFY_SOCKET": str(path), "PYTHONPATH": root}
        environ.pop("WATCHDOG_USEC", None)
        return environ

    def start(self) -> Daemon:
        """Start, and wait until it is ready."""
        self.spawn()
        return self.wait_ready()

    def wait_ready(self) -> Daemon:
        """Wait for READY=1."""
        self.wait_notice(b"READY=1")
        return self

    def wait_notice(self, notice: bytes, seconds: float = PATIENCE) -> None:
        """Wait for a line to the service manager.

        Raises:
            AssertionError: it ended or said nothing in time.
        """
        assert self._notify is not None
        assert self.process is not None
        self._notify.settimeout(0.1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if notice in self._notify.recv(4096).split(b"\n"):
                    return
            except TimeoutError:
                if self.process.poll() is not None:
                    break
        raise AssertionError(f"{self.name} did not say {notice!r}\n{self.log()}")

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def reload(self, **changes: Any) -> None:
        """Write the configuration, send SIGHUP, and wait until it was looked at."""
        self.write(**changes)
        self.signal(signal.SIGHUP)
        self.wait_notice(b"READY=1")

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for the end; return the exit code."""
        assert self.process is not None
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end\n{self.log()}") from None
        self._forget()
        return code

    def stop(self) -> int:
        """Stop politely; return the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it without a chance to do anything."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    def _forget(self) -> None:
        self.process = None
        _alive.discard(self)
        if self._notify is not None:
            self._notify.close()
            self._notify = None

    # -- what it shows -----------------------------------------------------------------------------

    def log(self) -> str:
        """Return all it has logged."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def mark(self) -> int:
        """Return a place in the log, for `wait_log`."""
        return len(self.log())

    def wait_log(self, pattern: str, since: int = 0, seconds: float = PATIENCE) -> re.Match[str]:
        """Wait for a line that matches a regular expression."""
        return until(
            lambda: re.search(pattern, self.log()[since:], re.MULTILINE),
            f"{pattern!r} in the log of {self.name}",
            seconds,
            lambda: self.log()[since:][-5000:],
        )

    def check(self) -> None:
        """Fail if the log shows a fault of this project's that no check has shown before."""
        log = self.log()
        new, self._checked = log[self._checked :], len(log)
        if TROUBLE.search(new):
            raise AssertionError(f"{self.name} is in trouble:\n{new}")

    def resident(self) -> int:
        """Return the octets of memory it has."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024


_alive: set[Daemon] = set()


@atexit.register
def _stop_all() -> None:
    for daemon in list(_alive):
        daemon.kill()


class Zone:
    """A name server in a thread: the zones of `amqproute.resolver.zone` behind one UDP socket.

    Attributes:
        authority: the zones, the faults, the questions.
        port: where it answers.
    """

    def __init__(self) -> None:
        self.authority = ZoneAuthority([])
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                query, address = self._socket.recvfrom(4096)
                reply = self.authority.respond(query, udp=True)
                if reply is None:
                    continue
                if reply.delay:
                    threading.Timer(reply.delay, self._send, (reply.wire, address)).start()
                else:
                    self._send(reply.wire, address)

    def _send(self, wire: bytes, address: Any) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(wire, address)

    def set(self, domain: str, *records: str, ttl: int = 1) -> None:
        """Make a domain; ``broker1`` in it is this machine."""
        lines = [
            f"$ORIGIN {domain}.",
            f"$TTL {ttl}",
            f"@ SOA ns.{domain}. hostmaster.{domain}. 1 60 60 60 {ttl}",
            "broker1 A 127.0.0.1",
            *records,
        ]
        self.authority.set_zone("\n".join(lines) + "\n")

    def point(self, domain: str, *ports: int, service: str = "_amqps._tcp", ttl: int = 1) -> None:
        """Make a domain whose SRV records lead to ports of this machine, the first preferred."""
        self.set(
            domain,
            *(
                f"{service} SRV {priority} 0 {port} broker1.{domain}."
                for priority, port in enumerate(ports)
            ),
            ttl=ttl,
        )

    def close(self) -> None:
        """Answer no more."""
        self._socket.close()


def client_tls(
    issued: Issued | None = None, trust: Path | None = None, *, verify: bool = True
) -> ssl.SSLContext:
    """Return the TLS settings of a client, with a certificate if one is given."""
    context = ssl.create_default_context(cafile=str(trust or certificates().trust))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if issued is not None:
        context.load_cert_chain(issued.chain, issued.private_key)
    return context


# -- test cases -----------------------------------------------------------------------------------

_shared: dict[Callable[[], Any], Any] = {}
"""By what made them, the last used at the end."""


def shared(make: Callable[[], T]) -> T:
    """Return what tests share, a daemon or an object with several; made for the first of them.

    Not in setUpClass: in trial's worker processes that runs for each test. These take one module
    after the other, so what tests before the last ones shared ends here. Dozens of daemons, each of
    which takes memory and disk, would use up a small machine.

    Args:
        make: makes it. The same function gets the same result.
    """
    found: T | None = _shared.pop(make, None)
    if found is None:
        while len(_shared) >= SHARED_AT_ONCE:
            _end(_shared.pop(next(iter(_shared))))
        found = make()
    _shared[make] = found
    return found


def _end(former: object) -> None:
    for each in (former, *vars(former).values()):
        if isinstance(each, Daemon):
            each.kill()
        elif isinstance(each, Zone):
            each.close()


class DaemonTestCase(SynchronousTestCase):
    """Tests against a daemon that they share; each has a queue of its own, `node`.

    Attributes:
        changes: settings of that daemon.
        daemon: the daemon.
    """

    changes: Mapping[str, Any] = {}
    nodes: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def make(cls) -> Any:
        """Start what the tests of this class share."""
        return Daemon("alpha.example", changes={"nodes": cls.queues(), **cls.changes}).start()

    @classmethod
    def queues(cls) -> list[Mapping[str, Any]]:
        """A queue for each test, and those of `nodes`."""
        tests = [name for name in dir(cls) if name.startswith("test_")]
        return [*({"name": name} for name in tests), *cls.nodes]

    def setUp(self) -> None:
        self.daemon: Daemon = shared(self.make)
        self.node = self.id().rpartition(".")[2]
        self.begun_at = self.daemon.mark()
        self.addCleanup(self.daemon.check)

    def logged(self, pattern: str) -> None:
        """Wait for a line in the daemon's log that was written since this test began."""
        self.daemon.wait_log(pattern, self.begun_at)

    def assert_empty(self, node: str = "") -> None:
        """Assert that a node has nothing to give: drain a link from it."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", node or self.node)
            link.flow(10, drain=True)
            wire.flush()
            until(lambda: wire.read() and link.credit == 0, "a drained link")
            self.assertEqual(link.unsettled, {})

    def still_serves(self, node: str = "") -> None:
        """Assert that the daemon does its work for somebody else."""
        node = node or self.node
        with Wire(self.daemon.plain, container="other.example") as other:
            other.publish(node, [message(b"still here")])
            got = other.consume(node, 1)
            self.assertEqual(body_of(got[0]), b"still here")


__all__ = [
    "AMQP", "PATIENCE", "SASL", "TLS", "Certificates", "Daemon", "DaemonTestCase", "Raw", "Refused",
    "Wire", "Zone", "body_of", "certificates", "client_tls", "frame", "free_ports", "message",
    "new_directory", "opening", "sasl_frame", "sending_link", "shared", "transfer", "until",
]  # fmt: skip
