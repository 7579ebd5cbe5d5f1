"""The store source over stores that Apache wrote gives what their manifests list; damage is reported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import CaseInsensitiveDict  # noqa: E402

from kourou.errors import ConfigError, DamageError, StoreFormatError  # noqa: E402
from kourou.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic  # noqa: E402
from kourou.spark.source.data_source import RocketmqDataSource  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.golden.stores import VERSIONS, extract_store, manifest  # noqa: E402
from tests.spark.kit.source_kit import ALL, read_batch, schema_of, send  # noqa: E402

EVERYTHING = schema_of(*ALL.names, "offset_msg_id", "phy_offset", "flag", "sys_flag", "store_host")
SOME = schema_of("topic", "queue_id", "queue_offset", "phy_offset", "value")


def store(root: Path | str, **options: Any) -> RocketmqDataSource:
    given = {"store": str(root), **{name: str(value) for name, value in options.items()}}
    return RocketmqDataSource(CaseInsensitiveDict(given))


def in_the_manifests_words(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "queueId": row["queue_id"],
        "queueOffset": row["queue_offset"],
        "msgId": row["msg_id"],
        "offsetMsgId": row["offset_msg_id"],
        "commitLogOffset": row["phy_offset"],
        "bodyLength": len(row["value"]),
        "bodySha256": hashlib.sha256(row["value"]).hexdigest(),
        "tags": row["tags"],
        "keys": row["key"],
        "properties": row["properties"],
        "flag": row["flag"],
        "sysFlag": row["sys_flag"],
        "bornTimestamp": row["born_timestamp"] // 1000,
        "bornHost": row["born_host"],
        "storeTimestamp": row["store_timestamp"] // 1000,
        "storeHost": row["store_host"],
        "reconsumeTimes": row["reconsume_times"],
    }


@pytest.fixture(scope="module", params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A store that Apache wrote."""
    version = str(request.param)
    return version, extract_store(version, tmp_path_factory.mktemp(version))


@pytest.mark.parametrize("min_partitions", [1, 50])
def test_rows_are_those_of_the_manifest(golden: tuple[str, Path], min_partitions: int) -> None:
    version, root = golden
    rows = read_batch(store(root, includeSystemTopics="true", minPartitions=min_partitions), EVERYTHING)
    found = [in_the_manifests_words(row) for row in rows]
    expected = manifest(version)["messages"]
    assert len(expected) > 2_000
    assert found == [{name: message[name] for name in found[0]} for message in expected]


def test_topics_by_name_by_pattern_and_those_that_have_to_be_asked_for(golden: tuple[str, Path]) -> None:
    version, root = golden
    messages = manifest(version)["messages"]

    def found(**options: Any) -> list[int]:
        return [row["phy_offset"] for row in read_batch(store(root, **options), SOME)]

    def expected(topics: set[str]) -> list[int]:
        return [message["commitLogOffset"] for message in messages if message["topic"] in topics]

    topics = {message["topic"] for message in messages}
    inner = {name for name in topics if is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name)}
    assert len(inner) > 5
    assert found() == expected(topics - inner)
    assert found(subscribe="BulkTopic,PlainTopic") == expected({"BulkTopic", "PlainTopic"})
    assert found(subscribePattern="Bin.*Topic") == expected(
        {name for name in topics if name.startswith("Bin") and name.endswith("Topic")}
    )
    assert found(subscribe="RMQ_SYS_TRANS_HALF_TOPIC,SCHEDULE_TOPIC_XXXX") == expected(
        {"RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"}
    )


def test_by_time_and_by_tag(golden: tuple[str, Path]) -> None:
    version, root = golden
    messages = [each for each in manifest(version)["messages"] if each["topic"] == "TagTopic"]
    times = sorted({message["storeTimestamp"] for message in messages})
    low, high = times[len(times) // 3], times[-1]
    rows = read_batch(store(root, subscribe="TagTopic", startingTimestamp=low, endingTimestamp=high), SOME)
    assert 0 < len(rows) < len(messages)
    assert [row["phy_offset"] for row in rows] == [
        message["commitLogOffset"] for message in messages if low <= message["storeTimestamp"] < high
    ]
    tag = next(message["tags"] for message in messages if message["tags"])
    tagged = read_batch(store(root, subscribe="TagTopic", subExpression=tag), schema_of("tags"))
    assert tagged == [{"tags": tag}] * sum(message["tags"] == tag for message in messages)


def test_several_stores_by_a_glob(tmp_path: Path) -> None:
    roots = [extract_store("5.5.0", tmp_path / name) for name in ("one", "two")]
    assert len(read_batch(store(tmp_path / "*" / "store", subscribe="BulkTopic"), SOME)) == 2 * 1_760
    assert len(read_batch(store(roots[0], subscribe="BulkTopic"), SOME)) == 1_760
    with pytest.raises(ConfigError, match="no matching directory"):
        read_batch(store(tmp_path / "nope-*"), SOME)
    with pytest.raises(StoreFormatError, match="no such folder"):
        read_batch(store(tmp_path / "nope"), SOME)


# -- our own, running and damaged ------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A store of ours of several files, with 200 messages of topic `orders`."""
    with LocalCluster(store=tmp_path, mapped_file_size_commit_log=64 * 1024) as mq:
        mq.create_topic("orders", queues=1)
        send(mq, "orders", [b"%4d" % number * 250 for number in range(200)])
        # Files are made in advance: the last one is empty, and the one before it ends in zeros.
        root = next(iter(tmp_path.rglob("commitlog"))).parent
        rows = read_batch(store(root, subscribe="orders"), SOME)
        assert [row["queue_offset"] for row in rows] == list(range(200))
    yield root


def offsets(root: Path, **options: Any) -> list[int]:
    return [row["queue_offset"] for row in read_batch(store(root, subscribe="orders", **options), SOME)]


@pytest.mark.parametrize("batch_bytes", [200, 3_000, 1_000_000])
@pytest.mark.parametrize("min_partitions", [1, 7, 500])
def test_records_across_pieces_and_parts(own: Path, batch_bytes: int, min_partitions: int) -> None:
    assert offsets(own, batchBytes=batch_bytes, minPartitions=min_partitions) == list(range(200))


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_a_body_that_does_not_match_its_crc(own: Path) -> None:
    path = sorted((own / "commitlog").iterdir())[1]
    at = path.read_bytes().find(b" 100 100")
    overwrite(path, at, b"?")
    with pytest.raises(
        DamageError, match=rf"{path.name}: damaged at byte \d+: a body does not match its CRC"
    ):
        offsets(own)
    assert offsets(own, failOnDataLoss="false") == [at for at in range(200) if at != 100]
    assert offsets(own, verifyCrc="false") == list(range(200))


@pytest.mark.parametrize("min_partitions", [1, 40])
def test_bytes_that_are_no_record(own: Path, min_partitions: int) -> None:
    path = sorted((own / "commitlog").iterdir())[1]
    at = path.read_bytes().find(b" 100 100")
    overwrite(path, at - 88, bytes(100))  # its head
    with pytest.raises(DamageError, match="no valid record"):
        offsets(own, minPartitions=min_partitions)
    found = offsets(own, failOnDataLoss="false", minPartitions=min_partitions)
    assert found == [at for at in range(200) if at != 100]


def test_a_torn_tail_is_the_end(own: Path) -> None:
    written = [path for path in sorted((own / "commitlog").iterdir()) if any(path.read_bytes()[:100])]
    content = written[-1].read_bytes()
    last = content.rfind(b" 199 199 199")
    overwrite(written[-1], last, bytes(len(content) - last))
    # The body of the last message is zeros now, and its length does not reach what followed it.
    assert offsets(own, failOnDataLoss="false") == list(range(199))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets cannot be used with the store source"),
        ({"assign": '{"a": [0]}'}, "assign cannot be used with the store source"),
        ({"subExpression": "a > 1", "expressionType": "SQL92"}, "needs a broker"),
    ],
)
def test_options_that_need_a_broker(tmp_path: Path, options: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        store(tmp_path, **options).schema()
