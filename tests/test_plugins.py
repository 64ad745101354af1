# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.plugins`, with a distribution that is really installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.filters.registry import fault_of_plugin
from amqproute.plugins import FILTERS, PlugIn, find_plugins
from tests.support.tiny_distribution import COLOR_FILTER, install

GROUPS = {FILTERS: fault_of_plugin}


class FindTests(SynchronousTestCase):
    """Which plug-ins there are, and what is wrong with each."""

    def find(self, modules: dict[str, str], points: dict[str, str]) -> list[PlugIn]:
        """Install a distribution, and return its plug-ins."""
        directory = Path(self.mktemp()).absolute()
        self.addCleanup(install(directory, "tiny_acme", modules, {FILTERS: points}))
        return [each for each in find_plugins(GROUPS) if each.distribution == "tiny_acme 1.0"]

    def test_found(self) -> None:
        """A right one is imported, with where it comes from."""
        (found,) = self.find({"tiny_acme_color": COLOR_FILTER}, {"color": "tiny_acme_color:COLOR"})
        self.assertEqual(found.fault, "")
        self.assertEqual(getattr(found.value, "descriptor", ""), "acme.example:color-filter:string")
        self.assertEqual(
            str(found),
            "plug-in color (amqproute.filters: tiny_acme_color:COLOR, tiny_acme 1.0)",
        )

    def test_faults(self) -> None:
        """Each that cannot be used says why; the others are found all the same."""
        wrong = (
            "class Kind:\n"
            "    descriptor, code, capability = 'a:b', None, ''\n"
            "    def make(self, name, value, own_container, now_ms): pass\n"
            "def kind(**more):\n"
            "    found = Kind()\n"
            "    vars(found).update(more)\n"
            "    return found\n"
            "blank = kind(descriptor='a b')\n"
            "number = kind(code=-1)\n"
            "own = kind(descriptor='amqp:sql-filter')\n"
            "taken = kind(code=0x120)\n"
            "few = kind(make=lambda name: None)\n"
            "mute = kind(make=None)\n"
            "loud = kind(capability=1)\n"
        )
        objects = {
            "blank": "its `descriptor` is no symbol: 1 to 255 visible ASCII characters",
            "number": "its `code` is neither a ulong nor None",
            "own": "the broker has filters of the kind amqp:sql-filter itself",
            "taken": "the code 0x120 is that of amqp:sql-filter",
            "few": "its `make` does not take name, value, own_container, now_ms",
            "mute": "it is no object with a method `make`",
            "loud": "its `capability` is no text",
            "Kind": "it is no object with a method `make`",
            "absent": "it cannot be imported: AttributeError: module 'tiny_wrong' has no attribute "
            "'absent'",
        }
        points = {f"p-{name}": f"tiny_wrong:{name}" for name in objects}
        points |= {"color": "tiny_acme_color:COLOR", "exits": "tiny_exits:x", "none": "tiny_none:x"}
        modules = {
            "tiny_wrong": wrong,
            "tiny_acme_color": COLOR_FILTER,
            "tiny_exits": "raise SystemExit('bye')\n",
        }
        found = {each.name: each for each in self.find(modules, points)}
        self.assertEqual({*found}, {*points})
        self.assertEqual({name: found[f"p-{name}"].fault for name in objects}, objects)
        self.assertEqual(found["exits"].fault, "it cannot be imported: SystemExit: bye")
        self.assertIn("ModuleNotFoundError: No module named 'tiny_none'", found["none"].fault)
        self.assertEqual(found["color"].fault, "")
        self.assertIsNone(found["exits"].value)

    def test_one_name(self) -> None:
        """Of two with one name the first is used, by the order of their objects."""
        points = [
            EntryPoint("same", "tests.test_plugins:second", FILTERS),
            EntryPoint("same", "tests.test_plugins:first", FILTERS),
        ]
        one, two = find_plugins({FILTERS: lambda _: ""}, lambda group: points)
        self.assertEqual((one.reference, one.fault), ("tests.test_plugins:first", ""))
        self.assertEqual(two.fault, "the name is that of tests.test_plugins:first already")


first = second = object()
