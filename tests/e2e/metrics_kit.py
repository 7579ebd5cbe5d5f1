"""What tests of metrics share: a scrape, and the names and labels that RocketMQ 5.5 has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

NODE: Final = frozenset({"cluster", "node_type", "node_id", "otel_scope_name"})
_IN: Final = {"topic", "message_type", "is_system"}
_OUT: Final = {"topic", "consumer_group", "is_system"}
_LAG: Final = {*_OUT, "is_retry"}
_CLIENT: Final = {"language", "version", "protocol_type"}
_DISK: Final = {"storage_type", "storage_medium"}

ROCKETMQ_5: Final[Mapping[str, set[str]]] = {
    "rocketmq_broker_permission": set(),
    "rocketmq_topic_number": set(),
    "rocketmq_consumer_group_number": set(),
    "rocketmq_processor_watermark": {"processor"},
    "rocketmq_storage_size_bytes": _DISK,
    "rocketmq_storage_flush_behind_bytes": _DISK,
    "rocketmq_storage_dispatch_behind_bytes": _DISK,
    "rocketmq_storage_message_reserve_time_milliseconds": _DISK,
    "rocketmq_messages_in_total": _IN,
    "rocketmq_throughput_in_total": _IN,
    "rocketmq_message_size": _IN,
    "rocketmq_messages_out_total": _OUT,
    "rocketmq_throughput_out_total": _OUT,
    "rocketmq_send_to_dlq_messages_total": _OUT,
    "rocketmq_consumer_lag_messages": _LAG,
    "rocketmq_consumer_lag_latency_milliseconds": _LAG,
    "rocketmq_consumer_inflight_messages": _LAG,
    "rocketmq_consumer_queueing_latency_milliseconds": _LAG,
    "rocketmq_consumer_ready_messages": _LAG,
    "rocketmq_consumer_connections": {"consumer_group", *_CLIENT, "consume_mode", "is_system"},
    "rocketmq_producer_connections": _CLIENT,
    "rocketmq_rpc_latency_milliseconds": {
        *("request_code", "response_code", "is_long_polling", "result", "protocol_type"),
    },
    "rocketmq_delay_message_latency_seconds": {"topic", *_DISK},
    "rocketmq_timer_enqueue_lag": _DISK,
    "rocketmq_timer_enqueue_latency_milliseconds": _DISK,
    "rocketmq_timer_dequeue_lag": _DISK,
    "rocketmq_timer_dequeue_latency_milliseconds": _DISK,
    "rocketmq_timer_enqueue_total": {"topic", *_DISK},
    "rocketmq_timer_dequeue_total": {"topic", *_DISK},
    "rocketmq_timing_messages": {"topic", *_DISK},
    "rocketmq_timer_message_snapshot": {"timer_bound_s", *_DISK},
    "rocketmq_commit_messages_total": {"topic"},
    "rocketmq_rollback_messages_total": {"topic"},
    "rocketmq_half_messages": {"topic"},
    "rocketmq_finish_message_latency_milliseconds": {"topic"},
}
"""Name to labels beside NODE, as scraped from 5.5.0; those of POP are left out."""


class Scrape:
    """The samples of one text, read by Prometheus' own parser."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in self.families.values():
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    @property
    def names(self) -> set[str]:
        """The names of all metrics as they are declared."""
        return {line.split(" ")[2] for line in self.text.splitlines() if line.startswith("# TYPE ")}

    def value(self, name: str, **labels: str) -> float:
        """The one sample of a name that has these labels, and perhaps others."""
        found = self.values(name, **labels)
        assert len(found) == 1, (name, labels, self._samples.get(name))
        return found[0]

    def values(self, name: str, **labels: str) -> list[float]:
        """All such samples."""
        return [value for own, value in self._samples.get(name, ()) if labels.items() <= own.items()]

    def labels(self, name: str) -> set[frozenset[str]]:
        """The sets of label names that a metric has; without `le` of a histogram."""
        names = (name, f"{name}_count")
        return {frozenset(own) for each in names for own, _ in self._samples.get(each, ())}


def _with(prefix: str, names: str) -> set[str]:
    return {f"{prefix}{name}" for name in names.split()}


_BOARDS: Final = """
broker_tps broker_qps producer_tps producer_message_size producer_offset consumer_tps consumer_message_size
consumer_offset group_diff group_retrydiff group_get_latency_by_storetime message_accumulation
topic_dlq_offset topic_retry_offset client_consume_fail_msg_count client_consume_fail_msg_tps
client_consume_ok_msg_tps client_consume_rt client_consumer_pull_rt client_consumer_pull_tps
"""
_BOARDS_RUNTIME: Final = """
commitlog_disk_ratio consumequeue_disk_ratio commitlog_maxoffset commitlog_minoffset
commitlogdir_capacity_free commitlogdir_capacity_total dispatch_behind_bytes
earliest_message_timestamp msg_gettotal_today_now
msg_gettotal_todaymorning msg_gettotal_yesterdaymorning msg_put_total_today_now msg_puttotal_todaymorning
msg_puttotal_yesterdaymorning getfound_tps10 getmiss_tps10 gettotal_tps10 gettransfered_tps10 put_tps10
put_message_average_size put_message_size_total pmdt_0ms pmdt_0to10ms pmdt_10to50ms pmdt_50to100ms
pmdt_100to200ms pmdt_200to500ms pmdt_500to1s pmdt_1to2s pmdt_2to3s pmdt_3to4s pmdt_4to5s pmdt_5to10s
pmdt_10stomore pull_threadpoolqueue_headwait_timemills query_threadpoolqueue_headwait_timemills
send_threadpoolqueue_headwait_timemills
"""
BOARD_NAMES: Final = frozenset(_with("rocketmq_", _BOARDS) | _with("rocketmq_brokeruntime_", _BOARDS_RUNTIME))
"""What the public Grafana boards of rocketmq-exporter (10477, 14612) query."""
