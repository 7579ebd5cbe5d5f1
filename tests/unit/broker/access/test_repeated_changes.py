"""A change that reaches a master from a tool and from a slave is made once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from kourou.broker.access.repeated_changes import PASSED_ON, RepeatedChanges
from kourou.transport.request import Request


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def change(signature: str = "s", code: int = 3001, *, passed_on: bool = False, user: str = "root") -> Request:
    """A signed change."""
    head = SimpleNamespace(remark=PASSED_ON if passed_on else None)
    fields = {"AccessKey": user, "Signature": signature} if user else {}
    return cast(Request, SimpleNamespace(code=code, ext_fields=fields, head=head))


def test_second_way_is_a_repetition() -> None:
    changes = RepeatedChanges(Clock())
    for first, second in ((False, True), (True, False)):
        assert not changes.is_repeated(change(passed_on=first))
        changes.done(change(passed_on=first))
        assert changes.is_repeated(change(passed_on=second))
        changes.done(change("other"))


def test_operator_who_repeats_a_change_makes_it_again() -> None:
    changes = RepeatedChanges(Clock())
    changes.done(change())
    assert not changes.is_repeated(change())
    changes.done(change(passed_on=True))
    assert changes.is_repeated(change())
    assert not changes.is_repeated(change())


def test_several_slaves_pass_it_on() -> None:
    changes = RepeatedChanges(Clock())
    changes.done(change())
    assert changes.is_repeated(change(passed_on=True)) and changes.is_repeated(change(passed_on=True))


def test_another_change_or_user_or_time_is_no_repetition() -> None:
    clock = Clock()
    changes = RepeatedChanges(clock)
    changes.done(change())
    assert not changes.is_repeated(change("t", passed_on=True))
    assert not changes.is_repeated(change(code=3002, passed_on=True))
    assert not changes.is_repeated(change(user="bob", passed_on=True))
    clock.now_s += 10.1
    assert not changes.is_repeated(change(passed_on=True))


def test_change_without_signature_is_not_remembered() -> None:
    changes = RepeatedChanges(Clock())
    changes.done(change(user=""))
    assert not changes.is_repeated(change(user="", passed_on=True))
