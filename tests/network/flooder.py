# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.network.flooder PORT CHAIN KEY TRUST NODE RATE COUNT``: a peer that floods.

A process of its own, so that the load it makes is not in the way of who measures. It sends this
many messages, at most this many a second, without regard for credit, on one link after the other.
It prints ``flooding`` when it begins, and at the end what it sent and which conditions it was told,
as one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from amqproute.net.authority import Issued
from amqproute.wire.amqp10 import spec
from tests.integration.support import (
    AMQP,
    SASL,
    Raw,
    client_tls,
    frame,
    message,
    opening,
    sasl_frame,
    sending_link,
    transfer,
)
from tests.support.patience import PATIENCE

__all__ = ["main"]

BURST_SECONDS = 0.1
LINKS = 200
"""Handles that are used in turn: as many links as a contract and a session may allow."""


class Flooder:
    """See the module.

    Attributes:
        sent: messages.
        told: conditions of links and messages that were refused.
    """

    def __init__(self, raw: Raw) -> None:
        self.sent = 0
        self.told: set[str] = set()
        self._raw = raw
        self._granted = threading.Event()

    def introduce(self) -> None:
        """Log in by the certificate, and open."""
        init = spec.SaslInit(mechanism="EXTERNAL", initial_response=b"")
        self._raw.write(SASL, sasl_frame(init), opening("flooder"))
        assert self._raw.header() == SASL
        assert self._raw.expect(spec.SaslOutcome).code == 0
        assert self._raw.header() == AMQP
        threading.Thread(target=self._read, daemon=True).start()

    def flood(self, node: str, rate: float, most: int) -> None:
        """Send this many, and announce the beginning.

        The first burst waits for credit, so that some of it is what the peer may send.
        """
        payload = message(b"x" * 1000, to=node)
        count = max(1, int(rate * BURST_SECONDS))
        handle = 0
        self._raw.write(sending_link(node, handle, "flood-0"))
        print("flooding", flush=True)
        if not self._granted.wait(PATIENCE):
            self.told.add("no credit")
        while self.sent < most:
            time.sleep(BURST_SECONDS)
            burst = [transfer(payload, self.sent + each, handle) for each in range(count)]
            after = (handle + 1) % LINKS
            self._raw.write(
                *burst,
                frame(spec.Detach(handle=handle, closed=True)),
                sending_link(node, after, f"flood-{after}"),
            )
            self.sent += count
            handle = after

    def _read(self) -> None:
        try:
            for body in self._raw.bodies():
                if isinstance(body, spec.Flow) and body.link_credit:
                    self._granted.set()
                error = getattr(body, "error", None) or getattr(
                    getattr(body, "state", None), "error", None
                )
                if error is not None:
                    self.told.add(str(error.condition))
        except (OSError, ValueError):
            self.told.add("closed")


def main() -> None:
    """Flood, and print."""
    port, chain, key, trust, node, rate, most = sys.argv[1:]
    issued = Issued(Path(chain), Path(key))
    flooder = Flooder(Raw(int(port), client_tls(issued, Path(trust))))
    flooder.introduce()
    try:
        flooder.flood(node, float(rate), int(most))
    except OSError:
        flooder.told.add("closed")
    told = sorted(flooder.told)
    print(json.dumps({"sent": flooder.sent, "told": told}))


if __name__ == "__main__":
    main()
