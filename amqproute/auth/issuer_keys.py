# SPDX-License-Identifier: Apache-2.0
"""The public keys by which tokens of one issuer are verified (JWKS, RFC 7517).

They come from a file, or by discovery: ``ISSUER/.well-known/openid-configuration`` (OpenID Connect
Discovery 1.0 §4) names the issuer, which has to be the same, and the place of the keys. Keys are
fetched when the first token comes, and again after `REFRESH_SECONDS`. A token with an unknown key
has them fetched at once, since issuers rotate their keys; but not more often than every
`LEAST_SECONDS`, since everybody can make up tokens with unknown keys. Tokens that come meanwhile
wait for the same answer, and their number is bounded by the queue of log-ins.

If the keys cannot be fetched, the former ones serve for `STALE_SECONDS`; a key that the issuer has
withdrawn is out of use with the next successful fetch.

Taken are public keys for signatures: RSA of at least 2048 bits, EC and OKP. Symmetric keys have no
place in a public document and are passed over, as are keys of unknown types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.outside_realm import FetchFailed, RealmSurroundings, RealmUnavailable
from amqproute.jsontext import parse_json

__all__ = ["LEAST_SECONDS", "REFRESH_SECONDS", "STALE_SECONDS", "IssuerKeys", "is_safe_url"]

log = Logger()

REFRESH_SECONDS: Final = 3600.0
"""Age at which keys are fetched again."""
LEAST_SECONDS: Final = 30.0
"""Between two fetches."""
STALE_SECONDS: Final = 86400.0
"""Age beyond which keys that cannot be fetched again are used no more."""
MOST_KEYS: Final = 100
LONGEST_KID: Final = 256
LEAST_RSA_BITS: Final = 2048
WELL_KNOWN: Final = "/.well-known/openid-configuration"

ReadFile = Callable[[], bytes]


class IssuerKeys:
    """The keys of an issuer.

    Args:
        issuer: the issuer, an https URL unless there is a file.
        surroundings: clock and fetching.
        read_file: reads the document from a file instead; may raise `OSError`.
    """

    def __init__(
        self, issuer: str, surroundings: RealmSurroundings, read_file: ReadFile | None = None
    ) -> None:
        self._issuer = issuer
        self._surroundings = surroundings
        self._seconds = surroundings.clock.seconds
        self._read_file = read_file
        self._keys: list[Key] = []
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._trouble = ""
        self._waiting: list[Deferred[None]] | None = None

    def find(self, kid: str | None, algorithm: str) -> Deferred[Key | None]:
        """Return the key for a signature; None if the issuer has none.

        Args:
            kid: the key's id; None if the token names none.
            algorithm: the algorithm of the signature.

        Fails with `RealmUnavailable` if there are no keys and none can be had.
        """
        age = self._age
        if age is not None and age < REFRESH_SECONDS:
            key = self._find(kid, algorithm)
            if key is not None or not self._may_fetch:
                return succeed(key)
        return self._refreshed().addCallback(lambda _: self._find(kid, algorithm))

    def probe(self) -> Deferred[str]:
        """Return why the keys cannot be had; empty if they can. Fetches at most as tokens do."""
        if not self._may_fetch:
            return succeed(self._trouble)
        return self._refreshed().addBoth(lambda _: self._trouble)

    @property
    def _age(self) -> float | None:
        return None if self._read_at is None else self._seconds() - self._read_at

    @property
    def _may_fetch(self) -> bool:
        if self._waiting is not None:
            return True  # to wait for it is no fetch
        return self._tried_at is None or self._seconds() - self._tried_at >= LEAST_SECONDS

    def _find(self, kid: str | None, algorithm: str) -> Key | None:
        found = [key for key in self._keys if _fits(key, algorithm)]
        if kid is None:  # RFC 7515 leaves it out where there is one key
            return found[0] if len(found) == 1 else None
        return next((key for key in found if key.kid == kid), None)

    def _refreshed(self) -> Deferred[None]:
        """Fetch the keys, once for all that wait."""
        waiter: Deferred[None] = Deferred(self._given_up)
        if self._waiting is not None:
            self._waiting.append(waiter)
            return waiter
        if not self._may_fetch:
            self._conclude([waiter])
            return waiter
        self._waiting = [waiter]
        self._tried_at = self._seconds()
        fetched = maybeDeferred(self._fetch)
        fetched.addCallbacks(self._took, self._failed)
        fetched.addErrback(lambda failure: log.failure("taking an issuer's keys failed", failure))
        fetched.addBoth(self._fetched)
        return waiter

    def _fetched(self, _: object) -> None:
        waiting, self._waiting = self._waiting, None
        self._conclude(waiting or [])

    def _conclude(self, waiting: list[Deferred[None]]) -> None:
        age = self._age
        for waiter in waiting:
            if age is not None and age < STALE_SECONDS:
                waiter.callback(None)
            else:
                words = f"no keys of {self._issuer}: {self._trouble or 'nothing was fetched'}"
                waiter.errback(RealmUnavailable(words))

    def _given_up(self, waiter: Deferred[None]) -> None:
        if self._waiting is not None and waiter in self._waiting:
            self._waiting.remove(waiter)

    async def _document(self) -> bytes:
        if self._read_file is not None:
            try:
                return self._read_file()
            except OSError as error:
                raise FetchFailed(f"{error.filename}: {error.strerror}") from error
        fetch = self._surroundings.fetch
        place = self._issuer.removesuffix("/") + WELL_KNOWN
        configuration = _json_object(await fetch(place), place)
        if configuration.get("issuer") != self._issuer:
            raise FetchFailed(f"{place} is about another issuer")
        where = configuration.get("jwks_uri")
        if not isinstance(where, str) or not is_safe_url(where):
            raise FetchFailed(f"{place} names no jwks_uri that begins with https")
        return await fetch(where)

    def _fetch(self) -> Deferred[list[Key]]:
        async def keys() -> list[Key]:
            return _read_keys(await self._document())

        return Deferred.fromCoroutine(keys())

    def _took(self, keys: list[Key]) -> None:
        if self._trouble:
            log.info("the keys of {issuer} can be had again", issuer=self._issuer)
        before, after = ({key.kid for key in each} for each in (self._keys, keys))
        if self._keys and before != after:
            log.info(
                "the issuer {issuer} has changed its keys: {new} new, {gone} gone",
                issuer=self._issuer,
                new=len(after - before),
                gone=len(before - after),
            )
        self._trouble = ""
        self._keys, self._read_at = keys, self._seconds()

    def _failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, FetchFailed):
            log.failure("fetching the keys of {issuer} failed", failure, issuer=self._issuer)
        elif not self._trouble:
            log.error(
                "the keys of {issuer} cannot be fetched: {reason}",
                issuer=self._issuer,
                reason=str(failure.value),
            )
        self._trouble = str(failure.value) or repr(failure.value)


def is_safe_url(url: str) -> bool:
    """Return whether a URL is https, or http to this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or not url.isascii() or not url.isprintable():
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _json_object(octets: bytes, place: str) -> Mapping[str, object]:
    try:
        found = parse_json(octets)
    except ValueError as error:
        raise FetchFailed(f"{place} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise FetchFailed(f"{place} is no JSON object")
    return found


def _read_keys(document: bytes) -> list[Key]:
    """Return the usable keys of a key set.

    Raises:
        FetchFailed: it is none, or has none.
    """
    rows = _json_object(document, "the key set").get("keys")
    if not isinstance(rows, list):
        raise FetchFailed("the key set has no keys")
    keys = [key for key in map(_key, rows[:MOST_KEYS]) if key is not None]
    if not keys:
        raise FetchFailed("the key set has no public key for signatures of a known type")
    return keys


def _key(row: object) -> Key | None:
    if not isinstance(row, dict) or row.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    kid = row.get("kid")
    if row.get("use", "sig") != "sig" or "d" in row:
        return None
    if kid is not None and not (isinstance(kid, str) and len(kid) <= LONGEST_KID):
        return None
    try:
        key = import_key(row)
        if isinstance(key, RSAKey) and key.public_key.key_size < LEAST_RSA_BITS:
            return None
    except (JoseError, ValueError, TypeError, KeyError) as error:
        log.warn("a key of a key set is passed over: {error}", error=repr(error)[:200])
        return None
    return key


def _fits(key: Key, algorithm: str) -> bool:
    """Return whether a key may be used with an algorithm, by its type and by what it says."""
    kind: type[Key] = RSAKey if algorithm[:2] in ("RS", "PS") else ECKey
    if algorithm.startswith("Ed"):
        kind = OKPKey
    return isinstance(key, kind) and key.get("alg") in (None, algorithm)
