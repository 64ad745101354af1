# SPDX-License-Identifier: Apache-2.0
"""A disk that fails under a real daemon: EIO from fsync and writes, and lost octets.

A kernel filter (seccomp with user notification, Linux 5.5) suspends the daemon's writes and syncs
until this process decides about each. `FailingDisk` lets them pass or fail. After a failed sync it
behaves like a real disk: writes since the last successful sync are lost to later reads, although
the system considers them clean and will not write them again. So the file gets its old octets back.

As a program it runs first in the new process: it installs the filter, sends the descriptor for the
answers to the socket in its first argument, and executes the rest of its arguments.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.support.patience import PATIENCE

NUMBERS: Final = {
    "x86_64": {"pwrite64": 18, "fsync": 74, "fdatasync": 75, "pwritev": 296, "seccomp": 317},
    "aarch64": {"pwrite64": 68, "pwritev": 70, "fsync": 82, "fdatasync": 83, "seccomp": 277},
}.get(platform.machine(), {})
CALLS: Final = ("pwrite64", "fsync", "fdatasync", "pwritev")

_NOTICE: Final = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_ANSWER: Final = struct.Struct("=QqiI")  # struct seccomp_notif_resp
_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_CONTINUE: Final = 1


def is_possible() -> bool:
    """Whether this machine supports it."""
    if not NUMBERS or not sys.platform.startswith("linux"):
        return False
    child = os.fork()
    if not child:
        os._exit(0 if _install() >= 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def _install() -> int:
    """Install the filter in this thread and its children; return the listener, or -1."""

    class Step(ctypes.Structure):
        _fields_ = (
            ("code", ctypes.c_ushort),
            ("yes", ctypes.c_ubyte),
            ("no", ctypes.c_ubyte),
            ("k", ctypes.c_uint),
        )

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(Step)))

    steps = [Step(0x20, 0, 0, 0)]  # the number of the call
    for left, name in zip(range(len(CALLS) - 1, -1, -1), CALLS, strict=True):
        steps.append(Step(0x15, left + 1, 0, NUMBERS[name]))
    steps += [Step(0x06, 0, 0, 0x7FFF0000), Step(0x06, 0, 0, 0x7FC00000)]  # allow, ask
    program = Program(len(steps), (Step * len(steps))(*steps))
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    return int(system.syscall(NUMBERS["seccomp"], 1, 8, ctypes.byref(program)))


class FailingDisk:
    """Decides about the calls of one process.

    Args:
        directory: files below it are on this disk; all others never fail.

    Attributes:
        failing_syncs: number of next syncs to fail.
        failing: prefix of the paths of their files below the directory.
        fails_writes: writing fails while it is True.
        sync_seconds: how long each sync of such files takes.
        failed: calls that failed, by kind.
        lost: octets that a failed sync, or `lose`, has lost.
        writes: calls that wrote, by the path below the directory.
    """

    def __init__(self, directory: str) -> None:
        self.failing_syncs = 0
        self.failing = ""
        self.fails_writes = False
        self.sync_seconds = 0.0
        self.failed: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.lost = 0
        self._directory = os.path.realpath(directory)
        self._names = {number: name for name, number in NUMBERS.items()}
        # By file: ranges written since the last sync, their old contents, and the old size.
        self._before: dict[str, list[tuple[int, bytes, int]]] = {}
        self._here, self._there = socket.socketpair()
        self._is_over = False
        self._thread: threading.Thread | None = None

    @property
    def descriptor(self) -> int:
        """The descriptor that the new process must inherit."""
        return self._there.fileno()

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that starts the process with the filter."""
        return [sys.executable, "-m", "tests.support.failing_disk", str(self.descriptor), *command]

    def serve(self) -> None:
        """Answer from now on, while the process starts."""
        self._here.settimeout(PATIENCE)
        _, (listener, *_), _, _ = socket.recv_fds(self._here, 1, 1)
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; the process should have ended."""
        self._is_over = True
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._here.close()
        self._there.close()

    def lose(self) -> None:
        """Simulate a power failure: writes since the last sync of their file are lost.

        Only after `stop`.
        """
        for path in list(self._before):
            self._lose(path)

    def _run(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while not self._is_over:
            for _, what in poll.poll(100):
                if what & (select.POLLHUP | select.POLLERR):
                    self._is_over = True  # no process left to make calls
                elif what & select.POLLIN:
                    self._one(listener)
        os.close(listener)

    def _one(self, listener: int) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return  # the caller is dead
            raise
        which, pid, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        name = self._names[number]
        fault = self._decide(name, pid, arguments)
        answer = _ANSWER.pack(which, 0, -fault, 0 if fault else _CONTINUE)
        if self._is_slow(name, pid, arguments):
            # Others go on meanwhile: each file has its own place in the queue of a disk.
            slow = threading.Timer(self.sync_seconds, self._send, (listener, answer))
            slow.daemon = True
            slow.start()
            return
        self._send(listener, answer)

    def _send(self, listener: int, answer: bytes) -> None:
        try:
            fcntl.ioctl(listener, _SEND, bytearray(answer))
        except OSError as error:
            # The caller is dead, or nobody answers any more.
            if error.errno not in (errno.ENOENT, errno.EBADF):
                raise

    def _is_slow(self, name: str, pid: int, arguments: Sequence[int]) -> bool:
        if not self.sync_seconds or name in ("pwrite64", "pwritev"):
            return False
        try:
            path = os.readlink(f"/proc/{pid}/fd/{arguments[0] & 0xFFFFFFFF}")
        except OSError:
            return False
        return path.startswith(f"{self._directory}/{self.failing}")

    def _decide(self, name: str, pid: int, arguments: Sequence[int]) -> int:
        """Return the error for a call, 0 for none."""
        try:
            path = os.readlink(f"/proc/{pid}/fd/{arguments[0] & 0xFFFFFFFF}")
        except OSError:
            return 0
        if not path.startswith(self._directory):
            return 0
        if name in ("pwrite64", "pwritev"):
            if self.fails_writes:
                self.failed[name] += 1
                return errno.EIO
            offset = arguments[3]
            self.writes[os.path.relpath(path, self._directory)] += 1
            # The length of a vector is unknown here.
            self._note(path, offset, arguments[2] if name == "pwrite64" else None)
            return 0
        if self.failing_syncs > 0 and path.startswith(f"{self._directory}/{self.failing}"):
            self.failing_syncs -= 1
            self.failed[name] += 1
            self._lose(path)
            return errno.EIO
        self._before.pop(path, None)
        return 0

    def _note(self, path: str, offset: int, count: int | None) -> None:
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                old = os.pread(file.fileno(), size - offset if count is None else count, offset)
        except (OSError, ValueError):
            return
        self._before.setdefault(path, []).append((offset, old, size))

    def _lose(self, path: str) -> None:
        before = self._before.pop(path, [])
        if not before:
            return
        with open(path, "r+b") as file:
            for offset, old, size in reversed(before):
                os.pwrite(file.fileno(), old, offset)
                if os.fstat(file.fileno()).st_size > size:
                    self.lost += os.fstat(file.fileno()).st_size - size
                    os.ftruncate(file.fileno(), size)
                self.lost += len(old)


def main() -> None:
    """Install the filter, send its descriptor, execute the command."""
    where = socket.socket(fileno=int(sys.argv[1]))
    listener = _install()
    if listener < 0:
        sys.exit("the filter cannot be installed")
    socket.send_fds(where, [b"x"], [listener])
    where.close()
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
