"""MessageSearch: finds single messages in a store that is only looked at.

By place in the log, by the offset id that a broker gave, by the unique id that a client gave (through
the IndexFiles), or by place in a queue. Not here: how they are shown (cli).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from kourou.errors import ProtocolError, StoreFormatError
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.store.check.index_view import IndexView
from kourou.store.disk.files import Files
from kourou.store.index.index_hash import key_hash
from kourou.store.log.log_reader import LogReader
from kourou.store.queue.queue_view import QueueView
from kourou.store.store_layout import StoreLayout, find_layout, index_layout

_MAX_OFFSET_DIGITS: Final = 20


class MessageSearch:
    """An open search. Close it, or use it as a context manager."""

    def __init__(self, files: Files, layout: StoreLayout, index_slots: int | None = None) -> None:
        self._files = files
        self._layout = layout
        self._index_slots = index_slots
        self.reader = LogReader(files, layout.log_files)

    @classmethod
    def open(
        cls, files: Files, root: Path, *, log_folders: Sequence[Path] = (), index_slots: int | None = None
    ) -> Self:
        """Search the store in `root`. Errors as in `find_layout`."""
        return cls(files, find_layout(files, root, log_folders), index_slots)

    def find(self, text: str, topic: str | None = None) -> MessageExt:
        """The message at a phy_offset, or with a message id of either kind; StoreFormatError if none.

        Unique ids are looked up under `topic`, or under every topic that has a queue.
        """
        if text.isascii() and text.isdigit() and len(text) <= _MAX_OFFSET_DIGITS:
            return self.at(int(text))
        found = self._by_offset_id(text) or self._by_unique_id(text, topic)
        if found is None:
            raise StoreFormatError(self._layout.root, f"there is no message with id {text}")
        return found

    def at(self, phy_offset: int) -> MessageExt:
        """The message whose record starts at `phy_offset`; StoreFormatError if none does."""
        try:
            return self.reader.message_at(phy_offset)
        except ProtocolError as error:
            raise StoreFormatError(self._layout.root, f"no message at {phy_offset}: {error}") from error

    def in_queue(
        self, topic: str, queue_id: int, queue_offset: int | None, count: int
    ) -> Iterator[MessageExt]:
        """Messages of a queue from `queue_offset` on (None: the first), those of them that the log has."""
        folder = self._layout.queues.get((topic, queue_id))
        if folder is None:
            raise StoreFormatError(self._layout.queue_root, f"there is no queue {topic}/{queue_id}")
        view = QueueView(self._files, folder, self._layout.queue_file_bytes or 1)
        if queue_offset is None:
            queue_offset = view.min_queue_offset(
                self._layout.log_files[0].start if self._layout.log_files else 0
            )
        first = max(queue_offset, view.first_queue_offset)
        units = view.units(first, max(0, min(count, view.end_queue_offset - first)))
        for phy_offset in units.phy_offsets[~units.are_blank].tolist():
            try:
                yield self.reader.message_at(phy_offset)
            except ProtocolError:
                continue

    def _by_offset_id(self, text: str) -> MessageExt | None:
        try:
            found = self.reader.message_at(parse_offset_msg_id(text).phy_offset)
        except ProtocolError:
            return None
        return found if found.offset_msg_id == text.upper() else None

    def _by_unique_id(self, text: str, topic: str | None) -> MessageExt | None:
        topics = [topic] if topic else sorted({name for name, _ in self._layout.queues})
        hashes = {key_hash(name, text) for name in topics}
        for view in self._index_views():
            for wanted in hashes:
                for phy_offset in view.find(wanted):
                    found = self._with_id(phy_offset, text)
                    if found is not None and (topic is None or found.topic == topic):
                        return found
        return None

    def _with_id(self, phy_offset: int, text: str) -> MessageExt | None:
        try:
            found = self.reader.message_at(phy_offset)
        except ProtocolError:
            return None
        return found if found.msg_id.upper() == text.upper() else None

    def _index_views(self) -> Iterator[IndexView]:
        for path, length in reversed(self._layout.index_files):
            layout = index_layout(length, self._index_slots)
            if layout is None:
                raise StoreFormatError(
                    path, "its slots cannot be derived from its length; give --index-slots"
                )
            yield IndexView(self._files, path, layout)

    def close(self) -> None:
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
