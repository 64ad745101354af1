# SPDX-License-Identifier: Apache-2.0
"""Spark writes the same files in tests as elsewhere."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.pipeline import local_files
from tests.pipeline.support import SparkCase


class LocalFileTests(SparkCase):
    """`tests.pipeline.local_files`."""

    def test_permissions(self) -> None:
        """Java gives files and directories the permissions that Hadoop's ``chmod`` would."""
        jvm = self.spark._jvm
        found = jvm.org.apache.hadoop.fs.FileSystem.getLocal(
            jvm.org.apache.hadoop.conf.Configuration()
        )
        self.assertEqual(found.getClass().getName(), local_files.NAME)
        table = Path(self.mktemp()).absolute()
        self.spark.range(4, numPartitions=2).write.parquet(str(table))
        self.assertEqual(self.spark.read.parquet(str(table)).count(), 4)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in table.iterdir()}
        self.assertEqual(len([name for name in modes if name.endswith(".parquet")]), 2)
        self.assertEqual(set(modes.values()), {0o644})
        self.assertEqual(stat.S_IMODE(table.stat().st_mode), 0o755)
        hadoop = jvm.org.apache.hadoop.fs
        path = hadoop.Path(str(table))
        found.setPermission(path, hadoop.permission.FsPermission("750"))
        self.assertEqual(stat.S_IMODE(table.stat().st_mode), 0o750)
