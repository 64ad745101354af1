# SPDX-License-Identifier: Apache-2.0
"""``python -m amqproute``: the same as the command ``amqproute``."""

from __future__ import annotations

from amqproute.cli.main import main

if __name__ == "__main__":
    main()
