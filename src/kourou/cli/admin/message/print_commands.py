"""Commands that print the messages of queues: printMsg, printMsgByQueue, consumeMessage."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.admin.messages.message_reading import (
    Pulled,
    QueuePlace,
    QueueSpan,
    queue_place,
    queue_span,
    read_span,
    readable_queues,
    subscription_of,
)
from kourou.admin.messages.message_view import MessageView
from kourou.cli.admin import formatting
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.message.message_report import body_text
from kourou.cli.admin.options import Option, ParsedArgs, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.client.pull.pulls import PullStatus
from kourou.clock import wall_ms
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import TOOLS_CONSUMER_GROUP
from kourou.protocol.tags import SUB_ALL

DEFAULT_COUNT: Final = 128
_NO_BODY: Final = "NOT PRINT BODY"
_QUEUE_END: Final = "-" * 56


@dataclass(frozen=True, slots=True)
class QueueBegin:
    """The offsets of a queue that will be printed."""

    queue: MessageQueue
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Note:
    """A status line between messages, in Apache's wording."""

    text: str


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """The end of a queue."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True)
class TagCount:
    """The number of messages with a tag."""

    tag: str
    count: int


def _show(item: object, screen: Screen, *, prints_bodies: bool = True) -> None:
    """`prints_bodies`: unless an option says otherwise."""
    match item:
        case MessageView():
            args = screen.args
            text = _NO_BODY
            if args.truth("printBody", prints_bodies):
                text = body_text(item.body, args.text("charsetName", "UTF-8"))
            screen.line(f"MSGID: {item.msg_id} {formatting.message_ext(item)} BODY: {text}")
        case QueueBegin():
            queue = formatting.java_message_queue(item.queue)
            screen.line(f"minOffset={item.min_offset}, maxOffset={item.max_offset}, {queue}")
        case Note():
            screen.line(item.text)
        case QueueEnd():
            screen.line(_QUEUE_END)
        case TagCount():
            screen.line(f"Tag: {item.tag:<30} Count: {item.count}")


def _state(pulled: Pulled) -> Note | None:
    """The status line of an empty pull; None if it found messages."""
    queue = formatting.java_message_queue(pulled.queue)
    if pulled.status is PullStatus.NO_MATCHED_MSG:
        return Note(f"{queue} no matched msg. status=NO_MATCHED_MSG, offset={pulled.next_offset}")
    if pulled.is_end:
        return Note(f"{queue} print msg finished. status={pulled.status.name}, offset={pulled.next_offset}")
    return None


def _times(args: ParsedArgs) -> tuple[int | None, int | None]:
    begin, end = args.get("beginTimestamp"), args.get("endTimestamp")
    return (
        None if begin is None else formatting.parse_time(begin),
        None if end is None else formatting.parse_time(end),
    )


def _check(args: ParsedArgs) -> str:
    """The filter expression. UsageError if it or the charset is invalid."""
    body_text(b"", args.text("charsetName", "UTF-8"))
    expression = args.text("subExpression", SUB_ALL)
    subscription_of(args.text("topic"), expression)
    return expression


# -- printMsg ----------------------------------------------------------------------------------------


async def _print_messages(call: Call) -> AsyncIterator[object]:
    args = call.args
    expression = _check(args)
    begin_ms, end_ms = _times(args)
    places = await readable_queues(call.admin, args.text("topic"), route_of=args.get("lmqParentTopic"))
    failures: list[KourouError] = []
    for number, place in enumerate(places, start=1):
        progress = f"queue {number} of {len(places)}"
        call.screen.progress(progress)
        try:
            span = await queue_span(call.admin, place, begin_ms=begin_ms, end_ms=end_ms)
            yield QueueBegin(place.queue, span.begin_offset, span.end_offset)
            async for pulled in read_span(call.admin, span, expression=expression):
                for item in _items(pulled):
                    yield item
                call.screen.progress(f"{progress}: offset {pulled.next_offset} of {span.end_offset}")
            yield QueueEnd(place.queue)
        except (RemotingError, ResponseError) as error:
            failures.append(error)
    if failures:
        raise _summary(failures, len(places))


def _items(pulled: Pulled) -> list[object]:
    note = _state(pulled)
    return [*map(MessageView.of, pulled.messages), *([] if note is None else [note])]


def _summary(failures: list[KourouError], queues: int) -> KourouError:
    """The only error, or the number of failed queues with the first error."""
    if len(failures) == 1:
        return failures[0]
    return KourouError(f"{len(failures)} of {queues} queues could not be read, the first: {failures[0]}")


# -- printMsgByQueue ---------------------------------------------------------------------------------


async def _print_queue(call: Call) -> AsyncIterator[object]:
    args = call.args
    expression = _check(args)
    begin_ms, end_ms = _times(args)
    place = await queue_place(call.admin, args.text("topic"), args.text("brokerName"), args.number("queueId"))
    span = await queue_span(call.admin, place, begin_ms=begin_ms, end_ms=end_ms)
    is_printed, is_counted = args.truth("printMsg"), args.truth("calculate")
    tags: Counter[str] = Counter()
    async for pulled in read_span(call.admin, span, expression=expression):
        if is_counted:
            tags.update(message.tags for message in pulled.messages if message.tags)
        if is_printed:
            for item in _items(pulled):
                if not isinstance(item, Note):
                    yield item
        call.screen.progress(f"offset {pulled.next_offset} of {span.end_offset}")
    for tag, count in sorted(tags.items(), key=lambda entry: (-entry[1], entry[0])):
        yield TagCount(tag, count)


# -- consumeMessage ----------------------------------------------------------------------------------


async def _consume(call: Call) -> AsyncIterator[object]:
    args = call.args
    count = args.number("MessageNumber", DEFAULT_COUNT)
    _check_consume(args, count)
    begin_ms, end_ms = _consume_times(args)
    group = args.text("consumerGroup", TOOLS_CONSUMER_GROUP)
    if "queueId" not in args:
        places = await readable_queues(call.admin, args.text("topic"))
        if "brokerName" in args:
            broker_name = await call.admin.broker_name(args.text("brokerName"))
            places = [place for place in places if place.queue.broker_name == broker_name]
        async for item in _consume_all(call, places, group, count, begin_ms, end_ms):
            yield item
        return
    place = await queue_place(call.admin, args.text("topic"), args.text("brokerName"), args.number("queueId"))
    span = await queue_span(call.admin, place, begin_ms=begin_ms, end_ms=end_ms)
    begin = max(span.begin_offset, args.number("offset", span.begin_offset))
    if begin > span.end_offset:
        yield Note(f"{formatting.java_message_queue(place.queue)} no matched msg, offset={begin}")
        return
    last = _last_offset(span, end_ms)
    if span.end_offset - begin > count:
        yield Note(f"The oldler {count} message will be provided")
        last = begin + count - 1
    async for item in _consume_queue(call, place, group, begin, last):
        yield item


def _check_consume(args: ParsedArgs, count: int) -> None:
    if count <= 0:
        raise UsageError("Please input a positive messageNumber!")
    if "queueId" in args and "brokerName" not in args:
        raise UsageError("Please set the brokerName before queueId!")
    if "offset" in args and "queueId" not in args:
        raise UsageError("Please set queueId before offset!")


def _consume_times(args: ParsedArgs) -> tuple[int | None, int | None]:
    begin_ms, end_ms = _times(args)
    now_ms = wall_ms()
    if begin_ms is not None and begin_ms > now_ms:
        raise UsageError("Please set the beginTimestamp before now!")
    if end_ms is not None and end_ms > now_ms:
        raise UsageError("Please set the endTimestamp before now!")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise UsageError("Please make sure that the beginTimestamp is not after the endTimestamp!")
    return begin_ms, end_ms


async def _consume_all(
    call: Call, places: list[QueuePlace], group: str, count: int, begin_ms: int | None, end_ms: int | None
) -> AsyncIterator[object]:
    """Queue by queue, until the requested count is reached."""
    left = count
    for place in places:
        if left <= 0:
            return
        span = await queue_span(call.admin, place, begin_ms=begin_ms, end_ms=end_ms)
        held = span.end_offset - span.begin_offset
        last = _last_offset(span, end_ms)
        if held > left:
            yield Note(f"The older {left} message of the {place.queue.queue_id} queue will be provided")
            last = span.begin_offset + left - 1
            left = 0
        else:
            # Apache's tools count the pull at the end of a queue as a message.
            left -= held + 1
        async for item in _consume_queue(call, place, group, span.begin_offset, last):
            yield item


def _last_offset(span: QueueSpan, end_ms: int | None) -> int:
    """The last offset to read: the end of the queue, to observe that it ends, unless a time limits it."""
    return span.end_offset if end_ms is None else span.end_offset - 1


async def _consume_queue(
    call: Call, place: QueuePlace, group: str, begin: int, last: int
) -> AsyncIterator[object]:
    """From one offset to another, both included."""
    span = QueueSpan(place, begin, last + 1)
    async for pulled in read_span(call.admin, span, group=group):
        if pulled.status is PullStatus.FOUND:
            yield Note("Consume ok")
        for item in _items(pulled):
            yield item


_TOPIC: Final = required("t", "topic", "topic")
_EXPRESSION: Final = value("s", "subExpression", "tags, 'TagA || TagB' (default: all)")
_CHARSET: Final = value("c", "charsetName", "charset of the bodies (default: UTF-8)")


def _begin(letter: str) -> Option:
    return value(letter, "beginTimestamp", "stored at or after: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS")


def _end(*aliases: str) -> Option:
    return value("e", "endTimestamp", "stored before: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS", *aliases)


PRINT_COMMANDS: Final = (
    AdminCommand(
        name="printMsg",
        about="Print the messages of a topic, queue by queue.",
        example="printMsg -n 127.0.0.1:9876 -t Orders -s 'TagA || TagB'",
        options=(
            _TOPIC,
            _CHARSET,
            _EXPRESSION,
            _begin("b"),
            _end(),
            value("d", "printBody", "false: without bodies"),
            value("l", "lmqParentTopic", "topic whose route is used instead"),
        ),
        stream=_print_messages,
        show=_show,
    ),
    AdminCommand(
        name="printMsgByQueue",
        about="Print the messages of one queue (-p true), or count them by tag (-f true).",
        example="printMsgByQueue -n 127.0.0.1:9876 -t Orders -a broker-a -i 0 -p true -d true",
        options=(
            _TOPIC,
            required("a", "brokerName", "name of the broker"),
            required("i", "queueId", "queue id"),
            _CHARSET,
            _EXPRESSION,
            _begin("b"),
            _end(),
            value("p", "printMsg", "true: print messages", "print msg", "print"),
            value("d", "printBody", "true: with bodies"),
            value("f", "calculate", "true: count messages by tag"),
        ),
        stream=_print_queue,
        show=partial(_show, prints_bodies=False),
    ),
    AdminCommand(
        name="consumeMessage",
        about="Print messages of a topic or queue, optionally from an offset; no offset is committed.",
        example="consumeMessage -n 127.0.0.1:9876 -t Orders -b broker-a -i 0 -o 12 -c 5",
        options=(
            _TOPIC,
            value("b", "brokerName", "name of the broker"),
            value("i", "queueId", "queue id; needs -b"),
            value("o", "offset", "offset in the queue; needs -i"),
            value("g", "consumerGroup", f"group to read as (default: {TOOLS_CONSUMER_GROUP})"),
            _begin("s"),
            _end("d"),
            value("c", "MessageNumber", f"maximum number of messages (default: {DEFAULT_COUNT})"),
        ),
        stream=_consume,
        show=_show,
    ),
)
