# SPDX-License-Identifier: Apache-2.0
"""The tools around the product: the pair of daemons and synthetic journals."""
