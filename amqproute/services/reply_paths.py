# SPDX-License-Identifier: Apache-2.0
"""Reply addresses that work from other organizations.

A requesting client puts a node of its own broker in ``reply-to``: a queue, or a dynamic node that
lives as long as its link. At another organization that name is meaningless. So when a client's
message leaves for another domain, this broker, as the one where it enters the network, writes an
alias in place of the node: ``reply-5d0c...@alpha.example``. The responder sends to that address
like to any other, and the reply comes through the transfer service here to the original node.
Neither client needs to know.

* An alias has 122 random bits. Its holder has received a request, so it needs no access rule; a
  client gets one only for a node that it may itself publish to or consume from, or a dynamic one.
* There is one for each link and node. It ends with the node, or, for a node that stays, when the
  link has ended and ``relay.reply-grace`` is over. After a restart of the daemon that time starts
  again; dynamic nodes have not survived it.
* An answer to an alias that has ended is refused: ``amqp:not-found`` with the code reply.gone, and
  the responder gets the usual report. A node whose name begins like an alias is refused in the same
  words to principals without the right to send there, so that probing reveals nothing.
* A dynamic node's address with our domain (``qualify-dynamic``) works as it is, by the same right.

Left unchanged are a ``reply-to`` with a domain, one that names no node here, and messages with a
footer, which may be a signature. This is the only place, besides a missing ``to``, where the bare
message changes; before it is in the network, so that every broker on the way carries the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.address import from_compatibility, host_of, in_host
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.errors import NotFound
from amqproute.message import Message
from amqproute.values import Origin, Principal

__all__ = ["REPLY_NOTES", "REPLY_PREFIX", "ReplyPaths"]

REPLY_PREFIX: Final = "reply-"
REPLY_NOTES: Final = "reply"
"""The kind of the store's notes: alias to node."""
MOST_ALIASES: Final = 100_000
"""Aliases at one time; beyond it, ``reply-to`` is left as it is."""
MOST_OF_ONE: Final = 10_000
"""The same for one principal, so that attaching in a loop does not exhaust those of others."""
LOOK_AT: Final = 100
"""Number of new nodes of one link after which those with ended aliases are removed."""
SWEEP_SECONDS: Final = 60.0


@dataclass(slots=True)
class ReplyAlias:
    """One reply alias.

    Attributes:
        node: its node.
        origin: the link whose messages it was made for; None after a restart.
        is_dynamic: the node is a dynamic one, and the alias lives as long as it.
        gone_at: time of the link's end, by the clock; None while it is attached.
        is_noted: whether it is in the store.
    """

    node: str
    origin: Origin | None
    is_dynamic: bool = False
    gone_at: float | None = None
    is_noted: bool = field(default=False, compare=False)

    @property
    def owner(self) -> str:
        """The principal that it was made for; empty after a restart."""
        return "" if self.origin is None else str(self.origin.principal)


class ReplyPaths:
    """Creates reply aliases and resolves them.

    Args:
        broker: the local nodes.
        clock: the clock for their expiry.
        domain: returns the domain that leads here; empty without one: then there are no aliases.
        allows: (principal, verb, node) to bool: the access rules.
        new_token: returns an unguessable text.
        grace_seconds: lifetime of an alias after the end of its link.

    Attributes:
        is_making: whether new aliases are made; existing ones work in any case.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        clock: IReactorTime,
        domain: Callable[[], str],
        allows: Callable[[Principal, Verb, str], bool],
        new_token: Callable[[], str],
        grace_seconds: float = 300.0,
    ) -> None:
        self.aliases: dict[str, ReplyAlias] = {}
        self._owned: Counter[str] = Counter()
        self.grace_seconds = grace_seconds
        self.is_making = True
        self._broker = broker
        self._clock = clock
        self._domain = domain
        self._allows = allows
        self._new_token = new_token
        self._call: IDelayedCall | None = None

    def recovered(self, notes: Mapping[str, bytes]) -> None:
        """Take over the aliases of an earlier run, whose links are gone."""
        now = self._clock.seconds()
        for name, node in notes.items():
            try:
                self.aliases[name] = ReplyAlias(node.decode(), None, gone_at=now, is_noted=True)
            except UnicodeDecodeError as error:
                self.log.error(
                    "the alias {name} cannot be read, and replies to it are refused: {error}",
                    name=name,
                    error=str(error),
                )
        if self.aliases:
            self._arm()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    # -- requests on their way out ----------------------------------------------------------------

    def leaving(self, message: Message, batch: Batch, origin: Origin) -> Message:
        """Return a client's message in the form in which it leaves for another domain."""
        if not self.is_making:
            return message
        address = message.reply_to
        if not isinstance(address, str) or not address:
            return message
        domain = self._domain()
        if not domain:
            return message
        name = from_compatibility(address) or address
        host = origin.principal.host
        if host_of(name):
            return message
        node, at, where = name.rpartition("@")
        if at:
            is_dynamic = node in self._broker.dynamic and not host and not host_of(node)
            if where.lower() == domain and is_dynamic:
                self._remember(node, ReplyAlias(node, origin, True))
            return message
        name = in_host(host, name)
        known = (origin.replies or {}).get(name)
        alias = self.aliases.get(known) if known is not None else None
        if known is None or alias is None:
            known, alias = self._make(name, origin)
            if alias is None:
                return message
        if not (alias.is_noted or alias.is_dynamic or batch.is_rehearsal):
            alias.is_noted = True
            batch.transaction.note(REPLY_NOTES, known, name.encode())
        offsets = message.offsets
        if offsets.footer_end > offsets.footer_start:
            return message
        return message.with_reply_to(f"{known}@{domain}")

    def _make(self, name: str, origin: Origin) -> tuple[str, ReplyAlias | None]:
        node = self._broker.resolve(name)
        is_dynamic = node in self._broker.dynamic
        if not is_dynamic and node not in self._broker.nodes and node not in self._broker.topics:
            return "", None
        if not is_dynamic and not any(
            self._allows(origin.principal, verb, node) for verb in (Verb.PUBLISH, Verb.CONSUME)
        ):
            return "", None
        alias = ReplyAlias(name, origin, is_dynamic)
        known = f"{REPLY_PREFIX}{self._new_token()}"
        if not self._remember(known, alias):
            return "", None
        replies = origin.replies
        if replies is None:
            replies = origin.replies = {}
        elif len(replies) >= LOOK_AT and not len(replies) % LOOK_AT:
            # The nodes of a link can come and go as fast as it wants.
            for old in [old for old, alias_of in replies.items() if alias_of not in self.aliases]:
                del replies[old]
        replies[name] = known
        return known, alias

    def _remember(self, known: str, alias: ReplyAlias) -> bool:
        if known in self.aliases:
            return True
        owner = alias.owner
        most = MOST_OF_ONE if self._owned[owner] >= MOST_OF_ONE else MOST_ALIASES
        if most == MOST_OF_ONE or len(self.aliases) >= MOST_ALIASES:
            if self._broker.rate_limited_log.due("reply aliases"):
                self.log.warn(
                    "there are {count} reply aliases{whose}: no more are made",
                    count=most,
                    whose=f" of {owner}" if most == MOST_OF_ONE else "",
                )
            return False
        self._owned[owner] += 1
        self.aliases[known] = alias
        if self._call is None:
            self._arm()
        return True

    # -- replies on their way in -------------------------------------------------------------------

    def node_of(self, name: str) -> str | None:
        """Return the node of an alias; None for a name that does not look like one.

        Raises:
            NotFound: it has expired, or never was: see `gone`.
        """
        alias = self.aliases.get(name)
        if alias is not None and self._is_alive(alias):
            return alias.node
        if alias is None and (not self.looks_like_one(name) or self._exists(name)):
            return None
        raise self.gone(name)

    @staticmethod
    def looks_like_one(name: str) -> bool:
        """Return whether a name could be an alias."""
        return name.startswith(REPLY_PREFIX)

    @staticmethod
    def gone(name: str) -> NotFound:
        """Return the refusal of an unknown alias.

        A node with such a name is refused in the same words to principals without the right to send
        there; another refusal would reveal that the node exists.
        """
        return NotFound(
            f"the reply address {name[:100]!r} has expired, or never was, and no node of that "
            "name is open to the sender",
            info={"code": "reply.gone"},
        )

    def _exists(self, name: str) -> bool:
        node = self._broker.resolve(name)
        return node in self._broker.nodes or node in self._broker.topics

    def _is_alive(self, alias: ReplyAlias) -> bool:
        if not self._exists(alias.node):
            return False
        if alias.is_dynamic:
            return True
        gone_at = alias.gone_at
        if alias.origin is not None and alias.origin.gone_at is not None:
            gone_at = alias.gone_at = alias.origin.gone_at
        return gone_at is None or self._clock.seconds() < gone_at + self.grace_seconds

    # -- expiry ------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._call = self._clock.callLater(SWEEP_SECONDS, self.sweep)

    def sweep(self) -> None:
        """Remove expired aliases."""
        self._call = None
        ended = [name for name, alias in self.aliases.items() if not self._is_alive(alias)]
        noted = [name for name in ended if self.aliases[name].is_noted]
        for name in ended:
            alias = self.aliases.pop(name)
            self._owned[alias.owner] -= 1
            if self._owned[alias.owner] <= 0:
                del self._owned[alias.owner]
        if noted:
            batch = self._broker.begin()
            for name in noted:
                batch.transaction.note(REPLY_NOTES, name, None)
            batch.commit(True).addErrback(self._not_forgotten)
        if self.aliases:
            self._arm()

    def _not_forgotten(self, failure: Failure) -> None:
        self.log.failure("expired reply aliases could not be removed from the store", failure)
