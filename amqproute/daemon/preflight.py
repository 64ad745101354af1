# SPDX-License-Identifier: Apache-2.0
"""Checks whether a daemon with a configuration would start and work here; nothing is changed.

`examine_files` checks the files that the configuration names; a start and a reload are refused with
the same lines. `examine_machine` checks ports, sockets, the state directory and the store as a
start would find them, and opens nothing for writing. Its findings are problems only while no daemon
runs on this state directory: a running one uses these ports and this store itself.
"""

from __future__ import annotations

import datetime
import errno
import os
import socket
import stat
import time
from collections.abc import Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from amqproute.auth.users import UserFile
from amqproute.config.access_settings import ListenSettings
from amqproute.config.config_source import dotted
from amqproute.config.loader import ConfigProblem, check_files, unresolved_credentials
from amqproute.config.schema import Config
from amqproute.daemon.installed_plugins import faults, installed_plugins, required_problems
from amqproute.daemon.journaling import DIRECTORY
from amqproute.daemon.loss_reports import testimony
from amqproute.daemon.node_assembly import binding_declaration
from amqproute.daemon.realm_assembly import RealmKinds, examine_realms
from amqproute.errors import ConfigError, InvalidField, StoreError, TlsError
from amqproute.net.tls import TlsContexts, describe
from amqproute.store.inspection import inspect_store, is_in_use
from amqproute.store.store_files import STORE_FILE

__all__ = ["EXPIRES_SOON", "PreflightFindings", "examine_files", "examine_machine", "problem_at"]

EXPIRES_SOON: Final = datetime.timedelta(days=21)
"""Seconds of remaining validity below which a certificate causes a warning."""
OF_TRACING: Final = ("opentelemetry", "google")
"""Packages that the extra ``tracing`` brings."""
MADE_BY_SYSTEMD: Final = (Path("/run"), Path("/var/lib"))
"""Parent directories of RuntimeDirectory= and StateDirectory=, which exist once the unit starts."""


@dataclass(slots=True)
class PreflightFindings:
    """The findings, a line each: ``file:line: key: problem``.

    Attributes:
        problems: the daemon would not start, or not work as configured.
        dates: certificates of ours are not valid now: the daemon would start without TLS.
        exposures: private keys that others on this machine can read: the daemon starts with a
            warning.
        warnings: advice for operators.
        unresolved: files that cannot be looked at here, since they are credentials of a unit: the
            daemon would not start without it.
    """

    problems: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    exposures: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)


def problem_at(config: Config, at: tuple[str | int, ...], words: str) -> str:
    """Return a line about a setting, with its place in the files."""
    place = config.source.place_of(at)
    key = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in at)
    words = config.source.without_secrets(words)
    return str(ConfigProblem(place.file, place.line, key.removeprefix("."), words))


# -- files -----------------------------------------------------------------------------------------


def examine_files(config: Config) -> PreflightFindings:
    """Check the files that a configuration names, and values that only the daemon can check."""
    missing = check_files(config)
    findings = PreflightFindings([str(problem) for problem in missing])
    unresolved = unresolved_credentials(config)
    findings.unresolved += [str(problem) for problem in unresolved]
    keys = {problem.key for problem in (*missing, *unresolved)}
    if not any(key.startswith("tls.") for key in keys):
        _examine_tls(config, findings)
    _examine_bindings(config, findings)
    if config.tracing.enabled and not any(key.startswith("tracing.") for key in keys):
        _examine_tracing(config, findings)
    if "users.file" not in keys and config.users.file.exists():
        try:
            UserFile.load(config.users.file)
        except ConfigError as error:
            findings.problems += error.problems
    _examine_realms(config, findings, keys)
    _examine_writers(config, findings)
    plugins = installed_plugins()
    findings.problems += required_problems(config, plugins)
    findings.warnings += faults(config, plugins)
    return findings


def _examine_writers(config: Config, findings: PreflightFindings) -> None:
    """Warn of files of the configuration, and directories of them, that everybody can change."""
    files = config.source.files
    for path in dict.fromkeys((*files, *(each.parent for each in files))):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue  # it was read a moment ago; the next start or reload reports it
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            words = f"{path} can be changed by every user of this machine: chmod o-w {path}"
            findings.warnings.append(problem_at(config, ("include",), words))


def _examine_realms(config: Config, findings: PreflightFindings, wrong: Set[str]) -> None:
    """Look for the libraries, plug-ins and secrets of outside realms, and have settings checked.

    Args:
        config: the configuration.
        findings: get the problems.
        wrong: settings that name files in which something is wrong.
    """
    problems, advice = examine_realms(config, RealmKinds())
    findings.warnings += [problem_at(config, at, words) for at, words in advice]
    for at, words in problems:
        key = dotted(at)
        # What a plug-in says about a credential that cannot be seen here means nothing.
        if not any(key == each or each.startswith(f"{key}.") for each in wrong):
            findings.problems.append(problem_at(config, at, words))


def _examine_bindings(config: Config, findings: PreflightFindings) -> None:
    """Compile the bindings' selectors, which the configuration itself does not check."""
    for index, binding in enumerate(config.bindings):
        try:
            binding_declaration(binding).filters(lambda: time.time_ns() // 1_000_000)
        except InvalidField as error:
            at = ("bindings", index, "filter")
            findings.problems.append(problem_at(config, at, error.description))


def _examine_tracing(config: Config, findings: PreflightFindings) -> None:
    """Check that the extra is installed, and what the collector is shown."""
    try:
        # Here, because its libraries belong to an extra.
        from amqproute.daemon.tracing_assembly import make_sink
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_TRACING:
            raise
        words = "the extra tracing is not installed; pip install 'amqproute[tracing]'"
        findings.problems.append(problem_at(config, ("tracing", "enabled"), words))
        return
    try:
        make_sink(config, "").close()
    except ConfigError as error:
        findings.problems += error.problems


def _examine_tls(config: Config, findings: PreflightFindings) -> None:
    tls = config.tls
    try:
        contexts = TlsContexts(
            tls.certificate,
            tls.private_key,
            tls.trust,
            crl=tls.crl,
            checks_dates=False,
            warns=False,
        )
    except TlsError as error:
        key = {"tls.key": "private-key", "tls.crl": "crl"}.get(error.code, "certificate")
        if str(tls.trust) in str(error):
            key = "trust"
        elif tls.private_key is not None and str(error).startswith(str(tls.private_key)):
            key = "private-key"
        findings.problems.append(problem_at(config, ("tls", key), f"{error.code}: {error}"))
        return
    at = ("tls", "certificate")
    if contexts.ailment is not None:
        words = f"{contexts.ailment.code}: {contexts.ailment}"
        findings.dates.append(problem_at(config, at, words))
    now = datetime.datetime.now(datetime.UTC)
    for number, certificate in enumerate(contexts.loaded.chain):
        facts = describe(certificate)
        whose = "the certificate" if number == 0 else f"{facts.subject} in the chain"
        left = facts.not_after - now
        if left < datetime.timedelta(0):
            if number:  # ours is reported above; peers need the others too
                words = f"tls.expired: {whose} has expired at {facts.not_after:%Y-%m-%d %H:%M UTC}"
                findings.dates.append(problem_at(config, at, words))
        elif left < EXPIRES_SOON:
            words = f"{whose} expires in {left.days} days, at {facts.not_after:%Y-%m-%d}; renew it"
            findings.warnings.append(problem_at(config, at, words))
    if contexts.loaded.chain:
        names = describe(contexts.loaded.chain[0]).names
        proved = {*names.dns, *(name.split(".", 1)[1] for name in names.srv)}
        for domain in (*config.domains, *config.domains_of_hosts):
            if domain not in proved and f"*.{domain.partition('.')[2]}" not in proved:
                words = f"the certificate does not name {domain}; peers will refuse this broker"
                findings.warnings.append(problem_at(config, at, words))


# -- the machine -----------------------------------------------------------------------------------


def examine_machine(config: Config) -> PreflightFindings:
    """Check ports, sockets, the state directory, the store and the mode of the private key."""
    path = config.state_directory / STORE_FILE
    found = PreflightFindings()
    _examine_key(config, found)
    _examine_secrets(config, found)
    try:
        runs = is_in_use(path)
    except PermissionError:
        words = (
            f"{config.state_directory} cannot be looked at by this user (id {os.geteuid()}): "
            "whether a daemon could start is not known; check as the daemon's user"
        )
        found.warnings.append(problem_at(config, ("state-directory",), words))
        runs = True
    if runs:
        # The other checks are about a start, and this daemon has started.
        return PreflightFindings(warnings=[*found.warnings, *found.problems, *found.exposures])
    has_directory = _examine_directory(config, found)
    for index, listen in enumerate(config.listen):
        at = ("listen", index, "endpoint")
        if listen.parsed.kind == "unix":
            _examine_socket(config, at, Path(listen.parsed.interface), found)
        elif listen.parsed.kind in ("tcp", "tcp6") and listen.parsed.port:
            words = _bind_problem(listen)
            if words:
                found.problems.append(problem_at(config, at, words))
    if has_directory:
        _examine_store(config, path, found)
    if is_in_use(path):
        return (
            PreflightFindings()
        )  # a daemon has started meanwhile: the findings are from the middle of its start
    return found


def _examine_secrets(config: Config, findings: PreflightFindings) -> None:
    """Check that nobody else can read what only the daemon may know about the collector."""
    if config.tracing.enabled:
        _examine_secrecy(config, ("tracing", "headers-file"), config.tracing.headers_file, findings)
        _examine_secrecy(config, ("tracing", "private-key"), config.tracing.private_key, findings)


def _examine_secrecy(
    config: Config, at: tuple[str, ...], path: Path | None, findings: PreflightFindings
) -> bool:
    """Check that the file of a setting cannot be read by everybody; return whether it exists."""
    if path is None:
        return False
    try:
        mode = path.stat().st_mode
    except OSError:
        return False  # reported by `examine_files`
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        words = f"{path} can be read by every user of this machine: chmod o= {path}"
        findings.exposures.append(problem_at(config, at, words))
    return True


def _examine_key(config: Config, findings: PreflightFindings) -> None:
    path = config.tls.private_key
    if not _examine_secrecy(config, ("tls", "private-key"), path, findings):
        return
    chain = config.tls.certificate
    if chain is None or chain == path:
        return
    try:
        has_key = b"PRIVATE KEY-----" in chain.read_bytes()
        mode = chain.stat().st_mode
    except OSError:
        return
    if has_key and mode & stat.S_IRWXO:
        words = (
            f"{chain} has a private key, and can be read by every user of this machine: take the "
            "key out and make a new one"
        )
        findings.exposures.append(problem_at(config, ("tls", "certificate"), words))


def _examine_store(config: Config, path: Path, findings: PreflightFindings) -> None:
    is_kept = config.journal.enabled
    witness = partial(testimony, config.state_directory / DIRECTORY) if is_kept else None
    try:
        remark = inspect_store(path, witness)
    except StoreError as error:
        findings.problems.append(problem_at(config, ("state-directory",), str(error)))
        return
    if remark:
        findings.warnings.append(problem_at(config, ("state-directory",), remark))


def _examine_directory(config: Config, findings: PreflightFindings) -> bool:
    """Check the state directory; return whether it can hold a store."""
    path = config.state_directory
    at = ("state-directory",)
    words = _write_problem(path)
    if words:
        findings.problems.append(problem_at(config, at, words))
        return False
    if path.exists():
        return True
    nearest = path
    while not nearest.exists():
        nearest = nearest.parent
    if words := _write_problem(nearest):
        words = f"there is no directory {path}, and {words}"
        is_systemds = path.parent in MADE_BY_SYSTEMD
        if is_systemds:
            words += "; systemd makes it (StateDirectory=)"
        listed = findings.warnings if is_systemds else findings.problems
        listed.append(problem_at(config, at, words))
    return False


def _write_problem(path: Path) -> str:
    """Return why a directory is not writable; empty if it is, or if there is no directory."""
    if not path.exists():
        return ""
    if not path.is_dir():
        return f"{path} is no directory"
    if not os.access(path, os.W_OK | os.X_OK):
        return f"{path} cannot be written by this user (id {os.geteuid()}); check owner and mode"
    return ""


def _examine_socket(
    config: Config, at: tuple[str | int, ...], path: Path, findings: PreflightFindings
) -> None:
    folder = path.parent
    words = _write_problem(folder)
    if not folder.exists():
        words = f"there is no directory {folder}"
        if folder.parent in MADE_BY_SYSTEMD:
            words += ": systemd makes it (RuntimeDirectory=)"
            findings.warnings.append(problem_at(config, at, words))
            return
    elif not words and path.exists():
        words = _replace_problem(path)
    if words:
        findings.problems.append(problem_at(config, at, words))


def _replace_problem(path: Path) -> str:
    if not path.is_socket():
        return f"{path} is there, and is no socket"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return ""  # left by a daemon that is gone
        except OSError:
            pass  # its backlog is full, or it is not for us: somebody listens
    return f"another process listens at {path}"


def _bind_problem(listen: ListenSettings) -> str:
    """Return why a port cannot be bound. It is bound for an instant, without listening."""
    place = listen.parsed
    interface = place.interface or ("::" if place.kind == "tcp6" else "")
    port = place.port or 0
    try:
        with socket.socket(socket.AF_INET6 if ":" in interface else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((interface, port))
    except OSError as error:
        where = f"port {port}" + (f" at {interface}" if interface else "")
        if error.errno == errno.EADDRINUSE:
            return f"{where} is taken: another process listens there (ss -ltnp)"
        if error.errno == errno.EADDRNOTAVAIL:
            return f"{where} cannot be had: this machine has no such address"
        if error.errno == errno.EACCES:
            return (
                f"{where} cannot be had by this user (id {os.geteuid()}): use a port above 1023, "
                "or a socket of systemd (amqproute.socket)"
            )
        if error.errno == errno.EAFNOSUPPORT:
            return f"{where} cannot be had: this machine has no IPv6"
        return f"{where} cannot be had: {error.strerror or error}"
    return ""
