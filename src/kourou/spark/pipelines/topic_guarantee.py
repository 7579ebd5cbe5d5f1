"""Which guarantee a stream of a pipeline gives when it writes to a topic.

Exactly once by default, where the brokers support it. The sink id is made when the stream starts for the
first time, and kept in its checkpoint: a new checkpoint is a new sink, and the guarantee of a checkpoint does
not change by itself. Delayed messages are sent at least once.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from kourou.spark.sink.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from kourou.spark.sink.sink_producer import WorkerProducer

_log = logging.getLogger(__name__)

_FILE: Final = "kourou-sink-id"
_KEPT_CHARS: Final = 24


def guaranteed_options(
    options: Mapping[str, str],
    guarantee: str | None,
    *,
    checkpoint: Path,
    columns: Collection[str],
) -> dict[str, str]:
    """The options of a topic sink, with those of its guarantee; None is the best one possible. KourouError if
    the brokers cannot be reached."""
    file = checkpoint / _FILE
    if guarantee is None and "delay_ms" in columns or guarantee == AT_LEAST_ONCE:
        return dict(options)
    if guarantee is None and not file.exists():
        if lacking := _brokers_without_atomic(options):
            _log.info("%s: at least once, as brokers %s are not Kourou's", checkpoint.name, lacking)
            return dict(options)
    given = {"guarantee": EXACTLY_ONCE, **options}
    if "sinkId" not in options:
        given["sinkId"] = _kept_sink_id(file)
    return given


def _brokers_without_atomic(options: Mapping[str, str]) -> list[str]:
    parsed = SinkOptions.parse(options)
    worker = WorkerProducer(parsed)
    try:
        topics = [parsed.topic] if parsed.topic else []
        return worker.portal.call(lambda: worker.producer.brokers_without_atomic(topics))
    finally:
        worker.stop()


def _kept_sink_id(file: Path) -> str:
    """The id in the file, which is made on first use."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9._-]", "-", file.parent.name)[:_KEPT_CHARS]
        part = file.with_name(f".{_FILE}.part")
        part.write_text(f"{name}-{secrets.token_hex(6)}")
        os.replace(part, file)
    return file.read_text().strip()
