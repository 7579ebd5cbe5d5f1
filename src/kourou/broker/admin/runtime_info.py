"""What GET_BROKER_RUNTIME_INFO tells, under Apache's keys; those that 4.9 and 5.x spell differently
are there in both spellings.

Where Apache counts what waits in a thread pool, ours is 0: requests are served in the commit cycle in which
they are read, none waits for a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.broker.stats.stats_item import Rate
from kourou.protocol.names import (
    COMPILED_KERNEL,
    COMPILED_KERNEL_CURE,
    RMQ_SYS_SCHEDULE_TOPIC,
    STORE_FENCED,
    TIMER_TOPIC,
)
from kourou.protocol.versions import CURRENT_VERSION, version_desc
from kourou.store.disk.files import DiskUsage, Files

if TYPE_CHECKING:
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.settings import KernelStatus, LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.config.broker import BrokerConfig
    from kourou.store.dispatcher import Dispatcher
    from kourou.store.kernel import KernelChoice
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.read.message_lookup import MessageLookup
    from kourou.store.recovery.corrupt_ranges import KnownDamages

# Key prefix, and the configuration key of its capacity.
_POOLS: Final = {
    "send": "sendThreadPoolQueueCapacity",
    "pull": "pullThreadPoolQueueCapacity",
    "query": "queryThreadPoolQueueCapacity",
    "litePull": "litePullThreadPoolQueueCapacity",
    "ack": "ackThreadPoolQueueCapacity",
}
# Apache's number for "as many as you like": there is no pool of buffers between puts and the log.
_NO_BUFFER_POOL: Final = "2147483647"
_UNITS: Final = "KMGTPE"


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What runtime info tells that has to be asked of the disk."""

    log_folders: Mapping[Path, DiskUsage]
    queue_folder: DiskUsage

    @classmethod
    def look(cls, files: Files, log_folders: tuple[Path, ...], queue_folder: Path) -> OnDisk:
        """Ask; in a disk thread."""
        return cls(
            {folder: files.disk_usage(folder) for folder in log_folders}, files.disk_usage(queue_folder)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """What one broker is asked for its runtime info. `timers`: None where there are none."""

    config: LiveConfig
    log: CommitLog
    appender: LogAppender
    dispatcher: Dispatcher
    lookup: MessageLookup
    damages: KnownDamages
    delay_offsets: DelayOffsetManager
    timers: TimerMessages | None
    clock_watch: ClockWatch
    stats: BrokerStatsManager
    kernel: KernelStatus
    more_keys: Callable[[], Mapping[str, str]]

    def table(self, on_disk: OnDisk, earliest_message_ms: int) -> dict[str, str]:
        """All keys. `earliest_message_ms`: when the first message of the log was stored, -1 for none."""
        return {
            **self._broker(earliest_message_ms),
            **self._totals(),
            **self._puts_and_gets(),
            **self._log(),
            **self._damage(),
            **_disks(on_disk),
            **dict(_pools(self.config.current)),
            **dict(self._delay_levels()),
            **self._timer(),
            **_clock(self.clock_watch),
            **_kernel(self.kernel.current),
            **self.more_keys(),
        }

    def _broker(self, earliest_message_ms: int) -> dict[str, str]:
        watch = self.clock_watch
        return {
            "brokerActive": "true",
            "brokerVersion": str(CURRENT_VERSION),
            "brokerVersionDesc": version_desc(CURRENT_VERSION),
            # By the clock as it is set now: with `runtime` it tells the broker's time.
            "bootTimestamp": str(watch.start_ms + watch.stepped_ms),
            "runtime": runtime_text(watch.steady_ms() - watch.start_ms),
            "earliestMessageTimeStamp": str(earliest_message_ms),
            "startAcceptSendRequestTimeStamp": str(self.config.current.start_accept_send_request_time_stamp),
        }

    def _totals(self) -> dict[str, str]:
        stats = self.stats
        return {
            "msgPutTotalYesterdayMorning": str(stats.days.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.days.put_today_morning),
            "msgPutTotalTodayNow": str(stats.user_put_nums),
            "msgGetTotalYesterdayMorning": str(stats.days.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(stats.days.get_today_morning),
            "msgGetTotalTodayNow": str(stats.user_get_nums),
        }

    def _puts_and_gets(self) -> dict[str, str]:
        stats, rates = self.stats, self.stats.rates
        transferred = rates.text(Rate.GET_TRANSFERRED)
        return {
            "putMessageTimesTotal": str(rates.put_nums),
            "putMessageFailedTimes": str(stats.put_failed_times),
            "putMessageSizeTotal": str(stats.put_size_total),
            "putMessageAverageSize": str(stats.put_size_total / max(1, rates.put_nums)),
            "putMessageEntireTimeMax": str(int(stats.put_latencies.max_ms)),
            "putMessageDistributeTime": stats.put_latencies.distribution(),
            "putLatency99": f"{stats.put_latencies.percentile_ms(0.99):.2f}",
            "putLatency999": f"{stats.put_latencies.percentile_ms(0.999):.2f}",
            "getMessageEntireTimeMax": str(int(stats.get_entire_time_max_ms)),
            "putTps": rates.text(Rate.PUT),
            "getFoundTps": rates.text(Rate.GET_FOUND),
            "getMissTps": rates.text(Rate.GET_MISS),
            "getTotalTps": rates.text(Rate.GET_FOUND, Rate.GET_MISS),
            "getTransferedTps": transferred,  # 4.9
            "getTransferredTps": transferred,  # 5.x
        }

    def _log(self) -> dict[str, str]:
        log = self.log
        unflushed_bytes = log.max_phy_offset - log.flushed_phy_offset
        return {
            "commitLogMinOffset": str(log.min_phy_offset),
            "commitLogMaxOffset": str(log.max_phy_offset),
            "dispatchBehindBytes": str(log.max_phy_offset - self.dispatcher.dispatched_phy_offset),
            # Records are dispatched from what was written, through no buffer.
            "dispatchMaxBuffer": "0",
            # Puts are written by the same thread: none is pending.
            "pageCacheLockTimeMills": "0",
            # What is acknowledged is in the page cache at least: nothing waits to be written there.
            "remainHowManyDataToCommit": bytes_text(0),
            "remainHowManyDataToFlush": bytes_text(unflushed_bytes),
            "remainTransientStoreBufferNumbs": _NO_BUFFER_POOL,
            # Ours; Apache's brokers have no such state.
            **({STORE_FENCED: str(self.appender.refusal)} if self.appender.is_fenced else {}),
        }

    def _damage(self) -> dict[str, str]:
        """What is damaged in the store, as far as it was read; not among Apache's keys."""
        damages = self.damages
        return {
            "damagedLogStretches": str(len(damages.damages)),
            "damagedLogBytes": str(damages.damaged_bytes),
            "lostMessages": str(damages.lost_messages),
            "rebuiltQueueUnits": str(damages.rebuilt_units),
            "rebuiltIndexEntries": str(damages.rebuilt_entries),
            "rebuiltTimerWheels": str(self.timers.damage_count if self.timers is not None else 0),
        }

    def _delay_levels(self) -> Iterator[tuple[str, str]]:
        """Of each level what was delivered and what there is."""
        for level, queue_offset in sorted(self.delay_offsets.table.items()):
            high = self.lookup.max_offset_in_queue(RMQ_SYS_SCHEDULE_TOPIC, level - 1)
            yield f"scheduleMessageOffset_{level}", f"{queue_offset},{high}"

    def _timer(self) -> dict[str, str]:
        """How far behind the timers are. Tools read these keys without looking first."""
        timers, read_behind_ms, offset_behind = self.timers, 0, 0
        if timers is not None and not self.config.current.is_slave:  # a slave delivers nothing
            wheel_ms = self.clock_watch.steady_ms() + timers.ahead_ms
            read_behind_ms = max(0, wheel_ms - timers.read_ms - timers.precision_ms)
            offset_behind = self.lookup.max_offset_in_queue(TIMER_TOPIC, 0) - timers.queue_offset
        return {
            "timerReadBehind": str(read_behind_ms),
            "timerOffsetBehind": str(offset_behind),
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }


def _disks(on_disk: OnDisk) -> dict[str, str]:
    usages = on_disk.log_folders
    total_bytes = sum(usage.total_bytes for usage in usages.values())
    free_bytes = sum(usage.usable_bytes for usage in usages.values())
    return {
        # New files go where there is room: the emptiest counts.
        "commitLogDiskRatio": str(min(usage.used_ratio for usage in usages.values())),
        **{f"commitLogDiskRatio_{folder}": str(usage.used_ratio) for folder, usage in usages.items()},
        "consumeQueueDiskRatio": str(on_disk.queue_folder.used_ratio),
        "commitLogDirCapacity": f"Total : {bytes_text(total_bytes)}, Free : {bytes_text(free_bytes)}.",
    }


def _pools(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    capacities = {key.name: str(value) for key, value in config.values()}
    for pool, capacity_key in _POOLS.items():
        yield f"{pool}ThreadPoolQueueSize", "0"
        yield f"{pool}ThreadPoolQueueCapacity", capacities[capacity_key]
        yield f"{pool}ThreadPoolQueueHeadWaitTimeMills", "0"
    yield "EndTransactionQueueSize", "0"
    yield "EndTransactionThreadPoolQueueCapacity", capacities["endTransactionPoolQueueCapacity"]


def _clock(watch: ClockWatch) -> dict[str, str]:
    """Steps of the wall clock since the start, or found at it. Kourou's own keys; `doctor` reads them."""
    step = watch.last_step
    return {
        "clockSteps": str(watch.step_count),
        "lastClockStepMs": str(step.ms if step is not None else 0),
        "lastClockStepTimestamp": str(step.wall_ms if step is not None else 0),
    }


def _kernel(choice: KernelChoice) -> dict[str, str]:
    """Whether the compiled kernel is in use. Kourou's own keys; `doctor` reads them."""
    return {COMPILED_KERNEL: choice.status, **({COMPILED_KERNEL_CURE: choice.cure} if choice.cure else {})}


def runtime_text(elapsed_ms: int) -> str:
    """How long a broker has been running, in Apache's words."""
    minutes, seconds = divmod(max(0, elapsed_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def bytes_text(size_bytes: int) -> str:
    """A size for people, in Apache's form: `249 B`, `1.9 KiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = 1
    while size_bytes >= 1024 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{size_bytes / 1024**power:.1f} {_UNITS[power - 1]}iB"
