# SPDX-License-Identifier: Apache-2.0
"""Common ground of scenarios: a pair with changeable files, with a line to its broker."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from amqproute.net.authority import Issued, issue
from amqproute.tools.daemon_pair import DaemonProcess
from amqproute.tools.load_worker import Connected, LoadManagement
from tests.integration.support import TROUBLE, until
from tests.network.campaign import Finding
from tests.network.line import Line
from tests.support.pairs import Pair
from tests.support.patience import PATIENCE

__all__ = ["amend", "lead_through", "lined_pair", "logged", "peer_row", "put_certificate", "quiet",
           "replace_zone", "wait_logged"]  # fmt: skip


def amend(daemon: DaemonProcess, changes: Mapping[str, Any]) -> None:
    """Change groups of a configuration file; a list or a word takes the place of the old one."""
    config = yaml.safe_load(daemon.config_path.read_text())
    for group, value in changes.items():
        old = config.get(group)
        config[group] = {**old, **value} if isinstance(old, dict) else value
    daemon.config_path.write_text(yaml.safe_dump(config, sort_keys=False))


def replace_zone(pair: Pair, old: str, new: str) -> None:
    """Change the zone's text, before the name server starts."""
    path = pair.directory / "zone.txt"
    path.write_text(path.read_text().replace(old, new))


def lead_through(pair: Pair, line: Line) -> None:
    """Let the zone say that beta is at the end of a line."""
    replace_zone(pair, f" {pair.beta.tls_port} ", f" {line.port} ")


@contextlib.contextmanager
def lined_pair(
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[tuple[Pair, Line]]:
    """Make a pair with a line from alpha to beta; nothing is started."""
    with Pair(settings=settings) as pair, contextlib.closing(Line(pair.beta.tls_port)) as line:
        lead_through(pair, line)
        yield pair, line


def put_certificate(pair: Pair, daemon: DaemonProcess, **options: Any) -> Issued:
    """Issue a certificate and put it where a daemon's is, each file at once as a whole."""
    count = sum(1 for each in (pair.directory / "tls").iterdir() if each.is_dir())
    (issued,) = issue(
        pair.directory / "tls", [daemon.domain], folder=f"{daemon.name}-{count}", **options
    )
    home = pair.directory / "tls" / daemon.domain
    for source, name in ((issued.chain, "chain.pem"), (issued.private_key, "key.pem")):
        beside = home / f"{name}.new"
        shutil.copy(source, beside)
        os.replace(beside, home / name)
    return issued


def logged(daemon: DaemonProcess, pattern: str, since: int = 0) -> list[str]:
    """Return what in a daemon's log matches."""
    return re.findall(pattern, daemon.log_path.read_text()[since:], re.MULTILINE)


def wait_logged(
    daemon: DaemonProcess, pattern: str, seconds: float = PATIENCE, since: int = 0
) -> str:
    """Wait for a line in a daemon's log; return what matches."""
    return until(
        lambda: logged(daemon, pattern, since),
        f"{pattern!r} in the log of {daemon.name}",
        seconds,
        lambda: "\n".join(daemon.last_lines),
    )[-1]


def quiet(finding: Finding, daemons: Sequence[DaemonProcess], allowed: str = "") -> None:
    """Hold that no daemon's log shows a fault of this project's."""
    for daemon in daemons:
        path: Path = daemon.log_path
        log = path.read_text() if path.exists() else ""
        bad = [
            line
            for line in log.splitlines()
            if TROUBLE.search(line) and not (allowed and re.search(allowed, line))
        ]
        finding.hold(not bad, f"{daemon.name} is in trouble: {bad[:3]}")


def peer_row(daemon: DaemonProcess, kind: str, name: str) -> Mapping[str, Any]:
    """Ask a daemon's management for a row."""
    with Connected(daemon.unix, "ask") as connected:
        return LoadManagement(connected).row(kind, name)
