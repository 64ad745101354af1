# SPDX-License-Identifier: Apache-2.0
"""The command line: one program, ``amqproute``.

Theory of operation
-------------------
`main` holds the group of commands and the one place where errors become messages and exit codes.
`commands` has a module for each concern, and the table of all commands. A command that uses AMQP
passes a coroutine function to `runner.run`, which runs the reactor until the coroutine is done, and
cancels it on Ctrl-C. `client` is the AMQP client: the shell of `amqproute.client` on the same
transport code as the daemon's; `client_links` has its senders and receivers. `message_text` encodes
messages from the command line and formats received ones. `render` prints: tables and colors on a
terminal (`terminal`), plain lines in a pipe, JSON on request.

Exit codes: 0 done, 1 a negative answer, 2 wrong usage or configuration, 3 the daemon cannot be
reached. A refusal goes to stderr in three parts: a stable code (a condition of the standard, or
one of ours such as ``connect.refused``), the cause, and the next step. Results go to stdout, and
nothing else does.

A new command is a `click.Command` or `click.Group` in a module of `commands`, with the options of
`commands.common_options` that it needs, and a line in the table `commands.COMMANDS`: its name, its
place (``package.module:attribute``) and the first sentence of its help. Nothing else has to change.
`tests/cli/test_main.py` compares table and commands. Commands that pass values on to one operation
are made from the definition of management (`commands.operation_command`), lists of entities from
their columns (`commands.list_command`, `commands.attribute_table`).

Why so
------
A command is imported only when it is used: scripts and completions call the program many times, and
one command needs little of the package. So the table, `command_error` and `render` import next to
nothing, and neither does ``--help``.

Commands raise `command_error.CommandError`, or let the package's own errors through, and never
print an error themselves: so scripts see one format everywhere. JSON is one object per line for
streams (messages, outcomes) and one object otherwise. Keys are only ever added.

The reactor is imported in `runner` (and by the daemon, for ``serve``); commands that need no
network never run it.
"""

__all__: list[str] = []
