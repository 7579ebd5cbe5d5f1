"""The compiled kernel: the hot path of a broker in C, where it is installed (`pip install ./kernel`).

Without it the same is done in Python, with the same bytes: it only saves time. Whoever makes a broker looks
for it once (`installed_kernel`) and hands it on.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, cast

from kourou.protocol.record import Buffer
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.put_batch import GrownQueue

_log = logging.getLogger(__name__)

MODULE: Final = "kourou_kernel"
_INTERFACE: Final = 7

AnswerTemplates: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Of an answer in JSON to a batch that has no id, and to what has one; the same for binary headers."""
NewQueue: TypeAlias = Callable[[str, int], ConsumeQueue | None]
"""Makes a queue ready that nothing was put into yet; None if nothing can be."""
SendSetup: TypeAlias = tuple[bytes, tuple[bytes, ...], AnswerTemplates, bytes, NewQueue]
"""What all sends of a broker share: the broker's own properties, names of properties that the kernel must not
take, the templates of answers, the store's host, and who makes queues."""
SentPiece: TypeAlias = tuple[bytes, int, int]
"""Bytes, and from where to where in them there are whole frames."""
SendsEnd: TypeAlias = tuple[int, int, int]
"""How far sends are taken: so many groups, pieces of the next one, and up to where in the next of these."""
EncodedSends: TypeAlias = tuple[SendsEnd, int, bytes, bytes, list[bytes], list[GrownQueue]]
"""Where they end, how many messages they are, their records, what to index (rows of `HASHED_KEYS`), the
answers for each connection, and the queues that grow."""


class Kernel(Protocol):
    """What the compiled module has. The docstrings there say what each function does."""

    INTERFACE: int

    def sends_end(self, data: bytes, position: int, max_frame_bytes: int, /) -> int: ...

    def encode_sends(
        self,
        groups: list[tuple[list[SentPiece], bytes]],
        setup: SendSetup,
        targets: Mapping[str, Any],
        configs: Mapping[str, Any],
        broker_config: Any,
        topics: Mapping[str, Any],
        phy_offset: int,
        last_phy_offset: int,
        now_ms: int,
        max_body: int,
        max_record: int,
        /,
    ) -> EncodedSends | None: ...

    def gather(
        self,
        view: Buffer,
        start: int,
        low: int,
        end: int,
        units: bytes,
        max_messages: int,
        max_bytes: int,
        max_copied: int,
        /,
    ) -> tuple[int, int, bytes] | None: ...

    def units_fit(
        self,
        data: Buffer,
        start: int,
        units: bytes,
        queue_offset: int,
        topic: bytes,
        queue_id: int,
        has_codes: bool,
        /,
    ) -> bool: ...


def installed_kernel() -> Kernel | None:
    """The kernel, if there is one that fits."""
    try:
        kernel = cast(Kernel, importlib.import_module(MODULE))
    except ImportError:
        return None
    interface = getattr(kernel, "INTERFACE", None)
    if interface != _INTERFACE:
        _log.warning(
            "the installed %s is of interface %s, this broker needs %d: install the one that came with it; "
            "until then Python does its work",
            MODULE,
            interface,
            _INTERFACE,
        )
        return None
    return kernel
