"""What the process of a filter answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kourou.filters import FilterRecord
from kourou.filters.calls import FAILED, NO, YES, Call, ReceivedCall, Reply, decode_call, decode_reply, encode
from kourou.filters.json_path import JsonFilter
from kourou.filters.worker import Worker, load_factory
from tests.unit.filters.records import raw_record


class Prefix:
    """Fails on bodies that begin with !"""

    made = 0

    def __init__(self, parameters: str) -> None:
        if not parameters:
            raise ValueError("a prefix is needed")
        if parameters == "broken":
            raise KeyError("parameters")
        Prefix.made += 1
        self.prefix = parameters.encode()

    def matches(self, records: Sequence[FilterRecord]) -> Sequence[bool]:
        if any(bytes(record.body[:1]) == b"!" for record in records):
            raise RuntimeError("no !")
        if self.prefix == b"few":
            return []
        return [bytes(record.body).startswith(self.prefix) for record in records]


def ask(worker: Worker, parameters: str, *bodies: bytes) -> Reply:
    call = decode_call(encode(Call(parameters, [raw_record(body) for body in bodies])))
    assert isinstance(call, ReceivedCall)
    return decode_reply(encode(worker.reply(call)))


def test_each_record_gets_a_verdict() -> None:
    assert ask(Worker(Prefix), "a", b"apple", b"pear", b"ash") == Reply(bytes([YES, NO, YES]))


def test_a_filter_is_made_once_for_its_parameters() -> None:
    worker, before = Worker(Prefix), Prefix.made
    for _ in range(3):
        ask(worker, "a", b"apple")
    for number in range(300):
        ask(worker, f"p{number}")
    ask(worker, "p299", b"x")
    assert Prefix.made - before == 301


class OnlyOne:
    """Forgets all but the first verdict."""

    def __init__(self, parameters: str) -> None:
        pass

    def matches(self, records: Sequence[FilterRecord]) -> Sequence[bool]:
        return [True]


def test_a_wrong_number_of_verdicts_is_named_although_single_records_get_theirs() -> None:
    reply = ask(Worker(OnlyOne), "", b"a", b"b")
    assert reply.verdicts == bytes([YES, YES]) and reply.failure is None
    assert reply.warning == (
        "TypeError: matches() returned 1 verdicts for 2 records, but it judges them one by one"
    )
    assert ask(Worker(OnlyOne), "", b"a").warning is None


def test_only_the_records_that_a_filter_cannot_judge_fail() -> None:
    reply = ask(Worker(Prefix), "a", b"apple", b"!", b"pear")
    assert reply == Reply(bytes([YES, FAILED, NO]), failure="RuntimeError: no !")


def test_a_wrong_number_of_verdicts_is_a_failure() -> None:
    reply = ask(Worker(Prefix), "few", b"apple")
    assert reply == Reply(bytes([FAILED]), failure="TypeError: matches() returned 0 verdicts for 1 records")


def test_parameters_that_are_not_understood_are_told_apart_from_failures() -> None:
    assert ask(Worker(Prefix), "", b"apple") == Reply(bad_parameters="a prefix is needed")
    assert ask(Worker(Prefix), "broken") == Reply(
        bad_parameters="the filter cannot be made: KeyError: 'parameters'"
    )


def test_a_call_without_records_checks_the_parameters() -> None:
    assert ask(Worker(Prefix), "a") == Reply()


def test_factories_are_found_by_module_and_name() -> None:
    assert load_factory("kourou.filters.json_path:JsonFilter") is JsonFilter
    with pytest.raises(ImportError):
        load_factory("no_such_module:Filter")
    with pytest.raises(AttributeError):
        load_factory("kourou.filters.json_path:Other")
    with pytest.raises(TypeError, match="cannot be called"):
        load_factory("kourou.filters.calls:YES")
