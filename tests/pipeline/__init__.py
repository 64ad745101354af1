# SPDX-License-Identifier: Apache-2.0
"""The pipeline on Spark; skipped where the extra ``pipeline`` is not installed."""
