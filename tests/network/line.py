# SPDX-License-Identifier: Apache-2.0
"""A connection between two hosts that can be cut, slowed down, silenced and counted.

A `Line` listens on loopback and passes on what comes, in a thread for each direction of each
connection. It is in front of a broker in the SRV record, so the daemons know nothing of it.

What a lossy wire does to those at the ends of a TCP connection is that now and then everything
stands still until a packet has been sent again; nothing is missing and nothing out of order. A line
does the same with pieces that it has read, in place of the kernel's netem.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import socket
import struct
import threading
import time
from typing import Literal

__all__ = ["Line", "Mood"]

READ_OCTETS = 65536
CONNECT_SECONDS = 5.0
PACKET_OCTETS = 1448
AGAIN_SECONDS = 0.2
"""After which a lost packet is sent again: Linux's shortest time-out."""

Mood = Literal["well", "refusing", "silent"]
"""The treatment of a new connection: passed on, ended at once, or left mute."""


class Line:
    """Passes connections on to a port.

    Args:
        port: where to.
        host: of that port, and where the line listens as well.
        delay: seconds that each piece of what is passed on takes; it goes nowhere meanwhile.
        loss: the probability of each packet's loss; its piece, and all behind it, comes later.
        rate: octets in a second, in each direction of each connection; 0 for no bound.
        seed: of the losses.
        mood: see `Mood`. It may be changed at any time, for connections to come.

    Attributes:
        port: where it listens.
        called_at: when each connection came, monotonic seconds.
        cuts: how often it was cut with a connection on it.
        losses: how many pieces had to be sent again.
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        delay: float = 0.0,
        loss: float = 0.0,
        rate: float = 0.0,
        mood: Mood = "well",
        seed: int = 0,
    ) -> None:
        self.delay = delay
        self.loss = loss
        self.rate = rate
        self.losses = 0
        self._random = random.Random(seed)
        self.mood: Mood = mood
        self.called_at: list[float] = []
        self.cuts = 0
        self._to = (host, port)
        self._is_mute = False
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server((host, 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def calls(self) -> int:
        """The number of connections."""
        return len(self.called_at)

    @property
    def is_used(self) -> bool:
        """Somebody is connected."""
        return bool(self._ends)

    def lead_to(self, port: int) -> None:
        """Lead somewhere else, from the next connection on."""
        self._to = (self._to[0], port)

    def cut(self, mute_seconds: float = 0.0) -> bool:
        """Reset every connection; before, let what is said get lost for a while.

        Returns:
            Whether there was a connection.
        """
        self._is_mute = True
        time.sleep(mute_seconds)
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _reset(end)
        self._is_mute = False
        self.cuts += bool(ends)
        return bool(ends)

    def close(self) -> None:
        """Listen no more, and cut what there is."""
        # shutdown wakes the thread that waits in accept, which close alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.called_at.append(time.monotonic())
                if self.mood == "refusing":
                    _reset(near)
                    continue
                with self._lock:
                    self._ends.add(near)
                if self.mood == "well":
                    threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._to, CONNECT_SECONDS)
        except OSError:
            self._end(near)
            return
        far.settimeout(None)
        with self._lock:
            is_standing = near in self._ends
            if is_standing:
                self._ends.add(far)
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_standing:  # it was cut while we called
            far.close()
            return
        threading.Thread(target=self._pump, args=(far, near), daemon=True).start()
        self._pump(near, far)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(READ_OCTETS):
                if self._is_mute:
                    continue
                time.sleep(self._wait(len(data)))
                target.sendall(data)
        self._end(source, target)

    def _wait(self, octets: int) -> float:
        wait = self.delay
        if self.rate:
            wait += octets / self.rate
        packets = 1 + octets // PACKET_OCTETS
        if self.loss and self._random.random() > (1 - self.loss) ** packets:
            self.losses += 1
            wait += AGAIN_SECONDS
        return wait

    def _end(self, *ends: socket.socket) -> None:
        with self._lock:
            self._ends.difference_update(ends)
        for end in ends:
            # The other direction's thread waits in recv: only shutdown wakes it.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Reset now, although another thread waits in recv with the same descriptor: connecting a
        # TCP socket to no address ends it with RST, and wakes whoever waits.
        _disconnect(end)
    end.close()


def _disconnect(end: socket.socket) -> None:
    unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
    ctypes.CDLL(None).connect(end.fileno(), unspecified, len(unspecified))
