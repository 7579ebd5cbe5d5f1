"""@idempotent: each cause of duplicates, failures, and handlers of every kind."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kourou.client.idempotence.idempotence import business_key, idempotent, unique_id_key
from kourou.client.idempotence.idempotence_stores import MemoryStore, SqliteStore
from kourou.client.idempotence.store_protocols import Claim, IdempotenceStore
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.handlers import handler_of
from kourou.errors import MessageInProgressError, NoBusinessKeyError
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message, MessageExt


def order(number: int = 1, *, unique_id: str = "7F00000150805FFD2B2748C076780775") -> Message:
    message = Message("Orders", b"{}", keys=[f"order-{number}"])
    message.put_property("UNIQ_KEY", unique_id)
    return message


class Recorder:
    """A handler that records its calls, and fails on demand."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.failure: BaseException | None = None
        self.result: ConsumeResult | None = None

    def __call__(self, message: Message) -> ConsumeResult | None:
        if self.failure is not None:
            raise self.failure
        self.done.append(message.keys)
        return self.result


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> IdempotenceStore:
    if request.param == "memory":
        return MemoryStore()
    sqlite = SqliteStore(tmp_path / "done.db")
    request.addfinalizer(sqlite.close)
    return sqlite


def test_a_send_repeated_after_a_lost_answer(store: IdempotenceStore) -> None:
    # The application sent again: the same event under another unique id, maybe in another queue.
    handler = Recorder()
    handle = idempotent(store=store, scope="billing")(handler)
    handle(order(unique_id="A" * 32))
    handle(order(unique_id="B" * 32))
    assert handler.done == [("order-1",)]


def test_a_delivery_repeated_after_a_lost_ack(store: IdempotenceStore) -> None:
    handler = Recorder()
    handle = idempotent(store=store, scope="billing")(handler)
    for _ in range(3):
        assert handle(order()) is None
    handle(order(2))
    assert handler.done == [("order-1",), ("order-2",)]


def test_a_restart_or_a_queue_that_moved(tmp_path: Path) -> None:
    handler = Recorder()
    for _ in range(2):
        with SqliteStore(tmp_path / "done.db") as store:
            idempotent(store=store, scope="billing")(handler)(order())
    assert handler.done == [("order-1",)]


def test_a_retry_is_the_same_message(store: IdempotenceStore) -> None:
    handler = Recorder()
    handle = idempotent(store=store, scope="billing")(handler)
    handle(order())
    retried = Message("%RETRY%billing", b"{}", keys=["order-1"])
    retried.put_property("RETRY_TOPIC", "Orders")
    handle(retried)
    assert len(handler.done) == 1


def test_scopes_and_topics_are_apart(store: IdempotenceStore) -> None:
    billing, shipping = Recorder(), Recorder()
    idempotent(store=store, scope="billing")(billing)(order())
    idempotent(store=store, scope="shipping")(shipping)(order())
    idempotent(store=store, scope="billing")(billing)(Message("Returns", b"{}", keys=["order-1"]))
    assert len(billing.done) == 2 and len(shipping.done) == 1


def test_without_a_scope_the_handlers_name_is_one(store: IdempotenceStore) -> None:
    done = []

    @idempotent(store=store)
    def charge(message: Message) -> None:
        done.append("charge")

    @idempotent(store=store)
    def ship(message: Message) -> None:
        done.append("ship")

    for handle in (charge, ship, charge, ship):
        handle(order())
    assert done == ["charge", "ship"]


@pytest.mark.parametrize("failure", [ValueError("no money"), KeyboardInterrupt()])
def test_a_handler_that_fails_gets_the_message_again(store: IdempotenceStore, failure: BaseException) -> None:
    handler = Recorder()
    handle = idempotent(store=store, scope="billing")(handler)
    handler.failure = failure
    with pytest.raises(type(failure)):
        handle(order())
    handler.failure = None
    handle(order())
    assert handler.done == [("order-1",)]


@pytest.mark.parametrize("result", [ConsumeResult.LATER, ConsumeResult.SUSPEND])
def test_later_is_not_done(store: IdempotenceStore, result: ConsumeResult) -> None:
    handler = Recorder()
    handle = idempotent(store=store, scope="billing")(handler)
    handler.result = result
    assert handle(order()) is result
    handler.result = ConsumeResult.SUCCESS
    assert handle(order()) is ConsumeResult.SUCCESS
    assert handle(order()) is None
    assert len(handler.done) == 2


def test_a_message_in_progress_elsewhere_comes_again_later(store: IdempotenceStore) -> None:
    at_work, may_end = threading.Event(), threading.Event()

    def slow(message: Message) -> None:
        at_work.set()
        assert may_end.wait(10)

    handle = idempotent(store=store, scope="billing")(slow)
    thread = threading.Thread(target=handle, args=(order(),))
    thread.start()
    assert at_work.wait(10)
    with pytest.raises(
        MessageInProgressError, match="'billing/Orders/order-1' is being handled elsewhere"
    ) as caught:
        handle(order())
    assert caught.value.retriable
    may_end.set()
    thread.join(10)
    assert handle(order()) is None


def test_a_message_without_keys_is_an_error_that_says_what_to_do(store: IdempotenceStore) -> None:
    handler = Recorder()
    handle = idempotent(store=store)(handler)
    with pytest.raises(
        NoBusinessKeyError, match="topic 'Orders', message .*: it has no keys .* send it with keys"
    ):
        handle(Message("Orders", b"{}"))
    assert handler.done == []


def test_a_key_of_ones_own(store: IdempotenceStore) -> None:
    handler = Recorder()
    handle = idempotent(store=store, key=lambda message: message.body.decode())(handler)
    handle(Message("Orders", b"event-1"))
    handle(Message("Orders", b"event-1", keys=["x"]))
    handle(Message("Orders", b"event-2"))
    assert len(handler.done) == 2


def test_keys_are_all_of_a_messages_keys() -> None:
    assert business_key(Message("Orders", b"{}", keys=["a", "b"])) == "a b"


def test_the_unique_id_only_when_asked_for_and_with_a_warning(store: IdempotenceStore) -> None:
    handler = Recorder()
    with pytest.warns(UserWarning, match="a business event that is sent twice has two"):
        handle = idempotent(store=store, key=unique_id_key)(handler)
    handle(order(unique_id="A" * 32))
    handle(order(unique_id="A" * 32))
    handle(order(unique_id="B" * 32))
    assert len(handler.done) == 2
    with pytest.raises(NoBusinessKeyError):
        handle(Message("Orders", b"{}", keys=["order-1"]))


def test_long_keys_are_distinct(store: IdempotenceStore) -> None:
    handler = Recorder()
    handle = idempotent(store=store)(handler)
    for ending in ("a", "b", "a"):
        handle(Message("Orders", b"{}", keys=["k" * 5_000 + ending]))
    assert len(handler.done) == 2


def test_a_lease_is_a_time() -> None:
    with pytest.raises(ValueError, match="lease_seconds is 0; it must be above 0"):
        idempotent(store=MemoryStore(), lease_seconds=0)


def test_of_a_batch_the_handler_gets_what_is_new(store: IdempotenceStore) -> None:
    batches: list[list[str]] = []

    @idempotent(store=store, scope="billing")
    def charge(messages: list[Message]) -> None:
        batches.append([message.keys[0] for message in messages])

    charge([order(1), order(2)])
    charge([order(2), order(3), order(3), order(1), order(4)])
    charge([order(1), order(4)])
    assert batches == [["order-1", "order-2"], ["order-3", "order-4"]]


def test_a_batch_that_fails_comes_again_as_a_whole(store: IdempotenceStore) -> None:
    results = [ConsumeResult.LATER, ConsumeResult.SUCCESS]
    sizes: list[int] = []

    @idempotent(store=store, scope="billing")
    def charge(messages: list[Message]) -> ConsumeResult:
        sizes.append(len(messages))
        return results[len(sizes) - 1]

    for _ in range(3):
        charge([order(1), order(2)])
    assert sizes == [2, 2]


def test_a_batch_with_a_message_in_progress_elsewhere_holds_none(store: IdempotenceStore) -> None:
    done: list[str] = []

    @idempotent(store=store, scope="billing")
    def charge(messages: list[Message]) -> None:
        done.extend(message.keys[0] for message in messages)

    store.claim("billing/Orders/order-2", "another", 60)
    with pytest.raises(MessageInProgressError, match="order-2"):
        charge([order(1), order(2), order(3)])
    charge([order(1), order(3)])
    assert done == ["order-1", "order-3"]


@pytest.mark.parametrize("raises", [False, True])
def test_ack_index_counts_what_the_handler_got(store: IdempotenceStore, raises: bool) -> None:
    got: list[list[str]] = []

    @idempotent(store=store, scope="billing")
    def charge(messages: list[Message], context: ConsumeContext) -> None:
        got.append([message.keys[0] for message in messages])
        context.ack_index = 0
        if raises:
            raise ValueError("no money for the second")

    def deliver(messages: list[Message]) -> int | None:
        context = ConsumeContext(MessageQueue("Orders", "broker-a", 0))
        if raises and messages:
            with pytest.raises(ValueError, match="no money"):
                charge(messages, context)
        else:
            charge(messages, context)
        return context.ack_index

    assert deliver([order(2)]) == 0
    # Of 1, 2, 3 the second is known, so the handler gets 1 and 3 and consumes 1: the consumer keeps 1 and 2.
    assert deliver([order(1), order(2), order(3)]) == 1
    assert deliver([order(3)]) == 0
    assert got == [["order-2"], ["order-1", "order-3"], ["order-3"]]


async def test_async_batches(store: IdempotenceStore) -> None:
    sizes: list[int] = []

    @idempotent(store=store, scope="billing")
    async def charge(messages: list[Message]) -> None:
        sizes.append(len(messages))

    await charge([order(1), order(2)])
    await charge([order(2), order(3)])
    await charge([order(1), order(3)])
    assert sizes == [2, 1]


def test_a_handler_with_a_context_stays_one(store: IdempotenceStore) -> None:
    seen = []

    @idempotent(store=store)
    def charge(message: Message | MessageExt, context: ConsumeContext) -> None:
        seen.append(context)

    context = ConsumeContext(MessageQueue("Orders", "broker-a", 0))
    assert handler_of(charge).takes_context and not handler_of(charge).is_async
    charge(order(), context)
    charge(order(), context)
    assert seen == [context]


class BrokenStore(MemoryStore):
    """One that cannot give keys back."""

    def release(self, key: str, owner: str) -> None:
        raise ConnectionError("the store is away")


def test_the_handlers_error_is_the_one_that_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    handler = Recorder()
    handler.failure = ValueError("no money")
    with pytest.raises(ValueError, match="no money"):
        idempotent(store=BrokenStore(), scope="s")(handler)(order())
    assert "s/Orders/order-1 cannot be released; its lease expires after 900.0 s" in caplog.text


async def test_async_handlers(store: IdempotenceStore) -> None:
    done = []

    @idempotent(store=store)
    async def charge(message: Message | MessageExt) -> ConsumeResult:
        await asyncio.sleep(0)
        done.append(message.keys)
        return ConsumeResult.SUCCESS

    assert handler_of(charge).is_async
    assert await charge(order()) is ConsumeResult.SUCCESS
    assert await charge(order()) is None
    assert done == [("order-1",)]


async def test_an_async_handler_that_fails_or_is_cancelled_gets_the_message_again(
    store: IdempotenceStore,
) -> None:
    started = asyncio.Event()
    waits = True

    @idempotent(store=store)
    async def charge(message: Message) -> str:
        started.set()
        if waits:
            await asyncio.Event().wait()
        raise ValueError("no money")

    task = asyncio.create_task(charge(order()))
    await started.wait()
    with pytest.raises(MessageInProgressError):
        await charge(order())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waits = False
    for _ in range(2):
        with pytest.raises(ValueError, match="no money"):
            await charge(order())


class SlowStore(MemoryStore):
    """One whose claims wait, as those of a database may."""

    is_blocking = True  # type: ignore[misc]

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def claim(self, key: str, owner: str, lease_seconds: float) -> Claim:
        self.asked.set()
        assert self.may_answer.wait(10)
        return super().claim(key, owner, lease_seconds)


async def test_a_claim_that_is_cancelled_on_its_way_is_given_back() -> None:
    store = SlowStore()

    @idempotent(store=store)
    async def charge(message: Message) -> None:
        raise AssertionError("it was cancelled before it began")

    task = asyncio.create_task(charge(order()))
    await asyncio.to_thread(store.asked.wait, 10)
    task.cancel()
    # The loop goes on while the store waits.
    await asyncio.sleep(0)
    store.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(store) == 0


def test_a_decorator_without_a_store_says_how_to_write_it() -> None:
    words = (
        "idempotent needs a store: write @idempotent(store=...), "
        "for example with MemoryStore() of kourou.client"
    )
    for arguments in ((print,), ()):
        with pytest.raises(TypeError) as caught:
            idempotent(*arguments)  # type: ignore[call-overload]
        assert str(caught.value) == words
