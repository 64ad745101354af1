# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.network.attackers NAME ARGUMENTS``: strangers that try to exhaust a broker.

Each attack is a function that takes a `Mark` and works until its time is over; it returns counts of
what it did. It runs in a process of its own, at the lowest priority, and prints the counts as one
JSON object. Attacks know the protocol and nothing of the broker's code: their octets are made with
this project's encoder, or by hand where that would refuse.

Connections that the broker ends are made again, `RECONNECTS_PER_SECOND` at most.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.types import Described, Long, Symbol, ULong
from tests.integration.clients import (
    SASL,
    Raw,
    Wire,
    frame,
    message,
    opening,
    sasl_frame,
    sending_link,
    transfer,
)
from tests.support.patience import PATIENCE

__all__ = ["ATTACKS", "Mark"]

RECONNECTS_PER_SECOND: Final = 60
MUTE_CONNECTIONS: Final = 1000
DESTINATIONS: Final = 3000
SELECTOR_OCTETS: Final = 3000
BURST_OCTETS: Final = 1 << 20
MESSAGE_OCTETS: Final = 1_000_000
UNFINISHED_LINKS: Final = 64
HASH_MODULUS: Final = 2**61 - 1
CONTAINERS: Final = itertools.count()
"""Numbers of containers."""
"""Of CPython's hash of whole numbers: its multiples collide."""


@dataclass(frozen=True)
class Mark:
    """Whom to attack.

    Attributes:
        plain: a port with ANONYMOUS.
        login: a port with SCRAM-SHA-256.
        tls: a port with TLS from the first octet, where peers connect.
        zone: a domain whose name server refuses to answer.
        chain: certificate for names in that domain, of an authority that nobody trusts.
        private_key: of that certificate.
        user: whose password is guessed.
        node: a node where anonymous may publish and consume.
        source: address of loopback to attack from.
        seconds: how long.
    """

    plain: int
    login: int
    tls: int
    zone: str
    chain: str
    private_key: str
    user: str
    node: str
    source: str
    seconds: float


Counts = Counter[str]


class Until:
    """The end of an attack, and the pace of its connections."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = 0.0
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return time.monotonic() < self._end

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self._end - time.monotonic())

    def pace(self) -> None:
        """Wait for the turn of one more connection."""
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now) + 1 / RECONNECTS_PER_SECOND
            pause = self._next - now
        time.sleep(min(pause, self.left))


def _crew(size: int, until: Until, member: Callable[[int, Counts], None]) -> Counts:
    """Let threads do the same again and again until the time is over; add up their counts."""
    every = [Counts() for _ in range(size)]

    def work(place: int) -> None:
        while until:
            until.pace()
            try:
                member(place, every[place])
            except (OSError, ValueError, AssertionError) as error:
                every[place][f"ended: {type(error).__name__}"] += 1

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(until.left + 30)
    return sum(every, Counts())


@contextlib.contextmanager
def _anonymous(mark: Mark, **fields: Any) -> Iterator[Raw]:
    """Connect without a name; a thread reads and forgets what comes."""
    with Raw(mark.plain, source=mark.source) as raw:
        init = spec.SaslInit(mechanism="ANONYMOUS")
        # Each a container of its own: else their links would take each other's place.
        container = f"stranger-{next(CONTAINERS)}"
        raw.write(SASL, sasl_frame(init), opening(container, **fields))
        threading.Thread(target=_forget, args=(raw.socket,), daemon=True).start()
        yield raw


def _forget(source: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while True:
            try:
                if not source.recv(262144):
                    return
            except TimeoutError:
                continue


# -- strangers at the door ---------------------------------------------------------------------


def refused_certificates(mark: Mark) -> Counts:
    """Connect as a peer whose certificate nobody vouches for and whose zone says nothing."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(mark.chain, mark.private_key)

    def once(_: int, counts: Counts) -> None:
        with Raw(mark.tls, context, source=mark.source) as raw:
            raw.write(SASL, sasl_frame(spec.SaslInit(mechanism="EXTERNAL", initial_response=b"")))
            raw.rest()
            counts["connections"] += 1

    return _crew(8, Until(mark.seconds), once)


def mute_connections(mark: Mark) -> Counts:
    """Keep a thousand connections open and say nothing; make those again that are ended."""
    until, counts = Until(mark.seconds), Counts()
    selector = selectors.DefaultSelector()
    held = 0
    while until:
        for _ in range(min(MUTE_CONNECTIONS - held, 50)):
            try:
                made = socket.create_connection(("127.0.0.1", mark.login), 1, (mark.source, 0))
            except OSError as error:
                counts[f"not connected: {type(error).__name__}"] += 1
                break
            made.setblocking(False)
            selector.register(made, selectors.EVENT_READ)
            held += 1
            counts["connections"] += 1
        for key, _ in selector.select(0.02):
            ended = key.fileobj
            assert isinstance(ended, socket.socket)
            try:
                if ended.recv(4096):
                    continue
            except OSError:
                pass
            selector.unregister(ended)
            ended.close()
            held -= 1
            counts["ended by the broker"] += 1
        counts["most at one time"] = max(counts["most at one time"], held)
        time.sleep(0.02)
    return counts


def wrong_passwords(mark: Mark) -> Counts:
    """Guess a user's password from the user's own address, over sixteen connections at a time."""

    def once(place: int, counts: Counts) -> None:
        with Raw(mark.login) as raw:
            first = f"n,,n={mark.user},r=guess{place}".encode()
            raw.write(SASL)
            raw.header()
            raw.write(sasl_frame(spec.SaslInit(mechanism="SCRAM-SHA-256", initial_response=first)))
            challenge = raw.expect(spec.SaslChallenge).challenge.decode()
            nonce = dict(part.split("=", 1) for part in challenge.split(","))["r"]
            proof = f"c=biws,r={nonce},p={'A' * 43}=".encode()
            raw.write(sasl_frame(spec.SaslResponse(response=proof)))
            outcome = raw.expect(spec.SaslOutcome)
            counts["refused" if outcome.code else "ACCEPTED"] += 1

    return _crew(16, Until(mark.seconds), once)


# -- strangers that anonymous lets in ----------------------------------------------------------


def unresolvable_destinations(mark: Mark) -> Counts:
    """Send to thousands of domains whose name server does not answer, and to more of them."""
    names = itertools.count()

    def once(_: int, counts: Counts) -> None:
        with Wire(mark.plain, container="stranger", source=mark.source) as wire:
            link = wire.attach("sender", None)
            sent = 0
            while until:
                pace = 50 if sent < DESTINATIONS else 1
                for _ in range(min(link.sendable, pace)):
                    to = f"orders@d{next(names)}.{mark.zone}"
                    link.send((message(to=to),), sent.to_bytes(4, "big"))
                    sent += 1
                pause = time.monotonic() + 0.1
                while (left := pause - time.monotonic()) > 0:
                    _count_outcomes(wire, left, counts)

    until = Until(mark.seconds)
    return _crew(1, until, once)


def _count_outcomes(wire: Wire, seconds: float, counts: Counts) -> None:
    """Read once; a broker that says nothing for so long has no outcome yet."""
    try:
        events = wire.read(seconds)
    except TimeoutError:
        return
    for event in events:
        if type(event) is ev.DeliveriesUpdated:
            counts[type(event.state).__name__.lower()] += len(event.deliveries)
        elif type(event) in (ev.LinkDetached, ev.SessionEnded, ev.ConnectionClosed):
            raise ConnectionAbortedError("the broker ended it")


def costly_selectors(mark: Mark) -> Counts:
    """Attach receivers with selectors that are long to parse, each another one."""
    numbers = itertools.count()
    terms = "+a" * (SELECTOR_OCTETS // 2)

    def once(_: int, counts: Counts) -> None:
        with _anonymous(mark) as raw:
            for handle in itertools.count():
                selector = Described(
                    Symbol("apache.org:selector-filter:string"), f"a{terms}={next(numbers)}"
                )
                source = spec.Source(address=mark.node, filter={Symbol("selector"): selector})
                attach = spec.Attach(
                    name=f"l{handle}", handle=0, role=True, source=source, target=spec.Target()
                )
                raw.write(frame(attach), frame(spec.Detach(handle=0, closed=True)))
                counts["attaches"] += 1
                if not until:
                    return

    until = Until(mark.seconds)
    return _crew(1, until, once)


def attach_churn(mark: Mark) -> Counts:
    """Attach and detach, begin and end, as fast as the broker reads."""
    links = b"".join(
        sending_link(mark.node, 0, f"l{n}") + frame(spec.Detach(handle=0, closed=True))
        for n in range(500)
    )
    begin = spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    sessions = (frame(begin, channel=1) + frame(spec.End(), channel=1)) * 500
    return _repeat(mark, 1, links + sessions, 1000)


def flow_echoes(mark: Mark) -> Counts:
    """Ask for the state of a session again and again, and send empty frames in between."""
    flow = spec.Flow(
        next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True
    )
    one = frame(flow) + struct.pack(">IBBH", 8, 2, 0, 0)
    count = BURST_OCTETS // len(one)
    return _repeat(mark, 1, one * count, 2 * count)


def empty_transfers(mark: Mark) -> Counts:
    """Four deliveries that continue for ever and never have an octet."""
    one = frame(spec.Transfer(handle=0, more=True))
    count = BURST_OCTETS // len(one)
    start = sending_link(mark.node) + frame(
        spec.Transfer(
            handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True, settled=False
        )
    )
    return _repeat(mark, 4, one * count, count, start)


def large_maps(mark: Mark) -> Counts:
    """Attach with maps that take long to decode: many keys, and keys that collide in CPython."""
    keys = [(n << 46) % HASH_MODULUS + lap * HASH_MODULUS for n in range(1500) for lap in range(4)]
    colliding = _attach_with(mark, {Long(key): None for key in keys})
    many = _attach_with(mark, {Symbol(f"{n:x}"): None for n in range(30_000)})
    return _repeat(mark, 2, many * 4 + colliding * 4, 16)


def _attach_with(mark: Mark, properties: Mapping[Any, None]) -> bytes:
    attach = spec.Attach(
        name="map",
        handle=0,
        role=False,
        source=spec.Source(address="raw"),
        target=spec.Target(address=mark.node),
        initial_delivery_count=0,
        properties=properties,
    )
    return frame(attach) + frame(spec.Detach(handle=0, closed=True))


def transaction_memory(mark: Mark) -> Counts:
    """Fill transactions over four connections and never discharge them."""
    post = message(bytes(100_000))

    def once(_: int, counts: Counts) -> None:
        with Raw(mark.plain, source=mark.source) as raw:
            init = spec.SaslInit(mechanism="ANONYMOUS")
            raw.write(SASL, sasl_frame(init), opening(f"stranger-{next(CONTAINERS)}"))
            raw.header()
            raw.expect(spec.SaslOutcome)
            raw.header()
            coordinator = spec.Attach(
                name="c",
                handle=0,
                role=False,
                source=spec.Source(),
                target=spec.Coordinator(),
                initial_delivery_count=0,
            )
            raw.write(frame(coordinator), sending_link(mark.node, 1))
            declare = codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), spec.Declare()))
            raw.write(transfer(declare, 0))
            txn_id = raw.expect(spec.Disposition).state.txn_id
            counts["transactions"] += 1
            threading.Thread(target=_forget, args=(raw.socket,), daemon=True).start()
            number = 1
            while until:
                state = spec.TransactionalState(txn_id=txn_id)
                raw.write(transfer(post, number, 1, state=state))
                number += 1
                counts["posts"] += 1
                time.sleep(0.01)

    until = Until(mark.seconds)
    return _crew(4, until, once)


def unfinished_deliveries(mark: Mark) -> Counts:
    """Send all of many messages but their last frame; keep half of the connections alive."""
    piece = bytes(60_000)
    rest = MESSAGE_OCTETS // len(piece)

    def once(place: int, counts: Counts) -> None:
        with _anonymous(mark) as raw:
            for handle in range(UNFINISHED_LINKS):
                raw.write(sending_link(mark.node, handle))
                raw.write(transfer(message(piece)[:60_000], handle, handle, more=True))
                for _ in range(rest):
                    raw.write(frame(spec.Transfer(handle=handle, more=True), piece))
                counts["deliveries"] += 1
                if not until:
                    return
            counts["filled connections"] += 1
            while until:
                if place % 2:
                    raw.write(frame(spec.Transfer(handle=0, more=True)))
                raw.write(struct.pack(">IBBH", 8, 2, 0, 0))
                time.sleep(1)

    until = Until(mark.seconds)
    return _crew(20, until, once)


def _repeat(mark: Mark, crew: int, octets: bytes, frames: int, start: bytes = b"") -> Counts:
    """Write the same octets as fast as the broker reads them."""

    def once(_: int, counts: Counts) -> None:
        with _anonymous(mark) as raw:
            raw.socket.settimeout(PATIENCE)
            raw.write(start)
            while until:
                raw.write(octets)
                counts["frames"] += frames

    until = Until(mark.seconds)
    return _crew(crew, until, once)


ATTACKS: Final[Mapping[str, Callable[[Mark], Counts]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        refused_certificates,
        unresolvable_destinations,
        mute_connections,
        costly_selectors,
        attach_churn,
        flow_echoes,
        empty_transfers,
        large_maps,
        transaction_memory,
        unfinished_deliveries,
        wrong_passwords,
    )
}


def main() -> None:
    """Attack, and print."""
    os.nice(19)
    mark = Mark(**json.loads(sys.argv[2]))
    print(json.dumps(ATTACKS[sys.argv[1]](mark)), flush=True)
    # Threads that still wait for the broker have nothing more to say.
    os._exit(0)


if __name__ == "__main__":
    main()
