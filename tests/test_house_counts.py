# SPDX-License-Identifier: Apache-2.0
"""The counts of the package's structure, on a package of four files."""

from __future__ import annotations

import textwrap
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.house_counts import circles, counts_of

FILES = {
    "__init__.py": '"""The package."""\n',
    "one.py": """
        # A comment.
        from __future__ import annotations
        from typing import TYPE_CHECKING, Any
        from collections.abc import Callable

        if TYPE_CHECKING:
            from package.two import Second

        class Shared:
            '''Says something.

            In three lines.
            '''

            def __init__(self, a: Callable[[], Any], b: Callable[[], None],
                         c: Callable[[], None], d: Callable[[], None]) -> None:
                self.a = a

            def take(self, second: Second, what: "list[Any]") -> Any: ...

            def _own(self, hidden: Any) -> None: ...
        """,
    "two.py": """
        from dataclasses import dataclass
        from package.one import Shared

        class Second:
            pass

        @dataclass
        class Values:
            a: int; b: int; c: int; d: int; e: int; f: int; g: int; h: int; i: int

        @dataclass
        class Holder:
            a: int; b: int; c: int; d: int; e: int; f: int; g: int; h: int; i: Second
        """,
    "inner/__init__.py": '"""Another package."""\n',
    "inner/two.py": "class Shared:\n    pass\n",
}


class CountTests(SynchronousTestCase):
    """Each figure with its list."""

    def test_counts(self) -> None:
        """Counted things, and others."""
        package = Path(self.mktemp()) / "package"
        for name, text in FILES.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        counts = counts_of(package)
        found = counts.found
        self.assertEqual(found["circles"], ["package.one, package.two"])
        self.assertEqual(found["class-names"], ["Shared: package.inner.two, package.one"])
        self.assertEqual(found["module-names"], ["two: package.inner.two, package.two"])
        self.assertEqual(found["upward-typing"], ["package.one: package.two"])
        self.assertEqual(
            found["constructors"],
            [
                "package.one.Shared: 4 arguments, 4 callbacks",
                "package.two.Holder: 9 arguments, 0 callbacks",
            ],
        )
        figures = counts.figures()
        self.assertEqual((figures["any-public"], figures["any"]), (3, 4))
        self.assertEqual((figures["callbacks"], figures["modules"]), (4, 5))
        self.assertEqual(figures["code"], 11 + 10 + 2)

    def test_circles(self) -> None:
        """Sets, not ways: two circles with a file in common are one."""
        graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"b", "d"}, "d": {"e"}, "e": set(), "f": {"f"}}
        self.assertEqual(circles(graph), [["a", "b", "c"]])
