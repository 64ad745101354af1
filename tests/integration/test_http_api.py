# SPDX-License-Identifier: Apache-2.0
"""The HTTP service of a running daemon: users, tokens of the command line, TLS, reload, the end."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.support import Daemon, certificates, free_ports
from tests.integration.test_operator import command


class HttpApiTests(SynchronousTestCase):
    """One daemon."""

    def ask(
        self, connection: http.client.HTTPConnection, path: str, **headers: str
    ) -> tuple[int, Any]:
        """Ask on a connection."""
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def test_daemon(self) -> None:
        """A token made by the command line is good over TLS, until it is revoked."""
        (port,) = free_ports(1)
        address = f"tcp:{port}:interface=127.0.0.1"
        daemon = Daemon(
            "alpha.example", changes={"management": {"http": address, "tls": "implicit"}}
        )
        self.addCleanup(daemon.stop)
        daemon.start()
        context = ssl.create_default_context(cafile=str(certificates().trust))
        context.check_hostname = False

        def connection() -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)

        status, _ = self.ask(connection(), "/api/v1/queues")
        self.assertEqual(status, 401)
        login = "Basic " + base64.b64encode(b"anna:secret").decode()
        status, said = self.ask(connection(), "/api/v1/status", Authorization=login)
        self.assertEqual(status, 200, said)
        made = json.loads(command(daemon, "token", "create", "--for", "user:anna", "--json").stdout)
        bearer = f"Bearer {made['token']}"
        status, said = self.ask(connection(), "/api/v1/session", Authorization=bearer)
        self.assertEqual((status, said["principal"], said["scope"]), (200, "user:anna", ["read"]))
        listed = command(daemon, "token", "list").stdout
        self.assertIn(made["name"], listed)
        command(daemon, "token", "revoke", made["name"])
        status, _ = self.ask(connection(), "/api/v1/session", Authorization=bearer)
        self.assertEqual(status, 401)
