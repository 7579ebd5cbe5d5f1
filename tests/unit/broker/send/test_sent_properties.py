"""What a broker reads from a message's properties, and what it adds to them."""

from __future__ import annotations

import pytest

from kourou.broker.delay.delayed_messages import is_delayed
from kourou.broker.send import sent_properties
from kourou.broker.send.sent_properties import PropertyRewriter, by_priority
from kourou.protocol.properties import decode_properties, encode_properties
from kourou.protocol.tags import tags_code

OURS = {"MSG_REGION": "R", "TRACE_ON": "true", "CLUSTER": "C"}


@pytest.fixture
def rewriter() -> PropertyRewriter:
    return PropertyRewriter(cluster="C", region="R", trace_on=True)


def test_the_client_s_properties_stay_as_they_came_and_ours_follow(rewriter: PropertyRewriter) -> None:
    sent = "UNIQ_KEY\x01ID\x02TAGS\x01t\x02KEYS\x01a b\x02WAIT\x01false\x02x\x01y"
    stored, uniq_key, code, keys, waits, is_special, sequence = rewriter.read(sent)
    assert stored.decode().startswith(sent + "\x02")
    assert decode_properties(stored.decode()) == {**decode_properties(sent), **OURS}
    assert (uniq_key, code, keys, waits, is_special) == ("ID", tags_code("t"), ("ID", "a", "b"), False, False)
    assert sequence is None
    assert rewriter.read("__KOUROU_SEQ\x01@p:0:1\x02")[6] == "@p:0:1"


@pytest.mark.parametrize("name", ["MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK", "__KOUROU_ATOMIC"])
def test_names_that_are_the_broker_s_are_replaced(rewriter: PropertyRewriter, name: str) -> None:
    stored = rewriter.read(encode_properties({"a": "b", name: "forged", "c": "d"}))[0].decode()
    assert "forged" not in stored
    assert decode_properties(stored) == {"a": "b", "c": "d", **OURS}


def test_a_name_inside_another_is_left_alone(rewriter: PropertyRewriter) -> None:
    sent = encode_properties({"MY_CLUSTER": "mine", "X": "CLUSTER"})
    assert decode_properties(rewriter.read(sent)[0].decode()) == {**decode_properties(sent), **OURS}


def test_an_id_is_made_only_where_there_is_none(rewriter: PropertyRewriter) -> None:
    stored, uniq_key, _, keys, _, _, _ = rewriter.read("KEYS\x01k\x02", lambda: "NEW")
    assert decode_properties(stored.decode())["UNIQ_KEY"] == "NEW" == uniq_key
    assert keys == ("NEW", "k")
    assert rewriter.read("UNIQ_KEY\x01OLD\x02", lambda: "NEW")[1] == "OLD"
    assert rewriter.read("KEYS\x01k\x02")[1:4:2] == ("", ("k",))


def test_no_properties_at_all(rewriter: PropertyRewriter) -> None:
    stored, uniq_key, code, keys, waits, _, _ = rewriter.read("")
    assert decode_properties(stored.decode()) == OURS
    assert (uniq_key, code, keys, waits) == ("", 0, (), True)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"DELAY": "3"}, True),
        ({"TIMER_DELAY_SEC": "3"}, True),
        ({"TIMER_DELIVER_MS": "3"}, True),
        ({"MY_DELAY": "3"}, False),
        ({"x": "DELAY"}, False),
        ({}, False),
    ],
)
def test_delays_are_distinguished_from_names_that_look_like_them(
    rewriter: PropertyRewriter, properties: dict[str, str], expected: bool
) -> None:
    text = encode_properties(properties)
    assert is_delayed(text) is expected
    assert rewriter.read(text)[5] is expected


def test_a_transaction_is_special_too(rewriter: PropertyRewriter) -> None:
    assert rewriter.read("TRAN_MSG\x01true\x02CLUSTER\x01x\x02")[5]


def test_tags_that_no_record_can_hold_are_not_hashed(
    rewriter: PropertyRewriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []
    monkeypatch.setattr(sent_properties, "tags_code", lambda tags: hashed.append(len(tags)) or 7)
    assert rewriter.read("TAGS\x01" + "t" * 32_767)[2] == 7
    assert rewriter.read("TAGS\x01" + "t" * 32_768)[2] == 0
    assert hashed == [32_767]


PRIORITY = "_SYS_MSG_PRIORITY_\x012\x02"


@pytest.mark.parametrize(
    ("properties", "is_retry", "expected"),
    [
        (PRIORITY, False, (2, PRIORITY)),
        ("_SYS_MSG_PRIORITY_\x0199\x02", False, (3, "_SYS_MSG_PRIORITY_\x0199\x02")),
        ("_SYS_MSG_PRIORITY_\x01-2\x02", False, (0, "_SYS_MSG_PRIORITY_\x01-2\x02")),
        ("__SHARDINGKEY\x01k\x02" + PRIORITY, False, (0, "__SHARDINGKEY\x01k\x02")),
        (PRIORITY + "DELAY\x013\x02", False, (0, "DELAY\x013\x02")),
        (PRIORITY + "DELAY\x013\x02", True, (2, PRIORITY + "DELAY\x013\x02")),
    ],
)
def test_a_priority_is_a_queue_or_taken_out(
    properties: str, is_retry: bool, expected: tuple[int, str]
) -> None:
    assert by_priority(properties, 0, 4, is_retry=is_retry) == expected
