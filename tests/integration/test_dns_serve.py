# SPDX-License-Identifier: Apache-2.0
"""`amqproute dns serve`, with the zone and the configuration of the example."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from tests.support.patience import PATIENCE
from tests.support.program import run

EXAMPLE = Path(amqproute.__file__).parent.parent / "etc" / "example"


class DnsServeTests(SynchronousTestCase):
    def test_example(self) -> None:
        """The zone is served until SIGINT, and alpha finds beta's broker by it."""
        command = [sys.executable, "-m", "amqproute", "dns", "serve", "--port", "0"]
        with subprocess.Popen([*command, str(EXAMPLE / "zone.txt")], stdout=subprocess.PIPE,
                              text=True) as server:  # fmt: skip
            self.addCleanup(server.kill)
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+), UDP and TCP", line)
            assert found is not None, line
            config = Path(self.mktemp()).absolute()
            text = (EXAMPLE / "alpha" / "amqproute.yaml").read_text()
            self.assertIn("127.0.0.1:5353", text)
            config.write_text(text.replace("127.0.0.1:5353", f"127.0.0.1:{found[1]}"))
            done = run("resolve", "beta.example", "--config", str(config), "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            (place,) = json.loads(done.stdout)["candidates"]
            self.assertEqual((place["host"], place["port"]), ("broker.beta.example", 6671))
            own = run("resolve", "Alpha.Example.", "--config", str(config))
            self.assertEqual(own.returncode, 0, own.stderr)
            self.assertIn("broker.alpha.example\t5671", own.stdout)
            self.assertIn("this is how others find this broker", own.stdout)
            again = run("dns", "serve", "--port", found[1], str(EXAMPLE / "zone.txt"))
            self.assertEqual(again.returncode, 1)
            self.assertIn("dns.port", again.stderr)
            self.assertNotIn("Errno", again.stderr)
            server.send_signal(signal.SIGINT)
            self.assertEqual(server.wait(PATIENCE), 0)

    def test_no_zone(self) -> None:
        """A file that is no zone is refused in words."""
        broken = Path(self.mktemp()).absolute()
        broken.write_text("this is\nno zone\n")
        done = run("dns", "serve", str(broken), "--port", "0")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"dns.zone: {broken}: not a zone: ", done.stderr)
        self.assertEqual(run("dns", "serve", "/nowhere").returncode, 2)
