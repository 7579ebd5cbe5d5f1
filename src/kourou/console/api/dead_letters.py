"""Dead letters: how many each group has, those of one group, sending them back, and an export.

What is sent back, and how, is in kourou.admin.messages.redrive.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from itertools import groupby
from typing import Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kourou.admin.connections import consumer_connection
from kourou.admin.messages.dead_letters import (
    DeadLetter,
    GroupDeadLetters,
    Selection,
    dead_letter_places,
    dead_letter_spans,
    origin_topic,
    read_dead_letters,
)
from kourou.admin.messages.message_pages import MessageFilter, PageRequest, read_page
from kourou.admin.messages.message_reading import QueueSpan
from kourou.admin.messages.message_view import MessageView
from kourou.admin.messages.redrive import Redriven, RedriveOutcome, plan_redrive, preview, redrive
from kourou.admin.session import Admin, command_line
from kourou.clock import wall_ms
from kourou.console.api.messages import MAX_PAGE, MessageList, Order, TimeMs, message_list
from kourou.console.api_errors import ApiError, bad_input
from kourou.console.endpoints import (
    Call,
    Change,
    Done,
    Endpoint,
    NoBody,
    Plan,
    Raw,
    Read,
    Role,
    TargetOutcome,
)
from kourou.console.message_cursor import decode_cursor
from kourou.console.message_lookup import parse_position
from kourou.console.paging import Page, PageQuery, cut_page
from kourou.errors import KourouError, ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.filter import compile_filter
from kourou.protocol.names import dlq_topic, retry_topic
from kourou.wording import counted

MAX_REDRIVEN: Final = 1_000
"""In one change."""
_MAX_EXPORTED: Final = 10_000
_MAX_EXPORTED_BYTES: Final = 256 * 1024 * 1024
_PREVIEW_S: Final = 30.0
_LISTED: Final = 10
_MAX_COMMANDS: Final = 20


# -- groups ------------------------------------------------------------------------------------------


async def _groups(call: Call[PageQuery, NoBody]) -> Page[GroupDeadLetters]:
    reading = await call.view.dead_letters()
    return cut_page(
        [one for one in reading.data if one.count or one.problem],
        call.query,
        name=lambda one: one.group,
        columns={
            "group": lambda one: one.group,
            "count": lambda one: one.count,
            "last_timestamp": lambda one: one.last_timestamp,
        },
        as_of=reading.as_of,
        problems=reading.problems,
        commands=[command_line(call.admin.namesrvs, "topicList")],
    )


# -- dead letters of one group -----------------------------------------------------------------------


class SelectionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters of a group; all by default."""

    topic: str = ""
    """Their original topic."""
    key: str = ""
    """One of their keys, or their message id."""
    begin: TimeMs | None = None
    """Given up at or after this time."""
    end: TimeMs | None = None
    """Given up before this time."""
    expression: str = ""
    """An SQL92 condition on their properties."""

    def selection(self) -> Selection:
        """As the operations take it. FilterSyntaxError for an invalid expression."""
        return Selection(
            topic=self.topic or None,
            key=self.key or None,
            begin_ms=self.begin,
            end_ms=self.end,
            expression=compile_filter(self.expression) if self.expression.strip() else None,
        )

    def words(self) -> list[str]:
        """As options of `mqadmin redrive`."""
        options = [("-t", self.topic), ("-k", self.key), ("-b", self.begin), ("-e", self.end)]
        options.append(("--expression", self.expression))
        return [word for name, value in options if value not in ("", None) for word in (name, str(value))]


class LettersQuery(SelectionQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A page of them."""

    order: Order = "newest"
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 50
    cursor: str = ""


async def _letters(call: Call[LettersQuery, NoBody]) -> MessageList:
    query, group = call.query, call.path["group"]
    selection = query.selection()
    commands = [command_line(call.admin.namesrvs, "redrive", "-g", group, *query.words(), "--dry-run")]
    if not await dead_letter_places(call.admin, group):
        return MessageList(items=[], is_complete=True, as_of=wall_ms(), commands=commands)
    request = PageRequest(
        topic=dlq_topic(group),
        begin_ms=query.begin,
        end_ms=query.end,
        is_newest_first=query.order == "newest",
        limit=query.limit,
        filter=MessageFilter(keeps=selection.takes),
    )
    position = decode_cursor(query.cursor, request.topic, is_newest_first=request.is_newest_first)
    page = await read_page(call.admin, request, DeadLetter.of, position)
    return message_list(page, request, commands)


async def _spans(
    admin: Admin, group: str, selection: Selection, positions: Sequence[str] | None
) -> list[QueueSpan]:
    """The ranges to read: those of chosen positions (`broker:queue:offset`), or all."""
    if positions is None:
        return await dead_letter_spans(admin, group, selection)
    wanted: dict[tuple[str, int], list[int]] = {}
    for text in positions:
        position = parse_position(text)
        if position is None:
            raise bad_input("positions", f"{text!r} is not broker:queue:offset")
        broker_name, queue_id, queue_offset = position
        wanted.setdefault((broker_name, queue_id), []).append(queue_offset)
    places = {
        (place.queue.broker_name, place.queue.queue_id): place
        for place in await dead_letter_places(admin, group)
    }
    spans = []
    for queue, offsets in sorted(wanted.items()):
        if queue not in places:
            broker_name, queue_id = queue
            raise bad_input("positions", f"{dlq_topic(group)} has no queue {queue_id} on {broker_name}")
        runs = groupby(enumerate(sorted(set(offsets))), key=lambda pair: pair[1] - pair[0])
        for _, run in runs:
            offsets_of_run = [offset for _, offset in run]
            spans.append(QueueSpan(places[queue], offsets_of_run[0], offsets_of_run[-1] + 1))
    return spans


# -- sending back ------------------------------------------------------------------------------------


class RedriveRequest(SelectionQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters are sent back, and how."""

    positions: Annotated[list[str], msgspec.Meta(max_length=MAX_REDRIVEN)] | None = None
    """Only these, each `broker:queue:offset`; null for all that match."""
    to_topic: bool = False
    """To their original topics, where every group receives them."""
    again: bool = False
    """Also those that were redriven before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_REDRIVEN)] = MAX_REDRIVEN


async def _plan_redrive(call: Call[Any, RedriveRequest]) -> Plan:
    body, group, admin = call.body, call.path["group"], call.admin
    selection = body.selection()
    plan = await plan_redrive(
        admin,
        group,
        selection,
        to_topic=body.to_topic,
        again=body.again,
        limit=body.limit,
        spans=await _spans(admin, group, selection, body.positions),
    )
    try:
        async with asyncio.timeout(_PREVIEW_S):
            letters = [found async for found in preview(admin, plan)]
    except TimeoutError:
        raise ApiError(
            HTTPStatus.GATEWAY_TIMEOUT,
            "no_answer_in_time",
            f"it took more than {_PREVIEW_S:.0f} s to find out which dead letters were redriven before",
            "choose fewer, for example by a range of time",
        ) from None

    async def run() -> Done:
        results = [found async for found in redrive(admin, plan)]
        return Done([_outcome(found) for found in results], results)

    return Plan(
        effects=_effects(group, body, letters, sends_back=plan.sends_back),
        warnings=await _warnings(admin, group, body, letters),
        commands=_commands(admin, group, body, letters),
        run=run,
    )


def _outcome(found: Redriven) -> TargetOutcome:
    problem = found.reason or "failed" if found.outcome is RedriveOutcome.FAILED else ""
    return TargetOutcome(found.letter.msg_id, not problem, problem)


def _effects(group: str, body: RedriveRequest, letters: list[Redriven], *, sends_back: bool) -> list[str]:
    sent = [found for found in letters if found.outcome is RedriveOutcome.WOULD_SEND]
    count = counted(len(sent), "dead letter")
    effects = []
    if not sent:
        effects.append(f"Sends nothing back to group {group}")
    elif body.to_topic:
        topics = ", ".join(sorted({found.target for found in sent}))
        effects.append(f"Sends {count} of group {group} to {topics}: every group of the topic receives them")
    elif sends_back:
        effects.append(
            f"Has the brokers take back {count} of group {group}, which consumes in order: each is one more "
            "attempt"
        )
    else:
        effects.append(
            f"Sends {count} back to group {group}, through {retry_topic(group)}, which only it reads"
        )
    for found in sent[:_LISTED]:
        keys = f", keys {found.letter.keys}" if found.letter.keys else ""
        effects.append(f"Message {found.letter.msg_id} of topic {found.letter.topic}{keys}")
    if len(sent) > _LISTED:
        effects.append(f"And {len(sent) - _LISTED:,} more")
    before = sum(found.outcome is RedriveOutcome.ALREADY for found in letters)
    if before:
        effects.append(f"Skips {counted(before, 'dead letter')} redriven before")
    if sent:
        effects.append("The originals stay in the dead-letter topic until they expire")
    return effects


async def _warnings(admin: Admin, group: str, body: RedriveRequest, letters: list[Redriven]) -> list[str]:
    warnings = []
    reasons = Counter(found.reason for found in letters if found.outcome is RedriveOutcome.FAILED)
    for reason, count in reasons.items():
        warnings.append(f"{counted(count, 'dead letter')} cannot be sent: {reason}")
    if sum(found.number > 0 for found in letters) >= body.limit:
        warnings.append(f"At most {body.limit:,} are sent at a time; others may match, too")
    if not body.to_topic and letters:
        try:
            await consumer_connection(admin, group)
        except ResponseError as error:
            if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
                warnings.append(f"No client of group {group} is online: the messages wait until one is")
        except KourouError:
            pass  # it is reported when the messages are sent
    return warnings


def _commands(admin: Admin, group: str, body: RedriveRequest, letters: list[Redriven]) -> list[str]:
    flags = ["--to-topic"] if body.to_topic else []
    flags += ["--again"] if body.again else []
    if body.positions is None:
        words = [*body.words(), "--limit", str(body.limit), *flags]
        return [command_line(admin.namesrvs, "redrive", "-g", group, *words)]
    ids = [found.letter.msg_id for found in letters][:_MAX_COMMANDS]
    return [command_line(admin.namesrvs, "redrive", "-g", group, "-k", msg_id, *flags) for msg_id in ids]


# -- export ------------------------------------------------------------------------------------------


class ExportQuery(SelectionQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters are exported."""

    positions: str = ""
    """Only these, separated by commas, each `broker:queue:offset`."""


async def _export(call: Call[ExportQuery, NoBody], request: Request) -> Response:
    group, query = call.path["group"], call.query
    selection = query.selection()
    positions = query.positions.split(",") if query.positions else None
    spans = await _spans(call.admin, group, selection, positions)
    name = re.sub(r"[^\w.-]", "_", f"dead-letters-{group}", flags=re.ASCII)
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"', "Cache-Control": "no-store"}
    lines = _lines(call.admin, spans, selection)
    return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")


async def _lines(admin: Admin, spans: list[QueueSpan], selection: Selection) -> AsyncIterator[bytes]:
    """A JSON object a line: the fields of `mqadmin queryMsgById --json` and `origin_topic`. If something is
    left out, the last line has a field `incomplete` with the reason."""
    count = size_bytes = 0
    try:
        async for _, message in read_dead_letters(admin, spans, selection):
            if count >= _MAX_EXPORTED or size_bytes >= _MAX_EXPORTED_BYTES:
                limits = f"{_MAX_EXPORTED:,} messages or {_MAX_EXPORTED_BYTES >> 20} MiB"
                reason = f"an export has at most {limits}; {count:,} are above, choose the next by time"
                yield msgspec.json.encode({"incomplete": reason}) + b"\n"
                return
            view = msgspec.to_builtins(MessageView.of(message))
            line = msgspec.json.encode({"origin_topic": origin_topic(message), **view}) + b"\n"
            count += 1
            size_bytes += len(line)
            yield line
    except KourouError as error:
        yield msgspec.json.encode({"incomplete": str(error)}) + b"\n"


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/dead-letters",
        summary="Groups with dead letters",
        query=PageQuery,
        handler=_groups,
        returns=Page[GroupDeadLetters],
    ),
    Read(
        path="/dead-letters/{group}",
        summary="Dead letters of a group",
        query=LettersQuery,
        handler=_letters,
        returns=MessageList,
    ),
    Change(
        path="/dead-letters/{group}/redrive",
        summary="Send dead letters back to their group",
        body=RedriveRequest,
        planner=_plan_redrive,
    ),
    Raw(
        method="GET",
        path="/dead-letters/{group}/export",
        summary="Dead letters of a group as JSON lines",
        role=Role.READER,
        query=ExportQuery,
        respond=_export,
    ),
)
