# SPDX-License-Identifier: Apache-2.0
"""The class dtx, over frames whose encoder is made from the facts of the document.

Rules: 09-DTX-01 to -06, 09-TX-04, I-25.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.xa_states import Xid
from amqproute.errors import PreconditionFailed
from amqproute.frontends.amqp09.dtx_methods import LONGEST, identifier_of, read_identifier
from amqproute.wire.amqp10.types import Int
from tests.conformance.frame_broker import Network
from tests.conformance.test_distributed import BOB, DistributedCase
from tests.support.client09 import ANN, Client09
from tests.support.wire09 import V09, call, content

DTX_XID = "7:" + b"global".hex() + ":" + b"branch".hex()


class DtxCase(DistributedCase):
    """A manager that speaks 1.0, and an application that speaks 0-9."""

    def setUp(self) -> None:
        super().setUp()
        self.client = self.started()

    def connected(self, principal: Any = ANN) -> Client09:
        return Client09(self.house, principal, V09).channel(1, 2)

    def started(self, xid: str = DTX_XID) -> Client09:
        """Return a client with the branch begun on channel 1."""
        client = self.connected()
        self.assertEqual(client.ask("dtx.select"), ["dtx.select-ok"])
        self.assertEqual(client.ask("dtx.start", dtx_identifier=xid), ["dtx.start-ok"])
        return client

    def on(self, node: str) -> int:
        """Return how many messages anybody could get from a queue."""
        return int(self.house.broker.nodes[node].available)


class BranchTests(DtxCase):
    def test_two_phases(self) -> None:
        """A message published in a branch is there when its manager has committed it."""
        self.client.publish(b"1", key="r")
        self.client.put("stream.publish", b"2", routing_key="r")
        self.assertEqual(self.on("r"), 0)
        self.assertEqual(self.manager.code("prepare"), "OK")
        self.assertEqual(self.on("r"), 0)
        self.assertEqual(self.manager.code("commit"), "OK")
        self.assertEqual(self.on("r"), 2)

    def test_acknowledged(self) -> None:
        """An ack in a branch ends the message with the commit."""
        other = self.connected()
        other.publish(b"a", b"b", key="r")
        self.client.ask("basic.consume", queue="r", consumer_tag="c")
        self.assertEqual(self.client.tags(), [1, 2])
        self.client.ask("basic.ack", delivery_tag=1)
        self.assertEqual(self.client.depth("r"), 2)
        self.assertEqual(self.manager.code("prepare"), "OK")
        self.assertEqual(self.manager.code("commit"), "OK")
        self.assertEqual(self.client.depth("r"), 1)

    def test_rolled_back(self) -> None:
        """After a roll-back nothing was published, and what was acknowledged is as before."""
        other = self.connected()
        other.publish(b"a", key="r")
        self.client.ask("basic.consume", queue="r")
        self.client.ask("basic.ack", delivery_tag=1)
        self.client.publish(b"x", key="r")
        self.assertEqual(self.manager.code("rollback"), "OK")
        self.assertEqual(self.client.depth("r"), 1)
        self.client.ask("channel.close")
        self.assertEqual(self.on("r"), 1)

    def test_one_phase(self) -> None:
        """A commit in one phase ends the association as well."""
        self.client.publish(b"1", key="r")
        self.assertEqual(self.manager.code("commit", flags="one-phase"), "OK")
        self.assertEqual(self.on("r"), 1)
        self.client.publish(b"2", key="r")
        self.assertEqual(self.client.closes(), [("channel", 406)])

    def test_work_behind_the_end(self) -> None:
        """When the manager has prepared the branch, there is no more work on its channel: 406."""
        self.client.publish(b"1", key="r")
        self.manager.code("prepare")
        self.client.publish(b"2", key="r")
        self.assertEqual(self.client.closes(), [("channel", 406)])
        self.assertEqual(self.manager.code("commit"), "OK")
        self.assertEqual(self.on("r"), 1)

    def test_end_of_the_channel(self) -> None:
        """The channel's end decides nothing: the manager does, with all that was done."""
        for number, leave in enumerate(("close", "fault", "lost")):
            name = b"g%d" % number
            client = self.started(f"7:{name.hex()}:00")
            other = self.connected()
            other.publish(b"in", key="r")
            client.ask("basic.consume", queue="r")
            client.ask("basic.ack", delivery_tag=1)
            client.publish(b"out", key="r")
            if leave == "close":
                client.ask("channel.close")
            elif leave == "fault":
                client.ask("basic.ack", delivery_tag=99)
            else:
                client.hang_up()
            xid = [Int(7), name, b"\0"]
            self.assertEqual(self.on("r"), 0, leave)
            self.assertEqual(self.manager.code("prepare", xid=xid), "OK", leave)
            self.assertEqual(self.manager.code("commit", xid=xid), "OK", leave)
            found = other.ask("basic.get", queue="r", no_ack=1)
            self.assertEqual((found, other.bodies()), (["basic.get-ok"], [b"out"]), leave)
            self.assertEqual(self.house.broker.nodes["r"].depth, 0, leave)

    def test_rolled_back_behind_its_channel(self) -> None:
        """Messages acknowledged on an ended channel are available after a rollback."""
        other = self.connected()
        other.publish(b"in", key="r")
        self.client.ask("basic.consume", queue="r")
        self.client.ask("basic.ack", delivery_tag=1)
        self.client.hang_up()
        self.assertEqual(self.on("r"), 0)
        self.assertEqual(self.manager.code("rollback"), "OK")
        self.assertEqual(self.on("r"), 1)

    def test_joined(self) -> None:
        """Channels of one principal work in one branch; a command waits for no one of 0-9."""
        other = self.started()
        self.client.publish(b"1", key="r")
        other.publish(b"2", key="r")
        self.assertEqual(self.manager.code("prepare"), "OK")
        self.assertEqual(self.manager.code("commit"), "OK")
        self.assertEqual(self.on("r"), 2)

    def test_beside_1_0(self) -> None:
        """A session of 1.0 that works in the branch has to be ended by its manager first."""
        self.start(flags="join")
        self.client.publish(b"1", key="r")
        self.assertEqual(self.manager.code("prepare"), "PROTO")
        self.client.publish(b"2", key="r")
        self.assertEqual(self.client.closes(), [])
        self.assertEqual(self.manager.code("end"), "OK")
        self.assertEqual(self.manager.code("prepare"), "OK")
        self.assertEqual(self.manager.code("commit"), "OK")
        self.assertEqual(self.on("r"), 2)

    def test_timed_out(self) -> None:
        """A branch in which nothing happens is rolled back; work in it is refused then."""
        self.client.publish(b"1", key="r")
        self.client.run(500)
        self.client.publish(b"2", key="r")
        self.assertEqual(self.client.closes(), [("channel", 406)])
        self.assertEqual(self.manager.code("prepare"), "RBTIMEOUT")
        self.assertEqual(self.on("r"), 0)

    def test_published_before_the_dns_answers(self) -> None:
        """A publish that waits for the DNS when the manager prepares belongs to the branch."""
        self.world.house("b.test", nodes=("z",))
        self.world.dns_seconds = 5
        self.client.publish(b"1", key="z@b.test")
        self.manager.request("prepare", {"xid": [Int(7), b"global", b"branch"]})
        self.assertEqual(self.manager.replies(), [])
        self.client.run(6)
        ((answer, _),) = self.manager.replies()
        self.assertEqual(answer["xaCode"], 0)
        self.assertEqual(self.manager.code("commit"), "OK")
        for _ in range(10):
            self.world.advance(1)
        self.assertEqual(self.client.closes(), [])

    def test_its_channel_ends_before_the_dns_answers(self) -> None:
        """A publish that waits at the channel's end is in the branch: with it or not at all."""
        for leave in ("close", "lost"):
            for command in ("rollback", "prepare"):
                self.setUp()
                there = self.world.house("b.test", nodes=("z",))
                self.world.dns_seconds = 5
                self.client.publish(b"1", key="z@b.test")
                if leave == "close":
                    self.client.ask("channel.close")
                else:
                    self.client.hang_up()
                self.manager.request(command, {"xid": [Int(7), b"global", b"branch"]})
                waits = command == "prepare"
                self.assertEqual(self.manager.replies() == [], waits)
                for _ in range(20):
                    self.world.advance(1)
                self.assertEqual(there.depth("z"), 0)
                if waits:
                    ((answer, _),) = self.manager.replies()
                    self.assertEqual(answer["xaCode"], 0)
                    self.assertEqual(self.manager.code("commit"), "OK")
                    for _ in range(20):
                        self.world.advance(1)
                    self.assertEqual(there.depth("z"), 1)

    def test_operators_see_it(self) -> None:
        """The rows of the channel name its branch."""
        rows = [row for each in self.house.shared.connections for row in each.link_rows()]
        self.assertEqual(
            [row["branch"] for row in rows if row.get("kind") == "dtx"],
            [f"user:ann/7.{b'global'.hex()}.{b'branch'.hex()}"],
        )
        self.assertIn("branch", [row.get("mode") for row in rows])


class RefusedTests(DtxCase):
    def test_without_select(self) -> None:
        """start without select, behind a publish, or behind a consume: 406."""
        for octets in (
            (),
            (call(1, "dtx.select"), content(1, "basic.publish", routing_key="r")),
            (call(1, "dtx.select"), call(1, "basic.consume", queue="r")),
            (call(1, "dtx.select"), content(1, "stream.publish", class_id=80, routing_key="r")),
        ):
            client = self.connected()
            client.write(*octets, call(1, "dtx.start", dtx_identifier=DTX_XID))
            self.assertEqual(client.closes(), [("channel", 406)])

    def test_work_without_a_branch(self) -> None:
        """On a channel with select there is no work without a branch."""
        client = self.connected()
        client.ask("dtx.select")
        client.publish(b"1", key="r")
        self.assertEqual(client.closes(), [("channel", 406)])
        self.assertEqual(self.on("r"), 0)

    def test_twice(self) -> None:
        """A channel has one branch; select may be said again."""
        self.assertEqual(self.client.ask("dtx.select"), ["dtx.select-ok"])
        found = self.client.refused("dtx.start", dtx_identifier="1:aa:")
        self.assertEqual(found, ("channel", 406))

    def test_other_modes(self) -> None:
        """A channel is in one mode: neither tx nor confirm beside dtx, nor the other way round."""
        for first, second in (
            ("tx.select", "dtx.select"),
            ("confirm.select", "dtx.select"),
            ("dtx.select", "tx.select"),
            ("dtx.select", "confirm.select"),
            ("dtx.select", "tx.commit"),
            ("dtx.select", "basic.recover"),
        ):
            client = self.connected()
            client.ask(first)
            self.assertEqual(client.refused(second), ("channel", 406), (first, second))

    def test_identifiers(self) -> None:
        """Another form of identifier is 406, and begins nothing."""
        for text in ("", "x", "7:aa", "7:aa:b", "7::", "-1:aa:bb", "80000000:aa:", "7.aa.bb",
                     "7:" + "aa" * 65 + ":", " 7:aa:", "7:aa:bb:cc", "7:\u0666:"):  # fmt: skip
            client = self.connected()
            client.ask("dtx.select")
            found = client.refused("dtx.start", dtx_identifier=text)
            self.assertEqual(found, ("channel", 406), text)
        self.assertEqual(len(self.branches), 1)

    def test_state_of_the_branch(self) -> None:
        """A prepared branch cannot be joined: 406, and it stays prepared."""
        self.client.publish(b"1", key="r")
        self.manager.code("prepare")
        client = self.connected()
        client.ask("dtx.select")
        self.assertEqual(client.refused("dtx.start", dtx_identifier=DTX_XID), ("channel", 406))
        self.assertEqual(self.manager.code("commit"), "OK")

    def test_rights(self) -> None:
        """Without the right to manage the coordinator: 403."""
        client = self.connected(BOB)
        self.assertEqual(client.refused("dtx.select"), ("channel", 403))

    def test_places(self) -> None:
        """Branches have a bound, and a principal a share of it: 406 beyond it."""
        object.__setattr__(self.branches.limits, "branches", 3)
        client = self.connected()
        codes = []
        for number in range(4):
            client.ask("channel.open", 10 + number)
            client.ask("dtx.select", 10 + number)
            client.ask("dtx.start", 10 + number, dtx_identifier=f"1:{number:02x}:")
            codes += client.closes()
        self.assertIn(("channel", 406), codes)
        self.assertLessEqual(len(self.branches), 3)


class SwitchedOffTests(SynchronousTestCase):
    def test_switched_off(self) -> None:
        """With distributed transactions off, select is 540 and names the setting."""
        client = Client09(Network().house(), version=V09).channel()
        self.assertEqual(client.refused("dtx.select"), ("connection", 540))
        text = client.methods[-1][2]["reply-text"]
        self.assertIn("distributed-transactions.enabled", text)


class IdentifierTests(SynchronousTestCase):
    @given(
        st.integers(0, (1 << 31) - 1),
        st.binary(min_size=1, max_size=64),
        st.binary(max_size=64),
    )
    def test_there_and_back(self, number: int, global_id: bytes, qualifier: bytes) -> None:
        """Every XID that fits has one identifier; the longest do not fit."""
        xid = Xid(number, global_id, qualifier)
        text = identifier_of(xid)
        size = len(f"{number:x}") + 2 + 2 * (len(global_id) + len(qualifier))
        self.assertEqual(text is None, size > LONGEST)
        if text is not None:
            self.assertEqual(read_identifier(text), xid)
            self.assertEqual(read_identifier(text.upper()), xid)

    def test_longest(self) -> None:
        """One that is too long for a short string is not cut."""
        self.assertIsNone(identifier_of(Xid(1, b"x" * 64, b"y" * 64)))
        self.assertIsNotNone(identifier_of(Xid(1, b"x" * 64, b"y" * 62)))

    @given(st.text(max_size=60))
    def test_any_text(self, text: str) -> None:
        """Anything else is refused, and nothing else happens."""
        try:
            xid = read_identifier(text)
        except PreconditionFailed:
            return
        self.assertEqual(read_identifier(identifier_of(xid) or ""), xid)
