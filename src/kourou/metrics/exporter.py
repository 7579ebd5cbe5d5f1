"""rocketmq-exporter's families, from facts about brokers, topics, groups and clients.

A broker fills in the facts from its tables (broker/metrics/exporter.py), a tool from the responses of a
cluster (admin/exporter.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kourou.metrics import exporter_names as names
from kourou.metrics.families import Family, Metric, Sample

_RETRY: Final = "%RETRY%"
_DLQ: Final = "%DLQ%"
_RATE_KEYS: Final = {names.BROKER_TPS: "putTps", names.BROKER_QPS: names.TRANSFERRED}
_TRANSFERRED_4: Final = "getTransferedTps"
_MINUTE: Final = 1


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker and its runtime information. `log_behind_bytes`: how far a slave is behind its master."""

    cluster: str
    broker: str
    address: str
    runtime: Mapping[str, str]
    log_behind_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic of a broker: where its queues end, added up, and messages and bytes stored per second. `kept`
    messages have not expired."""

    cluster: str
    broker: str
    topic: str
    offset: int
    kept: int
    put_tps: float
    put_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ProgressFacts:
    """A group in a topic of a broker. `latency_ms`: the age of the oldest message that is not consumed."""

    cluster: str
    broker: str
    topic: str
    group: str
    offset: int
    lag: int
    latency_ms: int
    get_tps: float
    get_bytes_per_s: float
    send_backs: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The connected consumers of a group, by the addresses of both ends."""

    is_broadcasting: bool = False
    members: Sequence[tuple[str, str]] = ()


class ConsumeNumbers(Protocol):
    """What a consumer reports of one topic (protocol/bodies/consumer_calls.py)."""

    pull_rt: float
    pull_tps: float
    consume_rt: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_msgs: int


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What a consumer reports of one topic."""

    address: str
    client_id: str
    group: str
    topic: str
    numbers: ConsumeNumbers


@dataclass(slots=True)
class ExporterFacts:
    """All that the families are made of. `producers`: connected ones, by cluster, broker and group."""

    brokers: list[BrokerFacts] = field(default_factory=list)
    topics: list[TopicFacts] = field(default_factory=list)
    progress: list[ProgressFacts] = field(default_factory=list)
    groups: dict[str, GroupFacts] = field(default_factory=dict)
    producers: dict[tuple[str, str, str], int] = field(default_factory=dict)
    clients: list[ClientFacts] = field(default_factory=list)


def exporter_families(facts: ExporterFacts) -> Iterator[Family]:
    """The families, those of brokers first."""
    yield from _brokers(facts.brokers)
    yield names.PRODUCER_COUNT.family(list(facts.producers.items()))
    yield from _topics(facts.topics)
    yield from _groups(facts)
    yield from _progress(facts.progress)
    yield from _clients(facts.clients)


def _brokers(brokers: Sequence[BrokerFacts]) -> Iterator[Family]:
    for metric, key in _RATE_KEYS.items():
        yield metric.family([(_broker(each), _rate(_text(each.runtime, key))) for each in brokers])
    yield names.COMMITLOG_DIFF.family([(_broker(each), each.log_behind_bytes) for each in brokers])
    for metric, key, read in names.RUNTIME:
        samples: list[Sample] = []
        for each in brokers:
            value = read(_text(each.runtime, key))
            if value is not None:
                samples.append((_runtime_labels(each), value))
        yield metric.family(samples)


def _broker(facts: BrokerFacts) -> tuple[str, str, str]:
    return facts.cluster, facts.address, facts.broker


def _runtime_labels(facts: BrokerFacts) -> tuple[str, ...]:
    runtime = facts.runtime
    version = (runtime.get("brokerVersionDesc", ""), runtime.get("bootTimestamp", ""))
    return facts.cluster, facts.address, facts.broker, *version, runtime.get("brokerVersion", "")


def _text(runtime: Mapping[str, str], key: str) -> str:
    text = runtime.get(key, "")
    return text or runtime.get(_TRANSFERRED_4, "") if key == names.TRANSFERRED else text


def _rate(text: str) -> float:
    """Over a minute, or over the longest time that there is."""
    words = text.split()[: _MINUTE + 1]
    return (names.read_number(words[-1]) or 0.0) if words else 0.0


def _topics(topics: Sequence[TopicFacts]) -> Iterator[Family]:
    plain = [each for each in topics if not each.topic.startswith((_RETRY, _DLQ))]
    yield names.PRODUCER_TPS.family([(_topic(each), each.put_tps) for each in plain])
    yield names.PRODUCER_SIZE.family([(_topic(each), each.put_bytes_per_s) for each in plain])
    yield names.PRODUCER_OFFSET.family([(_topic(each), each.offset) for each in plain])
    yield names.RETRY_OFFSET.family(
        [(_topic(each), each.offset) for each in topics if each.topic.startswith(_RETRY)]
    )
    yield names.DLQ_OFFSET.family(
        [
            ((each.cluster, each.broker, each.topic.removeprefix(_DLQ)), each.offset)
            for each in topics
            if each.topic.startswith(_DLQ)
        ]
    )


def _topic(facts: TopicFacts) -> tuple[str, str, str]:
    return facts.cluster, facts.broker, facts.topic


def _groups(facts: ExporterFacts) -> Iterator[Family]:
    diffs: dict[Metric, dict[tuple[str, str], int]] = {
        metric: {} for metric in (names.GROUP_DIFF, names.GROUP_RETRY_DIFF, names.GROUP_DLQ_DIFF)
    }
    for each in facts.progress:
        table = diffs[names.GROUP_RETRY_DIFF if each.topic.startswith(_RETRY) else names.GROUP_DIFF]
        key = each.group, each.topic
        table[key] = table.get(key, 0) + each.lag
    _add_kept(diffs[names.GROUP_DLQ_DIFF], facts.topics, _DLQ)
    # A group that has not begun with its retry topic.
    begun = {each.topic for each in facts.progress}
    _add_kept(
        diffs[names.GROUP_RETRY_DIFF], [each for each in facts.topics if each.topic not in begun], _RETRY
    )
    for metric, diff in diffs.items():
        yield metric.family(
            [((*key, *_members(facts.groups.get(key[0]))), value) for key, value in diff.items()]
        )
    yield names.GROUP_COUNT.family(
        [((*member, group), 1) for group, found in facts.groups.items() for member in found.members]
    )


def _add_kept(diff: dict[tuple[str, str], int], topics: Iterable[TopicFacts], prefix: str) -> None:
    """Add the messages of topics that belong to one group each."""
    for each in topics:
        if each.topic.startswith(prefix):
            key = each.topic.removeprefix(prefix), each.topic
            diff[key] = diff.get(key, 0) + each.kept


def _members(group: GroupFacts | None) -> tuple[str, str]:
    """How many are online, and the number of Apache's message model."""
    if group is None:
        return "0", "1"
    return str(len(group.members)), "0" if group.is_broadcasting else "1"


def _progress(progress: Sequence[ProgressFacts]) -> Iterator[Family]:
    labels = [(each.cluster, each.broker, each.topic, each.group) for each in progress]
    columns: list[tuple[Metric, list[float]]] = [
        (names.CONSUMER_TPS, [each.get_tps for each in progress]),
        (names.CONSUME_TPS, [each.get_tps for each in progress]),
        (names.CONSUMER_SIZE, [each.get_bytes_per_s for each in progress]),
        (names.CONSUMER_OFFSET, [each.offset for each in progress]),
        (names.CONSUME_TOTAL, [each.offset for each in progress]),
        (names.SEND_BACK, [each.send_backs for each in progress]),
        (names.LATENCY, [each.latency_ms for each in progress]),
        (names.ACCUMULATION, [each.lag for each in progress]),
    ]
    for metric, values in columns:
        yield metric.family(list(zip(labels, values, strict=True)))


def _clients(clients: Sequence[ClientFacts]) -> Iterator[Family]:
    labels = [(each.address, each.client_id, each.group, each.topic) for each in clients]
    columns: list[tuple[Metric, list[float]]] = [
        (names.CLIENT_FAILED, [each.numbers.consume_failed_msgs for each in clients]),
        (names.CLIENT_FAILED_TPS, [each.numbers.consume_failed_tps for each in clients]),
        (names.CLIENT_OK_TPS, [each.numbers.consume_ok_tps for each in clients]),
        (names.CLIENT_RT, [each.numbers.consume_rt for each in clients]),
        (names.CLIENT_PULL_RT, [each.numbers.pull_rt for each in clients]),
        (names.CLIENT_PULL_TPS, [each.numbers.pull_tps for each in clients]),
    ]
    for metric, values in columns:
        yield metric.family(list(zip(labels, values, strict=True)))
