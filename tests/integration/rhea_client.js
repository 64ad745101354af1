// SPDX-License-Identifier: Apache-2.0
//
// A client on rhea, driven by test_rhea.py: one command (JSON) as argument, one line of JSON as
// answer. Ends with code 1 and the error's words when something goes wrong.

'use strict';

const command = JSON.parse(process.argv[2]);
const rhea = require(command.rhea);
const container = rhea.create_container();

function fail(words) {
    process.stderr.write(String(words) + '\n');
    process.exit(1);
}

function done(answer, connection) {
    connection.once('connection_close', () => process.exit(0));
    // Not before the answer is out: the exit would cut it.
    process.stdout.write(JSON.stringify(answer) + '\n', () => connection.close());
}

function outcome_of(name, delivery) {
    switch (name) {
    case 'accept': return delivery.accept();
    case 'release': return delivery.release();
    case 'reject': return delivery.reject({ condition: 'app:foul', description: 'no good' });
    case 'modify': return delivery.modified({ delivery_failed: true });
    case 'undeliverable':
        return delivery.modified({ delivery_failed: true, undeliverable_here: true });
    }
    return fail('no outcome is called ' + name);
}

const verbs = {
    // Publish bodies, each repeated so many times; answer with the outcome of each.
    publish(connection) {
        if (command.grow) {
            command.messages.forEach((each) => { each.body = each.body.repeat(command.grow); });
        }
        const sender = connection.open_sender({
            target: command.address,
            snd_settle_mode: command.settled ? 1 : 0
        });
        const outcomes = [];
        let sent = 0;
        const note = (name) => () => {
            outcomes.push(name);
            if (outcomes.length === command.messages.length) done(outcomes, connection);
        };
        sender.on('sendable', () => {
            while (sender.sendable() && sent < command.messages.length) {
                sender.send(command.messages[sent++]);
                if (command.settled) note('settled')();
            }
        });
        sender.on('accepted', note('accepted'));
        sender.on('released', note('released'));
        sender.on('rejected', (context) => note(
            'rejected ' + context.delivery.remote_state.error.condition)());
    },

    // Receive; give each message the outcome of its place; answer with what came.
    receive(connection) {
        const receiver = connection.open_receiver({
            source: command.address, credit_window: 0, autoaccept: false
        });
        const got = [];
        receiver.on('receiver_open', () => receiver.add_credit(command.outcomes.length));
        receiver.on('message', (context) => {
            const message = context.message;
            outcome_of(command.outcomes[got.length], context.delivery);
            got.push({
                body: Buffer.isBuffer(message.body) ? message.body.toString() : message.body,
                durable: message.durable, delivery_count: message.delivery_count || 0,
                to: message.to, properties: message.application_properties,
                annotations: message.message_annotations
            });
            if (got.length === command.outcomes.length) done(got, connection);
        });
    },

    // Drain a link; answer with the number of messages that came before it was drained.
    drain(connection) {
        const receiver = connection.open_receiver({ source: command.address, credit_window: 0 });
        let count = 0;
        receiver.on('receiver_open', () => {
            receiver.drain = true;
            receiver.add_credit(100);
        });
        receiver.on('message', () => { count += 1; });
        receiver.on('receiver_drained', () => done(count, connection));
    },

    // Ask a node and wait for the answer on a dynamic one; serve the node on a second link.
    request(connection) {
        const server = connection.open_receiver(command.address);
        const answers = connection.open_sender({ target: {} });
        server.on('message', (context) => answers.send({
            to: context.message.reply_to, correlation_id: context.message.message_id,
            body: context.message.body.toUpperCase()
        }));
        const inbox = connection.open_receiver({ source: { dynamic: true } });
        inbox.on('receiver_open', () => connection.open_sender(command.address).send({
            reply_to: inbox.source.address, message_id: 'q1', body: 'question'
        }));
        inbox.on('message', (context) => done(
            [context.message.body, context.message.correlation_id], connection));
    },

    // Say so when connected; after the connection was lost and made again, publish.
    reconnect(connection) {
        let opened = 0;
        connection.on('connection_open', () => {
            opened += 1;
            process.stdout.write(JSON.stringify(opened) + '\n');
            if (opened === 2) verbs.publish(connection);
        });
    },

    // Attach to what is not there; answer with the condition.
    refused(connection) {
        const link = command.sender
            ? connection.open_sender(command.address) : connection.open_receiver(command.address);
        const answer = (context) => done(
            String((context.sender || context.receiver).error.condition), connection);
        link.on('sender_error', answer);
        link.on('receiver_error', answer);
    }
};

container.on('disconnected', (context) => {
    if (!context.reconnecting) fail(context.error || 'disconnected');
});
container.on('connection_error', (context) => fail(context.connection.get_error()));
setTimeout(() => fail('rhea: nothing within 20 s'), 20000).unref();

const options = Object.assign({ host: '127.0.0.1', reconnect: false }, command.connection);
if (options.ca) {
    const fs = require('fs');
    options.ca = fs.readFileSync(options.ca);
    if (options.cert) options.cert = fs.readFileSync(options.cert);
    if (options.key) options.key = fs.readFileSync(options.key);
}
verbs[command.verb](container.connect(options));
