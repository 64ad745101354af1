# SPDX-License-Identifier: Apache-2.0
"""The product's outer surface as files, which an unrelated change must not alter.

Each test makes a text and compares it with a file in ``data``:

====================  =============================================================================
file                  what it holds
====================  =============================================================================
``wire/*.txt``        whole connections, octet by octet: of clients, and between two brokers
``schema.txt``        the schema of a new store, its pragmas and versions
``journal.txt``       a line of the journal for each kind of record
``outbox.txt``        what commits carry for the journal
``state/*.txt``       what two daemons leave in their stores and journals after a fixed course
``json/*.txt``        the output of commands with ``--json``, against those daemons
``help.txt``          ``--help`` of every command
``settings.json``     every setting: key, type, default
====================  =============================================================================

``etc/amqproute.yaml`` needs no copy here: it is made from the schema, and `tests.config` compares.
Words of the log are not held. ``upgrade`` is an exception: state that revision 5b54e44 has written,
which the present program has to open (`tests.golden.upgrade`); it is not written again.

A test that fails shows the difference. Where the change is meant, write the files again and read
the difference in Git before it is committed::

    make golden                         # all of them; or: python -m tests.golden
    python -m tests.golden test_wire    # those of one module
    git diff --stat tests/golden/data; git diff tests/golden/data
"""
