# SPDX-License-Identifier: Apache-2.0
"""A tiny distribution with entry points, as a wheel, installed into a directory."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

COLOR_FILTER = """
from amqproute.errors import InvalidField


class ColorFilter:
    needs = frozenset({"application"})

    def __init__(self, color):
        self.color = color

    def matches(self, message, origin=None):
        if self.color == "broken":
            raise RuntimeError("no such color")
        return self.color.encode() in bytes(message.encoded)


class ColorKind:
    descriptor = "acme.example:color-filter:string"
    code = 0x00ACE00000000001
    capability = "ACME.EXAMPLE:COLOR"

    def make(self, name, value, own_container, now_ms):
        if value == "fail":
            raise LookupError("the maker fails")
        if not isinstance(value, str):
            raise InvalidField("a color is a text", info={"code": "filter.value"})
        return ColorFilter(value)


COLOR = ColorKind()
"""

REALM_KINDS = """
from twisted.internet.defer import Deferred, succeed

from amqproute.auth.outside_realm import CredentialsRefused, RealmUnavailable
from amqproute.auth.realm_kinds import SettingsRefused
from amqproute.wire.sasl_mechanisms import OutsideIdentity


class StaffRealm:
    def __init__(self, passwords):
        self.passwords = passwords
        self.is_stopped = False

    def verify(self, name, password):
        if name.endswith("slow"):
            return Deferred()
        if name.endswith("broken"):
            raise LookupError("no such table")
        if name.endswith("odd"):
            return succeed("yes")
        if self.passwords.get(name) != password:
            raise CredentialsRefused("the staff does not know it")
        return succeed(OutsideIdentity(name, "", frozenset({"staff"}), account=name))

    def recheck(self, account):
        if account not in self.passwords:
            raise CredentialsRefused("the account is closed")
        return succeed(OutsideIdentity(account, "", frozenset({"staff"}), account=account))

    def probe(self):
        return succeed("")

    def stop(self):
        self.is_stopped = True


class StaffKind:
    interface = 1
    verifies = "passwords"

    def prepare(self, settings):
        if settings.get("fail"):
            raise LookupError("the check fails")
        wrong = [((key,), "is no text") for key, each in settings.items() if each is None]
        if wrong:
            raise SettingsRefused(wrong)
        return dict(settings)

    def make(self, prepared, surroundings):
        if "incomplete" in prepared:
            return object()
        return StaffRealm(prepared.get("passwords", {}))


class PapersRealm:
    hint = {}

    def __init__(self, issuer):
        self.issuer = issuer

    def verify(self, token):
        return succeed(OutsideIdentity(token.rpartition(".")[2], "", expires=1e12))

    def probe(self):
        raise RealmUnavailable("no papers today")

    def stop(self):
        pass


class PapersKind:
    interface = 1
    verifies = "tokens"

    def prepare(self, settings):
        return settings["issuer"]

    def make(self, prepared, surroundings):
        return PapersRealm(prepared)


class LaterKind(StaffKind):
    interface = 2


STAFF, GUESTS, PAPERS, LATER = StaffKind(), StaffKind(), PapersKind(), LaterKind()
"""


def install(
    directory: Path, name: str, modules: Mapping[str, str], points: Mapping[str, Mapping[str, str]]
) -> Callable[[], None]:
    """Make a wheel, unpack it as an installer does, and put the directory on the path.

    Args:
        directory: where to install to.
        name: of the distribution.
        modules: the text of each module.
        points: by group, the object of each entry point by its name.

    Returns:
        What takes the directory off the path, and forgets the modules.
    """
    info = f"{name}-1.0.dist-info"
    files = {f"{module}.py": text for module, text in modules.items()}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in named.items())
        for group, named in points.items()
    )
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    sys.path.insert(0, str(directory))

    def remove() -> None:
        sys.path.remove(str(directory))
        for module in modules:
            sys.modules.pop(module, None)

    return remove
