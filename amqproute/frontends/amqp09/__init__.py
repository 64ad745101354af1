# SPDX-License-Identifier: Apache-2.0
"""Clients of AMQP 0-9 and 0-9-1, on the broker that AMQP 1.0 has.

How it works
============

`frontend09.Frontend09` stands on a connection: log-in (`log_in_exchange`), virtual host, back
pressure, end. `amqp09_context.Amqp09Context` is what all of them share. Each open channel has a
`channel_frontend.ChannelFrontend`, which acts on its events one after the other: where a method
waits for the disk or the DNS, all that comes behind it on the channel waits, and the connection is
not read. What a channel can do is divided by class of methods, each a base of the next::

    channel_base           replies, refusals, waiting
    topology_methods       access, exchange, queue
    delivery_methods       qos, consumers, get, acknowledgements, recover
    transaction_methods    tx
    channel_frontend       events in order, publishes, confirm, the end

*Publish*: `channel_publisher.ChannelPublisher` is one for a channel, whatever it publishes to. A
run of publishes goes into the batch of its read; each is routed by the broker's topology, or by its
address to another organization. What publishes with one method and equal properties share is made
once: their way and the beginning of their messages (`publish_plan`), within a run, and through an
exchange until exchanges or bindings change; rights and queues are looked at with each message.
When the batch is on the disk, its confirms go out as ranges. There is no credit to be granted, so
the count of what may come is kept here, and at none the connection is not read. While the disk is
full clients hear of it by connection.blocked.

*Deliver*: `channel_consumer.ChannelConsumer` is a consumer of its queue, with the windows of
`prefetch`. What was translated before is found by its octets and goes out in bursts.
`QueueGetter` beside it takes one message for basic.get. Who publishes and gets on one
channel finds what was published: get, declare, purge and delete wait for commits before them.

*Direct reply-to*: `direct_replies` has the consumer of the pseudo-queue, whose queue is a dynamic
node with an unguessable name, and writes that name into requests (`broker.reply_addresses`).

*Classes that only 0-9 has*: file, stream, dtx, tunnel and message have a module each, with a
`class_methods.ClassMethods` that `class_registry` makes for a channel when it uses the class; to
the channel it is a table of handlers, the taker of the class's contents, and what has an end. It
stands on the channel, which it calls by the methods of `transaction_methods.TransactionMethods`: it
replies and refuses, starts consumers by `consumer_source` and `start_consumer`, and publishes by
`publish_class`. A publish of such a class is a `class_publish.ClassPublish`: a publish of basic for
all that routes, stores and counts it (`amqproute.translation.content_classes`), which tells its
class what has become of it, and comes back as the client sent it. A consumer on a connection of 0-9
names the classes that it ``takes``; one of class basic has a filter (`class_selection`) from the
first message of another class on, and until then costs what it always did. Clients of 0-9-1 get
messages of all classes as basic content, with the headers that stand for the rest.

*Streams* are sent at the rate and in the windows of `stream_window`, by the clock of the broker.
*Tunnels* are for consumers of class basic (`tunnel_consumer`). *Branches* of distributed
transactions are begun by `dtx_methods` and ended by their managers
(`amqproute.broker.xa_registry`).

*Large bodies*: one of more than a mebibyte goes to the store as its frames arrive
(`large_content_receiver`), and is put on its queues when it is complete. Before the first octet is
written its message is tried, so what would be refused in the end is refused at once. On the way out
`large_content_output` has one part of one body in memory for each connection. Nothing may come
between the frames of a content, so what its channel has to send meanwhile waits behind it.

*Tickets* of 0-9 are in `access_realms`: a method that names one is bound by it besides the rights.

*Refuse*: `topology_replies` and `reply_texts` are the tables from what is wrong to reply codes. The
scope of an error is that of its code.

Why so: nothing here is a second broker. Queues, exchanges, rights, contracts, transactions and the
journal are those of AMQP 1.0, and `amqproute.translation` says what a message looks like on the
other side.
"""

__all__: list[str] = []
