# SPDX-License-Identifier: Apache-2.0
"""Users, log-ins and access rules of the configuration."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence

from amqproute.auth.outside_realm import OutsideRealms
from amqproute.auth.password_log_in import PasswordLogIn
from amqproute.auth.policy import Rule, Verb
from amqproute.auth.realm import Authenticator, DeferToThread, Verifier, login_key
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import Apply
from amqproute.daemon.policy_assembly import load_users, make_policy
from amqproute.daemon.realm_assembly import RealmAssembly
from amqproute.net.reactor import IReactor
from amqproute.values import Principal

__all__ = ["AccessControl"]


class AccessControl:
    """The users and the access rules in force.

    Args:
        config: the configuration of the start.
        reactor: the reactor for the delay of refused log-ins, and for outside realms.
        defer_to_thread: runs the verification of a password.
        now: the wall clock, seconds since the epoch.

    Attributes:
        users: the users file.
        realms: the directory and the issuers of tokens.
        digest_key: secret and lasting, for digests of secrets of the configuration.
    """

    def __init__(
        self,
        config: Config,
        reactor: IReactor,
        defer_to_thread: DeferToThread,
        now: Callable[[], float],
    ) -> None:
        self.users = load_users(config)
        self.realms = OutsideRealms()
        self._clock = reactor
        self._verifier = Verifier(
            reactor,
            defer_to_thread,
            min(8.0, config.limits.handshake_timeout / 2),
            self.realms,
        )
        self._assembly = RealmAssembly(self.realms, reactor, now)
        self._assembly.prepare(config)()
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

    @property
    def log_ins(self) -> Mapping[tuple[str, str], int]:
        """Log-ins by realm and outcome; see `Verifier.counts`."""
        return self._verifier.counts

    def password_log_in(self) -> PasswordLogIn:
        """Return what verifies passwords that come by HTTP."""
        return PasswordLogIn(self._verifier, self.users, self._clock.seconds)

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`.

        Raises:
            AmqprouteError: the users file cannot be read, or has gone; an outside realm cannot be
                made.
        """
        policy = make_policy(config)
        users = load_users(config, must_exist=len(self.users) > 0)
        put_realms = self._assembly.prepare(config)

        def apply() -> None:
            self._policy = policy
            self.users.adopt(users)
            put_realms()

        return apply

    def stop(self) -> None:
        """Cancel all timers."""
        self._verifier.stop()
