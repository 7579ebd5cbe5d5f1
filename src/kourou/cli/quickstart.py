"""`kourou quickstart`: the two programs of RocketMQ's quick start, with Apache's output.

Parses options and runs them; output formats are mqadmin's (admin/formatting.py).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

import click

from kourou.cli.option_types import IntRange
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineGroup

if TYPE_CHECKING:
    from kourou.protocol.message import MessageExt

quickstart_app = OneLineGroup(
    "quickstart", help="The two programs of RocketMQ's quick start: send messages, and consume them."
)

TOPIC: Final = "TopicTest"
TAG: Final = "TagA"
NAMESRV: Final = "127.0.0.1:9876"
PRODUCER_GROUP: Final = "please_rename_unique_group_name"
CONSUMER_GROUP: Final = "please_rename_unique_group_name_4"
# A new user may start the consumer first: then the topic is found soon after its creation.
_TOPIC_POLL_MS: Final = 1_000

_namesrv = click.option(
    "namesrv",
    "-n",
    "--namesrvAddr",
    metavar="LIST",
    help=f"Name servers; default NAMESRV_ADDR, or {NAMESRV}.",
)
_topic = click.option("-t", "--topic", default=TOPIC, help="The topic.")


@quickstart_app.command()
@_namesrv
@_topic
@click.option("--count", type=IntRange(1), default=1_000, metavar="N", help="Number of messages.")
def producer(*, namesrv: str | None, topic: str, count: int) -> None:
    """Send messages with tag TagA, and print where each was stored."""
    run_command(
        "kourou quickstart producer", lambda: send(_addresses(namesrv), topic, count), is_output_all=True
    )


@quickstart_app.command()
@_namesrv
@_topic
def consumer(*, namesrv: str | None, topic: str) -> None:
    """Print all messages of a topic, from the first one, until Ctrl-C."""
    run_command("kourou quickstart consumer", lambda: consume(_addresses(namesrv), topic), is_output_all=True)


def _addresses(given: str | None) -> str:
    return given or os.environ.get("NAMESRV_ADDR") or NAMESRV


def send(namesrv: str, topic: str, count: int) -> None:
    """Send messages one after the other."""
    from kourou.cli.admin.formatting import send_result
    from kourou.client.sync.producer import Producer
    from kourou.errors import MessageRefusedError
    from kourou.protocol.message import Message

    with Producer(PRODUCER_GROUP, namesrv=namesrv) as sender:
        for number in range(count):
            try:
                message = Message(topic, f"Hello RocketMQ {number}".encode(), tags=TAG)
            except ValueError as error:
                raise MessageRefusedError(str(error)) from None
            print(send_result(sender.send(message), is_v4=True), flush=True)


def consume(namesrv: str, topic: str) -> None:
    """Print the messages of the topic until cancelled."""
    from kourou.client.sync.push_consumer import PushConsumer

    printing = threading.Lock()

    def show(message: MessageExt) -> None:
        from kourou.admin.messages.message_view import MessageView
        from kourou.cli.admin.formatting import message_ext

        line = f"Receive New Messages: [{message_ext(MessageView.of(message))}]"
        with printing:
            print(threading.current_thread().name, line, flush=True)

    with PushConsumer(
        CONSUMER_GROUP,
        namesrv=namesrv,
        consume_from="first",
        poll_namesrv_interval_ms=_TOPIC_POLL_MS,
        rebalance_interval_ms=_TOPIC_POLL_MS,
    ) as receiver:
        receiver.subscribe(topic, show)
        with printing:
            print("Consumer Started.", flush=True)
        receiver.run()
