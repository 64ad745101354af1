# SPDX-License-Identifier: Apache-2.0
"""Filters: the entry conditions of a link, as predicates over messages.

Theory of operation
    A consumer names filters in the source of its attach (part 3 §3.5.8). `registry.read_filters`
    turns them into a `registry.FilterSet`: each filter is compiled once, and for each message
    `FilterSet.matches` decides whether it may pass. A message must pass every filter. The set
    keeps the original values for the answering attach (`FilterSet.in_force`).

    Four kinds are offered, by symbolic or numeric descriptor::

        apache.org:selector-filter:string  0x0000468C:0x00000004  selector
        amqp:sql-filter                    0x120                  selector, dialect of OASIS
        amqp:properties-filter             0x173                  properties
        amqp:application-properties-filter 0x174                  properties
        apache.org:no-local-filter:list    0x0000468C:0x00000003  local

    A selector goes from text to tree in `grammar` (an LALR grammar for lark), `names` resolves its
    names, `tree` writes its normalized text, `selector` turns the tree into closures over a row of
    values, `operators` implements them, and `fields` reads the row from the bytes of a message:
    single application properties and properties are found by skipping.

    Further kinds come from plug-ins (`filter_kinds`, `amqproute.plugins`). Their faults are
    refusals and messages that do not pass; they end neither a connection nor a queue.

Three-valued logic
    An absent field is null; a result computed from null, or from values of a wrong type, is
    unknown; NOT unknown is unknown; a message is selected when the whole is true. So neither
    ``color = 'red'`` nor ``NOT color = 'red'`` selects a message whose color is absent, or a
    number.

Why so
    * Incompatible values compare to unknown, where JMS (§3.8.1.1) says false: under NOT, false
      becomes true, and a filter would select messages that it cannot judge.
    * LIKE is not a regular expression: patterns come from peers, and several ``%`` would make those
      backtrack for minutes. Closures and not generated Python source, for the same reason; they
      cost a microsecond more.
    * Two dialects share one grammar and differ in a table (`grammar`), since a double quote
      begins a name in one and a string in the other.
    * A message whose sections cannot be decoded does not match filters on them; it stays for a
      consumer without a filter. One bad message must not stop a queue.

Limits
    `grammar.MAX_LENGTH` characters, `grammar.MAX_WORDS` words and `grammar.MAX_DEPTH` nested nodes
    of a selector; `selector.CACHED_SELECTORS` compiled ones are kept,
    `operators.LONGEST_TEXT` for LIKE and for joining texts, `properties.MAX_FIELDS` references,
    `registry.MAX_FILTERS` filters on a link, `names.MAX_KEY` octets of a key.

Nothing here has a clock, logs or waits. UTC() asks a clock that is passed in.
"""

__all__ = [
    "fields",
    "filter_kinds",
    "grammar",
    "local",
    "names",
    "operators",
    "properties",
    "registry",
    "selector",
]
