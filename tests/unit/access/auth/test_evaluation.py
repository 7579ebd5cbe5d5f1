"""Which entry decides, compared with a plain model of RocketMQ's rules."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.auth.evaluation import candidates_of, deciding_entry, is_allowed_everywhere
from kourou.access.auth.model import Acl, Decision, Entry, PatternKind, ResourcePattern
from kourou.access.auth.sources import Source, address_of
from kourou.access.model import Action, Need, Resource, ResourceType
from tests.unit.access.auth.calls import PUB_ORDERS, acl, entry

HERE, ELSEWHERE = address_of("10.0.0.1"), address_of("192.168.0.1")
PATTERNS = [
    ResourcePattern.parse(text)
    for text in ("*", "Topic:*", "Topic:o*", "Topic:ord*", "Topic:orders", "Topic:other", "Group:*")
]
ENTRIES = st.builds(
    Entry,
    resource=st.sampled_from([pattern for pattern in PATTERNS if pattern is not None]),
    actions=st.lists(st.sampled_from([Action.ALL, Action.PUB, Action.SUB]), min_size=1).map(tuple),
    sources=st.sampled_from(["", "10.0.0.0/8", "192.168.0.1"]).map(
        lambda text: tuple(filter(None, [Source.parse(text)]))
    ),
    decision=st.sampled_from(Decision),
)
NEEDS = st.builds(
    Need,
    st.builds(
        Resource, st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]), st.sampled_from(["orders", "*"])
    ),
    st.sets(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1).map(frozenset),
)


def modelled(entries: tuple[Entry, ...], need: Need, address: object) -> Decision | None:
    """RocketMQ's rules, one after the other; Deny on a tie."""
    matching = [
        each
        for each in entries
        if (Action.ALL in each.actions or need.actions & set(each.actions))
        and (str(each.resource) == "*" or each.resource.type is need.resource.type)
        and (
            each.resource.kind is PatternKind.ANY
            or need.resource.name == each.resource.name
            or (
                each.resource.kind is PatternKind.PREFIXED
                and need.resource.name.startswith(each.resource.name)
            )
        )
        and (not each.sources or address in each.sources[0].network)
    ]
    own = [each for each in matching if str(each.resource) != "*"] or matching
    for kind in PatternKind:
        alike = [each for each in own if each.resource.kind is kind]
        if alike:
            longest = max(len(each.resource.name) for each in alike)
            decisions = {each.decision for each in alike if len(each.resource.name) == longest}
            return Decision.DENY if Decision.DENY in decisions else Decision.ALLOW
    return None


@given(st.lists(ENTRIES, max_size=6).map(tuple), st.lists(ENTRIES, max_size=3).map(tuple), NEEDS)
def test_decisions_are_those_of_the_model(
    custom: tuple[Entry, ...], default: tuple[Entry, ...], need: Need
) -> None:
    candidates = candidates_of(Acl("alice", custom, default), need)
    outcomes = []
    for address in (HERE, ELSEWHERE, address_of("::1")):
        found = deciding_entry(candidates, address)
        decision = found.decision if found else None
        assert decision == (modelled(custom, need, address) or modelled(default, need, address))
        outcomes.append(decision)
    if is_allowed_everywhere(candidates):
        assert set(outcomes) == {Decision.ALLOW}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("Topic:orders", "Topic:order*"),
        ("Topic:order*", "Topic:o*"),
        ("Topic:o*", "Topic:*"),
        ("Topic:*", "*"),
    ],
)
def test_more_exact_entry_decides(better: str, worse: str) -> None:
    for decision, first in product(("Allow", "Deny"), (better, worse)):
        other = "Deny" if decision == "Allow" else "Allow"
        said = {better: decision, worse: other}
        second = worse if first == better else better
        policies = acl(entry(first, "Pub", said[first]), entry(second, "Pub", said[second]))
        found = deciding_entry(candidates_of(policies, PUB_ORDERS), HERE)
        assert found is not None and found.decision.value == decision


def test_address_that_is_not_understood_gets_nothing_that_is_limited() -> None:
    allowed = acl(entry("Topic:orders", "Pub", "Allow", "0.0.0.0/0", "::/0"))
    assert deciding_entry(candidates_of(allowed, PUB_ORDERS), None) is None
    denied = acl(entry("Topic:orders", "Pub", "Deny", "10.0.0.1"), entry("Topic:*", "Pub"))
    found = deciding_entry(candidates_of(denied, PUB_ORDERS), None)
    assert found is not None and found.decision is Decision.DENY


def test_allowed_everywhere_needs_an_entry_without_addresses() -> None:
    limited = acl(entry("Topic:orders", "Pub", "Allow", "10.0.0.0/8"))
    assert not is_allowed_everywhere(candidates_of(limited, PUB_ORDERS))
    assert is_allowed_everywhere(
        candidates_of(acl(entry("Topic:orders", "Pub", "Allow", "10.0.0.1"), entry("*", "All")), PUB_ORDERS)
    )
