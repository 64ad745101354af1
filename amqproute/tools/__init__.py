# SPDX-License-Identifier: Apache-2.0
"""Tools for trying out and measuring the product; the product needs none of them.

Theory of operation
-------------------
`demo` and `bench` are the commands of these names. Both start brokers as an operator would, as
processes with files of configuration: `daemon_pair` makes the certificates, the zone and the
configuration of two organizations, and starts their daemons and a name server, `zone_server`.
`load_worker` publishes and consumes, over one blocking socket and with as little work for each
message as possible, since it runs on the machine that is measured; `bench` starts it in processes
of its own.

`synthetic` writes journals as brokers would have written them, in any number, with faults whose
places are known: tests and benchmarks of `amqproute.pipeline` compare what it finds with them.

Why so
------
What serves trial and measurement has other aims than the product: it may end at the first error,
keep everything in memory, and look inside. Apart from the product it costs nobody anything who
reads or runs that. The table `amqproute.cli.commands.COMMANDS` names the two commands, and
they are imported when they are asked for; nothing else below knows of this package.
"""

__all__: list[str] = []
