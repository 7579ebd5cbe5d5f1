"""`kourou topic`: list, show, create, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

import click

from kourou.admin.connections import consumers_of_topic
from kourou.admin.session import Admin
from kourou.admin.targets import Outcome, master_addresses
from kourou.admin.topic_kinds import TopicKind
from kourou.admin.topics import (
    QueueStatus,
    all_topic_clusters,
    create_topic_on,
    delete_topic,
    topic_attributes,
    topic_names,
    topic_places,
    topic_status,
    user_topic_names,
)
from kourou.cli.daily.cluster_command import YES_OPTION, Session, cluster_command
from kourou.cli.daily.missing_names import existing_route, no_broker
from kourou.cli.daily.names import complete_topics
from kourou.cli.daily.times import format_time
from kourou.cli.option_types import IntRange
from kourou.cli.problems import UsageError
from kourou.cli.usage import OneLineGroup
from kourou.errors import ConfigError
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.names import topic_problem
from kourou.protocol.priority import MESSAGE_TYPE
from kourou.wording import counted

topic_app = OneLineGroup("topic", help="List, show, create and delete topics.")

_IMPLIED: Final = {MESSAGE_TYPE: TopicKind.NORMAL.value}

DEFAULT_QUEUES: Final = 8  # the default of mqadmin updateTopic
_ROUTE_TIMEOUT_S: Final = 5.0
_ROUTE_PAUSE_S: Final = 0.05
_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")
_topic = click.argument("topic", shell_complete=complete_topics)


# -- list, show --------------------------------------------------------------------------------------


@topic_app.command("list")
@click.option("show_all", "--all", is_flag=True, help="Include system, retry and dead-letter topics.")
@cluster_command
async def list_topics(session: Session, *, show_all: bool) -> None:
    """List topics with their queues and brokers."""
    names = await (topic_names if show_all else user_topic_names)(session.admin)
    places = await topic_places(session.admin, names)

    def show() -> None:
        rows = [(place.topic, place.write_queues, place.perm, ", ".join(place.brokers)) for place in places]
        session.table(("TOPIC", "QUEUES", "PERM", "BROKERS"), rows)

    session.show(places, show)
    if not places and (problem := await no_broker(session.admin)) is not None:
        session.note(problem)


@dataclass(frozen=True, slots=True)
class _TopicView:
    topic: str
    clusters: list[str]
    messages: int
    put_tps: float
    groups: list[str]
    attributes: dict[str, dict[str, str]]
    """By broker."""
    queues: list[QueueStatus]
    silent: list[Outcome]


@topic_app.command("show")
@_topic
@cluster_command
async def show_topic(session: Session, *, topic: str) -> None:
    """Show what each queue of a topic holds, and which groups consume it."""
    await existing_route(session.admin, topic)
    view = await _topic_view(session.admin, topic)

    def show() -> None:
        screen = session.screen
        screen.line(f"topic     {topic}")
        screen.line(f"clusters  {', '.join(view.clusters)}")
        screen.line(f"messages  {view.messages}, {view.put_tps} sent per second")
        screen.line(f"groups    {', '.join(view.groups) or '-'}")
        for line in _attribute_lines(view.attributes):
            screen.line(line)
        screen.line()
        rows = [
            (
                queue.broker_name,
                queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.max_offset - queue.min_offset,
                format_time(queue.last_update_timestamp),
            )
            for queue in view.queues
        ]
        session.table(("BROKER", "QUEUE", "FIRST", "NEXT", "MESSAGES", "LAST STORED"), rows)
        for outcome in view.silent:
            screen.trouble(f"{outcome.address}: {outcome.problem}")

    session.show(view, show)


async def _topic_view(admin: Admin, topic: str) -> _TopicView:
    status = await topic_status(admin, topic)
    return _TopicView(
        topic,
        await all_topic_clusters(admin, topic),
        sum(queue.max_offset - queue.min_offset for queue in status.queues),
        round(status.put_tps, 2),
        await consumers_of_topic(admin, topic),
        await topic_attributes(admin, topic),
        status.queues,
        status.silent,
    )


def _attribute_lines(attributes: dict[str, dict[str, str]]) -> Iterator[str]:
    """One line if all brokers have the same attributes, none if they have none; else one for each."""
    texts = {
        broker: ", ".join(f"{name}={value}" for name, value in found.items()) or "-"
        for broker, found in attributes.items()
    }
    if len(set(texts.values())) > 1:
        yield from (f"attributes at {broker}  {text}" for broker, text in texts.items())
    elif (text := next(iter(texts.values()), "-")) != "-":
        yield f"attributes  {text}"


# -- create, delete ----------------------------------------------------------------------------------


@topic_app.command("create")
@click.argument("topic")
@click.option(
    "-q", "--queues", type=IntRange(1), default=DEFAULT_QUEUES, metavar="N", help="Queues on each broker."
)
@click.option(
    "-c", "--cluster", metavar="NAME", help="Cluster to create it in; required if there are several."
)
@click.option("-b", "--broker", metavar="NAME", help="Create it on this broker only.")
@click.option(
    "--type",
    "message_type",
    type=click.Choice(_TYPES, case_sensitive=False),
    help="Kind of messages; brokers of RocketMQ 5 check it.",
)
@click.option(
    "-a",
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="An attribute, such as overflow.policy=reject; may be repeated.",
)
@click.option("--if-missing", is_flag=True, help="Do nothing if it exists, but say what differs.")
@cluster_command
async def create(
    session: Session,
    *,
    topic: str,
    queues: int,
    cluster: str | None,
    broker: str | None,
    message_type: str | None,
    attributes: tuple[str, ...],
    if_missing: bool,
) -> None:
    """Create a topic on all brokers of the cluster, or on one."""
    admin = session.admin
    if problem := topic_problem(topic):
        raise ConfigError(problem)
    changes = _attributes(attributes, message_type)
    if await admin.api.topic_route(topic) is not None:
        if not if_missing:
            raise ConfigError(
                f"topic {topic} already exists at {session.where}; change it with mqadmin updateTopic"
            )
        session.show(
            {"topic": topic, "created": False, "queues": None, "brokers": []},
            lambda: session.screen.line(f"topic {topic} already exists"),
        )
        if differences := await _differences(admin, topic, changes):
            session.note(
                f"topic {topic} is not as requested: {'; '.join(differences)}; mqadmin updateTopic changes it"
            )
        return
    config = TopicConfig(topic, queues, queues, attributes=changes)
    addresses = await master_addresses(
        admin, broker=broker, cluster=None if broker else await _only_cluster(admin, cluster)
    )
    outcomes = await create_topic_on(admin, addresses, config)
    done = [outcome.address for outcome in outcomes if outcome.is_done]
    is_found = await _is_routed(admin, topic, len(done))

    def show() -> None:
        session.screen.line(f"created topic {topic} with {counted(queues, 'queue')} on {', '.join(done)}")
        _tell(session, outcomes)

    session.show(
        {
            "topic": topic,
            "created": True,
            "queues": queues,
            "brokers": [asdict(outcome) for outcome in outcomes],
        },
        show,
    )
    if not is_found:
        session.screen.trouble(
            f"{session.where} does not list it on every broker yet; brokers re-register every 30 s"
        )


def _attributes(texts: tuple[str, ...], message_type: str | None) -> dict[str, str]:
    """Attributes of a new topic, as the request for it has them."""
    found = {"+message.type": message_type.upper()} if message_type else {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--attribute {text}: must be NAME=VALUE, such as overflow.messages=100000")
        found[f"+{name}"] = value
    return found


async def _differences(admin: Admin, topic: str, changes: dict[str, str]) -> list[str]:
    """Where the attributes of a topic that exists are not the requested ones."""
    return [
        f"{name} is {now}, not {value}, at {broker}"
        for broker, found in (await topic_attributes(admin, topic)).items()
        for name, value in ((signed[1:], value) for signed, value in changes.items())
        if (now := found.get(name, _IMPLIED.get(name, "not set"))) != value
    ]


async def _is_routed(admin: Admin, topic: str, brokers: int) -> bool:
    """Wait until a name server lists the topic on this many brokers, as the next command needs it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_ROUTE_TIMEOUT_S):
            while True:
                route = await admin.api.topic_route(topic)
                if route is not None and len(route.queue_datas) >= brokers:
                    return True
                await asyncio.sleep(_ROUTE_PAUSE_S)
    return False


async def _only_cluster(admin: Admin, given: str | None) -> str | None:
    """The given cluster, or the only one. ConfigError if there are several."""
    if given is not None:
        return given
    names = sorted((await admin.cluster_info()).cluster_addr_table)
    if len(names) > 1:
        raise ConfigError(f"there are several clusters: choose one with --cluster: {', '.join(names)}")
    return next(iter(names), None)


@topic_app.command("delete")
@_topic
@click.option("-c", "--cluster", metavar="NAME", help="Delete it from this cluster only.")
@YES_OPTION
@cluster_command
async def delete(session: Session, *, topic: str, cluster: str | None, yes: bool) -> None:
    """Delete a topic with all its messages."""
    admin = session.admin
    await existing_route(admin, topic)
    clusters = await all_topic_clusters(admin, topic)
    if cluster is not None and cluster not in clusters:
        raise ConfigError(f"topic {topic} is not in cluster {cluster}, but in {', '.join(clusters)}")
    chosen = [cluster] if cluster is not None else clusters
    groups = await consumers_of_topic(admin, topic)
    consumed = f" It is consumed by {', '.join(groups)}." if groups else ""
    await session.confirm(
        f"Delete topic {topic} and its messages from {', '.join(chosen)} at {session.where}?{consumed}",
        yes=yes,
    )
    deletions = [await delete_topic(admin, topic, name) for name in chosen]

    def show() -> None:
        session.screen.line(f"deleted topic {topic} from {', '.join(chosen)}")
        for deletion in deletions:
            _tell(session, [*deletion.brokers, *deletion.namesrvs])

    session.show(deletions, show)


def _tell(session: Session, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.problem:
            session.screen.trouble(f"{outcome.address}: {outcome.problem}")
