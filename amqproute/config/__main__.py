# SPDX-License-Identifier: Apache-2.0
"""Print the configuration file with every setting: ``python -m amqproute.config``."""

from __future__ import annotations

import sys

from amqproute.config.yaml_document import describe

if __name__ == "__main__":
    sys.stdout.write(describe())
