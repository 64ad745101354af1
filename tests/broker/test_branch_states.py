# SPDX-License-Identifier: Apache-2.0
"""Branches of distributed transactions: each verb of XA in each state."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.xa_branch import Branch
from amqproute.broker.xa_states import BranchState, Xa, XaError, Xid
from tests.broker.branch_rig import OWNER, XID, BranchCase

# Verb, and for each state "CODE" or "CODE>the state afterwards".
STATES = (
    "absent", "active", "suspended", "idle", "rollback only", "timed out", "prepared",
    "heuristically committed", "heuristically rolled back",
)  # fmt: skip
RESULTS = {
    "start": ("OK>active", *["DUPID"] * 8),
    "join": (
        "NOTA", "OK>active", "OK>active", "OK>active", "RBROLLBACK", "RBTIMEOUT",
        "PROTO", "PROTO", "PROTO",
    ),
    "resume": (
        "NOTA", "PROTO", "OK>active", "PROTO", "RBROLLBACK", "RBTIMEOUT",
        "PROTO", "PROTO", "PROTO",
    ),
    "suspend": (
        "NOTA", "OK>suspended", "PROTO", "PROTO", "PROTO", "RBTIMEOUT",
        "PROTO", "PROTO", "PROTO",
    ),
    "end": (
        "NOTA", "OK>idle", "OK>idle", "PROTO", "PROTO", "RBTIMEOUT",
        "PROTO", "PROTO", "PROTO",
    ),
    "fail": (
        "NOTA", "RBROLLBACK>rollback only", "RBROLLBACK>rollback only", "PROTO", "PROTO",
        "RBTIMEOUT", "PROTO", "PROTO", "PROTO",
    ),
    "prepare": (
        "NOTA", "PROTO", "PROTO", "OK>prepared", "RBROLLBACK>absent", "RBTIMEOUT>absent",
        "PROTO", "PROTO", "PROTO",
    ),
    "commit": (
        "NOTA", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "OK>absent", "HEURCOM", "HEURRB",
    ),
    "one-phase": (
        "NOTA", "PROTO", "PROTO", "OK>absent", "RBROLLBACK>absent", "RBTIMEOUT>absent",
        "PROTO", "PROTO", "PROTO",
    ),
    "rollback": (
        "NOTA", "PROTO", "PROTO", "OK>absent", "OK>absent", "RBTIMEOUT>absent", "OK>absent",
        "HEURCOM", "HEURRB",
    ),
    "forget": (
        "NOTA", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "OK>absent", "OK>absent",
    ),
}  # fmt: skip


class TableTests(BranchCase):
    """Each verb in each state (C-03, C-08)."""

    def bring(self, state: str) -> None:
        """Bring a fresh branch into a state."""
        if state == "absent":
            return
        link = self.work()
        link.room = 0
        steps = {
            "active": [],
            "suspended": ["suspend"],
            "idle": ["end"],
            "rollback only": ["fail"],
            "timed out": [],
            "prepared": ["end", "prepare"],
            "heuristically committed": ["end", "prepare"],
            "heuristically rolled back": ["end", "prepare"],
        }
        for step in steps[state]:
            self.do(step)
        if state == "timed out":
            self.clock.advance(60)
        elif state.startswith("heuristically"):
            self.decide(state == "heuristically committed")
        self.assertEqual(self.state(), state)

    def check(self, restarts: bool) -> None:
        """Go through the table."""
        for verb, results in RESULTS.items():
            self.assertEqual(len(results), len(STATES), verb)
            for state, result in zip(STATES, results, strict=True):
                is_kept = state in STATES[-3:]
                if restarts and not is_kept:
                    continue
                self.setUp()
                self.bring(state)
                if restarts:
                    self.restart()
                code, _, after = result.partition(">")
                self.assertEqual(self.do(verb), code, f"{verb} when {state}")
                self.assertEqual(self.state(), after or state, f"{verb} when {state}")
                kept = (after or state) in STATES[-3:]
                self.assertEqual(self.notes(), int(kept), f"{verb} when {state}")
                if self.state() in ("absent", "timed out") or kept:
                    self.assertEqual(
                        self.terms.staged_bytes > 0, self.state() == "prepared" and not restarts
                    )
                self.tearDown()

    def test_verbs(self) -> None:
        """The code, the state afterwards, and what the store keeps."""
        self.check(restarts=False)

    def test_verbs_after_restart(self) -> None:
        """Stored branches answer after a restart as before."""
        self.check(restarts=True)

    def test_no_xid(self) -> None:
        """C-03: an xid has a format, a global id of 1 to 64 octets, a qualifier of up to 64."""
        Xid.of([0, b"g", b""])
        Xid.of([(1 << 31) - 1, b"g" * 64, b"q" * 64])
        for wrong in (
            None, b"g", [1, b"g"], [-1, b"g", b""], [1 << 31, b"g", b""], [True, b"g", b""],
            [1, b"", b""], [1, b"g" * 65, b""], [1, b"g", b"q" * 65], ["1", b"g", b""],
            [1, "g", b""],
        ):  # fmt: skip
            error = self.assertRaises(XaError, Xid.of, wrong)
            self.assertIs(error.code, Xa.INVAL)

    def test_associations(self) -> None:
        """C-05: a branch is idle when everybody has ended, and resumed as often as suspended."""
        self.work()
        self.assertEqual([self.do(each) for each in ("join", "suspend")], ["OK", "OK"])
        self.assertEqual(self.state(), "active")
        self.assertEqual([self.do("resume"), self.do("resume")], ["OK", "PROTO"])
        self.assertEqual([self.do("suspend"), self.do("end")], ["OK", "OK"])
        self.assertEqual((self.state(), self.do("prepare")), ("suspended", "PROTO"))
        self.assertEqual((self.do("end"), self.state()), ("OK", "idle"))
        self.assertEqual([self.do("join"), self.do("end"), self.do("end")], ["OK", "OK", "PROTO"])


class ReprTests(SynchronousTestCase):
    def test_branch(self) -> None:
        """The contents of a traceback."""
        branch = Branch(XID, OWNER, BranchState.IDLE, 0)
        self.assertEqual(
            repr(branch), f"<Branch user:ann/1.{b'global'.hex()}.{b'branch'.hex()} idle>"
        )
        self.assertEqual((branch.operations, branch.doom), (0, None))
