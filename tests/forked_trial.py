# SPDX-License-Identifier: Apache-2.0
"""A process that runs trial in forks, which need not import the libraries again.

`tests.mutants` starts it in each copy of the project, as a script and with ``-P``: nothing of the
project may be imported here. For each line on standard input, a JSON list of the output's file and
trial's arguments, a child begins in a session of its own; its process-id is answered, and the exit
code when it has ended.
"""

from __future__ import annotations

import json
import os
import random
import sys

import cryptography.x509
import dns.message
import hypothesis
import OpenSSL.SSL
import service_identity
import twisted.trial.unittest
import yaml
import zope.interface
from twisted.scripts import trial

LIBRARIES = (cryptography, dns, hypothesis, OpenSSL, service_identity, twisted, yaml, zope)


def run(output: str, arguments: list[str]) -> None:
    """Be the child."""
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    random.seed()
    sys.path.insert(0, os.getcwd())
    sys.argv = ["trial", *arguments]
    trial.run()


def main() -> None:
    """Serve until the input ends."""
    assert "twisted.internet.reactor" not in sys.modules  # each child makes its own
    for line in sys.stdin:
        output, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            run(output, arguments)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
