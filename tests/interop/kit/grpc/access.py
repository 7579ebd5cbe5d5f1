"""Clients for gRPC with keys: what each account may do at a proxy with RocketMQ 5's access control."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from typing import Final

from kourou.protocol.bodies import SubscriptionGroupConfig, encode_body
from kourou.protocol.codes import RequestCode
from tests.interop.kit.access_accounts import (
    ADMIN,
    DISABLED,
    NOBODY,
    OPEN,
    UNKNOWN,
    UNSIGNED,
    WORKER,
    WRONG_KEY,
    Identity,
)
from tests.interop.kit.access_servers import AUTH, create_accounts
from tests.interop.kit.grpc.calls import (
    caller,
    code,
    consumer_settings,
    message_id,
    producer_settings,
    send_request,
)
from tests.interop.kit.grpc.scenarios import Outcome, Scene
from tests.interop.kit.grpc.sides import APACHE, GrpcSide
from tests.interop.kit.signed_wire import SignedConnection

TOPICS: Final = ("Orders", "Sends", "Reads", "Denied", "Other")
GROUPS: Final = ("Workers", "Closed")
IDENTITIES: Final = {
    identity.name: identity
    for identity in (
        *(account.identity for account in (ADMIN, WORKER, OPEN, NOBODY, DISABLED)),
        *(UNSIGNED, UNKNOWN, WRONG_KEY),
    )
}
_ROUTE_TIMEOUT_S: Final = 45
_DATE: Final = "20260101T000000Z"


def create_world(side: GrpcSide) -> None:
    """Create the accounts, and what they have rights to."""
    admin = ADMIN.identity if side.name == APACHE else _printed_administrator(side)
    create_accounts(side.broker, AUTH, admin)
    with SignedConnection(side.broker, admin) as broker:
        for topic in TOPICS:
            fields = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "order": "false",
            }
            _done(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields, b"")
        for group in GROUPS:
            body = encode_body(SubscriptionGroupConfig(group_name=group))
            _done(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    with SignedConnection(side.namesrv, admin) as namesrv:
        for topic in TOPICS:
            _wait_route(namesrv, topic)


def _printed_administrator(side: GrpcSide) -> Identity:
    """The account that the first start of ours makes and prints."""
    printed = re.search(r"accessKey=(\S+) secretKey=([0-9a-f]+)", side.servers[-1].log_text())
    assert printed is not None, side.servers[-1].log_text()
    return Identity("printed", printed[1], printed[2])


def _done(connection: SignedConnection, request: int, fields: dict[str, str], body: bytes) -> None:
    answer = connection.call(request, fields, body)
    assert answer is not None and answer.code == 0, f"{request} {fields}: {answer}"


def _wait_route(namesrv: SignedConnection, topic: str) -> None:
    deadline = time.monotonic() + _ROUTE_TIMEOUT_S
    while True:
        answer = namesrv.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer is not None and answer.code == 0:
            return
        assert time.monotonic() < deadline, f"no route of {topic}: {answer}"
        time.sleep(0.1)


def signature(identity: Identity) -> dict[str, str]:
    """The metadata that a client of RocketMQ 5 signs its calls with: only the date is signed."""
    if not identity.access_key:
        return {}
    signed = hmac.new(identity.secret_key.encode(), _DATE.encode(), hashlib.sha1).hexdigest()
    return {
        "x_mq_date_time": _DATE,
        "authorization": f"MQv2-HMAC-SHA1 Credential={identity.access_key}, "
        f"SignedHeaders=x-mq-date-time, Signature={signed.upper()}",
    }


def rights(scene: Scene, identity: Identity) -> Outcome:
    """The status of each kind of call of an account, topic by topic."""
    call = caller(scene, **signature(identity))
    result: Outcome = {}
    for topic in TOPICS:
        result[f"route of {topic}"] = code(call("QueryRoute", topic={"name": topic}))
        result[f"send to {topic}"] = code(call("SendMessage", **send_request(topic)))
    for topic in ("Orders", "Reads"):
        telemetry = caller(scene, **signature(identity))
        result[f"producer of {topic}"] = code(telemetry("Telemetry", **producer_settings(topic)))
    for topic, group in (("Orders", "Workers"), ("Orders", "Closed"), ("Sends", "Workers")):
        where = {"topic": {"name": topic}, "group": {"name": group}}
        name = f"of {topic} as {group}"
        consumer = caller(scene, **signature(identity))
        result[f"consumer {name}"] = code(consumer("Telemetry", **consumer_settings(group, topic)))
        result[f"heartbeat {name}"] = code(consumer("Heartbeat", group={"name": group}))
        result[f"assignment {name}"] = code(consumer("QueryAssignment", **where))
        receive = {
            "group": {"name": group},
            "messageQueue": {"topic": {"name": topic}, "broker": {"name": "broker-a"}, "id": -1},
            "batchSize": 1,
            "invisibleDuration": "10s",
            "longPollingTimeout": "5s",
        }
        result[f"receive {name}"] = code(consumer("ReceiveMessage", **receive))
    end = {"messageId": message_id(), "transactionId": message_id(), "resolution": "COMMIT"}
    for topic in ("Orders", "Reads"):
        result[f"end in {topic}"] = code(call("EndTransaction", topic={"name": topic}, **end))
        result[f"recall in {topic}"] = code(
            call("RecallMessage", topic={"name": topic}, recallHandle="no handle")
        )
    return result
