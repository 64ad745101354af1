# SPDX-License-Identifier: Apache-2.0
"""The system's RabbitMQ as a process of a test, in a directory of its own.

Its service need not run. The node has an epmd of its own, and certificates of the tests' authority.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from amqproute.tools.daemon_pair import free_ports
from benchmarks.rabbitmq_shovel import HOME, Node
from tests.integration.support import certificates, new_directory

__all__ = ["MISSING", "control", "has_plugin", "rabbit_node"]

MISSING: Final = "" if (HOME / "rabbitmq-server").exists() else "RabbitMQ is not installed"
"""Why there is no RabbitMQ here; empty where there is."""


def has_plugin(name: str) -> bool:
    """Say whether a plug-in is installed."""
    return bool(list(Path("/usr/lib/rabbitmq").glob(f"lib/*/plugins/{name}-*")))


@contextmanager
def rabbit_node(
    *,
    plugins: Sequence[str] = (),
    settings: Sequence[str] = (),
    definitions: Mapping[str, Any] | None = None,
) -> Iterator[Node]:
    """Start a node ``rabbit.example`` and wait until it takes connections.

    Args:
        plugins: to enable.
        settings: more lines of rabbitmq.conf.
        definitions: loaded at the start.
    """
    directory = new_directory("rabbit")
    issued = certificates().issue("rabbit.example")
    tls = directory / "tls" / "rabbit.example"
    tls.mkdir(parents=True)
    for source, name in ((issued.chain, "chain.pem"), (issued.private_key, "key.pem")):
        (tls / name).write_bytes(source.read_bytes())
    (directory / "tls" / "ca.pem").write_bytes(certificates().trust.read_bytes())
    lines = list(settings)
    if definitions is not None:
        file = directory / "definitions.json"
        file.write_text(json.dumps(definitions))
        lines.append(f"load_definitions = {file}")
    port, *ports = free_ports(4)
    epmd = subprocess.Popen(
        ["epmd", "-port", str(port), "-address", "127.0.0.1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        node = Node("rabbit", directory, port, ports, plugins=plugins, settings=lines)
        try:
            node.wait_ready()
            yield node
        finally:
            node.stop()
    finally:
        epmd.kill()
        epmd.wait(10)


def control(node: Node, *arguments: str) -> str:
    """Run rabbitmqctl and return what it prints."""
    done = subprocess.run(
        [str(HOME / "rabbitmqctl"), "-n", node.name, *arguments],
        env=node.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
