"""Searches by conditions on properties (SQL92) and bodies: scans that run in the background.

POST starts one, GET returns its progress and what was found so far, DELETE cancels it.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import msgspec

from kourou.admin.messages.body_search import body_contains, body_has_json
from kourou.admin.messages.message_pages import MessageFilter, PageRequest
from kourou.admin.messages.message_view import MessageSummary
from kourou.admin.session import command_line
from kourou.clock import wall_ms
from kourou.console.api.messages import Order, TimeMs
from kourou.console.api_errors import bad_input
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Read
from kourou.console.message_scans import MAX_RUNNING, Scan, ScanBounds, ScanState
from kourou.protocol.filter import compile_filter
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL

_MAX_TEXT: Final = 4_096
_Text = Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)]


class SearchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to search, and where to stop. All given conditions must hold."""

    topic: str
    begin: TimeMs | None = None
    end: TimeMs | None = None
    order: Order = "newest"
    tag: _Text = ""
    sql: _Text = ""
    """An SQL92 condition on properties, such as `region = 'north' AND amount > 5`."""
    contains: _Text = ""
    """A text in the body, letter for letter."""
    json_path: _Text = ""
    """A path in a JSON body, such as `order.items[0].sku`."""
    json_value: _Text | None = None
    """The value at that path; any value if null."""
    most_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000
    most_seconds: Annotated[int, msgspec.Meta(ge=1, le=600)] = 60
    most_found: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 200


class SearchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search is, and what was found so far."""

    id: str
    state: ScanState
    stopped_by: str
    """The bound that ended it: `messages`, `seconds`, `found`, or `abandoned`; empty if none."""
    is_complete: bool
    """Whether it ended after reading everything."""
    scanned: int
    """Messages that were read or passed by the brokers' filter."""
    left: int | None
    """Messages that are left to read; null if not known yet."""
    elapsed_ms: int
    items: list[MessageSummary]
    problems: list[str]
    filtered_here: list[str]
    """Brokers that do not evaluate SQL92 (`enablePropertyFilter`): the console did."""
    as_of: int
    commands: list[str]


async def _start(call: Call[NoQuery, SearchRequest]) -> SearchProgress:
    body = call.body
    if not body.topic:
        raise bad_input("topic", "it is empty")
    await call.admin.route(body.topic)
    request = PageRequest(
        topic=body.topic,
        begin_ms=body.begin,
        end_ms=body.end,
        is_newest_first=body.order == "newest",
        filter=_filter(body),
    )
    bounds = ScanBounds(body.most_messages, body.most_seconds, body.most_found)
    scan = call.context.scans.start(call.admin, call.visitor.user, request, bounds)
    return _progress(call, scan)


def _filter(body: SearchRequest) -> MessageFilter:
    conditions = []
    if body.contains:
        conditions.append(body_contains(body.contains))
    if body.json_path:
        conditions.append(body_has_json(body.json_path, body.json_value))
    elif body.json_value is not None:
        raise bad_input("json_path", "give the path of the value")

    def keeps(message: MessageExt) -> bool:
        return all(condition(message) for condition in conditions)

    return MessageFilter(
        tags=body.tag.strip() or SUB_ALL,
        condition=compile_filter(body.sql) if body.sql.strip() else None,
        keeps=keeps if conditions else None,
    )


async def _get(call: Call[NoQuery, NoBody]) -> SearchProgress:
    return _progress(call, call.context.scans.get(call.path["id"], call.visitor.user))


async def _cancel(call: Call[NoQuery, NoBody]) -> SearchProgress:
    return _progress(call, await call.context.scans.cancel(call.path["id"], call.visitor.user))


def _progress(call: Call[NoQuery, Any], scan: Scan) -> SearchProgress:
    words = ["-t", scan.request.topic]
    words += ["-s", scan.request.filter.tags] if scan.request.filter.tags != SUB_ALL else []
    words += ["-b", str(scan.request.begin_ms)] if scan.request.begin_ms is not None else []
    words += ["-e", str(scan.request.end_ms)] if scan.request.end_ms is not None else []
    return SearchProgress(
        id=scan.scan_id,
        state=scan.state,
        stopped_by=scan.stopped_by,
        is_complete=scan.state == "done" and not scan.stopped_by and not scan.problems,
        scanned=scan.scanned,
        left=scan.left,
        elapsed_ms=int(scan.elapsed_s(time.monotonic()) * 1000),
        items=scan.found,
        problems=list(scan.problems),
        filtered_here=sorted(scan.filtered_here),
        as_of=wall_ms(),
        commands=[command_line(call.admin.namesrvs, "printMsg", *words)],
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        method="POST",
        path="/message-searches",
        summary=f"Search messages by properties (SQL92) and bodies, at most {MAX_RUNNING} at the same time",
        body=SearchRequest,
        handler=_start,
        returns=SearchProgress,
    ),
    Read(
        path="/message-searches/{id}",
        summary="The progress of a search, and what it has found",
        handler=_get,
        returns=SearchProgress,
    ),
    Read(
        method="DELETE",
        path="/message-searches/{id}",
        summary="Cancel a search; what it has found stays",
        handler=_cancel,
        returns=SearchProgress,
    ),
)
