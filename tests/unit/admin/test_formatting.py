"""The printed forms, as recordings of Apache's tools have them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kourou.admin.messages.message_view import MessageView
from kourou.cli.admin import formatting
from kourou.cli.problems import UsageError
from kourou.client.producer.send_result import SendResult, SendStatus
from kourou.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumeQueueData,
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    MessageQueue,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from tests.golden.mqadmin import VERSIONS, recordings

QUEUE = MessageQueue("Orders", "broker-a", 3)


@pytest.fixture(params=["UTC", "Asia/Shanghai"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_times_are_of_the_local_zone(zone: str) -> None:
    hour = {"UTC": "03", "Asia/Shanghai": "11"}[zone]
    assert formatting.human_time(1794711766062) == f"2026-11-15 {hour}:02:46,062"
    assert formatting.format_time(1794711766062) == f"2026-11-15 {hour}:02:46"
    assert formatting.parse_time(f"2026-11-15#{hour}:02:46:062") == 1794711766062
    assert formatting.parse_time(f"2026-11-15 {hour}:02:46") == 1794711766000
    assert formatting.parse_time(f"2026-11-15 {hour}:02:46,062") == 1794711766062


def test_times_that_are_none() -> None:
    assert formatting.parse_time("1794711766062") == 1794711766062
    assert formatting.parse_time("-1") == -1
    with pytest.raises(UsageError, match="yesterday: not a time"):
        formatting.parse_time("yesterday")


@pytest.mark.parametrize("version", VERSIONS)
def test_topic_config(version: str) -> None:
    config = TopicConfig(topic_name="AdminTopic", read_queue_nums=3, write_queue_nums=2)
    printed = formatting.topic_config(config, is_v4=version.startswith("4"))
    assert recordings(version)["updateTopic"].stdout.splitlines()[-1] == printed


def test_attributes_of_a_topic_are_sorted() -> None:
    config = TopicConfig("T", perm=4, attributes={"b": "2", "a": "1"})
    printed = formatting.topic_config(config)
    assert "perm=R--," in printed
    assert printed.endswith("attributes={a=1, b=2}]")


@pytest.mark.parametrize("version", VERSIONS)
def test_group_config(version: str) -> None:
    config = SubscriptionGroupConfig("CG_admin", retry_queue_nums=2, retry_max_times=5)
    printed = formatting.group_config(config, is_v4=version.startswith("4"))
    assert recordings(version)["updateSubGroup"].stdout.splitlines()[-1] == printed


def test_policies_and_fixed_subscriptions_of_a_group() -> None:
    config = SubscriptionGroupConfig(
        "G",
        group_retry_policy=GroupRetryPolicy(
            GroupRetryPolicyType.EXPONENTIAL,
            ExponentialRetryPolicy(1, 9, 3),
            CustomizedRetryPolicy([5, 6]),
        ),
        subscription_data_set=[SimpleSubscriptionData("T", "TAG", "*", 7)],
    )
    printed = formatting.group_config(config)
    assert (
        "groupRetryPolicy=GroupRetryPolicy{type=EXPONENTIAL, exponentialRetryPolicy=ExponentialRetryPolicy"
        "{initial=1, max=9, multiplier=3}, customizedRetryPolicy=CustomizedRetryPolicy{next=[5, 6]}}"
    ) in printed
    assert (
        "subscriptionDataSet=[SimpleSubscriptionData{topic='T', expressionType='TAG', expression='*', "
        "version=7}], attributes={}}"
    ) in printed


def test_send_result() -> None:
    result = SendResult(SendStatus.SEND_OK, "A1", QUEUE, 12, "B2")
    queue = "MessageQueue [topic=Orders, brokerName=broker-a, queueId=3]"
    form = f"SendResult [sendStatus=SEND_OK, msgId=A1, offsetMsgId=B2, messageQueue={queue}, queueOffset=12"
    assert formatting.send_result(result, is_v4=True) == form + "]"
    assert formatting.send_result(result) == form + ", recallHandle=null]"
    recalled = SendResult(SendStatus.SEND_OK, "A1", QUEUE, 12, "B2", recall_handle="h")
    assert formatting.send_result(recalled) == form + ", recallHandle=h]"


def test_message_ext() -> None:
    view = MessageView(
        topic="Orders",
        broker_name="broker-a",
        queue_id=3,
        queue_offset=7,
        phy_offset=890632,
        store_size=206,
        msg_id="7F00",
        offset_msg_id="7F000001",
        tags="created",
        keys="order-1",
        born_timestamp=1,
        born_host="127.0.0.1:47834",
        store_timestamp=2,
        store_host="127.0.0.1:10911",
        sys_flag=0,
        flag=5,
        body_crc=849440578,
        reconsume_times=0,
        prepared_transaction_offset=0,
        transaction_id=None,
        properties={"TAGS": "created", "KEYS": "order-1"},
        body=b"o\xff",
    )
    assert formatting.message_ext(view) == (
        "MessageExt [brokerName=broker-a, queueId=3, storeSize=206, queueOffset=7, sysFlag=0, "
        "bornTimestamp=1, bornHost=/127.0.0.1:47834, storeTimestamp=2, storeHost=/127.0.0.1:10911, "
        "msgId=7F000001, commitLogOffset=890632, bodyCRC=849440578, reconsumeTimes=0, "
        "preparedTransactionOffset=0, toString()=Message{topic='Orders', flag=5, "
        "properties={KEYS=order-1, TAGS=created}, body=[111, -1], transactionId='null'}]"
    )


def test_what_became_of_a_message() -> None:
    assert formatting.message_track("G", "CONSUMED", None) == (
        "MessageTrack [consumerGroup=G, trackType=CONSUMED, exceptionDesc=null]"
    )
    result = ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS, spent_time_mills=4)
    assert formatting.direct_result(result) in recordings("4.9.7")["queryMsgById-consume"].stdout


def test_unit_of_a_consume_queue() -> None:
    printed = formatting.consume_queue_data(ConsumeQueueData(8657, 239, 2598921))
    assert printed in recordings("5.5.0")["queryCq"].stdout


def test_every_number_that_a_broker_may_answer_is_printed() -> None:
    for timestamp_ms in (-(2**63), -1, 0, 2**63 - 1):
        assert formatting.human_time(timestamp_ms).endswith(f",{timestamp_ms % 1000:03d}")


def test_cut() -> None:
    assert formatting.cut("broker-a", 6) == "broker"
    assert formatting.cut("b", 6) == "b"
