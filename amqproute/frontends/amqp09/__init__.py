# SPDX-License-Identifier: Apache-2.0
"""Clients of AMQP 0-9 and 0-9-1.

`topology_replies` is the table from what is wrong with exchanges, queues and bindings to reply
codes, which differ between the versions.
"""

__all__: list[str] = []
