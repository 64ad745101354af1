# SPDX-License-Identifier: Apache-2.0
"""The program in separate processes, forked from one that has loaded it already.

Most of the cost of a start is imports: 0.4 s of processor time for a command, 0.8 s for a daemon.
The suite starts some hundreds of each, and very few tests are about the start itself; those run
``python -m amqproute`` like users. The others have a process forked from a *template*: this module
as a program, one for each process of tests, which has imported all modules of commands and daemons
except those that act on import (the reactor), has built the parsers of selectors, and waits. The
fork is an ordinary process: with its own id, descriptors, environment and reactor. It calls the
same entry point with the same arguments, and ends as an interpreter does (`leave`), but without
destroying each object that it shares with the template.

The template ends with the process of tests, and ends its forks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import amqproute
from amqproute.cli.commands import COMMANDS
from amqproute.filters import grammar
from tests.support.patience import PATIENCE

ROOT = Path(amqproute.__file__).parent.parent

_REACTOR_IN = ("amqproute.daemon.service", "amqproute.cli.commands.serve")
"""Modules that create a reactor on import: each fork must create its own."""

LOADED = (
    *(
        where
        for where in sorted({entry.where.partition(":")[0] for entry in COMMANDS.values()})
        if where not in _REACTOR_IN
    ),
    "amqproute.cli.main",
    "amqproute.daemon.assembly",
    "amqproute.daemon.garbage",
    "amqproute.daemon.log_bounds",
    "amqproute.daemon.log_output",
    "amqproute.daemon.notify",
    "click._textwrap",
    "encodings.ascii",
    "encodings.utf_8_sig",
    "twisted.application.service",
    "twisted.internet.default",
    "twisted.internet.epollreactor",
    "twisted.internet.threads",
    "twisted.python.usage",
)
"""The modules imported by the template."""

_REQUEST_OCTETS = 1 << 20


# -- what tests use ----------------------------------------------------------------------------


class Process:
    """A process of the program.

    Args:
        arguments: as on a command line, after ``amqproute``.
        environ: its environment.
        stdin: descriptor of its input; empty if None.
        stdout: descriptor of its output.
        stderr: descriptor of its error output.

    Attributes:
        pid: its id.
        returncode: its exit code, or the negative number of its signal; None while it runs.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str],
        stdin: int | None = None,
        stdout: int,
        stderr: int,
    ) -> None:
        reading, writing = os.pipe()
        request = {"arguments": arguments, "environ": dict(environ), "directory": os.getcwd()}
        with open(os.devnull) as nothing:
            files = [nothing.fileno() if stdin is None else stdin, stdout, stderr, writing]
            socket.send_fds(_template(), [json.dumps(request).encode()], files)
        os.close(writing)
        self._status = open(reading, "rb", buffering=0)  # noqa: SIM115 - read over its whole life
        self.returncode: int | None = None
        self.pid = int(self._line(PATIENCE) or self._gone())

    def _line(self, seconds: float | None) -> bytes:
        """Return the template's next line about it, empty on time-out."""
        if seconds is not None:
            waiting = select.poll()  # select takes no descriptors above 1023
            waiting.register(self._status, select.POLLIN)
            if not waiting.poll(1000 * seconds):
                return b""
        # A line is written in one piece, below the atomic size of a pipe.
        return self._status.readline() or self._gone()

    def _gone(self) -> NoReturn:
        raise AssertionError("the template process does not answer")

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        if self.returncode is None:
            line = self._line(seconds)
            if not line:
                raise subprocess.TimeoutExpired(f"process {self.pid}", seconds or 0.0)
            self.returncode = int(line)
            self._status.close()
        return self.returncode

    def terminate(self) -> None:
        """Ask it to stop, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def run(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    stdin: str | None = None,
    seconds: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its output and exit code.

    Args:
        arguments: as on a command line, after ``amqproute``.
        environ: additions to the environment.
        stdin: its input.
        seconds: time-out, after which it is killed.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write((stdin or "").encode())
        given.seek(0)
        process = Process(
            arguments,
            environ={**os.environ, **(environ or {})},
            stdin=given.fileno(),
            stdout=out.fileno(),
            stderr=err.fileno(),
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(arguments, code, _text(out), _text(err))


@contextlib.contextmanager
def installed(directory: Path) -> Iterator[None]:
    """Install a program ``amqproute`` in a directory, for scripts: each use of it is such a
    process.

    Args:
        directory: for its file and a socket.
    """
    place = directory / "amqproute.socket"
    script = directory / "amqproute"
    script.write_text(_SCRIPT.format(python=sys.executable, place=str(place)))
    script.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(place))
        door.listen()
        thread = threading.Thread(target=_pass_on, args=(door,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()


_SCRIPT = """#!{python} -IS
import json, os, socket, sys
asked = {{"arguments": sys.argv[1:], "environ": dict(os.environ), "directory": os.getcwd()}}
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.connect({place!r})
socket.send_fds(door, [json.dumps(asked).encode()], [0, 1, 2])
said = [door.recv(64) for _ in ("its id", "how it ended")]
sys.exit(int(said[1]))
"""


def _pass_on(door: socket.socket) -> None:
    """Pass requests to the template; it answers to the requester."""
    while True:
        try:
            asking, _ = door.accept()
        except OSError:  # shut down
            return
        with asking:
            data, files, _, _ = socket.recv_fds(asking, _REQUEST_OCTETS, 3)
            try:
                socket.send_fds(_template(), [data], [*files, asking.fileno()])
            finally:
                for each in files:
                    os.close(each)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


_lock = threading.Lock()


def _template() -> socket.socket:
    """Return a connection to the template, started on first use."""
    with _lock:
        return _start_template()


@functools.cache
def _start_template() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.program", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return ours


# -- the template ------------------------------------------------------------------------------


class Template:
    """Forks on request from the other end of a socket, and reports the ends of the forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, int] = {}  # process id to the descriptor for its end

    def serve(self) -> list[str] | None:
        """Fork for each request.

        Returns:
            In a fork the arguments; in the template None, when the other side has closed.
        """
        woken, waking = socket.socketpair()
        for each in (woken, waking):
            each.setblocking(False)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._requests, woken], [], [])
            if woken in ready:
                woken.recv(4096)
                self._bury()
            if self._requests in ready:
                data, files, _, _ = socket.recv_fds(self._requests, _REQUEST_OCTETS, 4)
                if not data:
                    return None
                request = json.loads(data)
                pid = os.fork()
                if not pid:
                    become(request, files)
                    return list(request["arguments"])
                *others, status = files
                for each in others:
                    os.close(each)
                self._running[pid] = status
                _tell(status, pid)

    def _bury(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            told = self._running.pop(pid)
            _tell(told, os.waitstatus_to_exitcode(status))
            os.close(told)


def _tell(file: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the requester has gone
        os.write(file, b"%d\n" % number)


def become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Make a fork an independent process."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no fork is left behind
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, each in enumerate(files[:3]):
        os.dup2(each, place)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["directory"])


def main() -> None:
    """Load the program, and fork on request."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    for module in LOADED:
        importlib.import_module(module)
    assert "twisted.internet.reactor" not in sys.modules, "all forks would share its descriptors"
    assert threading.active_count() == 1, "forks have one thread"
    grammar.prepare()
    gc.collect()
    gc.freeze()
    arguments = Template(requests).serve()
    if arguments is not None:
        # Not at the top: the module being run is not the one that tests import.
        program = importlib.import_module("amqproute.cli.main").amqproute
        try:
            program.main(arguments, prog_name="amqproute")
        except SystemExit as ended:
            if isinstance(ended.code, int):
                leave(ended.code)
            raise


def leave(code: int) -> NoReturn:
    """End a fork as its interpreter would: wait for threads, call what is to be called at the end,
    have garbage say what it has to say, and write what is in buffers."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()


__all__ = ["Process", "installed", "run"]
