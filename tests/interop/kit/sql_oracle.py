"""SqlOracle: Apache's own evaluator of SQL92 filters (rocketmq-filter), in a JVM of its own."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.interop.kit.java_session import JavaSession

_ANSWER_TIMEOUT_S: Final = 30


class SqlOracle(JavaSession):
    """The evaluator of a version: `ask("a > 5", [{"a": "7"}])` gives `["true"]`."""

    def __init__(self, version: str, work_dir: Path) -> None:
        super().__init__(f"server-{version}", "SqlOracle", work_dir)

    def ask(self, expression: str, property_sets: Sequence[Mapping[str, str]]) -> list[str]:
        """The result for each set of properties: true, false, null, error or syntax."""
        self._send_line("\t".join([_encoded(expression), *map(_pairs, property_sets)]))
        return self._next_line(_ANSWER_TIMEOUT_S).split(" ")


def _pairs(properties: Mapping[str, str]) -> str:
    return ",".join(_encoded(text) for pair in properties.items() for text in pair)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
