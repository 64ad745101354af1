# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that opens a page, runs a script in it and reports its errors.

It is talked to over a pair of pipes, in its DevTools protocol: JSON objects with a NUL behind each.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.patience import PATIENCE

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

MISSING = None if PROGRAM else "no Chromium on this machine: the page was not opened in a browser"
"""Why tests with it are skipped, None where they run."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """One page of one browser; a context."""

    def __init__(self) -> None:
        """Nothing is started before it is entered."""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._session: str | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        """Start the browser, and open an empty page."""
        assert PROGRAM is not None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self._folder.name}"]
        # Its ends of the pipes are descriptors 3 and 4. A shell puts them there.
        moved = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", moved, PROGRAM, *flags],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the browser."""
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def open(self, path: Path) -> None:
        """Open a file, and wait until it is loaded."""
        self.requests.clear()
        self.call("Page.navigate", url=path.as_uri())
        while self._next()["method"] != "Page.loadEventFired":
            pass

    def evaluate(self, script: str) -> Any:
        """Return what an expression is in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            said["sessionId"] = self._session
        os.write(self._out, json.dumps(said).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise AssertionError(message["error"])
                result: dict[str, Any] = message["result"]
                return result

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise AssertionError("Chromium does not answer")
            octets = os.read(self._in, 65536)
            if not octets:
                raise AssertionError("Chromium has ended")
            self._rest += octets
        one, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        self._note(message)
        return {"method": "", **message}

    def _note(self, message: dict[str, Any]) -> None:
        match message:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                self.requests.append(url)
            case {"method": "Log.entryAdded", "params": {"entry": {"text": text}}}:
                self.complaints.append(text)
            case {"method": "Runtime.exceptionThrown" | "Runtime.consoleAPICalled"}:
                self.complaints.append(json.dumps(message["params"]))
