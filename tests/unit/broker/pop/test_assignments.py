"""Shares of clients that let the broker assign their queues, by the rules of Apache's broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.broker.pop.assignments import assigned_queues
from kourou.protocol.bodies import MessageQueue, MessageRequestMode, SetMessageRequestModeRequestBody

QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(3)]
IDS = ["c1", "c2", "c3", "c4"]
NAMES = st.sampled_from(["AVG", "AVG_BY_CIRCLE"])


def assigned(
    client_id: str = "c1",
    *,
    mode: str = "POP",
    others: int = 0,
    strategy: str | None = "AVG",
    queues: list[MessageQueue] = QUEUES,
    client_ids: list[str] = IDS,
) -> list[str] | None:
    request_mode = SetMessageRequestModeRequestBody("T", "G", MessageRequestMode(mode), others)
    found = assigned_queues(
        request_mode, strategy=strategy, client_id=client_id, queues=queues, client_ids=client_ids
    )
    return None if found is None else [f"{queue.broker_name}{queue.queue_id}" for queue in found]


def test_pull_mode_divides_as_clients_do() -> None:
    assert assigned("c1", mode="PULL") == ["a0", "a1"]
    assert assigned("c4", mode="PULL") == ["b2"]
    assert assigned("c2", mode="PULL", strategy="AVG_BY_CIRCLE") == ["a1", "b2"]


@pytest.mark.parametrize("others", [-1, 0, 3, 4])
def test_all_queues_of_each_broker_are_one_entry(others: int) -> None:
    assert assigned("c2", others=others) == ["a-1", "b-1"]


def test_a_client_also_reads_the_queues_of_the_next_ones() -> None:
    assert assigned("c1", others=2) == ["a0", "a1", "a2", "b0", "b1"]
    assert assigned("c4", others=1) == ["a0", "a1", "b2"]


def test_more_clients_than_queues_have_one_each() -> None:
    ids = [f"c{number}" for number in range(8)]
    assert [assigned(each, others=2, client_ids=ids) for each in ids] == [
        ["a0"],
        ["a1"],
        ["a2"],
        ["b0"],
        ["b1"],
        ["b2"],
        ["a0"],
        ["a1"],
    ]


def test_a_client_that_is_not_a_member_has_none() -> None:
    assert assigned("c9", mode="PULL") == []
    assert assigned("c9", others=1) == []
    assert assigned("c9", others=1, queues=QUEUES[:2]) == []


def test_what_cannot_be_divided_has_no_answer() -> None:
    assert assigned(strategy="CONSISTENT_HASH") is None
    assert assigned(strategy=None) is None
    assert assigned("") is None
    assert assigned(queues=[]) is None
    assert assigned(client_ids=[]) is None


@given(NAMES, st.integers(1, 12), st.integers(1, 12), st.integers(-1, 12), st.sampled_from(["PULL", "POP"]))
def test_every_queue_has_a_reader(strategy: str, queues: int, clients: int, others: int, mode: str) -> None:
    all_queues = [MessageQueue("T", "a", number) for number in range(queues)]
    ids = [f"c{number:02}" for number in range(clients)]
    readers: dict[str, int] = {}
    for client_id in ids:
        found = assigned(
            client_id, mode=mode, others=others, strategy=strategy, queues=all_queues, client_ids=ids
        )
        assert found is not None and len(set(found)) == len(found)
        for queue in found:
            readers[queue] = readers.get(queue, 0) + 1
    expected = {"a-1"} if "a-1" in readers else {f"a{number}" for number in range(queues)}
    assert readers.keys() == expected
    if mode == "PULL":
        assert set(readers.values()) == {1}
    elif "a-1" not in readers and clients <= queues:
        assert set(readers.values()) == {others + 1}
