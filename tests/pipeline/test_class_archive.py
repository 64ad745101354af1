# SPDX-License-Identifier: Apache-2.0
"""The archive of Spark's classes: its place, its writer, and runs without it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.support import MISSING

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline import java, spark_session
    from amqproute.pipeline.class_archive import ClassArchive, class_archive
    from amqproute.pipeline.java import JavaGateway, JavaRuntime


class ArchiveTests(SynchronousTestCase):
    """A Java and a Spark that are files, and a JVM for which a script stands."""

    skip = MISSING

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = self.folder / "cache"
        self.environment = {"CACHE_DIRECTORY": f"{self.cache}:/else"}
        self.java = self.folder / "java"
        self.java.write_text("17")
        self.jars = self.folder / "spark" / "jars"
        self.jars.mkdir(parents=True)
        (self.jars / "core.jar").write_text("4.3")

    def archive(self, *, may_write: bool = True) -> ClassArchive | None:
        spark_home = str(self.folder / "spark")
        return class_archive(str(self.java), spark_home, self.environment, may_write=may_write)

    def written(self) -> ClassArchive:
        """Let a JVM have written the file."""
        archive = self.archive()
        assert archive is not None
        assert archive.draft is not None
        archive.draft.write_text("classes")
        archive.finish()
        return archive

    def test_written_once(self) -> None:
        """The first JVM writes a draft, which is the file when it has ended; later ones map it."""
        first = self.archive()
        assert first is not None
        assert first.draft is not None
        self.assertIn(f'-XX:ArchiveClassesAtExit="{first.draft}"', first.options)
        self.assertFalse(first.path.exists())
        first.draft.write_text("classes")
        first.finish()
        self.assertEqual([path.name for path in self.cache.iterdir()], [first.path.name])
        for may_write in (True, False):
            second = self.archive(may_write=may_write)
            self.assertEqual(second, ClassArchive(first.path))
            assert second is not None
            self.assertIn(f'-XX:SharedArchiveFile="{first.path}"', second.options)
            second.finish()
        self.assertEqual(first.path.read_text(), "classes")

    def test_not_asked_to(self) -> None:
        """A command that does little writes none."""
        self.assertIsNone(self.archive(may_write=False))

    def test_not_written(self) -> None:
        """If the JVM wrote none, it is not asked again for a month."""
        archive = self.archive()
        assert archive is not None
        archive.finish()
        self.assertIsNone(self.archive())
        [mark] = self.cache.iterdir()
        os.utime(mark, (0, 0))
        self.assertIsNotNone(self.archive())

    def test_update(self) -> None:
        """Another Java or Spark has another file; the last three are kept, and no old drafts."""
        self.cache.mkdir(mode=0o700)
        draft = self.cache / "java-classes-old.draft"
        draft.write_text("half")
        os.utime(draft, (0, 0))
        paths = []
        for number in range(5):
            (self.jars / "core.jar").write_text("4" * number)
            path = self.written().path
            os.utime(path, (number, number))
            paths.append(path)
        self.java.write_text("a later one")
        paths.append(self.written().path)
        self.assertEqual(len(set(paths)), 6)
        self.assertEqual(sorted(self.cache.iterdir()), sorted(paths[-3:]))

    def test_others(self) -> None:
        """A file that others can write to is not used: Java runs its contents."""
        path = self.written().path
        path.chmod(0o620)
        self.assertIsNone(self.archive())
        path.chmod(0o400)
        self.assertIsNotNone(self.archive())
        self.cache.chmod(0o770)
        self.assertIsNone(self.archive())

    def test_places(self) -> None:
        """The user's cache; none without a home, nor where nothing can be written."""
        for environment, place in (
            ({"XDG_CACHE_HOME": str(self.folder / "xdg")}, "xdg/amqproute"),
            ({"HOME": str(self.folder)}, ".cache/amqproute"),
            ({"XDG_CACHE_HOME": "relative", "HOME": str(self.folder)}, ".cache/amqproute"),
        ):
            self.environment = environment
            archive = self.archive()
            assert archive is not None
            self.assertEqual(archive.path.parent, self.folder / place)
        for environment in ({}, {"HOME": str(self.java)}, {"HOME": f'{self.folder}/"'}):
            self.environment = environment
            self.assertIsNone(self.archive())

    def test_end(self) -> None:
        """The end of the JVM is waited for as long as it writes, and the file is in place then."""
        self.patch(java, "_END", 0.0)
        archive = self.archive()
        assert archive is not None
        script = f"cat; sleep 0.2; echo classes > '{archive.draft}'"
        process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE)
        java._end(process, archive)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(archive.path.read_text(), "classes\n")

    def started(self, **given: str) -> tuple[str, ClassArchive | None]:
        """Return the options by default of a JVM that starts, and its archive."""
        calls: list[tuple[str, ClassArchive | None]] = []

        def started(
            _: JavaRuntime, home: str, options: dict[str, str], archive: ClassArchive | None
        ) -> JavaGateway:
            calls.append((options.get("spark.driver.defaultJavaOptions", ""), archive))
            raise InterruptedError

        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        self.patch(os, "environ", kept | self.environment)
        self.patch(spark_session, "find_java", lambda _: JavaRuntime(str(self.java), 17))
        self.patch(spark_session, "start_gateway", started)
        self.patch(spark_session.SparkContext, "_gateway", None)
        with self.assertRaises(InterruptedError):
            spark_session._gateway(given, False, True, may_write=True)
        return calls[0]

    def test_session(self) -> None:
        """A session of this machine has it, unless its user says something of such files."""
        self.patch(spark_session, "_configured", lambda *_: False)
        options, archive = self.started()
        assert archive is not None
        self.assertIn(f'-XX:ArchiveClassesAtExit="{archive.draft}"', options)
        for given in (
            {"spark.driver.extraJavaOptions": "-Xshare:off"},
            {"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=own.jsa"},
            {"spark.master": "spark://elsewhere"},
        ):
            options, archive = self.started(**given)
            self.assertIsNone(archive)
            self.assertNotIn("Archive", options)
