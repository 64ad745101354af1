# SPDX-License-Identifier: Apache-2.0
"""Store-and-forward messaging between organizations, over AMQP 1.0."""

__all__ = ["__version__"]

__version__ = "0.1.0"
