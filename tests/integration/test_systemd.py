# SPDX-License-Identifier: Apache-2.0
"""The units, verified by systemd's own tool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.support.patience import PATIENCE

UNITS = Path(__file__).parent.parent.parent / "systemd"
PROGRAM = "/opt/amqproute/bin/amqproute"
EXPOSED = 3.0
"""From here on the sandbox has a hole: systemd-analyze rates from 0 (safe) to 10."""


class UnitTests(SynchronousTestCase):
    def analyze(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        tool = shutil.which("systemd-analyze")
        if tool is None:
            raise SkipTest("systemd-analyze is not installed (Debian: apt-get install systemd)")
        return subprocess.run(
            [tool, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE,
            env={"LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": "cat", "PATH": "/usr/bin:/bin"},
        )  # fmt: skip

    def units(self) -> list[str]:
        """Copy the units, with a program in them that is there on every machine."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir(parents=True)
        for unit in UNITS.glob("amqproute*.*"):
            (directory / unit.name).write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
        return sorted(str(path) for path in directory.iterdir())

    def test_accepted(self) -> None:
        """systemd takes all units without a word."""
        units = self.units()
        self.assertEqual(
            [Path(unit).name for unit in units],
            [
                "amqproute-pipeline.service",
                "amqproute-pipeline.timer",
                "amqproute.service",
                "amqproute.socket",
            ],
        )
        done = self.analyze("verify", "--man=no", *units)
        said = [line for line in done.stderr.splitlines() if "amqproute" in line]
        self.assertEqual((said, done.returncode), ([], 0), done.stderr)

    def test_sandbox(self) -> None:
        """The exposure of the services is rated well below 3 of 10."""
        for unit in ("amqproute.service", "amqproute-pipeline.service"):
            done = self.analyze("security", "--offline=true", "--no-pager", str(UNITS / unit))
            rating = re.search(rf"exposure level for {re.escape(unit)}: ([\d.]+)", done.stdout)
            if rating is None:
                raise SkipTest(f"this systemd-analyze rates no unit files: {done.stderr.strip()}")
            self.assertLess(float(rating[1]), EXPOSED, done.stdout)

    def test_what_the_service_says(self) -> None:
        """The unit has the settings that an operator relies on."""
        text = (UNITS / "amqproute.service").read_text()
        settings = {line for line in text.splitlines() if line and not line.startswith("#")}
        for wanted in (
            "Type=notify",
            "NotifyAccess=main",
            f"ExecStart={PROGRAM} serve --config ${{AMQPROUTE_CONFIG}}",
            f"ExecReload={PROGRAM} check --config ${{AMQPROUTE_CONFIG}}",
            "ExecReload=/bin/kill -HUP $MAINPID",
            "User=amqproute",
            "StateDirectory=amqproute",
            "RuntimeDirectory=amqproute",
            "ConfigurationDirectory=amqproute",
            "Restart=on-failure",
            "RestartPreventExitStatus=2",
        ):
            self.assertIn(wanted, settings)
        self.assertNotIn("MemoryDenyWriteExecute=yes", settings)  # pyOpenSSL's callbacks

    def test_what_the_pipeline_says(self) -> None:
        """It runs the command by its whole path, reads as the daemon's user, and at night."""
        text = (UNITS / "amqproute-pipeline.service").read_text()
        settings = {line for line in text.splitlines() if line and not line.startswith("#")}
        for wanted in (
            "Type=oneshot",
            f"ExecStart={PROGRAM} pipeline run --local-dir /var/cache/amqproute-pipeline",
            f"ExecStartPre=-{PROGRAM} pipeline compact --local-dir /var/cache/amqproute-pipeline",
            f"ExecStartPre=-{PROGRAM} pipeline prune --local-dir /var/cache/amqproute-pipeline",
            "Environment=AMQPROUTE_KEEP_DAYS=400",
            "User=amqproute",
            "StateDirectory=amqproute-pipeline",
            "IPAddressDeny=any",
        ):
            self.assertIn(wanted, settings)
        timer = (UNITS / "amqproute-pipeline.timer").read_text()
        self.assertIn("\nPersistent=yes\n", timer)
        done = self.analyze("calendar", *re.findall(r"^OnCalendar=(.*)$", timer, re.MULTILINE))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_credentials(self) -> None:
        """The lines for secrets are ones that systemd takes, and the names are explained."""
        text = (UNITS / "amqproute.service").read_text()
        names = re.findall(r"^#LoadCredential=([\w.-]+):/\S+$", text, re.MULTILINE)
        self.assertEqual(names, ["key.pem", "users.yaml", "ldap-password"])
        for name in names:
            self.assertIn(f"%d/{name}", text)
        (unit,) = (Path(each) for each in self.units() if each.endswith("amqproute.service"))
        unit.write_text(re.sub(r"(?m)^#(LoadCredential=)", r"\1", unit.read_text()))
        done = self.analyze("verify", "--man=no", str(unit))
        said = [line for line in done.stderr.splitlines() if "amqproute" in line]
        self.assertEqual((said, done.returncode), ([], 0), done.stderr)

    def test_account(self) -> None:
        """The account the service runs under is the one that sysusers makes."""
        (user,) = re.findall(r"^u (\S+)", (UNITS / "sysusers.conf").read_text(), re.MULTILINE)
        self.assertIn(f"User={user}\n", (UNITS / "amqproute.service").read_text())
        for line in (UNITS / "tmpfiles.conf").read_text().splitlines():
            if line and not line.startswith("#"):
                kind, path, mode, owner, group, *_ = line.split()
                self.assertIn(kind, {"d", "Z"}, path)
                self.assertRegex(mode, r"\A~?0[0-7]{3}\Z")
                self.assertTrue(int(mode.strip("~"), 8) & 0o010, f"{path} would be closed: {line}")
                self.assertIn(owner, {"root", user})
                self.assertEqual(group, user)
