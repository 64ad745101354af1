# SPDX-License-Identifier: Apache-2.0
"""SASL: the vectors of the RFCs, both roles against each other, and foul input."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import AuthenticationFailed, LocalProtocolError
from amqproute.wire import sasl_mechanisms
from amqproute.wire.sasl_mechanisms import (
    ANONYMOUS,
    EXTERNAL,
    MAX_MESSAGE_BYTES,
    MECHANISMS,
    PLAIN,
    SCRAM_SHA_256,
    Credentials,
    ExternalIdentity,
    MechanismChallenge,
    MechanismDone,
    MechanismFailed,
    SaslClient,
    SaslServer,
    SaslStep,
    ScramSecret,
    ServerContext,
    VerifyCredentials,
    choose,
    client_mechanism,
    decoy_secret,
    server_mechanism,
)

# RFC 7677 §3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SECRET = ScramSecret.derive("pencil", salt=SALT, iterations=4096)
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

PEER = ExternalIdentity("peer", ("beta.example", "mail.beta.example"))


def context(
    users: dict[str, ScramSecret] | None = None,
    *,
    external: ExternalIdentity | None = None,
    confidential: bool = True,
    nonce: str = SERVER_NONCE,
    outcome_carries_data: bool = True,
) -> ServerContext:
    table = {"user": SECRET} if users is None else users
    return ServerContext(
        lookup=table.get,
        nonce=nonce,
        decoy_key=b"k" * 32,
        decoy_iterations=4096,
        external=external,
        confidential=confidential,
        outcome_carries_data=outcome_carries_data,
    )


def scram_client(username: str = "user", password: str = "pencil") -> SaslClient:
    return client_mechanism(SCRAM_SHA_256, username=username, password=password, nonce=CLIENT_NONCE)


def run(
    client: SaslClient, server: SaslServer, users: dict[str, ScramSecret] | None = None
) -> SaslStep:
    """Drive one exchange to its end, as the AMQP 1.0 layer does."""
    table = {"user": SECRET} if users is None else users
    response = client.initial()
    for _ in range(10):
        step = server.step(response)
        if isinstance(step, VerifyCredentials):
            secret = table.get(step.username)
            step = server.resolve(secret is not None and secret.matches(step.password))
        if isinstance(step, MechanismChallenge):
            response = client.step(step.data)
            continue
        if isinstance(step, MechanismDone):
            client.finish(step.additional_data)
        return step
    raise AssertionError("the exchange does not end")


class ScramVectorTests(SynchronousTestCase):
    def test_rfc_7677_server(self) -> None:
        """The server says what the example of RFC 7677 says."""
        server = server_mechanism(SCRAM_SHA_256, context())
        self.assertEqual(server.step(CLIENT_FIRST), MechanismChallenge(SERVER_FIRST))
        self.assertEqual(
            server.step(CLIENT_FINAL),
            MechanismDone(Credentials(SCRAM_SHA_256, "user"), SERVER_FINAL),
        )

    def test_rfc_7677_client(self) -> None:
        """The client says what the example says, and takes the server's proof."""
        client = scram_client()
        self.assertEqual(client.initial(), CLIENT_FIRST)
        self.assertEqual(client.step(SERVER_FIRST), CLIENT_FINAL)
        client.finish(SERVER_FINAL)

    def test_rfc_5802_grammar(self) -> None:
        """Escaped names (RFC 5802 §5.1) come out unescaped."""
        server = server_mechanism(SCRAM_SHA_256, context({"a=b,c": SECRET}))
        client = scram_client("a=b,c")
        self.assertEqual(client.initial(), b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO")
        client = scram_client("a=b,c")
        step = run(client, server)
        assert isinstance(step, MechanismDone)
        self.assertEqual(step.credentials.name, "a=b,c")

    def test_proof_as_challenge(self) -> None:
        """Without data in the outcome the proof is one more challenge with an empty answer."""
        server = server_mechanism(SCRAM_SHA_256, context(outcome_carries_data=False))
        self.assertEqual(server.step(None), MechanismChallenge(b""))
        server.step(CLIENT_FIRST)
        self.assertEqual(server.step(CLIENT_FINAL), MechanismChallenge(SERVER_FINAL))
        self.assertEqual(server.step(b""), MechanismDone(Credentials(SCRAM_SHA_256, "user")))
        step = run(
            scram_client(), server_mechanism(SCRAM_SHA_256, context(outcome_carries_data=False))
        )
        self.assertIsInstance(step, MechanismDone)


class ScramAttackTests(SynchronousTestCase):
    def test_wrong_password(self) -> None:
        """A wrong password fails at the proof."""
        step = run(scram_client(password="pencils"), server_mechanism(SCRAM_SHA_256, context()))
        self.assertIsInstance(step, MechanismFailed)

    def test_unknown_user_looks_known(self) -> None:
        """A stranger meets a stable salt and fails at the same step with the same reason."""
        server = server_mechanism(SCRAM_SHA_256, context())
        again = server_mechanism(SCRAM_SHA_256, context())
        first = server.step(b"n,,n=nobody,r=abc")
        self.assertIsInstance(first, MechanismChallenge)
        self.assertEqual(first, again.step(b"n,,n=nobody,r=abc"))
        unknown = run(scram_client("nobody"), server_mechanism(SCRAM_SHA_256, context()))
        wrong = run(scram_client(password="x"), server_mechanism(SCRAM_SHA_256, context()))
        self.assertIsInstance(unknown, MechanismFailed)
        self.assertEqual(unknown, wrong)

    def test_decoys_differ(self) -> None:
        """Decoys depend on the name and on the key."""
        salts = {
            decoy_secret(name, key).salt for name in ("a", "b") for key in (b"1" * 32, b"2" * 32)
        }
        self.assertEqual(len(salts), 4)

    def test_replayed_proof(self) -> None:
        """A recorded exchange is worth nothing against a fresh nonce."""
        server = server_mechanism(SCRAM_SHA_256, context(nonce="another"))
        server.step(CLIENT_FIRST)
        self.assertIsInstance(server.step(CLIENT_FINAL), MechanismFailed)

    def test_server_without_our_nonce(self) -> None:
        """The client refuses a challenge that does not continue its nonce."""
        client = scram_client()
        client.initial()
        with self.assertRaises(AuthenticationFailed):
            client.step(SERVER_FIRST.replace(b"rOpr", b"rOpx"))

    def test_wrong_server_signature(self) -> None:
        """A server that does not know the keys is found out."""
        client = scram_client()
        client.initial()
        client.step(SERVER_FIRST)
        with self.assertRaises(AuthenticationFailed):
            client.finish(b"v=" + base64.b64encode(b"x" * 32))

    def test_ok_without_proof(self) -> None:
        """An outcome "ok" alone proves nothing, before or after the client's proof."""
        for steps in (0, 1):
            client = scram_client()
            client.initial()
            for _ in range(steps):
                client.step(SERVER_FIRST)
            for additional in (None, b""):
                with self.assertRaises(AuthenticationFailed):
                    client.finish(additional)

    def test_iterations_are_bounded(self) -> None:
        """A server cannot make the client compute for minutes, nor lower the cost of a guess."""
        for count in (b"i=600001", b"i=10000000", b"i=99999999999999999999", b"i=1"):
            client = scram_client()
            client.initial()
            with self.assertRaises(AuthenticationFailed):
                client.step(SERVER_FIRST.replace(b"i=4096", count))

    def test_channel_binding_is_refused(self) -> None:
        """A client that asks for channel binding hears that there is none."""
        server = server_mechanism(SCRAM_SHA_256, context())
        self.assertIsInstance(server.step(b"p=tls-unique,,n=user,r=abc"), MechanismFailed)

    def test_impersonation_is_refused(self) -> None:
        """An authorization identity in the GS2 header is refused."""
        server = server_mechanism(SCRAM_SHA_256, context())
        self.assertIsInstance(server.step(b"n,a=root,n=user,r=abc"), MechanismFailed)


class PlainTests(SynchronousTestCase):
    def test_verify(self) -> None:
        """The machine asks its owner and continues with the answer."""
        server = server_mechanism(PLAIN, context())
        self.assertEqual(server.step(b"\0user\0pencil"), VerifyCredentials("user", "pencil"))
        self.assertEqual(server.resolve(True), MechanismDone(Credentials(PLAIN, "user")))

    def test_refused(self) -> None:
        server = server_mechanism(PLAIN, context())
        server.step(b"user\0user\0pencil")
        self.assertIsInstance(server.resolve(False), MechanismFailed)

    def test_without_initial_response(self) -> None:
        """No initial response: one empty challenge, and no second one."""
        server = server_mechanism(PLAIN, context())
        self.assertEqual(server.step(None), MechanismChallenge(b""))
        self.assertIsInstance(server.step(b"\0user\0pencil"), VerifyCredentials)
        server = server_mechanism(PLAIN, context())
        server.step(None)
        self.assertIsInstance(server.step(None), MechanismFailed)

    def test_answer_while_verifying(self) -> None:
        """Octets during the verification are a failure, whatever its result."""
        server = server_mechanism(PLAIN, context())
        server.step(b"\0user\0pencil")
        self.assertIsInstance(server.step(b"more"), MechanismFailed)
        self.assertIsInstance(server.resolve(True), MechanismFailed)

    def test_password_is_not_shown(self) -> None:
        self.assertNotIn("pencil", repr(VerifyCredentials("user", "pencil")))
        self.assertNotIn("stored", repr(SECRET))

    def test_foul_messages(self) -> None:
        for message in (
            b"",
            b"user",
            b"user\0pencil",
            b"\0user\0",
            b"\0\0pencil",
            b"root\0user\0pencil",
            b"\0user\0pen\0cil",
            b"\0us\xff\0pencil",
            b"\0us\x07er\0pencil",
            b"\0" + b"u" * 256 + b"\0pencil",
            b"\0\xc2\xad\0pencil",  # a soft hyphen is mapped to nothing
        ):
            step = server_mechanism(PLAIN, context()).step(message)
            self.assertIsInstance(step, MechanismFailed, repr(message))

    def test_needs_confidentiality(self) -> None:
        """Neither role speaks PLAIN where somebody can listen."""
        step = server_mechanism(PLAIN, context(confidential=False)).step(b"\0user\0pencil")
        self.assertIsInstance(step, MechanismFailed)
        with self.assertRaises(AuthenticationFailed):
            client_mechanism(PLAIN, username="user", password="pencil")

    def test_prepared(self) -> None:
        """Forms of Unicode that look the same are the same (RFC 4013)."""
        server = server_mechanism(PLAIN, context())
        self.assertEqual(
            server.step("\0\u2168\0pass\u00a0word".encode()), VerifyCredentials("IX", "pass word")
        )


class ExternalTests(SynchronousTestCase):
    def test_first_name(self) -> None:
        """Without an authorization identity the preferred name counts; absent is empty."""
        for response in (b"", None):
            server = server_mechanism(EXTERNAL, context(external=PEER))
            self.assertEqual(
                server.step(response), MechanismDone(Credentials(EXTERNAL, "beta.example", PEER))
            )

    def test_chosen_name(self) -> None:
        server = server_mechanism(EXTERNAL, context(external=PEER))
        self.assertEqual(
            server.step(b"Mail.Beta.Example."),
            MechanismDone(Credentials(EXTERNAL, "mail.beta.example", PEER)),
        )

    def test_refused(self) -> None:
        for external, response in (
            (PEER, b"gamma.example"),
            (PEER, b"\xff"),
            (None, b""),
            (ExternalIdentity("uid", ("1000",)), b"0"),
        ):
            step = server_mechanism(EXTERNAL, context(external=external)).step(response)
            self.assertIsInstance(step, MechanismFailed)


class ChoiceTests(SynchronousTestCase):
    def test_choose(self) -> None:
        """The client's order decides; PLAIN only where nobody listens."""
        everything = [ANONYMOUS, PLAIN, SCRAM_SHA_256, EXTERNAL]
        for offered, wanted, confidential, expected in (
            (everything, MECHANISMS, False, EXTERNAL),
            (everything, [PLAIN, SCRAM_SHA_256], True, PLAIN),
            (everything, [PLAIN, SCRAM_SHA_256], False, SCRAM_SHA_256),
            ([PLAIN], [SCRAM_SHA_256, PLAIN], False, None),
            (["plain"], [PLAIN], True, PLAIN),
            ([], MECHANISMS, True, None),
            (["GSSAPI"], MECHANISMS, True, None),
        ):
            self.assertEqual(choose(offered, wanted, confidential=confidential), expected)

    def test_strongest(self) -> None:
        self.assertEqual(
            sasl_mechanisms.strongest({PLAIN, "GSSAPI", EXTERNAL, ANONYMOUS}),
            (EXTERNAL, PLAIN, ANONYMOUS),
        )

    def test_unknown(self) -> None:
        self.assertIsInstance(server_mechanism("GSSAPI", context()).step(b""), MechanismFailed)
        with self.assertRaises(AuthenticationFailed):
            client_mechanism("GSSAPI")

    def test_nothing_to_verify(self) -> None:
        for name in MECHANISMS:
            with self.assertRaises(LocalProtocolError):
                server_mechanism(name, context()).resolve(True)

    def test_bad_credentials(self) -> None:
        """An impossible name or password is reported before anything is sent."""
        for username, password in (("", "x"), ("x", ""), ("x\0", "y"), ("x", "\ud800")):
            for name in (PLAIN, SCRAM_SHA_256):
                with self.assertRaises(AuthenticationFailed):
                    client_mechanism(
                        name,
                        username=username,
                        password=password,
                        nonce="n",
                        confidential=True,
                    )
        with self.assertRaises(AuthenticationFailed):
            client_mechanism(SCRAM_SHA_256, username="u", password="p", nonce="a,b")


class RoundTripTests(SynchronousTestCase):
    def test_every_mechanism(self) -> None:
        """Each client gets through to its server."""
        for name, expected in (
            (EXTERNAL, "beta.example"),
            (SCRAM_SHA_256, "user"),
            (PLAIN, "user"),
            (ANONYMOUS, ""),
        ):
            client = client_mechanism(
                name,
                username="user" if name in (PLAIN, SCRAM_SHA_256) else "",
                password="pencil",
                nonce=CLIENT_NONCE,
                confidential=True,
            )
            step = run(client, server_mechanism(name, context(external=PEER)))
            assert isinstance(step, MechanismDone), step
            self.assertEqual(step.credentials.name, expected)
            self.assertEqual(step.credentials.mechanism, name)

    def test_unexpected_challenge(self) -> None:
        client = client_mechanism(ANONYMOUS)
        client.initial()
        with self.assertRaises(AuthenticationFailed):
            client.step(b"why?")


responses = st.lists(
    st.one_of(
        st.none(),
        st.binary(max_size=64),
        st.binary(min_size=MAX_MESSAGE_BYTES, max_size=MAX_MESSAGE_BYTES + 1),
        st.sampled_from([CLIENT_FIRST, CLIENT_FINAL, b"\0user\0pencil", b"n,,n=,r=,"]),
        st.text(alphabet="nrcpasv=,0yxA+/\0\u0627", max_size=40).map(
            lambda text: b"n,," + text.encode()
        ),
    ),
    min_size=1,
    max_size=4,
)


class FoulInputTests(SynchronousTestCase):
    @given(name=st.sampled_from(MECHANISMS), said=responses)
    def test_server_never_raises(self, name: str, said: list[bytes | None]) -> None:
        """Any input is a step, and after a failure there are only failures."""
        server = server_mechanism(name, context(external=PEER))
        failed = False
        for response in said:
            step = server.step(response)
            self.assertIsInstance(
                step, MechanismChallenge | VerifyCredentials | MechanismDone | MechanismFailed
            )
            if failed:
                self.assertIsInstance(step, MechanismFailed)
            failed = isinstance(step, MechanismFailed)

    @given(said=responses, last=st.one_of(st.none(), st.binary(max_size=64)))
    def test_client_raises_one_error(self, said: list[bytes | None], last: bytes | None) -> None:
        """A client takes nothing for a proof that is none, and has one way to say so."""
        client = scram_client()
        client.initial()
        with self.assertRaises(AuthenticationFailed):
            for challenge in said:
                client.step(challenge or b"")
            client.finish(last)

    @given(message=st.binary(max_size=100))
    def test_scram_final_mutations(self, message: bytes) -> None:
        """Only the one right proof is taken."""
        server = server_mechanism(SCRAM_SHA_256, context())
        server.step(CLIENT_FIRST)
        self.assertIsInstance(server.step(CLIENT_FINAL[:-20] + message), MechanismFailed)


class SecretTests(SynchronousTestCase):
    def test_matches(self) -> None:
        self.assertTrue(SECRET.matches("pencil"))
        for wrong in ("Pencil", "", "pen\0cil"):
            self.assertFalse(SECRET.matches(wrong))

    def test_bounds(self) -> None:
        for iterations, salt, key in (
            (4095, SALT, b"k" * 32),
            (10_000_001, SALT, b"k" * 32),
            (4096, b"short", b"k" * 32),
            (4096, SALT, b"k" * 31),
        ):
            with self.assertRaises(ValueError):
                ScramSecret(iterations, salt, key, b"k" * 32)
        with self.assertRaises(ValueError):
            ScramSecret.derive("", salt=SALT)
