"""Positions in checkpoints: they come back as they went, and the text stays as it is for later versions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from kourou.spark.source.offsets import Positions

queues = st.builds(
    MessageQueue, st.sampled_from(["orders", "%RETRY%g", "ü"]), st.text(min_size=1), st.integers(0, 2**31 - 1)
)
tables = st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=8)
A0, A1, B0 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)


@given(tables, tables, st.booleans())
def test_positions_come_back(offsets: dict, began: dict, is_initial: bool) -> None:
    positions = Positions(offsets, began, is_initial)
    text = json.dumps(positions.to_json())
    assert Positions.from_json(json.loads(text)) == positions
    # Spark takes another text for another position.
    assert json.dumps(Positions.from_json(json.loads(text)).to_json()) == text


@given(tables)
def test_the_text_does_not_depend_on_the_order_of_queues(offsets: dict) -> None:
    turned = dict(reversed(offsets.items()))
    assert json.dumps(Positions(offsets).to_json()) == json.dumps(Positions(turned).to_json())


def test_the_text_of_version_1_is_pinned() -> None:
    positions = Positions({A1: 4, A0: 17, B0: 0}, {B0: 0}, True)
    text = (
        '{"version": 1, "offsets": {"t": {"a": {"0": 17, "1": 4}, "b": {"0": 0}}}, '
        '"began": {"t": {"b": {"0": 0}}}, "initial": true}'
    )
    assert json.dumps(positions.to_json()) == text
    assert Positions.from_json(json.loads(text)) == positions


def test_fields_of_later_versions_are_passed_over() -> None:
    content = {"version": 1, "offsets": {"t": {"a": {"0": 1}}}, "lag": {"t": 5}}
    assert Positions.from_json(content) == Positions({A0: 1})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ([], "not those of a rocketmq source"),
        ({"t": {"0": 5}}, "not those of a rocketmq source"),
        ({"version": 2, "offsets": {}}, "later version"),
        ({"version": 1}, "cannot be read"),
        ({"version": 1, "offsets": {"t": {"a": {"0": "latest"}}}}, "is not an offset"),
        ({"version": 1, "offsets": {"t": {"a": {"0": -1}}}}, "is not an offset"),
    ],
)
def test_what_is_no_position(content: object, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        Positions.from_json(content)


def test_where_a_batch_begins() -> None:
    start = Positions({A0: 5, A1: 7})
    end = Positions({A0: 9, A1: 20, B0: 3}, {B0: 1, A1: 11})
    # A1 was made anew, B0 is new: the end says where they begin, so planning again gives the same batch.
    assert start.batch_begin(end) == {A0: 5, A1: 11, B0: 1}
    assert Positions({}).batch_begin(Positions({A0: 9})) == {A0: 9}
