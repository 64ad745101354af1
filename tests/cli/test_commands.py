# SPDX-License-Identifier: Apache-2.0
"""The commands that need no network: output, exit codes, refusals in three parts."""

from __future__ import annotations

import datetime
import errno
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
from click.testing import CliRunner, Result
from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute import __main__
from amqproute.cli import main, message_text, render, runner
from amqproute.cli.command_error import CommandError
from amqproute.cli.commands import check, resolve, send_receive
from amqproute.cli.commands.consult import Consulted
from amqproute.cli.main import amqproute
from amqproute.cli.message_text import MessageDraft
from amqproute.daemon.preflight import PreflightFindings
from amqproute.errors import ResolveError
from amqproute.net.authority import issue, make_authority
from amqproute.net.dane import record_of
from amqproute.values import Candidate, Resolution, RouteRule, TransportSecurity

CONFIG = """\
container-id: broker.alpha.example
domains: [alpha.example]
state-directory: state
tls: {certificate: tls/alpha.example/chain.pem, private-key: tls/alpha.example/key.pem,
      trust: tls/ca.pem}
listen:
  - {endpoint: "unix:/run/a.sock", mechanisms: [EXTERNAL]}
  - {endpoint: "tcp:5672", tls: upgrade, mechanisms: [SCRAM-SHA-256]}
  - {endpoint: "tcp:5671", tls: implicit, client-certificate: optional, mechanisms: [EXTERNAL]}
users: {file: users.yaml}
access:
  - {allow: [transfer], who: "peer:*", node: orders}
nodes: [{name: orders}]
aliases: {sales: orders}
routes:
  - {domain: "*.partner.example", via: "amqps://gateway.partner.example:5671"}
peers:
  "beta.example": {level: pkix}
"""


class CommandTestCase(SynchronousTestCase):
    """A directory with a configuration, and a way to run commands in it."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.config = self.directory / "amqproute.yaml"
        self.config.write_text(CONFIG)
        self.users = self.directory / "users.yaml"

    def make_certificates(self, **terms: Any) -> None:
        make_authority(self.directory / "tls")
        issue(self.directory / "tls", ["alpha.example"], **terms)

    def amqproute(self, *args: str, **terms: Any) -> Result:
        environment = {"AMQPROUTE_CONFIG": str(self.config)}
        return CliRunner(env=environment).invoke(amqproute, list(args), **terms)

    def assertRefused(self, result: Result, exit_code: int, *parts: str) -> None:
        """It ends with this code and says these parts on stderr."""
        self.assertEqual(result.exit_code, exit_code, result.output)
        for part in parts:
            self.assertIn(part, result.stderr)


class ProgramTests(CommandTestCase):
    """Help, version, usage errors."""

    def test_every_command_has_help(self) -> None:
        """With a first line for the list, and a text for each option."""
        waiting: list[tuple[list[str], click.Command]] = [([], amqproute)]
        while waiting:
            path, command = waiting.pop()
            result = self.amqproute(*path, "--help")
            self.assertEqual(result.exit_code, 0)
            self.assertTrue(command.help, path)
            for parameter in command.params:
                if isinstance(parameter, click.Option):
                    self.assertTrue(parameter.help, (path, parameter.name))
            if isinstance(command, click.Group):
                waiting += [([*path, name], each) for name, each in command.commands.items()]

    def test_endless_body(self) -> None:
        """A file without an end is refused, not read until the memory is full."""
        self.patch(send_receive, "MAX_BODY_BYTES", 1000)
        result = self.amqproute("send", "orders", "--file", "/dev/zero", "--url", "unix:/nowhere")
        self.assertRefused(result, 2, "usage.file: /dev/zero has more than 1000 octets", "next:")

    def test_output_fails(self) -> None:
        """An unprintable text is described in words, where those can be printed."""
        full = OSError(errno.ENOSPC, "No space left on device")
        self.patch(click, "echo", Mock(side_effect=full))
        said: list[CommandError] = []
        self.patch(render, "refuse", said.append)
        result = self.amqproute("certs", "authority", str(self.directory / "ca"))
        self.assertEqual(result.exit_code, 1)
        self.assertEqual([each.words for each in said], ["No space left on device"])

    def test_wrong_usage_exits_with_2(self) -> None:
        """Any fault of it is named, with the correct form."""
        for args in (
            ["explode"],
            ["send"],
            ["send", "orders", "--priority", "10"],
            ["send", "orders", "--body", "x", "--file", "y"],
            ["send", "orders", "--count", "2"],
            ["send", "orders", "--body", "x", "--property", "novalue"],
            ["send", "orders", "--body", "x", "--content-type", "tëxt/plain"],
            ["receive", "orders", "--timeout", "0"],
            ["receive", "--browse"],
        ):
            with self.subTest(args=args):
                result = self.amqproute(*args)
                self.assertEqual(result.exit_code, 2)
                self.assertIn("--help", result.stderr)

    def test_wrong_values_are_refused_before_anything_is_sent(self) -> None:
        """Addresses, URLs and files, each with its code."""
        for args, code in (
            (["send", "orders@", "--body", "x"], "amqp:invalid-field: ADDRESS"),
            (["send", "@b.example", "--body", "x"], "names no node"),
            (["send", "orders", "--body", "x", "--return-to", "@"], "--return-to"),
            (["send", "orders", "--body", "x", "--reply-to", "@"], "--reply-to"),
            (["send", "orders", "--file", "/nowhere/at/all"], "usage.file"),
            (["send", "orders", "--body", "x", "--url", "http://a"], "usage.url"),
        ):
            with self.subTest(args=args):
                self.patch(runner, "run", run_at_once)
                self.assertRefused(self.amqproute(*args), 2, code, "next:")

    def test_options_are_properties(self) -> None:
        """Each option of `send` is the property of its name, as `receive --json` shows it."""
        drafts: list[MessageDraft] = []

        class Client:
            async def __aenter__(self) -> Client:
                return self

            async def __aexit__(self, *_: object) -> None:
                """Nothing is open."""

        async def open_client(*_: object) -> Client:
            return Client()

        async def publish(client: Client, draft: MessageDraft, bodies: object, report: Any) -> None:
            drafts.append(draft)
            report.counts["accepted"] += 1

        self.patch(send_receive, "open_client", open_client)
        self.patch(send_receive, "publish", publish)
        self.patch(runner, "run", run_at_once)
        given = {
            "message-id": "m1",
            "subject": "crates",
            "reply-to": "answers",
            "correlation-id": "q1",
            "content-type": "text/plain",
            "group-id": "g1",
        }
        options = [word for name, value in given.items() for word in (f"--{name}", value)]
        result = self.amqproute("send", "orders", "--body", "x", *options)
        self.assertEqual(result.exit_code, 0, result.output)
        shown = message_text.shown(drafts[0].encode("x", 0)[1])["properties"]
        del shown["creation-time"]
        self.assertEqual(shown, {**given, "to": "orders"})

    def test_without_configuration_a_client_needs_a_url(self) -> None:
        """Exit code 2, and the next step names --url."""
        self.patch(runner, "run", run_at_once)
        self.config.unlink()
        result = self.amqproute("send", "orders", "--body", "x")
        self.assertRefused(result, 2, "config:", "there is no such file", "--url")

    def test_no_unix_socket(self) -> None:
        """The default URL is the daemon's unix socket; without one --url is needed."""
        self.patch(runner, "run", run_at_once)
        self.config.write_text("listen: [{endpoint: 'tcp:5672'}]\n")
        result = self.amqproute("receive", "orders")
        self.assertRefused(result, 2, "usage.url", "no unix socket", "--url")


def run_at_once(work: Any) -> Any:
    """Run a coroutine function that waits for nothing."""
    coroutine = work(None)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


class CheckTests(CommandTestCase):
    """``check``."""

    def setUp(self) -> None:
        super().setUp()
        # This machine's ports are others' business; see tests.integration.test_start.
        self.patch(check, "examine_machine", lambda config: PreflightFindings())

    def test_fine(self) -> None:
        """It tells what would run."""
        self.make_certificates()
        self.users.write_text("# nobody\n")
        result = self.amqproute("check")
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("alpha.example", result.stdout)
        self.assertIn("tcp:5671", result.stdout)
        self.assertIn(f"{self.config}: ok", result.stdout)

    def test_missing_files_are_named_with_line_and_key(self) -> None:
        """One line each, exit code 2."""
        result = self.amqproute("check")
        self.assertRefused(
            result,
            2,
            f"{self.config}:4: tls.certificate: there is no file",
            f"{self.config}:5: tls.trust: there is no file",
            "next:",
        )
        self.assertEqual(result.stdout, "")

    def test_wrong_key_and_wrong_type(self) -> None:
        """Both are told in one go, with a hint."""
        self.config.write_text("domain: [a.example]\nrelay:\n  window: lots\n")
        self.assertRefused(
            self.amqproute("check"),
            2,
            ":1: domain: unknown key; did you mean domains?",
            ":3: relay.window: ",
            "2 problems",
        )

    def test_selector_of_a_binding(self) -> None:
        """It is compiled, and what is wrong is told with its line."""
        self.config.write_text(
            "nodes: [{name: t, type: topic}, {name: q}]\n"
            "bindings:\n  - source: t\n    target: q\n    filter: color =\n"
        )
        result = self.amqproute("check")
        self.assertRefused(result, 2, f"{self.config}:5: bindings[0].filter: ", "one problem")
        (line,) = [each for each in result.stderr.splitlines() if "filter:" in each]
        self.assertIn(".filter: selector, character 8: found the end", line)
        self.assertNotIn("filter selector", line)

    def test_small_disk(self) -> None:
        """A file system on which publishers would have no credit from the start is warned of."""
        state = self.config.parent / "state"
        for floor, words in ((0, ""), ("99.9%", "no credit from the start")):
            self.config.write_text(
                f"state-directory: {state}\nstore:\n  min-free: {floor}\nresolver: {{}}\n"
            )
            result = self.amqproute("check")
            self.assertEqual(result.exit_code, 0, result.output)
            self.assertEqual("no credit from the start" in result.stderr, bool(words))

    def test_no_such_file(self) -> None:
        """A file given with --config has to be there."""
        result = self.amqproute("check", "--config", "/nowhere.yaml")
        self.assertRefused(result, 2, "/nowhere.yaml:1: there is no such file")

    def test_certificate_that_expires_soon_is_warned_of(self) -> None:
        """Less than 21 days: a warning and exit code 0."""
        self.make_certificates(days=20)
        self.users.write_text("# nobody\n")
        result = self.amqproute("check")
        self.assertEqual(result.exit_code, 0)
        self.assertIn("tls.certificate: the certificate expires in 19 days", result.stderr)

    def test_key_of_another_certificate(self) -> None:
        """A problem of tls.private-key."""
        self.make_certificates()
        (other,) = issue(self.directory / "tls", ["other.example"])
        key = self.directory / "tls/alpha.example/key.pem"
        key.unlink()
        key.write_bytes(other.private_key.read_bytes())
        self.assertRefused(self.amqproute("check"), 2, ":4: tls.private-key: tls.key:")

    def test_expired_certificate(self) -> None:
        """A problem of tls.certificate."""
        now = datetime.datetime.now(datetime.UTC)
        self.make_certificates(
            not_before=now - datetime.timedelta(days=9), not_after=now - datetime.timedelta(days=1)
        )
        self.assertRefused(self.amqproute("check"), 2, "tls.certificate: tls.expired:")

    def test_certificate_for_another_domain_is_warned_of(self) -> None:
        """Peers would refuse this broker."""
        make_authority(self.directory / "tls")
        issue(self.directory / "tls", ["other.example"], folder="alpha.example")
        self.users.write_text("# nobody\n")
        result = self.amqproute("check")
        self.assertIn("does not name alpha.example", result.stderr)

    def test_broken_users_file(self) -> None:
        """A problem with the line in that file."""
        self.make_certificates()
        self.users.write_text("ann: {mechanism: MD5}\n")
        self.assertRefused(self.amqproute("check"), 2, "users.yaml:1: ann:")

    def test_json(self) -> None:
        """The same for programs."""
        result = self.amqproute("check", "--json")
        self.assertEqual(result.exit_code, 2)
        facts = json.loads(result.stdout)
        self.assertFalse(facts["ok"])
        self.assertEqual(len(facts["problems"]), 4)


class CertificateTests(CommandTestCase):
    """``certs``."""

    def test_authority_issue_show(self) -> None:
        """Three commands lead to files that fit together."""
        authority = str(self.directory / "ca")
        self.assertEqual(self.amqproute("certs", "authority", authority).exit_code, 0)
        result = self.amqproute("certs", "issue", authority, "a.example", "b.example")
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(len(result.stdout.splitlines()), 2)
        chain = f"{authority}/b.example/chain.pem"
        shown = json.loads(self.amqproute("certs", "show", chain, "--json").stdout)
        self.assertEqual(
            shown["certificates"][0]["names"],
            ["b.example", "_amqps.b.example", "_amqp.b.example"],
        )
        self.assertIn("b.example", self.amqproute("certs", "show", chain).stdout)

    def test_nothing_is_overwritten(self) -> None:
        """A second authority in the same place is refused."""
        authority = str(self.directory / "ca")
        self.amqproute("certs", "authority", authority)
        result = self.amqproute("certs", "authority", authority)
        self.assertRefused(result, 2, "tls.exists:", "next:")

    def test_issue_without_authority(self) -> None:
        """The cause names the command that makes one."""
        result = self.amqproute("certs", "issue", str(self.directory), "a.example")
        self.assertRefused(result, 2, "tls.file:", "certs authority")

    def test_host(self) -> None:
        """Clients check the host that they connect to; its name may stand beside the domain."""
        authority = str(self.directory / "ca")
        self.amqproute("certs", "authority", authority)
        result = self.amqproute(
            "certs", "issue", authority, "a.example", "--host", "amqp.a.example"
        )
        self.assertEqual(result.exit_code, 0)
        chain = f"{authority}/a.example/chain.pem"
        (shown,) = json.loads(self.amqproute("certs", "show", chain, "--json").stdout)[
            "certificates"
        ]
        self.assertEqual(shown["names"][:2], ["a.example", "amqp.a.example"])
        result = self.amqproute(
            "certs", "issue", authority, "b.example", "c.example", "--host", "h"
        )
        self.assertRefused(result, 2, "--host goes with one NAME")

    def test_show_of_something_else(self) -> None:
        """A file that is no certificate, and one that is not there."""
        self.assertRefused(self.amqproute("certs", "show", str(self.config)), 2, "tls.file:")
        self.assertRefused(self.amqproute("certs", "show", "/nowhere.pem"), 2, "tls.file:")


class UserTests(CommandTestCase):
    """``user``."""

    def test_add_ls_remove(self) -> None:
        """A user comes and goes; the file never holds the password."""
        added = self.amqproute("user", "add", "ann", "--password-file", "-", input="sesame\n")
        self.assertEqual(added.exit_code, 0, added.output)
        self.assertNotIn("sesame", self.users.read_text())
        self.assertEqual(self.amqproute("user", "ls").stdout, "ann\n")
        self.assertEqual(
            json.loads(self.amqproute("user", "ls", "--json").stdout),
            {"file": str(self.users), "users": ["ann"]},
        )
        again = self.amqproute("user", "add", "ann", "--password-file", "-", input="open\n")
        self.assertIn("new password", again.stdout)
        self.assertEqual(self.amqproute("user", "remove", "ann").exit_code, 0)
        self.assertRefused(self.amqproute("user", "remove", "ann"), 1, "user.unknown:", "next:")

    def test_password_is_asked_for_twice(self) -> None:
        """And has to be the same."""
        # Not a word that the random name of a directory may contain.
        result = self.amqproute("user", "add", "bob", input="1 + 1\n2 + 2\n1 + 1\n1 + 1\n")
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertNotIn("1 + 1", result.output)
        self.assertEqual(self.amqproute("user", "ls").stdout, "bob\n")

    def test_password_from_a_file(self) -> None:
        """Its first line; an empty one is refused."""
        secret = self.directory / "secret"
        secret.write_text("sesame\nmore\n")
        self.assertEqual(
            self.amqproute("user", "add", "ann", "--password-file", str(secret)).exit_code, 0
        )
        secret.write_text("\n")
        result = self.amqproute("user", "add", "ann", "--password-file", str(secret))
        self.assertRefused(result, 2, "usage.password:")

    def test_impossible_name(self) -> None:
        """Exit code 2 and the cause."""
        result = self.amqproute("user", "add", "a*b", "--password-file", "-", input="x\n")
        self.assertRefused(result, 2, "usage.user:", "'*'")

    def test_no_users_yet(self) -> None:
        """Nobody is no error, removing nobody is."""
        self.assertEqual(self.amqproute("user", "ls").exit_code, 0)
        self.assertRefused(self.amqproute("user", "remove", "ann"), 1, "user.unknown:")


class DnsTests(CommandTestCase):
    """``dns print``, ``explain`` and ``resolve``, with a fake DNS."""

    answer: Any = None

    consulted = Consulted("no daemon here")

    async def look_up(
        self, _: Any, __: Any, domain: str, is_named: Any = None, is_own: bool = False
    ) -> Any:
        self.asked = domain
        self.is_named = is_named
        return self.answer

    async def consult(self, *_: Any) -> Consulted:
        return self.consulted

    def setUp(self) -> None:
        super().setUp()
        self.patch(resolve, "_look_up", self.look_up)
        self.patch(resolve, "consult", self.consult)
        self.patch(resolve, "consult_about_node", self.consult)

        def run(work: Any) -> Any:
            running = Deferred.fromCoroutine(work(None))
            failed: list[Failure] = []
            running.addErrback(failed.append)
            for failure in failed:
                failure.raiseException()
            return self.successResultOf(running)

        self.patch(resolve.runner, "run", run)

    def found(self) -> Resolution:
        candidate = Candidate(
            "broker.beta.example",
            5671,
            TransportSecurity.IMPLICIT,
            ("192.0.2.1",),
            10,
            0,
            "srv:_amqps._tcp.beta.example",
        )
        return Resolution("beta.example", (candidate,), ("asked once",), 60.0, False, False)

    def gone(self) -> ResolveError:
        return ResolveError("dns.nxdomain", "no such", permanent=True, attempts=("asked",))

    def test_print(self) -> None:
        """Only endpoints where peers can prove themselves are published."""
        result = self.amqproute("dns", "print", "--host", "Broker.Alpha.Example.")
        self.assertEqual(
            result.stdout,
            "_amqps._tcp.alpha.example. 3600 IN SRV 10 0 5671 broker.alpha.example.\n",
        )

    def test_print_keys(self) -> None:
        """The records of the key in use and of the next one; notes go beside."""
        self.make_certificates()
        issue(self.directory / "tls", ["alpha.example"], folder="next")
        (self.directory / "tls/key-only.pem").write_text("nothing")
        next_file = str(self.directory / "tls/next/chain.pem")
        command = ("dns", "print", "--host", "b.alpha.example", "--ttl", "60")
        result = self.amqproute(*command, "--next", next_file)
        self.assertEqual(result.exit_code, 0, result.output)
        records = [
            str(record_of(x509.load_pem_x509_certificate(path.read_bytes())))
            for path in (self.directory / "tls/alpha.example/chain.pem", Path(next_file))
        ]
        self.assertEqual(
            result.stdout.splitlines(),
            [
                "_amqps._tcp.alpha.example. 60 IN SRV 10 0 5671 b.alpha.example.",
                f"_5671._tcp.b.alpha.example. 60 IN TLSA {records[0]}",
                f"_5671._tcp.b.alpha.example. 60 IN TLSA {records[1]}",
            ],
        )
        self.assertIn("signed with DNSSEC", result.stderr)
        self.assertIn("revocation list", result.stderr)
        result = self.amqproute(*command, "--next", str(self.directory / "tls/key-only.pem"))
        self.assertRefused(result, 2, "tls.file:")

    def test_print_needs_a_host_name_and_an_endpoint(self) -> None:
        """Each refusal says what is missing."""
        self.assertRefused(self.amqproute("dns", "print", "--host", "broker"), 2, "usage.host:")
        self.config.write_text("domains: [a.example]\n")
        result = self.amqproute("dns", "print", "--host", "b.a.example")
        self.assertRefused(result, 1, "dns.no-endpoint:", "tls: implicit")
        self.config.write_text("{}\n")
        result = self.amqproute("dns", "print", "--host", "b.a.example")
        self.assertRefused(result, 2, "`domains` is empty")

    def test_resolve(self) -> None:
        """The candidates in their order, and what was asked."""
        self.answer = self.found()
        result = self.amqproute("resolve", "beta.example")
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("broker.beta.example\t5671\tTLS at once\t192.0.2.1", result.stdout)
        self.assertIn("asked once", result.stdout)
        facts = json.loads(self.amqproute("resolve", "beta.example", "--json").stdout)
        self.assertEqual(facts["candidates"][0]["port"], 5671)

    def test_resolve_without_an_answer(self) -> None:
        """Exit code 1 with the resolver's code."""
        self.answer = self.gone()
        result = self.amqproute("resolve", "gone.example")
        self.assertRefused(result, 1, "dns.nxdomain: no such", "  asked", "next:")
        result = self.amqproute("resolve", "gone.example", "--json")
        self.assertEqual(result.exit_code, 1)
        self.assertEqual(json.loads(result.stdout)["code"], "dns.nxdomain")

    def test_explain_local(self) -> None:
        """Own domains, the container id, no domain, aliases."""
        for address in ("orders", "sales@alpha.example", "orders@broker.alpha.example"):
            with self.subTest(address=address):
                result = self.amqproute("explain", address)
                self.assertEqual(result.exit_code, 0, result.output)
                self.assertIn("goes onto the local node orders", result.stdout)

    def test_explain_refusals(self) -> None:
        """The one code that stops it."""
        self.answer = self.gone()
        for address, code in (
            ("@", "amqp:invalid-field"),
            ("nowhere@alpha.example", "amqp:not-found"),
            ("@alpha.example", "amqp:precondition-failed"),
            ("$management@alpha.example", "amqp:not-allowed"),
            ("amqp$transfer@beta.example", "amqp:not-allowed"),
            ("orders@gone.example", "dns.nxdomain"),
        ):
            with self.subTest(address=address):
                self.assertRefused(self.amqproute("explain", address), 1, f"{code}:", "next:")
                result = self.amqproute("explain", address, "--json")
                self.assertEqual(result.exit_code, 1)
                self.assertEqual(json.loads(result.stdout)["code"], code)

    def test_explain_through_dns(self) -> None:
        """Rule, level, names and candidates."""
        self.answer = self.found()
        result = self.amqproute("explain", "orders@Beta.Example", "--json")
        self.assertEqual(result.exit_code, 0, result.output)
        facts = json.loads(result.stdout)
        self.assertEqual(self.asked, "beta.example")
        self.assertEqual(facts["code"], "ok")
        self.assertEqual(facts["security"], {"level": "pkix", "names": ["beta.example"]})
        self.assertIn("the level for beta.example is pkix", facts["steps"])
        self.assertIn("authority that names beta.example (level pkix)", facts["steps"][-1])
        self.assertEqual(facts["candidates"][0]["verdict"], "ok")
        self.assertEqual(facts["candidates"][0]["proof"], "pkix")
        self.assertEqual(facts["route"]["target"], "amqp$transfer")
        self.assertEqual(facts["candidates"][0]["host"], "broker.beta.example")

    def test_explain_a_static_route(self) -> None:
        """The gateway has to prove its own name; the DNS is not asked for SRV."""
        facts = json.loads(self.amqproute("explain", "x@a.partner.example", "--json").stdout)
        self.assertEqual(facts["route"]["rule"], 0)
        self.assertEqual(facts["route"]["next-hop"], "gateway.partner.example:5671")
        self.assertEqual(facts["security"]["names"], ["gateway.partner.example"])

    def test_explain_a_route_made_at_runtime(self) -> None:
        """Routes made by operators precede a wider route of the file."""
        made = RouteRule("a.partner.example", "amqps://b.partner.example:5671", "anonymous", ())
        self.consulted = Consulted("forgotten", (made,))
        facts = json.loads(self.amqproute("explain", "x@a.partner.example", "--json").stdout)
        self.assertEqual(facts["route"]["via"], "amqps://b.partner.example:5671")
        self.assertEqual((facts["route"]["origin"], facts["route"]["rule"]), ("runtime", None))
        self.assertTrue(any("made at runtime" in step for step in facts["steps"]), facts["steps"])
        facts = json.loads(self.amqproute("explain", "x@c.partner.example", "--json").stdout)
        self.assertEqual((facts["route"]["origin"], facts["route"]["rule"]), ("configuration", 0))

    def test_explain_a_domain_named_at_runtime(self) -> None:
        """A route by name lets the DNS lead to private addresses, as in the daemon."""
        self.answer = self.found()
        self.consulted = Consulted("forgotten", (RouteRule("beta.example", None),))
        self.amqproute("explain", "x@beta.example")
        self.assertTrue(self.is_named("beta.example"))
        self.assertFalse(self.is_named("gamma.example"))

    def test_explain_a_node_made_at_runtime(self) -> None:
        """A node that the file does not have, and the daemon does."""
        self.consulted = Consulted("the daemon has it", node="made")
        result = self.amqproute("explain", "also@alpha.example")
        self.assertIn("goes onto the local node made", result.stdout, result.output)

    def test_explain_without_certificate(self) -> None:
        """A broker that cannot prove its domain relays nothing."""
        self.config.write_text("domains: [alpha.example]\nlisten: []\n")
        self.assertRefused(self.amqproute("explain", "orders@beta.example"), 1, "tls.file:")


class EnvironmentTests(SynchronousTestCase):
    """The entry points."""

    def test_module_is_the_command(self) -> None:
        """``python -m amqproute`` has the same function."""
        self.assertIs(__main__.main, main.main)
