"""Idempotent producers: each message is stored once, whatever is repeated, restarted or killed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.controller import BrokerController
from kourou.broker.sequences import producer_processor
from kourou.errors import DiskFullError, StorageError, StoreFormatError
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.producers import (
    OpenProducerRequestHeader,
    ProducerSnapshotRequestHeader,
    ProducerSnapshotResponseHeader,
)
from kourou.protocol.names import PRODUCERS_TOPIC
from kourou.testing.faulty_files import FaultyFiles
from tests.e2e.broker.broker_kit import Peer, config, messages, running, send_header
from tests.e2e.broker.producer_kit import TOPIC, opened, place, stored
from tests.e2e.broker.replication_kit import master, namesrv, slave, until

pytestmark = pytest.mark.e2e


@pytest.fixture(params=[True, False], ids=["kernel", "python"])
def keys(request: pytest.FixtureRequest) -> dict[str, bool]:
    return {"compiled_kernel_enable": request.param}


@contextlib.asynccontextmanager
async def killed(root: Path, **keys: object) -> AsyncIterator[Peer]:
    """A broker whose store is left as a process that dies leaves it: the files of the log and of the last
    checkpoint, copied while it runs."""
    controller = BrokerController(config(root, **keys))
    await controller.start()
    peer = Peer(controller)
    copied = root / "copied"
    try:
        yield peer
        controller.services.store.flush()
        copied.mkdir()
        for name in ("commitlog", "consumequeue", "checkpoint", "consumequeue.snapshot", "abort"):
            source = root / "store" / name
            if source.is_dir():
                shutil.copytree(source, copied / name)
            elif source.exists():
                shutil.copy2(source, copied)
        snapshot = root / "store/config/kourouProducers"
        if snapshot.exists():
            (copied / "config").mkdir()
            shutil.copy2(snapshot, copied / "config")
    finally:
        await peer.client.stop()
        await controller.stop()
    shutil.rmtree(root / "store")
    copied.rename(root / "store")


async def test_a_repeat_is_answered_with_the_original(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        await peer.send(TOPIC, b"100")
        first = [place(await producer.send(sequence)) for sequence in range(5)]
        again = [place(await producer.send(sequence)) for sequence in (4, 0, 2)]
        assert again == [first[4], first[0], first[2]]
        assert await stored(peer) == [100, 0, 1, 2, 3, 4]
        assert await producer.last_sequences() == {0: 4}


async def test_the_original_is_found_far_behind_and_among_others(
    tmp_path: Path, keys: dict[str, bool]
) -> None:
    async with running(tmp_path, **keys) as peer:
        producer, other = await opened(peer), await opened(peer)
        first = [place(await producer.send(0))]
        for begin in range(1, 901, 100):
            await asyncio.gather(*(other.send(sequence) for sequence in range(begin - 1, begin + 99)))
            answers = [producer.send(sequence) for sequence in range(begin, begin + 100)]
            first += [place(answer) for answer in await asyncio.gather(*answers)]
        for sequence in (0, 511, 512, 899):
            assert place(await producer.send(sequence)) == first[sequence]


async def test_late_messages_are_taken_and_old_ones_refused(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        for sequence in (1, 0, 1_024, 7):
            place(await producer.send(sequence))
        await producer.send(2_000)
        answer = await producer.send(8)
        assert answer.code == ResponseCode.KOUROU_SEQUENCE_TOO_OLD
        assert "sequence 8 is 1024 or more behind" in (answer.remark or "")
        jump = await producer.send(9_000)
        assert jump.code == ResponseCode.KOUROU_SEQUENCE_JUMP
        assert await stored(peer) == [1, 0, 1_024, 7, 2_000]


async def test_an_application_that_numbers_itself_may_jump(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer, "loader", allows_gaps=True)
        for sequence in (5, 100_000, 9_000_000_000):
            place(await producer.send(sequence))
        assert await producer.last_sequences() == {0: 9_000_000_000}


async def test_batches_message_by_message(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        ids, first_offset = place(await producer.send_batch(0, 1, 2))
        assert place(await producer.send_batch(0, 1, 2)) == (ids, first_offset)
        place(await producer.send(4))
        mixed, offset = place(await producer.send_batch(2, 3, 4))
        assert offset == 2 and mixed.split(",")[0] == ids.split(",")[2]
        assert await stored(peer) == [0, 1, 2, 4, 3]


async def test_two_programs_of_one_name(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        old = await opened(peer, "loader-7")
        first = place(await old.send(0))
        new = await opened(peer, "loader-7")
        assert old.id == new.id == "@loader-7" and old.epoch < new.epoch
        answer = await old.send(1)
        assert answer.code == ResponseCode.KOUROU_PRODUCER_FENCED
        assert "newer program" in (answer.remark or "")
        assert place(await new.send(0)) == first
        new.epoch += 7
        assert (await new.send(1)).code == ResponseCode.KOUROU_UNKNOWN_EPOCH
        new.id = "@other"
        assert (await new.send(1)).code == ResponseCode.KOUROU_UNKNOWN_PRODUCER


@pytest.mark.parametrize("name", ["", "a b", "n" * 65, "a:b"])
async def test_names_that_no_producer_can_have(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as peer:
        header = OpenProducerRequestHeader(producer_group="producers", kourou_name=name)
        answer = await peer.call(RequestCode.OPEN_KOUROU_PRODUCER, header)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "producer name" in (answer.remark or "")


async def test_a_repeated_opening_fences_no_newer_program(tmp_path: Path, keys: dict[str, bool]) -> None:
    first_nonce, second_nonce = "0123456789abcdef", "f" * 16
    async with killed(tmp_path, **keys) as peer:
        first = await opened(peer, "loader", nonce=first_nonce)
        place(await first.send(0))
        second = await opened(peer, "loader", nonce=second_nonce)
        late = await opened(peer, "loader", nonce=first_nonce)
        assert late.epoch == first.epoch < second.epoch
        place(await second.send(1))
        assert (await late.send(2)).code == ResponseCode.KOUROU_PRODUCER_FENCED
    async with running(tmp_path, **keys) as peer:
        assert (await opened(peer, "loader", nonce=first_nonce)).epoch == first.epoch
        again = await opened(peer, "loader", nonce=second_nonce)
        assert again.epoch == second.epoch
        place(await again.send(2))
        assert (await opened(peer, "loader")).epoch > second.epoch
        header = OpenProducerRequestHeader(producer_group="g", kourou_name="loader", kourou_nonce="mine")
        answer = await peer.call(RequestCode.OPEN_KOUROU_PRODUCER, header)
        assert answer.code == ResponseCode.INVALID_PARAMETER and "nonce 'mine'" in (answer.remark or "")


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_after_a_restart(tmp_path: Path, keys: dict[str, bool], is_killed: bool) -> None:
    async with (killed if is_killed else running)(tmp_path, **keys) as peer:
        named, unnamed = await opened(peer, "loader-7"), await opened(peer)
        first = [place(await named.send(sequence)) for sequence in range(3)]
        place(await unnamed.send_batch(0, 1))
    async with running(tmp_path, **keys) as peer:
        named.peer = unnamed.peer = peer
        assert place(await named.send(1))[1] == first[1][1]
        place(await unnamed.send(1))
        assert await named.last_sequences() == {0: 2}
        again = await opened(peer, "loader-7")
        assert again.epoch > named.epoch
        place(await again.send(3))
        assert await stored(peer) == [0, 1, 2, 0, 1, 3]


async def test_a_crash_behind_a_snapshot(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with killed(tmp_path, **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        assert peer.controller.services.store.flush_derived(thorough=True)
        place(await producer.send(1))
    assert (tmp_path / "store/config/kourouProducers").exists()
    async with running(tmp_path, **keys) as peer:
        producer.peer = peer
        place(await producer.send(1))
        place(await producer.send(0))
        assert await stored(peer) == [0, 1]


async def test_brokers_without_such_producers_keep_no_snapshot(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(TOPIC, b"1")
        assert PRODUCERS_TOPIC not in peer.controller.services.topics.table
    assert not (tmp_path / "store/config/kourouProducers").exists()


@pytest.mark.parametrize("timer", ["DELAY\x011\x02", "TIMER_DELAY_SEC\x01600\x02"])
async def test_a_repeated_delayed_message_waits_once(
    tmp_path: Path, keys: dict[str, bool], timer: str
) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        first = await producer.send(0, more=timer)
        again = await producer.send(0, more=timer)
        assert again.ext_fields == {**(first.ext_fields or {}), "kourouMsgIds": "ID0"}
        place(await producer.send(1))
        if timer.startswith("DELAY"):
            end = peer.controller.services.store.max_offset_in_queue
            await until(lambda: end(TOPIC, 0) == 2, "the delayed message is delivered")
            found = messages(await peer.pull(TOPIC))
            assert [int(message.body) for message in found] == [1, 0]
            assert "__KOUROU_SEQ" in found[0].properties and "__KOUROU_SEQ" not in found[1].properties


async def test_a_repeated_half_is_one_half(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        more = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
        first = place(await producer.send(0, more=more, sys_flag=4))
        assert place(await producer.send(0, more=more, sys_flag=4)) == first
        assert peer.controller.services.store.max_offset_in_queue("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1


async def test_a_message_that_is_forwarded_is_no_repeat(tmp_path: Path, keys: dict[str, bool]) -> None:
    """Stock clients that copy all properties, and consumers that send to a retry topic themselves."""
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        place(await producer.send(0, kourou_sequenced=None))
        found = messages(await peer.pull(TOPIC))
        assert ["__KOUROU_SEQ" in message.properties for message in found] == [True, False]


async def test_a_message_sent_to_a_retry_topic_is_no_repeat_as_a_dead_letter_either(
    tmp_path: Path, keys: dict[str, bool]
) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        properties = producer.properties(0)
        tries: dict[str, Any] = {"max_reconsume_times": 3, "kourou_sequenced": True}
        for times in (4, 4, 2, 2):
            place(await peer.send("%RETRY%group", b"0", properties, reconsume_times=times, **tries))
        for topic in ("%RETRY%group", "%DLQ%group"):
            found = messages(await peer.pull(topic))
            assert ["__KOUROU_SEQ" in message.properties for message in found] == [False, False]
        entry = encode_batch_entries([BatchEntry(0, b"0", properties.encode())])
        header = send_header("%RETRY%group", "", batch=True, reconsume_times=4, **tries)
        answer = await peer.call(RequestCode.SEND_BATCH_MESSAGE, header, entry)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "%RETRY%group" in (answer.remark or "")


async def test_a_repeat_waits_for_the_original(tmp_path: Path, keys: dict[str, bool]) -> None:
    """It is not acknowledged before it is durable: not noted before it is persisted (pulsar#5218)."""
    async with running(tmp_path, flush_disk_type="SYNC_FLUSH", **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        flusher = peer.controller.services.commit_cycle._flusher
        assert flusher is not None
        requested = flusher.request_nowait
        flusher.request_nowait = lambda: None  # type: ignore[method-assign]
        original, repeat = asyncio.ensure_future(producer.send(1)), asyncio.ensure_future(producer.send(1))
        await asyncio.sleep(0.1)
        assert not original.done() and not repeat.done()
        flusher.request_nowait = requested  # type: ignore[method-assign]
        place(await producer.send(2))
        assert place(await original) == place(await repeat)
        assert await stored(peer) == [0, 1, 2]


async def test_what_could_not_be_written_is_stored_by_its_repeat(
    tmp_path: Path, keys: dict[str, bool]
) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files, **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
        assert (await producer.send(1)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await producer.last_sequences() == {0: 0}
        place(await producer.send(1))
        assert await stored(peer) == [0, 1]


async def test_refusals_before_anything_is_put_have_codes_of_their_own(
    tmp_path: Path, keys: dict[str, bool]
) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        appender = peer.controller.services.store.appender
        full, down = DiskFullError(tmp_path, 0.95), StorageError("the store is shut down")
        for cause, code in (
            (full, ResponseCode.KOUROU_DISK_FULL),
            (down, ResponseCode.KOUROU_NOT_STORED),
        ):
            appender.refuse("test", cause)
            for answer in (
                await producer.send(1),
                await producer.send(2),  # not the next
                await producer.send(1, more="DELAY\x011\x02"),
                await producer.send_batch(1, 2),
            ):
                assert answer.code == code and str(cause) in (answer.remark or "")
            assert (await peer.send(TOPIC, b"7")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            place(await producer.send(0))  # a repeat
            partly = await producer.send_batch(0, 1, 2)
            assert partly.code == ResponseCode.SERVICE_NOT_AVAILABLE
            appender.refuse("test", None)
        place(await producer.send_batch(0, 1, 2))
        assert await stored(peer) == [0, 1, 2]


async def test_the_original_has_been_deleted(tmp_path: Path, keys: dict[str, bool]) -> None:
    """No place is invented (pulsar-client-go#1407), and nothing is stored again (nats-server#3272)."""
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        peer.controller.services.store.delete_topic(TOPIC)
        answer = await producer.send(0)
        assert answer.code == ResponseCode.KOUROU_SEQUENCE_TOO_OLD
        assert "deleted since" in (answer.remark or "")
        place(await producer.send(1))


async def test_one_way_sends(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer)
        for sequence in (0, 1, 1, 0):
            header = send_header(TOPIC, producer.properties(sequence), kourou_sequenced=True)
            await peer.oneway(RequestCode.SEND_MESSAGE_V2, header, b"%d" % sequence)
        place(await producer.send(2))
        assert await stored(peer) == [0, 1, 2]


async def test_a_damaged_snapshot_stops_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await opened(peer, "loader")
    path = tmp_path / "store/config/kourouProducers"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    controller = BrokerController(config(tmp_path))
    with pytest.raises(StoreFormatError, match="kourouProducers.*put it back from a backup"):
        await controller.start()


@pytest.mark.parametrize("joins_late", [False, True], ids=["from-the-beginning", "joins-late"])
async def test_a_slave_made_master_knows_what_is_stored(
    tmp_path: Path, keys: dict[str, bool], joins_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that joins when the first messages are gone from the log has a snapshot of its master's."""
    monkeypatch.setattr(producer_processor, "PIECE_BYTES", 50)
    async with namesrv() as address:
        async with master(tmp_path, address, **keys) as first:
            named, unnamed = await opened(first, "loader-7"), await opened(first)
            places = [place(await named.send(sequence)) for sequence in range(3)]
            if joins_late:
                for _ in range(30):
                    await first.send("Filler", bytes(60_000))
                first.controller.services.store.log.delete_first()
            async with slave(tmp_path, address, **keys) as second:
                log = first.controller.services.store.log
                copied = second.controller.services.store
                await until(lambda: copied.max_phy_offset == log.max_phy_offset, "the slave has all")
                await until(lambda: "@loader-7" in copied.producers.table.producers, "the producers")
                places.append(place(await named.send(3)))
                place(await unnamed.send_batch(0, 1, 2))
                await until(lambda: copied.max_phy_offset == log.max_phy_offset, "the slave has all")
        async with running(tmp_path / "slave-1", namesrv_addr=address, **keys) as promoted:
            named.peer = unnamed.peer = promoted
            assert await named.last_sequences() == {0: 3}
            assert place(await named.send(3))[1] == places[3][1]
            place(await unnamed.send(2))
            place(await named.send(4))
            end = promoted.controller.services.store.max_offset_in_queue(TOPIC, 0)
            assert end == 8
            assert (await opened(promoted, "loader-7")).epoch > named.epoch


async def test_a_snapshot_is_fetched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as peer:
        code, first = RequestCode.GET_KOUROU_PRODUCER_SNAPSHOT, ProducerSnapshotRequestHeader()
        assert (await peer.call(code, first)).code == ResponseCode.QUERY_NOT_FOUND
        producer = await opened(peer, "loader")
        whole = await peer.call(code, first)
        monkeypatch.setattr(producer_processor, "PIECE_BYTES", len(whole.body or b"") // 3)
        answer = await peer.call(code, first)
        header, raw = answer.header(ProducerSnapshotResponseHeader), answer.body or b""
        place(await producer.send(0))  # not in this snapshot
        while len(raw) < header.kourou_size:
            again = ProducerSnapshotRequestHeader(
                kourou_snapshot_id=header.kourou_snapshot_id, kourou_offset=len(raw)
            )
            answer = await peer.call(code, again)
            raw += answer.body or b""
        assert raw == whole.body
        # It is not kept when its last piece has been fetched.
        gone = await peer.call(code, again)
        assert gone.code == ResponseCode.INVALID_PARAMETER and "begin with a new one" in (gone.remark or "")
        # Nor are more than four of them.
        header, *_ = [(await peer.call(code, first)).header(ProducerSnapshotResponseHeader) for _ in range(5)]
        old = ProducerSnapshotRequestHeader(kourou_snapshot_id=header.kourou_snapshot_id, kourou_offset=5)
        assert (await peer.call(code, old)).code == ResponseCode.INVALID_PARAMETER


async def test_repeats_of_a_message_that_could_not_be_written(tmp_path: Path, keys: dict[str, bool]) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files, **keys) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
        answers = await asyncio.gather(*(producer.send(1) for _ in range(4)))
        assert sorted(answer.code for answer in answers) == [0, 0, 0, ResponseCode.SERVICE_NOT_AVAILABLE]
        assert await stored(peer) == [0, 1]


async def test_a_batch_has_to_name_its_queue_and_to_fit_into_the_window(
    tmp_path: Path, keys: dict[str, bool]
) -> None:
    async with running(tmp_path, **keys) as peer:
        producer = await opened(peer, "loader", allows_gaps=True)
        answer = await producer.send_batch(0, 1, queue_id=-1)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "name its queue" in (answer.remark or "")
        answer = await producer.send_batch(0, 5_000)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "several batches" in (answer.remark or "")
        place(await producer.send_batch(0, 1_000))
        assert await stored(peer) == [0, 1_000]


@pytest.mark.parametrize("text", ["__KOUROU_SEQ\x02", "__KOUROU_SEQ\x01\x02", "x\x01__KOUROU_SEQ\x01y\x02"])
async def test_a_property_without_a_value_is_none(tmp_path: Path, keys: dict[str, bool], text: str) -> None:
    async with running(tmp_path, **keys) as peer:
        for sequenced in (None, True):
            place(await peer.send(TOPIC, b"1", f"UNIQ_KEY\x01A\x02{text}", kourou_sequenced=sequenced))
        assert await stored(peer) == [1, 1]


async def test_an_opening_is_answered_when_it_is_durable(tmp_path: Path, keys: dict[str, bool]) -> None:
    """`last_sequence` must not count what may still get lost."""
    async with running(tmp_path, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=200, **keys) as peer:
        flusher = peer.controller.services.commit_cycle._flusher
        assert flusher is not None
        flusher.request_nowait, requested = lambda: None, flusher.request_nowait  # type: ignore[method-assign]
        header = OpenProducerRequestHeader(
            producer_group="producers", kourou_name="loader", kourou_nonce="0" * 16
        )
        for _ in range(2):  # a repeat is not answered sooner
            answer = await peer.call(RequestCode.OPEN_KOUROU_PRODUCER, header)
            assert answer.code == ResponseCode.SYSTEM_BUSY and "open it again" in (answer.remark or "")
        flusher.request_nowait = requested  # type: ignore[method-assign]
