"""The checker finds each fault that is planted into a clean history, and nothing else."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.failover.checker import check
from tests.failover.findings import Fault
from tests.failover.history import Operation
from tests.unit.failover.clean_history import BROKER, GROUP, CleanHistory, queue_name

Plant = Callable[[list[Operation], random.Random], str]
"""Changes a clean history; returns what the finding has to name."""
PLANTS: list[tuple[Fault, Plant]] = []


def plants(fault: Fault) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        PLANTS.append((fault, plant))
        return plant

    return add


@given(st.integers(0, 2**32), st.integers(0, 300), st.integers(1, 4), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_a_clean_history_has_no_findings(seed: int, sends: int, queues: int, producers: int) -> None:
    report = check(CleanHistory(seed, sends, queues=queues, producers=producers).operations)
    assert not report.findings, report.text()


def test_what_is_allowed_occurs_in_clean_histories() -> None:
    """Otherwise the test above would show little."""
    operations = CleanHistory(1, 500).operations
    stored = Counter(each.value for each in operations if each.kind == "read")
    assert max(stored.values()) > 1
    deliveries = Counter((each.queue, each.queue_offset) for each in operations if each.kind == "deliver")
    assert max(deliveries.values()) > 1
    outcomes = {(each.kind, each.outcome) for each in operations}
    assert {("send", "failed"), ("send", "unknown"), ("transaction", "unknown")} <= outcomes
    assert {("publish", "ok"), ("publish", "failed"), ("publish", "unknown")} <= outcomes
    unknown = {each.value for each in operations if each.kind == "publish" and each.outcome == "unknown"}
    assert unknown & stored.keys() and unknown - stored.keys()
    once = [each for each in operations if each.batch is not None and each.is_idempotent]
    parts = Counter((each.process, each.batch, each.value in stored) for each in once)
    assert any((*key[:2], not key[2]) in parts for key in parts), "no batch is stored in part"
    offsets = [each for each in operations if each.kind == "offset" and each.queue == queue_name(0)]
    assert any((after.amount or 0) < (before.amount or 0) for before, after in pairwise(offsets))
    assert check(operations).counts["epochs"] > 2


# -- faults --------------------------------------------------------------------------------------


def any_of(operations: list[Operation], chance: random.Random, **fields: object) -> Operation:
    """An operation with these fields."""
    found = [
        each for each in operations if all(getattr(each, name) == value for name, value in fields.items())
    ]
    return chance.choice(found)


def plain_send(operations: list[Operation], chance: random.Random) -> Operation:
    """An acknowledged send of one attempt, from the middle of its queue."""
    lengths = Counter(each.queue for each in operations if each.kind == "read")
    found = [
        each
        for each in operations
        if each.kind == "send" and each.is_acknowledged and not each.unsure_attempts and each.batch is None
        if each.queue_offset is not None and 5 < each.queue_offset < lengths[each.queue] - 5
    ]
    return chance.choice(found)


def replace_value(operations: list[Operation], old: str, new: str) -> None:
    for each in operations:
        if each.kind in ("read", "deliver") and each.value == old:
            each.value = new


def publishes(operations: list[Operation], *, outcome: str) -> list[list[Operation]]:
    """The messages of each publish that ended so."""
    found: dict[tuple[str, int | None], list[Operation]] = {}
    for each in operations:
        if each.kind == "publish" and each.outcome == outcome:
            found.setdefault((each.process, each.batch), []).append(each)
    return list(found.values())


def new_send(operations: list[Operation], **fields: object) -> Operation:
    last = operations[-1]
    send = Operation(
        **{
            "process": "late",
            "number": len(operations),
            "kind": "send",
            "begin_ns": last.begin_ns + 10,
            "end_ns": last.begin_ns + 20,
            "value": "planted",
            **fields,
        }
    )
    operations.append(send)
    return send


@plants(Fault.LOST)
def lose(operations: list[Operation], chance: random.Random) -> str:
    """A queue has all its offsets, but not the value."""
    lost = plain_send(operations, chance)
    assert lost.value is not None
    replace_value(operations, lost.value, "planted")
    new_send(operations, outcome="unknown", unsure_attempts=1)
    lost.queue_offset = _end(operations, lost.queue)  # else there are two values at its offset
    lost.process = "another"  # else the order changes
    return f"{lost.value!r} is lost"


@plants(Fault.LOST)
def lose_the_end(operations: list[Operation], chance: random.Random) -> str:
    """A queue ends before an acknowledged offset."""
    lost = new_send(operations, outcome="ok", queue=queue_name(0))
    lost.queue_offset = _end(operations, lost.queue)
    return f"at {lost.queue} offset {lost.queue_offset},"


@plants(Fault.STORED_TWICE)
def store_idempotent_twice(operations: list[Operation], chance: random.Random) -> str:
    """Even though an attempt was unsure."""
    sent = plain_send(operations, chance)
    sent.is_idempotent, sent.unsure_attempts = True, 1
    append(operations, sent.queue, sent.value)
    return f"{sent.value!r} is at {sent.queue} offset {sent.queue_offset}, {sent.queue} offset"


@plants(Fault.STORED_TWICE)
def store_a_sure_send_twice(operations: list[Operation], chance: random.Random) -> str:
    sent = plain_send(operations, chance)
    append(operations, queue_name(1), sent.value)
    return f"{sent.value!r} is at"


@plants(Fault.STORED_TWICE)
def store_once_too_often(operations: list[Operation], chance: random.Random) -> str:
    """More often than attempts were made."""
    sent = plain_send(operations, chance)
    sent.unsure_attempts = 1
    append(operations, sent.queue, sent.value)
    append(operations, sent.queue, sent.value)
    return f"{sent.value!r} is at"


@plants(Fault.STORED_TWICE)
def store_a_message_of_an_idempotent_batch_twice(operations: list[Operation], chance: random.Random) -> str:
    """A repeat of the batch was not recognised as a whole."""
    repeated = [
        each
        for each in operations
        if each.is_idempotent and each.batch is not None and each.unsure_attempts and each.is_acknowledged
    ]
    sent = chance.choice(repeated)
    append(operations, sent.queue, sent.value)
    return f"{sent.value!r} is at {sent.queue} offset {sent.queue_offset}, {sent.queue} offset"


@plants(Fault.STORED_TWICE)
def publish_twice(operations: list[Operation], chance: random.Random) -> str:
    sent = any_of(operations, chance, kind="publish", outcome="ok")
    append(operations, queue_name(0), sent.value)
    return f"{sent.value!r} is at"


@plants(Fault.STORED_TWICE)
def commit_twice(operations: list[Operation], chance: random.Random) -> str:
    sent = any_of(operations, chance, kind="transaction", decision="commit", outcome="ok")
    append(operations, queue_name(0), sent.value)
    return f"{sent.value!r} is at"


@plants(Fault.TWO_VALUES)
def deliver_another_value(operations: list[Operation], chance: random.Random) -> str:
    """A consumer got what the final reader did not find."""
    new_send(operations, outcome="unknown", unsure_attempts=1)
    delivered = any_of(operations, chance, kind="deliver")
    delivered.value = "planted"
    return f"{delivered.queue} offset {delivered.queue_offset} has "


@plants(Fault.TWO_VALUES)
def acknowledge_a_taken_offset(operations: list[Operation], chance: random.Random) -> str:
    """Two masters gave the same offset to two sends, and both are stored."""
    sent = plain_send(operations, chance)
    place = {"queue": sent.queue, "queue_offset": sent.queue_offset}
    new_send(operations, outcome="ok", unsure_attempts=1, process="another", **place)
    append(operations, queue_name(0), "planted")
    return f"{sent.queue} offset {sent.queue_offset} has {sent.value!r} and 'planted'"


@plants(Fault.REORDERED)
def swap(operations: list[Operation], chance: random.Random) -> str:
    """Two neighbours of one producer, everywhere."""
    lanes: dict[tuple[str, str | None], list[Operation]] = {}
    for each in operations:
        if each.kind == "send" and each.is_acknowledged and not each.unsure_attempts:
            lanes.setdefault((each.process, each.queue), []).append(each)
    pairs = [
        (before, after)
        for lane in lanes.values()
        for before, after in zip(lane, lane[1:], strict=False)
        if before.lies_before(after) and before.batch is None and after.batch is None
    ]
    before, after = chance.choice(pairs)
    assert before.value is not None and after.value is not None
    for each in operations:
        if each.kind in ("read", "deliver") and each.value in (before.value, after.value):
            each.value = after.value if each.value == before.value else before.value
    for name in ("queue_offset", "phy_offset", "address"):
        mine, other = getattr(before, name), getattr(after, name)
        setattr(before, name, other)
        setattr(after, name, mine)
    # Which epoch stored them is not the point here.
    before.phy_offset = after.phy_offset = None
    return f"{after.value!r} was sent after {before.value!r}"


@plants(Fault.REORDERED)
def swap_in_a_batch(operations: list[Operation], chance: random.Random) -> str:
    first = any_of(operations, chance, kind="send", index=1, outcome="ok")
    same = {"process": first.process, "batch": first.batch}
    second = any_of(operations, chance, kind="send", index=0, outcome="ok", **same)
    first.index, second.index = 0, 1
    return f"{second.value!r} comes after {first.value!r} in a batch"


@plants(Fault.REORDERED)
def swap_in_a_publish(operations: list[Operation], chance: random.Random) -> str:
    queues = {each.value: each.queue for each in operations if each.kind == "read"}
    pairs = [
        (before, after)
        for messages in publishes(operations, outcome="ok")
        for before, after in pairwise(messages)
        if queues[before.value] == queues[after.value]
    ]
    before, after = chance.choice(pairs)
    before.index, after.index = after.index, before.index
    return f"{before.value!r} comes after {after.value!r} in a batch"


@plants(Fault.REORDERED)
def publish_late(operations: list[Operation], chance: random.Random) -> str:
    """A publish is committed after another one of its producer, and stored before it."""
    queue = queue_name(0)
    last = operations[-1]
    sent = [new_send(operations, kind="publish", outcome="ok", batch=number) for number in (1, 2)]
    for number, each in enumerate(sent):
        each.value, each.begin_ns, each.end_ns = f"planted-{number}", *_moment(last, 2 * number)
    append(operations, queue, "planted-1")
    append(operations, queue, "planted-0")
    return "'planted-1' was sent after 'planted-0'"


def _moment(last: Operation, later: int) -> tuple[int, int]:
    return last.begin_ns + 10 * later, last.begin_ns + 10 * later + 5


@plants(Fault.REFUSED_BUT_READ)
def store_a_refused_value(operations: list[Operation], chance: random.Random) -> str:
    refused = any_of(operations, chance, kind="send", outcome="failed")
    append(operations, queue_name(0), refused.value)
    return f"{refused.value!r} was refused"


@plants(Fault.REFUSED_BUT_READ)
def deliver_a_refused_value(operations: list[Operation], chance: random.Random) -> str:
    """To a consumer only, past the end of what is left."""
    refused = any_of(operations, chance, kind="send", outcome="failed")
    queue = queue_name(0)
    place = {"queue": queue, "queue_offset": _end(operations, queue), "group": GROUP}
    new_send(operations, kind="deliver", outcome="ok", value=refused.value, **place)
    return f"{refused.value!r} was refused"


@plants(Fault.REFUSED_BUT_READ)
def publish_what_was_rolled_back(operations: list[Operation], chance: random.Random) -> str:
    refused = any_of(operations, chance, kind="publish", outcome="failed")
    append(operations, queue_name(0), refused.value)
    return f"{refused.value!r} was refused"


@plants(Fault.NEVER_SENT)
def read_what_was_never_sent(operations: list[Operation], chance: random.Random) -> str:
    append(operations, queue_name(0), "planted")
    return "'planted' was never sent"


@plants(Fault.BOTH_OUTCOMES)
def decide_both_ways(operations: list[Operation], chance: random.Random) -> str:
    begun = any_of(operations, chance, kind="transaction", decision="commit", outcome="ok")
    new_send(operations, kind="check", value=begun.value, decision="rollback", outcome="ok")
    return f"{begun.value!r} has both outcomes"


@plants(Fault.ROLLED_BACK_BUT_READ)
def deliver_what_was_rolled_back(operations: list[Operation], chance: random.Random) -> str:
    begun = any_of(operations, chance, kind="transaction", decision="rollback", outcome="ok")
    append(operations, queue_name(0), begun.value)
    return f"{begun.value!r} was rolled back"


@plants(Fault.ROLLED_BACK_BUT_READ)
def deliver_an_unsure_half(operations: list[Operation], chance: random.Random) -> str:
    begun = any_of(operations, chance, kind="transaction", outcome="unknown")
    append(operations, queue_name(0), begun.value)
    return f"{begun.value!r} was rolled back"


@plants(Fault.COMMITTED_BUT_MISSING)
def lose_a_commit(operations: list[Operation], chance: random.Random) -> str:
    begun = any_of(operations, chance, kind="transaction", decision="commit", outcome="ok")
    assert begun.value is not None
    replace_value(operations, begun.value, "planted")
    new_send(operations, outcome="unknown", unsure_attempts=1)
    return f"{begun.value!r} was committed"


@plants(Fault.COMMITTED_BUT_MISSING)
def lose_a_publish(operations: list[Operation], chance: random.Random) -> str:
    messages = chance.choice(publishes(operations, outcome="ok"))
    for message in messages:
        replace_value(operations, message.value or "", f"planted-{message.index}")
        new_send(operations, value=f"planted-{message.index}", outcome="unknown", unsure_attempts=1)
    return f"{len(messages)} of {len(messages)} messages of an atomic publish are missing"


@plants(Fault.TORN_PUBLISH)
def lose_a_message_of_a_publish(operations: list[Operation], chance: random.Random) -> str:
    messages = chance.choice(publishes(operations, outcome="ok"))
    lost = chance.choice(messages)
    replace_value(operations, lost.value or "", "planted")
    new_send(operations, outcome="unknown", unsure_attempts=1)
    return f"1 of {len(messages)} messages of an atomic publish are missing: [publish {lost.value!r}"


@plants(Fault.TORN_PUBLISH)
def publish_one_message_of_an_unknown_publish(operations: list[Operation], chance: random.Random) -> str:
    stored = {each.value for each in operations if each.kind == "read"}
    unknown = [each for each in publishes(operations, outcome="unknown") if each[0].value not in stored]
    messages = chance.choice(unknown)
    append(operations, queue_name(0), messages[-1].value)
    return f"{len(messages) - 1} of {len(messages)} messages of an atomic publish are missing"


@plants(Fault.TWO_EPOCHS)
def acknowledge_late(operations: list[Operation], chance: random.Random) -> str:
    """A deposed master acknowledges, and the record is stored all the same."""
    late = new_send(operations, outcome="ok", queue=queue_name(0), epoch=1)
    late.queue_offset = append(operations, queue_name(0), "planted")
    return "epoch 1 acknowledged after epoch"


@plants(Fault.WRONG_MASTER)
def acknowledge_as_another(operations: list[Operation], chance: random.Random) -> str:
    sent = plain_send(operations, chance)
    sent.is_idempotent = False
    sent.address = "127.0.0.1:1"
    return f"{sent.value!r}"


@plants(Fault.SKIPPED)
def skip_an_offset(operations: list[Operation], chance: random.Random) -> str:
    """Another consumer of the group gets it."""
    skipped = any_of(operations, chance, kind="deliver", queue_offset=8)
    moved = msgspec.structs.replace(skipped, process="another", number=len(operations))
    operations.remove(skipped)
    operations.append(moved)
    return "skipped offset 8:"


@plants(Fault.SKIPPED)
def leave_a_hole(operations: list[Operation], chance: random.Random) -> str:
    """The final reader does not get an offset whose send was not acknowledged."""
    queue = queue_name(1)
    new_send(operations, outcome="unknown", unsure_attempts=1)
    queue_offset = append(operations, queue, "planted")
    operations.remove(any_of(operations, chance, kind="read", value="planted"))
    return f"{queue} has no offset {queue_offset}:"


@plants(Fault.UNDELIVERED)
def deliver_nothing_from_an_offset(operations: list[Operation], chance: random.Random) -> str:
    """The last ones, so that nothing is skipped."""
    queue = queue_name(2)
    end = _end(operations, queue)
    for each in list(operations):
        if each.kind == "deliver" and each.queue == queue and each.queue_offset in (end - 1, end - 2):
            operations.remove(each)
    return f"{GROUP} never got offset {end - 2} to {end - 1} of {queue}"


@plants(Fault.OFFSET_AHEAD)
def commit_what_was_not_delivered(operations: list[Operation], chance: random.Random) -> str:
    """One offset too many; the message is delivered later, to another member."""
    queue = queue_name(chance.randrange(3))
    before = [each for each in operations if each.kind == "offset" and each.queue == queue][1]
    assert before.amount is not None
    before.amount += 1
    return f"{GROUP} has offset {before.amount} of {queue} without having got {before.amount - 1}:"


@plants(Fault.OFFSET_AHEAD)
def commit_over_a_hole(operations: list[Operation], chance: random.Random) -> str:
    """A message comes only after a later one was committed."""
    queue = queue_name(chance.randrange(3))
    for each in operations:
        each.assignment = None  # of a group without an order
    late = any_of(operations, chance, kind="deliver", queue=queue, queue_offset=3)
    late.begin_ns = late.end_ns = operations[-1].begin_ns + 10
    return f"of {queue} without having got 3:"


@plants(Fault.UNREAD_QUEUE)
def forget_a_queue(operations: list[Operation], chance: random.Random) -> str:
    """Nothing was read there: its values do not count as lost."""
    sent = new_send(operations, outcome="ok", queue=f"Topic/{BROKER}/9", queue_offset=0)
    return f"{sent.queue} was not read"


def append(operations: list[Operation], queue: str | None, value: str | None) -> int:
    """Store one more value, which the group and the final reader get; returns its offset."""
    queue_offset = _end(operations, queue)
    last = operations[-1]
    for kind, process, group in (("deliver", "consumer-1", GROUP), ("read", "reader", None)):
        operations.append(
            Operation(
                process=process,
                number=len(operations),
                kind=kind,
                begin_ns=last.begin_ns + 1,
                end_ns=last.begin_ns + 1,
                outcome="ok",
                value=value,
                queue=queue,
                queue_offset=queue_offset,
                group=group,
                assignment=1,
            )
        )
    for each in operations:
        if each.kind == "scan" and each.queue == queue:
            each.high_offset = queue_offset + 1
    return queue_offset


def _end(operations: list[Operation], queue: str | None) -> int:
    return next(each.high_offset or 0 for each in operations if each.kind == "scan" and each.queue == queue)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("fault", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
def test_a_planted_fault_is_found_and_nothing_else(fault: Fault, plant: Plant, seed: int) -> None:
    operations = CleanHistory(seed, 400).operations
    named = plant(operations, random.Random(seed))
    report = check(operations)
    assert set(report.faults) == {fault}, report.text()
    assert any(named in finding.text for finding in report.findings), (named, report.text())
    assert named in report.text()
    assert all(finding.operations for finding in report.findings)


def test_each_fault_is_planted() -> None:
    assert {fault for fault, _ in PLANTS} == set(Fault)


# -- what is no fault --------------------------------------------------------------------------------


def test_a_deleted_record_is_not_lost() -> None:
    """Retention removed the begin of a queue before the final read."""
    operations = CleanHistory(1, 200).operations
    for each in list(operations):
        if each.kind == "read" and each.queue_offset is not None and each.queue_offset < 5:
            operations.remove(each)
        if each.kind == "scan":
            each.low_offset = 5
        if each.kind == "transaction":
            each.outcome = "unknown"  # theirs have no offset, so that they cannot be excused
    faults = check(operations).faults
    assert set(faults) <= {Fault.COMMITTED_BUT_MISSING}


def test_a_repeat_of_an_idempotent_send_is_acknowledged_by_a_later_master() -> None:
    """The record is of the old epoch, the acknowledgement of the new one."""
    operations = CleanHistory(1, 200).operations
    late = new_send(operations, outcome="ok", queue=queue_name(0), epoch=1, address="127.0.0.1:1")
    late.queue_offset = append(operations, queue_name(0), "planted")
    late.is_idempotent, late.unsure_attempts = True, 1
    assert not check(operations).findings


def test_a_value_that_the_workload_sends_twice_is_an_error() -> None:
    operations = CleanHistory(1, 50).operations
    new_send(operations, value=any_of(operations, random.Random(1), kind="send").value)
    with pytest.raises(ValueError, match="values have to be unique"):
        check(operations)


def test_a_text_has_the_first_findings_only() -> None:
    operations = [each for each in CleanHistory(1, 200).operations if each.kind not in ("read", "drain")]
    text = check(operations).text()
    assert "more" in text and text.count("\n") < 40


@pytest.mark.slow
def test_a_long_history_is_checked_in_seconds() -> None:
    """No time is asserted; a check that is not about linear would take minutes."""
    operations = CleanHistory(1, 50_000).operations
    assert len(operations) >= 200_000
    began = time.monotonic()
    assert not check(operations).findings
    print(f"{len(operations)} operations in {time.monotonic() - began:.1f} s")
