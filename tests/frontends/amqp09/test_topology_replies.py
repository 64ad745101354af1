# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.frontends.amqp09.topology_replies`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.topology_fault import TopologyFaultKind
from amqproute.frontends.amqp09.topology_replies import (
    TOPOLOGY_REPLIES,
    TopologyMethod,
    topology_reply,
)
from amqproute.wire.amqp09.replies import ReplyScope
from amqproute.wire.amqp09.versions import ProtocolVersion

V0_9, V0_9_1 = ProtocolVersion
KIND = TopologyFaultKind


class TableTests(SynchronousTestCase):
    """Each cell of the table, as the list of requirements has it."""

    def test_each(self) -> None:
        """The codes of 0-9 and 0-9-1 for every kind; None where there is no such rule."""
        rows: dict[TopologyFaultKind, tuple[int | None, int | None]] = {
            KIND.NO_EXCHANGE: (404, 404), KIND.NO_QUEUE: (404, 404), KIND.NO_BINDING: (404, None),
            KIND.RESERVED_EXCHANGE_NAME: (403, 403), KIND.RESERVED_QUEUE_NAME: (530, 403),
            KIND.ILLEGAL_NAME: (406, 406), KIND.DEFAULT_EXCHANGE: (403, 403),
            KIND.DEFAULT_EXCHANGE_BINDING: (None, 403), KIND.PREDECLARED_EXCHANGE: (403, 403),
            KIND.UNKNOWN_TYPE: (503, 503), KIND.PLUGIN_TYPE: (503, 503),
            KIND.OTHER_TYPE: (530, 406), KIND.OTHER_EXCHANGE: (406, 406),
            KIND.OTHER_QUEUE: (406, 406), KIND.INVALID_ARGUMENT: (406, 406),
            KIND.UNSUPPORTED_QUEUE_TYPE: (406, 406), KIND.IN_USE: (406, 406),
            KIND.NOT_EMPTY: (406, 406), KIND.INTERNAL_EXCHANGE: (403, 403),
            KIND.INTERNAL_BINDING: (530, None), KIND.TRANSIENT_BINDING: (530, None),
            KIND.INVALID_HEADER: (406, 406), KIND.INVALID_PROPERTY: (406, 406),
            KIND.LIMIT: (506, 506), KIND.LOCKED: (405, 405),
        }  # fmt: skip
        self.assertEqual(set(rows), set(KIND))
        self.assertEqual(set(TOPOLOGY_REPLIES), set(KIND))
        for kind, codes in rows.items():
            self.assertEqual(
                (topology_reply(kind, V0_9), topology_reply(kind, V0_9_1)), codes, kind
            )

    def test_gone_already(self) -> None:
        """Deleting or unbinding a missing object succeeds in 0-9-1, and is 404 in 0-9."""
        for method in (TopologyMethod.DELETE, TopologyMethod.UNBIND):
            for kind in (KIND.NO_EXCHANGE, KIND.NO_QUEUE, KIND.NO_BINDING):
                self.assertEqual(topology_reply(kind, V0_9, method), 404)
                self.assertIsNone(topology_reply(kind, V0_9_1, method))
            self.assertEqual(topology_reply(KIND.IN_USE, V0_9_1, method), 406)

    def test_scopes(self) -> None:
        """503, 506 and 530 close the connection, all others the channel."""
        for kind in KIND:
            for version in ProtocolVersion:
                code = topology_reply(kind, version)
                if code is not None:
                    wanted = ReplyScope.CONNECTION if code >= 500 else ReplyScope.CHANNEL
                    self.assertIs(code.scope, wanted)
