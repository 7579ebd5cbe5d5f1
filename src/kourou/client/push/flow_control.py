"""Flow control: how much of a queue a consumer holds before it stops pulling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits for one queue, as Java has them. `max_span` None: none, as for orderly consumers."""

    messages: int
    size_bytes: int
    max_span: int | None

    def problem(self, messages: int, size_bytes: int, span: int) -> str | None:
        """Which limit is passed; None for none."""
        if messages > self.messages:
            return f"{messages} messages in hand, over pull_threshold_messages={self.messages}"
        if size_bytes > self.size_bytes:
            return f"{size_bytes} bytes in hand, over pull_threshold_bytes={self.size_bytes}"
        if self.max_span is not None and span > self.max_span:
            return f"offsets in hand span {span}, over max_span={self.max_span}: is one message stuck?"
        return None
