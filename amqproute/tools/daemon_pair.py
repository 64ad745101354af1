# SPDX-License-Identifier: Apache-2.0
"""Two organizations on this machine, for the demonstration, the benchmark and the tests.

::

    with DaemonPair() as pair:          # directory, certificates, zone, configurations
        pair.start()                    # name server, alpha, beta: three processes, all ready
        ...
        pair.beta.kill()                # kill -9
        pair.beta.start()
        pair.beta.wait_ready()

alpha.example and beta.example share one authority and a zone on loopback, and otherwise know
nothing of each other. Everything is in one directory, which is removed with the pair unless it was
given by name. The processes are this interpreter with ``-m amqproute serve``; they are terminated
with the pair, killed if they do not end in time, and killed by the kernel if this process dies
first.

Limits: Linux (the death signal, and ``/proc`` for CPU time and memory).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, Self

import yaml
from twisted.internet.endpoints import quoteStringArgument

import amqproute
from amqproute.auth.users import add_user
from amqproute.cli.command_error import NEGATIVE, USAGE, CommandError
from amqproute.dial_policy import OTHER_SERVICES
from amqproute.net.authority import issue, make_authority
from amqproute.tools.load_worker import LoadTarget

__all__ = [
    "ChildProcess",
    "DaemonPair",
    "DaemonProcess",
    "child_environment",
    "dies_with",
    "ended_by_signals",
    "free_ports",
]

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
LONGEST_SOCKET_PATH: Final = 107
"""Octets of a unix socket's path (sun_path of unix(7), less the NUL)."""
QUEUE: Final = "orders"
USER: Final = "demo"

# Below Linux's ephemeral ports (ip_local_port_range, from 32768). A port up there could be taken
# by any outgoing connection while a daemon is down; one that connects to *it* may even reach
# itself, for loopback connects a socket to its own port (simultaneous open).
_PORTS: Final = range(20000, 32000)
_PORTS_OF_PROCESS: Final = 500
_found: Final[deque[int]] = deque(maxlen=_PORTS_OF_PROCESS // 2)
"""The ports that `free_ports` has found last."""
_guards: Final[list[socket.socket]] = []
"""The socket that keeps other processes from the ports of this one."""
_PR_SET_PDEATHSIG: Final = 1
_LAST_LINES: Final = 15


def free_ports(count: int) -> list[int]:
    """Find free ports of loopback, for TCP and UDP.

    No port is returned twice in a row: its first user may not listen yet. No other process is
    given one of them, not even while a daemon that is restarted does not listen. If all blocks of
    ports are taken, they are shared.
    """
    found: list[int] = []
    chosen = random.SystemRandom()
    ports = _own_ports()
    for _ in range(1000):
        port = chosen.choice(ports)
        if port not in _found and port not in OTHER_SERVICES and _is_free(port):
            _found.append(port)
            found.append(port)
            if len(found) == count:
                return found
    raise CommandError(
        NEGATIVE, "pair.ports", "no free ports found on 127.0.0.1", "end what uses them"
    )


@functools.cache
def _own_ports() -> Sequence[int]:
    """Return ports that no other process is given while this one lives.

    They are those behind a port that it keeps bound. If all such ports are taken, it shares.
    """
    begins = list(_PORTS[::_PORTS_OF_PROCESS])
    random.SystemRandom().shuffle(begins)
    for begin in begins:
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", begin))
        except OSError:
            guard.close()
            continue
        _guards.append(guard)
        return range(begin + 1, begin + _PORTS_OF_PROCESS)
    return _PORTS


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


class ChildProcess:
    """A process that reports when it is ready, and does not outlive this one.

    Args:
        name: the name for messages.
        arguments: after the interpreter.
        directory: the directory for its log, ``NAME.log``.
        run: directory of the socket for its notification that it is ready.

    Attributes:
        log_path: its output to stdout and stderr, over all starts.
    """

    def __init__(self, name: str, arguments: Sequence[str], directory: Path, run: Path) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self._arguments = arguments
        self._notify_path = run / f"{name}.notify"
        self._notify: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.pid or 'down'}>"

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended without being stopped."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start the process; `wait_ready` waits until it can be used."""
        assert self.pid is None, f"{self.name} runs already"
        self._forget()
        self._notify_path.unlink(missing_ok=True)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._notify.bind(str(self._notify_path))
        environment = child_environment()
        environment["NOTIFY_SOCKET"] = str(self._notify_path)
        with self.log_path.open("ab") as log:
            self._process = self._spawn(environment, log)

    def _spawn(self, environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            # A new group, because Ctrl-C in a terminal goes to the whole group, and the pair is
            # stopped in order.
            start_new_session=True,
            preexec_fn=dies_with(os.getpid()),
        )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it has reported that it is ready.

        Raises:
            CommandError: ``pair.start``: it ended instead, or was not ready in time.
        """
        assert self._notify is not None
        assert self._process is not None
        until = time.monotonic() + seconds
        self._notify.settimeout(0.1)
        while True:
            try:
                if b"READY=1" in self._notify.recv(4096).split(b"\n"):
                    return
            except TimeoutError:
                pass
            code = self._process.poll()
            if code is not None:
                raise self._not_ready(f"{self.name} ended with {code} instead of starting")
            if time.monotonic() > until:
                raise self._not_ready(f"{self.name} is not ready after {seconds:g} s")

    def terminate(self) -> None:
        """Ask it to stop; `stop` waits for it."""
        if self.pid is not None:
            assert self._process is not None
            self._process.terminate()

    def stop(self, seconds: float = STOP_SECONDS) -> int | None:
        """Stop it: SIGTERM, and SIGKILL if it has not ended in time.

        Returns:
            The exit code, negative for a signal; None if it was not running.
        """
        process = self._process
        if process is None:
            return None
        self.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)
        self._forget()
        return process.returncode

    def kill(self) -> None:
        """Kill it like a crash (SIGKILL), and wait for its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        self._forget()

    @property
    def last_lines(self) -> list[str]:
        """The end of its log."""
        try:
            return self.log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        except OSError:
            return []

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all its threads since its start, in user and system mode.

        Raises:
            CommandError: ``pair.ended``: it is not running.
        """
        # proc_pid_stat(5): the second field, a name in parentheses, may have blanks in it.
        fields = self._about("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def peak_bytes(self) -> int:
        """Its peak resident memory in octets.

        Raises:
            CommandError: ``pair.ended``: it is not running.
        """
        for line in self._about("status").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def ended(self) -> CommandError:
        """Return the error of an unexpected end."""
        code = None if self._process is None else self._process.poll()
        words = f"{self.name} has ended by itself, with {code}; the end of its log:"
        return CommandError(NEGATIVE, "pair.ended", words, "", self.last_lines)

    def _about(self, file: str) -> str:
        try:
            return Path(f"/proc/{self.pid}/{file}").read_text()
        except OSError as error:
            raise self.ended() from error

    def _forget(self) -> None:
        if self._notify is not None:
            self._notify.close()
            self._notify_path.unlink(missing_ok=True)
            self._notify = None
        self._process = None

    def _not_ready(self, words: str) -> CommandError:
        step = f"its whole log is {self.log_path}"
        return CommandError(NEGATIVE, "pair.start", words, step, self.last_lines)


class DaemonProcess(ChildProcess):
    """The broker of one organization.

    Attributes:
        domain: the domain of its nodes.
        host: its host name in the zone.
        socket_path: the path for the command line of this machine.
        tcp_port: the port for clients on loopback, without TLS.
        tls_port: the port for peers.
        config_path: its configuration.
    """

    def __init__(self, name: str, directory: Path, run: Path, ports: Sequence[int]) -> None:
        self.config_path = directory / name / "amqproute.yaml"
        arguments = ("-m", "amqproute", "serve", "--config", str(self.config_path))
        super().__init__(name, arguments, directory, run)
        self.domain = f"{name}.example"
        self.host = f"broker.{self.domain}"
        self.socket_path = run / f"{name}.sock"
        self.tcp_port, self.tls_port = ports

    @property
    def url(self) -> str:
        """For ``amqproute send --url``."""
        return f"unix:{self.socket_path}"

    @property
    def unix(self) -> LoadTarget:
        """URL for programs on this machine."""
        return LoadTarget(str(self.socket_path))

    @property
    def tcp(self) -> LoadTarget:
        """URL for clients."""
        return LoadTarget("127.0.0.1", self.tcp_port)


class DaemonPair:
    """Two organizations and a name server.

    Args:
        directory: for all files; it has to be empty or missing, and is kept. None for a temporary
            one, which is removed.
        settings: further settings of both configurations, by group: ``{"limits": {"link-prefetch":
            10}}``.

    Attributes:
        directory: the directory of all files.
        alpha: one side.
        beta: the other side.
        nameserver: the process that serves the zone.
        nameserver_port: its port on 127.0.0.1.
        password: the password of the user ``demo``, on both sides.

    Raises:
        CommandError: ``pair.directory``: it is not empty.
    """

    _daemon: type[DaemonProcess] = DaemonProcess

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self._exit = contextlib.ExitStack()
        self.password = secrets.token_urlsafe(9)
        try:
            self.directory = self._make_directory(directory)
            run = self._make_run()
            ports = free_ports(5)
            self.nameserver_port = ports[4]
            self.alpha = self._daemon("alpha", self.directory, run, ports[0:2])
            self.beta = self._daemon("beta", self.directory, run, ports[2:4])
            zone = self.directory / "zone.txt"
            zone.write_text(_zone(self.daemons))
            self.nameserver = ChildProcess(
                "nameserver",
                ("-m", "amqproute.tools.zone_server", str(zone), str(self.nameserver_port)),
                self.directory,
                run,
            )
            make_authority(self.directory / "tls", name="authority of the pair")
            issue(self.directory / "tls", [daemon.domain for daemon in self.daemons])
            for daemon in self.daemons:
                self._configure(daemon, settings or {})
        except BaseException:
            self._exit.close()
            raise
        self._exit.callback(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        """Close. An error caused by the end of a process is replaced by one that says so.

        Raises:
            CommandError: ``pair.ended``, with the end of its log.
        """
        ended = [child.ended() for child in self._children if child.has_ended]
        self.close()
        if isinstance(error, CommandError) and ended and error.code != "pair.start":
            raise ended[0] from error

    @property
    def _children(self) -> tuple[ChildProcess, ...]:
        return (*self.daemons, self.nameserver)

    @property
    def daemons(self) -> tuple[DaemonProcess, DaemonProcess]:
        """Both sides."""
        return self.alpha, self.beta

    def start(self, *daemons: DaemonProcess) -> None:
        """Start the name server and these daemons (both if none is named); wait for all.

        Raises:
            CommandError: one of them did not start; the end of its log is in the details.
        """
        children: list[ChildProcess] = [*(daemons or self.daemons)]
        if self.nameserver.pid is None:
            children.insert(0, self.nameserver)
        for child in children:
            child.start()
        for child in children:
            child.wait_ready()

    def stop(self) -> None:
        """Stop all processes, each within its deadline."""
        for child in self._children:
            child.terminate()  # all at once: each may take a moment
        for child in self._children:
            child.stop()

    def close(self) -> None:
        """Stop all, and remove the directory unless it was given."""
        self._exit.close()

    # -- setup -----------------------------------------------------------------------------

    def _make_directory(self, directory: Path | None) -> Path:
        if directory is None:
            return Path(self._exit.enter_context(_temporary()))
        directory = directory.absolute()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_empty = not any(directory.iterdir())
        except OSError as error:
            raise CommandError(
                USAGE, "pair.directory", f"{directory}: {error.strerror}", ""
            ) from error
        if not is_empty:
            words = f"{directory} is not empty, and nothing in it is overwritten"
            raise CommandError(
                USAGE, "pair.directory", words, "name another directory, or empty it"
            )
        return directory

    def _make_run(self) -> Path:
        """Make the directory of the sockets, whose paths must be short."""
        run = self.directory / "run"
        if len(os.fsencode(run / "nameserver.notify")) > LONGEST_SOCKET_PATH:
            run = Path(self._exit.enter_context(_temporary("/tmp")))  # noqa: S108 - mode 0700
        else:
            run.mkdir(mode=0o700)
            self._exit.callback(shutil.rmtree, run, ignore_errors=True)
        return run

    def _configure(
        self, daemon: DaemonProcess, settings: Mapping[str, Mapping[str, object]]
    ) -> None:
        home = daemon.config_path.parent
        home.mkdir(mode=0o700)
        tls = self.directory / "tls"
        users = home / "users.yaml"
        add_user(users, USER, self.password)
        socket_path = quoteStringArgument(str(daemon.socket_path))  # type: ignore[no-untyped-call]
        config: dict[str, Any] = {
            "container-id": daemon.host,
            "domains": [daemon.domain],
            "state-directory": str(home / "state"),
            "tls": {
                "certificate": str(tls / daemon.domain / "chain.pem"),
                "private-key": str(tls / daemon.domain / "key.pem"),
                "trust": str(tls / "ca.pem"),
            },
            "listen": [
                {"endpoint": f"unix:{socket_path}", "mechanisms": ["EXTERNAL"]},
                {
                    "endpoint": f"tcp:{daemon.tcp_port}:interface=127.0.0.1",
                    "mechanisms": ["SCRAM-SHA-256", "ANONYMOUS"],
                },
                {
                    "endpoint": f"tcp:{daemon.tls_port}:interface=127.0.0.1",
                    "tls": "implicit",
                    "client-certificate": "optional",
                    "mechanisms": ["EXTERNAL", "SCRAM-SHA-256"],
                },
            ],
            "users": {"file": str(users)},
            "access": [
                {"allow": ["publish", "consume", "create", "browse", "manage"], "who": "uid:*"},
                {"allow": ["publish", "consume", "browse"], "who": "user:*"},
                # Only this machine can reach the port where that is offered.
                {"allow": ["publish", "consume"], "who": "anonymous"},
                {"allow": ["transfer"], "who": "peer:*.example", "node": QUEUE},
            ],
            "nodes": [{"name": QUEUE}],
            "resolver": {
                "nameservers": [f"127.0.0.1:{self.nameserver_port}"],
                "dnssec": "off",  # the zone is not signed
                # Both are on loopback, where names from the DNS must not lead otherwise.
                "allow-targets": ["127.0.0.0/8"],
            },
            "peers": {"*": {"level": "pkix"}},
            # Somebody waits at the terminal: retry intervals are short here.
            "relay": {"first-retry": "100ms", "last-retry": "1s"},
            "log": {"format": "text"},
            "shutdown-timeout": "5s",
        }
        for group, values in settings.items():
            config[group] = {**config.get(group, {}), **values}
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
        daemon.config_path.write_text(
            f"# {daemon.domain}, made by amqproute. It says nothing about the other side.\n{text}"
        )


def _zone(daemons: Sequence[DaemonProcess]) -> str:
    lines = [
        "$ORIGIN example.",
        "$TTL 60",
        "@ SOA ns.example. hostmaster.example. 1 3600 600 86400 60",
        "@ NS ns.example.",
        "ns A 127.0.0.1",
    ]
    for daemon in daemons:
        lines += [
            f"_amqps._tcp.{daemon.domain}. SRV 10 0 {daemon.tls_port} {daemon.host}.",
            f"{daemon.host}. A 127.0.0.1",
        ]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _temporary(parent: str | None = None) -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="amqproute-", dir=parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def child_environment() -> dict[str, str]:
    """Return the environment for children, with the same package and without a service manager."""
    environment = dict(os.environ)
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"):
        environment.pop(name, None)  # meant for this process
    root = str(Path(amqproute.__file__).resolve().parent.parent)
    # An installed package is found by the interpreter; that of a work tree only from its directory.
    if root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def dies_with(parent: int) -> Callable[[], None]:
    """Return a function for a new process that makes it end with `parent`.

    Looked up here, because the new process should do little between fork and exec.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before this call
            os._exit(1)

    return die_with_parent


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command like Ctrl-C, by an exception, so that it cleans up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Only once: a second one must not interrupt the cleanup.
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
