"""`kourou group`: list, show, reset, delete."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

import click

from kourou.admin.connections import consumer_connection
from kourou.admin.consume_stats import GroupProgress, QueueProgress, consume_stats, group_summary
from kourou.admin.group_offsets import TO_THE_END, MovedQueue, QueueOffset, reset_offsets_either_way
from kourou.admin.groups import all_group_names, delete_group, modes_of_group
from kourou.admin.running_info import queue_holders
from kourou.admin.session import Admin
from kourou.admin.targets import Outcome
from kourou.admin.topics import delete_topic
from kourou.cli.daily.cluster_command import YES_OPTION, Session, cluster_command
from kourou.cli.daily.missing_names import existing_route, missing_group, no_broker
from kourou.cli.daily.names import complete_groups, complete_topics
from kourou.cli.daily.times import EARLIEST, LATEST, format_time, parse_time_ms
from kourou.cli.usage import OneLineGroup
from kourou.errors import ConfigError, ResponseError
from kourou.protocol.bodies import ConsumerConnection
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import dlq_topic, group_problem, is_retry_topic, is_system_group, retry_topic
from kourou.protocol.versions import version_desc
from kourou.wording import counted

group_app = OneLineGroup("group", help="List, show, reset and delete consumer groups.")
# A consumer creates its group; settings come from here.
group_app.other_words = dict.fromkeys(("create", "add", "new", "update"), "kourou admin updateSubGroup")

_MAX_CONCURRENT_GROUPS: Final = 16
# A group has no retry topic before its first member.
_NOT_ONLINE: Final = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST)
_group = click.argument("group", shell_complete=complete_groups)


# -- list --------------------------------------------------------------------------------------------


@group_app.command("list")
@click.option("show_all", "--all", is_flag=True, help="Include system groups.")
@cluster_command
async def list_groups(session: Session, *, show_all: bool) -> None:
    """List consumer groups with their online members and their lag."""
    limiter = asyncio.Semaphore(_MAX_CONCURRENT_GROUPS)
    admin = session.admin
    names = [name for name in await all_group_names(admin) if show_all or not is_system_group(name)]

    async def look(group: str) -> dict[str, object]:
        async with limiter:
            found = await group_summary(admin, group)
        return {
            "group": group,
            "members": found.count,
            "lag": found.diff_total,
            "consume_tps": round(found.consume_tps, 2),
            "message_model": found.message_model or None,
            "problem": found.problem,
        }

    rows = await asyncio.gather(*map(look, names))

    def show() -> None:
        columns = ("group", "members", "lag", "consume_tps", "message_model")
        session.table(
            ("GROUP", "MEMBERS", "LAG", "PER SECOND", "MODEL"),
            [["-" if row[column] is None else row[column] for column in columns] for row in rows],
        )
        for row in rows:
            if row["problem"]:
                session.trouble(f"{row['group']}: {row['problem']}")

    session.show(rows, show)
    if not rows and (problem := await no_broker(admin)) is not None:
        session.note(problem)


# -- show --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Member:
    client_id: str
    address: str
    language: str | None
    version: str


@dataclass(frozen=True, slots=True)
class _Queue:
    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    end_offset: int
    lag: int
    last_timestamp: int
    """When the last consumed message was stored; 0 if unknown."""
    holder: str | None = None
    """The member that holds the queue, if requested."""


@dataclass(frozen=True, slots=True)
class _GroupView:
    group: str
    lag: int | None
    """None while no offset is committed."""
    consume_tps: float
    message_model: str | None
    consume_type: str | None
    subscriptions: dict[str, str]
    modes: dict[str, str]
    """Whether it pulls or pops, by topic, where this is set (setConsumeMode)."""
    members: list[_Member]
    queues: list[_Queue]


@group_app.command("show")
@_group
@click.option("-t", "--topic", shell_complete=complete_topics, help="Only the queues of this topic.")
@click.option("--holders", is_flag=True, help="Ask each member which queues it holds.")
@cluster_command
async def show_group(session: Session, *, group: str, topic: str | None, holders: bool) -> None:
    """Show the members of a group, what they subscribe to, and the lag of each queue."""
    view = await _group_view(session.admin, group, topic)
    if holders and view.members:
        held = await queue_holders(session.admin, group)
        places = {(queue.topic, queue.broker_name, queue.queue_id): holder for queue, holder in held.items()}
        view = replace(
            view,
            queues=[
                replace(queue, holder=places.get((queue.topic, queue.broker_name, queue.queue_id)))
                for queue in view.queues
            ],
        )
    session.show(view, lambda: _show_group(session, view, holders))


async def _group_view(admin: Admin, group: str, topic: str | None) -> _GroupView:
    """ConfigError if no broker knows the group."""
    await _check_group(admin, group)
    if topic is not None:
        await existing_route(admin, topic)
    connection, progress = await _connection(admin, group), await _progress(admin, group, topic)
    return _GroupView(
        group,
        progress.diff_total if progress.queues else None,
        round(progress.consume_tps, 2),
        connection.message_model,
        connection.consume_type,
        {name: data.sub_string for name, data in sorted(connection.subscription_table.items())},
        await modes_of_group(admin, group),
        [
            _Member(member.client_id, member.client_addr, member.language, version_desc(member.version))
            for member in sorted(connection.connection_set, key=lambda member: member.client_id)
        ],
        [_queue(queue) for queue in progress.queues],
    )


async def _check_group(admin: Admin, group: str) -> None:
    if problem := group_problem(group):
        raise ConfigError(problem)
    if await admin.api.topic_route(retry_topic(group)) is None:
        names = await all_group_names(admin)
        if group not in names:
            raise await missing_group(admin, group, names)


async def _connection(admin: Admin, group: str) -> ConsumerConnection:
    """The members of a group; none if it is offline."""
    try:
        return await consumer_connection(admin, group)
    except ResponseError as error:
        if error.code not in _NOT_ONLINE:
            raise
    return ConsumerConnection()


async def _progress(admin: Admin, group: str, topic: str | None) -> GroupProgress:
    """The progress of a group; empty if it has no offsets, or its members keep them locally."""
    try:
        return await consume_stats(admin, group, topic)
    except ResponseError as error:
        if error.code not in (*_NOT_ONLINE, ResponseCode.BROADCAST_CONSUMPTION):
            raise
    return GroupProgress(group, 0.0, 0, 0, [])


def _queue(queue: QueueProgress) -> _Queue:
    return _Queue(
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        queue.consumer_offset,
        queue.broker_offset,
        queue.diff,
        queue.last_timestamp,
    )


def _show_group(session: Session, view: _GroupView, has_holders: bool) -> None:
    screen = session.screen
    lag = "-" if view.lag is None else counted(view.lag, "message")
    topics = (f"{topic} ({expression})" for topic, expression in view.subscriptions.items())
    screen.line(f"group    {view.group}")
    screen.line(f"model    {(view.message_model or '-').lower()}")
    screen.line(f"topics   {', '.join(topic for topic in topics if not is_retry_topic(topic)) or '-'}")
    modes = ", ".join(f"{mode} of {topic}" for topic, mode in view.modes.items())
    screen.line(f"mode     {modes or 'as its members choose'}")
    screen.line(f"lag      {lag}, {view.consume_tps} consumed per second")
    screen.line(f"members  {len(view.members)}")
    if view.members:
        screen.line()
        session.table(
            ("MEMBER", "ADDRESS", "LANGUAGE", "VERSION"),
            [
                (member.client_id, member.address, member.language or "-", member.version)
                for member in view.members
            ],
        )
    screen.line()
    if not view.queues:
        screen.line("No offsets: none committed yet (members commit every 5 s), or the group broadcasts.")
        return
    session.table(
        ("TOPIC", "BROKER", "QUEUE", "OFFSET", "END", "LAG", "LAST CONSUMED", *["HOLDER"] * has_holders),
        [
            (
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                queue.consumer_offset,
                queue.end_offset,
                queue.lag,
                format_time(queue.last_timestamp),
                *[queue.holder or "-"] * has_holders,
            )
            for queue in view.queues
        ],
    )


# -- reset -------------------------------------------------------------------------------------------


@group_app.command("reset")
@_group
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Topic to reset; may be repeated. Default: all topics in which the group has offsets.",
)
@click.option(
    "--to",
    "to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, -10m (before now), 2026-11-17T12:30 (local time unless a zone is given), or "
    "milliseconds since 1970.",
)
@YES_OPTION
@cluster_command
async def reset(session: Session, *, group: str, topics: tuple[str, ...], to: str, yes: bool) -> None:
    """Reset the offsets of a group; its members continue from there."""
    timestamp_ms = _reset_time(to)
    admin = session.admin
    await _check_group(admin, group)
    for topic in topics:
        await existing_route(admin, topic)
    chosen = sorted(topics) or await _consumed_topics(admin, group)
    target = {EARLIEST: "the earliest message", LATEST: "the end"}.get(to, format_time(timestamp_ms))
    await session.confirm(f"Reset {group} on {', '.join(chosen)} to {target} at {session.where}?", yes=yes)
    moved = [
        queue
        for topic in chosen
        for queue in _new_offsets(topic, await reset_offsets_either_way(admin, group, topic, timestamp_ms))
    ]

    def show() -> None:
        rows = [(queue.topic, queue.broker_name, queue.queue_id, queue.offset) for queue in moved]
        session.table(("TOPIC", "BROKER", "QUEUE", "OFFSET"), rows)

    session.show(moved, show)


def _reset_time(to: str) -> int:
    if to == LATEST:
        return TO_THE_END
    return 0 if to == EARLIEST else parse_time_ms("--to", to)


async def _consumed_topics(admin: Admin, group: str) -> list[str]:
    """The topics in which a group has offsets, without its retries. ConfigError if there are none."""
    progress = await _progress(admin, group, None)
    topics = sorted({queue.topic for queue in progress.queues if not is_retry_topic(queue.topic)})
    if not topics:
        raise ConfigError(f"group {group} has no offsets; name the topic to reset with --topic")
    return topics


def _new_offsets(topic: str, moved: list[QueueOffset] | list[MovedQueue]) -> list[QueueOffset]:
    return [
        queue
        if isinstance(queue, QueueOffset)
        else QueueOffset(topic, queue.broker_name, queue.queue_id, queue.reset_offset)
        for queue in moved
    ]


# -- delete ------------------------------------------------------------------------------------------


@group_app.command("delete")
@_group
@YES_OPTION
@cluster_command
async def delete(session: Session, *, group: str, yes: bool) -> None:
    """Delete a group with its offsets, its retries and its dead letters."""
    admin = session.admin
    await _check_group(admin, group)
    if members := (await _connection(admin, group)).connection_set:
        raise ConfigError(
            f"group {group} has {counted(len(members), 'member')} online, which would create it again; stop "
            "them first (kourou group show lists them)"
        )
    await session.confirm(
        f"Delete group {group} with its offsets, retries and dead letters at {session.where}?", yes=yes
    )
    outcomes: list[Outcome] = []
    for cluster in sorted((await admin.cluster_info()).cluster_addr_table):
        masters = [master.address for master in await admin.masters(cluster)]
        outcomes += await delete_group(admin, masters, group, drops_offsets=True)
        for topic in (retry_topic(group), dlq_topic(group)):
            deletion = await delete_topic(admin, topic, cluster, may_be_missing=True)
            outcomes += [outcome for outcome in (*deletion.brokers, *deletion.namesrvs) if outcome.problem]

    failed = [outcome for outcome in outcomes if outcome.problem]

    def show() -> None:
        if not failed:
            session.screen.line(f"deleted group {group}")

    session.show({"group": group, "brokers": outcomes}, show)
    for outcome in failed:
        session.trouble(f"could not delete group {group} at {outcome.address}: {outcome.problem}")
