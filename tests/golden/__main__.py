# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.golden [MODULE...]``: rewrite the golden files, all or those of modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.golden.compare import DATA, WRITE

MODULES = ("test_wire", "test_schema", "test_commands", "test_daemons")


def main() -> None:
    """Run the tests with leave to write; show what has become of the files."""
    modules = [f"tests.golden.{name}" for name in sys.argv[1:] or MODULES]
    done = subprocess.run(
        [sys.executable, "-m", "twisted.trial", "--temp-directory=_trial_temp.golden", *modules],
        env={**os.environ, WRITE: "write"},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    subprocess.run(["git", "status", "--short", str(DATA)], check=False)
    subprocess.run(["git", "--no-pager", "diff", "--stat", str(DATA)], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
