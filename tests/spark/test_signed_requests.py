"""Credentials and namespace of source and sink: requests are signed, and name what they should."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import CaseInsensitiveDict  # noqa: E402

from kourou.client.core.credentials import SIGNATURE, Credentials  # noqa: E402
from kourou.errors import KourouError  # noqa: E402
from kourou.protocol.codes import RequestCode, ResponseCode  # noqa: E402
from kourou.spark.sink.sink_producer import stop_worker_producers  # noqa: E402
from kourou.spark.source.data_source import RocketmqDataSource  # noqa: E402
from kourou.spark.source.source_client import close_shared_clients  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from kourou.transport.dispatcher import Dispatcher  # noqa: E402
from kourou.transport.request import Request  # noqa: E402
from tests.interop.kit import apache, artifacts  # noqa: E402
from tests.interop.kit.cluster import wait_until  # noqa: E402
from tests.spark.kit.sink_kit import write  # noqa: E402
from tests.spark.kit.source_kit import StreamRun, read_batch, source  # noqa: E402

KEYS = {"accessKey": "spark-user", "secretKey": "spark-secret"}
SIGNER = Credentials("spark-user", "spark-secret")
CHECKED = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
}


@pytest.fixture(autouse=True)
def stopped_clients() -> Iterator[None]:
    yield
    stop_worker_producers()
    close_shared_clients()


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Servers refuse requests of clients that are not signed; the codes of those that were."""
    seen: set[int] = set()
    dispatch = Dispatcher.__call__

    def checked(self: Dispatcher, request: Request) -> None:
        fields = dict(request.ext_fields)
        signature = fields.get(SIGNATURE)
        if request.code in CHECKED:
            SIGNER.sign(fields, request.body)
            if fields[SIGNATURE] != signature:
                request.error(ResponseCode.NO_PERMISSION, f"request {request.code} is not signed")
                return
            seen.add(request.code)
        dispatch(self, request)

    monkeypatch.setattr(Dispatcher, "__call__", checked)
    return seen


def test_all_requests_are_signed(signed: set[int]) -> None:
    with LocalCluster() as mq:
        where = {**KEYS, "namesrv": mq.namesrv}
        write(
            [{"value": b"a"}, {"value": b"b"}, {"value": b"c", "delay_ms": 1}],
            {**where, "topic": "orders", "createTopic": "true"},
        )
        # The broker registers an automatically created topic after the send is acknowledged.
        pattern = {"subscribePattern": "orders", "startingTimestamp": "1"}
        wait_until(lambda: bool(read_batch(source(mq, **pattern, **KEYS))), timeout_s=30, what="the topic")
        batch = read_batch(source(mq, **pattern, **KEYS))
        assert {row["value"] for row in batch} >= {b"a", b"b"}
        run = StreamRun(mq, subscribe="orders", startingOffsets="earliest", groupId="signed", **KEYS)
        assert run.drain()
        with pytest.raises(KourouError, match="is not signed"):
            read_batch(source(mq, subscribe="orders"))
        with pytest.raises(KourouError, match="is not signed"):
            write([{"value": b"a"}], {"namesrv": mq.namesrv, "topic": "orders", "retryTimes": "0"})
    pulls = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
    assert CHECKED - pulls <= signed and signed & pulls


def test_names_in_a_namespace() -> None:
    with LocalCluster() as mq:
        mq.create_topic("shop%orders", queues=1)
        mq.create_topic("orders", queues=1)
        where = {"namesrv": mq.namesrv, "namespace": "shop"}
        write([{"value": b"a"}], {**where, "topic": "orders"})
        assert [message.body for message in mq.messages("shop%orders")] == [b"a"]
        rows = read_batch(source(mq, subscribe="orders", namespace="shop"))
        assert [(row["topic"], row["value"]) for row in rows] == [("orders", b"a")]
        rows = read_batch(source(mq, subscribe="shop%orders"))
        assert [(row["topic"], row["value"]) for row in rows] == [("shop%orders", b"a")]
        rows = read_batch(source(mq, subscribePattern="ord.*", namespace="shop"))
        assert [(row["topic"], row["value"]) for row in rows] == [("orders", b"a")]


ACCOUNTS = """\
globalWhiteRemoteAddresses: []
accounts:
- accessKey: spark-user
  secretKey: spark-secret
  admin: true
"""


@pytest.mark.interop
@pytest.mark.slow
def test_an_apache_broker_that_checks(tmp_path: Path) -> None:
    missing = artifacts.missing_tools()
    if missing and os.environ.get("KOUROU_REQUIRE_INTEROP") == "1":
        pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but the suite {missing}")
    if missing:
        pytest.skip(missing)
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    # The file is named from the broker's own folder, which is one below this one.
    option = f"-Drocketmq.acl.plain.file=/../{accounts.name}"
    with apache.start_namesrv("4.9.7", tmp_path) as namesrv:
        broker = apache.start_broker(
            "4.9.7",
            tmp_path,
            [namesrv.address],
            properties={"aclEnable": "true"},
            jvm_options=(*apache.TEST_JVM_OPTIONS, option),
        )
        with broker:
            where = {
                "namesrv": namesrv.address,
                "topic": "orders",
                "retryTimes": "0",
                "createTopic": "true",
            }
            write([{"value": b"a"}, {"value": b"b"}], {**where, **KEYS})
            reading = {"namesrv": namesrv.address, "subscribe": "orders"}
            rows = read_batch(RocketmqDataSource(CaseInsensitiveDict({**reading, **KEYS})))
            assert {row["value"] for row in rows} == {b"a", b"b"}
            with pytest.raises(KourouError):
                read_batch(RocketmqDataSource(CaseInsensitiveDict(reading)))
            with pytest.raises(KourouError):
                write([{"value": b"c"}], {**where, **KEYS, "secretKey": "wrong"})
