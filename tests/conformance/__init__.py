# SPDX-License-Identifier: Apache-2.0
"""The broker against the standard: octets in, octets out.

These tests were written from OASIS AMQP 1.0 (parts 2, 3 and 5) and from the project's list of
requirements, not from the code. Each drives a whole broker - engine, frontend, nodes, transfer
service, relay - with raw frames over a in-memory wire and a fake clock, and looks only at what
comes back. The docstring of a test is the fact it holds the broker to, with its section of the
standard or the id of the requirement.

`tests.conformance.frame_broker` puts the broker together; `tests.requirements` says which test
proves which requirement.
"""
