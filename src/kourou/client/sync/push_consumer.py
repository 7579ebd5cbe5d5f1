"""PushConsumer: the sync client over AsyncPushConsumer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Unpack, overload

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.subscription import ExpressionType
from kourou.client.push.consumer_options import ConsumerKeywords, ConsumerOptions
from kourou.client.push.consumer_stats import ConsumerStats
from kourou.client.push.handlers import MessageHandler
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.sync.blocking_portal import BlockingPortal
from kourou.client.sync.sync_client import End, SyncClient
from kourou.errors import ClientStateError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.tags import SUB_ALL


@lists_options(ConsumerOptions, ClientSettings)
class PushConsumer(SyncClient[AsyncPushConsumer]):
    """Calls a handler for every message of the topics it subscribes to.

        def on_message(message: MessageExt) -> None:
            print(message.topic, message.body)

        with PushConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB", on_message)
            consumer.run()

    Handlers run in threads of the consumer, at most `concurrency` at once; an `async def` runs on the event
    loop that all sync clients share, and must not block it. Delivery is at least once, so handlers have to be
    idempotent. A message is consumed when its handler returns None or ConsumeResult.SUCCESS, and delivered
    again later when it returns ConsumeResult.LATER or raises. See AsyncPushConsumer for the rest. Keyword
    arguments are those of ConsumerOptions and ClientSettings.
    """

    def __init__(self, group: str, **keywords: Unpack[ConsumerKeywords]) -> None:
        super().__init__(AsyncPushConsumer(group, **keywords))

    @property
    def group(self) -> str:
        """The consumer group, as it was given."""
        return self._client.group

    @property
    def options(self) -> ConsumerOptions:
        """The options of this consumer."""
        return self._client.options

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._client.client_id

    # -- subscriptions ---------------------------------------------------------------------------

    @overload
    def subscribe(
        self, topic: str, handler: MessageHandler, /, *, expression_type: ExpressionType = ...
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: str,
        expression: str,
        handler: MessageHandler,
        *,
        expression_type: ExpressionType = ...,
    ) -> None: ...
    @overload
    def subscribe(
        self,
        topic: str,
        expression: str = ...,
        *,
        handler: MessageHandler,
        expression_type: ExpressionType = ...,
    ) -> None: ...
    def subscribe(
        self,
        topic: str,
        expression: str | MessageHandler = SUB_ALL,
        handler: MessageHandler | None = None,
        *,
        expression_type: ExpressionType = "TAG",
    ) -> None:
        """Call `handler` for the messages of `topic` that `expression` selects.

        `expression` lists tags (`TagA || TagB`), with `expression_type="SQL92"` it is a condition on
        properties, with "PLUGIN" the name and the parameters of a filter that is installed at the brokers. It
        may be left out: `subscribe("TopicTest", handler)`. All members of a group must have the same
        subscriptions. A second subscription to a topic replaces the first; a different handler is logged.
        """
        self._call_early(
            lambda: self._client._subscribe(topic, expression, handler, expression_type=expression_type)
        )

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; its queues go to other members at once."""
        self._call_early(lambda: self._client.unsubscribe(topic))

    # -- life ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start if necessary, consume until Ctrl-C, SIGTERM, or `stop` in a handler or another thread, then
        stop. The error of a failed consumer is raised."""
        if not self._is_started:
            self.start()
        try:
            with _signals_raise():
                self._wait_stopped()
        except (KeyboardInterrupt, _Terminated):
            return
        finally:
            self.stop()

    def _wait_stopped(self) -> None:
        # A handler may have stopped it before this call.
        try:
            self._call(self._client.wait_stopped)
        except ClientStateError:
            if not self._client.is_stopped:
                raise

    def wait(self) -> None:
        """Wait until the consumer is stopped by a handler or another thread; the error of a failed consumer
        is raised."""
        self._call(self._client.wait)

    def stop(self) -> None:
        """Let handlers finish, within `stop_timeout_ms`, store offsets and disconnect. A second call waits
        for the same stop. In a handler of this consumer the call only begins the stop, which waits for that
        handler too: `run` and `with` return when the stop is complete."""
        super().stop()

    def _is_handler_calling(self) -> bool:
        is_calling = self._client.is_handler_calling
        if is_calling:
            self._client.refuse_threads()
        return is_calling

    def _begin_end(self, portal: BlockingPortal, work: End) -> asyncio.Task[None]:
        self._client.refuse()
        return super()._begin_end(portal, work)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if kind is None:
            self._client.raise_unreported()

    # -- while it runs ---------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop pulling until `resume`; messages already pulled are consumed."""
        self._do(self._client.pause)

    def resume(self) -> None:
        """Continue pulling."""
        self._do(self._client.resume)

    def stats(self) -> ConsumerStats:
        """Counters of consumed messages, and of pulled ones that are not consumed yet."""
        return self._do(self._client.stats)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues assigned to this consumer now, including those of the retry topic. With `mode="pop"`: a
        queue with the id -1 for all queues of a broker."""
        return self._do(lambda: self._client.queues)


class _Terminated(BaseException):
    """SIGTERM was received; like KeyboardInterrupt, it ends a wait at once."""


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Inside the block SIGTERM raises _Terminated. Only in the main thread, where Python handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        # None: a handler that was not installed from Python, and cannot be restored from it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
