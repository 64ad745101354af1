# SPDX-License-Identifier: Apache-2.0
"""Lines and records of the journal."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import record
from amqproute.journal.record import FIELDS, GENESIS, RUN_FIELDS, InvalidLine, RecordKind

_VALUES = {
    "string": st.text(max_size=20),
    "long": st.integers(0, 2**63 - 1),
    "int": st.integers(0, 2**31 - 1),
    "boolean": st.booleans(),
}


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, int, dict[str, object], dict[str, list[object]]]:
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.sampled_from(RUN_FIELDS), unique=True, max_size=8))
    shared: dict[str, object] = {}
    columns: dict[str, list[object]] = {}
    for name in names:
        value = st.none() | _VALUES[FIELDS[name]]
        if draw(st.booleans()):
            shared[name] = draw(value)
        else:
            columns[name] = draw(st.lists(value, min_size=count, max_size=count))
    return draw(st.sampled_from(list(RecordKind))), count, shared, columns


def tail(
    kind: str, count: int, shared: object = None, columns: object = None, seq: int = 7
) -> bytes:
    return record.tail(
        kind, "00ff00ff00ff00ff", "mx.a.example", "a.example", "s", seq, count, 1_700_000_000_000_000,  # noqa: E501
        shared or {}, columns or {},  # type: ignore[arg-type]
    )  # fmt: skip


class LineTests(SynchronousTestCase):
    """Lines are read as written; changes are noticed."""

    @given(runs())
    def test_round_trip(
        self, run: tuple[str, int, dict[str, object], dict[str, list[object]]]
    ) -> None:
        """Each record of a run has the shared values and its own, and a sequence of its own."""
        kind, count, shared, columns = run
        own, octets = record.chained(GENESIS, tail(kind, count, shared, columns))
        self.assertTrue(octets.endswith(b"}\n"))
        self.assertEqual(octets.count(b"\n"), 1)
        line = record.read_line(octets, GENESIS)
        self.assertEqual((line.hash, line.kind, line.count), (own, kind, count))
        records = list(line.records())
        self.assertEqual([each.seq for each in records], list(range(7, 7 + count)))
        for i, each in enumerate(records):
            for name in RUN_FIELDS:
                value = columns[name][i] if name in columns else shared.get(name)
                self.assertEqual(getattr(each, name), value)
        self.assertEqual(records[0].event_id, "00ff00ff00ff00ff-7")

    @given(runs(), st.data())
    def test_change(
        self, run: tuple[str, int, dict[str, object], dict[str, list[object]]], data: st.DataObject
    ) -> None:
        """After a change of any octet the line does not follow any more."""
        kind, count, shared, columns = run
        _, octets = record.chained(GENESIS, tail(kind, count, shared, columns))
        place = data.draw(st.integers(0, len(octets) - 2))
        other = bytes([octets[place] ^ data.draw(st.integers(1, 255))])
        changed = octets[:place] + other + octets[place + 1 :]
        self.assertRaises(InvalidLine, record.read_line, changed, GENESIS)

    def test_other_predecessor(self) -> None:
        """A line that stands behind another one than before does not follow."""
        first, _ = record.chained(GENESIS, tail(RecordKind.START, 1))
        _, second = record.chained(first, tail(RecordKind.STOP, 1, seq=8))
        record.read_line(second, first)
        self.assertRaises(InvalidLine, record.read_line, second, GENESIS)
        record.read_line(second)  # nobody asked for the chain

    def test_torn(self) -> None:
        """Every beginning of a line is told from a line."""
        _, octets = record.chained(
            GENESIS, tail(RecordKind.RECEIVED, 2, {"node": "q"}, {"entry": [1, 2]})
        )
        for length in range(len(octets) - 1):
            self.assertRaises(InvalidLine, record.read_line, octets[:length])

    def test_form(self) -> None:
        """JSON that is no line is refused with the reason."""
        good = json.loads(b"{" + tail(RecordKind.START, 1))
        for change, words in (
            ({"v": 2}, "schema version 2"),
            ({"v": True}, "no version"),
            ({"seq": "7"}, "'seq'"),
            ({"n": 0}, "'n'"),
            ({"all": []}, "'all'"),
            ({"each": {"entry": [1, 2]}}, "'entry' does not have 1"),
        ):
            text = json.dumps({**good, **change}, separators=(",", ":"))[1:].encode()
            _, octets = record.chained(GENESIS, text)
            error = self.assertRaises(InvalidLine, record.read_line, octets, GENESIS)
            self.assertIn(words, str(error))

    def test_deep(self) -> None:
        """Deeply nested JSON is refused like any other."""
        deep = tail(RecordKind.START, 1)[:-1] + b',"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
        _, octets = record.chained(GENESIS, deep)
        self.assertRaises(InvalidLine, record.read_line, octets, GENESIS)

    def test_unknown_field(self) -> None:
        """A field of a later release is passed over."""
        _, octets = record.chained(GENESIS, tail(RecordKind.START, 1, {"weather": "fine"}))
        (only,) = record.read_line(octets).records()
        self.assertEqual(only.kind, "start")


class ModuleTests(SynchronousTestCase):
    """The module can be used where no broker is."""

    def test_standard_library(self) -> None:
        """It imports nothing but the standard library."""
        tree = ast.parse(Path(record.__file__).read_text())
        names = {
            name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else
                         [alias.name for alias in node.names])
        }  # fmt: skip
        self.assertEqual(names - set(sys.stdlib_module_names), set())

    def test_kinds(self) -> None:
        """A kind begins an entry or ends it, not both, and every field has a type."""
        self.assertEqual(record.BEGINS & record.ENDS, frozenset())
        self.assertEqual(set(FIELDS.values()), {"string", "long", "int", "boolean"})


class DocumentTests(SynchronousTestCase):
    """``docs/journal.md`` says what there is."""

    def test_kinds_and_fields(self) -> None:
        """Every kind and every field has a row, with its type, and nothing else has one."""
        text = (Path(record.__file__).parents[2] / "docs" / "journal.md").read_text()
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
        kinds = [row[0].strip("| `") for row in rows if len(row) == 2]
        fields = {row[0].strip("| `"): row[1] for row in rows if len(row) == 3}
        self.assertEqual(
            [kind for kind in kinds if " " not in kind], [str(kind) for kind in RecordKind]
        )
        self.assertEqual(fields, dict(FIELDS))
