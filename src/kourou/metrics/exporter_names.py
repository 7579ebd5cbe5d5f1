"""The metrics of Apache's rocketmq-exporter: names and labels as its dashboards ask for them. All are gauges,
also those whose names say otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kourou.metrics.families import Kind, Metric

_TOPIC: Final = ("cluster", "broker", "topic")
_GROUP: Final = ("cluster", "broker", "group")
_TOPIC_GROUP: Final = ("cluster", "broker", "topic", "group")
_BROKER: Final = ("cluster", "brokerIP", "broker")
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_CLIENT: Final = ("clientAddr", "clientId", "group", "topic")
RUNTIME_LABELS: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")


def _gauge(name: str, help_text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"rocketmq_{name}", Kind.GAUGE, help_text, labels)


BROKER_TPS: Final = _gauge("broker_tps", "Messages stored per second, over a minute.", _BROKER)
BROKER_QPS: Final = _gauge("broker_qps", "Messages delivered per second, over a minute.", _BROKER)
COMMITLOG_DIFF: Final = _gauge(
    "broker_commitlog_diff", "Bytes of the log by which a slave is behind; 0 for a master.", _BROKER
)
PRODUCER_TPS: Final = _gauge("producer_tps", "Messages stored per second, over a minute.", _TOPIC)
PRODUCER_SIZE: Final = _gauge("producer_message_size", "Bytes stored per second, over a minute.", _TOPIC)
PRODUCER_OFFSET: Final = _gauge("producer_offset", "The ends of the queues, added up.", _TOPIC)
RETRY_OFFSET: Final = _gauge("topic_retry_offset", "The same of retry topics.", _TOPIC)
DLQ_OFFSET: Final = _gauge("topic_dlq_offset", "The same of the dead letters of a group.", _GROUP)
PRODUCER_COUNT: Final = _gauge("producer_count", "Connected producers of a group.", _GROUP)
CONSUMER_TPS: Final = _gauge("consumer_tps", "Messages delivered per second, over a minute.", _TOPIC_GROUP)
CONSUMER_SIZE: Final = _gauge(
    "consumer_message_size", "Bytes delivered per second, over a minute.", _TOPIC_GROUP
)
CONSUMER_OFFSET: Final = _gauge("consumer_offset", "The offsets of a group, added up.", _TOPIC_GROUP)
CONSUME_TPS: Final = _gauge("group_consume_tps", "The same as rocketmq_consumer_tps.", _TOPIC_GROUP)
CONSUME_TOTAL: Final = _gauge(
    "group_consume_total_offset", "The same as rocketmq_consumer_offset.", _TOPIC_GROUP
)
SEND_BACK: Final = _gauge("send_back_nums", "Messages sent back for retry, in a minute.", _TOPIC_GROUP)
LATENCY: Final = _gauge(
    "group_get_latency_by_storetime",
    "The age of the oldest message that is not consumed, in ms; 0 if there is none.",
    _TOPIC_GROUP,
)
ACCUMULATION: Final = _gauge(
    "message_accumulation",
    "Messages that are stored and not consumed; public boards query it, the exporter does not have it.",
    _TOPIC_GROUP,
)
GROUP_DIFF: Final = _gauge("group_diff", "Messages that are stored and not consumed.", _DIFF)
GROUP_RETRY_DIFF: Final = _gauge("group_retrydiff", "The same of a group's retry topic.", _DIFF)
GROUP_DLQ_DIFF: Final = _gauge("group_dlqdiff", "The dead letters of a group.", _DIFF)
GROUP_COUNT: Final = _gauge("group_count", "1 for each connected consumer.", ("caddr", "localaddr", "group"))
CLIENT_FAILED: Final = _gauge("client_consume_fail_msg_count", "Messages that failed in an hour.", _CLIENT)
CLIENT_FAILED_TPS: Final = _gauge("client_consume_fail_msg_tps", "Messages that fail per second.", _CLIENT)
CLIENT_OK_TPS: Final = _gauge("client_consume_ok_msg_tps", "Messages consumed per second.", _CLIENT)
CLIENT_RT: Final = _gauge("client_consume_rt", "Time of a handler, in ms.", _CLIENT)
CLIENT_PULL_RT: Final = _gauge("client_consumer_pull_rt", "Time of a pull, in ms.", _CLIENT)
CLIENT_PULL_TPS: Final = _gauge("client_consumer_pull_tps", "Messages pulled per second.", _CLIENT)


# -- runtime information -----------------------------------------------------------------------------


class Runtime(NamedTuple):
    """A metric that comes from one key of a broker's runtime information."""

    metric: Metric
    key: str
    read: Callable[[str], float | None]


def read_number(text: str) -> float | None:
    """A number; None if it is none.

    >>> read_number("12"), read_number("0.5"), read_number("?")
    (12, 0.5, None)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def read_bytes(text: str) -> float | None:
    """A size with its unit, in bytes.

    >>> read_bytes("249 B"), read_bytes("1.5 KiB")
    (249.0, 1536.0)
    """
    number_text, _, unit = text.strip().partition(" ")
    number = read_number(number_text)
    power = "BKMGTPE".find(unit[:1] or "B")
    return None if number is None or power < 0 else number * 1024.0**power


def _capacity(name: str) -> Callable[[str], float | None]:
    """One of the sizes of `Total : 1.0 TiB, Free : 20.0 GiB.`"""

    def read(text: str) -> float | None:
        for part in text.rstrip(".").split(","):
            label, _, size = part.partition(":")
            if label.strip() == name:
                return read_bytes(size)
        return None

    return read


def _rate(position: int) -> Callable[[str], float | None]:
    """One of three rates, over 10, 60 and 600 seconds."""

    def read(text: str) -> float | None:
        words = text.split()
        # Apache leaves out those over a time that it has not run for.
        return read_number(words[position]) if position < len(words) else 0.0

    return read


def _times_within(range_name: str) -> Callable[[str], float | None]:
    """How many puts of the minute lie in one range of `[<=0ms]:5 [0~10ms]:7 …`."""

    def read(text: str) -> float | None:
        for word in text.split():
            name, _, count = word.rpartition(":")
            if name == f"[{range_name}]":
                return read_number(count)
        return 0  # in Apache's first minute there are none

    return read


def _runtime(name: str, help_text: str, key: str, read: Callable[[str], float | None]) -> Runtime:
    return Runtime(_gauge(f"brokeruntime_{name}", help_text, RUNTIME_LABELS), key, read)


TRANSFERRED: Final = "getTransferredTps"
"""The key of RocketMQ 5; 4.x spells it with one r."""

_NUMBERS: Final = {
    "msg_put_total_today_now": ("msgPutTotalTodayNow", "Messages stored by now."),
    "msg_gettotal_today_now": ("msgGetTotalTodayNow", "Messages delivered by now."),
    "msg_puttotal_todaymorning": ("msgPutTotalTodayMorning", "Messages stored by this morning."),
    "msg_gettotal_todaymorning": ("msgGetTotalTodayMorning", "Messages delivered by this morning."),
    "msg_puttotal_yesterdaymorning": ("msgPutTotalYesterdayMorning", "Messages stored by yesterday morning."),
    "msg_gettotal_yesterdaymorning": (
        "msgGetTotalYesterdayMorning",
        "Messages delivered by yesterday morning.",
    ),
    "dispatch_behind_bytes": ("dispatchBehindBytes", "Bytes of the log that are in no queue yet."),
    "put_message_size_total": ("putMessageSizeTotal", "Bytes stored since the start."),
    "put_message_average_size": ("putMessageAverageSize", "Bytes of a message, on average."),
    "putmessage_times_total": ("putMessageTimesTotal", "Messages stored since the start."),
    "putmessage_entire_time_max": ("putMessageEntireTimeMax", "The longest time of a put, in ms."),
    "getmessage_entire_time_max": ("getMessageEntireTimeMax", "The longest time of a get, in ms."),
    "put_latency_99": ("putLatency99", "99 percent of puts took less, in ms."),
    "put_latency_999": ("putLatency999", "99.9 percent of puts took less, in ms."),
    "earliest_message_timestamp": ("earliestMessageTimeStamp", "When the oldest message was stored."),
    "start_accept_sendrequest_time": (
        "startAcceptSendRequestTimeStamp",
        "From when on sends are accepted (startAcceptSendRequestTimeStamp).",
    ),
    "commitlog_maxoffset": ("commitLogMaxOffset", "Where the log ends."),
    "commitlog_minoffset": ("commitLogMinOffset", "Where the log begins."),
    "commitlog_disk_ratio": ("commitLogDiskRatio", "The used share of the log's disk."),
    "consumequeue_disk_ratio": ("consumeQueueDiskRatio", "The used share of the queues' disk."),
    "pagecache_lock_time_mills": ("pageCacheLockTimeMills", "How long a put holds the lock of the log."),
    "dispatch_maxbuffer": ("dispatchMaxBuffer", "The fullest buffer between log and queues."),
    "remain_transientstore_buffer_numbs": (
        "remainTransientStoreBufferNumbs",
        "Free buffers between puts and the log.",
    ),
    "send_threadpool_queue_size": ("sendThreadPoolQueueSize", "Sends that wait for a thread."),
    "pull_threadpoolqueue_size": ("pullThreadPoolQueueSize", "Pulls that wait for a thread."),
    "query_threadpoolqueue_size": ("queryThreadPoolQueueSize", "Queries that wait for a thread."),
    "send_threadpoolqueue_capacity": ("sendThreadPoolQueueCapacity", "How many sends may wait."),
    "pull_threadpoolqueue_capacity": ("pullThreadPoolQueueCapacity", "How many pulls may wait."),
    "query_threadpool_queue_capacity": ("queryThreadPoolQueueCapacity", "How many queries may wait."),
    "send_threadpoolqueue_headwait_timemills": (
        "sendThreadPoolQueueHeadWaitTimeMills",
        "For how long the first send has waited, in ms.",
    ),
    "pull_threadpoolqueue_headwait_timemills": (
        "pullThreadPoolQueueHeadWaitTimeMills",
        "For how long the first pull has waited, in ms.",
    ),
    "query_threadpoolqueue_headwait_timemills": (
        "queryThreadPoolQueueHeadWaitTimeMills",
        "For how long the first query has waited, in ms.",
    ),
}
_RATES: Final = {
    "put": ("putTps", "Messages stored"),
    "getfound": ("getFoundTps", "Gets that found messages"),
    "getmiss": ("getMissTps", "Gets that found none"),
    "gettotal": ("getTotalTps", "Gets"),
    "gettransfered": (TRANSFERRED, "Messages delivered"),
}
_PUT_TIMES: Final = {
    "0ms": "<=0ms",
    "0to10ms": "0~10ms",
    "10to50ms": "10~50ms",
    "50to100ms": "50~100ms",
    "100to200ms": "100~200ms",
    "200to500ms": "200~500ms",
    "500to1s": "500ms~1s",
    "1to2s": "1~2s",
    "2to3s": "2~3s",
    "3to4s": "3~4s",
    "4to5s": "4~5s",
    "5to10s": "5~10s",
    "10stomore": "10s~",
}

RUNTIME: Final = (
    *(_runtime(name, text, key, read_number) for name, (key, text) in _NUMBERS.items()),
    *(
        _runtime(f"{name}_tps{window_s}", f"{text} per second, over {window_s} s.", key, _rate(position))
        for name, (key, text) in _RATES.items()
        for position, window_s in enumerate((10, 60, 600))
    ),
    *(
        _runtime(
            f"pmdt_{name}",
            f"Puts of this minute that took {words}.",
            "putMessageDistributeTime",
            _times_within(words),
        )
        for name, words in _PUT_TIMES.items()
    ),
    _runtime(
        "commitlogdir_capacity_total",
        "The size of the log's disk.",
        "commitLogDirCapacity",
        _capacity("Total"),
    ),
    _runtime("commitlogdir_capacity_free", "Its free bytes.", "commitLogDirCapacity", _capacity("Free")),
    _runtime(
        "remain_howmanydata_toflush",
        "Bytes of the log that are not synced.",
        "remainHowManyDataToFlush",
        read_bytes,
    ),
)
