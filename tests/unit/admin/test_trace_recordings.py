"""queryMsgTraceById prints what Apache's prints for the same answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


@pytest.mark.parametrize("version", VERSIONS)
async def test_trace_of_a_message(version: str) -> None:
    recording = recordings(version)["queryMsgTraceById"]
    # The first try of the recorder came before the trace was written.
    answered = tuple(exchange for exchange in recording.exchanges if exchange.answer.code == 0)
    assert await run_replayed(replace(recording, exchanges=answered)) == recording.stdout
