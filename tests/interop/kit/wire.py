"""Wire: single requests to servers, ours or Apache's, over a connection of their own.

For what a test needs before its client can begin, such as a topic that every name server knows; without JVMs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from typing import Final

from kourou.protocol.bodies import SubscriptionGroupConfig, TopicRouteData, decode_body, encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers import (
    CreateTopicRequestHeader,
    GetRouteInfoRequestHeader,
    SendMessageRequestHeaderV2,
)

_TIMEOUT_S: Final = 10
_ROUTE_TIMEOUT_S: Final = 45
_POLL_S: Final = 0.05


def call(address: str, command: RemotingCommand) -> RemotingCommand:
    """Send one request and wait for its answer."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        connection.sendall(command.encode())
        decoder = FrameDecoder()
        while not (frames := decoder.feed(_some(connection))):
            pass
        return decode_command(frames[0])


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionResetError("closed without an answer")
    return data


def create_topic(
    broker: str, namesrvs: Iterable[str], topic: str, queues: int = 4, message_type: str = ""
) -> str:
    """Create a topic on a broker, wait until the name servers have its route; returns its name."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=f"+message.type={message_type}" if message_type else None,
    )
    answer = call(broker, RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    assert answer.code == 0, f"{broker} does not create {topic}: {answer.code} {answer.remark}"
    for namesrv in namesrvs:
        wait_route(namesrv, topic, broker)
    return topic


def create_group(broker: str, group: str, *, is_orderly: bool = False, retries: int = 16) -> str:
    """Create a consumer group on a broker; returns its name."""
    config = SubscriptionGroupConfig(
        group_name=group, consume_message_orderly=is_orderly, retry_max_times=retries
    )
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    answer = call(broker, RemotingCommand.request(code, None, encode_body(config)))
    assert answer.code == 0, f"{broker} does not create {group}: {answer.code} {answer.remark}"
    return group


def set_config(broker: str, **properties: object) -> None:
    """Change keys of a running broker."""
    body = "".join(f"{key}={value}\n" for key, value in properties.items()).encode()
    answer = call(broker, RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, None, body))
    assert answer.code == 0, f"{broker} does not take {properties}: {answer.code} {answer.remark}"


def has_figures(broker: str) -> bool:
    """Whether a broker tells its figures: Apache's fails to until it has sampled itself, a second after it
    answers everything else."""
    return call(broker, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0


def send(broker: str, topic: str, body: bytes) -> None:
    """Send one message to the first queue of a topic, which is created where it is not there."""
    answer = try_send(broker, topic, body)
    assert answer.code == 0, f"{broker} does not take a message: {answer.code} {answer.remark}"


def try_send(broker: str, topic: str, body: bytes) -> RemotingCommand:
    """Send one message as `send` does; the answer, whatever it is."""
    header = SendMessageRequestHeaderV2(
        producer_group="interop-wire",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
    )
    return call(broker, RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body))


def wait_route(namesrv: str, topic: str, broker: str) -> None:
    """Wait until the route of a topic at a name server holds a broker's address."""
    deadline = time.monotonic() + _ROUTE_TIMEOUT_S
    while broker not in route_addresses(namesrv, topic):
        assert time.monotonic() < deadline, f"no route of {topic} to {broker} at {namesrv}"
        time.sleep(_POLL_S)


def route_addresses(namesrv: str, topic: str) -> set[str]:
    """The addresses of all brokers in the route of a topic; none where there is no route."""
    header = GetRouteInfoRequestHeader(topic=topic)
    answer = call(namesrv, RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
    if answer.code != 0:
        return set()
    route = decode_body(answer.body, TopicRouteData)
    return {address for broker in route.broker_datas for address in broker.broker_addrs.values()}
