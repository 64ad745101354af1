# SPDX-License-Identifier: Apache-2.0
"""The settings that differ from the defaults, for the page of the broker."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import load
from amqproute.daemon.changed_settings import MOST_SETTINGS, changed_settings

FILE = """\
container-id: broker1.alpha.example
relay:
  first-retry: 5s
  last-retry: 1h
limits:
  max-links: 1024
nodes:
  - name: orders
  - name: returns
    capacity: 10
peers:
  "beta.example": {level: pkix}
"""


class ChangedSettingsTests(SynchronousTestCase):
    """Names, values, places."""

    def rows(self, text: str) -> dict[str, tuple[str, str]]:
        """Return value and source by name."""
        path = Path(self.mktemp())
        path.write_text(text)
        self.path = path
        rows = changed_settings(load(path, os.environ))
        return {str(each["name"]): (str(each["value"]), str(each["source"])) for each in rows}

    def test_rows(self) -> None:
        """Each has the line that it comes from; what has its default is not there."""
        found = self.rows(FILE)
        self.assertEqual(found["container-id"][0], "broker1.alpha.example")
        self.assertTrue(found["container-id"][1].endswith(":1"), found)
        self.assertEqual(found["relay.first-retry"][0], "5s")
        self.assertTrue(found["relay.first-retry"][1].endswith(":3"), found)
        self.assertNotIn("limits.max-links", found)
        self.assertIn("orders", found["nodes[0]"][0])
        self.assertTrue(found["nodes[1]"][1].endswith(":9"), found)
        self.assertEqual(found['peers."beta.example".level'][0], "pkix")

    def test_hidden(self) -> None:
        """What comes out of the environment is shown as it is written."""
        self.patch(os, "environ", {"HUSH": "very-hush"})
        found = self.rows("container-id: ${HUSH}\nnodes: [{name: '${HUSH}'}]\n")
        self.assertEqual(found["container-id"][0], "${HUSH}")
        self.assertTrue(found["container-id"][1].startswith("environment, "), found)
        self.assertNotIn("very-hush", str(found))

    def test_bounds(self) -> None:
        """Many nodes are a number, many peers are cut."""
        nodes = "".join(f"  - name: n{number}\n" for number in range(1000))
        self.assertEqual(self.rows(f"container-id: a.example\nnodes:\n{nodes}")["nodes"][0],
                         "1000 items")  # fmt: skip
        peers = "".join(f"  p{number}.example: {{level: pkix}}\n" for number in range(1000))
        found = self.rows(f"container-id: a.example\npeers:\n{peers}")
        self.assertEqual(len(found), MOST_SETTINGS + 1)
        self.assertEqual(found["…"], ("there are more", ""))
