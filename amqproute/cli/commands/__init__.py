# SPDX-License-Identifier: Apache-2.0
"""The commands, a module for each concern; `amqproute.cli.main` puts them together."""

__all__: list[str] = []
