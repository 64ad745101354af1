# SPDX-License-Identifier: Apache-2.0
"""SASL mechanisms as step machines: bytes in, bytes out, both roles.

A machine runs one exchange (RFC 4422) and is thrown away. The layer that carries its bytes,
AMQP 1.0's SASL frames or AMQP 0-9-1's start and secure methods, decides where the bytes go:

    server:  step(initial response) -> Challenge -> step(response) -> ... -> Done | Failed
    client:  initial() -> bytes; step(challenge) -> bytes; ... finish(additional data)

A server machine never raises for what a client sent: whatever is malformed, too long or out of
order gives `MechanismFailed`, after which the machine stays failed. A client machine raises
`AuthenticationFailed` when the server does not keep to the mechanism or does not prove itself.

==============  =========================  =====================================================
mechanism       standard                   who it proves
==============  =========================  =====================================================
EXTERNAL        RFC 4422 appendix A        a certificate's name or a unix user id, proved outside
SCRAM-SHA-256   RFC 5802, RFC 7677         a user, and to the client that the server knows the
                                           user's keys; the password never crosses the wire
OAUTHBEARER     RFC 7628                   a user, by a bearer token: on confidential transports
                                           only
XOAUTH2         of Google, without text    the same
PLAIN           RFC 4616                   a user, by the password itself: on confidential
                                           transports only
ANONYMOUS       RFC 4505                   nobody
==============  =========================  =====================================================

Passwords are kept as `ScramSecret` only, for PLAIN as well. To check a PLAIN password costs
PBKDF2, milliseconds by intention, so the PLAIN machine does not do it: its step gives
`Verify(username, password)`, the owner computes in a thread and answers with `resolve(granted)`.
SCRAM leaves that work to the client; the server's share is three HMACs, done in the step.

A server must not tell who its users are. For a name that does not exist SCRAM goes on with a
secret derived from the name and a key of the server (`decoy_secret`): the same name meets the
same salt every time, the proof never fits, and the exchange ends at the same step as with a wrong
password. The decoy is derived for names that do exist as well, so that the time is the same.

Limits: no channel binding (``-PLUS``) and no authorization identity other than one's own.

Why so: the grammar of SCRAM is `scramp`'s, a small library with nonce, salt and keys as
arguments, and so without clock, randomness or I/O of its own here. The rest is a few lines each.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from scramp import ScramException  # type: ignore[import-untyped]
from scramp.core import ScramClient, ScramMechanism  # type: ignore[import-untyped]
from scramp.utils import saslprep  # type: ignore[import-untyped]

from amqproute.errors import AuthenticationFailed, LocalProtocolError

__all__ = [
    "ANONYMOUS",
    "EXTERNAL",
    "MAX_MESSAGE_BYTES",
    "MAX_NAME_BYTES",
    "MAX_TOKEN_BYTES",
    "MECHANISMS",
    "MIN_SALT_BYTES",
    "NOT_LOOKED_AT",
    "OAUTHBEARER",
    "PLAIN",
    "SCRAM_ITERATIONS",
    "SCRAM_SHA_256",
    "TOKEN_MECHANISMS",
    "XOAUTH2",
    "AuthenticationFailed",
    "Credentials",
    "ExternalIdentity",
    "MechanismChallenge",
    "MechanismDone",
    "MechanismFailed",
    "OutsideIdentity",
    "SaslClient",
    "SaslServer",
    "SaslStep",
    "ScramSecret",
    "ServerContext",
    "TokenTerms",
    "Verification",
    "VerifyCredentials",
    "choose",
    "client_mechanism",
    "decoy_secret",
    "looks_like_token",
    "prepare",
    "server_mechanism",
    "strongest",
]

EXTERNAL: Final = "EXTERNAL"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
XOAUTH2: Final = "XOAUTH2"
ANONYMOUS: Final = "ANONYMOUS"

TOKEN_MECHANISMS: Final = frozenset({OAUTHBEARER, XOAUTH2})
"""Those that carry a bearer token."""

MECHANISMS: Final = (EXTERNAL, SCRAM_SHA_256, OAUTHBEARER, XOAUTH2, PLAIN, ANONYMOUS)
"""All that are known, the strongest first."""

MAX_MESSAGE_BYTES: Final = 4096
"""The longest message of a mechanism that is looked at. Names and passwords are far shorter;
AMQP 1.0 SASL frames are bounded at 512 bytes anyway (part 5 §5.3.1)."""

MAX_NAME_BYTES: Final = 255
"""The longest user name, password or authorization identity in octets of UTF-8 (RFC 4616 §2
asks for names of up to 255 octets)."""

MAX_TOKEN_BYTES: Final = 7500
"""The longest bearer token. With the rest of its message it has to fit into the frames before the
open of AMQP 1.0 and before the tuning of AMQP 0-9-1, which have 8192 octets."""

_LONGEST_ERROR: Final = 400
"""Octets of the JSON text about a refused token: SASL frames of AMQP 1.0 have 512."""

SCRAM_ITERATIONS: Final = 15_000
"""PBKDF2 rounds of new secrets. RFC 7677 §4 asks for at least 15,000; it costs the one who logs
in (SCRAM) or a thread of the server (PLAIN) some 5 ms, and a thief of the file as much a guess."""

MIN_ITERATIONS: Final = 4096
"""The fewest rounds with which a stored secret is accepted (RFC 7677 §4)."""

MAX_CLIENT_ITERATIONS: Final = 600_000
"""The most PBKDF2 rounds that a server can make our client compute, about 0.2 s. More would let
a hostile server hold the whole process (RFC 5802 §9)."""

MAX_ITERATIONS: Final = 10_000_000
"""The most rounds with which a stored secret is accepted; `scramp` draws the same line."""

MIN_SALT_BYTES: Final = 12
MAX_SALT_BYTES: Final = 256

_TOKEN: Final = re.compile(rb"[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]{2,}")

_TRANSLATED: Final = (ScramException, ValueError)
"""Exceptions of scramp for invalid input: its own, and Unicode errors from the codecs."""


def prepare(text: str) -> str:
    """Normalize a user name or a password for comparison: SASLprep (RFC 4013).

    Raises:
        ValueError: it holds characters that no name or password can have.
    """
    try:
        return str(saslprep(text))
    except ScramException as error:
        raise ValueError(str(error.args[0])) from error


def _check_iterations(iterations: int) -> None:
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")


@dataclass(frozen=True, slots=True)
class ScramSecret:
    """Verifier that a server keeps instead of a password (RFC 5802 §3).

    Attributes:
        iterations: PBKDF2 rounds.
        salt: random, of its own for each user.
        stored_key: proves a client; does not make a client.
        server_key: proves the server to a client.
    """

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_iterations(self.iterations)
        if not MIN_SALT_BYTES <= len(self.salt) <= MAX_SALT_BYTES:
            raise ValueError(f"salt must have {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes")
        if len(self.stored_key) != 32 or len(self.server_key) != 32:
            raise ValueError("stored-key and server-key must have 32 bytes")

    @classmethod
    def derive(
        cls, password: str, *, salt: bytes, iterations: int = SCRAM_ITERATIONS
    ) -> ScramSecret:
        """Compute the secret of a password. Takes milliseconds: not for the reactor's thread.

        Raises:
            ValueError: the password is empty or holds forbidden characters, or a number is out
                of its range.
        """
        _check_iterations(iterations)
        prepared = prepare(password).encode()
        if not prepared:
            raise ValueError("the password is empty")
        salted = hashlib.pbkdf2_hmac("sha256", prepared, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(
            iterations=iterations,
            salt=salt,
            stored_key=hashlib.sha256(client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", "sha256"),
        )

    def matches(self, password: str) -> bool:
        """Say whether this is the secret of `password`. Takes milliseconds, like `derive`."""
        try:
            other = ScramSecret.derive(password, salt=self.salt, iterations=self.iterations)
        except ValueError:
            return False
        return hmac.compare_digest(other.stored_key, self.stored_key)


def decoy_secret(name: str, key: bytes, iterations: int = SCRAM_ITERATIONS) -> ScramSecret:
    """Return the secret under which an unknown user is heard out and refused.

    It depends on `name` and `key` only, as a true salt depends on the user only. No password is
    known that fits it.
    """

    def part(label: bytes) -> bytes:
        return hmac.digest(key, label + b"\0" + name.encode("utf-8", "surrogatepass"), "sha256")

    return ScramSecret(iterations, part(b"salt")[:16], part(b"stored"), part(b"server"))


@dataclass(frozen=True, slots=True)
class ExternalIdentity:
    """Identity proved by the transport before SASL.

    Attributes:
        kind: ``peer`` for domain names out of a verified certificate, ``uid`` for the user id at
            the other end of a unix socket.
        names: the proved names, the preferred one first; never empty.
    """

    kind: Literal["peer", "uid"]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutsideIdentity:
    """A user as a directory or the issuer of a token knows him.

    Attributes:
        name: the name of the user.
        realm: which realm it was.
        groups: the groups that the user belongs to.
        expires: seconds since the epoch from which on this holds no more; None for no end.
        account: by which the realm is asked whether the user is still there.
    """

    name: str
    realm: str
    groups: frozenset[str] = frozenset()
    expires: float | None = None
    account: str = field(default="", compare=False)


Verification: TypeAlias = OutsideIdentity | bool | None
"""The result of `VerifyCredentials`: whether the secret is right, or who the user is; None if that
could not be found out."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The outcome of a successful exchange.

    Attributes:
        mechanism: its name.
        name: the user, or the external name acted under; empty for ANONYMOUS.
        external: the external identity, for EXTERNAL only.
        outside: the user, if not the users file but an outside realm has verified the secret.
    """

    mechanism: str
    name: str
    external: ExternalIdentity | None = None
    outside: OutsideIdentity | None = None


@dataclass(frozen=True, slots=True)
class MechanismChallenge:
    """Send `data` to the client and pass its answer to `step`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class VerifyCredentials:
    """Find out whether the password is right and say so with `SaslServer.resolve`.

    Attributes:
        username: as given, in its prepared form; empty if it could not be read.
        password: to be verified, or a bearer token; None if `is_right` has the result.
        is_right: the known result, as in SCRAM: only the time of the answer is open.
        mechanism: its name.
    """

    username: str
    password: str | None = field(repr=False)
    is_right: bool | None = None
    mechanism: str = PLAIN


@dataclass(frozen=True, slots=True)
class MechanismDone:
    """The client is who it says.

    Attributes:
        credentials: who that is.
        additional_data: the server's last word, to go with the outcome (AMQP 1.0 part 5
            §5.3.3.6), or None.
    """

    credentials: Credentials
    additional_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class MechanismFailed:
    """The exchange is over without success.

    Attributes:
        reason: the reason for our log, not for the client.
        is_temporary: the credentials were not looked at; the client may try again.
    """

    reason: str
    is_temporary: bool = False


NOT_LOOKED_AT: Final = MechanismFailed(
    "the password could not be looked at for now", is_temporary=True
)

SaslStep = MechanismChallenge | VerifyCredentials | MechanismDone | MechanismFailed


class SaslServer(Protocol):
    """The server's side of one exchange."""

    @property
    def name(self) -> str:
        """The mechanism."""
        ...

    @property
    def username(self) -> str:
        """The user that the client has named, in its prepared form; empty if none was read."""
        ...

    def step(self, response: bytes | None) -> SaslStep:
        """Take a response of the client; None if it opened without an initial response.

        Never raises for what the client sent.
        """
        ...

    def resolve(self, granted: Verification) -> SaslStep:
        """Answer `VerifyCredentials`; None: it could not be found out.

        Raises:
            LocalProtocolError: nothing was to be verified.
        """
        ...


class SaslClient(Protocol):
    """The client's side of one exchange."""

    @property
    def name(self) -> str:
        """The mechanism."""
        ...

    def initial(self) -> bytes | None:
        """Return the initial response; call it once, first. None stands for: there is none."""
        ...

    def step(self, challenge: bytes) -> bytes:
        """Answer a challenge.

        Raises:
            AuthenticationFailed: the challenge is not what the mechanism allows.
        """
        ...

    def finish(self, additional: bytes | None) -> None:
        """The server reports success, with or without a last message: check that it may.

        Raises:
            AuthenticationFailed: the server has not proved that it knows us.
        """
        ...


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """How a server takes bearer tokens.

    Attributes:
        are_passwords: PLAIN may carry one in place of the password, with any user name or none.
        hint: what a client is told when its token is refused: ``openid-configuration`` and
            ``scope`` (RFC 7628 §3.2.2).
    """

    are_passwords: bool = False
    hint: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The facts for the server's machines; made for each connection.

    Attributes:
        lookup: the secret of a (prepared) user name, or None; has to be quick and not to raise.
        nonce: fresh, unpredictable, printable ASCII without a comma; at least 18 bytes' worth of
            randomness (RFC 5802 §5.1 leaves the length open).
        decoy_key: secret key of the server from which `decoy_secret` derives; the same after a
            restart, or a patient stranger can tell decoys by their changing salt.
        decoy_iterations: the rounds that decoys claim: those of most of the true users.
        external: what the transport has proved, or None.
        confidential: nobody can listen: TLS, a unix socket, or the operator said so. PLAIN is
            refused without it.
        outcome_carries_data: True for AMQP 1.0. Where the protocol's "ok" cannot carry the last
            message of SCRAM, as in AMQP 0-9-1, False sends it as one more challenge.
        tokens: about bearer tokens.
    """

    lookup: Callable[[str], ScramSecret | None]
    nonce: str
    decoy_key: bytes = field(repr=False)
    decoy_iterations: int = SCRAM_ITERATIONS
    external: ExternalIdentity | None = None
    confidential: bool = False
    outcome_carries_data: bool = True
    tokens: TokenTerms = field(default_factory=TokenTerms)


def server_mechanism(name: str, context: ServerContext) -> SaslServer:
    """Return the server's machine for the mechanism that a client asked for.

    Whether the mechanism was offered is for the caller to check. For a name that is unknown, or
    impossible in this context, the machine's first step is `MechanismFailed`.
    """
    if name == EXTERNAL:
        return _ExternalServer(context.external)
    if name == SCRAM_SHA_256:
        return _ScramServer(context)
    if name == PLAIN and context.confidential:
        return _PlainServer(context.tokens.are_passwords)
    if name in TOKEN_MECHANISMS and context.confidential:
        return _TokenServer(name, context.tokens.hint)
    if name == PLAIN or name in TOKEN_MECHANISMS:
        return _RefusingServer(name, f"{name} needs a confidential transport")
    if name == ANONYMOUS:
        return _AnonymousServer()
    return _RefusingServer(name, f"no such mechanism: {name[:64]!r}")


def choose(offered: Iterable[str], wanted: Iterable[str], *, confidential: bool) -> str | None:
    """Return the first mechanism of `wanted` that is offered, or None.

    The client's order decides, not the server's. PLAIN is passed over on a transport that is not
    confidential, so that somebody in the middle who offers only PLAIN gets no password.
    """
    available = {name.upper() for name in offered}
    for name in wanted:
        if name in available and (name != PLAIN or confidential):
            return name
    return None


def client_mechanism(
    name: str,
    *,
    username: str = "",
    password: str = "",
    nonce: str = "",
    authorization_id: str = "",
    confidential: bool = False,
) -> SaslClient:
    """Return the client's machine for `name`.

    Args:
        name: the mechanism, as `choose` gave it.
        username: the username for SCRAM and PLAIN.
        password: the password for SCRAM and PLAIN.
        nonce: the nonce for SCRAM: fresh, unpredictable, printable ASCII without a comma.
        authorization_id: for EXTERNAL: which of the proved names to act under; empty leaves it to
            the server. For ANONYMOUS: the trace information.
        confidential: nobody can listen; PLAIN is refused without it.

    Raises:
        AuthenticationFailed: unknown mechanism, PLAIN where somebody can listen, or a name or
            password that cannot be one.
    """
    if name == EXTERNAL:
        return _OneShotClient(EXTERNAL, authorization_id.encode())
    if name == ANONYMOUS:
        return _OneShotClient(ANONYMOUS, authorization_id.encode())
    if name not in (SCRAM_SHA_256, PLAIN):
        raise AuthenticationFailed("auth.mechanism", f"no such mechanism: {name!r}")
    try:
        user, secret = prepare(username), prepare(password)
    except ValueError as error:
        raise AuthenticationFailed("auth.credentials", f"name or password: {error}") from error
    if not user or not secret:
        raise AuthenticationFailed("auth.credentials", f"{name} needs a name and a password")
    if name == SCRAM_SHA_256:
        return _ScramClient(user, secret, nonce)
    if not confidential:
        raise AuthenticationFailed("auth.mechanism", "PLAIN needs a confidential transport")
    return _OneShotClient(PLAIN, b"\0" + user.encode() + b"\0" + secret.encode())


class _Server:
    """The frame of every server machine: bounds, order, and staying failed."""

    __slots__ = ("_longest", "_result")

    name: str

    def __init__(self, longest: int = MAX_MESSAGE_BYTES) -> None:
        self._longest = longest
        self._result: MechanismDone | MechanismFailed | None = None

    def step(self, response: bytes | None) -> SaslStep:
        if self._result is not None:
            # Input after the outcome violates the exchange.
            self._result = MechanismFailed("response after the end of the exchange")
            return self._result
        if response is not None and len(response) > self._longest:
            return self._end(MechanismFailed("response too long"))
        step = self._advance(response)
        return self._end(step) if isinstance(step, MechanismDone | MechanismFailed) else step

    @property
    def username(self) -> str:
        return ""

    def resolve(self, granted: Verification) -> SaslStep:
        raise LocalProtocolError(f"{self.name} has nothing to verify")

    def _end(self, result: MechanismDone | MechanismFailed) -> MechanismDone | MechanismFailed:
        self._result = result
        return result

    def _advance(self, response: bytes | None) -> SaslStep:
        raise NotImplementedError


class _RefusingServer(_Server):
    """Refuses at the first step."""

    __slots__ = ("_reason", "name")

    def __init__(self, name: str, reason: str) -> None:
        super().__init__()
        self.name = name
        self._reason = reason

    def _advance(self, response: bytes | None) -> SaslStep:
        return MechanismFailed(self._reason)


class _AnonymousServer(_Server):
    """RFC 4505: one message of trace information that is believed by nobody."""

    __slots__ = ()
    name = ANONYMOUS

    def _advance(self, response: bytes | None) -> SaslStep:
        # Strictly, an absent initial response asks for an empty challenge. Several AMQP clients
        # leave it out and then do not expect one; absent and empty trace are the same to us.
        try:
            (response or b"").decode()
        except UnicodeDecodeError:
            return MechanismFailed("trace information is not UTF-8")
        return MechanismDone(Credentials(ANONYMOUS, ""))


class _ExternalServer(_Server):
    """RFC 4422 appendix A: the transport has proved a name already."""

    __slots__ = ("_external",)
    name = EXTERNAL

    def __init__(self, external: ExternalIdentity | None) -> None:
        super().__init__()
        self._external = external

    def _advance(self, response: bytes | None) -> SaslStep:
        external = self._external
        if external is None or not external.names:
            return MechanismFailed("the transport has proved no name")
        # An absent initial response is taken as an empty one, as in ANONYMOUS.
        try:
            wanted = (response or b"").decode()
        except UnicodeDecodeError:
            return MechanismFailed("authorization identity is not UTF-8")
        if not wanted:
            return MechanismDone(Credentials(EXTERNAL, external.names[0], external))
        if external.kind == "peer":
            wanted = wanted.lower().removesuffix(".")
        if wanted not in external.names:
            return MechanismFailed("authorization identity is not one of the proved names")
        return MechanismDone(Credentials(EXTERNAL, wanted, external))


class _PlainServer(_Server):
    """RFC 4616: ``[authzid] NUL authcid NUL passwd``."""

    __slots__ = ("_asked", "_takes_tokens", "_username")
    name = PLAIN

    def __init__(self, takes_tokens: bool = False) -> None:
        longest = MAX_TOKEN_BYTES + 2 * MAX_NAME_BYTES + 2
        super().__init__(longest if takes_tokens else MAX_MESSAGE_BYTES)
        self._takes_tokens = takes_tokens
        self._asked = False
        self._username: str | None = None

    def _advance(self, response: bytes | None) -> SaslStep:
        if self._username is not None:
            return MechanismFailed("response while the password is being verified")
        if response is None and not self._asked:
            self._asked = True
            return MechanismChallenge(b"")
        parts = (response or b"").split(b"\0")
        if len(parts) != 3 or not parts[2]:
            return MechanismFailed("malformed PLAIN message")
        is_token = self._takes_tokens and looks_like_token(parts[2])
        if not parts[1] and not is_token:
            return MechanismFailed("malformed PLAIN message")
        if any(len(part) > MAX_NAME_BYTES for part in (parts[:2] if is_token else parts)):
            return MechanismFailed("name or password too long")
        try:
            authorization, username, password = (prepare(part.decode()) for part in parts)
        except ValueError:
            return MechanismFailed("name or password holds forbidden characters")
        if not password or not (username or is_token):
            return MechanismFailed("name or password is empty")
        if authorization not in ("", username):
            return MechanismFailed("authorization identity differs from the user name")
        self._username = username
        return VerifyCredentials(username, password)

    @property
    def username(self) -> str:
        return self._username or ""

    def resolve(self, granted: Verification) -> SaslStep:
        username = self._username
        if username is None:
            raise LocalProtocolError("PLAIN has not asked for a verification")
        if self._result is not None:
            return self._result
        if isinstance(granted, OutsideIdentity):
            return self._end(MechanismDone(Credentials(PLAIN, granted.name, outside=granted)))
        if granted:
            return self._end(MechanismDone(Credentials(PLAIN, username)))
        if granted is None:
            return self._end(NOT_LOOKED_AT)
        return self._end(MechanismFailed("wrong name or password"))


class _TokenServer(_Server):
    """OAUTHBEARER (RFC 7628) and XOAUTH2.

    A refused token is answered by a challenge, a JSON text that says why. The client answers it
    with nothing of interest, and only then has the exchange failed (RFC 7628 §3.2.3).
    """

    __slots__ = ("_asked", "_error", "_refusal", "_username", "name")

    def __init__(self, name: str, hint: Mapping[str, str]) -> None:
        super().__init__(MAX_TOKEN_BYTES + 2 * MAX_NAME_BYTES)
        self.name = name
        self._error = _token_error(name, hint)
        self._asked = False
        self._refusal: MechanismFailed | None = None
        self._username: str | None = None

    def _advance(self, response: bytes | None) -> SaslStep:
        if self._refusal is not None:
            return self._refusal  # whatever the response is
        if self._username is not None:
            return MechanismFailed("response while the token is being verified")
        if response is None and not self._asked:
            self._asked = True
            return MechanismChallenge(b"")
        found = _bearer_token(self.name, response or b"")
        if found is None:
            return MechanismFailed(f"malformed {self.name} message")
        username, token = found
        if not token:  # the client asks where it can get one (RFC 7628 §4.3)
            return self._refuse("the client has no token yet")
        if len(token) > MAX_TOKEN_BYTES:
            return MechanismFailed("the token is too long")
        self._username = username
        return VerifyCredentials(username, token, mechanism=self.name)

    @property
    def username(self) -> str:
        return self._username or ""

    def resolve(self, granted: Verification) -> SaslStep:
        if self._username is None:
            raise LocalProtocolError(f"{self.name} has not asked for a verification")
        if self._result is not None:
            return self._result
        if granted is None:
            return self._end(NOT_LOOKED_AT)
        if not isinstance(granted, OutsideIdentity):
            return self._refuse("the token is refused")
        if self._username not in ("", granted.name):
            return self._refuse("the token is that of another user")
        return self._end(MechanismDone(Credentials(self.name, granted.name, outside=granted)))

    def _refuse(self, reason: str) -> SaslStep:
        self._refusal = MechanismFailed(reason)
        return MechanismChallenge(self._error)


def _token_error(name: str, hint: Mapping[str, str]) -> bytes:
    """Return the text about a refused token (RFC 7628 §3.2.2), as far as it fits."""
    found = {"status": "invalid_token" if name == OAUTHBEARER else "401", "schemes": "bearer"}
    for key, value in hint.items():
        more = {**found, key: value}
        if len(json.dumps(more)) <= _LONGEST_ERROR:
            found = more
    return json.dumps(found).encode()


def _bearer_token(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """Return the user and the token of a message; None if it is malformed.

    The user is empty if none is named, and so is the token if the client has none.
    """
    try:
        head, *pairs = response.decode().split("\x01")
        if len(pairs) < 2 or pairs[-2:] != ["", ""]:
            return None
        username = ""
        if mechanism == OAUTHBEARER:
            flag, comma, rest = head.partition(",")
            authorization, second, nothing = rest.partition(",")
            # There is no channel binding (RFC 5801 §4), and "y" says that the client could.
            if flag not in ("n", "y") or not comma or not second or nothing:
                return None
            if authorization:
                if not authorization.startswith("a="):
                    return None
                username = prepare(authorization[2:].replace("=2C", ",").replace("=3D", "="))
        else:
            pairs.insert(0, head)
        values = dict(pair.partition("=")[::2] for pair in pairs[:-2] if "=" in pair)
        if mechanism == XOAUTH2:
            username = prepare(values.get("user", ""))
    except ValueError:
        return None
    scheme, _, token = values.get("auth", "").partition(" ")
    if len(username.encode()) > MAX_NAME_BYTES or (scheme and scheme.lower() != "bearer"):
        return None
    return username, token.strip()


def looks_like_token(password: bytes) -> bool:
    """Return whether a password has the form of a signed JSON web token (RFC 7515 §7.1)."""
    return len(password) <= MAX_TOKEN_BYTES and _TOKEN.fullmatch(password) is not None


class _ScramServer(_Server):
    """RFC 5802 with SHA-256 (RFC 7677), without channel binding."""

    __slots__ = ("_asked", "_context", "_exchange", "_proved", "_username")
    name = SCRAM_SHA_256

    def __init__(self, context: ServerContext) -> None:
        super().__init__()
        self._context = context
        self._asked = False
        self._username: str | None = None
        self._proved: MechanismDone | None = None
        self._exchange: Any = None

    def _advance(self, response: bytes | None) -> SaslStep:
        if response is None:
            if self._asked or self._username is not None:
                return MechanismFailed("response missing")
            self._asked = True
            return MechanismChallenge(b"")
        if self._proved is not None:
            return (
                self._proved if not response else MechanismFailed("response to the server's proof")
            )
        try:
            text = response.decode()
            if self._username is None:
                return self._first(text)
            return self._final(text)
        except _TRANSLATED as error:
            return MechanismFailed(f"SCRAM: {error}")

    @property
    def username(self) -> str:
        return self._username or ""

    def _first(self, message: str) -> SaslStep:
        self._exchange = ScramMechanism(SCRAM_SHA_256).make_server(
            self._secret, s_nonce=self._context.nonce
        )
        self._exchange.set_client_first(message)
        return MechanismChallenge(str(self._exchange.get_server_first()).encode())

    def _secret(self, username: str) -> tuple[bytes, bytes, bytes, int]:
        context = self._context
        self._username = username
        # Both every time: see "A server must not tell" in the module's docstring.
        decoy = decoy_secret(username, context.decoy_key, context.decoy_iterations)
        secret = None
        if len(username.encode()) <= MAX_NAME_BYTES:
            secret = context.lookup(username)
        secret = secret or decoy
        return secret.salt, secret.stored_key, secret.server_key, secret.iterations

    def _final(self, message: str) -> SaslStep:
        assert self._username is not None
        self._exchange.set_client_final(message)
        proof = str(self._exchange.get_server_final()).encode()
        credentials = Credentials(SCRAM_SHA_256, self._username)
        if self._context.outcome_carries_data:
            return MechanismDone(credentials, proof)
        self._proved = MechanismDone(credentials)
        return MechanismChallenge(proof)


class _OneShotClient:
    """A mechanism whose client says one thing: PLAIN, EXTERNAL, ANONYMOUS."""

    __slots__ = ("_message", "_sent", "name")

    def __init__(self, name: str, message: bytes) -> None:
        self.name = name
        self._message = message
        self._sent = False

    def initial(self) -> bytes | None:
        self._sent = True
        return self._message

    def step(self, challenge: bytes) -> bytes:
        if not self._sent:
            return self.initial() or b""
        raise AuthenticationFailed("auth.server", f"unexpected challenge in {self.name}")

    def finish(self, additional: bytes | None) -> None:
        """Nothing to check: these mechanisms prove the client only; TLS proves the server."""


class _ScramClient:
    """RFC 5802 with SHA-256 (RFC 7677), without channel binding."""

    __slots__ = ("_exchange", "_stage")
    name = SCRAM_SHA_256

    def __init__(self, username: str, password: str, nonce: str) -> None:
        try:
            self._exchange: Any = ScramClient([SCRAM_SHA_256], username, password, c_nonce=nonce)
        except _TRANSLATED as error:
            raise AuthenticationFailed("auth.credentials", f"SCRAM: {error}") from error
        self._stage: Literal["new", "first", "final", "proved"] = "new"

    def initial(self) -> bytes | None:
        if self._stage != "new":
            raise LocalProtocolError("the exchange has begun already")
        self._stage = "first"
        return str(self._exchange.get_client_first()).encode()

    def step(self, challenge: bytes) -> bytes:
        if self._stage == "first":
            return self._answer(challenge)
        if self._stage == "final":
            # Servers without additional data in the outcome send their proof as a challenge.
            self._check(challenge)
            return b""
        raise AuthenticationFailed("auth.server", "challenge out of order in SCRAM")

    def finish(self, additional: bytes | None) -> None:
        if self._stage == "final" and additional:
            self._check(additional)
        if self._stage != "proved":
            raise AuthenticationFailed(
                "auth.server", "the server says ok without the proof that it knows this user"
            )

    def _answer(self, challenge: bytes) -> bytes:
        self._bound(challenge)
        try:
            self._exchange.set_server_first(challenge.decode())
            if int(self._exchange.iterations) > MAX_CLIENT_ITERATIONS:
                raise AuthenticationFailed(
                    "auth.server", f"the server wants over {MAX_CLIENT_ITERATIONS} iterations"
                )
            answer = str(self._exchange.get_client_final()).encode()
        except _TRANSLATED as error:
            raise AuthenticationFailed("auth.server", f"SCRAM: {error}") from error
        self._stage = "final"
        return answer

    def _check(self, message: bytes) -> None:
        self._bound(message)
        try:
            self._exchange.set_server_final(message.decode())
        except _TRANSLATED as error:
            raise AuthenticationFailed("auth.server", f"SCRAM: {error}") from error
        self._stage = "proved"

    @staticmethod
    def _bound(message: bytes) -> None:
        if len(message) > MAX_MESSAGE_BYTES:
            raise AuthenticationFailed("auth.server", "challenge too long")


def strongest(names: Collection[str]) -> tuple[str, ...]:
    """Order known mechanisms the strongest first; unknown names are left out."""
    return tuple(name for name in MECHANISMS if name in names)
