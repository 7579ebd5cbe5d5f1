"""Commands about the location and status of messages: messageTrack, decodeMessageId, queryCq."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from kourou.admin.messages.message_queries import query_consume_queue
from kourou.admin.messages.message_track import MessageTrack, track_with_clients
from kourou.admin.messages.messages import find_message, is_offset_id
from kourou.cli.admin import formatting
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.clock import wall_ms
from kourou.protocol.bodies import QueryConsumeQueueResponseBody, encode_body
from kourou.protocol.message_id import parse_offset_msg_id, parse_unique_id

_SEPARATOR: Final = "=" * 38


# -- messageTrack ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrackReport:
    """The location of a message, and its status in each group."""

    msg_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    tracks: list[MessageTrack]


async def _track(call: Call) -> TrackReport:
    message = await find_message(call.admin, call.args.text("msgId"), call.args.text("topic"))
    return TrackReport(
        message.msg_id,
        message.topic,
        message.broker_name or await call.admin.broker_name(message.store_host),
        message.queue_id,
        message.queue_offset,
        message.store_timestamp,
        await track_with_clients(call.admin, message),
    )


def _show_track(found: TrackReport, screen: Screen) -> None:
    screen.line(
        f"{found.msg_id}: {found.topic}, queue {found.queue_id} of {found.broker_name}, "
        f"offset {found.queue_offset}, stored {formatting.human_time(found.store_timestamp)}"
    )
    layout = "{:<40}  {:<22}  {:<16}  {:<40}  {}"
    names = ("#Consumer Group", "#State", "#Group Offset", "#Client", "#Remark")
    screen.table(layout, names, [_track_row(one) for one in found.tracks])


def _track_row(one: MessageTrack) -> tuple[str, ...]:
    return (
        one.consumer_group,
        one.track_type,
        "N/A" if one.consumer_offset is None else str(one.consumer_offset),
        one.client_id or "N/A",
        one.exception_desc or "",
    )


# -- decodeMessageId ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecodedId:
    """The contents of an id: sender and time of a unique id, the record's location of an offset id."""

    ip: str
    date_ms: int | None = None
    pid: int | None = None
    counter: int | None = None
    port: int | None = None
    phy_offset: int | None = None


async def _decode(call: Call) -> DecodedId:
    msg_id = call.args.text("messageId")
    if is_offset_id(msg_id):
        place = parse_offset_msg_id(msg_id)
        host, _, port = place.address.rpartition(":")
        return DecodedId(host.strip("[]"), port=int(port), phy_offset=place.phy_offset)
    unique = parse_unique_id(msg_id)
    made_ms = unique.nearest_time_ms(wall_ms())
    return DecodedId(str(ip_address(unique.ip)), date_ms=made_ms, pid=unique.pid, counter=unique.counter)


def _show_decoded(found: DecodedId, screen: Screen) -> None:
    screen.line(f"ip={found.ip}")
    if found.date_ms is not None:
        day, _, hour = formatting.human_time(found.date_ms).partition(" ")
        screen.line(f"date={day}#{hour.replace(',', ':')}")
    else:
        screen.line(f"port={found.port}")
        screen.line(f"commitLogOffset={found.phy_offset}")


# -- queryCq -----------------------------------------------------------------------------------------


async def _query_cq(call: Call) -> QueryConsumeQueueResponseBody:
    args = call.args
    return await query_consume_queue(
        call.admin,
        args.text("topic"),
        args.number("queue"),
        index=args.number("index"),
        count=args.number("count", 10),
        broker=args.get("broker"),
        group=args.get("consumer"),
    )


def _show_cq(found: QueryConsumeQueueResponseBody, screen: Screen) -> None:
    if found.subscription_data is not None:
        _show_part(screen, "Subscription data: ", encode_body(found.subscription_data).decode())
    if found.filter_data:
        _show_part(screen, "Filter data: ", found.filter_data)
    _show_part(screen, "Queue data: ", f"max: {found.max_queue_index}, min: {found.min_queue_index}")
    for index, data in enumerate(found.queue_data or [], start=screen.args.number("index")):
        _show_part(screen, f"idx: {index}", formatting.consume_queue_data(data))


def _show_part(screen: Screen, name: str, text: str) -> None:
    screen.line(name)
    screen.line(text)
    screen.line(_SEPARATOR)


PLACE_COMMANDS: Final = (
    AdminCommand(
        name="messageTrack",
        about="Show a message's status in each group: consumed or not, offset, and the owner of its queue.",
        example="messageTrack -n 127.0.0.1:9876 -t Orders -i 7F00000159805FFD2B2748C1E72B004C",
        options=(
            required("t", "topic", "topic of the message"),
            required("i", "msgId", "message id, unique or offset id"),
        ),
        ask=_track,
        show=_show_track,
        is_only_kourou=True,
    ),
    AdminCommand(
        name="decodeMessageId",
        about="Decode a message id: address and time, or the location of the record.",
        example="decodeMessageId -i 7F00000159805FFD2B2748C1E72B004C",
        options=(required("i", "messageId", "id of a message", "msgId"),),
        ask=_decode,
        show=_show_decoded,
        aliases=("DecodeMessageId",),
        needs_cluster=False,
    ),
    AdminCommand(
        name="queryCq",
        about="Show the entries of a ConsumeQueue.",
        example="queryCq -n 127.0.0.1:9876 -t Orders -q 0 -i 0 -c 10",
        options=(
            required("t", "topic", "topic"),
            required("q", "queue", "queue id"),
            required("i", "index", "first index"),
            value("c", "count", "number of entries (default: 10)"),
            value("b", "broker", "address of the broker (default: the topic's first)"),
            value("g", "consumer", "group: show whether its filter accepts each entry"),
        ),
        ask=_query_cq,
        show=_show_cq,
    ),
)
