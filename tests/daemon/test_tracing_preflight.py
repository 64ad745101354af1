# SPDX-License-Identifier: Apache-2.0
"""What `check` and a start find about tracing before anything is opened."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import Config, loads
from amqproute.daemon.preflight import examine_files, examine_machine
from amqproute.daemon.tracing_assembly import sampling_terms


class PreflightTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.headers = self.directory / "headers"
        self.headers.write_text("Authorization: Bearer secret\n")
        self.headers.chmod(0o600)

    def config(self, **tracing: str) -> Config:
        """Return a configuration with tracing on."""
        lines = "".join(f"  {name.replace('_', '-')}: {value}\n" for name, value in tracing.items())
        enabled = "" if "enabled" in tracing else "  enabled: true\n"
        text = f"state-directory: {self.directory}\ntracing:\n{enabled}{lines}"
        return loads(text, self.directory / "amqproute.yaml")

    def problems(self, **tracing: str) -> list[str]:
        """Return what is wrong with the files of tracing."""
        found = examine_files(self.config(**tracing)).problems
        return [each for each in found if "tracing" in each or "headers" in each]

    def test_headers(self) -> None:
        """The file is there and can be read; a wrong line of it is named, without its text."""
        self.assertEqual(self.problems(headers_file="headers"), [])
        (problem,) = self.problems(headers_file="nowhere")
        self.assertIn("tracing.headers-file: there is no file", problem)
        self.headers.write_text("X: 1\nsecret\n")
        (problem,) = self.problems(headers_file="headers")
        self.assertTrue(problem.startswith(f"{self.headers}:2: "), problem)
        self.assertNotIn("secret", problem)

    def test_off(self) -> None:
        """Switched off, nothing is looked at."""
        self.assertEqual(self.problems(headers_file="nowhere", enabled="false"), [])

    def test_exposed(self) -> None:
        """Secrets that everybody on the machine can read are reported."""
        config = self.config(headers_file="headers")
        self.assertNotIn("headers", "".join(examine_machine(config).exposures))
        self.headers.chmod(0o644)
        (exposure,) = examine_machine(config).exposures
        self.assertIn("tracing.headers-file", exposure)
        self.assertIn("chmod o=", exposure)

    def test_trusted_senders(self) -> None:
        """Clients have a say in what is recorded; peers with a contract."""
        text = "peers: {'*.example': {trace-context: keep}, beta.example: {trace-context: drop}}"
        terms = sampling_terms(loads(text, Path("amqproute.yaml")))
        found = {
            sender: terms.is_trusted(sender)
            for sender in ("user:ann", "anonymous", "peer:a.example", "peer:beta.example", "peer:c")
        }
        self.assertEqual([*found.values()], [True, True, True, False, False], found)
