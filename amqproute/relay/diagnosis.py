# SPDX-License-Identifier: Apache-2.0
"""Explains why a message is still in a relay queue, and which commands would change that.

Causes are checked in the order in which they act: operators' holds, messages in flight, messages
returned by the peer, the state of connecting, and last the limits of an open link. The first that
applies is reported; commands are complete and ready to be typed.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from amqproute.entry import Entry
from amqproute.errors import DecodeError
from amqproute.plurals import counted
from amqproute.relay.destination import Destination
from amqproute.relay.failure_verdict import for_code
from amqproute.relay.holds import RelayHold, RelayHolds
from amqproute.relay.lifecycle import DestinationState

__all__ = ["why"]


def why(
    destination: Destination, entry: Entry, holds: RelayHolds, now_ms: int
) -> dict[str, object]:
    """Return why a message has not been sent yet.

    Args:
        destination: the destination of its queue.
        entry: the message, waiting or in flight.
        holds: operators' holds.
        now_ms: the wall clock.

    Returns:
        ``cause``, a code; ``description``, a text; ``next``, commands; and further facts.
    """
    cause, words, commands = _cause(destination, entry, holds, now_ms)
    backoff = destination.backoff
    code = backoff.last_error.partition(":")[0]
    kind = for_code(code, "") if code else None
    return {
        "cause": cause,
        "description": words,
        "next": commands,
        "peer": destination.hop.key,
        "peer-state": "held" if destination.held is not None else destination.state.value,
        "last-error": backoff.last_error,
        "class": "" if kind is None else f"{kind.scope.value}, {kind.action.value}",
        "failed-attempts": backoff.failures,
        "next-attempt-ms": backoff.next_attempt_ms or None,
        "places": list(backoff.last_attempts),
        "tries": destination.outcomes.tries(entry),
        "given-back": destination.outcomes.given_back,
        "limiter": destination.limiter,
        "holds": [hold.id for hold in holds.of(destination, entry)],
    }


def _cause(
    destination: Destination, entry: Entry, holds: RelayHolds, now_ms: int
) -> tuple[str, str, list[str]]:
    key, domain = destination.hop.key, destination.hop.domain
    retry, test = (
        f"amqproute retry --to {key}",
        f"amqproute peer test {_tested(destination, entry)}",
    )
    show = f"amqproute peer show {key}"
    if any(each.id == entry.id for each in destination.holds()):
        words = "it has been sent; the peer has given no outcome yet"
        return "in-flight", words, [show]
    held = holds.of(destination, entry)
    if held:
        ids = " ".join(hold.id for hold in held)
        return "held", "; ".join(map(_of_hold, held)), [f"amqproute release {ids}"]
    alone = destination.queue.wait_of(entry)
    if alone is not None and entry.id in destination.outcomes.aside():
        ends = destination.outcomes.suspects.ends_of(entry.id)
        words = (
            f"the connection ended {counted(ends, 'time')} while this message was alone in "
            "flight; the others "
            f"go first, it comes again in {alone:.0f} s"
        )
        return "set-aside", words, [f"amqproute retry {entry.id}", show, test]
    if alone is not None:
        given_back = destination.outcomes.given_back
        words = f"the peer gave it back ({given_back}); it comes again in {alone:.0f} s"
        return "given-back", words, [f"amqproute retry {entry.id}", show]
    backoff = destination.backoff
    if destination.state is DestinationState.WAITING:
        seconds = max(0, backoff.next_attempt_ms - now_ms) // 1000
        words = f"{backoff.last_error}; attempt {backoff.failures + 1} comes in {seconds} s"
        return "back-off", words, [test, retry]
    if destination.state is DestinationState.CONNECTING:
        words = "a connection is being made"
        if backoff.last_error:
            words += f"; the last attempt ended with {backoff.last_error}"
        return "connecting", words, [show, test]
    if destination.state is DestinationState.REFUSED:
        return "refused", f"{backoff.last_error}; it is being returned", [test]
    if destination.state is DestinationState.IDLE or destination.session is None:
        return "idle", "no connection has been requested yet", [retry]
    return _of_link(destination, key, domain, show)


def _tested(destination: Destination, entry: Entry) -> str:
    """Return the argument of ``peer test`` for a message: its address for a gateway."""
    hop = destination.hop
    if ":" not in hop.key or "@" in hop.key:
        return hop.domain
    try:
        to = entry.message.to
    except DecodeError:
        to = None
    entry.message.forget()
    return shlex.quote(to) if to and "@" in to else hop.domain


def _of_hold(hold: RelayHold) -> str:
    words = f"{hold.by or 'somebody'} holds it ({hold.id}): {hold.reason}"
    if hold.until_ms:
        until = datetime.fromtimestamp(hold.until_ms / 1000, UTC).isoformat(timespec="seconds")
        words += f" (until {until.replace('+00:00', 'Z')})"
    return words


def _of_link(
    destination: Destination, key: str, domain: str, show: str
) -> tuple[str, str, list[str]]:
    session = destination.session
    assert session is not None
    if destination.limiter:
        limit = destination.limiter
        words = f"peers.{domain}.{limit} allows no more this second"
        return (
            f"limit.{limit}",
            words,
            [
                f"raise peers.{domain}.{limit} in the configuration, then: "
                "systemctl reload amqproute",
                show,
            ],
        )
    if session.is_paused:
        return "transport", "the connection takes no more octets at the moment", [show]
    if session.link is not None and session.link.credit <= 0:
        words = "the peer gives no credit: its queue is full, or it holds us back"
        return (
            "credit",
            words,
            [show, f"ask the operator of {domain} to look at: amqproute link ls"],
        )
    if destination.in_flight >= destination.window.size:
        flying = counted(destination.in_flight, "message is", "messages are")
        words = f"{flying} in flight, the window is no larger"
        return "window", words, [show]
    waiting = counted(destination.queue.available, "message is", "messages are")
    words = f"it waits behind others; {waiting} waiting"
    return "in-line", words, [show]
