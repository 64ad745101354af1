# SPDX-License-Identifier: Apache-2.0
"""Tables that are read in the order of their names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.name_table import NameTable, count_names, names_behind

NAMES = st.text("ab/", min_size=1, max_size=4)


class NameTableTests(SynchronousTestCase):
    """The order follows every change."""

    @given(st.lists(st.tuples(st.sampled_from(["set", "del", "pop", "look"]), NAMES)))
    def test_changes(self, changes: list[tuple[str, str]]) -> None:
        """Whatever comes and goes, the order is that of the sorted names."""
        table: NameTable[int] = NameTable()
        model: dict[str, int] = {}
        for number, (change, name) in enumerate(changes):
            if change == "set":
                table[name] = model[name] = number
            elif change == "pop":
                self.assertEqual(table.pop(name, None), model.pop(name, None))
            elif change == "look":
                self.assertEqual(table.order, sorted(model))
            elif name in model:
                del table[name], model[name]
            else:
                with self.assertRaises(KeyError):
                    del table[name]
        self.assertEqual(table, model)
        self.assertEqual(table.order, sorted(model))

    def test_refused(self) -> None:
        """No other way of changing it, which the order would miss."""
        table: NameTable[int] = NameTable()
        table["a"] = 1
        for change in (
            lambda: table.update({"b": 2}),
            lambda: table.setdefault("b", 2),
            table.clear,
            table.popitem,
            lambda: table.__ior__({"b": 2}),
        ):
            with self.assertRaises(TypeError):
                change()
        with self.assertRaises(KeyError):
            table.pop("b")
        self.assertEqual((dict(table), table.order), ({"a": 1}, ["a"]))

    @given(st.sets(NAMES), NAMES | st.none(), st.text("ab/", max_size=3), st.booleans())
    def test_parts(self, names: set[str], name: str | None, prefix: str, inside: bool) -> None:
        """Parts and numbers are those that a look at every name gives."""
        order = sorted(names)
        fitting = [each for each in order if each.startswith(prefix) is inside]
        self.assertEqual(count_names(order, prefix, is_inside=inside), len(fitting))
        behind = [each for each in fitting if name is None or each > name]
        self.assertEqual(list(names_behind(order, name, prefix, is_inside=inside)), behind)
