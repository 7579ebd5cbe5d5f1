"""AccessWorld: brokers with the same accounts, Apache's and ours, for all tests of access control of a run.

Each has a name server of ours for itself, and starts when it is asked for; `launch` starts several side by
side. Our broker is there in two forms: as it is delivered, and with all holes of RocketMQ's open again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from kourou.access.openings import Opening
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from tests.interop.kit import wire
from tests.interop.kit.access_accounts import ADMIN
from tests.interop.kit.access_answers import Answers, all_answers
from tests.interop.kit.access_servers import AUTH, OURS, PLAIN, create_accounts, launch_with_accounts
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.process import ServerProcess
from tests.interop.kit.signed_wire import SignedConnection

RULES: Final = (PLAIN, AUTH)
"""The versions of RocketMQ whose rules are compared."""
_OPEN: Final = {opening.value: "true" for opening in Opening}
# Wrong keys come from the same address as right ones, very often.
_NO_LOCKOUT: Final = {"accessLockoutAttempts": "0"}
# Half messages are asked for every second; short delays.
_MESSAGING: Final = {
    "messageDelayLevel": "1s 1s 1s 1s",
    "traceTopicEnable": "true",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "transactionOpBatchInterval": "50",
}


class Place(NamedTuple):
    """A broker: whose, the rules of which version, and whether RocketMQ's holes are open in ours."""

    server: str
    rules: str
    is_open: bool = False


def theirs(rules: str) -> Place:
    """Apache's broker of the version."""
    return Place(rules, rules)


def ours(rules: str, *, is_open: bool = False) -> Place:
    """Our broker with the rules of the version."""
    return Place(OURS, rules, is_open)


@dataclass
class AccessCluster:
    """A broker with accounts and its name server."""

    place: Place
    namesrv: ServerProcess
    broker: ServerProcess
    _is_ready: bool = field(default=False)

    def wait_ready(self) -> None:
        """Wait until it serves and knows all accounts."""
        if not self._is_ready:
            self.broker.wait_ready()
            create_accounts(self.broker.address, self.place.rules)
            self._is_ready = True

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return self.broker.address

    @cached_property
    def answers(self) -> Answers:
        """Its answers to all calls of all identities, asked once."""
        return all_answers(self.address)

    @property
    def names(self) -> str:
        """The address of its name server."""
        return self.namesrv.address

    def create_topic(self, topic: str) -> str:
        """Create a topic with one queue, as the administrator, and wait until its route is known."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        wire.wait_route(self.names, topic, self.address)
        return topic

    def messages_in(self, topic: str) -> int:
        """How many messages the first queue of a topic has."""
        with SignedConnection(self.address, ADMIN.identity) as connection:
            answer = connection.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        return int((answer.ext_fields or {}).get("offset", "0")) if answer and answer.code == 0 else 0

    def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> RemotingCommand:
        """One request of the administrator, with success."""
        with SignedConnection(self.address, ADMIN.identity) as connection:
            answer = connection.call(code, fields, body)
        assert answer is not None and answer.code == 0, answer
        return answer


class AccessWorld:
    """Clusters by place."""

    def __init__(self, work_dir: Path, servers: ExitStack) -> None:
        self._work_dir = work_dir
        self._servers = servers
        self._clusters: dict[Place, AccessCluster] = {}

    def launch(self, places: Iterable[Place]) -> None:
        """Start those that do not run yet, and return at once."""
        for place in places:
            if place not in self._clusters:
                self._clusters[place] = self._launched(place)

    def __getitem__(self, place: Place) -> AccessCluster:
        """A cluster that serves."""
        self.launch([place])
        cluster = self._clusters[place]
        cluster.wait_ready()
        return cluster

    def _launched(self, place: Place) -> AccessCluster:
        namesrv = launch_kourou_namesrv(self._work_dir)
        self._servers.callback(namesrv.kill)
        namesrv.wait_ready()
        own = {**_NO_LOCKOUT, **(_OPEN if place.is_open else {})} if place.server == OURS else {}
        settings = {**_MESSAGING, **own}
        broker = launch_with_accounts(
            place.server, place.rules, self._work_dir, [namesrv.address], **settings
        )
        self._servers.callback(broker.kill)
        return AccessCluster(place, namesrv, broker)
