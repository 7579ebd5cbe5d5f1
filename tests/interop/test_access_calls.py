"""Every call of every identity at our broker and at Apache's, with the accounts of both versions.

With RocketMQ's holes opened again ours refuses the same calls as Apache's does, with the same code and words,
but for a few that are named here (docs/compatibility.md). As delivered it refuses more, never less.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from kourou.access.openings import Opening, opened_codes
from tests.interop.kit.access_accounts import ADMIN
from tests.interop.kit.access_answers import PASSED, Answer, Answers, refusals
from tests.interop.kit.access_calls import by_name, calls
from tests.interop.kit.access_recording import recorded
from tests.interop.kit.access_servers import AUTH, PLAIN
from tests.interop.kit.access_world import RULES, AccessWorld, ours, theirs

pytestmark = pytest.mark.interop

_CALLS: Final = by_name(calls())
# A call that lacks two permissions is refused for one: in RocketMQ 4 in the order of a hash table.
_RESOURCE: Final = re.compile(r"(topic|group|Topic|Group):[^ ,]+")
# Ours refuses these whatever is opened: what Apache's brokers know nothing of, or leave unchecked by mistake.
_ALWAYS_STRICTER: Final = {
    PLAIN: re.compile(
        r"send (v2 )?%RETRY%|view|consume directly |unknown code$"
        r"|(pop|peek|ack|batch ack|change invisible time|notification|polling info) "
        r"|(create|update|delete|get|list) (users?|acls?)$"
    ),
    AUTH: re.compile(
        r"consume directly |.* %RETRY%Strangers Workers$|view$|unknown code$"
        r"|plain acl (versions|accounts)$|(update|delete) plain account$|update white addresses$"
    ),
}
# Requests of name servers: Apache's broker checks them for its proxy, and then does not know them.
_NOT_OURS: Final = "route"


@pytest.fixture(params=RULES)
def rules(request: pytest.FixtureRequest) -> str:
    """The version whose rules are compared."""
    version: str = request.param
    return version


def test_recordings_are_what_the_broker_of_apache_answers(access_world: AccessWorld, rules: str) -> None:
    assert refusals(access_world[theirs(rules)].answers) == recorded(rules)


def test_refusals_are_those_of_apache(access_world: AccessWorld, rules: str) -> None:
    here = refusals(access_world[ours(rules, is_open=True)].answers)
    there = refusals(access_world[theirs(rules)].answers)
    differences = {
        f"{call}, {name}": (answer, here[call][name])
        for call, by_identity in there.items()
        for name, answer in by_identity.items()
        if call != _NOT_OURS
        and not _agree(answer, here[call][name])
        and not _ALWAYS_STRICTER[rules].match(call)
    }
    assert differences == {}


def test_ours_refuses_whatever_apache_refuses(access_world: AccessWorld, rules: str) -> None:
    """Also where it is stricter, and as it is delivered."""
    there = refusals(access_world[theirs(rules)].answers)
    for is_open in (False, True):
        here = refusals(access_world[ours(rules, is_open=is_open)].answers)
        admitted = [
            (call, name)
            for call, by_identity in there.items()
            for name, answer in by_identity.items()
            if answer != PASSED and here[call][name] == PASSED and call != _NOT_OURS
        ]
        assert admitted == []


def test_as_delivered_only_opened_requests_are_refused_more(access_world: AccessWorld, rules: str) -> None:
    there = refusals(access_world[theirs(rules)].answers)
    here = refusals(access_world[ours(rules)].answers)
    closed = {
        code
        for code, is_auth, is_plain in opened_codes(frozenset(Opening))
        if (is_auth if rules == AUTH else is_plain)
    }
    more = {call for call, name in _refused_more(there, here)}
    unexplained = {
        call for call in more if _CALLS[call].code not in closed and not _ALWAYS_STRICTER[rules].match(call)
    }
    assert unexplained == set()
    # What attacks began with, by any account (CVE-2024-23321).
    assert {"broker config", "runtime info"} <= more
    assert rules == AUTH or {"plain acl accounts", "update plain account", "send batch Reads"} <= more


def test_administrators_are_refused_nothing(access_world: AccessWorld, rules: str) -> None:
    here = refusals(access_world[ours(rules)].answers)
    assert {call for call, answers in here.items() if answers[ADMIN.access_key] != PASSED} == set()


def _refused_more(there: Answers, here: Answers) -> list[tuple[str, str]]:
    return [
        (call, name)
        for call, by_identity in here.items()
        for name, answer in by_identity.items()
        if answer != PASSED and there[call][name] == PASSED
    ]


def _agree(one: Answer, other: Answer) -> bool:
    return one.code == other.code and _without_resource(one) == _without_resource(other)


def _without_resource(answer: Answer) -> str | None:
    return answer.remark and _RESOURCE.sub("RESOURCE", answer.remark)
