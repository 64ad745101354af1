# SPDX-License-Identifier: Apache-2.0
"""The audit journal: what happened to every message, append-only, chained, without bodies.

`record` says what a record is and what a line of a journal looks like; the pipeline shares it.
"""

__all__ = ["record"]
