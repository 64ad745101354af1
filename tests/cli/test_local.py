# SPDX-License-Identifier: Apache-2.0
"""Commands that need no configuration ignore an invalid one."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands import local_daemon, resolve
from amqproute.cli.main import amqproute
from amqproute.config import Config
from amqproute.errors import ConfigError, ResolveError
from tests.support.program import run

BROKEN = ("listen: [", "nonsense: 1", "domains: 7", "\x00")


class BrokenFileTests(SynchronousTestCase):
    """A file that does not check, found by the environment."""

    def setUp(self) -> None:
        # A short path: it is that of a socket.
        folder = tempfile.TemporaryDirectory(prefix="amqproute-")
        self.addCleanup(folder.cleanup)
        self.directory = Path(folder.name)
        self.file = self.directory / "amqproute.yaml"
        environ = patch.dict(os.environ, {"AMQPROUTE_CONFIG": str(self.file)})
        environ.start()
        self.addCleanup(environ.stop)

    def amqproute(self, *words: str) -> Any:
        return CliRunner(env=dict(os.environ)).invoke(amqproute, words)

    def listen(self, name: str) -> Path:
        place = self.directory / name
        listening = socket.socket(socket.AF_UNIX)
        self.addCleanup(listening.close)
        listening.bind(str(place))
        return place

    def test_socket(self) -> None:
        """The socket is found in a text that is no configuration, if it is there."""
        gone, place = self.directory / "gone", self.listen("s")
        for broken in BROKEN:
            self.file.write_text(
                f"{broken}\n# unix:{self.listen('no') if broken == BROKEN[0] else place}\n"
                f"  - endpoint: unix:{gone}\n  - {{endpoint: 'unix:{place}:mode=600'}}\n"
            )
            found: list[Any] = []
            self.patch(local_daemon.render, "warn", found.append)
            self.assertEqual(local_daemon.local_url(self.file).path, str(place))
            self.assertEqual(local_daemon.local_url(None).path, str(place))
            self.assertIn("is asked all the same", found[0])
            self.assertIn(f"{self.file}:", found[0])

    def test_no_socket(self) -> None:
        """Without one the file is refused as ever."""
        self.file.write_text("listen: [")
        self.assertRaises(ConfigError, local_daemon.local_url, None)

    def test_trust(self) -> None:
        """A URL with TLS needs no file; one that was asked for has to be right."""
        self.file.write_text("nonsense: 1")
        warnings: list[str] = []
        self.patch(local_daemon.render, "warn", warnings.append)
        self.assertEqual(local_daemon.trusted(None), "system")
        self.assertIn("--trust names others", warnings[0])
        self.assertRaises(ConfigError, local_daemon.trusted, self.file)

    def test_resolve(self) -> None:
        """A look-up asks the system's name servers."""
        self.file.write_text("nonsense: 1")
        asked: list[Any] = []

        def look_up(reactor: None, config: Config, domain: str, *, is_own: bool) -> ResolveError:
            self.assertFalse(is_own)
            asked.append(config)
            return ResolveError("dns.nxdomain", "there is none", permanent=True)

        self.patch(resolve, "_look_up", look_up)
        self.patch(resolve.runner, "run", lambda work: work(None))
        result = self.amqproute("resolve", "beta.example")
        self.assertEqual((result.exit_code, asked), (1, [Config()]), result.output)
        self.assertIn("the system's name servers are asked", result.stderr)
        result = self.amqproute("resolve", "beta.example", "--config", str(self.file))
        self.assertEqual(result.exit_code, 2)

    def test_others(self) -> None:
        """A command complete by its arguments does not even read it."""
        self.file.write_text("nonsense: 1")
        self.file.chmod(0)
        folder = str(self.directory)
        environ = {"AMQPROUTE_CONFIG": str(self.file)}
        for words, code in (
            (("queue", "ls", "--url", f"unix:{folder}/nowhere"), 3),
            (("receive", "q", "--url", "amqp://127.0.0.1:1"), 3),
            (("certs", "authority", f"{folder}/ca"), 0),
            (("store", "check", "--state", f"{folder}/none"), 1),
            (("journal", "verify", "--directory", f"{folder}/none"), 1),
            (("serve", "--help"), 0),
        ):
            done = run(*words, environ=environ)
            self.assertNotIn("nonsense", done.stderr)
            self.assertEqual(done.returncode, code, (words, done.stderr))
