# SPDX-License-Identifier: Apache-2.0
"""Separate hosts for daemons, with a wire between them.

::

    with make_lab(["alpha", "beta", "gamma"]) as lab:
        lab.start()                        # the name server, a resolver on each host
        lab.host("alpha").address          # 10.83.0.2
        lab.shape(delay_ms=20, loss=1, rate_mbit=10)
        lab.cut("beta"); lab.mend("beta")  # as if somebody pulled the plug

Namespaces
    One for the wire, a bridge, and one for each host, tied to the bridge by a veth pair. The name
    server is a host, too. Nothing of this is visible outside, and no packet leaves the machine. The
    test itself stays outside: it talks with daemons through their unix sockets, which do not mind.
    `NAMESPACES` needs root, ``ip``, and a kernel with veth and bridge. What the kernel has no queue
    discipline for (netem: delay, loss; tbf: rate) is left out, and `Lab.lacks` says so.

Loopback
    Where that is not to be had, the hosts are addresses 127.83.0.0/16, and the wire is a
    `tests.network.line.Line` in front of each broker: it can be cut, and be slow, lossy and thin.

DNS
    The zones are signed: the root, ``example.``, and one for each organization. With Knot DNS
    (``knotd``) it is a real name server, which signs them; each host has a validating resolver
    (``unbound``) at 127.0.0.1, whose AD bit the daemon believes. In the loopback form the zones are
    those of `tests.support.signing`, and the daemons validate themselves.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amqproute.tools.daemon_pair import dies_with
from tests.integration.support import Zone, new_directory, until
from tests.network.line import Line
from tests.support.signing import SignedTree

__all__ = ["Host", "Lab", "make_lab", "why_no_namespaces"]

AMQPS = 5671
COMMAND_SECONDS = 10
TTL = 1

_serial = itertools.count(1)


def run(*command: str, seconds: float = COMMAND_SECONDS) -> str:
    """Run a command to its end; return what it writes.

    Raises:
        AssertionError: it fails; with its words.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@functools.cache
def why_no_namespaces() -> str:
    """Say why there are no network namespaces here; nothing if there are."""
    if os.geteuid() != 0:
        return "not root"
    if shutil.which("ip") is None:
        return "no ip command (iproute2)"
    probe = f"amqr{os.getpid()}probe"
    try:
        run("ip", "netns", "add", probe)
    except AssertionError as error:
        return str(error)
    try:
        run("ip", "-n", probe, "link", "add", "name", "a", "type", "veth", "peer", "name", "b")
        run("ip", "-n", probe, "link", "add", "name", "c", "type", "bridge")
        run("ip", "netns", "exec", probe, "true")
    except AssertionError as error:
        return str(error)
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, timeout=COMMAND_SECONDS)
    return ""


class Server:
    """A process of the lab that is not a daemon of ours: name server or resolver."""

    def __init__(self, command: Sequence[str], directory: Path, name: str) -> None:
        self.command = list(command)
        self.log_path = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=dies_with(os.getpid()),
            )

    def kill(self) -> None:
        """End it at once."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(COMMAND_SECONDS)


class Host:
    """The host of one organization's broker.

    Attributes:
        name: of the organization; its domain is ``NAME.example``.
        address: where its broker listens.
        port: to publish: that of the line in the loopback form.
        prefix: put before a command, it runs on this host.
    """

    def __init__(self, name: str, address: str, prefix: Sequence[str] = ()) -> None:
        self.name = name
        self.domain = f"{name}.example"
        self.address = address
        self.port = AMQPS
        self.prefix = list(prefix)
        self.line: Line | None = None


class Lab:
    """Hosts, a wire, names. Use `make_lab`.

    Attributes:
        hosts: by name.
        words: what kind of lab it is, for whoever reads the result.
        lacks: what was asked of `shape` and this kernel cannot do.
    """

    words = ""

    def __init__(self, names: Sequence[str]) -> None:
        self.directory = new_directory("lab")
        self.hosts: dict[str, Host] = {}
        self.lacks: list[str] = []
        self.records: dict[str, str] = dict.fromkeys(names, "")
        self._exit = contextlib.ExitStack()

    def close(self) -> None:
        """Remove everything."""
        self._exit.close()

    def host(self, name: str) -> Host:
        """Return a host."""
        return self.hosts[name]

    def resolver_settings(self) -> Mapping[str, Any]:
        """Return ``resolver:`` for the daemons."""
        raise NotImplementedError

    def publish(self, name: str, *tlsa: str, at: str = "") -> None:
        """Publish where an organization's broker is: SRV, A and TLSA records, signed.

        Args:
            name: of the organization.
            tlsa: data of TLSA records.
            at: the host its broker is at; its own if empty.
        """
        host = self.hosts[at or name]
        lines = [f"_amqps._tcp SRV 10 0 {host.port} broker1", f"broker1 A {host.address}"]
        lines += [f"_{host.port}._tcp.broker1 TLSA {each}" for each in tlsa]
        self.records[name] = "\n".join(lines) + "\n"
        self._serve(name)

    def start(self) -> None:
        """Start what answers DNS; everything was published once before."""

    def stop_names(self) -> None:
        """Kill the name server."""
        raise NotImplementedError

    def start_names(self) -> None:
        """Start it again."""
        raise NotImplementedError

    def cut(self, name: str) -> None:
        """Take a host off the wire."""
        raise NotImplementedError

    def mend(self, name: str) -> None:
        """Put it back."""
        raise NotImplementedError

    def shape(self, *, delay_ms: float = 0, loss: float = 0, rate_mbit: float = 0) -> None:
        """Make every host's way slow, lossy or thin, in both directions."""
        raise NotImplementedError

    def _serve(self, name: str) -> None:
        raise NotImplementedError


class SignedZones:
    """A name server in this process, for where there is no real one."""

    def __init__(self, names: Sequence[str], directory: Path) -> None:
        self.tree = SignedTree({f"{name}.example": "" for name in names}, now=time.time())
        self.zone = Zone()
        self.zone.authority = self.tree.authority
        self.anchors = directory / "anchors"
        self.anchors.write_text(self.tree.anchor_text)


class LoopbackLab(Lab):
    """Addresses of loopback, and lines."""

    words = "addresses of loopback (127.83.0.0/16), lines between them, zones signed in the test"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        zones = self._zones = SignedZones(names, self.directory)
        self._exit.callback(zones.zone.close)
        for number, name in enumerate(names, 2):
            host = self.hosts[name] = Host(name, f"127.83.0.{number}")
            host.line = Line(AMQPS, host.address)
            self._exit.callback(host.line.close)
            host.port = host.line.port

    def resolver_settings(self) -> Mapping[str, Any]:
        """See `Lab.resolver_settings`."""
        return {
            "nameservers": [f"127.0.0.1:{self._zones.zone.port}"],
            "validate": "self",
            "anchors": str(self._zones.anchors),
            "timeout": 2,
            "cache-longest-negative": 1,
            "allow-targets": ["127.83.0.0/16"],
        }

    def stop_names(self) -> None:
        """See `Lab.stop_names`."""
        self._zones.zone.authority = _Silence()  # type: ignore[assignment]

    def start_names(self) -> None:
        """See `Lab.start_names`."""
        self._zones.zone.authority = self._zones.tree.authority

    def cut(self, name: str) -> None:
        """See `Lab.cut`: nobody reaches it."""
        line = self.hosts[name].line
        assert line is not None
        line.mood = "refusing"
        line.cut()

    def mend(self, name: str) -> None:
        """See `Lab.mend`."""
        line = self.hosts[name].line
        assert line is not None
        line.mood = "well"

    def shape(self, *, delay_ms: float = 0, loss: float = 0, rate_mbit: float = 0) -> None:
        """See `Lab.shape`: the lines wait, as `tests.network.line` says."""
        for host in self.hosts.values():
            assert host.line is not None
            host.line.delay = delay_ms / 1000
            host.line.loss = loss / 100
            host.line.rate = rate_mbit * 1e6 / 8

    def _serve(self, name: str) -> None:
        self._zones.tree.replace(f"{name}.example", self.records[name], ttl=TTL)


class _Silence:
    def respond(self, wire: bytes, *, udp: bool) -> None:
        return None


class NamespaceLab(Lab):
    """Network namespaces."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        try:
            self._make(names)
        except BaseException:
            self._exit.close()
            raise

    def _make(self, names: Sequence[str]) -> None:
        self._mark = f"amqr{os.getpid()}n{next(_serial)}"
        self._wire = f"{self._mark}wire"
        self._add_namespace(self._wire)
        run("ip", "-n", self._wire, "link", "add", "name", "br0", "type", "bridge")
        run("ip", "-n", self._wire, "link", "set", "br0", "up")
        self._names_address = "10.83.0.1"
        self._names_prefix = self._join("names", self._names_address)
        for number, name in enumerate(names, 2):
            address = f"10.83.0.{number}"
            self.hosts[name] = Host(name, address, self._join(name, address))
        self._knot = Knot(
            self.directory / "knot", self._names_address, self._names_prefix, list(names)
        )
        self._exit.callback(self._knot.kill)
        self.words = "network namespaces, a bridge, zones signed by knotd, unbound on each host"

    def _add_namespace(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._exit.callback(_delete_namespace, name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def _join(self, name: str, address: str) -> list[str]:
        """Make a namespace and tie it to the bridge; return the prefix for commands there."""
        space = f"{self._mark}{name}"
        self._add_namespace(space)
        ends = ["name", name, "type", "veth", "peer", "name", "eth0", "netns", space]
        run("ip", "-n", self._wire, "link", "add", *ends)
        run("ip", "-n", self._wire, "link", "set", name, "master", "br0", "up")
        run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        return ["ip", "netns", "exec", space]

    def resolver_settings(self) -> Mapping[str, Any]:
        """See `Lab.resolver_settings`."""
        return {"nameservers": ["127.0.0.1:53"], "timeout": 2, "dnssec-probe": "example",
                "cache-longest-negative": 1, "allow-targets": ["10.83.0.0/24"]}  # fmt: skip

    def start(self) -> None:
        """See `Lab.start`."""
        self._knot.start()
        for host in self.hosts.values():
            resolver = Server(
                [*host.prefix, _which("unbound"), "-d", "-c", str(self._unbound_file(host))],
                self.directory,
                f"unbound-{host.name}",
            )
            resolver.start()
            self._exit.callback(resolver.kill)
        for host in self.hosts.values():
            until(lambda host=host: self._answers(host), f"a validated answer at {host.name}")

    def stop_names(self) -> None:
        """See `Lab.stop_names`."""
        self._knot.kill()

    def start_names(self) -> None:
        """See `Lab.start_names`."""
        self._knot.start()

    def cut(self, name: str) -> None:
        """See `Lab.cut`: packets vanish, nobody is told."""
        run("ip", "-n", self._wire, "link", "set", name, "down")

    def mend(self, name: str) -> None:
        """See `Lab.mend`."""
        run("ip", "-n", self._wire, "link", "set", name, "up")

    def shape(self, *, delay_ms: float = 0, loss: float = 0, rate_mbit: float = 0) -> None:
        """See `Lab.shape`."""
        self.lacks = []
        netem = []
        if delay_ms:
            netem += ["delay", f"{delay_ms}ms"]
        if loss:
            netem += ["loss", f"{loss}%"]
        if rate_mbit:
            netem += ["rate", f"{rate_mbit}mbit"]
        try:
            self._queue_disciplines("netem", *netem)
        except AssertionError as error:
            self.lacks = [f"delay and loss (tc netem: {error})"] if delay_ms or loss else []
            if rate_mbit:
                try:
                    self._queue_disciplines(
                        "tbf", "rate", f"{rate_mbit}mbit", "burst", "32k", "latency", "100ms"
                    )
                except AssertionError as worse:
                    self.lacks.append(f"rate (tc tbf: {worse})")

    def _queue_disciplines(self, *discipline: str) -> None:
        for host in self.hosts.values():
            for space, device in ((self._wire, host.name), (host.prefix[-1], "eth0")):
                run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", *discipline)

    def _serve(self, name: str) -> None:
        self._knot.publish(f"{name}.example", self.records[name])

    def _unbound_file(self, host: Host) -> Path:
        path = self.directory / f"unbound-{host.name}.conf"
        path.write_text(
            f"""server:
  interface: 127.0.0.1
  do-daemonize: no
  use-syslog: no
  username: ""
  chroot: ""
  directory: "{self.directory}"
  pidfile: ""
  num-threads: 1
  cache-max-negative-ttl: 1
  infra-host-ttl: 1
  infra-cache-max-rtt: 1000
  module-config: "validator iterator"
  trust-anchor-file: "{self._knot.anchors}"
  local-zone: "example." nodefault
  root-hints: ""
  qname-minimisation: no
  serve-expired: no
stub-zone:
  name: "."
  stub-addr: {self._names_address}
  stub-prime: no
remote-control:
  control-enable: no
"""
        )
        return path

    def _answers(self, host: Host) -> bool:
        """Whether its resolver has a validated answer; asked from within the namespace."""
        script = (
            "import dns.flags, dns.message, dns.query, sys; "
            f"q = dns.message.make_query('_amqps._tcp.{host.domain}', 'SRV', want_dnssec=True); "
            "r = dns.query.udp(q, '127.0.0.1', timeout=1); "
            "sys.exit(not (r.answer and r.flags & dns.flags.AD))"
        )
        done = subprocess.run(
            [*host.prefix, sys.executable, "-c", script],
            capture_output=True,
            timeout=COMMAND_SECONDS,
        )
        return done.returncode == 0


class Knot:
    """Knot DNS with a chain of signed zones, all on one server: root, ``example.``, organizations.

    Attributes:
        anchors: file with the DS record of the root.
    """

    def __init__(
        self, directory: Path, address: str, prefix: Sequence[str], names: Sequence[str]
    ) -> None:
        directory.mkdir()
        self._directory = directory
        self._config = directory / "knot.conf"
        self._is_running = False
        self._origins = [".", "example.", *(f"{name}.example." for name in names)]
        self._texts: dict[str, str] = {}
        self._serial = itertools.count(1)
        self.anchors = directory / "anchors"
        zones = "".join(
            f'  - domain: "{origin}"\n    file: "{self._file(origin)}"\n'
            for origin in self._origins
        )
        self._config.write_text(
            f"""server:
    rundir: "{directory}"
    listen: {address}@53
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: "{directory}"
control:
    listen: "{directory}/control"
log:
  - target: stderr
    any: info
policy:
  - id: own
    manual: on
    algorithm: ecdsap256sha256
    dnskey-ttl: {TTL}
    zone-max-ttl: 60
template:
  - id: default
    storage: "{directory}"
    semantic-checks: off
    dnssec-signing: on
    dnssec-policy: own
    zonefile-sync: -1
    zonefile-load: difference-no-serial
    journal-content: all
zone:
{zones}"""
        )
        self._server = Server(
            [*prefix, _which("knotd"), "-c", str(self._config)], directory, "knotd"
        )
        for origin in self._origins:
            run(_which("keymgr"), "-c", str(self._config), origin, "generate",
                "algorithm=ecdsap256sha256", "ksk=yes", "zsk=yes")  # fmt: skip
        parents: dict[str, list[str]] = {origin: [] for origin in self._origins}
        for origin in self._origins[1:]:
            parent = "." if origin == "example." else "example."
            parents[parent] += [f"{origin} NS ns.example.", *self._ds(origin)]
        for origin in self._origins:
            self._write(origin, "\n".join(parents[origin]) + "\n")
        self._write("example.", "\n".join([f"ns A {address}", *parents["example."]]) + "\n")
        self.anchors.write_text("\n".join(self._ds(".")) + "\n")

    def publish(self, domain: str, records: str) -> None:
        """Change an organization's zone."""
        self._write(f"{domain}.", records)
        if self._is_running:
            self._control("zone-reload", f"{domain}.")

    def start(self) -> None:
        """Start, and wait until it answers its control socket."""
        self._server.start()
        self._is_running = True

        def is_up() -> bool:
            with contextlib.suppress(AssertionError):
                return "serial: none" not in self._control("zone-status")
            return False

        until(is_up, "knotd", detail=self._server.log_path.read_text)

    def kill(self) -> None:
        """End it."""
        self._is_running = False
        self._server.kill()

    def _control(self, *words: str) -> str:
        return run(_which("knotc"), "-b", "-s", str(self._directory / "control"), *words)

    def _ds(self, origin: str) -> list[str]:
        found = run(_which("keymgr"), "-c", str(self._config), origin, "ds").splitlines()
        # Of the digests that it offers, SHA-256.
        return [
            f"{words[0]} IN DS {' '.join(words[2:])}"
            for words in (line.split() for line in found)
            if words[4] == "2"
        ]

    def _file(self, origin: str) -> Path:
        return self._directory / f"{origin.rstrip('.') or 'root'}.zone"

    def _write(self, origin: str, records: str) -> None:
        self._file(origin).write_text(
            f"$ORIGIN {origin}\n$TTL {TTL}\n"
            f"@ SOA ns.example. hostmaster.example. {next(self._serial)} 60 60 3600 {TTL}\n"
            f"@ NS ns.example.\n{records}"
        )


def _which(name: str) -> str:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin") or ""


def _delete_namespace(name: str) -> None:
    subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_SECONDS)


def why_no_real_names() -> str:
    """Say which programs are missing for a real name server; nothing if none."""
    missing = [each for each in ("knotd", "knotc", "keymgr", "unbound", "tc") if not _which(each)]
    return f"no {', '.join(missing)}" if missing else ""


@contextlib.contextmanager
def make_lab(names: Sequence[str]) -> Iterator[Lab]:
    """Make hosts for these organizations: in namespaces if possible, else on loopback.

    ``AMQPROUTE_LAB=loopback`` asks for the latter.
    """
    asked = "asked for" if os.environ.get("AMQPROUTE_LAB") == "loopback" else ""
    reason = asked or why_no_namespaces() or why_no_real_names()
    lab: Lab = LoopbackLab(names) if reason else NamespaceLab(names)
    if reason:
        lab.words += f" ({reason})"
    try:
        yield lab
    finally:
        lab.close()
