# SPDX-License-Identifier: Apache-2.0
"""The sessions of docs/http-api.md, run as they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

import amqproute
from amqproute.http.http_listener import HttpListener
from tests.http.doors import DoorsCase

PAGE = Path(amqproute.__file__).parent.parent / "docs" / "http-api.md"


class PageTests(DoorsCase):
    """One shell for all sessions of the page, which are told where the daemon is."""

    if shutil.which("curl") is None:
        skip = "there is no curl"

    async def test_sessions(self) -> None:
        """Each command of the page succeeds."""
        made: Any = reactor
        listener = HttpListener(made, "tcp:0:interface=127.0.0.1", self.app.web.site)
        listener.startService()
        self.addCleanup(listener.stopService)
        address: Any = listener.addresses[0]
        sessions = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(sessions), 4)
        script = "\n".join(sessions)
        variables = {"API": f"http://127.0.0.1:{address.port}/api/v1", "LOGIN": "root:secret"}
        done = await deferToThread(
            subprocess.run,
            ["bash", "-euc", script],
            env={"PATH": "/usr/bin:/bin", **variables},
            capture_output=True,
            timeout=600,
            check=False,
        )
        self.assertEqual(done.returncode, 0, (done.stderr, done.stdout[-500:]))
        self.assertIn(b'"principal":"user:root"', done.stdout)
        self.assertNotIn("incoming", self.app.broker.nodes)
