# SPDX-License-Identifier: Apache-2.0
"""Users, access rules and access tokens through ``$management``.

================  =============================================================================
operation         does
================  =============================================================================
CREATE-TOKEN      makes an access token for the HTTP API. ``for`` is the principal as which it
                  acts, the requester by default; ``scope`` what it is good for
                  (`amqproute.auth.token_scope`), ``expires-seconds`` its lifetime. The answer
                  has the ``token``, which nobody can see again
REVOKE-TOKEN      revokes the token with the id ``name``
================  =============================================================================

For a token of somebody else the right `manage` is required on ``/users/PRINCIPAL``, as in
``/users/user:ann``: a token gives the rights of its principal away. Whoever has logged in with a
token makes none. Both are answered when the change is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from amqproute.auth.access_tokens import (
    AccessTokens,
    TokenRefused,
    principal_named,
)
from amqproute.auth.policy import Rule, Verb
from amqproute.auth.token_scope import TokenScope
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CREATED,
    FORBIDDEN,
    FULL,
    NOT_FOUND,
    OK,
)
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import Allows, ManagementReply, ManagementRequest
from amqproute.services.management_rows import Row
from amqproute.services.management_table import OPERATIONS
from amqproute.values import Principal

__all__ = ["DEFAULT_LIFETIME_SECONDS", "register"]

DEFAULT_LIFETIME_SECONDS: Final = 30 * 86400

log = Logger()


class UserNames(Protocol):
    """The users file: `amqproute.auth.users.UserFile`."""

    @property
    def names(self) -> tuple[str, ...]:
        """All user names, sorted."""


class TokenCommands:
    """Makes and revokes access tokens.

    Args:
        tokens: the access tokens.
        users: the users file.
        allows: the access rules.
    """

    def __init__(self, tokens: AccessTokens, users: UserNames, allows: Allows) -> None:
        self._tokens = tokens
        self._users = users
        self._allows = allows

    async def create(self, request: ManagementRequest) -> ManagementReply:
        """Carry out CREATE-TOKEN."""
        body = request.body
        try:
            principal = principal_named(str(body.get("for", "")) or str(request.principal))
            self._require_user(principal)
        except ValueError as error:
            return _wrong("for", str(error))
        try:
            scope = _scope(body.get("scope", ["read"]))
        except ValueError as error:
            return _wrong("scope", str(error))
        if request.properties.get("log-in") == "token":
            return ManagementReply.of(FORBIDDEN, "a token makes no tokens: log in as the user")
        if not self._may(request, principal):
            return _may_not(request, principal)
        seconds = body.get("expires-seconds")
        seconds = int(seconds) if isinstance(seconds, int) else DEFAULT_LIFETIME_SECONDS
        by, purpose = str(request.principal), str(body.get("purpose", ""))
        try:
            token, text = await self._tokens.create(purpose, principal, scope, seconds, by)
        except TokenRefused as error:
            return ManagementReply.of(FULL, str(error))
        log.info(
            "{who} made the token {token} for {principal}: {scope}",
            who=by,
            token=token.id,
            principal=str(principal),
            scope=str(scope),
        )
        facts = {**token.row(token.created_ms), "token": text}
        return ManagementReply.of(CREATED, f"token {token.id} is made", facts)

    async def revoke(self, request: ManagementRequest) -> ManagementReply:
        """Carry out REVOKE-TOKEN."""
        name = str(request.properties.get("name", ""))
        token = self._tokens.get(name)
        if token is None:
            return _no_token(name)
        if not self._may(request, token.principal):
            return _may_not(request, token.principal)
        try:
            revoked = await self._tokens.revoke(name)
        except TokenRefused as error:
            return ManagementReply.of(FULL, str(error))
        if revoked is None:  # somebody else was before
            return _no_token(name)
        log.info("{who} revoked the token {token}", who=str(request.principal), token=name)
        return ManagementReply.of(OK, f"token {name} is revoked", {"name": name})

    def _require_user(self, principal: Principal) -> None:
        if principal.kind == "user" and principal.name not in self._users.names:
            raise ValueError(f"there is no user {principal.name!r}")

    def _may(self, request: ManagementRequest, principal: Principal) -> bool:
        if principal == request.principal:
            return True
        return self._allows(request.principal, Verb.MANAGE, f"/users/{principal}")


def register(
    service: ManagementService,
    tokens: AccessTokens,
    users: UserNames,
    rules: Callable[[], Sequence[Rule]],
    allows: Allows,
) -> None:
    """Add the operations and entity types to the management node.

    Args:
        service: the node.
        tokens: the access tokens.
        users: the users file.
        rules: returns the access rules in force.
        allows: the access rules.
    """
    commands = TokenCommands(tokens, users, allows)
    service.offer("CREATE-TOKEN", lambda asked: Deferred.fromCoroutine(commands.create(asked)))
    service.offer("REVOKE-TOKEN", lambda asked: Deferred.fromCoroutine(commands.revoke(asked)))
    service.show("token", tokens.rows)
    service.show("user", lambda: _user_rows(users.names))
    service.show("access-rule", lambda: _rule_rows(rules()))


def _scope(words: object) -> TokenScope:
    """Read a scope.

    Raises:
        ValueError: it is none, or names an operation that does not exist.
    """
    scope = TokenScope.of([str(each) for each in words] if isinstance(words, list) else [])
    for name in scope.operations:
        if name not in OPERATIONS:
            raise ValueError(f"there is no operation {name}")
    return scope


def _user_rows(names: Iterable[str]) -> Iterable[Row]:
    for name in names:
        yield {"name": name, "type": "user", "principal": f"user:{name}"}


def _rule_rows(rules: Iterable[Rule]) -> Iterable[Row]:
    for place, rule in enumerate(rules):
        yield {
            "name": str(place),
            "type": "access-rule",
            "who": rule.who,
            "node": rule.node,
            "allow": sorted(rule.allow),
            "deny": sorted(rule.deny),
            "note": rule.note,
        }


def _wrong(field: str, words: str) -> ManagementReply:
    return ManagementReply.of(BAD_REQUEST, words, {"field": field})


def _no_token(name: str) -> ManagementReply:
    return ManagementReply.of(NOT_FOUND, f"there is no token {name[:64]!r}")


def _may_not(request: ManagementRequest, principal: Principal) -> ManagementReply:
    log.warn(
        "{who} may not {operation}: no right to manage {node}",
        who=str(request.principal),
        operation=request.operation,
        node=f"/users/{principal}",
    )
    return ManagementReply.of(FORBIDDEN, f"{request.principal} may not manage '/users/{principal}'")
