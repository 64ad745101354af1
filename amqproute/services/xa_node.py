# SPDX-License-Identifier: Apache-2.0
"""``amqp$dtxCoordinator``: the node for XA commands of transaction managers (C-07, C-08).

A request is a message as for ``$management``: the application property ``operation``, a map as
body, a ``reply-to``. The reply has ``statusCode``, ``statusDescription`` and ``xaCode``, the code
of XA, which alone decides the result for the branch.

================  ====================  ========================================================
operation         flags                 reply's body
================  ====================  ========================================================
``start``         ``join``, ``resume``  ``txn-id``, for transactional states on any session of
                                        the same principal (C-05, C-06)
``end``           ``suspend``, ``fail``
``prepare``
``commit``        ``one-phase``
``rollback``
``forget``
``recover``                             ``xids``: prepared and heuristically resolved branches
``set-timeout``                         body's ``timeout``, s; 0 for the broker's own; it counts
                                        from the last work, for branches started from then on
``get-timeout``                         ``timeout``
================  ====================  ========================================================

The body has ``xid``, a list of int, binary, binary, and ``flags``, a symbol or string, or a list
of one. A transaction manager sees the branches of its own principal only: the sessions in which
the work is done and the one that coordinates may be different, and log in alike.

A request is accepted when it is understood; its reply follows when the result is durable.

An operator resolves prepared branches through ``$management`` (`register`): the entity type
``branch``, and the operations ``COMMIT-BRANCH``, ``ROLL-BACK-BRANCH`` and ``FORGET-BRANCH``, which
name theirs by the application property ``name``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.xa_registry import BranchRegistry
from amqproute.broker.xa_states import Xa, XaError, Xid
from amqproute.errors import AmqprouteError
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.services.management_node import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    OK,
    Allows,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.services.management_protocol import ReplyAddress, accept, answering
from amqproute.values import Origin

DTX_COORDINATOR: Final = "amqp$dtxCoordinator"
LONGEST_TIMEOUT: Final = 86_400
FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "START": ("join", "resume"),
    "END": ("suspend", "fail"),
    "COMMIT": ("one-phase",),
}
_BENIGN: Final = (Xa.OK, Xa.RDONLY)

log = Logger()
Result = tuple[Xa, dict[str, object]]


@implementer(ITarget)
class XaNode:
    """Carries commands out. That the sender may `manage` it was checked when the link was made.

    Args:
        broker: the nodes that replies go to.
        branches: the branches to coordinate.
        allows: the access rules, for replies to named nodes.
    """

    name = DTX_COORDINATOR
    acts_at_once = True

    def __init__(self, broker: Broker, branches: BranchRegistry, allows: Allows) -> None:
        self._broker = broker
        self._branches = branches
        self._allows = allows
        self._commands: dict[str, Callable[[ManagementRequest], Awaitable[Result]]] = {
            "START": self._start,
            "END": self._end,
            "PREPARE": self._prepare,
            "COMMIT": self._commit,
            "ROLLBACK": self._rollback,
            "FORGET": self._forget,
            "RECOVER": self._recover,
            "SET-TIMEOUT": self._set_timeout,
            "GET-TIMEOUT": self._get_timeout,
        }

    def __repr__(self) -> str:
        return f"<XaNode {self._branches!r}>"

    # -- the node ------------------------------------------------------------------------------

    def space(self) -> int:
        """Return the number of further requests that fit: always many."""
        return 1 << 31

    def when_space(self, notify: Callable[[], None]) -> None:
        """Do nothing: there is always space."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Start a command; its reply follows. See `ITarget.put`."""
        request, reply_to = accept(message, origin, self._broker, self._allows)
        done = Deferred.fromCoroutine(self.answer(request))
        done.addErrback(_broken, request.operation)
        done.addCallback(self._reply, reply_to)
        done.addErrback(_not_told, request.operation)
        answering(self._broker, done)

    def _reply(self, reply: ManagementReply, reply_to: ReplyAddress) -> Deferred[None]:
        batch = self._broker.begin()
        reply_to.put(reply, batch)
        return batch.commit()

    async def answer(self, request: ManagementRequest) -> ManagementReply:
        """Carry one command out."""
        command = self._commands.get(request.operation)
        if command is None:
            known = ", ".join(self._commands).lower()
            words = f"no operation {request.operation[:64].lower()!r} here; there are {known}"
            return ManagementReply.of(BAD_REQUEST, words, xaCode=int(Xa.INVAL))
        try:
            code, body = await command(request)
        except XaError as error:
            return _refusal(error)
        status = OK if code in _BENIGN else CONFLICT
        return ManagementReply.of(status, code.symbol, body, xaCode=int(code))

    # -- commands --------------------------------------------------------------------------------

    async def _start(self, request: ManagementRequest) -> Result:
        txn_id = self._branches.start(*_names(request), _flag(request))
        return Xa.OK, {"txn-id": txn_id}

    async def _end(self, request: ManagementRequest) -> Result:
        return self._branches.end(*_names(request), _flag(request)), {}

    async def _prepare(self, request: ManagementRequest) -> Result:
        _flag(request)
        return await self._branches.prepare(*_names(request)), {}

    async def _commit(self, request: ManagementRequest) -> Result:
        one_phase = _flag(request) == "one-phase"
        return await self._branches.commit(*_names(request), one_phase=one_phase), {}

    async def _rollback(self, request: ManagementRequest) -> Result:
        _flag(request)
        return await self._branches.rollback(*_names(request)), {}

    async def _forget(self, request: ManagementRequest) -> Result:
        _flag(request)
        return await self._branches.forget(*_names(request)), {}

    async def _recover(self, request: ManagementRequest) -> Result:
        _flag(request)
        xids = self._branches.recover(str(request.principal))
        return Xa.OK, {"xids": [xid.parts for xid in xids]}

    async def _set_timeout(self, request: ManagementRequest) -> Result:
        seconds = request.body.get("timeout")
        if (
            not isinstance(seconds, int)
            or isinstance(seconds, bool)
            or not 0 <= seconds <= LONGEST_TIMEOUT
        ):
            raise XaError(Xa.INVAL, f"timeout is not a whole number from 0 to {LONGEST_TIMEOUT}")
        self._branches.set_timeout(str(request.principal), float(seconds))
        return Xa.OK, {}

    async def _get_timeout(self, request: ManagementRequest) -> Result:
        return Xa.OK, {"timeout": int(self._branches.timeout_of(str(request.principal)))}


# -- operators -------------------------------------------------------------------------------------


def register(service: ManagementService, branches: BranchRegistry) -> None:
    """Register the entity type and operations for operators.

    Args:
        service: the management node.
        branches: the branches.
    """

    def acting(
        act: Callable[[str], Awaitable[None]], words: str
    ) -> Callable[[ManagementRequest], ManagementReply | Deferred[ManagementReply]]:
        async def work(name: str) -> ManagementReply:
            try:
                await act(name)
            except XaError as error:
                return _refusal(error)
            return ManagementReply.of(OK, words)

        def operation(request: ManagementRequest) -> ManagementReply | Deferred[ManagementReply]:
            name = request.properties.get("name")
            if not isinstance(name, str) or not name:
                return ManagementReply.of(BAD_REQUEST, "the application property `name` is missing")
            log.info(
                "{principal}: {operation} {branch}",
                principal=str(request.principal),
                operation=request.operation,
                branch=name,
            )
            return Deferred.fromCoroutine(work(name))

        return operation

    def commit(name: str) -> Awaitable[None]:
        return branches.decide(name, commits=True)

    def roll_back(name: str) -> Awaitable[None]:
        return branches.decide(name, commits=False)

    service.show("branch", branches.rows)
    service.offer("COMMIT-BRANCH", acting(commit, "committed heuristically"))
    service.offer("ROLL-BACK-BRANCH", acting(roll_back, "rolled back heuristically"))
    service.offer("FORGET-BRANCH", acting(branches.forget_named, "forgotten"))


def _refusal(error: XaError) -> ManagementReply:
    status = {Xa.INVAL: BAD_REQUEST, Xa.NOTA: NOT_FOUND}.get(error.code, CONFLICT)
    return ManagementReply.of(status, f"{error.code.symbol}: {error}", xaCode=int(error.code))


# -- requests ----------------------------------------------------------------------------------


def _names(request: ManagementRequest) -> tuple[str, Xid]:
    return str(request.principal), Xid.of(request.body.get("xid"))


def _flag(request: ManagementRequest) -> str | None:
    flags = request.body.get("flags")
    if isinstance(flags, list):
        if len(flags) > 1:
            raise XaError(Xa.INVAL, "more than one flag")
        flags = flags[0] if flags else None
    if flags is None or flags == "":
        return None
    if flags not in FLAGS.get(request.operation, ()):
        raise XaError(Xa.INVAL, f"{request.operation.lower()} has no flag {str(flags)[:64]!r}")
    return str(flags)


def _broken(failure: Failure, operation: str) -> ManagementReply:
    log.failure("{operation} of a branch failed", failure, operation=operation)
    return ManagementReply.of(500, "an internal error, see the broker's log", xaCode=int(Xa.RMERR))


def _not_told(failure: Failure, operation: str) -> None:
    if isinstance(failure.value, AmqprouteError):
        log.warn(
            "the reply to {operation} could not be kept: {error}",
            operation=operation,
            error=failure.getErrorMessage(),
        )
    else:
        log.failure("the reply to {operation} could not be sent", failure, operation=operation)


__all__ = ["DTX_COORDINATOR", "FLAGS", "XaNode", "register"]
