"""Commands that send messages: sendMessage, checkMsgSendRT."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from kourou.admin.messages.message_sending import SentMessage, TimedSend, check_send_rt, send_message
from kourou.cli.admin import formatting
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import SendFailedError

_LAYOUT: Final = "{:<32}  {:<4}  {:<20}    {}"
_MAX_BODY_BYTES: Final = 4 * 1024 * 1024


# -- sendMessage -------------------------------------------------------------------------------------


async def _send(call: Call) -> SentMessage:
    args = call.args
    if "qid" in args and "broker" not in args:
        raise UsageError("Broker name must be set if the queue is chosen!")
    return await send_message(
        call.admin,
        args.text("topic"),
        args.text("body").encode(),
        tags=args.get("tags"),
        keys=args.get("key"),
        broker=args.get("broker"),
        queue_id=args.number("qid") if "qid" in args else None,
        trace=args.truth("msgTraceEnable"),
    )


def _show_sent(sent: SentMessage, screen: Screen) -> None:
    row = (sent.broker_name, sent.queue_id, sent.status, sent.msg_id)
    screen.table(_LAYOUT, ("#Broker Name", "#QID", "#Send Result", "#MsgId"), [row])


# -- checkMsgSendRT ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NumberedSend:
    """One of several sends, counted from 1."""

    number: int
    send: TimedSend


@dataclass(frozen=True, slots=True)
class SendTimes:
    """The summary. The mean excludes the first send, which looks up the route and connects."""

    amount: int
    failed: int
    avg_rt_ms: float


async def _check_rt(call: Call) -> AsyncIterator[NumberedSend | SendTimes]:
    amount, size_bytes = call.args.number("amount", 100), call.args.number("size", 128)
    if amount < 1:
        raise UsageError(f"-a {amount}: must be at least 1")
    if not 1 <= size_bytes <= _MAX_BODY_BYTES:
        raise UsageError(f"-s {size_bytes}: must be from 1 to {_MAX_BODY_BYTES} bytes")
    times_ms: list[int] = []
    problems: list[str] = []
    async for send in check_send_rt(
        call.admin, call.args.text("topic"), amount=amount, size_bytes=size_bytes
    ):
        times_ms.append(send.rt_ms)
        problems += [send.problem] if send.problem else []
        yield NumberedSend(len(times_ms), send)
        call.screen.progress(f"{len(times_ms)} of {amount} messages")
    yield SendTimes(amount, len(problems), sum(times_ms[1:]) / max(1, amount - 1))
    if len(problems) == amount:
        raise SendFailedError(call.args.text("topic"), [problems[0]], call.admin.settings.request_timeout_ms)


def _show_rt(item: NumberedSend | SendTimes, screen: Screen) -> None:
    if isinstance(item, SendTimes):
        screen.line(f"Avg RT: {item.avg_rt_ms:.2f}")
        return
    if item.number == 1:
        screen.head(_LAYOUT.format("#Broker Name", "#QID", "#Send Result", "#RT"))
    send = item.send
    screen.line(_LAYOUT.format(send.broker_name, send.queue_id, formatting.truth(send.is_ok), send.rt_ms))
    if send.problem:
        screen.trouble(send.problem)


SEND_COMMANDS: Final = (
    AdminCommand(
        name="sendMessage",
        about="Send a message.",
        example="sendMessage -n 127.0.0.1:9876 -t Orders -p 'hello' -k order-1 -c TagA",
        options=(
            required("t", "topic", "topic"),
            required("p", "body", "body, as text"),
            value("k", "key", "keys of the message, separated by spaces"),
            value("c", "tags", "tag of the message"),
            value("b", "broker", "name of the broker to send to; needs -i"),
            value("i", "qid", "id of the queue to send to; needs -b"),
            value("m", "msgTraceEnable", "true: write a trace of the send"),
        ),
        ask=_send,
        show=_show_sent,
    ),
    AdminCommand(
        name="checkMsgSendRT",
        about="Send messages to the queues of a topic in turn and show how long each send takes.",
        example="checkMsgSendRT -n 127.0.0.1:9876 -t Orders -a 100 -s 128",
        options=(
            required("t", "topic", "topic"),
            value("a", "amount", "number of messages (default: 100)"),
            value("s", "size", "body size in bytes (default: 128)"),
        ),
        stream=_check_rt,
        show=_show_rt,
    ),
)
