# SPDX-License-Identifier: Apache-2.0
"""The users file: names and salted SCRAM keys, never a password.

    ann:
      mechanism: SCRAM-SHA-256
      iterations: 15000
      salt: base64
      stored-key: base64
      server-key: base64

`add_user` and `remove_user` (behind ``amqproute user``) rewrite the whole file: into a temporary
file in the same directory, forced to disk, renamed over the old one. A lock on the directory keeps
concurrent changes from overwriting each other. Other users are unchanged; comments are lost.

The file is protected from other users, because stored keys allow offline guessing. A new file gets
mode 0640 and its directory's group if possible, else 0600, so that root can write a file that the
daemon's user can read; an existing one keeps its owner, group and mode, without the permissions of
"others".

`UserFile` is the daemon's view: read at start and on reload, then served from memory.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml
from twisted.logger import Logger

from amqproute.auth.file_replacement import replace_file
from amqproute.errors import ConfigError
from amqproute.wire.sasl_mechanisms import (
    MAX_NAME_BYTES,
    SCRAM_ITERATIONS,
    SCRAM_SHA_256,
    ScramSecret,
    decoy_secret,
    prepare,
)

__all__ = [
    "MAX_FILE_BYTES",
    "SALT_BYTES",
    "UserFile",
    "add_user",
    "check_user_name",
    "remove_user",
]

log = Logger()

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""A larger file is refused: it is not a users file, or a directory service would serve better."""

SALT_BYTES: Final = 16
"""Random bytes in a new salt (RFC 5802 sets no length; the example in RFC 7677 has 16)."""

_HEADER: Final = "# Users of amqproute. Change it with `amqproute user`; comments are not kept.\n"

_KEYS: Final = ("mechanism", "iterations", "salt", "stored-key", "server-key")

_FORBIDDEN_IN_NAMES: Final = frozenset("*?[]{}:/\\,\"'#")
"""Characters with another meaning in an access rule, a URL or the file itself."""

# The parser in C is ten times faster and reports line numbers too; not every build has it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_user_name(name: str) -> str:
    """Return the prepared form of a new user's name, under which it is stored.

    Raises:
        ValueError: the name is not valid; the text says why.
    """
    try:
        prepared = prepare(name)
    except ValueError as error:
        raise ValueError(f"the user name {name!r} cannot be used: {error}") from error
    if not prepared:
        raise ValueError("the user name is empty")
    if len(prepared.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"the user name is longer than {MAX_NAME_BYTES} bytes")
    if prepared.startswith("-"):
        raise ValueError(f"the user name {name!r} begins with a hyphen, like an option")
    for character in prepared:
        if character in _FORBIDDEN_IN_NAMES or character.isspace() or not character.isprintable():
            raise ValueError(f"the user name {name!r} contains {character!r}, which is not allowed")
    return prepared


class UserFile:
    """The users known to the daemon.

    Attributes:
        path: the users file.
    """

    __slots__ = ("_secrets", "_usual_iterations", "path")

    def __init__(self, path: Path, users: Mapping[str, ScramSecret]) -> None:
        self.path = path
        self._take(users)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> UserFile:
        """Read the file.

        Raises:
            ConfigError: the file cannot be read or is not valid; one problem a line.
        """
        return cls(Path(path), _read(Path(path)))

    def reload(self) -> None:
        """Read the file again; every holder of this object sees the new users.

        Raises:
            ConfigError: as `load`; the old users stay in force.
        """
        self._take(_read(self.path))

    def adopt(self, other: UserFile) -> None:
        """Take over the file and the users of `other`; every holder of this object sees them."""
        self.path = other.path
        self._take(other._secrets)

    def __len__(self) -> int:
        return len(self._secrets)

    def __repr__(self) -> str:
        return f"<UserFile {str(self.path)!r} {len(self)} users>"

    @property
    def names(self) -> tuple[str, ...]:
        """All user names, sorted."""
        return tuple(sorted(self._secrets))

    @property
    def entries(self) -> Mapping[str, ScramSecret]:
        """The users as they are now; a reload makes another mapping."""
        return MappingProxyType(self._secrets)

    @property
    def usual_iterations(self) -> int:
        """The iteration count that most users have; decoys use it."""
        return self._usual_iterations

    def lookup(self, name: str) -> ScramSecret | None:
        """Return a user's secret by the prepared form of the name."""
        return self._secrets.get(name)

    def verify(self, name: str, password: str) -> bool:
        """Return whether this is the user's password. Takes milliseconds: call it in a thread.

        An unknown user takes as long.
        """
        try:
            name = prepare(name)
        except ValueError:
            return False
        secret = self._secrets.get(name)
        if secret is None:
            decoy_secret(name, bytes(32), self._usual_iterations).matches(password)
            return False
        return secret.matches(password)

    def _take(self, users: Mapping[str, ScramSecret]) -> None:
        counts = Counter(secret.iterations for secret in users.values())
        self._usual_iterations = counts.most_common(1)[0][0] if counts else SCRAM_ITERATIONS
        # One assignment: `verify` reads this in another thread.
        self._secrets = dict(users)


def add_user(
    path: str | os.PathLike[str],
    name: str,
    password: str,
    *,
    iterations: int = SCRAM_ITERATIONS,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> bool:
    """Add a user or change a user's password; create the file if it does not exist.

    Returns:
        True if the user is new, False if the password was changed.

    Raises:
        ValueError: the name or the password cannot be used.
        ConfigError: the existing file is not valid; it is left unchanged.
        OSError: the file cannot be written.
    """
    name = check_user_name(name)
    secret = ScramSecret.derive(password, salt=random_bytes(SALT_BYTES), iterations=iterations)
    target = Path(os.path.realpath(path))
    with _locked(target.parent):
        users = _read(target) if target.exists() else {}
        is_new = name not in users
        users[name] = secret
        _write(target, users)
    return is_new


def remove_user(path: str | os.PathLike[str], name: str) -> bool:
    """Remove a user; return False if no user has this name.

    Raises:
        ConfigError: the file cannot be read or is not valid; it is left unchanged.
        OSError: the file cannot be written.
    """
    try:
        name = prepare(name)
    except ValueError:
        return False
    target = Path(os.path.realpath(path))
    with _locked(target.parent):
        users = _read(target)
        if users.pop(name, None) is None:
            return False
        _write(target, users)
    return True


def _read(path: Path) -> dict[str, ScramSecret]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            [f"{path}: users.file: {error.strerror} (create it with `amqproute user add`)"]
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([f"{path}: users.file: larger than {MAX_FILE_BYTES} bytes"])
    if mode & stat.S_IRWXO:
        log.warn("users file {path} is open to every user of this machine (chmod o= it)", path=path)
    try:
        root = yaml.compose(data, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "is not YAML"
        raise ConfigError([f"{path}{line}: {problem}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: nested too deeply for a users file"]) from error
    return _Reading(path).users(root)


class _Reading:
    """One pass over the nodes of the file that collects every problem."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: list[str] = []

    def users(self, root: yaml.Node | None) -> dict[str, ScramSecret]:
        users: dict[str, ScramSecret] = {}
        if root is not None:
            for name, node in self._entries(root, "").items():
                secret = self._user(name, node)
                if secret is not None:
                    users[name] = secret
        if self._problems:
            raise ConfigError(self._problems)
        return users

    def _problem(self, node: yaml.Node, key: str, text: str) -> None:
        where = f"{self._path}:{node.start_mark.line + 1}"
        self._problems.append(f"{where}: {key}: {text}" if key else f"{where}: {text}")

    def _entries(self, node: yaml.Node, key: str) -> dict[str, yaml.Node]:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null" and not key:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, key, "has to be a mapping (of user names at the top)")
            return {}
        found: dict[str, yaml.Node] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                self._problem(name, key, "a key has to be text")
            elif name.value in found:
                self._problem(name, f"{key}.{name.value}".lstrip("."), "appears twice")
            else:
                found[name.value] = value
        return found

    def _user(self, name: str, node: yaml.Node) -> ScramSecret | None:
        before = len(self._problems)
        try:
            if check_user_name(name) != name:
                self._problem(node, name, f"write it as {prepare(name)!r} (RFC 4013)")
        except ValueError as error:
            self._problem(node, name, str(error))
        entries = self._entries(node, name)
        for key in entries.keys() - set(_KEYS):
            self._problem(entries[key], f"{name}.{key}", f"unknown (known: {', '.join(_KEYS)})")
        missing = [key for key in _KEYS if key not in entries]
        if missing and isinstance(node, yaml.MappingNode):
            self._problem(node, name, f"{', '.join(missing)} missing")
        if len(self._problems) > before:
            return None
        return self._secret(name, node, entries)

    def _secret(
        self, name: str, node: yaml.Node, entries: dict[str, yaml.Node]
    ) -> ScramSecret | None:
        before = len(self._problems)
        if entries["mechanism"].value != SCRAM_SHA_256:
            self._problem(entries["mechanism"], f"{name}.mechanism", f"has to be {SCRAM_SHA_256}")
        iterations = self._number(entries["iterations"], f"{name}.iterations")
        salt, stored, server = (
            self._binary(entries[key], f"{name}.{key}")
            for key in ("salt", "stored-key", "server-key")
        )
        if len(self._problems) > before:
            return None
        try:
            return ScramSecret(iterations, salt, stored, server)
        except ValueError as error:
            self._problem(node, name, str(error))
            return None

    def _number(self, node: yaml.Node, key: str) -> int:
        text = node.value
        # Nine digits: longer numbers are refused anyway, and int() is slow on thousands of digits.
        if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        self._problem(node, key, "has to be a number")
        return 0

    def _binary(self, node: yaml.Node, key: str) -> bytes:
        if isinstance(node, yaml.ScalarNode):
            try:
                return base64.b64decode(node.value, validate=True)
            except (binascii.Error, ValueError):
                pass  # reported below, as is a value that is not text
        self._problem(node, key, "has to be base64")
        return b""


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock on the directory, so that no lock file is needed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, users: Mapping[str, ScramSecret]) -> None:
    """Replace the file; the caller holds the lock."""
    plain = {
        name: {
            "mechanism": SCRAM_SHA_256,
            "iterations": secret.iterations,
            "salt": base64.b64encode(secret.salt).decode(),
            "stored-key": base64.b64encode(secret.stored_key).decode(),
            "server-key": base64.b64encode(secret.server_key).decode(),
        }
        for name, secret in sorted(users.items())
    }
    text = _HEADER + (yaml.safe_dump(plain, sort_keys=False, allow_unicode=True) if plain else "")
    replace_file(path, text.encode(), lambda descriptor: _set_access(descriptor, path))


def _set_access(descriptor: int, path: Path) -> None:
    """Give a new file the owner, group and mode described in the module's docstring."""
    mine = os.fstat(descriptor)
    try:
        old = path.stat()
        uid, gid, mode = old.st_uid, old.st_gid, stat.S_IMODE(old.st_mode) & ~stat.S_IRWXO
    except FileNotFoundError:
        uid, gid, mode = mine.st_uid, path.parent.stat().st_gid, 0o640
    if (uid, gid) != (mine.st_uid, mine.st_gid):
        try:
            os.fchown(descriptor, uid, gid)
        except PermissionError:
            # Not root and not a member of that group: closed is better than open to the wrong
            # group.
            mode &= ~stat.S_IRWXG
    os.fchmod(descriptor, mode | stat.S_IRUSR | stat.S_IWUSR)
