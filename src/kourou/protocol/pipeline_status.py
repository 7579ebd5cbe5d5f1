"""PipelineStatus: the message in which a Spark query publishes its progress.

A JSON object in the topic `kourou_pipelines`, with the query's id as its key. Unknown fields are ignored, so
that newer publishers can add some.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kourou.errors import ProtocolError

PIPELINES_TOPIC: Final = "kourou_pipelines"

RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One query at one moment. Unknown values are None."""

    name: str
    """The query's name, or its id."""
    query_id: str
    """The same after a restart from its checkpoint."""
    run_id: str
    application: str
    host: str
    state: str
    """`running`, `stopped` or `failed`."""
    time_ms: int
    batch_id: int | None = None
    rows: int = 0
    """Rows read in the last batch."""
    rows_per_second: float | None = None
    batch_ms: int | None = None
    lag_messages: int | None = None
    lag_seconds: float | None = None
    topics: list[str] = []
    sink: str = ""
    error: str = ""
    """Why it failed; empty if it did not."""

    def encode(self) -> bytes:
        """The body of the message."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes) -> PipelineStatus:
        """The status in a body; ProtocolError if it is none."""
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"pipeline status: {error}") from None
