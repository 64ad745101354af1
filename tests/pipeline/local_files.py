# SPDX-License-Identifier: Apache-2.0
"""Files of this machine, without helper processes.

Hadoop's own library of C is not in Spark's package. Without it Hadoop starts the program ``chmod``
three times for each file that Spark writes, which takes longer than to write a small one. Here
Java sets the permissions, to the same effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NAME", "without_chmod"]

NAME = "amqproute.tests.LocalFiles"
_SOURCE = """
package amqproute.tests;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            String said = permission.getUserAction().SYMBOL
                + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(
                pathToFile(path).toPath(), PosixFilePermissions.fromString(said));
        }
    }
}
"""


def without_chmod(spark: SparkSession) -> None:
    """Have the JVM of a session use this for all files of this machine, from now to its end."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()  # Spark's own
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.file.impl", NAME)
    # Of each kind of file system Hadoop makes one, which all take who ask for it.
    files = jvm.org.apache.hadoop.fs.FileSystem
    files.closeAll()
    files.get(jvm.java.net.URI.create("file:///"), conf)
