# SPDX-License-Identifier: Apache-2.0
"""The XA interface of a broker, for transaction managers (C-04): a resource manager's client.

::

    resource = await open_resource(reactor, parse_url("amqps://manager:secret@broker.example"))
    txn_id = await resource.start(xid)
    ...                                    # the application's transfers and outcomes, with txn_id
    await resource.end(xid)
    if await resource.prepare(xid) is Xa.OK:
        await resource.commit(xid)
    await resource.close()

Each method is a function of XA (X/Open CAE C193, chapter 5): ``xa_open`` is `open_resource`,
``xa_start`` is `XaResource.start`, and so on; flags are keyword arguments, and ``TMNOFLAGS`` is
none of them. Success is returned as `Xa.OK` or `Xa.RDONLY`; every other code is an `XaError` with
that code. A lost connection, a missing answer and a refused request are `Xa.RMFAIL`: the result of
the command is then unknown, and `XaResource.recover` over another connection returns the prepared
branches.

The commands go to the node ``amqp$dtxCoordinator`` (C-07, C-08) by the client of the command line.
Branches belong to the user that has logged in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from amqproute.broker.xa_states import Xa, XaError, Xid
from amqproute.cli import message_text
from amqproute.cli.client import Client, ClientTimeouts, connect
from amqproute.cli.command_error import ClientError
from amqproute.errors import DecodeError
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.services.xa_node import DTX_COORDINATOR
from amqproute.url import Url

__all__ = ["Xa", "XaError", "XaResource", "Xid", "open_resource"]

_FINE: Final = (Xa.OK, Xa.RDONLY)


async def open_resource(
    reactor: IReactor,
    url: Url,
    *,
    contexts: TlsContexts | None = None,
    patience: ClientTimeouts | None = None,
) -> XaResource:
    """Connect to a broker and log in (``xa_open``).

    Args:
        reactor: the reactor for the connection and timers.
        url: address and credentials.
        contexts: the trusted authorities; needed for ``amqps``.
        patience: the deadlines.

    Raises:
        XaError: with `Xa.RMFAIL`: the connection failed.
    """
    try:
        return XaResource(await connect(reactor, url, contexts=contexts, patience=patience))
    except ClientError as error:
        raise XaError(Xa.RMFAIL, str(error)) from error


class XaResource:
    """One broker as a resource manager.

    Args:
        client: a connection to it; `close` closes it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def close(self) -> None:
        """Close the connection (``xa_close``); branches that are not prepared go on without."""
        await self._client.close()

    async def start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> bytes:
        """Begin a branch, or join or resume one (``xa_start``; ``TMJOIN``, ``TMRESUME``).

        Returns:
            The txn-id for the transactional states of the application's deliveries.

        Raises:
            XaError: the branch is not begun, joined or resumed.
        """
        _, body = await self._ask("start", xid, {"join": join, "resume": resume})
        txn_id = body.get("txn-id")
        if not isinstance(txn_id, bytes):
            raise XaError(Xa.RMERR, "the answer has no txn-id")
        return txn_id

    async def end(self, xid: Xid, *, suspend: bool = False, fail: bool = False) -> None:
        """End the work in a branch (``xa_end``; ``TMSUSPEND``, ``TMFAIL``, else ``TMSUCCESS``).

        Raises:
            XaError: with a code of XA_RB: the branch can only be rolled back.
        """
        await self._ask("end", xid, {"suspend": suspend, "fail": fail})

    async def prepare(self, xid: Xid) -> Xa:
        """Prepare a branch (``xa_prepare``).

        Returns:
            `Xa.OK`; or `Xa.RDONLY` if nothing was done in the branch, which has ended then.

        Raises:
            XaError: it cannot be prepared.
        """
        code, _ = await self._ask("prepare", xid)
        return code

    async def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """Commit the work of a branch (``xa_commit``; ``TMONEPHASE``).

        Raises:
            XaError: it cannot be committed, or an operator has decided; `Xa.RETRY`: not now.
        """
        await self._ask("commit", xid, {"one-phase": one_phase})

    async def rollback(self, xid: Xid) -> None:
        """Roll back the work of a branch (``xa_rollback``).

        Raises:
            XaError: it cannot be rolled back, or an operator has decided.
        """
        await self._ask("rollback", xid)

    async def forget(self, xid: Xid) -> None:
        """Forget a branch that an operator has resolved (``xa_forget``).

        Raises:
            XaError: there is no such branch.
        """
        await self._ask("forget", xid)

    async def recover(self) -> Sequence[Xid]:
        """Return the branches that are prepared, or were resolved by an operator (``xa_recover``).

        Raises:
            XaError: they are not known.
        """
        _, body = await self._ask("recover")
        return [Xid.of(each) for each in body.get("xids", ())]

    async def set_timeout(self, seconds: int) -> None:
        """Set the idle timeout of branches started from now on; 0: the broker's own.

        Raises:
            XaError: the broker does not take the time.
        """
        await self._ask("set-timeout", timeout=seconds)

    async def get_timeout(self) -> int:
        """Return that time in seconds.

        Raises:
            XaError: it is not known.
        """
        _, body = await self._ask("get-timeout")
        return int(body["timeout"])

    async def _ask(
        self,
        operation: str,
        xid: Xid | None = None,
        flags: Mapping[str, bool] | None = None,
        **more: int,
    ) -> tuple[Xa, Mapping[str, Any]]:
        asked: dict[str, Any] = {
            **more,
            "flags": [key for key, is_set in (flags or {}).items() if is_set],
        }
        if xid is not None:
            asked["xid"] = xid.parts

        def encode(message_id: str, reply_to: str) -> bytes:
            return message_text.encode_request(
                message_id, reply_to, {"operation": operation}, asked
            )

        try:
            reply = await self._client.request(DTX_COORDINATOR, encode)
            properties, body = message_text.decode_reply(reply)
        except (ClientError, DecodeError) as error:
            raise XaError(Xa.RMFAIL, str(error)) from error
        words = str(properties.get("statusDescription", ""))
        number = properties.get("xaCode")
        try:
            code = Xa(number) if isinstance(number, int) else Xa.RMERR
        except ValueError:
            raise XaError(Xa.RMERR, f"{operation} has no known code of XA: {words}") from None
        if code not in _FINE:
            raise XaError(code, words)
        return code, body if isinstance(body, dict) else {}
