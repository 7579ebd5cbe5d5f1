"""What Apache's mqadmin printed, and the answers that it got: to be replayed to ours.

Each recording has the arguments and stdout of one command. `ReplayedAdmin` has no connection: it gets
what Apache's name server and broker answered then, so that the state is the same for both.
"""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from kourou.admin.session import Admin
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import check_required, parse
from kourou.cli.admin.registry import find
from kourou.cli.admin.run import COMMON
from kourou.cli.admin.screen import Screen
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.transport.client import RemotingClient

from .frames import VERSIONS, recorded_frames

__all__ = ["VERSIONS", "Recording", "ReplayedAdmin", "recordings", "run_replayed"]

# Fields that say what is asked for; an answer to another one is not ours.
_WHAT = (
    "topic",
    "consumerGroup",
    "group",
    "groupName",
    "queueId",
    "offset",
    "queueOffset",
    "statsName",
    "statsKey",
    "key",
    "brokerName",
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of Apache's mqadmin and its answer."""

    request: RemotingCommand
    answer: RemotingCommand


@dataclass(frozen=True, slots=True)
class Recording:
    """One command of Apache's."""

    name: str
    version: str
    arguments: tuple[str, ...]
    stdout: str
    exchanges: tuple[Exchange, ...]


@cache
def recordings(version: str) -> dict[str, Recording]:
    """All commands that were recorded, by name: that of the command, with its variant."""
    return {
        name: Recording(name, version, tuple(command["args"]), command["stdout"], _exchanges(version, name))
        for name, command in _files(version)["commands"].items()
    }


def exported_file(version: str, name: str) -> str:
    """The text of a file that an export command wrote."""
    text: str = _files(version)["exports"][name]
    return text


@cache
def _files(version: str) -> dict[str, Any]:
    with gzip.open(Path(__file__).with_name(f"mqadmin-{version}.json.gz"), "rt", encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
        return loaded


def _exchanges(version: str, name: str) -> tuple[Exchange, ...]:
    requests: dict[tuple[str, int], RemotingCommand] = {}
    found = []
    for frame in recorded_frames(version):
        if frame.who != "mqadmin" or frame.command != name:
            continue
        (raw_frame,) = FrameDecoder().feed(frame.frame)
        command = decode_command(raw_frame)
        place = (frame.link, command.opaque)
        if frame.type == "response":
            found.append(Exchange(requests[place], command))
        else:
            requests[place] = command
    return tuple(found)


@dataclass(slots=True)
class _Replay:
    """Stands where connections would be."""

    exchanges: tuple[Exchange, ...]
    used: set[int] = field(default_factory=set)

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int = 0) -> RemotingCommand:
        """The recorded answer; each is given once before one is given again."""
        places = [
            place for place, exchange in enumerate(self.exchanges) if _is_same(exchange.request, command)
        ]
        assert places, f"Apache's mqadmin did not ask {command.code} {command.ext_fields}"
        place = min(places, key=lambda place: (place in self.used, place))
        self.used.add(place)
        return self.exchanges[place].answer

    async def send_oneway(self, address: str, command: RemotingCommand) -> None:
        """Nobody answers."""

    async def stop(self) -> None:
        """Nothing is open."""


def _is_same(recorded: RemotingCommand, asked: RemotingCommand) -> bool:
    theirs, ours = recorded.ext_fields or {}, asked.ext_fields or {}
    return recorded.code == asked.code and all(
        str(theirs[name]) == str(ours[name]) for name in _WHAT if name in theirs and name in ours
    )


class ReplayedAdmin(Admin):
    """Is answered from a recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(namesrv="127.0.0.1:9876")
        self._replay = _Replay(recording.exchanges)

    def _connect(self) -> RemotingClient:
        return cast(RemotingClient, self._replay)


async def run_replayed(recording: Recording) -> str:
    """What our command prints with the arguments and the answers of a recording."""
    name, *words = recording.arguments
    command = find(name)
    assert isinstance(command, AdminCommand), name
    options = (*command.options, *COMMON)
    given = parse(options, words)
    check_required(options, given)
    out = io.StringIO()
    screen = Screen(given, is_v4=recording.version.startswith("4"), out=out, errors=io.StringIO())
    async with ReplayedAdmin(recording) as admin:
        call = Call(given, admin, screen)
        if command.ask is not None:
            data = await command.ask(call)
            msgspec.json.encode(msgspec.to_builtins(data, str_keys=True))
            command.show(data, screen)
        else:
            assert command.stream is not None
            async for item in command.stream(call):
                msgspec.json.encode(msgspec.to_builtins(item, str_keys=True))
                command.show(item, screen)
    return out.getvalue()
