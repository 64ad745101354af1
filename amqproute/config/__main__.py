# SPDX-License-Identifier: Apache-2.0
"""Print documents generated from the schema: ``python -m amqproute.config [reload]``.

Without an argument, print the configuration file with every setting; with ``reload``, the page
``docs/reload.md``, which says for each setting whether it needs a reload or a restart.
"""

from __future__ import annotations

import sys

from amqproute.config.yaml_document import describe, describe_reload

if __name__ == "__main__":
    sys.stdout.write(describe_reload() if sys.argv[1:] == ["reload"] else describe())
