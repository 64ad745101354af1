# SPDX-License-Identifier: Apache-2.0
"""The database of a store and the files that belong to it."""

from __future__ import annotations

import os

from amqproute.store import database_schema
from amqproute.store.ballast import Ballast
from amqproute.store.body_files import BodyDirectory, BodyFiles
from amqproute.store.io_thread import ReactorCall
from amqproute.store.large_bodies import LargeBodies
from amqproute.store.mark import Mark
from amqproute.store.seal import Seal
from amqproute.store.store_sizes import StoreSizes
from amqproute.store.suspicion import DamageSuspicion

__all__ = ["DatabaseFiles"]


class DatabaseFiles:
    """A database and the files beside it. Nothing is opened or created here.

    Args:
        path: the database file.
        reactor: the reactor for results of the threads that read and write large bodies.
        sizes: the sizes of the files.
        connect: opens a connection to the database; tests supply a faulty one.

    Attributes:
        path: absolute.
        connect: see above.
        segments: messages too large for the database's pages.
        bodies: very large messages, each in a file of its own.
        ballast: room for a full disk.
        mark: detects that the database was restored.
        seal: detects that the database has lost commits.
        suspicion: has the next start check the whole database.
    """

    def __init__(
        self,
        path: str,
        reactor: ReactorCall,
        sizes: StoreSizes,
        connect: database_schema.Connect = database_schema.connect,
    ) -> None:
        self.path = os.path.abspath(path)
        self.connect = connect
        directory = BodyDirectory.of(self.path)
        self.segments = BodyFiles(directory, sizes.max_bytes, sizes.segment_bytes, sizes.file_bytes)
        self.bodies = LargeBodies(directory, reactor, sizes.max_bytes)
        self.ballast = Ballast(f"{self.path}.ballast", sizes.ballast_bytes)
        self.mark = Mark(f"{self.path}.mark")
        self.seal = Seal(f"{self.path}.seal")
        self.suspicion = DamageSuspicion(self.path)

    def __repr__(self) -> str:
        return f"<DatabaseFiles {self.path}>"
