# SPDX-License-Identifier: Apache-2.0
"""Authentication of a listener's connections.

There is one `Authenticator` for each listener. For each connection the listener describes the
transport once (`LogInTransport`) and then calls four methods, in this order:

    offers(facts)               -> the mechanisms to offer to the client
    begin(mechanism, facts)     -> the state machine to feed, a `SaslServer`
    verify(step, facts)         -> a Deferred of the answer to the machine's `VerifyCredentials`
    principal(credentials)      -> the principal, for the machine's `MechanismDone`

The machine that `begin` returns is guarded: it refuses a mechanism that was not offered, and does
not reveal the result of a password before its log-in has had its turn. `Verifier`, one for the
whole daemon, schedules log-ins, has PLAIN passwords verified in threads or by outside realms,
delays the answers to wrong ones, and logs failures; `amqproute.auth.log_in_queue` makes its
decisions.

EXTERNAL is offered only where the transport has proved a name, PLAIN only where nobody can listen.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.log_in_queue import LogInQueue
from amqproute.auth.outside_realm import (
    DIRECTORY,
    FILE_REALM,
    TOKENS,
    CredentialsRefused,
    OutsideRealms,
    RealmUnavailable,
    TokenRealm,
)
from amqproute.auth.refused_log_ins import RefusedLogIns, quoted
from amqproute.auth.token_text import issuer_of
from amqproute.auth.users import UserFile
from amqproute.errors import ConfigError
from amqproute.log_rate_limit import RateLimitedLog, and_more, source_of
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.sasl_mechanisms import (
    ANONYMOUS,
    EXTERNAL,
    MAX_NAME_BYTES,
    MAX_TOKEN_BYTES,
    MECHANISMS,
    NOT_LOOKED_AT,
    OAUTHBEARER,
    PLAIN,
    SCRAM_ITERATIONS,
    SCRAM_SHA_256,
    TOKEN_MECHANISMS,
    Credentials,
    ExternalIdentity,
    MechanismDone,
    MechanismFailed,
    OutsideIdentity,
    SaslServer,
    SaslStep,
    ScramSecret,
    ServerContext,
    TokenTerms,
    Verification,
    VerifyCredentials,
    looks_like_token,
    prepare,
    server_mechanism,
    strongest,
)

__all__ = [
    "Authenticator",
    "DeferToThread",
    "LogInTransport",
    "Verifier",
    "login_key",
    "outside_principal",
]

log = Logger()

_NONCE_BYTES: Final = 18
_KEY_BYTES: Final = 32

_PASSWORD_MECHANISMS: Final = frozenset({PLAIN, SCRAM_SHA_256})

MOST_OUTSIDE: Final = 16
"""Log-ins that a directory, or the issuers of tokens, have to verify at a time."""
MOST_UNAVAILABLE: Final = 3
"""Lines about an unavailable realm, within the interval of `RateLimitedLog`."""
_CROWDED: Final = "crowded"
_OUTCOMES: Final = {True: "accepted", False: "refused", None: "unavailable"}

DeferToThread = Callable[[Callable[[str, str], bool], str, str], "Deferred[bool]"]
"""Runs a function with a name and a password in a thread: `twisted.internet.threads.deferToThread`
fits."""


@dataclass(frozen=True, slots=True)
class LogInTransport:
    """Facts about a connection that are known before SASL.

    Attributes:
        address: the client's IP address; empty on a unix socket.
        tls: whether TLS encrypts the transport.
        certificate_names: DNS names in the client's certificate, verified against the trusted
            authorities, the preferred one first; empty without a certificate.
        uid: the user id at the other end of a unix socket, or None.
    """

    address: str = ""
    tls: bool = False
    certificate_names: tuple[str, ...] = ()
    uid: int | None = None

    @property
    def external(self) -> ExternalIdentity | None:
        """The identity for EXTERNAL, or None. A certificate takes precedence over a user id."""
        names = tuple(
            dict.fromkeys(
                name.lower().removesuffix(".")
                for name in self.certificate_names
                # A wildcard stands for many hosts and proves the name of none.
                if name.removesuffix(".") and "*" not in name
            )
        )
        if names and self.tls:
            return ExternalIdentity("peer", names)
        if self.uid is not None:
            return ExternalIdentity("uid", (str(self.uid),))
        return None

    @property
    def counted_as(self) -> str:
        """The key under which failures count: the address, the /64 of IPv6, or the user id."""
        if not self.address:
            return f"uid:{self.uid}"
        return source_of(self.address) or self.address


@dataclass(slots=True)
class _LogIn:
    """A log-in that waits for its turn, its verification or its answer.

    Attributes:
        step: the credentials to verify.
        facts: the facts about its transport.
        users: the users file to verify against.
        lane: its realm.
        answer: fires with the result.
        call: the delayed call that fires `answer`; None until only the delay remains.
        is_gone: whether the connection has closed, so that no answer is needed.
        reason: why an outside realm has refused it.
    """

    step: VerifyCredentials
    facts: LogInTransport
    users: UserFile | None
    lane: str
    answer: Deferred[Verification]
    call: IDelayedCall | None = None
    is_gone: bool = False
    reason: str = ""


class Verifier:
    """Verifies passwords and tokens for all listeners; a guesser gains nothing by changing them.

    Each realm has a queue of its own. See `amqproute.auth.outside_realm` for which one it is.

    Args:
        clock: the clock for scheduling and delays.
        defer_to_thread: runs the verification of a PLAIN password.
        longest_delay: limit of the delay before a wrong password is answered, seconds; less than
            the time allowed for a handshake.
        realms: the outside realms.

    Attributes:
        realms: the outside realms.
    """

    def __init__(
        self,
        clock: IReactorTime,
        defer_to_thread: DeferToThread,
        longest_delay: float = 8.0,
        realms: OutsideRealms | None = None,
    ) -> None:
        self.realms = OutsideRealms() if realms is None else realms
        self._counts: Counter[tuple[str, str]] = Counter()
        self._clock = clock
        self._defer_to_thread = defer_to_thread
        self._longest_delay = longest_delay
        self._queues = {FILE_REALM: LogInQueue(longest_delay)}
        self._refused = RefusedLogIns(clock)
        self._unavailable_log = RateLimitedLog(clock.seconds, MOST_UNAVAILABLE)
        self._log_ins: dict[object, _LogIn] = {}
        self._calls: dict[str, IDelayedCall] = {}

    def __repr__(self) -> str:
        return f"<Verifier log-ins={len(self._log_ins)}>"

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Log-ins that have been decided, by realm and outcome.

        Outcomes are ``accepted``, ``refused``, ``unavailable`` (the realm could not tell) and
        ``crowded`` (too many wait).
        """
        # All results from the beginning: the first increase of a series counts only then.
        for realm in (FILE_REALM, DIRECTORY, TOKENS, *self.realms.names):
            for result in (*_OUTCOMES.values(), _CROWDED):
                self._counts.setdefault((realm, result), 0)
        return self._counts

    def verify(
        self, step: VerifyCredentials, facts: LogInTransport, users: UserFile | None
    ) -> Deferred[Verification]:
        """Verify a password or token; see `Authenticator.verify`."""
        key, lane = object(), self._lane(step, users)
        queue, now = self._queue(lane), self._clock.seconds()
        answer: Deferred[Verification] = Deferred(lambda _: self._withdraw(key))
        self._log_ins[key] = _LogIn(step, facts, users, lane, answer)
        gone = queue.arrive(key, facts.counted_as, step.username, now)
        if gone is not None:
            self._counts[lane, _CROWDED] += 1
            self._log_ins[gone].call = self._clock.callLater(0, self._answer, gone, None)
        self._look(lane)
        return answer

    def accepts_at_once(self, username: str, facts: LogInTransport) -> bool:
        """Return whether a correct log-in need not wait; if so, record it as complete."""
        now, queue = self._clock.seconds(), self._queues[FILE_REALM]
        if not queue.has_slot(facts.counted_as, username, now):
            return False
        queue.remember(facts.counted_as, username, now)
        self._counts[FILE_REALM, _OUTCOMES[True]] += 1
        return True

    def stop(self) -> None:
        """Cancel delayed calls, and stop the outside realms; waiting log-ins are not answered."""
        self._refused.stop()
        calls = [*self._calls.values(), *(each.call for each in self._log_ins.values())]
        for call in calls:
            if call is not None and call.active():
                call.cancel()
        self._calls.clear()
        self.realms.stop()

    def _lane(self, step: VerifyCredentials, users: UserFile | None) -> str:
        """Return the realm that decides about a log-in."""
        if step.mechanism in TOKEN_MECHANISMS:
            return TOKENS
        password = step.password
        if password is None:
            return FILE_REALM  # already verified
        realms = self.realms
        if realms.takes_tokens_as_passwords and looks_like_token(password.encode()):
            return TOKENS
        if users is None or users.lookup(step.username) is not None:
            return FILE_REALM
        return realms.of_user(step.username) or FILE_REALM

    def _queue(self, lane: str) -> LogInQueue:
        """Return the queue of a realm, which stays for as long as the daemon runs."""
        queue = self._queues.get(lane)
        if queue is None:
            local = self._queues[FILE_REALM]
            queue = self._queues[lane] = LogInQueue(self._longest_delay, MOST_OUTSIDE, local)
        return queue

    def _look(self, lane: str) -> None:
        """Start the log-ins that are due."""
        queue = self._queues[lane]
        while keys := queue.due(self._clock.seconds()):
            for key in keys:
                self._begin(key)
        self._wake(lane)

    def _begin(self, key: object) -> None:
        log_in = self._log_ins[key]
        step = log_in.step
        if step.password is None or log_in.users is None:
            self._settle(key, bool(step.is_right))
            return
        verified = maybeDeferred(self._verified, log_in, step.username, step.password)
        verified.addCallbacks(
            lambda result: self._settle(key, result), lambda failure: self._failed(key, failure)
        )
        verified.addBoth(lambda _: self._look(log_in.lane))

    def _verified(
        self, log_in: _LogIn, username: str, password: str
    ) -> Deferred[OutsideIdentity] | Deferred[bool]:
        """Have the realm verify a password or token; may raise what the Deferred fails with."""
        users = log_in.users
        assert users is not None
        if log_in.lane == FILE_REALM:
            return self._defer_to_thread(users.verify, username, password)
        if log_in.lane == TOKENS:
            verified = self._token_realm(password).verify(password)
        else:
            realm = self.realms.password_realm(log_in.lane)
            if realm is None:  # a reload has taken it away meanwhile
                raise CredentialsRefused(f"there is no realm {log_in.lane} any more")
            verified = realm.verify(username, password)
        return verified.addCallback(self._checked, log_in.lane, users)

    def _checked(self, identity: OutsideIdentity, lane: str, users: UserFile) -> OutsideIdentity:
        """Refuse a realm that speaks of a user of another one."""
        if users.lookup(identity.name) is not None:
            raise CredentialsRefused(
                f"{identity.name!r} is a user of the users file, and no other realm can be that "
                "user"
            )
        owner = lane if lane == TOKENS else self.realms.of_user(identity.name)
        if owner != lane:
            raise CredentialsRefused(f"{identity.name!r} is a user of the realm {owner}")
        return identity

    def _token_realm(self, token: str) -> TokenRealm:
        issuer = issuer_of(token)
        realm = self.realms.issuer(issuer)
        if realm is None:
            raise CredentialsRefused(f"tokens of the issuer {issuer!r} are not taken")
        return realm

    def _wake(self, lane: str) -> None:
        """Schedule `_look` for when the next slot is free."""
        at, call = self._queues[lane].next_due(), self._calls.pop(lane, None)
        if call is not None and call.active():
            if at is not None and call.getTime() <= at:
                self._calls[lane] = call
                return
            call.cancel()
        if at is not None:
            delay = max(0.0, at - self._clock.seconds())
            self._calls[lane] = self._clock.callLater(delay, self._look, lane)

    def _settle(self, key: object, result: Verification) -> None:
        log_in = self._log_ins[key]
        is_right = True if isinstance(result, OutsideIdentity) else result
        delay = self._queues[log_in.lane].settled(key, is_right, self._clock.seconds())
        self._counts[log_in.lane, _OUTCOMES[is_right]] += 1
        if is_right is False:
            self._note(log_in)
        if log_in.is_gone:
            del self._log_ins[key]
        elif is_right is False:
            log_in.call = self._clock.callLater(delay, self._answer, key, False)
        else:
            self._answer(key, result)

    def _answer(self, key: object, result: Verification) -> None:
        self._log_ins.pop(key).answer.callback(result)

    def _failed(self, key: object, failure: Failure) -> None:
        log_in = self._log_ins[key]
        error = failure.value
        if isinstance(error, CredentialsRefused):
            log_in.reason = str(error)
            self._settle(key, False)
            return
        if isinstance(error, RealmUnavailable):
            self._note_unavailable(log_in, str(error))
        else:
            log.failure("verifying a password failed", failure)
        self._settle(key, None)

    def _note(self, log_in: _LogIn) -> None:
        step = log_in.step
        self._refused.note(_client(log_in.facts), step.mechanism, step.username, log_in.reason)

    def _note_unavailable(self, log_in: _LogIn, reason: str) -> None:
        count = self._unavailable_log.due(log_in.lane)
        if count:
            log.error(
                "log-in from {address}, user {user}, cannot be verified: {realm}: {reason}{more}",
                address=_client(log_in.facts),
                user=quoted(log_in.step.username),
                realm=log_in.lane,
                reason=reason,
                more=and_more(count),
            )

    def _withdraw(self, key: object) -> None:
        """Handle a closed connection. A verification under way still counts."""
        log_in = self._log_ins[key]
        if log_in.call is not None:  # only the delay was left
            log_in.call.cancel()
            del self._log_ins[key]
        elif self._queues[log_in.lane].withdraw(key):
            del self._log_ins[key]
        else:
            log_in.is_gone = True


def _client(facts: LogInTransport) -> str:
    return facts.address.partition("%")[0] or f"the local user id {facts.uid}"


class Authenticator:
    """The mechanisms of one listener and the principals they establish.

    Attributes:
        mechanisms: what the listener may offer, the strongest first.
    """

    def __init__(
        self,
        mechanisms: Iterable[str],
        *,
        users: UserFile | None,
        verifier: Verifier,
        login_key: bytes,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        plain_without_tls: bool = False,
    ) -> None:
        """Initialize.

        Args:
            mechanisms: names from `MECHANISMS`.
            users: the users file; without one, password mechanisms are never offered.
            verifier: shared by all listeners.
            login_key: secret and lasting; see the function `login_key`.
            random_bytes: the bytes for nonces.
            plain_without_tls: whether the operator accepts passwords in the clear.

        Raises:
            ConfigError: a mechanism is unknown.
        """
        wanted = list(mechanisms)
        unknown = [name for name in wanted if name not in MECHANISMS]
        if unknown:
            raise ConfigError(
                [
                    f"mechanisms: unknown SASL mechanism {name!r} (known: {', '.join(MECHANISMS)})"
                    for name in unknown
                ]
            )
        self.mechanisms = strongest(wanted)
        self._users = users
        self._verifier = verifier
        self._login_key = login_key
        self._random_bytes = random_bytes
        self._plain_without_tls = plain_without_tls

    def __repr__(self) -> str:
        return f"<Authenticator {' '.join(self.mechanisms)}>"

    def offers(self, facts: LogInTransport) -> tuple[str, ...]:
        """Return the mechanisms to offer on this connection, the strongest first; may be empty."""
        return tuple(name for name in self.mechanisms if self._possible(name, facts))

    def begin(
        self, mechanism: str, facts: LogInTransport, *, outcome_carries_data: bool = True
    ) -> SaslServer:
        """Return the machine for the mechanism that the client chose, offered or not.

        Args:
            mechanism: the client's choice.
            facts: the facts as for `offers`.
            outcome_carries_data: see `amqproute.wire.sasl_mechanisms.ServerContext`.
        """
        users, realms = self._users, self._verifier.realms
        context = ServerContext(
            lookup=users.lookup if users is not None else _nobody,
            nonce=base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode(),
            decoy_key=self._login_key,
            decoy_iterations=users.usual_iterations if users is not None else SCRAM_ITERATIONS,
            external=facts.external,
            confidential=self._is_confidential(facts),
            outcome_carries_data=outcome_carries_data,
            tokens=TokenTerms(realms.takes_tokens_as_passwords, realms.token_hint),
        )
        machine = server_mechanism(mechanism, context)
        refusal = "" if mechanism in self.offers(facts) else "mechanism was not offered"
        if refusal or mechanism not in _PASSWORD_MECHANISMS:
            return _RefusedServer(machine, refusal) if refusal else machine
        return _GuardedServer(machine, self._verifier, facts)

    def verify(self, step: VerifyCredentials, facts: LogInTransport) -> Deferred[Verification]:
        """Verify a password or a token.

        Cancel the Deferred when the connection closes.

        Returns:
            A Deferred of the answer for `SaslServer.resolve`: None if the password was not
            verified. It fails only if cancelled; other failures are logged. False comes after a
            delay.
        """
        return self._verifier.verify(step, facts, self._users)

    def verify_secret(
        self, credentials: Credentials, secret: bytes, facts: LogInTransport
    ) -> Deferred[Verification] | None:
        """Verify a new secret of a client that has logged in by an earlier one.

        It takes its turn as a log-in does, and a wrong one counts, waits and is logged as such.

        Args:
            credentials: the credentials of the log-in.
            secret: the password or token, UTF-8. A token may replace a token only, and has to be
                that of the same user and the same kind of realm.
            facts: the facts of the transport.

        Returns:
            See `verify`; None if the mechanism of the log-in has no secret.
        """
        if credentials.mechanism not in _PASSWORD_MECHANISMS | TOKEN_MECHANISMS:
            return None
        outside = credentials.outside
        is_token = outside is not None and outside.realm == TOKENS
        longest = MAX_TOKEN_BYTES if is_token else MAX_NAME_BYTES
        password: str | None
        try:
            password = prepare(secret.decode()) if len(secret) <= longest else None
        except ValueError:
            password = None
        name, mechanism = credentials.name, credentials.mechanism
        if is_token and mechanism == PLAIN:
            mechanism = OAUTHBEARER  # where no password is taken for a token
        step = VerifyCredentials(name, password or None, None if password else False, mechanism)
        verified = self._verifier.verify(step, facts, self._users)
        return verified.addCallback(_same_user, outside)

    def principal(self, credentials: Credentials) -> Principal:
        """Return the principal that has logged in."""
        if credentials.mechanism == ANONYMOUS:
            return ANONYMOUS_PRINCIPAL
        outside, external = credentials.outside, credentials.external
        if outside is not None:
            return outside_principal(outside)
        if external is None:
            return Principal("user", credentials.name)
        names = frozenset(external.names) if external.kind == "peer" else frozenset()
        return Principal(external.kind, credentials.name, names)

    def _possible(self, name: str, facts: LogInTransport) -> bool:
        if name == EXTERNAL:
            return facts.external is not None
        if name in _PASSWORD_MECHANISMS and self._users is None:
            return False
        if name in TOKEN_MECHANISMS and not self._verifier.realms.has_issuers:
            return False
        return name in (SCRAM_SHA_256, ANONYMOUS) or self._is_confidential(facts)

    def _is_confidential(self, facts: LogInTransport) -> bool:
        return facts.tls or facts.uid is not None or self._plain_without_tls


def outside_principal(identity: OutsideIdentity) -> Principal:
    """Return the principal of a user of an outside realm."""
    return Principal(
        "user",
        identity.name,
        groups=identity.groups,
        realm=identity.realm,
        account=identity.account,
    )


def _same_user(result: Verification, before: OutsideIdentity | None) -> Verification:
    """Refuse a right secret if it is that of another user, or of another realm."""
    if isinstance(result, OutsideIdentity) or before is not None:
        if not isinstance(result, OutsideIdentity):
            return None if result is None else False
        if before is None or (result.name, result.realm) != (before.name, before.realm):
            return False
    return result


class _RefusedServer:
    """A state machine for a mechanism that the client may not use."""

    __slots__ = ("_machine", "_refusal")

    def __init__(self, machine: SaslServer, refusal: str) -> None:
        self._machine = machine
        self._refusal = refusal

    @property
    def name(self) -> str:
        return self._machine.name

    @property
    def username(self) -> str:
        return ""

    def step(self, response: bytes | None) -> SaslStep:
        return MechanismFailed(self._refusal)

    def resolve(self, granted: Verification) -> SaslStep:
        return MechanismFailed(self._refusal)


class _GuardedServer:
    """A password mechanism whose outcome waits for its turn; see the module's docstring."""

    __slots__ = ("_facts", "_machine", "_result", "_verifier")

    def __init__(self, machine: SaslServer, verifier: Verifier, facts: LogInTransport) -> None:
        self._machine = machine
        self._verifier = verifier
        self._facts = facts
        self._result: MechanismDone | MechanismFailed | None = None

    @property
    def name(self) -> str:
        return self._machine.name

    @property
    def username(self) -> str:
        return self._machine.username

    def step(self, response: bytes | None) -> SaslStep:
        step = self._machine.step(response)
        if not isinstance(step, MechanismDone | MechanismFailed):
            return step
        is_right = isinstance(step, MechanismDone)
        if is_right and self._verifier.accepts_at_once(self.username, self._facts):
            return step
        self._result = step
        return VerifyCredentials(self.username, None, is_right, self.name)

    def resolve(self, granted: Verification) -> SaslStep:
        result = self._result
        if result is None:
            return self._machine.resolve(granted)
        if granted is None:
            return NOT_LOOKED_AT
        return result


def login_key(
    directory: str | os.PathLike[str], random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """Return the key that decoys for unknown users are derived from; create it once.

    It is stored as ``login-key`` in the state directory, mode 0600. If it changed at each start, an
    unknown user's salt would change with it while a known user's would not.

    Raises:
        OSError: it can be neither read nor created.
        ConfigError: the file has other content.
    """
    path = Path(directory) / "login-key"
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return _make_key(path, random_bytes(_KEY_BYTES))
    if len(key) != _KEY_BYTES:
        raise ConfigError([f"{path}: has to hold 32 bytes (remove it, and a new one is made)"])
    return key


def _make_key(path: Path, key: bytes) -> bytes:
    # Atomic: a truncated key after a crash would keep the daemon from starting.
    temporary = path.with_name(".login-key.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return key


def _nobody(_: str) -> ScramSecret | None:
    return None
