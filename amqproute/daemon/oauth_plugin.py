# SPDX-License-Identifier: Apache-2.0
"""Issuers of tokens as a kind of realm; importing it takes the extra ``oauth``."""

from __future__ import annotations

from typing import Final

from amqproute.auth.issuer_keys import IssuerKeys
from amqproute.auth.issuer_realm import IssuerRealm, IssuerTerms
from amqproute.auth.outside_realm import RealmSurroundings
from amqproute.auth.realm_kinds import INTERFACE, TOKENS_OF_ISSUER
from amqproute.config.realm_settings import IssuerSettings

__all__ = ["OAUTH", "OauthKind"]


class OauthKind:
    """Issuers; see `amqproute.auth.realm_kinds.RealmKind`."""

    interface = INTERFACE
    verifies = TOKENS_OF_ISSUER

    def prepare(self, settings: IssuerSettings) -> IssuerSettings:
        """See `RealmKind.prepare`. A file with keys is read again while the realm is in use."""
        return settings

    def make(self, prepared: IssuerSettings, surroundings: RealmSurroundings) -> IssuerRealm:
        """See `RealmKind.make`."""
        terms = IssuerTerms(
            issuer=prepared.issuer,
            audience=prepared.audience,
            algorithms=prepared.algorithms,
            leeway=prepared.leeway,
            user_claim=prepared.user_claim,
            group_claims=prepared.group_claims,
            group_prefix=prepared.group_prefix,
            scope=prepared.scope,
            has_discovery=prepared.keys_file is None,
        )
        path = prepared.keys_file
        keys = IssuerKeys(prepared.issuer, surroundings, None if path is None else path.read_bytes)
        return IssuerRealm(terms, keys, surroundings)


OAUTH: Final = OauthKind()
