# SPDX-License-Identifier: Apache-2.0
"""`docs/rabbitmq.md`: its commands work as they stand, in their order; so does its listener."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import yaml

from amqproute.tools.daemon_pair import free_ports
from tests.integration.support import Daemon, DaemonTestCase, new_directory
from tests.support.patience import PATIENCE
from tests.support.program import installed, run

PAGE = Path(__file__).parent.parent.parent / "docs" / "rabbitmq.md"
EXPORTED = {
    "rabbit_version": "3.10.8",
    "users": [],
    "vhosts": [{"name": "/"}],
    "permissions": [],
    "policies": [],
    "queues": [
        {
            "name": "celery",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        }
    ],
    "exchanges": [],
    "bindings": [],
}
"""An export as by ``rabbitmqctl export_definitions``."""


class PageTests(DaemonTestCase):
    @classmethod
    def make(cls) -> Daemon:
        daemon = Daemon("alpha.example")
        rules = [{"who": "*", "allow": ["publish", "consume", "create"]}]
        hosts = {name: {"access": rules} for name in ("shop", "bank")}
        daemon.write(**{"virtual-hosts": hosts})
        return daemon.start()

    def test_commands(self) -> None:
        """Each of them works, in its order."""
        text = PAGE.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        self.assertGreater(len(blocks), 2)
        directory = new_directory("page")
        self.enterContext(installed(directory))
        (directory / "definitions.json").write_text(json.dumps(EXPORTED))
        rabbitmqctl = directory / "rabbitmqctl"
        rabbitmqctl.write_text(f'#!/bin/sh -e\ncp "{directory}/definitions.json" "$2"\n')
        rabbitmqctl.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{directory}:{os.environ['PATH']}",
            "AMQPROUTE_CONFIG": str(self.daemon.file),
        }
        for block in blocks:
            done = subprocess.run(
                ["sh", "-exc", block],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                timeout=PATIENCE,
            )
            self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}\n{done.stderr}")
            self.assertNotIn("Traceback", done.stderr)

    def test_command_table(self) -> None:
        """Commands in the table exist."""
        text = PAGE.read_text(encoding="utf-8")
        table = text.partition("## Commands\n")[2].partition("\n\nNames")[0]
        named = re.findall(r"\| .* \| (.*`amqproute .*) \|", table)
        commands = [each for row in named for each in re.findall("`amqproute ([a-z ]+)", row)]
        self.assertGreater(len(commands), 10)
        for command in commands:
            done = run(*command.split(), "--help")
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")

    def test_listener(self) -> None:
        """`amqproute check` finds that clients of 0-9-1 can log in at the page's listener."""
        text = PAGE.read_text(encoding="utf-8")
        (block,) = re.findall(r"```yaml\n(listen:.*?)```", text, re.DOTALL)
        (port,) = free_ports(1)
        listen = [
            each if "unix:" in each["endpoint"] else {**each, "endpoint": f"tcp:{port}"}
            for each in yaml.safe_load(block)["listen"]
        ]
        listen[0]["endpoint"] = f"unix:{new_directory('page')}/socket"
        daemon = Daemon("alpha.example", changes={"listen": listen})
        daemon.write()
        said = run("check", "--config", str(daemon.file)).stdout
        self.assertRegex(said, rf"AMQP 0-9-1: .*{port}")
