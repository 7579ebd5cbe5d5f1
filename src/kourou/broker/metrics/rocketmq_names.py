"""The metrics of RocketMQ 5.5's brokers: names, labels and units exactly as scraped from one.

Those of POP alone are missing (docs/compatibility.md). Every sample also has NODE_LABELS.
"""

from __future__ import annotations

from typing import Final

from kourou.metrics.families import Kind, Metric

NODE_LABELS: Final = ("cluster", "node_type", "node_id", "otel_scope_name")
SCOPE_NAME: Final = "broker-meter"

SIZE_BOUNDS: Final = (1024.0, 4096.0, 524288.0, 1048576.0, 2097152.0, 4194304.0)

_IN: Final = ("topic", "message_type", "is_system")
_OUT: Final = ("topic", "consumer_group", "is_system")
_LAG: Final = ("topic", "consumer_group", "is_system", "is_retry")
_CLIENT: Final = ("language", "version", "protocol_type")
_STORAGE: Final = ("storage_type", "storage_medium")
LOCAL_DISK: Final = ("local", "disk")

# -- the broker ------------------------------------------------------------------------------------

BROKER_PERMISSION: Final = Metric(
    "rocketmq_broker_permission", Kind.GAUGE, "brokerPermission: 6 read and write, 4 read only, 2 write only."
)
TOPIC_NUMBER: Final = Metric("rocketmq_topic_number", Kind.GAUGE, "Topics, system topics included.")
CONSUMER_GROUP_NUMBER: Final = Metric("rocketmq_consumer_group_number", Kind.GAUGE, "Subscription groups.")
PROCESSOR_WATERMARK: Final = Metric(
    "rocketmq_processor_watermark",
    Kind.GAUGE,
    "Requests that wait: of `send` those that wait for the disk or slaves; others are served as they come.",
    ("processor",),
)

# -- storage ---------------------------------------------------------------------------------------

STORAGE_SIZE: Final = Metric(
    "rocketmq_storage_size_bytes", Kind.GAUGE, "Used bytes of the store's file system.", _STORAGE
)
FLUSH_BEHIND: Final = Metric(
    "rocketmq_storage_flush_behind_bytes",
    Kind.GAUGE,
    "Bytes of the log that are not synced to disk.",
    _STORAGE,
)
DISPATCH_BEHIND: Final = Metric(
    "rocketmq_storage_dispatch_behind_bytes",
    Kind.GAUGE,
    "Bytes of the log that are in no queue yet.",
    _STORAGE,
)
RESERVE_TIME: Final = Metric(
    "rocketmq_storage_message_reserve_time_milliseconds",
    Kind.GAUGE,
    "The age of the oldest message of the log.",
    _STORAGE,
)

# -- messages --------------------------------------------------------------------------------------

MESSAGES_IN: Final = Metric("rocketmq_messages_in_total", Kind.COUNTER, "Messages that were stored.", _IN)
THROUGHPUT_IN: Final = Metric(
    "rocketmq_throughput_in_total", Kind.COUNTER, "Bytes of the log that they take.", _IN
)
MESSAGE_SIZE: Final = Metric(
    "rocketmq_message_size", Kind.HISTOGRAM, "Bytes of the log that each message takes.", _IN
)
MESSAGES_OUT: Final = Metric(
    "rocketmq_messages_out_total", Kind.COUNTER, "Messages that were delivered to consumers.", _OUT
)
THROUGHPUT_OUT: Final = Metric("rocketmq_throughput_out_total", Kind.COUNTER, "Their bytes.", _OUT)
SEND_TO_DLQ: Final = Metric(
    "rocketmq_send_to_dlq_messages_total", Kind.COUNTER, "Messages that became dead letters.", _OUT
)

# -- lag -------------------------------------------------------------------------------------------

LAG_MESSAGES: Final = Metric(
    "rocketmq_consumer_lag_messages", Kind.GAUGE, "Messages that are stored and not consumed.", _LAG
)
LAG_LATENCY: Final = Metric(
    "rocketmq_consumer_lag_latency_milliseconds",
    Kind.GAUGE,
    "The age of the oldest message that is not consumed; 0 if there is none.",
    _LAG,
)
INFLIGHT_MESSAGES: Final = Metric(
    "rocketmq_consumer_inflight_messages", Kind.GAUGE, "Messages that are delivered and not consumed.", _LAG
)
QUEUEING_LATENCY: Final = Metric(
    "rocketmq_consumer_queueing_latency_milliseconds",
    Kind.GAUGE,
    "The age of the oldest message that is not delivered; 0 if there is none.",
    _LAG,
)
READY_MESSAGES: Final = Metric(
    "rocketmq_consumer_ready_messages", Kind.GAUGE, "Messages that are stored and not delivered.", _LAG
)

# -- clients and requests --------------------------------------------------------------------------

CONSUMER_CONNECTIONS: Final = Metric(
    "rocketmq_consumer_connections",
    Kind.GAUGE,
    "Connected consumers.",
    ("consumer_group", *_CLIENT, "consume_mode", "is_system"),
)
PRODUCER_CONNECTIONS: Final = Metric(
    "rocketmq_producer_connections", Kind.GAUGE, "Connected producers.", _CLIENT
)
RPC_LATENCY: Final = Metric(
    "rocketmq_rpc_latency_milliseconds",
    Kind.HISTOGRAM,
    "From the arrival of a request to its response.",
    ("request_code", "response_code", "is_long_polling", "result", "protocol_type"),
)

# -- delayed messages and timers -------------------------------------------------------------------

DELAY_LATENCY: Final = Metric(
    "rocketmq_delay_message_latency_seconds",
    Kind.HISTOGRAM,
    "For how long messages are to be delayed.",
    ("topic", *_STORAGE),
)
TIMER_ENQUEUE_LAG: Final = Metric(
    "rocketmq_timer_enqueue_lag", Kind.GAUGE, "Timer messages that are not on the wheel yet.", _STORAGE
)
TIMER_ENQUEUE_LATENCY: Final = Metric(
    "rocketmq_timer_enqueue_latency_milliseconds",
    Kind.GAUGE,
    "The age of the first of them; 0 if there is none.",
    _STORAGE,
)
TIMER_DEQUEUE_LAG: Final = Metric(
    "rocketmq_timer_dequeue_lag", Kind.GAUGE, "Timer messages that are due and not delivered.", _STORAGE
)
TIMER_DEQUEUE_LATENCY: Final = Metric(
    "rocketmq_timer_dequeue_latency_milliseconds", Kind.GAUGE, "How late the wheel is.", _STORAGE
)
TIMER_ENQUEUE: Final = Metric(
    "rocketmq_timer_enqueue_total", Kind.COUNTER, "Messages put on the wheel.", ("topic", *_STORAGE)
)
TIMER_DEQUEUE: Final = Metric(
    "rocketmq_timer_dequeue_total", Kind.COUNTER, "Messages taken off the wheel.", ("topic", *_STORAGE)
)
TIMING_MESSAGES: Final = Metric(
    "rocketmq_timing_messages", Kind.GAUGE, "Timer messages that wait.", ("topic", *_STORAGE)
)
TIMER_SNAPSHOT: Final = Metric(
    "rocketmq_timer_message_snapshot",
    Kind.GAUGE,
    "Timer messages that are due within `timer_bound_s` seconds, and not within the next lower bound.",
    ("timer_bound_s", *_STORAGE),
)
TIMER_BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14400, 28800, 86400)

# -- transactions ----------------------------------------------------------------------------------

COMMIT_MESSAGES: Final = Metric(
    "rocketmq_commit_messages_total", Kind.COUNTER, "Transactions that were committed.", ("topic",)
)
ROLLBACK_MESSAGES: Final = Metric(
    "rocketmq_rollback_messages_total", Kind.COUNTER, "Transactions that were rolled back.", ("topic",)
)
HALF_MESSAGES: Final = Metric(
    "rocketmq_half_messages",
    Kind.GAUGE,
    "Transactions that are open. Those from before the start count for RMQ_SYS_TRANS_HALF_TOPIC.",
    ("topic",),
)
FINISH_LATENCY: Final = Metric(
    "rocketmq_finish_message_latency_milliseconds",
    Kind.HISTOGRAM,
    "From the half message to the commit, in seconds: the unit in the name is Apache's mistake.",
    ("topic",),
)
