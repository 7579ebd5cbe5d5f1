"""The process that a filter runs in: `python -m kourou.filters.worker FACTORY MEMORY_MB`.

FACTORY is `module:name`. The process reads calls from its standard input and answers them on its standard
output (calls.py), until the input ends. What the filter prints goes to the standard error, which the broker
puts into its log. The broker kills the process when a call takes too long; if the broker itself is killed
during a call, the kernel does (on Linux).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import sys
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO, Final

from kourou.filters.calls import (
    FAILED,
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    NO,
    YES,
    ReceivedCall,
    Reply,
    decode_call,
    framed,
)
from kourou.filters.record import FilterFactory, FilterRecord, RecordFilter

_MAX_FILTERS: Final = 128
_MAX_WORDS: Final = 2000
_PR_SET_PDEATHSIG: Final = 1


class Worker:
    """Judges records by filters of one factory."""

    def __init__(self, factory: FilterFactory) -> None:
        self._factory = factory
        self._filters: OrderedDict[str, RecordFilter] = OrderedDict()

    def reply(self, call: ReceivedCall) -> Reply:
        """The answer to a call."""
        try:
            record_filter = self._filter(call.parameters)
        except ValueError as error:
            return Reply(bad_parameters=_words(error) or "it does not say why")
        except Exception as error:
            return Reply(bad_parameters=f"the filter cannot be made: {_described(error)}")
        records = [FilterRecord(record) for record in call.records]
        if not records:
            return Reply()
        try:
            return Reply(_verdicts(record_filter, records))
        except Exception as error:  # whatever a filter raises
            return self._one_by_one(record_filter, records, error)

    def _filter(self, parameters: str) -> RecordFilter:
        known = self._filters.get(parameters)
        if known is None:
            known = self._filters[parameters] = self._factory(parameters)
            if len(self._filters) > _MAX_FILTERS:
                self._filters.popitem(last=False)
        self._filters.move_to_end(parameters)
        return known

    @staticmethod
    def _one_by_one(
        record_filter: RecordFilter, records: Sequence[FilterRecord], batch_error: Exception
    ) -> Reply:
        """Find out which records the filter cannot judge, after it failed on all of them together."""
        verdicts, failure = bytearray(), None
        for record in records:
            try:
                verdicts += _verdicts(record_filter, [record])
            except Exception as error:  # whatever a filter raises
                verdicts.append(FAILED)
                failure = _described(error)
        warning = None if failure else f"{_described(batch_error)}, but it judges them one by one"
        return Reply(bytes(verdicts), failure=failure, warning=warning)


def _verdicts(record_filter: RecordFilter, records: Sequence[FilterRecord]) -> bytes:
    verdicts = record_filter.matches(records)
    if len(verdicts) != len(records):
        raise TypeError(f"matches() returned {len(verdicts)} verdicts for {len(records)} records")
    return bytes(YES if verdict else NO for verdict in verdicts)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {_words(error)}"


def _words(error: BaseException) -> str:
    return str(error)[:_MAX_WORDS]


def load_factory(path: str) -> FilterFactory:
    """The factory at `module:name`. ImportError or AttributeError where there is none."""
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    factory: FilterFactory = found  # type: ignore[assignment]
    if not callable(factory):
        raise TypeError(f"{path} cannot be called")
    return factory


def _read(source: BinaryIO) -> bytes | None:
    """The next message; None when there are no more."""
    head = source.read(LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    if len(head) < LENGTH_BYTES or length > MAX_MESSAGE_BYTES:
        return None
    content = source.read(length)
    return content if len(content) == length else None


def _write(target: BinaryIO, reply: Reply) -> None:
    for piece in framed(reply):
        target.write(piece)
    target.flush()


def _end_with_parent() -> None:
    """Have the process killed when its parent ends, whatever a filter does at that moment."""
    with suppress(AttributeError, OSError):  # other systems have no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(factory_path: str, memory_mb: str) -> None:
    """Answer calls until the standard input ends."""
    _end_with_parent()
    calls = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    replies = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    if int(memory_mb):
        limit = int(memory_mb) << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.nice(5)  # the broker comes first
    try:
        worker = Worker(load_factory(factory_path))
    except Exception as error:  # whatever an import raises
        _write(replies, Reply(failure=f"{factory_path} cannot be loaded: {_described(error)}"))
        return
    _write(replies, Reply())
    while (content := _read(calls)) is not None:
        _write(replies, worker.reply(decode_call(content)))


if __name__ == "__main__":
    main(*sys.argv[1:])
