# SPDX-License-Identifier: Apache-2.0
"""The locked versions: complete, with hashes, within the limits of setup.cfg."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from twisted.trial.unittest import SkipTest, SynchronousTestCase

import amqproute

ROOT = Path(amqproute.__file__).parent.parent
LOCKS = {
    "requirements.lock": (),
    "requirements-pipeline.lock": ("pipeline",),
    "requirements-tracing.lock": ("tracing",),
}
TARGETS = [
    {
        "python_version": version,
        "python_full_version": f"{version}.5",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": machine,
    }
    for version in ("3.11", "3.12", "3.13")
    for machine in ("x86_64", "aarch64")
]


@dataclass(frozen=True)
class Pin:
    """One entry of a lock file."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def version(self) -> Version:
        (only,) = self.requirement.specifier
        assert only.operator == "==", self.requirement
        return Version(only.version)


def pins(name: str) -> Iterator[Pin]:
    text = re.sub(r"^ *#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        words, *hashes = line.split(" --hash=")
        yield Pin(Requirement(words.strip()), tuple(each.strip() for each in hashes))


def locked(name: str, target: dict[str, str]) -> dict[str, Version]:
    """The versions that a target gets."""
    found: dict[str, Version] = {}
    for pin in pins(name):
        marker = pin.requirement.marker
        if marker is None or marker.evaluate(target):
            key = canonicalize_name(pin.requirement.name)
            assert key not in found, f"{key} twice"
            found[key] = pin.version
    return found


def demanded(extras: tuple[str, ...]) -> Iterator[Requirement]:
    """The requirements of setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    texts = [settings["options"]["install_requires"]]
    texts += [settings["options.extras_require"][extra] for extra in extras]
    for line in "\n".join(texts).splitlines():
        if line.strip():
            yield Requirement(line.strip())


def needs(wanted: Requirement, version: Version, target: dict[str, str]) -> Iterator[Requirement]:
    """The requirements of a distribution; none if that version is not installed here."""
    try:
        there = importlib.metadata.distribution(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return
    if Version(there.version) != version:
        return  # somebody tries another one
    for text in there.requires or ():
        each = Requirement(text)
        for extra in ("", *wanted.extras):
            if each.marker is None or each.marker.evaluate({**target, "extra": extra}):
                yield each
                break


class LockTests(SynchronousTestCase):
    def setUp(self) -> None:
        if not (ROOT / "setup.cfg").exists():
            raise SkipTest("not in a source tree")

    def test_from_nowhere(self) -> None:
        """No index, no host, no path of a machine, no file that is not on an index."""
        for name in LOCKS:
            text = (ROOT / name).read_text()
            strange = r"://|^ *-(?!-hash=sha256:)|\s@\s|/(?:opt|tmp|root|home)/"
            self.assertIsNone(re.search(strange, text, re.MULTILINE), name)

    def test_hashes(self) -> None:
        """Each has one at least, and SHA-256 only."""
        for name in LOCKS:
            for pin in pins(name):
                self.assertTrue(pin.hashes, pin.requirement)
                for each in pin.hashes:
                    self.assertRegex(each, r"^sha256:[0-9a-f]{64}$")

    def test_demands(self) -> None:
        """The requirements of setup.cfg, for every Python and machine; `make lock` locks them."""
        for name, extras in LOCKS.items():
            for target in TARGETS:
                found = locked(name, target)
                for each in demanded(extras):
                    version = found.get(canonicalize_name(each.name))
                    assert version is not None, f"{name} lacks {each}: make lock"
                    self.assertIn(version, each.specifier, f"{name}: {each}: make lock")

    def test_complete(self) -> None:
        """The requirements of locked versions are locked, as far as they are installed here."""
        for name, extras in LOCKS.items():
            for target in TARGETS:
                found = locked(name, target)
                waiting = [(each, "setup.cfg") for each in demanded(extras)]
                known: set[str] = set()
                while waiting:
                    wanted, by = waiting.pop()
                    version = found.get(canonicalize_name(wanted.name))
                    assert version is not None, f"{name}: {by} needs {wanted}: make lock"
                    self.assertIn(version, wanted.specifier, f"{name}: {by} needs {wanted}")
                    if str(wanted) not in known:
                        known.add(str(wanted))
                        waiting += [(each, wanted.name) for each in needs(wanted, version, target)]
                self.assertGreater(len(known), len(list(demanded(extras))))

    def test_alike(self) -> None:
        """All files agree: who adds an extra later changes nothing that runs."""
        for target in TARGETS:
            for name in LOCKS:
                larger = locked(name, target)
                for key, version in locked("requirements.lock", target).items():
                    self.assertEqual(larger[key], version, key)
