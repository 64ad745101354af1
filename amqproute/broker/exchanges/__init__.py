# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings: which queues get a message.

`topology` is what the broker has of it: it keeps exchanges and bindings in the store
(`topology_record`), answers when that is done, and puts a message on all queues that it goes to.
`exchange_target` is an exchange as clients of AMQP 1.0 send to it. All else decides without
touching a queue:

`exchange_graph` is the exchanges of one virtual host, with its changes and its decisions.
`binding_tables` has a table for each exchange type, made of `topic_trie` and `header_match`.
`argument_rules` is what arguments and policies may say and what is in force, `topology_names` which
names there may be, `carbon_copies` which routing keys a message has.
`subject_table` finds the bindings and subscriptions of a topic of AMQP 1.0 by the same tree.
`topology_fault` is what can be wrong with a request, before it becomes a code of some protocol.

These decisions know no protocol's types, no store and no message: names, keys, and values of
headers come in, names of queues come out.

Work: a direct or fanout exchange costs a look-up, a topic exchange a few nodes for each word of the
key, a headers exchange a look-up for each header. Decisions that keys alone have made are
remembered until something changes. The measures that the tests hold are `TopicTrie.steps` and
`HeaderIndex.steps`. Bounds: exchanges and bindings of a graph, and `MOST_REMEMBERED` decisions.
"""

__all__: list[str] = []
