"""Recorded traffic of Apache's name servers, played to ours.

The recording leaves out registrations after the sixtieth. Up to there, what our tables hold comes
from the recorded requests alone. From there on, `ImpliedState` lets the recorded broker register
what Apache's answer says it had, through our own front door, before the answers are compared.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.protocol import fastjson
from kourou.protocol.bodies import QueueData, RegisterBrokerBody, TopicConfig, TopicRouteData, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers import DeleteTopicFromNamesrvRequestHeader
from tests.unit.namesrv.memory_namesrv import MemoryNamesrv, Peer, topics_body

GOLDEN = Path(__file__).parents[2] / "golden"
VERSIONS = ("4.9.7", "5.5.0")

_BROKER = {
    "cluster_name": "DefaultCluster",
    "broker_name": "broker-a",
    "broker_addr": "127.0.0.1:10911",
    "ha_server_addr": "127.0.0.1:10912",
}
_ABOUT_ALL_TOPICS = (
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
)


@dataclass(frozen=True)
class Frame:
    """One recorded frame between a peer and the name server."""

    conn: int
    is_response: bool
    raw: bytes
    command: RemotingCommand

    @property
    def is_registration(self) -> bool:
        """True for a broker's request 103."""
        return not self.is_response and self.command.code == RequestCode.REGISTER_BROKER


@dataclass(frozen=True)
class Exchange:
    """A request, Apache's answer (None: it gave none) and ours."""

    request: RemotingCommand
    theirs: RemotingCommand | None
    ours: RemotingCommand | None


def recorded_frames(version: str) -> list[Frame]:
    """Everything that went to and from Apache's name server of this version, in order."""
    with gzip.open(GOLDEN / f"frames-{version}.jsonl.gz", "rt") as lines:
        return [_frame(json.loads(line)) for line in lines if '-namesrv"' in line]


def _frame(row: dict[str, Any]) -> Frame:
    raw = base64.b64decode(row["frame"])
    (frame,) = FrameDecoder().feed(raw)
    return Frame(row["conn"], row["type"] == "response", raw, decode_command(frame))


class Replay:
    """A name server of ours and one connection to it for each recorded one."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames
        self._namesrv = MemoryNamesrv()
        self._peers: dict[int, Peer] = {}
        self._implied = ImpliedState(self._namesrv.connect())
        self._responses = {(f.conn, f.command.opaque): f.command for f in frames if f.is_response}

    async def exchanges(self) -> list[Exchange]:
        """Play all requests in order."""
        last = max(index for index, frame in enumerate(self._frames) if frame.is_registration)
        played = []
        for index, frame in enumerate(self._frames):
            if not frame.is_response:
                theirs = self._responses.get((frame.conn, frame.command.opaque))
                if index > last and theirs is not None:
                    await self._follow(index, frame.command, theirs)
                played.append(await self._play(frame, theirs))
        return played

    async def _follow(self, index: int, request: RemotingCommand, theirs: RemotingCommand) -> None:
        topics = self._topic_list_after(index) if request.code in _ABOUT_ALL_TOPICS else []
        await self._implied.follow(request, theirs, topics)

    async def _play(self, frame: Frame, theirs: RemotingCommand | None) -> Exchange:
        peer = self._peers.setdefault(frame.conn, self._namesrv.connect())
        answers = await peer.send(frame.raw)
        return Exchange(frame.command, theirs, answers[0] if answers else None)

    def _topic_list_after(self, index: int) -> list[str]:
        for each in itertools.islice(self._frames, index, None):
            if not each.is_response and each.command.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
                answer = self._responses[each.conn, each.command.opaque]
                return list(json.loads(answer.body)["topicList"])
        return []


class ImpliedState:
    """Plays the broker whose registrations were not recorded."""

    def __init__(self, broker: Peer) -> None:
        self._broker = broker
        self._counter = 1_000

    async def follow(self, request: RemotingCommand, theirs: RemotingCommand, topics: list[str]) -> None:
        """Bring our tables to what Apache's answer shows of its own; `topics` is its next list of all."""
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = (request.ext_fields or {})["topic"]
            if theirs.body:
                (queues,) = decode_body(theirs.body, TopicRouteData).queue_datas
                await self._register(_body_of(topic, queues))
            else:
                await self._delete(topic)
        elif request.code in _ABOUT_ALL_TOPICS:
            await self._register_missing(topics)

    async def _register(self, body: RegisterBrokerBody) -> None:
        self._counter += 1
        body.topic_config_serialize_wrapper.data_version.counter = self._counter
        answer = await self._broker.register(body, **_BROKER)
        assert answer.code == 0, answer.remark

    async def _register_missing(self, topics: list[str]) -> None:
        known = self._broker.namesrv.state.routes.tables.topics
        for topic in [topic for topic in known if topic not in topics]:
            await self._delete(topic)
        missing = [topic for topic in topics if topic not in known]
        if missing:
            await self._register(topics_body(*missing))

    async def _delete(self, topic: str) -> None:
        await self._broker.call(
            RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic=topic)
        )


def _body_of(topic: str, queues: QueueData) -> RegisterBrokerBody:
    body = topics_body()
    body.topic_config_serialize_wrapper.topic_config_table[topic] = TopicConfig(
        topic_name=topic,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=queues.perm,
        topic_sys_flag=queues.topic_sys_flag,
    )
    return body


def meaning(body: bytes) -> Any:
    """A JSON body without what carries no meaning: the order of names, of lists, quoted numbers."""
    return _sorted(fastjson.parse(body)) if body else None


def _sorted(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _sorted(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return sorted((_sorted(each) for each in tree), key=repr)
    return tree


def without_field(tree: Any, name: str) -> Any:
    """A tree with every field of this name left out."""
    if isinstance(tree, dict):
        return {key: without_field(value, name) for key, value in tree.items() if key != name}
    if isinstance(tree, list):
        return [without_field(each, name) for each in tree]
    return tree


def answered(exchanges: list[Exchange]) -> Iterator[tuple[RemotingCommand, RemotingCommand, RemotingCommand]]:
    """Those that Apache answered; we must have answered too."""
    for exchange in exchanges:
        if exchange.theirs is not None:
            assert exchange.ours is not None, f"no answer to {exchange.request}"
            yield exchange.request, exchange.theirs, exchange.ours
