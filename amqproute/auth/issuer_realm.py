# SPDX-License-Identifier: Apache-2.0
"""The realm of one issuer of OAuth 2 access tokens in the form of JSON web tokens (RFC 7519, 9068).

A token is good if it is signed by a key of the issuer (`amqproute.auth.issuer_keys`) with one of
the listed algorithms, names the issuer and one of the audiences, and is valid by its times within
`leeway`. It has to have an end. The user's name is one of its claims, the groups are the words of
others, with which access rules work: a scope ``orders.write`` is the group ``orders.write``.

Why joserfc: it is maintained, typed, takes the time as an argument, and has algorithms off by
default; PyJWT reads the clock itself. ``none`` and the symmetric algorithms cannot be configured,
and so a public key can never be taken for a shared secret.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry
from twisted.internet.defer import Deferred

from amqproute.auth.issuer_keys import LONGEST_KID, WELL_KNOWN, IssuerKeys
from amqproute.auth.outside_realm import (
    TOKENS,
    CredentialsRefused,
    RealmSurroundings,
    checked_groups,
    checked_name,
)
from amqproute.jsontext import parse_json
from amqproute.wire.sasl_mechanisms import OutsideIdentity

__all__ = ["IssuerRealm", "IssuerTerms"]

MOST_REMEMBERED: Final = 2000
REMEMBERED_SECONDS: Final = 60.0
"""Time for which a verified token is not verified again: each HTTP request brings it."""


@dataclass(frozen=True, slots=True)
class IssuerTerms:
    """The settings of an issuer.

    Attributes:
        issuer: the ``iss`` of its tokens.
        audience: one of them has to be in ``aud``.
        algorithms: the algorithms allowed (RFC 7518 §3, RFC 9864), asymmetric ones only.
        leeway: seconds by which clocks may differ.
        user_claim: the claim with the name of the user.
        group_claims: the claims with groups; ``realm_access.roles`` is the claim ``roles`` of the
            object ``realm_access``.
        group_prefix: put before the name of each group.
        scope: the scope that clients are advised to request; empty for none.
        has_discovery: whether the keys come by discovery; clients then get its address.
    """

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...]
    leeway: float = 30.0
    user_claim: str = "sub"
    group_claims: tuple[str, ...] = ("scope", "groups", "roles")
    group_prefix: str = ""
    scope: str = ""
    has_discovery: bool = True


class IssuerRealm:
    """Verifies tokens of one issuer; see `amqproute.auth.outside_realm.TokenRealm`.

    Args:
        terms: the settings.
        keys: the keys of the issuer.
        surroundings: clocks.
    """

    def __init__(
        self, terms: IssuerTerms, keys: IssuerKeys, surroundings: RealmSurroundings
    ) -> None:
        self.terms = terms
        self._keys = keys
        self._now = surroundings.now
        self._seconds = surroundings.clock.seconds
        self._registry = JWSRegistry(algorithms=list(terms.algorithms), strict_check_header=False)
        self._remembered: OrderedDict[bytes, tuple[float, OutsideIdentity]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<IssuerRealm {self.terms.issuer}>"

    @property
    def issuer(self) -> str:
        """See `TokenRealm.issuer`."""
        return self.terms.issuer

    @property
    def hint(self) -> Mapping[str, str]:
        """See `TokenRealm.hint`."""
        found = {"scope": self.terms.scope} if self.terms.scope else {}
        if self.terms.has_discovery:
            place = self.terms.issuer.removesuffix("/") + WELL_KNOWN
            found = {"openid-configuration": place, **found}
        return found

    def verify(self, token: str) -> Deferred[OutsideIdentity]:
        """See `TokenRealm.verify`."""
        return Deferred.fromCoroutine(self._verify(token))

    def probe(self) -> Deferred[str]:
        """See `TokenRealm.probe`."""
        return self._keys.probe()

    def stop(self) -> None:
        """See `TokenRealm.stop`."""
        self._remembered.clear()

    async def _verify(self, token: str) -> OutsideIdentity:
        digest = hashlib.sha256(token.encode()).digest()
        until, identity = self._remembered.get(digest, (0.0, None))
        if identity is not None and self._seconds() < until and not self._is_over(identity):
            return identity
        try:
            signature = jws.extract_compact(token.encode(), registry=self._registry)
            header = signature.headers()
            algorithm, kid = header["alg"], header.get("kid")
            # Before the keys are asked for: made-up algorithms cost the issuer nothing.
            self._registry.get_alg(algorithm)
            if kid is not None and not (isinstance(kid, str) and len(kid) <= LONGEST_KID):
                raise CredentialsRefused("the token's key id is none")
            key = await self._keys.find(kid, algorithm)
            if key is None:
                raise CredentialsRefused(f"the issuer has no key {kid!r:.60} for {algorithm}")
            if not jws.validate_compact(signature, key, registry=self._registry):
                raise CredentialsRefused("the signature of the token is wrong")
            identity = self._identity(signature.payload)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise CredentialsRefused(f"the token is not valid: {error}") from error
        self._remember(digest, identity)
        return identity

    def _identity(self, payload: bytes) -> OutsideIdentity:
        """Read the claims of a token whose signature is right."""
        claims = parse_json(payload)
        if not isinstance(claims, dict):
            raise CredentialsRefused("the claims of the token are no JSON object")
        terms = self.terms
        JWTClaimsRegistry(
            now=int(self._now()),
            leeway=int(terms.leeway),
            iss={"essential": True, "value": terms.issuer},
            aud={"essential": True, "values": list(terms.audience)},
            exp={"essential": True},
        ).validate(claims)
        name = _claim(claims, terms.user_claim)
        if not isinstance(name, str):
            raise CredentialsRefused(f"the token has no claim {terms.user_claim!r} with a name")
        groups = (word for claim in terms.group_claims for word in _words(_claim(claims, claim)))
        return OutsideIdentity(
            checked_name(name),
            TOKENS,
            checked_groups(groups, terms.group_prefix),
            float(claims["exp"]) + terms.leeway,
        )

    def _is_over(self, identity: OutsideIdentity) -> bool:
        return identity.expires is not None and self._now() >= identity.expires

    def _remember(self, digest: bytes, identity: OutsideIdentity) -> None:
        self._remembered[digest] = self._seconds() + REMEMBERED_SECONDS, identity
        self._remembered.move_to_end(digest)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)


# Any: a claim, of whatever type the issuer has given it.
def _claim(claims: Mapping[str, Any], path: str) -> object:
    """Return a claim by its name, or by the names of the objects it is in; None without it."""
    if path in claims:
        return claims[path]
    found: object = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _words(claim: object) -> Iterator[str]:
    """Iterate over the words of a claim: a list, or words with spaces between (RFC 6749 §3.3)."""
    if isinstance(claim, str):
        yield from claim.split()
    elif isinstance(claim, list):
        yield from (each for each in claim if isinstance(each, str))
