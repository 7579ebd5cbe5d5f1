"""Which entry of a user's policies decides about a need.

Of the Custom entries that match resource, action and address the most exact one decides: its own type before
`*`, a name before a prefix, a long prefix before a short one, a prefix before all names. Where two are as
exact, Deny wins; Apache takes Allow. The Default entries decide where no Custom entry matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kourou.access.auth.model import Acl, Decision, Entry, PolicyType
from kourou.access.auth.sources import Address
from kourou.access.model import Action, Need, ResourceType

Candidates: TypeAlias = Sequence[Entry]
"""Entries about one need; the first one that holds for an address decides. Only the last one may hold
everywhere."""


def candidates_of(acl: Acl, need: Need) -> Candidates:
    """The entries that may decide about a need, depending on the address."""
    found: list[Entry] = []
    for policy_type in PolicyType:
        for entry in sorted(_matching(acl.entries(policy_type), need), key=_rank):
            found.append(entry)
            if not entry.sources:
                return found
    return found


def deciding_entry(candidates: Candidates, address: Address | None) -> Entry | None:
    """The entry that decides for a caller at an address; None: none does, which denies."""
    return next((entry for entry in candidates if _holds_at(entry, address)), None)


def is_allowed_everywhere(candidates: Candidates) -> bool:
    """Whether callers at every address are allowed."""
    return (
        bool(candidates)
        and not candidates[-1].sources
        and all(entry.decision is Decision.ALLOW for entry in candidates)
    )


def _matching(entries: Iterable[Entry], need: Need) -> list[Entry]:
    actions = need.actions | {Action.ALL}
    return [
        entry
        for entry in entries
        if not actions.isdisjoint(entry.actions) and entry.resource.matches(need.resource)
    ]


def _rank(entry: Entry) -> tuple[bool, int, int, bool]:
    resource = entry.resource
    return (
        resource.type is ResourceType.ANY,
        resource.kind,
        -len(resource.name),
        entry.decision is Decision.ALLOW,
    )


def _holds_at(entry: Entry, address: Address | None) -> bool:
    if not entry.sources:
        return True
    if address is None:
        # Nothing is known of where the caller is: what is denied somewhere is denied.
        return entry.decision is Decision.DENY
    return any(source.contains(address) for source in entry.sources)
