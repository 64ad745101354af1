# SPDX-License-Identifier: Apache-2.0
"""The log, for people, for journald and for collectors."""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
import warnings
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import ILogObserver, LogBeginner, Logger, LogPublisher, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.daemon.log_output import LogOutput, Style, begin_logging, choose_style, complain
from amqproute.errors import ConfigError, StoreDamaged, StoreError, StoreUnavailable


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class FullDisk(io.StringIO):
    """A stream that takes nothing."""

    def write(self, text: str, /) -> int:
        raise OSError(28, "No space left on device")


class Unprintable:
    """An object with a broken ``__str__``."""

    def __repr__(self) -> str:
        raise ZeroDivisionError("no name")


class LogCase(SynchronousTestCase):
    """A whole log of its own: publisher, beginner, stream."""

    def begin(
        self,
        style: Style = "text",
        stream: io.StringIO | None = None,
        levels: dict[str, str] | None = None,
        environ: dict[str, str] | None = None,
    ) -> LogOutput:
        self.stream = io.StringIO() if stream is None else stream
        self.publisher = LogPublisher()
        beginner = LogBeginner(self.publisher, io.StringIO(), object(), warnings)
        self.addCleanup(setattr, warnings, "showwarning", warnings.showwarning)
        output = begin_logging(
            self.stream, style=style, levels=levels, environ=environ or {}, beginner=beginner
        )
        self.addCleanup(output.detach_stdlib)
        return output

    def logger(self, namespace: str = "amqproute.relay.destination") -> Logger:
        return Logger(namespace=namespace, observer=self.publisher)

    def written(self) -> str:
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return text

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written().splitlines()]

    def failure(self) -> Failure:
        try:
            raise ValueError("amqps://alpha:hunter2@beta.example is not\nan address")
        except ValueError:
            return Failure()


class StyleTests(LogCase):
    def test_auto(self) -> None:
        """``auto`` is the journal's style only on the stream that is the journal."""
        with tempfile.TemporaryFile("w") as stream:
            status = os.fstat(stream.fileno())
            name = f"{status.st_dev}:{status.st_ino}"
            self.assertEqual(choose_style("auto", stream, {"JOURNAL_STREAM": name}), "journal")
            self.assertEqual(choose_style("auto", stream, {"JOURNAL_STREAM": "1:2"}), "text")
            self.assertEqual(choose_style("auto", stream, {}), "text")
        self.assertEqual(choose_style("auto", io.StringIO(), {"JOURNAL_STREAM": "1:2"}), "text")
        self.assertEqual(choose_style("json", io.StringIO(), {}), "json")

    def test_color_on_a_terminal_only(self) -> None:
        """Escape sequences go to a terminal, and not where the operator wants none."""
        for stream, environ, colored in (
            (Terminal(), {"TERM": "xterm"}, True),
            (Terminal(), {"TERM": "dumb"}, False),
            (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
            (io.StringIO(), {"TERM": "xterm"}, False),
        ):
            self.begin("text", stream, environ=environ)
            self.logger().warn("careful")
            self.assertEqual("\x1b[33mwarn" in self.written(), colored, environ)


class TextTests(LogCase):
    def test_line(self) -> None:
        """Time, level, namespace, message."""
        self.begin()
        self.logger().info("{destination} waiting {delay:.0f}s", destination="beta", delay=7.4)
        self.assertRegex(
            self.written(),
            r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info     amqproute\.relay\.destination: "
            r"beta waiting 7s\n\Z",
        )

    def test_traceback_is_indented(self) -> None:
        """A traceback stands below its line, set in, without the password of its URL."""
        self.begin()
        self.logger().failure("cannot connect", failure=self.failure())
        first, *rest = self.written().splitlines()
        self.assertIn("critical", first)
        self.assertTrue(first.endswith("cannot connect"))
        self.assertTrue(all(line.startswith("    ") for line in rest), rest)
        self.assertIn("ValueError: amqps://alpha:***@beta.example is not", "\n".join(rest))
        self.assertNotIn("hunter2", "\n".join(rest))

    def test_damaged_disk(self) -> None:
        """A failure of the disk is said in words: no line of the program explains it."""
        for error in (StoreDamaged("x is damaged: salvage it"), StoreUnavailable("x is full")):
            self.begin()
            self.logger().failure("refused", failure=Failure(error))
            first, *rest = self.written().splitlines()
            self.assertTrue(first.endswith("refused"))
            self.assertEqual(rest, [f"    {error}"])
        self.begin()
        self.logger().failure("refused", failure=Failure(StoreError("nobody knows")))
        self.assertIn("Traceback", self.written())

    def test_full_disk(self) -> None:
        """A stream that takes nothing does not reach the code that logs."""
        self.begin("text", FullDisk())
        self.logger().info("lost")
        self.assertEqual(self.written(), "")

    @given(st.text())
    def test_nothing_is_forged(self, said: str) -> None:
        """A peer's text begins no line and sends no control character."""
        for style, begin in (("text", "    "), ("journal", "<6>    ")):
            self.begin(style, Terminal())  # type: ignore[arg-type]  # the two are styles
            self.logger().info("{peer} said {said}", peer="beta", said=said)
            _, *rest = self.written().rstrip("\n").split("\n")
            for line in rest:
                self.assertTrue(line.startswith(begin), line)
                self.assertTrue(line.isprintable(), line)
            LogOutput.detach_stdlib(self.begin())


class JournalTests(LogCase):
    def test_priorities(self) -> None:
        """Each line of an event bears the priority of the event, and no time."""
        self.begin("journal", levels={"": "debug"})
        log = self.logger("amqproute.store")
        log.debug("d")
        log.info("i")
        log.warn("w")
        log.error("two\nlines")
        log.critical("c")
        self.assertEqual(
            self.written().splitlines(),
            [
                "<7>amqproute.store: d",
                "<6>amqproute.store: i",
                "<4>amqproute.store: w",
                "<3>amqproute.store: two",
                "<3>    lines",
                "<2>amqproute.store: c",
            ],
        )

    def test_objects(self) -> None:
        """A journal that takes objects gets their priorities, too."""
        with tempfile.TemporaryFile("w+") as stream:
            status = os.fstat(stream.fileno())
            environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
            self.begin("json", cast(Any, stream), environ=environ)
            self.logger("x").error("no {what}", what="room")
            stream.seek(0)
            prefix, written = stream.read(3), stream.read()
        self.assertEqual(prefix, "<3>")
        self.assertEqual(json.loads(written)["what"], "room")

    def test_before_the_log(self) -> None:
        """Errors that keep a daemon from starting are in the journal as well, line by line."""
        with tempfile.TemporaryFile("w+") as stream:
            status = os.fstat(stream.fileno())
            complain("one\ntwo", stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
            complain("three", stream, {})
            stream.seek(0)
            self.assertEqual(stream.read(), "<3>one\n<3>two\nthree\n")


class JsonTests(LogCase):
    def test_object(self) -> None:
        """Every named field of the event is there, beside the four that always are."""
        self.begin("json")
        self.logger().warn(
            "{peer} refused", peer="beta.example", attempts=3, hosts=["b1", "b2"], open=False
        )
        (line,) = self.objects()
        self.assertRegex(line.pop("time"), r"\A\d{4}-\d\d-\d\dT.*Z\Z")
        self.assertEqual(
            line,
            {
                "level": "warn",
                "namespace": "amqproute.relay.destination",
                "message": "beta.example refused",
                "peer": "beta.example",
                "attempts": 3,
                "hosts": ["b1", "b2"],
                "open": False,
            },
        )

    def test_failure(self) -> None:
        """A failure brings its traceback."""
        self.begin("json")
        self.logger().failure("no", failure=self.failure())
        (line,) = self.objects()
        self.assertIn("Traceback", line["failure"])
        self.assertIn("in failure", line["failure"])
        self.assertNotIn("hunter2", line["failure"])

    def test_what_json_cannot_hold(self) -> None:
        """Other values are written as text; a broken one costs only itself."""
        self.begin("json")
        loop: list[object] = []
        loop.append(loop)
        self.logger().info(
            "x", tag=b"\xff1", odd=float("nan"), broken=Unprintable(), loop=loop, namespace="high"
        )
        (line,) = self.objects()
        self.assertEqual((line["tag"], line["odd"]), ("\\xff1", "nan"))
        self.assertIn("cannot be shown", line["broken"])
        self.assertEqual(
            (line["namespace"], line["_namespace"]), ("amqproute.relay.destination", "high")
        )

    @given(st.dictionaries(st.text(min_size=1), st.text() | st.binary() | st.floats()))
    def test_always_one_line_of_json(self, fields: dict[str, object]) -> None:
        """Any fields at all give one line of ASCII that parses."""
        output = self.begin("json")
        self.logger().info("x", fields=fields)
        text = self.written()
        self.assertTrue(text.isascii())
        self.assertEqual(text.count("\n"), 1)
        self.assertEqual(json.loads(text)["message"], "x")
        output.detach_stdlib()


class SecretTests(LogCase):
    def test_masked(self) -> None:
        """A field with the name of a secret, and the password in a URL, are never written."""
        for style in ("text", "json", "journal"):
            self.begin(style)
            self.logger().info(
                "{user} {password} {url} {private_key!r}",
                user="ann",
                password="hunter2",
                private_key=b"hunter2",
                url="amqps://ann:hunter2@beta.example:5671",
                settings={"bind_password": "hunter2", "host": "beta"},
            )
            text = self.written()
            self.assertNotIn("hunter2", text)
            self.assertIn("amqps://ann:***@beta.example:5671", text)
            self.assertIn("ann *** ", text)

    def test_what_only_sounds_like_a_secret(self) -> None:
        """A key of an annotation or a count of tokens in a name is not masked by accident."""
        self.begin("json")
        self.logger().info("x", key="x-opt-hops", tokenizer="none", passwordless=True)
        (line,) = self.objects()
        self.assertEqual(
            (line["key"], line["tokenizer"], line["passwordless"]), ("x-opt-hops", "none", True)
        )


class LevelTests(LogCase):
    def test_by_namespace(self) -> None:
        """A level holds for a namespace and all below it; a reload changes it."""
        output = self.begin(levels={"": "warn", "amqproute.relay": "debug"})
        self.logger("amqproute.relay.peer_session").debug("heard")
        self.logger("amqproute.relayed").info("not heard")
        self.assertEqual(self.written().count("heard"), 1)
        output.set_levels({})
        self.logger("amqproute.relay.peer_session").debug("not heard")
        self.logger("amqproute.store").info("heard")
        self.assertEqual(self.written().count("heard"), 1)

    def test_unknown_level(self) -> None:
        """An unknown level is refused, and what held before holds."""
        output = self.begin(levels={"": "error"})
        with self.assertRaises(ConfigError) as caught:
            output.set_levels({"amqproute": "loud"})
        self.assertIn("'loud'; there are debug, info, warn", str(caught.exception))
        self.logger().warn("not heard")
        self.assertEqual(self.written(), "")


class BridgeTests(SynchronousTestCase):
    """`logging` ends in Twisted's global log, where trial stands as the observer."""

    def setUp(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.output = LogOutput(
            cast(ILogObserver, self.events.append), {"": "info", "dns": "debug"}
        )
        self.output.attach_stdlib()
        self.addCleanup(self.output.detach_stdlib)
        globalLogPublisher.addObserver(self.output.observer)
        self.addCleanup(globalLogPublisher.removeObserver, self.output.observer)

    def test_levels_and_names(self) -> None:
        """A record keeps its logger's name and its level, and the filter sees both."""
        logging.getLogger("dns.query").debug("asked %s", "beta.example")
        logging.getLogger("asyncio").debug("not heard")
        logging.getLogger("asyncio").warning("slow")
        self.assertEqual(
            [(e["log_namespace"], e["log_level"].name, e["text"]) for e in self.events],
            [("dns.query", "debug", "asked beta.example"), ("asyncio", "warn", "slow")],
        )

    def test_exception(self) -> None:
        """An exception comes over with its own traceback."""
        try:
            raise KeyError("lost")
        except KeyError:
            logging.getLogger("lib").exception("failed")
        (failure,) = self.flushLoggedErrors(KeyError)
        self.assertIn("test_exception", failure.getTraceback())

    def test_wrong_arguments(self) -> None:
        """A format that does not fit its arguments is still said."""
        logging.getLogger("lib").warning("%d of %d", 1)
        (event,) = self.events
        self.assertIn("%d of %d (its arguments do not fit", event["text"])
