"""A batch leaves behind what its messages would leave one by one: bytes, units, index keys, offsets."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.batch import BatchEntry
from kourou.protocol.message_id import encode_host
from kourou.protocol.properties import MessageConst, PropertyScanner, properties_from_bytes
from kourou.protocol.tags import tags_code
from kourou.store.log.dispatch_request import index_keys
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import NOW_MS, StoreKit

scan = PropertyScanner(
    MessageConst.PROPERTY_TAGS,
    MessageConst.PROPERTY_KEYS,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
).values
pieces = st.sampled_from(
    [
        b"UNIQ_KEY\x01",
        b"TAGS\x01",
        b"KEYS\x01",
        b"abc",
        b"k1 k2",
        b"\x01",
        b"\x02",
        b"\0",
        b"\xff",
        b"x\x01y\x02",
    ]
)
id_only = st.binary(max_size=6).map(lambda raw: b"UNIQ_KEY\x01" + raw + b"\x02")
entries_of = st.lists(
    st.builds(
        BatchEntry,
        st.integers(-5, 5),
        st.binary(max_size=40),
        id_only | st.lists(pieces, max_size=6).map(b"".join),
    ),
    min_size=1,
    max_size=8,
)
hosts = st.sampled_from([encode_host("127.0.0.1", 1), encode_host("::1", 1)])


def left_pending(store: MessageStore) -> dict[str, Any]:
    """What a batch is made of, before it is written."""
    batch = store.appender._batch
    assert batch is not None
    return {
        "bytes": [(start, b"".join(parts)) for start, parts in batch.writes],
        "units": {queue.queue_id: units for queue, units in batch.units.items()},
        "indexed": batch.indexed,
        "messages": batch.message_count,
        "end": batch.end_phy_offset,
        "next": {queue.queue_id: queue.next_queue_offset for queue in batch.units},
    }


def put_each(store: MessageStore, entries: list[BatchEntry], **rest: Any) -> None:
    for flag, body, properties in entries:
        tags, keys, uniq_key = scan(properties_from_bytes(properties))
        store.appender.put(
            store.queue("orders", 1),
            body,
            properties,
            tags_code(tags),
            index_keys(uniq_key, keys),
            flag=flag,
            **rest,
        )


@given(st.lists(entries_of, min_size=1, max_size=3), hosts, st.integers(0, 3))
def test_as_one_by_one(batches: list[list[BatchEntry]], born_host: bytes, reconsume_times: int) -> None:
    rest = {"born_timestamp": NOW_MS, "born_host": born_host, "reconsume_times": reconsume_times}
    pending = []
    told_singly: list[tuple[PutStatus, int, int]] = []
    answers: list[tuple[PutStatus, list[int], int]] = []
    for is_batch in (True, False):
        with tempfile.TemporaryDirectory() as folder, StoreKit(Path(folder) / "store") as kit:
            store = kit.open(commit_log_file_bytes=1 << 20)  # else one by one they lie in two files
            store.begin_cycle()
            for entries in batches:
                if is_batch:
                    store.appender.put_many(
                        store.queue("orders", 1),
                        entries,
                        done=lambda status, offsets, first: answers.append((status, list(offsets), first)),
                        **rest,
                    )
                else:
                    put_each(store, entries, done=lambda *reported: told_singly.append(reported), **rest)
            pending.append(left_pending(store))
            store.write_and_publish()
    assert pending[0] == pending[1]
    reported = [
        (status, phy_offset, first + index)
        for status, offsets, first in answers
        for index, phy_offset in enumerate(offsets)
    ]
    assert reported == told_singly
