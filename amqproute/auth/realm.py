# SPDX-License-Identifier: Apache-2.0
"""What a listener needs to know who connects: `Authenticator`, one for each listener.

For each connection the listener states the facts of its transport once (`TransportFacts`) and
then uses four verbs, in this order:

    offers(facts)               -> which mechanisms to name to the client
    begin(mechanism, facts)     -> the machine to feed, a `SaslServer`
    verify(step, facts)         -> a Deferred of True or False for the machine's `Verify`
    principal(credentials)      -> who that is, for the machine's `Done`

The machine that `begin` returns is guarded: it refuses a mechanism that was not offered, counts a
failure by password against the address, and says `Failed` even to the right password while too
many failures are counted. The count is looked at again at the end of an exchange, and a wrong
PLAIN password counts as soon as it is known to be wrong: that is what holds against somebody who
opens a thousand connections at once.

EXTERNAL is offered only where the transport has proved a name, PLAIN only where nobody listens.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.auth.users import UserFile
from amqproute.errors import ConfigError
from amqproute.sparing import source_of
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.mechanisms import (
    ANONYMOUS,
    EXTERNAL,
    MECHANISMS,
    PLAIN,
    SCRAM_ITERATIONS,
    SCRAM_SHA_256,
    Credentials,
    Done,
    ExternalIdentity,
    Failed,
    SaslServer,
    SaslStep,
    ScramSecret,
    ServerContext,
    Verify,
    server_mechanism,
    strongest,
)

__all__ = [
    "FAILURE_DELAY_SECONDS",
    "MAX_FAILURES",
    "MAX_VERIFICATIONS",
    "WINDOW_SECONDS",
    "Authenticator",
    "DeferToThread",
    "Throttle",
    "TransportFacts",
    "login_key",
]

log = Logger()

FAILURE_DELAY_SECONDS: Final = 1.0
"""How long a wrong PLAIN password waits for its answer."""

MAX_FAILURES: Final = 10
"""Failures from one address within a window after which passwords are no longer looked at."""

WINDOW_SECONDS: Final = 60.0
"""The length of a window; it begins with the first failure."""

MAX_ADDRESSES: Final = 10_000
"""Addresses with failures that are remembered; the one that began first is forgotten first."""

MAX_VERIFICATIONS: Final = 64
"""PLAIN passwords waiting for a thread at a time; one more is refused, and the log says so."""

_NONCE_BYTES: Final = 18
_KEY_BYTES: Final = 32

_PASSWORD_MECHANISMS: Final = frozenset({PLAIN, SCRAM_SHA_256})

DeferToThread = Callable[[Callable[[str, str], bool], str, str], "Deferred[bool]"]
"""Runs a function with a name and a password in a thread: `twisted.internet.threads.deferToThread`
fits."""


@dataclass(frozen=True, slots=True)
class TransportFacts:
    """What is known about a connection before SASL.

    Attributes:
        address: the client's IP address; empty on a unix socket.
        tls: the transport is encrypted by TLS.
        certificate_names: DNS names out of the client's certificate, verified against the trusted
            authorities, the preferred one first; empty without a certificate.
        uid: the user id at the other end of a unix socket, or None.
    """

    address: str = ""
    tls: bool = False
    certificate_names: tuple[str, ...] = ()
    uid: int | None = None

    @property
    def external(self) -> ExternalIdentity | None:
        """What EXTERNAL can build on, or None. A certificate goes before a user id."""
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


class Throttle:
    """Counts failed log-ins per address, in fixed windows.

    One for the whole daemon, so that a guesser does not gain by going to another listener.
    """

    __slots__ = ("_clock", "_counts")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        # key -> (begin of the window, failures in it), in the order of the begins.
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def failed(self, key: str) -> None:
        """Count a failure."""
        now = self._clock.seconds()
        self._forget(now)
        begin, count = self._counts.get(key, (now, 0))
        self._counts[key] = (begin, count + 1)
        if count + 1 == MAX_FAILURES:
            log.warn(
                "{address}: {count} failed log-ins, passwords from there are refused for"
                " {seconds:.0f}s",
                address=key,
                count=MAX_FAILURES,
                seconds=begin + WINDOW_SECONDS - now,
            )
        if len(self._counts) > MAX_ADDRESSES:
            self._counts.popitem(last=False)

    def refuses(self, key: str) -> bool:
        """Say whether this address has failed too often in its window."""
        entry = self._counts.get(key)
        if entry is None or entry[1] < MAX_FAILURES:
            return False
        return self._clock.seconds() < entry[0] + WINDOW_SECONDS

    def _forget(self, now: float) -> None:
        while self._counts:
            key, (begin, _) = next(iter(self._counts.items()))
            if now < begin + WINDOW_SECONDS:
                return
            del self._counts[key]


class Authenticator:
    """The mechanisms of one listener, and what they prove.

    Attributes:
        mechanisms: those that the listener may offer, the strongest first.
    """

    def __init__(
        self,
        mechanisms: Iterable[str],
        *,
        users: UserFile | None,
        clock: IReactorTime,
        throttle: Throttle,
        login_key: bytes,
        defer_to_thread: DeferToThread,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        plain_without_tls: bool = False,
    ) -> None:
        """Prepare.

        Args:
            mechanisms: names out of `MECHANISMS`.
            users: the users file; without one the mechanisms with passwords are never offered.
            clock: for the delay of a refusal.
            throttle: shared by all listeners.
            login_key: secret and lasting; see the function `login_key`.
            defer_to_thread: runs the verification of a PLAIN password.
            random_bytes: for nonces.
            plain_without_tls: the operator accepts passwords in the clear.

        Raises:
            ConfigError: a mechanism is not known.
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
        self._clock = clock
        self._throttle = throttle
        self._login_key = login_key
        self._defer_to_thread = defer_to_thread
        self._random_bytes = random_bytes
        self._plain_without_tls = plain_without_tls
        self._verifying = 0
        self._is_saturated = False

    def __repr__(self) -> str:
        return f"<Authenticator {' '.join(self.mechanisms)} verifying={self._verifying}>"

    def offers(self, facts: TransportFacts) -> tuple[str, ...]:
        """Return the mechanisms to offer on this connection, the strongest first; maybe none."""
        return tuple(name for name in self.mechanisms if self._possible(name, facts))

    def begin(
        self, mechanism: str, facts: TransportFacts, *, outcome_carries_data: bool = True
    ) -> SaslServer:
        """Return the machine for the mechanism that the client chose, offered or not.

        Args:
            mechanism: the client's choice.
            facts: as for `offers`.
            outcome_carries_data: see `amqproute.wire.mechanisms.ServerContext`.
        """
        users = self._users
        context = ServerContext(
            lookup=users.lookup if users is not None else _nobody,
            nonce=base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode(),
            decoy_key=self._login_key,
            decoy_iterations=users.usual_iterations if users is not None else SCRAM_ITERATIONS,
            external=facts.external,
            confidential=self._is_confidential(facts),
            outcome_carries_data=outcome_carries_data,
        )
        machine = server_mechanism(mechanism, context)
        refusal = "" if mechanism in self.offers(facts) else "mechanism was not offered"
        return _GuardedServer(machine, self._throttle, facts.counted_as, refusal)

    def verify(self, step: Verify, facts: TransportFacts) -> Deferred[bool]:
        """Verify a PLAIN password in a thread.

        Returns:
            A Deferred of the answer for `SaslServer.resolve`. It fails only if it is cancelled:
            what goes wrong is logged and answered with False. A False comes after
            `FAILURE_DELAY_SECONDS`.
        """
        users = self._users
        if users is None or self._throttle.refuses(facts.counted_as):
            return self._refuse()
        if self._verifying >= MAX_VERIFICATIONS:
            if not self._is_saturated:
                self._is_saturated = True
                log.warn(
                    "log-ins are refused while {count} passwords are being verified; the latest"
                    " is from {address}",
                    count=self._verifying,
                    address=facts.counted_as,
                )
            return self._refuse()
        self._is_saturated = False
        self._verifying += 1
        verified = maybeDeferred(self._defer_to_thread, users.verify, step.username, step.password)
        return verified.addCallbacks(self._verified, self._broken, callbackArgs=(facts.counted_as,))

    def principal(self, credentials: Credentials) -> Principal:
        """Return who has logged in."""
        if credentials.mechanism == ANONYMOUS:
            return ANONYMOUS_PRINCIPAL
        external = credentials.external
        if external is None:
            return Principal("user", credentials.name)
        names = frozenset(external.names) if external.kind == "peer" else frozenset()
        return Principal(external.kind, credentials.name, names)

    def _possible(self, name: str, facts: TransportFacts) -> bool:
        if name == EXTERNAL:
            return facts.external is not None
        if name in _PASSWORD_MECHANISMS and self._users is None:
            return False
        return name != PLAIN or self._is_confidential(facts)

    def _is_confidential(self, facts: TransportFacts) -> bool:
        return facts.tls or facts.uid is not None or self._plain_without_tls

    def _refuse(self) -> Deferred[bool]:
        return deferLater(self._clock, FAILURE_DELAY_SECONDS, _false)

    def _verified(self, right: bool, key: str) -> Deferred[bool]:
        self._verifying -= 1
        if right and not self._throttle.refuses(key):
            return succeed(True)
        if not right:
            # Now and not after the delay: hundreds of guesses fit into that second.
            self._throttle.failed(key)
        return self._refuse()

    def _broken(self, failure: Failure) -> Deferred[bool] | Failure:
        self._verifying -= 1
        if isinstance(failure.value, CancelledError):
            return failure  # the owner of the Deferred has lost interest; the thread has not
        log.failure("verifying a password failed", failure)
        return self._refuse()


_TOO_MANY: Final = Failed("too many failed log-ins from this address")


class _GuardedServer:
    """A machine behind the throttle; see the module's docstring."""

    __slots__ = ("_failed", "_key", "_machine", "_refusal", "_throttle")

    def __init__(self, machine: SaslServer, throttle: Throttle, key: str, refusal: str) -> None:
        self._machine = machine
        self._throttle = throttle
        self._key = key
        self._refusal = refusal
        self._failed = False

    @property
    def name(self) -> str:
        return self._machine.name

    def step(self, response: bytes | None) -> SaslStep:
        if self._refusal:
            return Failed(self._refusal)
        return self._judged(self._machine.step(response))

    def resolve(self, granted: bool) -> Done | Failed:
        # `Authenticator.verify` has counted a wrong password already.
        result = self._machine.resolve(granted)
        return _TOO_MANY if self._throttle.refuses(self._key) else result

    def _judged(self, step: SaslStep) -> SaslStep:
        if self.name not in _PASSWORD_MECHANISMS:
            return step
        if self._throttle.refuses(self._key):
            return _TOO_MANY
        if isinstance(step, Failed) and not self._failed:
            self._failed = True
            self._throttle.failed(self._key)
        return step


def login_key(
    directory: str | os.PathLike[str], random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """Return the key from which decoys for unknown users derive; make it once.

    It is kept as ``login-key`` in the state directory, mode 0600: were it new after each start, an
    unknown user's salt would change with it and a known one's would not.

    Raises:
        OSError: it can neither be read nor made.
        ConfigError: something else lies under its name.
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
    # Whole or not at all: half a key after a crash would keep the daemon from starting.
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


def _false() -> bool:
    return False
