# SPDX-License-Identifier: Apache-2.0
"""Schemathesis drives every operation of the HTTP API from its document: no answer is a failure of
the server, none is outside of the document, and none breaks the connection."""

from __future__ import annotations

import os
from typing import Any, Final

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from amqproute.http.http_listener import HttpListener
from amqproute.http.journal_feed import TAIL_PATH
from amqproute.http.openapi import OPENAPI_PATH
from tests.http.doors import DoorsCase
from tests.support.patience import PATIENCE

EXAMPLES: Final = int(os.environ.get("AMQPROUTE_EXAMPLES", "5"))
"""Requests for each operation."""


def answered(context: object, response: Any, case: object) -> None:
    """Require that the server has understood what it cannot do."""
    assert response.status_code not in (500, 502), response.text


CHECKS: Final = (
    answered,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


class SchemathesisTests(DoorsCase):
    """A daemon in this process, and a client in a thread."""

    timeout = 20 * PATIENCE

    async def test_every_operation(self) -> None:
        """With valid and with wrong requests, of a user with all rights."""
        made: Any = reactor
        listener = HttpListener(made, "tcp:0:interface=127.0.0.1", self.app.web.site)
        listener.startService()
        self.addCleanup(listener.stopService)
        address: Any = listener.addresses[0]
        count = await deferToThread(drive, f"http://127.0.0.1:{address.port}")
        self.assertGreater(count, 100)


def drive(url: str) -> int:
    """Try every operation; return the number of requests."""
    schema = schemathesis.openapi.from_url(f"{url}{OPENAPI_PATH}")
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == TAIL_PATH:
            continue  # an answer without an end

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def attempt(case: Any) -> None:
            nonlocal count
            count += 1
            case.call_and_validate(auth=("root", "secret"), checks=list(CHECKS))

        attempt()
    return count
