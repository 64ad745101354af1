# SPDX-License-Identifier: Apache-2.0
"""Users, log-ins and access rules of the configuration."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from twisted.internet.interfaces import IReactorTime

from amqproute.auth.password_log_in import PasswordLogIn
from amqproute.auth.policy import Rule, Verb
from amqproute.auth.realm import Authenticator, DeferToThread, Verifier, login_key
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import Apply
from amqproute.daemon.policy_assembly import load_users, make_policy
from amqproute.values import Principal

__all__ = ["AccessControl"]


class AccessControl:
    """The users and the access rules in force.

    Args:
        config: the configuration of the start.
        clock: for the delay of refused log-ins.
        defer_to_thread: runs the verification of a password.
    """

    def __init__(self, config: Config, clock: IReactorTime, defer_to_thread: DeferToThread) -> None:
        self.users = load_users(config)
        self._clock = clock
        self._verifier = Verifier(
            clock, defer_to_thread, min(8.0, config.limits.handshake_timeout / 2)
        )
        self._login_key = login_key(config.state_directory)
        # Not the key itself: what it is used for must not say anything about the other use.
        self.digest_key = hmac.digest(self._login_key, b"configuration", "sha256")
        self._policy = make_policy(config)

    @property
    def rules(self) -> Sequence[Rule]:
        """The access rules in force, those of virtual hosts behind the others."""
        return self._policy.rules

    def may_open(self, principal: Principal, host: str) -> bool:
        """Return whether the rules of a virtual host allow a principal anything there."""
        return self._policy.may_open(principal, host)

    def allows(self, principal: Principal, verb: Verb, node: str) -> bool:
        """Return whether the rules in force allow an action at a node."""
        return self._policy.allows(principal, verb, node)

    def grants(self, principal: Principal, verb: Verb) -> bool:
        """Return whether the rules in force grant a right on any node of a virtual host."""
        return self._policy.grants(principal, verb)

    def authenticator(
        self, mechanisms: Sequence[str], plain_without_tls: bool = False
    ) -> Authenticator:
        """Return the authenticator for the clients of a listener.

        Args:
            mechanisms: which the listener offers.
            plain_without_tls: PLAIN also where passwords can be read on the way.
        """
        return Authenticator(
            mechanisms,
            users=self.users,
            verifier=self._verifier,
            login_key=self._login_key,
            plain_without_tls=plain_without_tls,
        )

    def password_log_in(self) -> PasswordLogIn:
        """Return what verifies passwords that come by HTTP."""
        return PasswordLogIn(self._verifier, self.users, self._clock.seconds)

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`.

        Raises:
            AmqprouteError: the users file cannot be read, or has gone.
        """
        policy = make_policy(config)
        users = load_users(config, must_exist=len(self.users) > 0)

        def apply() -> None:
            self._policy = policy
            self.users.adopt(users)

        return apply

    def stop(self) -> None:
        """Cancel all timers."""
        self._verifier.stop()
