"""OverLimit: what servers write is what clients read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.over_limit import Limited, OverLimit

LIMITS = st.sampled_from(
    ["more than 9 bytes are sent per second", "it has 2 connections, and may not have more"]
)


@given(
    st.sampled_from(Limited),
    st.text(max_size=20).filter(lambda name: " is over its limit" not in name),
    LIMITS,
    st.none() | st.integers(0, 10**9 - 1),
)
def test_a_remark_is_read_as_it_was_written(
    kind: Limited, name: str, limit: str, wait_ms: int | None
) -> None:
    over = OverLimit(kind, name, limit, wait_ms)
    assert OverLimit.parse(over.remark()) == over


@pytest.mark.parametrize(
    "remark", ["", "system busy", "account a is over", "x account a is over its limit: b"]
)
def test_other_remarks_are_none(remark: str) -> None:
    assert OverLimit.parse(remark) is None
