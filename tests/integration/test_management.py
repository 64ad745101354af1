# SPDX-License-Identifier: Apache-2.0
"""Operating a running daemon: the command line, Qpid Proton, restarts and reloads."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import skipUnless

import yaml

import amqproute
from amqproute.config.node_settings import NodeSettings
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import UInt
from tests.integration.support import (
    Daemon,
    DaemonTestCase,
    Wire,
    message,
    until,
)
from tests.support.patience import PATIENCE
from tests.support.program import run

try:
    from proton import Message, symbol
    from proton.utils import BlockingConnection
except ImportError:
    BlockingConnection = None


ROOT = Path(amqproute.__file__).parent.parent


def durable(body: bytes) -> bytes:
    """Return a durable message."""
    return message(body, durable=True)


class ManagementCase(DaemonTestCase):
    """A daemon that each test may restart, and commands to it through its unix socket."""

    nodes = ({"name": "orders"}, {"name": "t", "type": "topic"})

    @classmethod
    def make(cls) -> Daemon:
        return Daemon("alpha.example", changes={"nodes": list(cls.nodes)}).start()

    def amqproute(
        self, *args: str, code: int = 0, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the operator; assert its exit code."""
        done = run(*args, "--config", str(self.daemon.file), stdin=stdin)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def shown(self, *args: str) -> Any:
        """Run a command with --json; return what it prints."""
        return json.loads(self.amqproute(*args, "--json").stdout)

    def depth(self, name: str) -> int:
        """Return how many messages are on a queue."""
        return int(self.shown("queue", "show", name)["depth"])

    def publish(self, name: str, count: int = 3) -> None:
        """Put durable messages on a node."""
        with Wire(self.daemon.plain) as wire:
            wire.publish(name, [durable(b"%d" % n) for n in range(count)])


class QueueCommandTests(ManagementCase):
    """``amqproute queue``."""

    def test_life(self) -> None:
        """A queue is made, filled, kept over a kill and a reload, changed, renamed, deleted."""
        run = self.amqproute
        run("queue", "create", "jobs", "--option", "capacity=100", "--option", "ttl=1h")
        self.publish("jobs")
        self.daemon.kill()
        self.daemon.start()
        facts = self.shown("queue", "show", "jobs")
        self.assertEqual((facts["depth"], facts["origin"]), (3, "runtime"))
        self.assertEqual((facts["options"]["capacity"], facts["options"]["ttl"]), (100, "1h"))
        self.daemon.reload(nodes=[*self.nodes, {"name": "more"}])
        self.assertEqual(self.depth("jobs"), 3)
        run("queue", "update", "jobs", "--option", "ttl=null")
        self.assertIsNone(self.shown("queue", "show", "jobs")["options"]["ttl"])
        run("queue", "rename", "jobs", "tasks")
        self.assertEqual(self.depth("tasks"), 3)
        self.assertEqual(run("queue", "purge", "tasks", "--dry-run").stdout.strip(),
                         "tasks: 3 messages would be deleted")  # fmt: skip
        self.assertIn(
            "management.409", run("queue", "delete", "tasks", "--if-empty", code=1).stderr
        )
        run("queue", "purge", "tasks")
        until(lambda: self.depth("tasks") == 0, "purged")
        self.publish("tasks")
        self.assertIn("with 3 messages", run("queue", "delete", "tasks", "--if-unused").stdout)
        run("queue", "show", "tasks", code=1)
        self.daemon.stop()
        self.daemon.start()
        names = [row["name"] for row in self.shown("queue", "ls")["queues"]]
        self.assertNotIn("tasks", names)

    def test_refusals(self) -> None:
        """Code, cause, next step; and the place of what the configuration declares."""
        for args, code, parts in (
            (
                ["delete", "orders"],
                1,
                ("management.409", "amqproute.yaml:", "edit it, then reload"),
            ),
            (["delete", "nowhere"], 1, ("management.404", "nowhere", "queue ls")),
            (["create", "orders"], 1, ("management.409", "amqproute.yaml:")),
            (["create", "x", "--option", "capasity=1"], 2, ("did you mean capacity",)),
            (["create", "x", "--option", "capacity"], 2, ("usage.option", "KEY=VALUE")),
            (["purge", "t"], 2, ("is a topic",)),
        ):
            done = self.amqproute("queue", *args, code=code)
            for part in parts:
                self.assertIn(part, done.stderr, args)
            self.assertIn("next: ", done.stderr, args)

    def test_move_and_copy(self) -> None:
        """Dead letters go back to where they were, some of them (G-22)."""
        run = self.amqproute
        run("batch", stdin="create queue dead\ncreate queue again with capacity=3\n")
        self.publish("dead", 5)
        done = run("queue", "move", "dead", "again", "--limit", "2", "--dry-run")
        self.assertEqual(done.stdout, "2 messages would be moved\n")
        self.assertEqual(run("queue", "move", "dead", "again", "--limit", "2").stdout,
                         "2 messages moved\n")  # fmt: skip
        self.assertEqual((self.depth("dead"), self.depth("again")), (3, 2))
        done = run("queue", "copy", "dead", "again", "--where", "amqp.durable = TRUE", code=1)
        self.assertEqual(done.stdout, "1 message copied\n")
        self.assertIn("the rest stays on dead: queue again is full: 3 messages", done.stderr)
        self.assertEqual((self.depth("dead"), self.depth("again")), (3, 3))
        run("queue", "move", "dead", "again", "--where", "amqp.subject = 'x'", code=1)
        self.assertIn("management.404", run("queue", "move", "dead", "gone", code=1).stderr)
        done = run("batch", stdin="create queue last\nmove messages dead last\n")
        self.assertIn("2: 200 up to 3 messages are being moved", done.stdout)
        until(lambda: self.depth("last") == 3, "moved in the background")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual([self.depth(name) for name in ("dead", "again", "last")], [0, 3, 3])

    def test_or_assert(self) -> None:
        """Twice the same is no mistake, something else is."""
        make = ["queue", "create", "same", "--or-assert", "--option"]
        self.amqproute(*make, "capacity=5")
        self.amqproute(*make, "capacity=5")
        done = self.amqproute(*make, "capacity=6", code=1)
        self.assertIn("capacity is 5, not 6", done.stderr)

    def test_shape(self) -> None:
        """Waiting messages by age and queue."""
        self.amqproute("queue", "create", "shaped")
        self.publish("shaped", 4)
        rows = {row["name"]: row for row in self.shown("queue", "shape")["shape"]}
        self.assertEqual((rows["shaped"]["total"], rows["shaped"]["ages"][0]), (4, 4))
        lines = self.amqproute("queue", "shape").stdout.splitlines()
        self.assertTrue(lines[0].startswith("QUEUE\tTOTAL\t5\t10\t20"))
        self.assertTrue(lines[-1].startswith("TOTAL\t"))

    def test_batch(self) -> None:
        """A file of commands: all or none, with the line that is wrong."""
        text = "create queue x\ncreate queue y\n# and\ncreate link x-y x y\n"
        done = self.amqproute("batch", code=1, stdin=text + "delete queue nowhere\n")
        self.assertIn("management.404: 5: there is no queue", done.stderr)
        self.assertIn("nothing was done", done.stderr)
        self.amqproute("queue", "show", "x", code=1)
        done = self.amqproute("batch", stdin=text + "query link x-y\n")
        self.assertEqual([line[:6] for line in done.stdout.splitlines()[:3]],
                         ["1: 201", "2: 201", "3: 201"])  # fmt: skip
        self.publish("x")
        until(lambda: self.depth("y") == 3, "moved along the link")
        self.assertIn("expected", self.amqproute("batch", code=2, stdin="explode").stderr)
        self.amqproute("link", "close", "x-y")
        self.amqproute("batch", stdin="delete queue x\ndelete queue y with if-unused=true")

    def test_links(self) -> None:
        """Connections with the state of their links; an operator closes one."""
        with Wire(self.daemon.plain, container="client.example") as wire:
            link = wire.attach("sender", "orders", name="to-orders")
            (row,) = (r for r in self.shown("link", "ls")["links"] if r["name"] == "to-orders")
            self.assertEqual((row["direction"], row["address"]), ("in", "orders"))
            self.assertGreater(row["credit"], 0)
            rows = self.shown("connection", "ls")["connections"]
            (row,) = (each for each in rows if each["container"] == "client.example")
            self.assertEqual((row["principal"], row["links"]), ("anonymous", 1))
            self.assertGreater(row["credit-in"], 0)
            lines = self.amqproute("link", "ls", "--node", "orders").stdout.splitlines()
            self.assertTrue(lines[1].startswith("to-orders\tin\torders\tanonymous\t"))
            self.assertIn("client.example", self.amqproute("connection", "ls").stdout)
            self.amqproute("link", "close", "to-orders")
            error = wire.wait(lambda each: getattr(each, "link", None) is link).error
            self.assertEqual(error.condition, "amqp:link:detach-forced")
        self.assertIn("amqproute link ls", self.amqproute("link", "close", "nobody", code=1).stderr)

    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.shown("link", "ls")["links"]]

    def test_suspended(self) -> None:
        """A link whose client has left it: for how long it may come back."""
        with Wire(self.daemon.plain, container="client.example") as wire:
            for name, policy in (("soon", spec.EXPIRE_LINK_DETACH), ("kept", spec.EXPIRE_NEVER)):
                target = spec.Target(address="orders", expiry_policy=policy, timeout=UInt(200))
                link = wire.attach("sender", "orders", name=name, target=target)
                link.detach(closed=False)
                wire.flush()
            until(lambda: self.kinds().count("suspended") == 2, "both are suspended")
            lines = self.amqproute("link", "ls").stdout.splitlines()
        expires = {line.split("\t")[0]: line.split("\t")[-1] for line in lines}
        self.assertEqual(expires["LINK"], "EXPIRES")
        self.assertEqual((expires["soon"], expires["kept"]), ("3m", "not yet"))

    def test_unreachable(self) -> None:
        """No daemon: exit code 3."""
        done = self.amqproute("queue", "ls", "--url", "unix:/nowhere/at/all", code=3)
        self.assertIn("next: ", done.stderr)


class ReadmeTests(DaemonTestCase):
    """The chapter of the README about nodes: its configuration, and its commands as they stand."""

    @classmethod
    def chapter(cls) -> str:
        """Return the chapter."""
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        return re.split(r"^## ", readme.partition("\n## Nodes\n")[2], flags=re.MULTILINE)[0]

    @classmethod
    def make(cls) -> Daemon:
        (block,) = re.findall(r"```yaml\n(.*?)```", cls.chapter(), re.DOTALL)
        return Daemon("alpha.example", changes=yaml.safe_load(block)).start()

    def test_commands(self) -> None:
        """Each of them works; those behind a `!` are refused."""
        environment = {"AMQPROUTE_CONFIG": str(self.daemon.file)}
        blocks = re.findall(r"```sh\n(.*?)```", self.chapter(), re.DOTALL)
        self.assertGreater(len(blocks), 3)
        for block in blocks:
            lines = iter(block.splitlines())
            for line in lines:
                stdin = None
                if line.endswith("<<END"):
                    line = line.removesuffix("<<END")
                    stdin = "\n".join(itertools.takewhile(lambda each: each != "END", lines))
                words = shlex.split(line, comments=True)
                refused = words[0] == "!"
                self.assertEqual(words[refused], "amqproute", line)
                done = run(*words[1 + refused :], environ=environment, stdin=stdin)
                self.assertEqual(
                    done.returncode, int(refused), f"{line}\n{done.stdout}{done.stderr}"
                )

    @skipUnless(BlockingConnection, "python-qpid-proton is not installed")
    def test_program(self) -> None:
        """So does the program."""
        (block,) = re.findall(r"```python\n(.*?)```", self.chapter(), re.DOTALL)
        program = block.replace("localhost:5672", f"127.0.0.1:{self.daemon.plain}")
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^meanwhile\ndynamic-\S+\n$")

    def test_every_property(self) -> None:
        """The configuration shows each property of a node, but for four that change little."""
        (block,) = re.findall(r"```yaml\n(.*?)```", self.chapter(), re.DOTALL)
        shown = {key for node in yaml.safe_load(block)["nodes"] for key in node}
        known = {field.alias or name for name, field in NodeSettings.model_fields.items()}
        left_out = {
            "archive-expired",
            "default-outcomes",
            "durable-on-transient",
            "subscriber-buffer-bytes",
        }
        self.assertEqual(known ^ shown, left_out)


@skipUnless(BlockingConnection, "python-qpid-proton is not installed")
class ProtonTests(ManagementCase):
    """W-16 as Qpid Proton sees it."""

    def setUp(self) -> None:
        super().setUp()
        self.connection = BlockingConnection(
            f"amqp://127.0.0.1:{self.daemon.plain}", timeout=PATIENCE
        )
        self.addCleanup(lambda: self.connection and self.connection.close())
        self.receiver = self.connection.create_receiver(None, dynamic=True, credit=10)
        self.sender = self.connection.create_sender("amqp$admin")

    def ask(self, body: Any, **more: Any) -> Any:
        """Send a request; return the reply."""
        address = self.receiver.link.remote_source.address
        self.sender.send(Message(id="m1", reply_to=address, body=body, **more))
        reply = self.receiver.receive(timeout=PATIENCE)
        self.receiver.accept()
        self.assertEqual(reply.correlation_id, "m1")
        return reply

    def test_w16_management_batch(self) -> None:
        """W-16: text and maps, all or nothing, correlation; the session stays."""
        reply = self.ask("create queue a\ncreate link l a b")
        self.assertEqual(reply.properties["statusCode"], 404)
        self.assertEqual([each["status"] for each in reply.body["results"]], [424, 404])
        self.assertEqual(self.ask("assert queue a").properties["statusCode"], 404)
        made = [
            {"operation": "CREATE", "type": "queue", "name": name, "attributes": {"capacity": 5}}
            for name in ("a", "b")
        ]
        link = {
            "operation": "CREATE",
            "type": "link",
            "name": "l",
            "attributes": {"source": "a", "target": "b", "filter": "color = 'red'"},
        }
        reply = self.ask([*made, link])
        self.assertTrue(reply.body["committed"], reply.body)
        reply = self.ask(b"assert queue a with capacity=5\nquery link l",
                         inferred=True, content_type=symbol("text/plain"))  # fmt: skip
        self.assertTrue(reply.body["committed"], reply.body)
        (row,) = reply.body["results"][1]["attributes"]["entities"]
        self.assertEqual((row["source"], row["target"]), ("a", "b"))
        consumer = self.connection.create_receiver("b", credit=1)
        self.connection.create_sender("a").send(Message(body="x", properties={"color": "red"}))
        self.assertEqual(consumer.receive(timeout=PATIENCE).body, "x")
        consumer.accept()
        reply = self.ask("update link l with filter=null\nrename queue b c\nassert queue c")
        self.assertTrue(reply.body["committed"], reply.body)
        self.connection.close()
        self.connection = None
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.shown("queue", "show", "c")["origin"], "runtime")
