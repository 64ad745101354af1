# SPDX-License-Identifier: Apache-2.0
"""Names in virtual hosts on the command line."""

from __future__ import annotations

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands.common_options import NODE_NAME, vhost_option


@click.command()
@click.argument("name", type=NODE_NAME)
@click.argument("target", type=NODE_NAME, required=False)
@vhost_option
def shown(name: str, target: str | None) -> None:
    """Print what names mean."""
    click.echo(f"{name} {target}")


class NodeNameTests(SynchronousTestCase):
    def run_with(self, *words: str) -> tuple[int, str]:
        """Run the command; return exit code and output."""
        result = CliRunner().invoke(shown, words)
        return result.exit_code, result.output.strip()

    def test_names(self) -> None:
        """Names are those within the broker, or in the virtual host that is given."""
        for words, expected in (
            (("q",), "q None"),
            (("//shop/q",), "//shop/q None"),
            (("q", "--vhost", "/"), "q None"),
            (("q", "r", "--vhost", "shop"), "//shop/q //shop/r"),
            (("--vhost", "shop", "q", "//shop/r"), "//shop/q //shop/r"),
            (("q", "r@b.test", "--vhost", "shop"), "//shop/q r@b.test"),
        ):
            self.assertEqual(self.run_with(*words), (0, expected), words)

    def test_another_virtual_host(self) -> None:
        """A name cannot be of another one."""
        for host in ("bank", "/"):
            code, output = self.run_with("//shop/q", "--vhost", host)
            self.assertEqual(code, 2)
            self.assertIn(f"is not in the virtual host '{host}'", output)
