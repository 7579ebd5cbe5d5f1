"""Commands that find single messages: by id, key, unique id and offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from kourou.admin.messages.message_queries import (
    FOR_EVER_MS,
    KEY_INDEX,
    MAX_FOUND,
    index_key,
    query_by_unique_key,
    search_by_key,
)
from kourou.admin.messages.message_reading import message_at, queue_place
from kourou.admin.messages.message_sending import SentMessage
from kourou.admin.messages.messages import consume_directly, find_message, resend
from kourou.admin.running_info import RunningInfo, running_info
from kourou.cli.admin import formatting
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.message.message_report import (
    BODY_PATH,
    MessageReport,
    body_text,
    report,
    show_block,
    show_tracks,
)
from kourou.cli.admin.options import ParsedArgs, flag, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import ConfigError, ResponseError
from kourou.protocol.bodies import ConsumeMessageDirectlyResult
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt

_ROUTE_OF: Final = value("c", "cluster", "cluster, or topic, whose brokers are queried")
_BODY_FORMAT: Final = value("f", "bodyFormat", "charset: also print the body as text")


@dataclass(frozen=True, slots=True)
class DirectConsumption:
    """The result of a message delivered directly to a consumer."""

    msg_id: str
    client_id: str
    result: ConsumeMessageDirectlyResult


@dataclass(frozen=True, slots=True)
class Resent:
    """A message that was sent again; `sent` is None if it was not found."""

    msg_id: str
    sent: SentMessage | None
    printed: str = ""
    """The result in Apache's format."""
    problem: str = ""


ById: TypeAlias = list[MessageReport] | list[DirectConsumption] | list[Resent]


# -- queryMsgById ------------------------------------------------------------------------------------


async def _query_by_id(call: Call) -> ById:
    args = call.args
    msg_ids = [word.strip() for word in args.text("msgId").split(",") if word.strip()]
    if not msg_ids:
        raise UsageError("Missing argument for option: i")
    if charset := args.get("bodyFormat"):
        body_text(b"", charset)
    if "consumerGroup" in args and "clientId" in args:
        await _check_push(call)
        return [await _hand_over(call, msg_id) for msg_id in msg_ids]
    if args.truth("sendMessage"):
        return await _resend(call, msg_ids)
    reports = [await _report_by_id(call, msg_id) for msg_id in msg_ids]
    return _some_found(call, reports)


async def _find(call: Call, msg_id: str) -> MessageExt:
    return await find_message(call.admin, msg_id, call.args.get("topic"), route_of=call.args.get("cluster"))


async def _report_by_id(call: Call, msg_id: str) -> MessageReport:
    try:
        message = await _find(call, msg_id)
    except ResponseError as error:
        if error.code != ResponseCode.NO_MESSAGE:
            raise
        return MessageReport(msg_id, None, problem=str(error))
    return await report(call, msg_id, message)


def _some_found(call: Call, reports: list[MessageReport]) -> list[MessageReport]:
    """The reports if any message was found; else prints the text that scripts expect and raises
    ResponseError."""
    if all(found.message is None for found in reports):
        if not call.args.flag("json"):
            call.screen.write("\nMessage not found!\n")
        missing = ", ".join(found.msg_id for found in reports)
        raise ResponseError(ResponseCode.NO_MESSAGE, f"Message not found! msgId={missing}{_hint(call.args)}")
    return reports


def _hint(args: ParsedArgs) -> str:
    return "" if "topic" in args else "; give the topic with -t to search for it as unique id"


async def _check_push(call: Call) -> None:
    """Only push consumers accept a message. RocketMQ 4.9 does not check this first."""
    if call.is_v4:
        return
    group, client_id = call.args.text("consumerGroup"), call.args.text("clientId")
    if not RunningInfo.of(await running_info(call.admin, group, client_id)).is_push:
        raise ConfigError(f"this {client_id} client is not push consumer ,not support direct push")


async def _hand_over(call: Call, msg_id: str) -> DirectConsumption:
    group, client_id = call.args.text("consumerGroup"), call.args.text("clientId")
    message = await _find(call, msg_id)
    return DirectConsumption(msg_id, client_id, await consume_directly(call.admin, group, client_id, message))


async def _resend(call: Call, msg_ids: list[str]) -> list[Resent]:
    done = []
    for msg_id in msg_ids:
        try:
            message = await _find(call, msg_id)
        except ResponseError as error:
            if error.code != ResponseCode.NO_MESSAGE or len(msg_ids) == 1:
                raise
            done.append(Resent(msg_id, None, problem=str(error)))
            continue
        result = await resend(call.admin, message, unit_name=call.args.get("unitName"))
        printed = formatting.send_result(result, is_v4=call.is_v4)
        done.append(Resent(msg_id, SentMessage.of(result), printed))
    return done


def _show_by_id(found: ById, screen: Screen) -> None:
    for one in found:
        if isinstance(one, DirectConsumption):
            screen.write(formatting.direct_result(one.result))
        elif isinstance(one, Resent):
            _show_resent(one, screen)
        elif one.message is None:
            screen.write("\nMessage not found!\n")
            screen.trouble(one.problem)
        else:
            show_block(one, screen)
            show_tracks(one, screen, ends_lines=not screen.is_v4)


def _show_resent(resent: Resent, screen: Screen) -> None:
    if resent.sent is None:
        screen.line(f"no message. msgId={resent.msg_id}")
        screen.trouble(resent.problem)
    else:
        screen.line(f"prepare resend msg. originalMsgId={resent.msg_id}{resent.printed}")


# -- queryMsgByKey -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyHit:
    """A message that has a key."""

    msg_id: str
    broker_name: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    index_key: str


async def _query_by_key(call: Call) -> list[KeyHit]:
    args = call.args
    key, index_type = args.text("msgKey"), args.text("keyType", KEY_INDEX)
    search = await search_by_key(
        call.admin,
        args.text("topic"),
        key,
        max_num=args.number("maxNum", MAX_FOUND),
        begin_ms=time_of(args, "beginTimestamp", 0),
        end_ms=time_of(args, "endTimestamp", FOR_EVER_MS),
        route_of=args.get("cluster"),
        index_type=args.get("keyType"),
        last_key=args.get("lastKey"),
    )
    return [
        KeyHit(
            message.msg_id,
            message.broker_name,
            message.queue_id,
            message.queue_offset,
            message.store_timestamp,
            index_key(message, key, index_type),
        )
        for message in search.messages
    ]


def _show_by_key(found: list[KeyHit], screen: Screen) -> None:
    layout = "{:<50} {:>4} {:>40}" if screen.is_v4 else "{:<50} {:>4} {:>40} {:<200}"
    names = ("#Message ID", "#QID", "#Offset", "#IndexKey")
    rows = [(hit.msg_id, hit.queue_id, hit.queue_offset, hit.index_key) for hit in found]
    screen.table(layout, names, rows)


# -- queryMsgByUniqueKey -----------------------------------------------------------------------------


async def _query_by_unique_key(call: Call) -> list[MessageReport] | list[DirectConsumption]:
    args = call.args
    msg_id = args.text("msgId")
    found = await query_by_unique_key(
        call.admin,
        args.text("topic"),
        msg_id,
        begin_ms=time_of(args, "startTime", 0),
        end_ms=time_of(args, "endTime", FOR_EVER_MS),
        route_of=args.get("cluster"),
    )
    if "consumerGroup" in args and "clientId" in args:
        await _check_push(call)
        group, client_id = args.text("consumerGroup"), args.text("clientId")
        result = await consume_directly(call.admin, group, client_id, found[0])
        return [DirectConsumption(msg_id, client_id, result)]
    shown = found if args.flag("showAll") else found[:1]
    return [await report(call, msg_id, message, number) for number, message in enumerate(shown)]


def _show_by_unique_key(found: list[MessageReport] | list[DirectConsumption], screen: Screen) -> None:
    for one in found:
        if isinstance(one, DirectConsumption):
            screen.write(formatting.direct_result(one.result))
        else:
            show_block(one, screen, with_offset_id=False)
            show_tracks(one, screen, ends_lines=False)


# -- queryMsgByOffset --------------------------------------------------------------------------------


async def _query_by_offset(call: Call) -> MessageReport:
    args = call.args
    if charset := args.get("bodyFormat"):
        body_text(b"", charset)
    place = await queue_place(
        call.admin,
        args.text("topic"),
        args.text("brokerName"),
        args.number("queueId"),
        route_of=args.get("routeTopic"),
    )
    message = await message_at(call.admin, place, args.number("offset"))
    return await report(call, message.msg_id, message)


def _show_by_offset(found: MessageReport, screen: Screen) -> None:
    show_block(found, screen)
    show_tracks(found, screen, ends_lines=not screen.is_v4)


def time_of(args: ParsedArgs, name: str, default: int) -> int:
    """A time that was given, in milliseconds."""
    text = args.get(name)
    return default if text is None else formatting.parse_time(text)


QUERY_COMMANDS: Final = (
    AdminCommand(
        name="queryMsgById",
        about="Show messages by id; deliver one to a consumer (-g, -d) or send it again (-s true).",
        example="queryMsgById -n 127.0.0.1:9876 -t Orders -i 7F00000100002A9F000000000000486B",
        options=(
            required("i", "msgId", "ids of messages, separated by commas"),
            value("t", "topic", "topic of the message; needed for unique ids"),
            value("g", "consumerGroup", "group of the consumer to deliver the message to"),
            value("d", "clientId", "client id of that consumer"),
            value("s", "sendMessage", "true: send the message again"),
            value("u", "unitName", "unit name of the producer that sends it again"),
            _BODY_FORMAT,
            _ROUTE_OF,
            BODY_PATH,
        ),
        ask=_query_by_id,
        show=_show_by_id,
    ),
    AdminCommand(
        name="queryMsgByKey",
        about="Find messages by a key.",
        example="queryMsgByKey -n 127.0.0.1:9876 -t Orders -k order-1",
        options=(
            required("t", "topic", "topic"),
            required("k", "msgKey", "key of the messages"),
            value("b", "beginTimestamp", "stored at or after this time, milliseconds (default: 0)"),
            value("e", "endTimestamp", "stored before this time, milliseconds (default: no limit)"),
            value("m", "maxNum", "maximum number of messages per broker (default: 64)"),
            value("p", "keyType", "K: keys (default); T: tags, on brokers 5.5 and later"),
            value("l", "lastKey", "continue after this entry (index in RocksDB only)"),
            _ROUTE_OF,
        ),
        ask=_query_by_key,
        show=_show_by_key,
    ),
    AdminCommand(
        name="queryMsgByUniqueKey",
        about="Show a message by the unique id its producer gave it; deliver it to a consumer (-g, -d).",
        example="queryMsgByUniqueKey -n 127.0.0.1:9876 -t Orders -i 7F00000159805FFD2B2748C1E72B004C",
        options=(
            required("i", "msgId", "unique id of the message"),
            required("t", "topic", "topic of the message"),
            value("g", "consumerGroup", "group of the consumer to deliver the message to"),
            value("d", "clientId", "client id of that consumer"),
            flag("a", "showAll", "all messages with this id, up to 32 (default: the oldest only)"),
            value("s", "startTime", "stored at or after this time, milliseconds"),
            value("e", "endTime", "stored before this time, milliseconds"),
            _ROUTE_OF,
            BODY_PATH,
        ),
        ask=_query_by_unique_key,
        show=_show_by_unique_key,
    ),
    AdminCommand(
        name="queryMsgByOffset",
        about="Show the message at an offset of a queue.",
        example="queryMsgByOffset -n 127.0.0.1:9876 -t Orders -b broker-a -i 0 -o 12",
        options=(
            required("t", "topic", "topic"),
            required("b", "brokerName", "name of the broker"),
            required("i", "queueId", "queue id"),
            required("o", "offset", "queue offset"),
            value("r", "routeTopic", "topic whose route is used instead"),
            _BODY_FORMAT,
            BODY_PATH,
        ),
        ask=_query_by_offset,
        show=_show_by_offset,
    ),
)
