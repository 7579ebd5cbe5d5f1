"""Single calls that no official client would send: what a proxy answers to each.

An answer is the status code, and what the case looks at besides; texts are a proxy's own.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tests.interop.kit.grpc.scenarios import Outcome, Scene

Answer: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[..., list[Answer]]

_BODY: Final = base64.b64encode(b"body").decode()
_ids: Final = itertools.count(1)


def message_id() -> str:
    """An id as clients make them."""
    return f"01{next(_ids):032X}"


def send_request(topic: str, *, body: str = _BODY, **system: object) -> Answer:
    """A SendMessage of one message."""
    return {"messages": [send_message(topic, body=body, **system)]}


def send_message(
    topic: str, *, body: str = _BODY, user: dict[str, str] | None = None, **system: object
) -> Answer:
    """One message of a SendMessage."""
    properties = {
        "messageId": message_id(),
        "messageType": "NORMAL",
        "bornTimestamp": _timestamp(0),
        **system,
    }
    return {
        "topic": {"name": topic},
        "body": body,
        "userProperties": user or {},
        "systemProperties": properties,
    }


def _timestamp(later_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + later_s))


def producer_settings(*topics: str) -> Answer:
    """Telemetry of a producer."""
    return {
        "settings": {
            "clientType": "PRODUCER",
            "requestTimeout": "3s",
            "publishing": {"topics": [{"name": topic} for topic in topics]},
            "userAgent": {"language": "JAVA", "version": "5.2.0"},
        }
    }


def consumer_settings(group: str, topic: str, client_type: str = "SIMPLE_CONSUMER") -> Answer:
    """Telemetry of a consumer."""
    return {
        "settings": {
            "clientType": client_type,
            "requestTimeout": "3s",
            "subscription": {
                "group": {"name": group},
                "subscriptions": [
                    {"topic": {"name": topic}, "expression": {"type": "TAG", "expression": "*"}}
                ],
                "longPollingTimeout": "5s",
            },
            "userAgent": {"language": "JAVA", "version": "5.2.0"},
        }
    }


def caller(scene: Scene, **metadata: str) -> Call:
    """Open a connection; a function that sends one call by it. A value "" leaves metadata out."""
    name = scene.side.new_name("caller")
    pairs = {
        "x-mq-client-id": name,
        "x-mq-language": "JAVA",
        "x-mq-client-version": "5.2.0",
        "x-mq-protocol": "v2",
        **{key.replace("_", "-"): value for key, value in metadata.items()},
    }
    told = json.dumps([pair for pair in pairs.items() if pair[1]])
    scene.client.ask("open-caller", name=name, endpoints=scene.side.endpoints, metadata=told)
    scene.ends(name)

    def call(method: str, **request: object) -> list[Answer]:
        answers: list[Answer] = scene.client.ask(
            "call", caller=name, method=method, request=json.dumps(request)
        )
        return answers

    return call


def code(answers: list[Answer]) -> str:
    """The status of an answer: the name of its code, or that of gRPC."""
    for answer in answers:
        if "grpc" in answer:
            return f"gRPC {answer['grpc']}"
        if "status" in answer:
            return str(answer["status"].get("code", "CODE_UNSPECIFIED"))
    return "none"


def routes(scene: Scene) -> Outcome:
    """QueryRoute and QueryAssignment."""
    side = scene.side
    call = caller(scene)
    endpoints = {
        "scheme": "IPv4",
        "addresses": [{"host": "127.0.0.1", "port": int(side.endpoints.split(":")[1])}],
    }
    topics = {
        kind: side.new_topic("routes", kind, queues=2)
        for kind in ("", "FIFO", "DELAY", "TRANSACTION", "MIXED")
    }
    groups = {"plain": side.new_group(), "fifo": side.new_group(is_orderly=True), "unknown": "no-such-group"}
    result: Outcome = {}
    for kind, topic in topics.items():
        answer = call("QueryRoute", topic={"name": topic}, endpoints=endpoints)
        queues = answer[0].get("messageQueues", [])
        result[f"route of {kind or 'NONE'}"] = {
            "code": code(answer),
            "queues": [(one.get("id", 0), one["permission"], one["acceptMessageTypes"]) for one in queues],
            "endpoints": all(one["broker"]["endpoints"] == endpoints for one in queues),
            "topics": all(one["topic"]["name"] == topic for one in queues),
        }
    for name in ("no-such-topic", "RMQ_SYS_TRACE_TOPIC", "", "%RETRY%group", "bad topic!"):
        result[f"route of {name!r}"] = code(call("QueryRoute", topic={"name": name}, endpoints=endpoints))
    result["route without endpoints"] = code(call("QueryRoute", topic={"name": topics[""]}))
    for name, group in groups.items():
        answer = call(
            "QueryAssignment", topic={"name": topics[""]}, group={"name": group}, endpoints=endpoints
        )
        queues = [one["messageQueue"] for one in answer[0].get("assignments", [])]
        result[f"assignment of {name}"] = {
            "code": code(answer),
            "queues": sorted(one.get("id", 0) for one in queues),
            "permissions": sorted({one.get("permission", "NONE") for one in queues}),
        }
    result["assignment of no-such-topic"] = code(
        call(
            "QueryAssignment",
            topic={"name": "no-such-topic"},
            group={"name": groups["plain"]},
            endpoints=endpoints,
        )
    )
    result["no client id"] = code(
        caller(scene, x_mq_client_id="")("QueryRoute", topic={"name": topics[""]}, endpoints=endpoints)
    )
    result["unknown language"] = code(
        caller(scene, x_mq_language="")("QueryRoute", topic={"name": topics[""]}, endpoints=endpoints)
    )
    return result


def sends(scene: Scene) -> Outcome:
    """SendMessage, with what clients check themselves."""
    topics = {
        kind: scene.side.new_topic("sends", kind)
        for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
    }
    call = caller(scene)
    call("Telemetry", **producer_settings(*topics.values()))
    normal = topics["NORMAL"]
    cases: dict[str, Answer] = {
        "normal": send_request(normal),
        "type left out": send_request(normal, messageType="MESSAGE_TYPE_UNSPECIFIED"),
        "fifo to normal": send_request(normal, messageType="FIFO", messageGroup="a"),
        "delay to normal": send_request(normal, messageType="DELAY", deliveryTimestamp=_timestamp(60)),
        "transaction to normal": send_request(normal, messageType="TRANSACTION"),
        "normal to fifo": send_request(topics["FIFO"]),
        "normal to delay": send_request(topics["DELAY"]),
        "normal to transaction": send_request(topics["TRANSACTION"]),
        "fifo to mixed": send_request(topics["MIXED"], messageType="FIFO", messageGroup="a"),
        "normal that says fifo": send_request(normal, messageType="FIFO"),
        "no messages": {"messages": []},
        "two messages": {"messages": [send_message(normal), send_message(normal)]},
        "two topics": {"messages": [send_message(normal), send_message(topics["MIXED"])]},
        "no body": send_request(normal, body=""),
        "large body": send_request(normal, body=base64.b64encode(b"x" * (4 * 1024 * 1024 + 1)).decode()),
        "no message id": send_request(normal, messageId=""),
        "blank message id": send_request(normal, messageId="  "),
        "tag with |": send_request(normal, tag="a|b"),
        "blank tag": send_request(normal, tag="  "),
        "tag with control": send_request(normal, tag="a\u0001b"),
        "blank key": send_request(normal, keys=["a", " "]),
        "key with control": send_request(normal, keys=["a\u0001b"]),
        "blank message group": send_request(topics["FIFO"], messageType="FIFO", messageGroup=" "),
        "long message group": send_request(topics["FIFO"], messageType="FIFO", messageGroup="x" * 65),
        "message group of 64": send_request(topics["FIFO"], messageType="FIFO", messageGroup="x" * 64),
        "message group of 63": send_request(topics["FIFO"], messageType="FIFO", messageGroup="x" * 63),
        "128 properties": send_request(normal)
        | {"messages": [send_message(normal, user={f"k{number}": "v" for number in range(128)})]},
        "129 properties": {
            "messages": [send_message(normal, user={f"k{number}": "v" for number in range(129)})]
        },
        "large properties": {"messages": [send_message(normal, user={"k": "x" * 16 * 1024})]},
        "reserved property": {"messages": [send_message(normal, user={"TAGS": "x"})]},
        "property with control": {"messages": [send_message(normal, user={"a\u0001": "x"})]},
        "property value with control": {"messages": [send_message(normal, user={"a": "x\u0001y"})]},
        "delay of a day": send_request(
            topics["DELAY"], messageType="DELAY", deliveryTimestamp=_timestamp(86_300)
        ),
        "delay of two days": send_request(
            topics["DELAY"], messageType="DELAY", deliveryTimestamp=_timestamp(172_800)
        ),
        "delay in the past": send_request(
            topics["DELAY"], messageType="DELAY", deliveryTimestamp=_timestamp(-60)
        ),
        "orphan check after two hours": send_request(
            topics["TRANSACTION"], messageType="TRANSACTION", orphanedTransactionRecoveryDuration="7200s"
        ),
        "unknown topic": send_request("no-such-topic"),
        "system topic": send_request("RMQ_SYS_TRACE_TOPIC"),
        "blank topic": send_request(" "),
        "topic with bad letters": send_request("bad topic!"),
        "group and time": send_request(
            topics["MIXED"], messageType="FIFO", messageGroup="a", deliveryTimestamp=_timestamp(60)
        ),
    }
    result: Outcome = {}
    for name, request in cases.items():
        answer = call("SendMessage", **request)
        entries = answer[0].get("entries", [])
        result[name] = (code(answer), [code([entry]) for entry in entries])
    return result


def receipts(scene: Scene) -> Outcome:
    """What ends a message: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue, with handles
    that are good, and with some that are not."""
    side = scene.side
    topic, group = side.new_topic("receipts", queues=1), side.new_group()
    call = caller(scene)
    call("Telemetry", **consumer_settings(group, topic))
    call("SendMessage", messages=[send_message(topic) for _ in range(3)])
    where = {"topic": {"name": topic}, "group": {"name": group}}
    queue = {
        "topic": {"name": topic},
        "permission": "READ",
        "broker": {"name": "broker-a"},
        "id": -1,
    }
    receive = {
        "group": {"name": group},
        "messageQueue": queue,
        "filterExpression": {"type": "TAG", "expression": "*"},
        "batchSize": 8,
        "invisibleDuration": "30s",
        "longPollingTimeout": "5s",
    }
    came = []
    for _ in range(3):
        came += [one["message"] for one in call("ReceiveMessage", **receive) if "message" in one]
    handles = [one["systemProperties"]["receiptHandle"] for one in came]
    ids = [one["systemProperties"]["messageId"] for one in came]

    def ack(*entries: tuple[str, str]) -> tuple[str, list[str]]:
        told = [{"messageId": one_id, "receiptHandle": handle} for one_id, handle in entries]
        answer = call("AckMessage", entries=told, **where)
        return code(answer), [code([entry]) for entry in answer[0].get("entries", [])]

    def change(handle: str, **options: object) -> tuple[str, bool]:
        options = {"invisibleDuration": "60s", **where, **options}
        answer = call("ChangeInvisibleDuration", receiptHandle=handle, messageId=ids[1], **options)
        return code(answer), answer[0].get("receiptHandle", "") not in ("", handle)

    def forward(handle: str) -> str:
        return code(
            call(
                "ForwardMessageToDeadLetterQueue",
                receiptHandle=handle,
                messageId=ids[2],
                deliveryAttempt=1,
                maxDeliveryAttempts=1,
                **where,
            )
        )

    forged = handles[0][:-2] + "99"
    empty = {"receive nothing": [code(call("ReceiveMessage", **receive))]}
    return {
        "received": len(came),
        "ack": ack((ids[0], handles[0])),
        "ack of two, one bad": ack((ids[0], handles[0]), (ids[0], "no handle")),
        "ack of no handle": ack((ids[0], "no handle")),
        "ack of an empty handle": ack((ids[0], "")),
        "ack without entries": ack(),
        "ack of a changed handle": ack((ids[0], forged)),
        "ack of an unknown topic": code(
            call(
                "AckMessage",
                topic={"name": "no-such-topic"},
                group={"name": group},
                entries=[{"messageId": ids[0], "receiptHandle": handles[0]}],
            )
        ),
        "change of no handle": change("no handle"),
        "change to less than nothing": change(handles[1], invisibleDuration="-1s"),
        "change to a day": change(handles[1], invisibleDuration="86400s"),
        "change": change(handles[1]),
        "change of the handle before": change(handles[1]),
        "forward of no handle": forward("no handle"),
        "forward": forward(handles[2]),
        **empty,
        "short": code(call("ReceiveMessage", **{**receive, "invisibleDuration": "5s"})),
        "long": code(call("ReceiveMessage", **{**receive, "invisibleDuration": "86400s"})),
        "no messages wanted": code(call("ReceiveMessage", **{**receive, "batchSize": 0})),
        "bad SQL": code(
            call(
                "ReceiveMessage", **{**receive, "filterExpression": {"type": "SQL", "expression": "a = = 1"}}
            )
        ),
        "unknown group": code(call("ReceiveMessage", **{**receive, "group": {"name": "no-such-group"}})),
        "blank group": code(call("ReceiveMessage", **{**receive, "group": {"name": " "}})),
        "unknown topic": code(
            call(
                "ReceiveMessage", **{**receive, "messageQueue": {**queue, "topic": {"name": "no-such-topic"}}}
            )
        ),
        "unknown broker": code(
            call(
                "ReceiveMessage",
                **{**receive, "messageQueue": {**queue, "broker": {"name": "no-such-broker"}}},
            )
        ),
    }


def ends(scene: Scene) -> Outcome:
    """EndTransaction and RecallMessage."""
    topic = scene.side.new_topic("ends", "TRANSACTION")
    delayed = scene.side.new_topic("ends", "DELAY")
    call = caller(scene)
    call("Telemetry", **producer_settings(topic, delayed))
    sent = call("SendMessage", **send_request(topic, messageType="TRANSACTION"))[0]["entries"][0]
    end = {
        "topic": {"name": topic},
        "messageId": sent["messageId"],
        "transactionId": sent.get("transactionId", ""),
        "resolution": "COMMIT",
        "source": "SOURCE_CLIENT",
    }
    handle = call(
        "SendMessage", **send_request(delayed, messageType="DELAY", deliveryTimestamp=_timestamp(60))
    )[0]["entries"][0].get("recallHandle", "")
    return {
        "transaction id is the message id": end["transactionId"] == end["messageId"],
        "no id": code(call("EndTransaction", **{**end, "transactionId": ""})),
        "unknown id": code(call("EndTransaction", **{**end, "transactionId": message_id()})),
        "no resolution": code(
            call("EndTransaction", **{**end, "resolution": "TRANSACTION_RESOLUTION_UNSPECIFIED"})
        ),
        "end": code(call("EndTransaction", **end)),
        "end again": code(call("EndTransaction", **end)),
        "handle": handle != "",
        "recall without handle": code(call("RecallMessage", topic={"name": delayed}, recallHandle="")),
        "recall of no handle": code(call("RecallMessage", topic={"name": delayed}, recallHandle="no handle")),
        "recall in another topic": code(call("RecallMessage", topic={"name": topic}, recallHandle=handle)),
        "recall": code(call("RecallMessage", topic={"name": delayed}, recallHandle=handle)),
    }


def settings(scene: Scene) -> Outcome:
    """Telemetry, Heartbeat, NotifyClientTermination."""
    side = scene.side
    topic = side.new_topic("settings")
    groups = {
        "plain": side.new_group(),
        "fifo": side.new_group(is_orderly=True),
        "one retry": side.new_group(retries=1),
    }
    result: Outcome = {}
    answer = caller(scene)("Telemetry", **producer_settings(topic))
    result["producer"] = _without_user(answer, topic)
    for name, group in groups.items():
        for kind in ("SIMPLE_CONSUMER", "PUSH_CONSUMER"):
            answer = caller(scene)("Telemetry", **consumer_settings(group, topic, kind))
            told = _without_user(answer, group, topic)
            # Of lite topics, which ours has not.
            for key in ("liteSubscriptionQuota", "maxLiteTopicSize"):
                told["settings"]["subscription"].pop(key, None)
            result[f"{kind} of {name}"] = told
    bad = {
        "nothing": {},
        "no kind": {"settings": {"requestTimeout": "3s"}},
        "unknown group": consumer_settings("no-such-group", topic),
        "blank group": consumer_settings(" ", topic),
        "unknown topic": consumer_settings(groups["plain"], "no-such-topic"),
        "bad topic": consumer_settings(groups["plain"], "bad topic!"),
        "producer of a bad topic": producer_settings("bad topic!"),
        "producer of an unknown topic": producer_settings("no-such-topic"),
    }
    for name, command in bad.items():
        result[f"settings: {name}"] = code(caller(scene)("Telemetry", **command))
    result["settings without client id"] = code(
        caller(scene, x_mq_client_id="")("Telemetry", **producer_settings(topic))
    )
    call = caller(scene)
    result["heartbeat before settings"] = code(call("Heartbeat", group={"name": groups["plain"]}))
    call("Telemetry", **consumer_settings(groups["plain"], topic))
    result["heartbeat"] = code(
        call("Heartbeat", group={"name": groups["plain"]}, clientType="SIMPLE_CONSUMER")
    )
    result["termination"] = code(call("NotifyClientTermination", group={"name": groups["plain"]}))
    result["termination again"] = code(call("NotifyClientTermination", group={"name": groups["plain"]}))
    result["termination without settings"] = code(
        caller(scene)("NotifyClientTermination", group={"name": groups["plain"]})
    )
    return result


def _without_user(answers: list[Answer], *names: str) -> Answer:
    told = answers[0]
    told.get("settings", {}).pop("userAgent", None)
    text = json.dumps(told)
    for name in names:
        text = text.replace(name, "NAME")
    answer: Answer = json.loads(text)
    return {"code": code(answers), "settings": answer.get("settings")}


CALLS: Final = {scenario.__name__: scenario for scenario in (routes, sends, receipts, ends, settings)}
"""What is called, by name; by the program in Python only."""
