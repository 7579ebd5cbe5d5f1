"""Messages: lists by topic, time, queue, offset, tag and key.

Not here: one message (message.py), searches with SQL and in bodies (message_search.py), dead letters
(dead_letters.py).
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal

import msgspec

from kourou.admin.messages.message_pages import (
    MessageFilter,
    MessagePage,
    PageRequest,
    QueueReading,
    read_page,
)
from kourou.admin.messages.message_queries import FOR_EVER_MS, MAX_FOUND, search_by_key
from kourou.admin.messages.message_view import MessageSummary
from kourou.admin.session import Admin, command_line
from kourou.clock import wall_ms
from kourou.console.api_errors import bad_input, not_found
from kourou.console.endpoints import Call, Endpoint, NoBody, Read
from kourou.console.message_cursor import decode_cursor, encode_cursor
from kourou.errors import ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL

MAX_PAGE: Final = 200

Order = Literal["newest", "oldest"]
TimeMs = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class MessagesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which messages of a topic."""

    topic: str
    begin: TimeMs | None = None
    """Stored at or after this time, in milliseconds since 1970."""
    end: TimeMs | None = None
    """Stored before this time."""
    order: Order = "newest"
    tag: str = ""
    """`TagA || TagB`."""
    broker: str = ""
    queue: Annotated[int, msgspec.Meta(ge=0)] | None = None
    offset: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """Begin at this offset of the queue; needs `broker` and `queue`."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 50
    cursor: str = ""
    """`next` of the page before, with otherwise the same parameters."""


class MessageList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of messages, and an account of what was read for it."""

    items: list[Any]
    queues: list[QueueReading] = []
    """What was read of each queue."""
    next: str | None = None
    """`cursor` of the next page; null at the end."""
    is_complete: bool
    """Whether nothing is missing in this page."""
    stopped_by: str = ""
    """The bound that ended the page early: `messages`, `bytes` or `seconds`."""
    problems: list[str] = []
    as_of: int
    commands: list[str] = []


async def _messages(call: Call[MessagesQuery, NoBody]) -> MessageList:
    query = call.query
    if query.offset is not None and (not query.broker or query.queue is None):
        raise bad_input("offset", "give the broker and the queue as well")
    request = PageRequest(
        topic=query.topic,
        begin_ms=query.begin,
        end_ms=query.end,
        is_newest_first=query.order == "newest",
        broker=query.broker or None,
        queue_id=query.queue,
        offset=query.offset,
        limit=query.limit,
        filter=MessageFilter(tags=query.tag.strip() or SUB_ALL),
    )
    position = decode_cursor(query.cursor, query.topic, is_newest_first=request.is_newest_first)
    page = await read_page(call.admin, request, MessageSummary.of, position)
    if not page.messages and not query.cursor:
        await _check_queue(call.admin, query)
    return message_list(page, request, _list_commands(call.admin, query))


async def _check_queue(admin: Admin, query: MessagesQuery) -> None:
    """ApiError 404 if the topic does not have the queue."""
    route = await admin.route(query.topic)
    counts = [
        max(queues.read_queue_nums, queues.write_queue_nums)
        for queues in route.queue_datas
        if query.broker in ("", queues.broker_name)
    ]
    if max(counts, default=0) <= (query.queue or 0):
        queue = "queue" if query.queue is None else f"queue {query.queue}"
        where = f" on broker {query.broker}" if query.broker else ""
        raise not_found(
            f"topic {query.topic} has no {queue}{where}", "the page of the topic lists its queues"
        )


def message_list(page: MessagePage[Any], request: PageRequest, commands: list[str]) -> MessageList:
    """A page as the API returns it."""
    return MessageList(
        items=page.messages,
        queues=page.queues,
        next=encode_cursor(request.topic, page.next, is_newest_first=request.is_newest_first),
        is_complete=page.is_complete,
        stopped_by=page.stopped_by,
        problems=page.problems,
        as_of=wall_ms(),
        commands=commands,
    )


def _list_commands(admin: Admin, query: MessagesQuery) -> list[str]:
    words = ["-t", query.topic]
    if query.offset is not None:
        words += ["-b", query.broker, "-i", str(query.queue), "-o", str(query.offset), "-c", str(query.limit)]
        return [command_line(admin.namesrvs, "consumeMessage", *words)]
    command = "printMsg"
    if query.broker and query.queue is not None:
        command = "printMsgByQueue"
        words += ["-a", query.broker, "-i", str(query.queue), "-p", "true", "-d", "true"]
    words += ["-s", query.tag] if query.tag else []
    words += ["-b", str(query.begin)] if query.begin is not None else []
    words += ["-e", str(query.end)] if query.end is not None else []
    return [command_line(admin.namesrvs, command, *words)]


class KeyQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Messages with a key."""

    topic: str
    key: str
    begin: TimeMs = 0
    end: TimeMs | None = None


async def _by_key(call: Call[KeyQuery, NoBody]) -> MessageList:
    query = call.query
    if not query.key:
        raise bad_input("key", "it is empty")
    problems: list[str] = []
    found: list[MessageExt] = []
    try:
        search = await search_by_key(
            call.admin,
            query.topic,
            query.key,
            max_num=MAX_FOUND,
            begin_ms=query.begin,
            end_ms=FOR_EVER_MS if query.end is None else query.end,
        )
        found, problems = search.messages, search.problems
    except ResponseError as error:
        if error.code != ResponseCode.NO_MESSAGE:
            raise
    found.sort(key=lambda message: message.store_timestamp, reverse=True)
    items = await asyncio.to_thread(lambda: [MessageSummary.of(message) for message in found])
    words = ["-t", query.topic, "-k", query.key]
    words += ["-b", str(query.begin)] if query.begin else []
    words += ["-e", str(query.end)] if query.end is not None else []
    command = command_line(call.admin.namesrvs, "queryMsgByKey", *words)
    return MessageList(
        items=items, is_complete=not problems, problems=problems, as_of=wall_ms(), commands=[command]
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/messages",
        summary="Messages of a topic by time, queue, offset or tag",
        query=MessagesQuery,
        handler=_messages,
        returns=MessageList,
    ),
    Read(
        path="/messages/by-key",
        summary="Messages of a topic by key",
        query=KeyQuery,
        handler=_by_key,
        returns=MessageList,
    ),
)
