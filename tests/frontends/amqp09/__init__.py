# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.frontends.amqp09`."""
