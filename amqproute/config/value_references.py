# SPDX-License-Identifier: Apache-2.0
"""References in values: ``${NAME}`` to the environment, and ``%d/NAME`` to a systemd credential.

Only values have references, never keys. ``$${`` is the text ``${``. There are no defaults, as in
shells: a variable that is not set is a problem, since a forgotten one must not become an empty
password.

``%d`` is what it is in systemd's units: the directory of the unit's credentials
(``LoadCredential=``, systemd.exec(5)), which the service manager names in
``$CREDENTIALS_DIRECTORY``. Where the variable is not set, as in an operator's shell, or the
directory cannot be entered, the path stays as written (`is_unresolved`): commands that do not need
the file work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

__all__ = [
    "CREDENTIALS",
    "CREDENTIALS_VARIABLE",
    "credential",
    "credentials_directory",
    "has_reference",
    "is_unresolved",
    "resolved",
]

CREDENTIALS: Final = "%d/"
CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^{}\n]{0,256})(\}?)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def has_reference(text: str) -> bool:
    """Return whether a value has something to resolve."""
    return "${" in text


def resolved(
    text: str, environ: Mapping[str, str], complain: Callable[[str], None]
) -> tuple[str, dict[str, str]]:
    """Return a value with the variables that it refers to.

    Args:
        text: the text as written.
        environ: the environment.
        complain: called with each problem.

    Returns:
        The value, and the variables in it.
    """
    used: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = match[1]
        if not match[2] or _NAME.fullmatch(name) is None:
            complain(
                f"{match[0]!r} does not name an environment variable; write ${{NAME}}, or $${{ for "
                "the text ${"
            )
            return ""
        if name not in environ:
            complain(
                f"there is no environment variable {name}; set it where this program is started, "
                "or write $${ for the text ${"
            )
            return ""
        value = environ[name]
        if "\0" in value or not _is_text(value):
            complain(f"the environment variable {name} is not UTF-8 text")
            return ""
        used[name] = value
        return value

    return _REFERENCE.sub(replaced, text), used


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # octets that are not UTF-8
        return False
    return True


def credentials_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the directory of the unit's credentials; None where it is not known or not to be seen.

    It is not known outside of a unit that has some. systemd 252 names it to the commands of a
    reload, too, but does not let them enter it.
    """
    directory = environ.get(CREDENTIALS_VARIABLE)
    if not directory:
        return None
    try:
        os.stat(f"{directory}/.")
    except PermissionError:
        return None
    except OSError:  # what is named in it will be missed
        pass
    return Path(directory)


def credential(text: str, directory: Path | None) -> Path:
    """Return the path of a credential, ``%d/NAME``.

    Args:
        text: the text as written.
        directory: the directory of the credentials; None if it is not known.

    Raises:
        ValueError: it is not the name of one.
    """
    name = text.removeprefix(CREDENTIALS)
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(
            f"{text!r} is not a credential; write %d/NAME, with the NAME in the unit's "
            "LoadCredential="
        )
    return Path(text) if directory is None else directory / name


def is_unresolved(path: Path) -> bool:
    """Return whether a path is that of a credential whose directory is not known."""
    return path.parts[:1] == ("%d",)
