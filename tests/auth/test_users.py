# SPDX-License-Identifier: Apache-2.0
"""The users file: written as a whole, read strictly."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth import users
from amqproute.auth.users import UserFile, add_user, check_user_name, remove_user
from amqproute.errors import ConfigError

SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
KEY = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
GOOD = f"""\
ann:
  mechanism: SCRAM-SHA-256
  iterations: 4096
  salt: {SALT}
  stored-key: {KEY}
  server-key: {KEY}
"""


def fewer(path: Path, name: str, password: str) -> bool:
    return add_user(path, name, password, iterations=4096)


class UsersTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "users.yaml"


class AddTests(UsersTestCase):
    def test_add_and_verify(self) -> None:
        """Added users are known after loading, by their passwords only."""
        self.assertTrue(fewer(self.path, "ann", "pencil"))
        self.assertTrue(fewer(self.path, "bob@alpha.example", "päper"))
        known = UserFile.load(self.path)
        self.assertEqual(known.names, ("ann", "bob@alpha.example"))
        self.assertEqual(known.usual_iterations, 4096)
        for name, password, right in (
            ("ann", "pencil", True),
            ("ann", "päper", False),
            ("ann", "", False),
            ("bob@alpha.example", "pa\u0308per", True),
            ("nobody", "pencil", False),
            ("a\0b", "pencil", False),
        ):
            self.assertEqual(known.verify(name, password), right, (name, password))

    def test_change_keeps_others(self) -> None:
        """A new password for one leaves the other's line as it is, and salts are fresh."""
        fewer(self.path, "ann", "old")
        fewer(self.path, "bob", "old")
        before = UserFile.load(self.path)
        self.assertFalse(fewer(self.path, "ann", "new"))
        after = UserFile.load(self.path)
        self.assertEqual(before.lookup("bob"), after.lookup("bob"))
        self.assertNotEqual(before.lookup("ann"), after.lookup("ann"))
        self.assertTrue(after.verify("ann", "new"))

    def test_default_cost(self) -> None:
        add_user(self.path, "ann", "pencil")
        secret = UserFile.load(self.path).lookup("ann")
        assert secret is not None
        self.assertGreaterEqual(secret.iterations, 15_000)

    def test_remove(self) -> None:
        fewer(self.path, "ann", "pencil")
        self.assertFalse(remove_user(self.path, "bob"))
        self.assertTrue(remove_user(self.path, "ann"))
        self.assertEqual(len(UserFile.load(self.path)), 0)
        self.assertTrue(fewer(self.path, "ann", "pencil"))

    def test_nothing_else_is_left(self) -> None:
        """No temporary file and no password stays behind, not even when writing fails."""
        fewer(self.path, "ann", "pencil")
        self.patch(users.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with self.assertRaises(OSError):
            fewer(self.path, "bob", "paper")
        self.assertEqual(os.listdir(self.directory), ["users.yaml"])
        text = self.path.read_text()
        self.assertNotIn("pencil", text)
        self.assertNotIn("bob", text)

    def test_mode(self) -> None:
        """New files are closed to others; old ones keep their mode, less that of others."""
        fewer(self.path, "ann", "pencil")
        self.assertIn(stat.S_IMODE(self.path.stat().st_mode), (0o640, 0o600))
        for before, after in ((0o600, 0o600), (0o640, 0o640), (0o644, 0o640), (0o400, 0o600)):
            self.path.chmod(before)
            fewer(self.path, "ann", "pencil")
            self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), after, oct(before))

    def test_through_a_link(self) -> None:
        """A symbolic link stays one."""
        link = self.directory / "link.yaml"
        link.symlink_to("users.yaml")
        fewer(link, "ann", "pencil")
        self.assertTrue(link.is_symlink())
        self.assertEqual(UserFile.load(self.path).names, ("ann",))

    def test_foul_file_is_left_alone(self) -> None:
        self.path.write_text("ann: 1\n")
        with self.assertRaises(ConfigError):
            fewer(self.path, "bob", "paper")
        self.assertEqual(self.path.read_text(), "ann: 1\n")

    def test_bad_names_and_passwords(self) -> None:
        for name in ("", "-a", "a b", "a:b", "*", "a*", "a/b", "a\n", "\u200b", "n" * 256, "\x07"):
            with self.assertRaises(ValueError):
                check_user_name(name)
            with self.assertRaises(ValueError):
                fewer(self.path, name, "pencil")
        for password in ("", "\0", "\u00ad"):
            with self.assertRaises(ValueError):
                fewer(self.path, "ann", password)
        self.assertFalse(self.path.exists())

    @given(name=st.text(max_size=20))
    def test_names_have_one_form(self, name: str) -> None:
        """A name that passes is its own prepared form afterwards; others give ValueError."""
        try:
            prepared = check_user_name(name)
        except ValueError:
            return
        self.assertEqual(check_user_name(prepared), prepared)


class LoadTests(UsersTestCase):
    def problems(self, text: str) -> list[str]:
        self.path.write_text(text)
        self.path.chmod(0o600)
        with self.assertRaises(ConfigError) as caught:
            UserFile.load(self.path)
        return [problem.removeprefix(str(self.path) + ":") for problem in caught.exception.problems]

    def test_good(self) -> None:
        for text, names in ((GOOD, ("ann",)), ("", ()), ("# none\n", ()), ("---\n", ())):
            self.path.write_text(text)
            self.path.chmod(0o600)
            self.assertEqual(UserFile.load(self.path).names, names)

    def test_problems(self) -> None:
        """Each problem comes with line and key."""
        for old, new, expected in (
            ("SCRAM-SHA-256", "MD5", "2: ann.mechanism: has to be SCRAM-SHA-256"),
            ("4096", "many", "3: ann.iterations: has to be a number"),
            ("4096", "1", "2: ann: iterations must be from 4096 to 10000000"),
            (f"salt: {SALT}", "salt: a!b", "4: ann.salt: has to be base64"),
            (f"salt: {SALT}", "salt: [1]", "4: ann.salt: has to be base64"),
            (f"salt: {SALT}", "salt: YQ==", "2: ann: salt must have 12 to 256 bytes"),
            (f"server-key: {KEY}", "server-key: YQ==", "2: ann: stored-key and server-key"),
            (f"  salt: {SALT}\n", "", "2: ann: salt missing"),
            ("  salt:", "  salz: x\n  salt:", "4: ann.salz: unknown"),
            ("  salt:", "  mechanism: x\n  salt:", "4: ann.mechanism: appears twice"),
            ("ann:", '"a n":', "2: a n: the user name"),
            ("ann:", '"\\u2168":', "2: \u2168: write it as 'IX'"),
        ):
            problems = self.problems(GOOD.replace(old, new, 1))
            self.assertEqual(len(problems), 1, problems)
            self.assertTrue(problems[0].startswith(expected), problems)

    def test_shapes(self) -> None:
        for text, expected in (
            ("- ann\n", "1: has to be a mapping"),
            ("ann\n", "1: has to be a mapping"),
            ("ann: 1\n", "1: ann: has to be a mapping"),
            ("ann:\n", "1: ann: has to be a mapping"),
            (GOOD + GOOD, "7: ann: appears twice"),
            ("? [a]\n: 1\n", "1: a key has to be text"),
            ("ann: {\n", "2: "),
            ("[" * 5000, ""),
            ("a: &a [*a]\n", "1: a: has to be a mapping"),
        ):
            problems = self.problems(text)
            self.assertTrue(problems[0].startswith(expected), problems)

    def test_all_problems_at_once(self) -> None:
        self.assertEqual(len(self.problems("ann: 1\nbob: 2\n")), 2)

    def test_unreadable(self) -> None:
        for path in (self.path, self.directory):
            with self.assertRaises(ConfigError) as caught:
                UserFile.load(path)
            self.assertIn(str(path), str(caught.exception))

    def test_reload(self) -> None:
        """New users are seen; a foul file leaves the old ones."""
        fewer(self.path, "ann", "pencil")
        known = UserFile.load(self.path)
        fewer(self.path, "bob", "paper")
        known.reload()
        self.assertEqual(known.names, ("ann", "bob"))
        self.path.write_text("ann: 1\n")
        self.path.chmod(0o600)
        with self.assertRaises(ConfigError):
            known.reload()
        self.assertEqual(known.names, ("ann", "bob"))

    @given(data=st.binary(max_size=80))
    def test_any_bytes(self, data: bytes) -> None:
        """Any contents of the file are users or a ConfigError."""
        self.path.write_bytes(data)
        self.path.chmod(0o600)
        try:
            UserFile.load(self.path)
        except ConfigError:
            pass
