// SPDX-License-Identifier: Apache-2.0
// A client with amqplib, for tests/integration/test_amqplib.py: one command, given as JSON, is
// carried out and answered with JSON on standard output.
//
//   {amqplib: directory of the package, verb: ..., url: ..., connection: {ca, servername}, ...}

'use strict';

const fs = require('fs');

const command = JSON.parse(process.argv[2]);
const amqplib = require(command.amqplib);

function connect(overrides = {}) {
  const options = { servername: command.servername, ca: [fs.readFileSync(command.ca)] };
  return amqplib.connect(overrides.url || command.url, options);
}

// Resolve with what the channel emits when the broker closes it, whatever the promise says.
async function refusal(connection, act) {
  const channel = await connection.createChannel();
  const closed = new Promise((resolve) => channel.on('error', resolve));
  act(channel).catch(() => undefined);
  return (await closed).code;
}

const verbs = {
  // A work queue: confirms, prefetch, acknowledgements.
  async work(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('node-work', { durable: true });
    for (let number = 0; number < 50; number += 1) {
      channel.sendToQueue('node-work', Buffer.from(String(number)), {
        persistent: true, headers: { number }, messageId: `m${number}`,
      });
    }
    await channel.waitForConfirms();
    await channel.prefetch(7);
    const bodies = [];
    await new Promise((resolve) => {
      channel.consume('node-work', (message) => {
        bodies.push(`${message.content}/${message.properties.headers.number}`);
        channel.ack(message);
        if (bodies.length === 50) resolve();
      }, { consumerTag: 'node-worker' });
    });
    await channel.cancel('node-worker');
    const deleted = await channel.deleteQueue('node-work');
    return { bodies, left: deleted.messageCount };
  },

  // A topic exchange, an exchange behind it, and exclusive queues.
  async topics(connection) {
    const channel = await connection.createChannel();
    await channel.assertExchange('node-topics', 'topic', { durable: true });
    await channel.assertExchange('node-behind', 'fanout', { autoDelete: true });
    await channel.bindExchange('node-behind', 'node-topics', '*.critical');
    const all = await channel.assertQueue('', { exclusive: true });
    const critical = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(all.queue, 'node-topics', '#');
    await channel.bindQueue(critical.queue, 'node-behind', '');
    for (const key of ['kern.info', 'kern.critical', 'anonymous']) {
      channel.publish('node-topics', key, Buffer.from(key));
    }
    const got = {};
    for (const [name, queue, count] of [['all', all.queue, 3], ['critical', critical.queue, 1]]) {
      got[name] = [];
      await new Promise((resolve) => {
        channel.consume(queue, (message) => {
          got[name].push(message.fields.routingKey);
          if (got[name].length === count) resolve();
        }, { noAck: true });
      });
    }
    await channel.deleteExchange('node-topics');
    return got;
  },

  // A call, by a queue for answers and a correlation id.
  async call(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('node-calls', { durable: false });
    await channel.consume('node-calls', (message) => {
      channel.sendToQueue(message.properties.replyTo,
        Buffer.from(String(message.content).toUpperCase()),
        { correlationId: message.properties.correlationId });
      channel.ack(message);
    });
    const answers = await channel.assertQueue('', { exclusive: true });
    const answer = new Promise((resolve) => {
      channel.consume(answers.queue, (message) => {
        resolve([message.properties.correlationId, String(message.content)]);
      }, { noAck: true });
    });
    channel.sendToQueue('node-calls', Buffer.from('question'),
      { correlationId: '42', replyTo: answers.queue });
    return answer;
  },

  // What goes nowhere comes back, before its confirm.
  async mandatory(connection) {
    const channel = await connection.createConfirmChannel();
    const order = [];
    channel.on('return', (message) => order.push(message.fields.replyText));
    await new Promise((resolve) => {
      channel.publish('', 'node-nowhere', Buffer.from('x'), { mandatory: true }, (error) => {
        order.push(error === null ? 'confirmed' : 'refused');
        resolve();
      });
    });
    return order;
  },

  // Dead letters: rejected, and read with its history.
  async grave(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('node-dead');
    await channel.assertQueue('node-mortal', {
      deadLetterExchange: '', deadLetterRoutingKey: 'node-dead', messageTtl: 600000, maxLength: 10,
    });
    channel.sendToQueue('node-mortal', Buffer.from('x'));
    await new Promise((resolve) => {
      channel.consume('node-mortal', (message) => {
        channel.nack(message, false, false);
        resolve();
      });
    });
    const death = await new Promise((resolve) => {
      channel.consume('node-dead', (message) => resolve(message.properties.headers['x-death'][0]));
    });
    return { reason: death.reason, queue: death.queue, count: death.count };
  },

  // What is refused, and how: the codes by what was tried.
  async wrong(connection) {
    const found = {};
    const setup = await connection.createChannel();
    await setup.assertQueue('node-asserted', { durable: true });
    found.redeclare = await refusal(connection,
      (channel) => channel.assertQueue('node-asserted', { durable: false }));
    found.arguments = await refusal(connection,
      (channel) => channel.assertQueue('node-asserted', { durable: true, messageTtl: 5 }));
    found.missing = await refusal(connection, (channel) => channel.checkQueue('node-none'));
    found.exchange = await refusal(connection, (channel) => channel.checkExchange('node-none'));
    found.consume = await refusal(connection,
      (channel) => channel.consume('node-none', () => undefined));
    found.reserved = await refusal(connection,
      (channel) => channel.assertExchange('amq.mine', 'direct'));
    found.publish = await refusal(connection, async (channel) => {
      channel.publish('node-none', 'k', Buffer.from('x'));
    });
    found.acknowledge = await refusal(connection, async (channel) => {
      channel.ack({ fields: { deliveryTag: 99 } });
    });
    return found;
  },
};

async function logIn() {
  const found = {};
  for (const [name, url] of Object.entries(command.urls)) {
    try {
      await connect({ url });
      found[name] = 'open';
    } catch (error) {
      found[name] = String(error.message);
    }
  }
  return found;
}

async function main() {
  if (command.verb === 'logIn') return logIn();
  const connection = await connect();
  const answer = await verbs[command.verb](connection);
  await connection.close();
  return answer;
}

main().then((answer) => {
  process.stdout.write(JSON.stringify(answer), () => process.exit(0));
}, (error) => {
  process.stderr.write(`${error.stack}\n`, () => process.exit(1));
});
