# SPDX-License-Identifier: Apache-2.0
"""Output, journals and stores of two daemons in a fixed course (`tests.golden.course`)."""

from __future__ import annotations

from tests.golden.compare import GoldenCase, compared
from tests.golden.course import Course


class CourseTests(GoldenCase):
    """One course, many files."""

    def test_course(self) -> None:
        """Output of commands as JSON, rows of both stores, lines of both journals."""
        course = Course()
        self.addCleanup(course.close)
        course.run()
        files = {f"json/{name}.txt": "\n".join(printed) for name, printed in course.printed.items()}
        for daemon in course.daemons:
            short = daemon.name.partition(".")[0]
            files[f"state/{short}-store.txt"] = course.store(daemon)
            files[f"state/{short}-journal.txt"] = course.journal(daemon)
        differences = [compared(name, text) for name, text in files.items()]
        if any(differences):
            self.fail("\n".join(filter(None, differences)))
        for daemon in course.daemons:
            daemon.check()
