# SPDX-License-Identifier: Apache-2.0
"""Tell twistd of ``amqproute``; it loads the daemon only when the name is used."""

from twisted.application.service import ServiceMaker

DESCRIPTION = "Store-and-forward messaging between organizations over AMQP 1.0"
amqproute = ServiceMaker("amqproute", "amqproute.daemon.service", DESCRIPTION, "amqproute")
