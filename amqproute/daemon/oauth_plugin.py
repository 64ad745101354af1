# SPDX-License-Identifier: Apache-2.0
"""An issuer of tokens as a plug-in of the realm; importing it takes the extra ``oauth``."""

from __future__ import annotations

from amqproute.auth.issuer_keys import IssuerKeys
from amqproute.auth.issuer_realm import IssuerRealm, IssuerTerms
from amqproute.auth.outside_realm import RealmSurroundings
from amqproute.config.realm_settings import IssuerSettings

__all__ = ["make_realm"]


def make_realm(settings: IssuerSettings, surroundings: RealmSurroundings) -> IssuerRealm:
    """Return the realm.

    Args:
        settings: an entry of ``users.issuers``.
        surroundings: what realms use of the daemon.
    """
    terms = IssuerTerms(
        issuer=settings.issuer,
        audience=settings.audience,
        algorithms=settings.algorithms,
        leeway=settings.leeway,
        user_claim=settings.user_claim,
        group_claims=settings.group_claims,
        group_prefix=settings.group_prefix,
        scope=settings.scope,
        has_discovery=settings.keys_file is None,
    )
    path = settings.keys_file
    keys = IssuerKeys(settings.issuer, surroundings, None if path is None else path.read_bytes)
    return IssuerRealm(terms, keys, surroundings)
