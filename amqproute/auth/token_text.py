# SPDX-License-Identifier: Apache-2.0
"""What a JSON web token says of itself, before anything of it is verified: who has issued it.

The issuer only chooses the keys. With these the signature is verified, and then the issuer again.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from amqproute.auth.outside_realm import CredentialsRefused
from amqproute.jsontext import parse_json
from amqproute.wire.sasl_mechanisms import looks_like_token

__all__ = ["issuer_of"]

LONGEST_ISSUER: Final = 512


def issuer_of(token: str) -> str:
    """Return the issuer that a token names (RFC 7519 §4.1.1).

    Raises:
        CredentialsRefused: it is no signed token, or names none.
    """
    if not token.isascii() or not looks_like_token(token.encode()):
        raise CredentialsRefused("the token is no signed JSON web token")
    payload = token.split(".")[1]
    try:
        claims = parse_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError) as error:
        raise CredentialsRefused("the claims of the token are not JSON") from error
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    if not isinstance(issuer, str) or not 0 < len(issuer) <= LONGEST_ISSUER:
        raise CredentialsRefused("the token names no issuer")
    return issuer
