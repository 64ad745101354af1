# SPDX-License-Identifier: Apache-2.0
"""The command line: one program, ``amqproute``.

Theory of operation
-------------------
`main` holds the group of commands and the one place where an error becomes words and an exit
code. `commands` has a module for each concern, and the table of them all. A command that talks
AMQP hands a coroutine to `runner.run`, which gives it the reactor, turns it until the coroutine is
done, and cancels it on Ctrl-C. `client` is the AMQP client: the shell of `amqproute.client` on the
same transport code as the daemon's; `client_links` are its senders and receivers.
`message_text` makes messages of what was typed and shows what came. `render` prints: tables and
colors on a terminal (`terminal`), plain lines in a pipe, JSON where it is asked for.

Exit codes: 0 done, 1 a negative answer, 2 wrong usage or configuration, 3 the daemon cannot be
reached. A refusal goes to stderr in three parts: a stable code (a condition of the standard, or
one of ours such as ``connect.refused``), the cause in words, and what to do next. What is asked
for goes to stdout, and nothing else does.

A new command is a `click.Command` or `click.Group` in a module of `commands`, with the options of
`commands.common_options` that it needs, and a line in the table `commands.COMMANDS`: its name,
where it is (``package.module:attribute``) and the first sentence of its help. Nothing else has to
know of it. `tests/cli/test_main.py` holds table and commands together.

Why so
------
A command is imported when it is asked for, and not before: scripts and completions call the
program many times, and most of what the package can do is of no use to the one command of the
day. So the table, `command_error` and `render` import next to nothing, and neither does ``--help``.

Commands raise `command_error.CommandError`, or let the package's own errors through, and never
print an error themselves: a script then meets the same shape everywhere. JSON is an object a line
for what comes one by one (messages, outcomes) and one object for what comes at once. Keys are only
ever added.

The reactor is imported in `runner` (and by the daemon, for ``serve``); a command that needs no
network never turns it.
"""

__all__: list[str] = []
