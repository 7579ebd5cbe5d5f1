// Apache's Node client for gRPC under remote control: producers and consumers are started, used and stopped by name.
//
// The commands are those of GrpcSession.java. A line on stdin is one command, its words separated by tabs: a name,
// then NAME=VALUE, among them its id. Commands run side by side. Each gives one JSON line on stdout,
// {"id":...,"answer":...} or {"id":...,"error":...,"code":...}. The end of stdin ends the session.
'use strict';

const readline = require('node:readline');
const zlib = require('node:zlib');
const {
  Producer, SimpleConsumer, PushConsumer, FilterExpression, ConsumeResult,
} = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require(
  'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const clients = new Map();
const inboxes = new Map();
const views = new Map();
let numbers = 0;

// All clients share their log by default, and the first that stops closes it.
const silent = () => {};
const logger = { debug: silent, info: silent, warn: console.error, error: console.error, close: silent };

// Messages in the order in which they came, to wait for.
class Inbox {
  messages = [];
  names = new Map();

  // How often a message of this name had come before.
  add(view) {
    const fields = described(view);
    const before = this.names.get(fields.body) ?? 0;
    this.messages.push(fields);
    this.names.set(fields.body, before + 1);
    return before;
  }

  // All messages, once there are `count` of different names, or with `calls` so many of any.
  async take(options) {
    const deadline = Date.now() + Number(options.timeoutMs ?? 30_000);
    const size = () => (options.calls === 'true' ? this.messages.length : this.names.size);
    while (size() < Number(options.count) && Date.now() < deadline) {
      await new Promise(resolve => setTimeout(resolve, 10));
    }
    return this.messages;
  }
}

// A body is a name, and for larger ones "|" and padding; told of it are the name, the size and a checksum.
function body(name, size) {
  return Buffer.from(size ? `${name}|`.padEnd(size, 'x') : name);
}

function nameOf(view) {
  return view.body.toString().split('|')[0];
}

function described(view) {
  return {
    body: nameOf(view), size: view.body.length, crc: crc32(view.body), topic: view.topic,
    messageId: view.messageId, tag: view.tag ?? null, keys: [...view.keys].sort(), group: view.messageGroup ?? null,
    deliveryTimestamp: view.deliveryTimestamp?.getTime() ?? null, priority: view.priority ?? null,
    properties: Object.fromEntries(view.properties), bornHost: view.bornHost,
    bornTimestamp: view.bornTimestamp?.getTime() ?? null, attempt: view.deliveryAttempt, receivedMs: Date.now(),
  };
}

// zlib.crc32 is of Node 22.
function crc32(bytes) {
  if (zlib.crc32) return zlib.crc32(bytes);
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

function message(options, name) {
  const pairs = (options.properties ?? '').split(';').filter(Boolean).map(pair => pair.split(/=(.*)/s).slice(0, 2));
  return {
    topic: options.topic, body: body(name, Number(options.size ?? 0)), tag: options.tag,
    keys: options.keys?.split(','), messageGroup: options.group, properties: new Map(pairs),
    deliveryTimestamp: options.delayMs && new Date(Date.now() + Number(options.delayMs)),
    priority: options.priority && Number(options.priority),
  };
}

function base(options) {
  const keys = options.accessKey && { accessKey: options.accessKey, accessSecret: options.secretKey };
  return { endpoints: options.endpoints, namespace: '', sessionCredentials: keys || undefined, logger };
}

function subscriptions(options) {
  const filter = options.sql
    ? new FilterExpression(options.sql, FilterType.SQL) : new FilterExpression(options.expression ?? '*');
  return new Map([[options.topic, filter]]);
}

async function start(name, client) {
  await client.startup();
  clients.set(name, client);
  return true;
}

// The first word of a name says how the transaction ends.
function resolution(name) {
  return { commit: TransactionResolution.COMMIT, rollback: TransactionResolution.ROLLBACK }[name.split('-')[0]]
    ?? TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
}

async function startProducer(options) {
  let checker;
  if (options.checker === 'true') {
    const asked = new Inbox();
    inboxes.set(options.name, asked);
    checker = {
      async check(view) {
        asked.add(view);
        return resolution(nameOf(view));
      },
    };
  }
  return await start(options.name, new Producer({ ...base(options), topics: options.topics?.split(','), checker }));
}

// Send one message after the other; what each send ended with.
async function send(options) {
  const sent = [];
  for (const name of options.bodies.split(',')) {
    try {
      const receipt = await clients.get(options.producer).send(message(options, name));
      sent.push({ body: name, messageId: receipt.messageId, recallHandle: receipt.recallHandle });
    } catch (error) {
      sent.push({ body: name, ...failure(error) });
    }
  }
  return sent;
}

// Each message in a transaction of its own, which ends as its name says.
async function sendTransactions(options) {
  const producer = clients.get(options.producer);
  const sent = [];
  for (const name of options.bodies.split(',')) {
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(message(options, name), transaction);
    sent.push({ body: name, messageId: receipt.messageId });
    if (options.end === 'false') continue;
    if (resolution(name) === TransactionResolution.COMMIT) await transaction.commit();
    if (resolution(name) === TransactionResolution.ROLLBACK) await transaction.rollback();
  }
  return sent;
}

async function recall(options) {
  return (await clients.get(options.producer).recallMessage(options.topic, options.handle)).messageId;
}

async function startSimple(options) {
  return await start(options.name, new SimpleConsumer({
    ...base(options), consumerGroup: options.group, subscriptions: subscriptions(options),
    awaitDuration: Number(options.awaitMs ?? 5000),
  }));
}

async function receive(options) {
  const came = await clients.get(options.consumer).receive(
    Number(options.count ?? 16), Number(options.invisibleMs ?? 30_000));
  return came.map(view => {
    views.set(++numbers, view);
    return { ...described(view), number: numbers };
  });
}

async function ack(options) {
  await clients.get(options.consumer).ack(views.get(Number(options.number)));
  return true;
}

async function change(options) {
  await clients.get(options.consumer).changeInvisibleDuration(
    views.get(Number(options.number)), Number(options.invisibleMs));
  return true;
}

// A listener fails the first `fails` times (-1: always) on each message whose name ends with `failing`.
async function startPush(options) {
  const inbox = new Inbox();
  inboxes.set(options.name, inbox);
  const fails = Number(options.fails ?? 0);
  const messageListener = {
    async consume(view) {
      const before = inbox.add(view);
      const isFailure = (fails < 0 || before < fails) && nameOf(view).endsWith(options.failing ?? '');
      return isFailure ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  return await start(options.name, new PushConsumer({
    ...base(options), consumerGroup: options.group, subscriptions: subscriptions(options), messageListener,
  }));
}

async function stop(options) {
  const client = clients.get(options.name);
  clients.delete(options.name);
  await client?.shutdown();
  return client !== undefined;
}

const commands = {
  'start-producer': startProducer,
  send,
  'send-transactions': sendTransactions,
  checks: options => inboxes.get(options.producer).take(options),
  recall,
  'start-simple': startSimple,
  receive,
  ack,
  change,
  'start-push': startPush,
  // The inbox of a stopped consumer stays: a consumer goes on while it stops.
  received: options => inboxes.get(options.consumer).take(options),
  stop,
};

// What a call ended with, and the code of the response, 0 where there was none: then it is one of gRPC or Node.
function failure(error) {
  return { error: String(error), code: error.code >= 20000 ? error.code : 0 };
}

async function run(line) {
  const [command, ...words] = line.split('\t');
  const options = Object.fromEntries(words.map(word => word.split(/=(.*)/s).slice(0, 2)));
  let result;
  try {
    result = { answer: await commands[command](options) };
  } catch (error) {
    result = failure(error);
  }
  process.stdout.write(JSON.stringify({ id: Number(options.id), ...result }) + '\n');
}

// What the client prints is no answer.
console.log = console.info = console.error;
process.on('unhandledRejection', error => console.error('unhandled', error));
readline.createInterface({ input: process.stdin }).on('line', run).on('close', () => process.exit(0));
