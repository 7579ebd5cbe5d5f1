"""Topics as a JSON file: export, and import into a cluster. The file is described in setting_files.py."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou.admin.topic_kinds import TopicKind, own_topics, topic_kind
from kourou.admin.topics import create_topic, create_topics_on
from kourou.console.api.setting_files import (
    MAX_ENTRIES,
    ImportPlaces,
    NewSettings,
    SettingsImport,
    by_settings,
    file_endpoints,
    file_response,
)
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Plan
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.names import topic_problem


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


class TopicImport(ImportPlaces, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Topics to create."""

    topics: Annotated[list[TopicEntry], msgspec.Meta(min_length=1, max_length=MAX_ENTRIES)]


async def _export(call: Call[NoQuery, NoBody], request: Request) -> Response:
    reading = await call.view.topics(is_new=True)
    own = own_topics(await call.admin.masters())
    entries = [
        TopicEntry.of(config, brokers)
        for topic, configs in sorted(reading.data.items())
        if topic_kind(topic, configs.values(), own) not in (TopicKind.SYSTEM, TopicKind.RETRY, TopicKind.DLQ)
        for config, brokers in by_settings(configs)
    ]
    return file_response(entries, "topics.json", reading.problems)


async def _import(call: Call[NoQuery, TopicImport]) -> Plan:
    admin = call.admin
    topics: SettingsImport[TopicConfig] = SettingsImport(
        noun="topic",
        problem=topic_problem,
        create_all=lambda address, configs: create_topics_on(admin, [address], configs),
        create_one=lambda address, config: create_topic(admin, address, config),
    )
    entries = [NewSettings(entry.topic_name, entry.config(), entry.brokers) for entry in call.body.topics]
    return await topics.plan(call, entries, (await call.view.topics(is_new=True)).data)


ENDPOINTS: Final[tuple[Endpoint, ...]] = file_endpoints("topic", TopicEntry, TopicImport, _export, _import)
