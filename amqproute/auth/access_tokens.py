# SPDX-License-Identifier: Apache-2.0
"""Access tokens: secrets by which programs act as a user, for some operations and some time.

A token is ``amqproute_ID_SECRET``. The secret has 256 random bits, so that a plain hash of it
cannot be reversed; only the hash is stored, in the file ``tokens.json`` of the state directory
(mode 0600), and the token is shown once, to its maker. It is found by its id and compared in
constant time. What it may do is what its user may do, within its scope
(`amqproute.auth.token_scope`).

Changes are made one after the other, each written and synced in a thread, and answered after that.
A new token is good from then on. One that is revoked is refused as soon as its turn comes, and is
good again if the change cannot be stored.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from amqproute.auth.file_replacement import replace_file
from amqproute.auth.token_scope import TokenScope
from amqproute.errors import ConfigError
from amqproute.jsontext import parse_json
from amqproute.values import Principal

__all__ = [
    "LONGEST_LIFETIME_SECONDS",
    "MOST_OF_PRINCIPAL",
    "MOST_TOKENS",
    "MOST_WAITING",
    "OWN_PREFIX",
    "AccessToken",
    "AccessTokens",
    "TokenRefused",
    "principal_named",
]

FILE: Final = "tokens.json"
MOST_TOKENS: Final = 1000
MOST_OF_PRINCIPAL: Final = 100
MOST_WAITING: Final = 100
"""Changes that wait for the one that is being stored."""
LONGEST_LIFETIME_SECONDS: Final = 10 * 365 * 86400
LONGEST_NAME: Final = 64
OWN_PREFIX: Final = "amqproute_"
"""How every token begins, unlike those of issuers."""
_TOKEN: Final = re.compile(r"amqproute_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


_T = TypeVar("_T")


class TokenRefused(Exception):
    """A token cannot be made or revoked; the text says why."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, without its secret.

    Attributes:
        id: by which it is listed and revoked.
        name: what it is for, as text.
        principal: the user whose rights it has.
        scope: the operations that it allows.
        created_ms: ms since the epoch.
        expires_ms: likewise.
        by: the maker.
        digest: SHA-256 of the secret, hexadecimal.
    """

    id: str
    name: str
    principal: Principal
    scope: TokenScope
    created_ms: int
    expires_ms: int
    by: str
    digest: str

    def row(self, now_ms: int, used_ms: int | None = None) -> dict[str, object]:
        """Return the attributes for operators."""
        return {
            "name": self.id,
            "type": "token",
            "purpose": self.name,
            "principal": str(self.principal),
            "scope": list(self.scope.words),
            "state": "expired" if now_ms >= self.expires_ms else "valid",
            "created-ms": self.created_ms,
            "expires-ms": self.expires_ms,
            "by": self.by,
            "used-ms": used_ms,
        }


class AccessTokens:
    """The tokens of a daemon.

    Args:
        directory: the directory of the state.
        now_ms: the wall clock, ms since the epoch.
        in_thread: runs a function that blocks; the Deferred fires in the reactor.
        random_bytes: the bytes for ids and secrets.

    Raises:
        ConfigError: the file cannot be read or is damaged.
    """

    def __init__(
        self,
        directory: Path,
        now_ms: Callable[[], int],
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._path = directory / FILE
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._random_bytes = random_bytes
        self._used: dict[str, int] = {}
        self._tokens = _read(self._path)
        self._changing = DeferredLock()
        self._revoking: str | None = None

    def __len__(self) -> int:
        return len(self._tokens)

    def create(
        self, name: str, principal: Principal, scope: TokenScope, lifetime_seconds: int, by: str
    ) -> Deferred[tuple[AccessToken, str]]:
        """Make a token.

        Returns:
            A Deferred of it and its text, which is not stored. It fires when the token is on disk,
            and fails with `TokenRefused` if there are too many, or it cannot be stored.
        """
        making = partial(self._create, name, principal, scope, lifetime_seconds, by)
        return self._in_turn(lambda: Deferred.fromCoroutine(making()))

    def revoke(self, token_id: str) -> Deferred[AccessToken | None]:
        """Revoke a token.

        Returns:
            A Deferred of it, or None if there is none with this id. It fires when it is gone from
            the disk, and fails with `TokenRefused` if the change cannot be stored.
        """
        return self._in_turn(lambda: Deferred.fromCoroutine(self._revoke(token_id)))

    def _in_turn(self, change: Callable[[], Deferred[_T]]) -> Deferred[_T]:
        """Make a change after those before it, also if its caller does not wait for it any more."""
        answer: Deferred[_T] = Deferred()
        if len(self._changing.waiting) >= MOST_WAITING:
            answer.errback(TokenRefused("too many tokens are being changed: ask again later"))
            return answer
        self._changing.run(change).addCallbacks(answer.callback, answer.errback)
        return answer

    async def _create(
        self, name: str, principal: Principal, scope: TokenScope, lifetime_seconds: int, by: str
    ) -> tuple[AccessToken, str]:
        now_ms = self._now_ms()
        kept = {key: each for key, each in self._tokens.items() if each.expires_ms > now_ms}
        if len(kept) >= MOST_TOKENS:
            raise TokenRefused(f"there are {MOST_TOKENS} tokens already: revoke some")
        if sum(each.principal == principal for each in kept.values()) >= MOST_OF_PRINCIPAL:
            raise TokenRefused(f"{principal} has {MOST_OF_PRINCIPAL} tokens: revoke some")
        token_id = self._random_bytes(6).hex()
        secret = secrets.token_urlsafe(32)
        token = AccessToken(
            token_id,
            name,
            principal,
            scope,
            now_ms,
            now_ms + lifetime_seconds * 1000,
            by,
            _digest(secret),
        )
        await self._store({**kept, token_id: token})
        return token, f"amqproute_{token_id}_{secret}"

    async def _revoke(self, token_id: str) -> AccessToken | None:
        if token_id not in self._tokens:
            return None
        left = dict(self._tokens)
        token = left.pop(token_id)
        self._revoking = token_id
        try:
            await self._store(left)
        finally:
            self._revoking = None
        return token

    def find(self, text: str) -> AccessToken | None:
        """Return the valid token with this text; None for any other text."""
        match = _TOKEN.fullmatch(text)
        token = None if match is None else self._tokens.get(match[1])
        digest = _digest("" if match is None else match[2])
        wanted = "0" * 64 if token is None else token.digest
        if not hmac.compare_digest(digest, wanted) or token is None or token.id == self._revoking:
            return None
        now_ms = self._now_ms()
        if now_ms >= token.expires_ms:
            return None
        self._used[token.id] = now_ms
        return token

    def get(self, token_id: str) -> AccessToken | None:
        """Return the token with an id; None without one."""
        return self._tokens.get(token_id)

    def rows(self) -> list[dict[str, object]]:
        """Return the attributes of all tokens, for operators."""
        now_ms = self._now_ms()
        return [each.row(now_ms, self._used.get(key)) for key, each in sorted(self._tokens.items())]

    async def _store(self, tokens: dict[str, AccessToken]) -> None:
        try:
            await self._in_thread(partial(_write, self._path, tokens))
        except OSError as error:
            words = f"cannot write {self._path}: {error.strerror or error}"
            raise TokenRefused(words) from error
        self._tokens = tokens
        self._used = {key: used for key, used in self._used.items() if key in tokens}


def principal_named(text: str) -> Principal:
    """Return the principal that a text names, as in ``user:ann``.

    Raises:
        ValueError: it names none that can have a token.
    """
    kind, colon, name = text.partition(":")
    if not colon or not 0 < len(name) <= 255 or not name.isprintable() or "*" in name:
        raise ValueError(f"{text[:64]!r} is no principal; write user:NAME")
    if kind == "user":
        return Principal("user", name)
    if kind == "uid" and name.isascii() and name.isdigit():
        return Principal("uid", name)
    if kind == "peer":
        return Principal("peer", name.lower(), frozenset({name.lower()}))
    raise ValueError(f"{text[:64]!r} is no principal; write user:NAME, uid:NUMBER or peer:DOMAIN")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(path: Path) -> dict[str, AccessToken]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    try:
        facts = parse_json(text)
        return {key: _token(key, each) for key, each in facts["tokens"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = f"{path}: is damaged ({error}); remove it, and all tokens with it"
        raise ConfigError([words]) from error


# Any: a value of the file, of whatever type stands there.
def _token(token_id: str, facts: Mapping[str, Any]) -> AccessToken:
    return AccessToken(
        token_id,
        str(facts["name"]),
        principal_named(facts["principal"]),
        TokenScope.of(facts["scope"]),
        int(facts["created-ms"]),
        int(facts["expires-ms"]),
        str(facts["by"]),
        str(facts["digest"]),
    )


def _write(path: Path, tokens: Mapping[str, AccessToken]) -> None:
    plain = {
        key: {
            "name": each.name,
            "principal": str(each.principal),
            "scope": list(each.scope.words),
            "created-ms": each.created_ms,
            "expires-ms": each.expires_ms,
            "by": each.by,
            "digest": each.digest,
        }
        for key, each in tokens.items()
    }
    replace_file(path, json.dumps({"tokens": plain}, indent=1).encode())
