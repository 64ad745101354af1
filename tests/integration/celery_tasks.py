# SPDX-License-Identifier: Apache-2.0
"""A Celery program for the tests, in its users' style; the broker is set in the environment."""

from __future__ import annotations

import os
import ssl
from typing import Any

from celery import Celery  # type: ignore[import-untyped]

app = Celery("tasks", broker=os.environ["TEST_BROKER"], backend="rpc://")
app.conf.broker_use_ssl = {
    "ca_certs": os.environ["TEST_TRUST"],
    "cert_reqs": ssl.CERT_REQUIRED,
    "server_hostname": os.environ.get("TEST_HOST", "alpha.example"),
}
app.conf.task_default_queue = os.environ.get("TEST_QUEUE", "celery")
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True


@app.task  # type: ignore[untyped-decorator]
def add(one: int, other: int) -> int:
    """Add."""
    return one + other


@app.task(bind=True, max_retries=3)  # type: ignore[untyped-decorator]
def flaky(self: Any, value: int) -> int:
    """Succeed at the third attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return value
