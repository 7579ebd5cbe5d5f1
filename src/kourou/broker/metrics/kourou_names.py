"""The broker's own metrics, prefix `kourou_`. All samples also have cluster, node_type and node_id."""

from __future__ import annotations

from typing import Final

from kourou.metrics.families import Kind, Metric

BUILD_INFO: Final = Metric(
    "kourou_build_info", Kind.GAUGE, "1; the labels tell the versions.", ("version", "python", "protocol")
)
KERNEL: Final = Metric(
    "kourou_kernel_in_use", Kind.GAUGE, "1 while sends and pulls use the compiled kernel, else 0."
)
FENCED: Final = Metric(
    "kourou_store_fenced", Kind.GAUGE, "1 if the store rejects messages after a failed sync, else 0."
)
SEND_LATENCY: Final = Metric(
    "kourou_send_latency_seconds",
    Kind.HISTOGRAM,
    "From the arrival of a message to its acknowledgement, disk and slaves included.",
)
DELIVERY_LATENCY: Final = Metric(
    "kourou_delivery_latency_seconds",
    Kind.HISTOGRAM,
    "From the store timestamp to the delivery to a consumer. The messages of one pull count with the age of "
    "the oldest of them.",
)
PUT_FAILED: Final = Metric("kourou_put_failed_total", Kind.COUNTER, "Messages that could not be stored.")
COMMIT_CYCLES: Final = Metric("kourou_commit_cycles_total", Kind.COUNTER, "Commit cycles with messages.")
COMMIT_CYCLE_MESSAGES: Final = Metric(
    "kourou_commit_cycle_messages", Kind.HISTOGRAM, "Messages of a commit cycle, which share one write."
)
WAITING_MESSAGES: Final = Metric(
    "kourou_waiting_messages", Kind.GAUGE, "Messages whose senders wait for the disk or for slaves."
)
WAITING_BYTES: Final = Metric("kourou_waiting_bytes", Kind.GAUGE, "Their bytes.")
FILTER_MESSAGES: Final = Metric(
    "kourou_filter_messages_total",
    Kind.COUNTER,
    "Messages that installed filters have judged; failed ones are delivered.",
    ("filter", "verdict"),
)
FILTER_FENCED: Final = Metric(
    "kourou_filter_fenced", Kind.GAUGE, "1 while pulls by an installed filter are rejected.", ("filter",)
)
HELD_PULLS: Final = Metric("kourou_held_pulls", Kind.GAUGE, "Pulls that wait for messages (long polling).")
CONNECTIONS: Final = Metric("kourou_connections", Kind.GAUGE, "Open connections of clients and tools.")
QUEUES: Final = Metric("kourou_consume_queues", Kind.GAUGE, "ConsumeQueues of all topics.")
LOG_START: Final = Metric("kourou_commitlog_min_offset_bytes", Kind.GAUGE, "Where the CommitLog begins.")
LOG_END: Final = Metric("kourou_commitlog_max_offset_bytes", Kind.GAUGE, "Where the CommitLog ends.")
DISK_TOTAL: Final = Metric(
    "kourou_disk_total_bytes", Kind.GAUGE, "The size of a folder's file system.", ("folder",)
)
DISK_FREE: Final = Metric("kourou_disk_free_bytes", Kind.GAUGE, "The free bytes of it.", ("folder",))
DISK_USED_RATIO: Final = Metric(
    "kourou_disk_used_ratio",
    Kind.GAUGE,
    "The used share of it, from 0 to 1; diskMaxUsedSpaceRatio is compared with it.",
    ("folder",),
)
DAMAGED_BYTES: Final = Metric("kourou_damaged_log_bytes", Kind.GAUGE, "Known damaged bytes of the log.")
LOST_MESSAGES: Final = Metric("kourou_lost_messages", Kind.GAUGE, "Messages known to be lost to damage.")
CLOCK_STEPS: Final = Metric(
    "kourou_clock_steps_total", Kind.COUNTER, "How often the wall clock was stepped since the start."
)
IDEMPOTENT_PRODUCERS: Final = Metric(
    "kourou_idempotent_producers", Kind.GAUGE, "Idempotent producers whose sequences are known."
)
PRODUCERS_EXPIRED: Final = Metric(
    "kourou_idempotent_producers_expired_total", Kind.COUNTER, "Ids removed since they were not used."
)
PRODUCERS_EVICTED: Final = Metric(
    "kourou_idempotent_producers_evicted_total", Kind.COUNTER, "Ids removed since there were too many."
)
REPEATED_MESSAGES: Final = Metric(
    "kourou_repeated_messages_total", Kind.COUNTER, "Repeats that were answered with their originals."
)
REFUSED_SEQUENCES: Final = Metric(
    "kourou_refused_sequences_total",
    Kind.COUNTER,
    "Messages of idempotent producers that were refused.",
    ("reason",),
)
REFUSED_REQUESTS: Final = Metric(
    "kourou_access_refusals_total",
    Kind.COUNTER,
    "Requests that access control refused; no series without it.",
    ("kind",),
)
ATOMIC_BEGUN: Final = Metric(
    "kourou_atomic_begun_total",
    Kind.COUNTER,
    "Atomic publishes of which the broker got a first part; each broker with parts counts.",
)
ATOMIC_DECIDED: Final = Metric(
    "kourou_atomic_decided_total",
    Kind.COUNTER,
    "Atomic publishes that were decided, counted by their coordinator: committed, rolled_back, or abandoned "
    "by their programs and rolled back by it.",
    ("outcome",),
)
ATOMIC_OPEN: Final = Metric(
    "kourou_atomic_open", Kind.GAUGE, "Atomic publishes of which the broker keeps parts, not yet published."
)
ATOMIC_OLDEST: Final = Metric(
    "kourou_atomic_oldest_open_seconds", Kind.GAUGE, "For how long the oldest of them has been open."
)
ATOMIC_STAGED: Final = Metric("kourou_atomic_staged_bytes", Kind.GAUGE, "The bytes of their parts.")
ATOMIC_UNCONFIRMED: Final = Metric(
    "kourou_atomic_unconfirmed_decisions",
    Kind.GAUGE,
    "Decisions of the broker as coordinator that some other broker has not confirmed.",
)
OVERFLOW_SHARE: Final = Metric(
    "kourou_overflow_share",
    Kind.GAUGE,
    "Of topics with an overflow policy: how much of a limit the backlog of the slowest live group uses; 1 at "
    "the limit.",
    ("topic", "policy"),
)
OVERFLOW_ACTIVE: Final = Metric(
    "kourou_overflow_active",
    Kind.GAUGE,
    "1 while sends to the topic are rejected, or for a minute after messages were dropped, else 0.",
    ("topic", "policy"),
)
OVERFLOW_REJECTED: Final = Metric(
    "kourou_overflow_rejected_total",
    Kind.COUNTER,
    "Sends that were rejected since the backlog of the topic was over its limit.",
    ("topic",),
)
OVERFLOW_DROPPED: Final = Metric(
    "kourou_overflow_dropped_total",
    Kind.COUNTER,
    "Messages that a group does not get since an overflow policy has dropped them; kept over restarts.",
    ("topic", "consumer_group"),
)
OVERFLOW_DEAD_LETTERED: Final = Metric(
    "kourou_overflow_dead_lettered_total",
    Kind.COUNTER,
    "Messages that an overflow policy has put to the dead letters of a group; kept over restarts.",
    ("topic", "consumer_group"),
)
POP_CHECK_POINTS: Final = Metric(
    "kourou_pop_check_points", Kind.GAUGE, "Pops with messages in flight: neither acknowledged nor over."
)
POP_ACKED: Final = Metric("kourou_pop_acked_total", Kind.COUNTER, "Popped messages that were acknowledged.")
POP_LATE_ACKS: Final = Metric(
    "kourou_pop_late_acks_total",
    Kind.COUNTER,
    "Acknowledgements without effect: the invisible time was over, or they came twice.",
)
POP_OVERDUE: Final = Metric(
    "kourou_pop_overdue_total",
    Kind.COUNTER,
    "Messages whose invisible time ended without an acknowledgement: revived (put into a retry topic), "
    "dead_letter, or dropped (the message, its topic or group was gone).",
    ("outcome",),
)
POP_IN_FLIGHT: Final = Metric(
    "kourou_pop_in_flight_messages",
    Kind.GAUGE,
    "Messages that are popped, not in order, and not acknowledged.",
    ("topic", "consumer_group"),
)
SLAVES: Final = Metric("kourou_slaves", Kind.GAUGE, "Slaves that follow this master.")
SLAVE_LAG_BYTES: Final = Metric(
    "kourou_slave_lag_bytes", Kind.GAUGE, "How much of the log a slave has not acknowledged.", ("slave",)
)
SLAVE_LAG_SECONDS: Final = Metric(
    "kourou_slave_lag_seconds", Kind.GAUGE, "For how long a slave has been behind.", ("slave",)
)
QUEUE_LAG: Final = Metric(
    "kourou_consumer_lag_queue_messages",
    Kind.GAUGE,
    "Messages of a queue that are stored and not consumed; only with metricsLagPerQueue.",
    ("topic", "queue_id", "consumer_group"),
)
LAG_AGE: Final = Metric(
    "kourou_consumer_lag_age_seconds", Kind.GAUGE, "How old the numbers of consumer lag are; they are cached."
)
