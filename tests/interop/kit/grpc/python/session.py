"""Apache's Python client for gRPC under remote control: producers and consumers are started, used and stopped
by name. A program of its own, in an environment of its own: the stubs of this client clash with others.

The commands are those of GrpcSession.java. A line on stdin is one command, its words separated by tabs: a
name, then NAME=VALUE, among them its id. Commands run side by side. Each gives one JSON line on stdout,
{"id":...,"answer":...} or {"id":...,"error":...,"code":...}. The end of stdin ends the session.
"""

import json
import os
import queue
import sys
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.json_format import MessageToDict, ParseDict
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType, MessagingServiceStub, service_pb2

import grpc

clients = {}
inboxes = {}
received = {}
threads = ThreadPoolExecutor(64)


class Inbox:
    """Messages in the order in which they came, to wait for."""

    def __init__(self):
        self._changed = threading.Condition()
        self._messages = []
        self._names = Counter()

    def add(self, message):
        """How often a message of this name had come before."""
        fields = described(message)
        with self._changed:
            self._messages.append(fields)
            self._names[fields["body"]] += 1
            self._changed.notify_all()
            return self._names[fields["body"]] - 1

    def take(self, options):
        """All messages, once there are `count` of different names, or with `calls` so many of any."""
        count, counted = int(options["count"]), options.get("calls") == "true"
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._messages if counted else self._names) >= count,
                int(options.get("timeoutMs", 30_000)) / 1000,
            )
            return list(self._messages)


def body(name, size):
    """A body is a name, and for larger ones "|" and padding."""
    return (f"{name}|".ljust(size, "x") if size else name).encode()


def name_of(message):
    return message.body.decode().partition("|")[0]


def described(message):
    return {
        "body": name_of(message),
        "size": len(message.body),
        "crc": zlib.crc32(message.body),
        "topic": message.topic,
        "messageId": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "group": message.message_group,
        "deliveryTimestamp": message.delivery_timestamp,
        "priority": message.priority,
        "properties": dict(message.properties),
        "bornHost": message.born_host,
        "bornTimestamp": message.born_timestamp,
        "attempt": message.delivery_attempt,
        "receivedMs": int(time.time() * 1000),
    }


def new_message(options, name):
    message = Message()
    message.topic = options["topic"]
    message.body = body(name, int(options.get("size", 0)))
    if "tag" in options:
        message.tag = options["tag"]
    for key in filter(None, options.get("keys", "").split(",")):
        message.keys = key  # adds one
    if "group" in options:
        message.message_group = options["group"]
    if "delayMs" in options:
        message.delivery_timestamp = int(time.time() + int(options["delayMs"]) / 1000)
    if "priority" in options:
        message.priority = int(options["priority"])
    for one in filter(None, options.get("properties", "").split(";")):
        message.add_property(*one.split("=", 1))
    return message


def configuration(options):
    keys = Credentials(options.get("accessKey", ""), options.get("secretKey", ""))
    return ClientConfiguration(options["endpoints"], keys)


def subscription(options):
    sql = options.get("sql")
    expression = (
        FilterExpression(sql, FilterType.SQL) if sql else FilterExpression(options.get("expression", "*"))
    )
    return {options["topic"]: expression}


def tls(options):
    return {"tls_enable": True} if options.get("tls") == "true" else {}


# -- producers -----------------------------------------------------------------------------------------------


def resolution(name):
    """The first word of a name says how the transaction ends."""
    return {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}.get(
        name.split("-")[0], TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
    )


class Checker(TransactionChecker):
    """Ends transactions that have no end as their names say."""

    def __init__(self, asked):
        self._asked = asked

    def check(self, message):
        self._asked.add(message)
        return resolution(name_of(message))


def start_producer(options):
    name = options["name"]
    checker = None
    if options.get("checker") == "true":
        inboxes[name] = Inbox()
        checker = Checker(inboxes[name])
    topics = options["topics"].split(",") if "topics" in options else None
    return start(name, Producer(configuration(options), topics, checker=checker, **tls(options)))


def start(name, client):
    client.startup()
    clients[name] = client
    return True


def send(options):
    """Send one message after the other; what each send ended with."""
    return [send_one(options, name) for name in options["bodies"].split(",")]


def send_one(options, name):
    try:
        receipt = clients[options["producer"]].send(new_message(options, name))
    except Exception as error:
        return {"body": name, **failure(error)}
    return {"body": name, "messageId": receipt.message_id, "recallHandle": receipt.recall_handle}


def send_transactions(options):
    """Each message in a transaction of its own, which ends as its name says."""
    producer = clients[options["producer"]]
    sent = []
    for name in options["bodies"].split(","):
        transaction = producer.begin_transaction()
        receipt = producer.send(new_message(options, name), transaction)
        sent.append({"body": name, "messageId": receipt.message_id})
        if options.get("end", "true") == "true" and resolution(name) == TransactionResolution.COMMIT:
            transaction.commit()
        elif options.get("end", "true") == "true" and resolution(name) == TransactionResolution.ROLLBACK:
            transaction.rollback()
    return sent


def recall(options):
    return clients[options["producer"]].recall_message(options["topic"], options["handle"])


# -- consumers -----------------------------------------------------------------------------------------------


def start_simple(options):
    consumer = SimpleConsumer(
        configuration(options),
        options["group"],
        subscription(options),
        await_duration=int(options.get("awaitMs", 5000)) // 1000,
        **tls(options),
    )
    return start(options["name"], consumer)


def receive(options):
    seconds = int(options.get("invisibleMs", 30_000)) // 1000
    came = clients[options["consumer"]].receive(int(options.get("count", 16)), seconds)
    told = []
    for message in came:
        number = id(message)
        received[number] = message
        told.append({**described(message), "number": number})
    return told


def ack(options):
    clients[options["consumer"]].ack(received[int(options["number"])])
    return True


def change(options):
    clients[options["consumer"]].change_invisible_duration(
        received[int(options["number"])], int(options["invisibleMs"]) // 1000
    )
    return True


class Listener(MessageListener):
    """Fails the first `fails` times (-1: always) on each message whose name ends with `failing`."""

    def __init__(self, inbox, options):
        self._inbox = inbox
        self._fails = int(options.get("fails", 0))
        self._failing = options.get("failing", "")

    def consume(self, message):
        before = self._inbox.add(message)
        fails = self._fails < 0 or before < self._fails
        is_failure = fails and name_of(message).endswith(self._failing)
        return ConsumeResult.FAILURE if is_failure else ConsumeResult.SUCCESS


def start_push(options):
    inbox = inboxes[options["name"]] = Inbox()
    consumer = PushConsumer(
        configuration(options),
        options["group"],
        Listener(inbox, options),
        subscription(options),
        **tls(options),
    )
    return start(options["name"], consumer)


# -- single calls --------------------------------------------------------------------------------------------

_CALL_TIMEOUT_S = 20
_TELEMETRY_TIMEOUT_S = 3


class Caller:
    """A connection without TLS, for requests as they are, which no client would send."""

    def __init__(self, options):
        self._channel = grpc.insecure_channel(options["endpoints"])
        self._metadata = [tuple(pair) for pair in json.loads(options["metadata"])]
        self._settings = queue.Queue()
        self._stub = MessagingServiceStub(self._channel)

    def call(self, options):
        """One call; the answer, or all of a stream. Telemetry stays open after its first answer."""
        method = options["method"]
        fields = json.loads(options["request"])
        if method == "Telemetry":
            self._settings.put(ParseDict(fields, service_pb2.TelemetryCommand()))
            answers = self._stub.Telemetry(iter(self._settings.get, None), metadata=self._metadata)
            return [MessageToDict(threads.submit(next, answers).result(_TELEMETRY_TIMEOUT_S))]
        request = ParseDict(fields, getattr(service_pb2, f"{method}Request")())
        answer = getattr(self._stub, method)(request, metadata=self._metadata, timeout=_CALL_TIMEOUT_S)
        return [MessageToDict(one) for one in (answer if hasattr(answer, "__iter__") else [answer])]

    def shutdown(self):
        self._channel.close()


def open_caller(options):
    clients[options["name"]] = Caller(options)
    return True


def call(options):
    """The answers, or the status of gRPC where it is none of the service."""
    try:
        return clients[options["caller"]].call(options)
    except grpc.RpcError as error:
        return [{"grpc": error.code().name, "text": error.details()}]
    except TimeoutError:
        return []


# -- commands ------------------------------------------------------------------------------------------------


def stop(options):
    client = clients.pop(options["name"], None)
    if client is None:
        return False
    client.shutdown()
    return True


COMMANDS = {
    "start-producer": start_producer,
    "send": send,
    "send-transactions": send_transactions,
    "checks": lambda options: inboxes[options["producer"]].take(options),
    "recall": recall,
    "start-simple": start_simple,
    "receive": receive,
    "ack": ack,
    "change": change,
    "start-push": start_push,
    # The inbox of a stopped consumer stays: a consumer goes on while it stops.
    "received": lambda options: inboxes[options["consumer"]].take(options),
    "open-caller": open_caller,
    "call": call,
    "stop": stop,
}


def failure(error):
    """What a call ended with, and the code of the response, 0 where there was none."""
    code = getattr(error, "code", 0)  # of errors of gRPC a method
    return {"error": f"{type(error).__name__}: {error}", "code": code if isinstance(code, int) else 0}


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the client prints is no answer
    writing = threading.Lock()

    def run(line):
        command, *words = line.rstrip("\n").split("\t")
        options = dict(word.split("=", 1) for word in words)
        try:
            result = {"answer": COMMANDS[command](options)}
        except Exception as error:
            result = failure(error)
        with writing:
            print(json.dumps({"id": int(options["id"]), **result}), file=answers, flush=True)

    for line in sys.stdin:
        threads.submit(run, line)
    os._exit(0)


if __name__ == "__main__":
    main()
