# SPDX-License-Identifier: Apache-2.0
"""An issuer of tokens, which rotates its keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key
from joserfc.jws import JWSRegistry
from twisted.internet.defer import Deferred, fail, succeed

from amqproute.auth.outside_realm import FetchFailed


class TokenIssuer:
    """An issuer: keys by their ids, of which the last one signs.

    Attributes:
        url: its name.
        fetched: the URLs of documents that were fetched.
        trouble: if set, nothing can be fetched.
        waiting: if a list, fetches wait in it.
    """

    def __init__(self, url: str = "https://login.test") -> None:
        self.url = url
        self.keys: dict[str, Key] = {}
        self.fetched: list[str] = []
        self.trouble = ""
        self.waiting: list[Callable[[], None]] | None = None
        self.rotate()

    def rotate(self, keep: bool = False) -> str:
        """Make a new key; return its id."""
        if not keep:
            self.keys.clear()
        kid = f"key-{len(self.fetched)}-{len(self.keys)}-{id(object())}"
        self.keys[kid] = ECKey.generate_key("P-256", {"kid": kid, "alg": "ES256", "use": "sig"})
        return kid

    def documents(self) -> dict[str, dict[str, Any]]:
        """Return what is found below its URL, by path."""
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [key.as_dict(private=False) for key in self.keys.values()]},
        }

    def fetch(self, url: str) -> Deferred[bytes]:
        """Serve a document, as `Fetch`."""
        self.fetched.append(url)
        if self.trouble:
            return fail(FetchFailed(self.trouble))
        octets = json.dumps(self.documents()[url.removeprefix(self.url)]).encode()
        if self.waiting is None:
            return succeed(octets)
        answer: Deferred[bytes] = Deferred()
        self.waiting.append(lambda: answer.callback(octets))
        return answer

    def token(
        self,
        claims: dict[str, Any],
        header: dict[str, Any] | None = None,
        key: Key | None = None,
    ) -> str:
        """Return a token; a claim of None is left out."""
        kid, own = list(self.keys.items())[-1]
        given = {"iss": self.url, "aud": "amqproute", "sub": "ann", **claims}
        payload = json.dumps({name: value for name, value in given.items() if value is not None})
        registry = JWSRegistry(
            algorithms=["ES256", "HS256", "RS256", "none"], strict_check_header=False
        )
        found = {"alg": "ES256", "kid": kid, "typ": "at+jwt", **(header or {})}
        found = {name: value for name, value in found.items() if value is not None}
        return jws.serialize_compact(found, payload, key or own, registry=registry)
