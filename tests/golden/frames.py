"""Frames recorded between Apache RocketMQ's own programs, one JSON object a line, gzipped.

`who` is the program that spoke or was answered (`raw`: requests made by hand, not by a Java client),
`command` which of its commands it ran (mqadmin), `frame` the whole frame in
base64, `header` what the recorder read in it.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VERSIONS = ("4.9.7", "5.5.0")


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """One line of a recording."""

    link: str
    who: str
    command: str
    sender: str
    type: str
    code: int
    request_code: int
    header: dict[str, Any]
    frame: bytes


@cache
def recorded_frames(version: str) -> tuple[RecordedFrame, ...]:
    """All frames of one recording, in the order they were seen."""
    with gzip.open(Path(__file__).with_name(f"frames-{version}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return tuple(_recorded(json.loads(line)) for line in lines)


def _recorded(line: dict[str, Any]) -> RecordedFrame:
    return RecordedFrame(
        link=line["link"],
        who=line["who"].partition(":")[0],
        command=line["who"].partition(":")[2],
        sender=line["from"],
        type=line["type"],
        code=line["code"],
        request_code=line.get("requestCode", line["code"]),
        header=line["header"],
        frame=base64.b64decode(line["frame"]),
    )
