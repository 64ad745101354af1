# SPDX-License-Identifier: Apache-2.0
"""Tools for trying out and measuring the product; the product needs none of them.

Theory of operation
-------------------
`demo` and `bench` are the commands of these names. Both start brokers as an operator would, as
processes with files of configuration: `daemon_pair` makes the certificates, the zone and the
configuration of two organizations, and starts their daemons and a name server, `zone_server`.
`load_worker` publishes and consumes over one socket, with as little work for each message as
possible, because it runs on the machine that is measured; `bench` starts it in separate processes.

`synthetic` writes journals as brokers would, in any number, with faults at known places: tests and
benchmarks of `amqproute.pipeline` compare its findings with them.

Why so
------
Tools for trial and measurement have other aims than the product: they may stop at the first error,
keep everything in memory, and use internals. Kept apart, they cost readers and users of the product
nothing. The table `amqproute.cli.commands.COMMANDS` names the two commands, and they are imported
on use; nothing else below refers to this package.
"""

__all__: list[str] = []
