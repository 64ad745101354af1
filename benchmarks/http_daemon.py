# SPDX-License-Identifier: Apache-2.0
"""A daemon with an HTTP endpoint, started for a benchmark."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["start_daemon"]

LOOKS: Final = 600
"""Questions whether it is ready, before it is given up."""
LOOK_SECONDS: Final = 0.2


def start_daemon(
    directory: Path, http_port: int, settings: Mapping[str, object]
) -> subprocess.Popen[bytes]:
    """Start a daemon, and wait until it is ready.

    Args:
        directory: gets its configuration, its log and its state.
        http_port: port on loopback of its endpoint for management.
        settings: its configuration, but for the name, the state directory and the resolver.

    Raises:
        SystemExit: it has ended, or is not ready in time; the text is the end of its log.
    """
    file, log = directory / "amqproute.yaml", directory / "log"
    common = {
        "container-id": "alpha.example",
        "state-directory": str(directory / "state"),
        "resolver": {"dnssec": "off", "nameservers": ["127.0.0.1:9"]},
    }
    file.write_text(json.dumps(common | dict(settings)))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "amqproute", "serve", "--config", str(file)],
            stdout=output,
            stderr=output,
        )
    for _ in range(LOOKS):
        if process.poll() is not None:
            break
        if _is_ready(http_port):
            return process
        time.sleep(LOOK_SECONDS)
    process.kill()
    process.wait()
    raise SystemExit(log.read_text()[-2000:])


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
