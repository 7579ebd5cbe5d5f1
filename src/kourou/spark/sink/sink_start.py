"""Checks on the driver that a write can begin, before a task runs."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from kourou.errors import KourouError
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_producer import WorkerProducer

_TIMEOUT_S: Final = 5.0
"""How long a running stream waits for a name server that is being restarted."""
_PAUSE_S: Final = 0.25

_reached: set[SinkOptions] = set()


def check_reachable(options: SinkOptions) -> None:
    """Check that a name server is reachable, and that topic and errorTopic exist and are writable."""
    worker = WorkerProducer(options)
    try:
        for topic in filter(None, (options.topic, options.error_topic)):
            check = partial(worker.producer.check_topic, topic, may_create=options.create_topic)
            worker.portal.call(check)
    finally:
        worker.stop()


def check_reachable_once(options: SinkOptions, timeout_s: float = _TIMEOUT_S) -> None:
    """The same, once per process and options; transient failures are retried for `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while options not in _reached:
        try:
            check_reachable(options)
        except KourouError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            _reached.add(options)
