"""PULL_MESSAGE: messages from a queue, at once, when they come, or when they are off the disk.

A pull is answered within its pass if its messages are in memory. If they are not, a thread reads
them. If there are none and the client wants to wait, it waits (long_polling.py). A filter by property
may have to look at many to find few: it does so in steps (filtered_read.py). Of the pulls of one
connection that have to wait for the disk a few are under way at a time (pull_lines.py), and whoever reads
what is old gives way to those who send (read_turns.py).
Not here: who may pull (pull_checks.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from kourou.broker.filtered_read import FilteredRead
from kourou.broker.hooks import PullContext
from kourou.broker.long_polling import Pull
from kourou.broker.member_subscriptions import member_subscription
from kourou.broker.message_filter import (
    MessageFilter,
    PropertyFilter,
    RetryFilter,
    class_filter_refused,
    is_tag_type,
    subscription_filter,
)
from kourou.broker.pull_answer import answer_found, answer_none, answer_reset, pull_code
from kourou.broker.pull_checks import ForbiddenType, PullForbiddenError, answer_forbidden, check_pull
from kourou.broker.pull_lines import PullLines
from kourou.broker.read_turns import ReadTurns
from kourou.broker.record_judge import RecordJudge
from kourou.errors import RequestError
from kourou.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.get_message_result import GetMessageResult, GetMessageStatus
from kourou.transport.dispatcher import answer_failure
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET.value
_SUSPEND: Final = PullSysFlag.SUSPEND.value
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION.value
_CLASS_FILTER: Final = PullSysFlag.CLASS_FILTER.value
_PARSE_FAILED: Final = ResponseCode.SUBSCRIPTION_PARSE_FAILED
_PULL_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND


class PullMessageProcessor:
    """Gives messages to consumers."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._lines = PullLines(services.requests)
        self._find_queue = services.store.queues.find
        self._reader = services.store.reader
        log = services.store.log
        self._turns = ReadTurns(lambda: log.max_phy_offset)

    def processors(self) -> dict[int, Processor]:
        """Who handles which request code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull,
        }

    def lite_pull(self, request: Request) -> None:
        """LITE_PULL_MESSAGE: the same, but it may be switched off."""
        if self._services.config.lite_pull_message_enable:
            self.pull(request)
            return
        remark = f"the broker[{self._services.address}] for lite pull consumer is forbidden"
        answer_forbidden(request, PullForbiddenError(ForbiddenType.BROKER_FORBIDDEN, remark))

    def pull(self, request: Request) -> None:
        """PULL_MESSAGE as a client sent it: it may wait, and its offset may be committed."""
        header = request.header(PullMessageRequestHeader)
        try:
            topic_config, group_config = check_pull(self._services, request, header)
            wanted = self._filter(request, header, group_config)
        except PullForbiddenError as refusal:
            answer_forbidden(request, refusal)
            return
        if header.sys_flag & _COMMIT_OFFSET:
            self._services.offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                request.connection.remote_address,
            )
        pull = Pull(request, header, topic_config, group_config, wanted.codes)
        if wanted.wants is not None:
            pull.judge = self._judge(header, wanted.wants)
        self._serve(pull, may_wait=bool(header.sys_flag & _SUSPEND))

    def resume(self, held: Pull) -> None:
        """Run a pull again that has waited; now it is answered, whatever there is, as soon as the peer
        has taken its other answers."""
        try:
            if held.request.connection.is_write_paused:
                self._lines.run(held.request, partial(self._resume_later, held))
                return
            topic_config, group_config = check_pull(self._services, held.request, held.header)
            pull = Pull(held.request, held.header, topic_config, group_config, held.codes, held.judge)
            self._serve(pull, may_wait=False)
        except PullForbiddenError as refusal:
            answer_forbidden(held.request, refusal)
        except Exception as error:
            answer_failure(held.request, error)

    async def _resume_later(self, held: Pull) -> None:
        self.resume(held)
        await asyncio.sleep(0)  # there may be many, and others have their turn

    # -- filters ---------------------------------------------------------------------------------

    def _filter(
        self, request: Request, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig
    ) -> MessageFilter:
        config = self._services.config
        if header.sys_flag & _CLASS_FILTER:
            raise class_filter_refused(header.topic)
        if header.sys_flag & _SUBSCRIPTION:
            wanted = subscription_filter(
                header.subscription, header.expression_type, property_filter=config.enable_property_filter
            )
        else:
            wanted = self._heartbeat_filter(self._subscription(request, header, group_config))
        if config.filter_support_retry and header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            group = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
            return MessageFilter(None, RetryFilter(self._services.consumers, group))
        return wanted

    def _heartbeat_filter(self, subscription: SubscriptionData) -> MessageFilter:
        try:
            return subscription_filter(
                subscription.sub_string,
                subscription.expression_type,
                property_filter=self._services.config.enable_property_filter,
            )
        except RequestError as error:
            if is_tag_type(subscription.expression_type) or error.response_code != _PARSE_FAILED:
                raise
            # The heartbeat was refused for it, with the same words.
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}",
            ) from error

    def _subscription(
        self, request: Request, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """What heartbeats said of the topic: that of the client itself, else that of its group."""
        group = self._services.consumers.get(header.consumer_group)
        if group is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if not group_config.consume_broadcast_enable and group.message_model == MessageModel.BROADCASTING:
            raise PullForbiddenError(
                ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if subscription.sub_version < header.sub_version:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        own = member_subscription(request.connection, header.consumer_group, header.topic)
        if own is None or _says_the_same(own, subscription):
            return subscription
        if own.sub_version >= header.sub_version:
            return own
        if not is_tag_type(own.expression_type):
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
            )
        return subscription

    # -- serving ---------------------------------------------------------------------------------

    def _serve(self, pull: Pull, *, may_wait: bool) -> None:
        header = pull.header
        queue = self._find_queue(header.topic, header.queue_id)
        reset = self._services.offsets.take_reset(header.topic, header.consumer_group, header.queue_id)
        if reset is not None:
            low, high = (queue.min_queue_offset, queue.max_queue_offset) if queue is not None else (0, 0)
            answer_reset(pull.request, reset, low, high)
            return
        if pull.judge is not None:
            self._serve_filtered(pull, pull.judge, may_wait=may_wait)
            return
        wanted = self._reader.units_wanted(header.max_msg_nums, is_filtered=pull.codes is not None)
        units = b"" if queue is None else queue.read_units_nowait(header.queue_offset, wanted)
        if units is not None and (not self._reader.is_old(units) or self._turns.take_nowait()):
            result = self._read(pull, queue, units)
            if result.is_loaded:
                self._finish(pull, result, may_wait=may_wait)
                return
            result.release()  # in its line a pull keeps no file
        assert queue is not None, "without a queue nothing is read"
        self._lines.run(pull.request, partial(self._serve_cold, pull, queue, wanted))

    def _finish(self, pull: Pull, result: GetMessageResult, *, may_wait: bool) -> None:
        if not (may_wait and self._hold(pull, result)):
            self._answer(pull, result)

    def _read(self, pull: Pull, queue: ConsumeQueue | None, units: bytes) -> GetMessageResult:
        header = pull.header
        return self._reader.get_message(
            queue,
            header.queue_offset,
            header.max_msg_nums,
            max_bytes=header.max_msg_bytes,
            tags_filter=None if pull.codes is None else pull.codes.__contains__,
            units=units,
        )

    async def _serve_cold(self, pull: Pull, queue: ConsumeQueue, wanted: int) -> None:
        """Have the queue's units read first; what they point to may be on disk too."""
        await self._turns.wait()
        began_s = perf_counter()
        queue_offset = pull.header.queue_offset
        units = queue.read_units_nowait(queue_offset, wanted)
        if units is None:
            units = await self._services.in_disk_thread(queue.read_units, queue_offset, wanted)
        await self._load_and_answer(pull, self._read(pull, queue, units))
        # Those from memory take no millisecond, which is what this is counted in.
        self._services.stats.get_latency((perf_counter() - began_s) * 1000)

    def _judge(self, header: PullMessageRequestHeader, wants: PropertyFilter) -> RecordJudge:
        store = self._services.store
        limit = store.config.max_transfer_bytes
        return RecordJudge(store.log, wants, max_bytes=min(header.max_msg_bytes or limit, limit))

    def _serve_filtered(self, pull: Pull, judge: RecordJudge, *, may_wait: bool) -> None:
        judge.rest()
        read = FilteredRead(self._services, pull, judge)
        read.step()
        result = read.result
        if read.is_done and result is not None and result.is_loaded:
            self._finish(pull, result, may_wait=may_wait)
            return
        if result is not None and not result.is_loaded:  # in its line a pull keeps no file
            result.release()
            judge.rest()
            read = FilteredRead(self._services, pull, judge)
        self._lines.run(pull.request, partial(self._read_on, pull, read))

    async def _read_on(self, pull: Pull, read: FilteredRead) -> None:
        try:
            while not read.is_done and not pull.request.connection.closed:
                await read.wait()
        except BaseException:
            if read.result is not None:
                read.result.release()
            raise
        if read.result is not None:
            await self._load_and_answer(pull, read.result)

    async def _load_and_answer(self, pull: Pull, result: GetMessageResult) -> None:
        connection = pull.request.connection
        try:
            if not result.is_loaded and not connection.closed:
                await self._services.in_disk_thread(result.load)
        finally:
            result.release()
        await connection.wait_writable()
        if not connection.closed:
            self._answer(pull, result)

    def _hold(self, pull: Pull, result: GetMessageResult) -> bool:
        """Let the pull wait if there is nothing yet; False when it has to be answered."""
        if pull_code(result.status, pull.header.queue_offset) != _PULL_NOT_FOUND:
            return False
        config = self._services.config
        timeout_ms = pull.header.suspend_timeout_millis
        if not config.long_polling_enable:
            timeout_ms = config.short_polling_time_mills
        return self._services.holds.hold(pull, max(0, timeout_ms))

    def _answer(self, pull: Pull, result: GetMessageResult) -> None:
        broker_id = self._suggested_broker(pull.group_config, result)
        header, topic_sys_flag = pull.header, pull.topic_config.topic_sys_flag
        if result.status is not GetMessageStatus.FOUND:
            code = pull_code(result.status, header.queue_offset)
            answer_none(pull.request, result, code, broker_id, topic_sys_flag)
            self._services.stats.get_missed()
            return
        if self._services.hooks.after_pull:
            self._call_hooks(pull, result)
        answer_found(pull.request, result, broker_id, topic_sys_flag)
        self._services.offsets.commit_pull(
            header.consumer_group, header.topic, header.queue_id, result.next_begin_offset
        )
        self._services.stats.group_get(
            header.consumer_group, header.topic, result.message_count, result.size_bytes
        )
        self._services.stats.broker_get(result.message_count)

    def _suggested_broker(self, group_config: SubscriptionGroupConfig, result: GetMessageResult) -> int:
        """Which broker the client should ask next: a slave, for what is no longer in memory here."""
        if not self._services.config.slave_read_enable:
            return 0
        store = self._services.store
        behind_bytes = store.log.max_phy_offset - result.last_phy_offset
        is_slow = result.last_phy_offset and behind_bytes > store.config.read_window_bytes
        return group_config.which_broker_when_consume_slowly if is_slow else group_config.broker_id

    def _call_hooks(self, pull: Pull, result: GetMessageResult) -> None:
        header = pull.header
        context = PullContext(
            header.topic,
            header.queue_id,
            header.consumer_group,
            header.queue_offset,
            result.message_count,
            result.size_bytes,
            pull.request.connection.remote_address,
        )
        self._services.hooks.call(self._services.hooks.after_pull, context)


def _says_the_same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return one.sub_string == other.sub_string and one.expression_type == other.expression_type
