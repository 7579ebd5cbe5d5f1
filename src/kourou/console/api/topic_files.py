"""Topics as a JSON file: export, and import into a cluster.

The file is a list of settings as `mqadmin updateTopicList` reads it. Each entry also has `brokers`, the names
of the brokers with these settings; a topic whose settings differ has several entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou.admin.session import BrokerAddress
from kourou.admin.targets import Outcome
from kourou.admin.topic_kinds import TopicKind, own_topics, topic_kind
from kourou.admin.topics import create_topic, create_topics_on
from kourou.console.api.places import chosen_masters, named_outcomes
from kourou.console.api_errors import bad_input
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoBody, NoQuery, Plan, Raw, Role
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import topic_problem
from kourou.wording import counted

MAX_TOPICS: Final = 20_000
_SHOWN_NAMES: Final = 10
_BATCH: Final = 500
"""Topics in one request: a broker answers it when all are stored."""


class TopicEntry(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The settings of a topic in the file; what is missing gets the broker's default."""

    topic_name: str
    read_queue_nums: Annotated[int, msgspec.Meta(ge=1)] = 8
    write_queue_nums: Annotated[int, msgspec.Meta(ge=1)] = 8
    perm: Annotated[int, msgspec.Meta(ge=0, le=7)] = 6
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}
    brokers: list[str] = []

    @classmethod
    def of(cls, config: TopicConfig, brokers: list[str]) -> TopicEntry:
        """The settings of a topic on these brokers."""
        return cls(
            topic_name=config.topic_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=config.attributes,
            brokers=brokers,
        )

    def config(self) -> TopicConfig:
        """For the request that creates it: attributes are changes."""
        return TopicConfig(
            topic_name=self.topic_name,
            read_queue_nums=self.read_queue_nums,
            write_queue_nums=self.write_queue_nums,
            perm=self.perm,
            topic_sys_flag=self.topic_sys_flag,
            order=self.order,
            attributes={f"+{key}": value for key, value in self.attributes.items()},
        )


class TopicImport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Topics to create. Those that exist on a broker stay as they are there."""

    topics: Annotated[list[TopicEntry], msgspec.Meta(min_length=1, max_length=MAX_TOPICS)]
    clusters: list[str] = []
    brokers: list[str] = []
    """Where they are created; if neither is given, on the brokers that the file names and that exist here, or
    else on all masters."""


# -- export ------------------------------------------------------------------------------------------


async def _export(call: Call[NoQuery, NoBody], request: Request) -> Response:
    reading = await call.context.view.topics(is_new=True)
    own = own_topics(await call.admin.masters())
    entries = [
        entry
        for topic, configs in sorted(reading.data.items())
        if topic_kind(topic, configs.values(), own) not in (TopicKind.SYSTEM, TopicKind.RETRY, TopicKind.DLQ)
        for entry in _entries(configs)
    ]
    return Response(
        msgspec.json.format(msgspec.json.encode(entries), indent=2),
        headers={"Content-Disposition": 'attachment; filename="topics.json"', "Cache-Control": "no-store"},
        media_type="application/json",
    )


def _entries(configs: Mapping[str, TopicConfig]) -> Iterable[TopicEntry]:
    found: list[tuple[TopicConfig, list[str]]] = []
    for name, config in sorted(configs.items()):
        same = next((brokers for known, brokers in found if known == config), None)
        if same is None:
            found.append((config, [name]))
        else:
            same.append(name)
    return [TopicEntry.of(config, brokers) for config, brokers in found]


# -- import ------------------------------------------------------------------------------------------


async def _import(call: Call[NoQuery, TopicImport]) -> Plan:
    body = call.body
    for number, entry in enumerate(body.topics):
        if problem := topic_problem(entry.topic_name):
            raise bad_input(f"topics[{number}]", problem)
    masters = await chosen_masters(call.admin, body.clusters, body.brokers)
    is_chosen = bool(body.clusters or body.brokers)
    known = (await call.context.view.topics(is_new=True)).data
    work: dict[BrokerAddress, list[TopicConfig]] = {}
    existing: set[str] = set()
    for entry in body.topics:
        for master in _places(entry, masters, is_chosen=is_chosen):
            if master.broker_name in known.get(entry.topic_name, {}):
                existing.add(entry.topic_name)
            else:
                work.setdefault(master, []).append(entry.config())
    effects = [
        f"Creates {counted(len(configs), 'topic')} on {master.broker_name}: {_names(configs)}"
        for master, configs in work.items()
    ]
    if existing:
        effects.append(f"Skips {counted(len(existing), 'topic')} on brokers that have them already")
    if not work:
        raise bad_input("topics", "all of them exist already on these brokers")
    return Plan(effects=effects, commands=[], run=lambda: _run(call, work))


def _places(entry: TopicEntry, masters: list[BrokerAddress], *, is_chosen: bool) -> list[BrokerAddress]:
    named = [master for master in masters if master.broker_name in entry.brokers]
    return masters if is_chosen or not named else named


def _names(configs: list[TopicConfig]) -> str:
    names = ", ".join(config.topic_name for config in configs[:_SHOWN_NAMES])
    more = len(configs) - _SHOWN_NAMES
    return names + (f" and {more:,} more" if more > 0 else "")


async def _run(call: Call[Any, Any], work: Mapping[BrokerAddress, list[TopicConfig]]) -> Done:
    outcomes = [await _create(call, master, configs) for master, configs in work.items()]
    return Done(outcomes=named_outcomes(outcomes, work))


async def _create(call: Call[Any, Any], master: BrokerAddress, configs: list[TopicConfig]) -> Outcome:
    """Many in one request; one by one where the broker does not know that request."""
    done = 0
    try:
        for first in range(0, len(configs), _BATCH):
            batch = configs[first : first + _BATCH]
            try:
                await create_topics_on(call.admin, [master.address], batch)
            except ResponseError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                for config in batch:
                    await create_topic(call.admin, master.address, config)
            done += len(batch)
    except KourouError as error:
        return Outcome(master.address, f"after {done:,} of {len(configs):,} topics: {error}")
    return Outcome(master.address)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Raw(
        method="GET",
        path="/exports/topics",
        summary="The settings of all user topics as a JSON file",
        role=Role.READER,
        respond=_export,
        returns=list[TopicEntry],
    ),
    Change(
        path="/imports/topics",
        summary="Create topics from a JSON file",
        body=TopicImport,
        planner=_import,
        # The effects name the topics; a file may have thousands.
        is_secret=True,
    ),
)
