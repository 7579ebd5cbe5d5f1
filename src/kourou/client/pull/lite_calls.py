"""LiteCalls: what brokers ask of a lite pull consumer, and how it describes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from kourou.client.core.group_calls import GroupCalls
from kourou.client.pull.lite_engine import LiteEngine
from kourou.client.pull.lite_pull_options import LitePullOptions
from kourou.client.pull.lite_queue import LiteQueue
from kourou.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumeType,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)
from kourou.protocol.versions import CURRENT_VERSION, version_desc


class LiteCalls(GroupCalls[LiteEngine]):
    """Answers for one lite pull consumer."""

    def __init__(
        self,
        group: str,
        options: LitePullOptions,
        engine: Callable[[], LiteEngine | None],
        subscriptions: Callable[[], list[SubscriptionData]],
    ) -> None:
        super().__init__(group, engine)
        self._options = options
        self._subscriptions = subscriptions

    def _offsets_of(self, engine: LiteEngine) -> Mapping[MessageQueue, int]:
        return {lite.queue: lite.done_offset for lite in engine.progress() if lite.done_offset is not None}

    def _info_of(self, engine: LiteEngine, *, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties=self._properties(engine),
            subscription_set=self._subscriptions(),
            mq_table={lite.queue: _described(lite) for lite in engine.progress()},
        )

    def _properties(self, engine: LiteEngine) -> dict[str, str]:
        """Every setting as text; mqadmin fails without some of the PROP_ entries."""
        settings = {field.name: str(getattr(self._options, field.name)) for field in fields(self._options)}
        return settings | {
            "consumerGroup": self._group,
            "PROP_NAMESERVER_ADDR": "".join(f"{each};" for each in engine.instance.namesrvs.addresses),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
            "PROP_CLIENT_VERSION": version_desc(CURRENT_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(engine.started_ms),
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "0",
        }


def _described(lite: LiteQueue) -> ProcessQueueInfo:
    return ProcessQueueInfo(
        commit_offset=-1 if lite.done_offset is None else lite.done_offset,
        cached_msg_count=lite.count,
        cached_msg_size_in_mib=lite.size_bytes >> 20,
        dropped=lite.is_dropped,
    )
