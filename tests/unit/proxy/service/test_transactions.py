"""EndTransaction: which half messages are known, and what brokers answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kourou.errors import ConnectionLostError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from kourou.proxy.http2.call import Handler
from kourou.proxy.service.transactions import Transactions
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    EndTransactionRequest,
    Resource,
    TransactionResolution,
    TransactionSource,
)
from tests.unit.proxy.recorded import ProxyKit, RecordedCall

END = RequestCode.END_TRANSACTION
STORED = SendMessageResponseHeader(msg_id="7F00000100002A9F0000000000000100", queue_id=1, queue_offset=7)


def known(kit: ProxyKit, **options: Any) -> tuple[Transactions, Mapping[str, Handler]]:
    transactions = Transactions(**options)
    transactions.stored("T", "tx", "broker-a", STORED)
    return transactions, transactions.handlers(kit.make)


async def end(kit: ProxyKit, handlers: Mapping[str, Handler], **fields: Any) -> Code:
    request = EndTransactionRequest(
        **{
            "topic": Resource(name="T"),
            "message_id": "m",
            "transaction_id": "tx",
            "resolution": TransactionResolution.COMMIT,
            **fields,
        }
    )
    call = await kit.call(handlers, RecordedCall("EndTransaction", request))
    return Code(call.response.status.code)


@pytest.mark.parametrize(("resolution", "kind"), [("COMMIT", 8), ("ROLLBACK", 12)])
@pytest.mark.parametrize("is_check", [True, False])
async def test_the_request_to_the_broker(kit: ProxyKit, resolution: str, kind: int, is_check: bool) -> None:
    _, handlers = known(kit)
    kit.brokers.say(END)
    source = TransactionSource.SOURCE_SERVER_CHECK if is_check else TransactionSource.SOURCE_CLIENT
    assert await end(kit, handlers, resolution=TransactionResolution[resolution], source=source) == Code.OK
    (sent,) = kit.brokers.sent
    assert sent.broker_name == "broker-a"
    assert sent.command.header(EndTransactionRequestHeader) == EndTransactionRequestHeader(
        topic="T",
        producer_group="T",
        tran_state_table_offset=7,
        commit_log_offset=0x100,
        commit_or_rollback=kind,
        from_transaction_check=is_check,
        msg_id="m",
        transaction_id="tx",
    )


async def test_undecided_is_not_answered_by_brokers(kit: ProxyKit) -> None:
    transactions, handlers = known(kit)
    assert await end(kit, handlers, resolution=0) == Code.OK
    assert len(kit.brokers.sent) == len(transactions) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transaction_id": " "}, Code.INVALID_TRANSACTION_ID),
        ({"transaction_id": "another"}, Code.INTERNAL_SERVER_ERROR),
        ({"topic": Resource(name="Another")}, Code.INTERNAL_SERVER_ERROR),
        ({"topic": Resource(name="bad topic")}, Code.ILLEGAL_TOPIC),
    ],
)
async def test_transactions_that_are_not_known(kit: ProxyKit, fields: dict[str, Any], code: Code) -> None:
    _, handlers = known(kit)
    assert await end(kit, handlers, **fields) == code
    assert not kit.brokers.sent


async def test_a_failed_end_can_be_repeated_and_a_successful_one_cannot(kit: ProxyKit) -> None:
    _, handlers = known(kit)
    kit.brokers.answers[END] = lambda _: ConnectionLostError("a", "gone")
    assert await end(kit, handlers) == Code.INTERNAL_SERVER_ERROR
    kit.brokers.say(END, ResponseCode.SYSTEM_ERROR, "the half message has ended")
    assert await end(kit, handlers) == Code.INTERNAL_SERVER_ERROR
    kit.brokers.say(END)
    assert await end(kit, handlers) == Code.OK
    assert await end(kit, handlers) == Code.INTERNAL_SERVER_ERROR
    assert len(kit.brokers.sent) == 3


async def test_half_messages_are_forgotten_after_a_while(kit: ProxyKit) -> None:
    transactions, handlers = known(kit, kept_s=0.0)
    assert await end(kit, handlers) == Code.INTERNAL_SERVER_ERROR
    for number in range(5):
        transactions.stored("T", f"tx-{number}", "broker-a", STORED)
    assert len(transactions) == 1


async def test_no_more_are_kept_than_there_is_room_for(kit: ProxyKit) -> None:
    transactions, handlers = known(kit, max_kept=10)
    for number in range(50):
        transactions.stored("T", f"tx-{number}", "broker-a", STORED)
    assert len(transactions) == 10
    kit.brokers.say(END)
    assert await end(kit, handlers, transaction_id="tx-40") == Code.OK
    assert await end(kit, handlers, transaction_id="tx-39") == Code.INTERNAL_SERVER_ERROR


async def test_a_check_renews_what_is_known(kit: ProxyKit) -> None:
    transactions, handlers = known(kit)
    check = CheckTransactionStateRequestHeader(
        tran_state_table_offset=9, commit_log_offset=0x200, msg_id="tx", transaction_id="tx"
    )
    transactions.checked(kit.client(), "T", "broker-b", check)
    kit.brokers.say(END)
    assert await end(kit, handlers) == Code.OK
    (sent,) = kit.brokers.sent
    assert (sent.broker_name, sent.fields["tranStateTableOffset"]) == ("broker-b", "9")


async def test_an_id_that_is_not_the_place_of_a_message_is_left_to_the_check(kit: ProxyKit) -> None:
    transactions = Transactions()
    transactions.stored(
        "T", "tx", "broker-a", SendMessageResponseHeader(msg_id="x", queue_id=1, queue_offset=7)
    )
    assert len(transactions) == 0
