"""Changes of permissions of RocketMQ 5's access control: what a user may do with a resource."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kourou.admin.access import AuthTables
from kourou.admin.acls import create_acl, delete_acl, update_acl
from kourou.admin.users import in_turn
from kourou.console.api.access_places import access_commands, access_places, where
from kourou.console.api.access_users import NO_AUTH
from kourou.console.api.places import named_outcomes
from kourou.console.api_errors import bad_input, not_found
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

Action = Literal["All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]
PolicyType = Literal["Custom", "Default"]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a subject may do, or may not, with a resource. It replaces the one for the same resource."""

    subject: str
    """`User:name`."""
    resource: str
    """`Topic:orders`, `Group:billing*`, `Cluster:*`, or `*`."""
    actions: list[Action]
    decision: Literal["Allow", "Deny"] = "Allow"
    source_ips: list[str] = []
    """Addresses or ranges from which it counts; everywhere if there are none."""
    policy_type: PolicyType = "Custom"
    brokers: list[str] = []
    """All if there are none."""


class RuleKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rule of a subject for a resource."""

    subject: str
    resource: str
    policy_type: PolicyType = "Custom"
    brokers: list[str] = []


def _entry(tables: AuthTables, subject: str, resource: str, policy_type: str) -> PolicyEntryInfo | None:
    for acl in tables.acls:
        for policy in acl.policies or () if acl.subject == subject else ():
            for entry in policy.entries or () if (policy.policy_type or "Custom") == policy_type else ():
                if entry.resource == resource:
                    return entry
    return None


def _shown(entry: PolicyEntryInfo | None) -> str:
    if entry is None:
        return "nothing"
    sources = f" from {', '.join(entry.source_ips)}" if entry.source_ips else ""
    return f"{entry.decision or '?'} {', '.join(entry.actions or ())}{sources}"


async def _put(call: Call[NoQuery, Rule]) -> Plan:
    body = call.body
    for field, value in (("subject", body.subject), ("resource", body.resource), ("actions", body.actions)):
        if not value:
            raise bad_input(field, "it is empty")
    places = await access_places(call.admin, AuthTables, body.brokers, NO_AUTH)
    new = PolicyEntryInfo(
        resource=body.resource,
        actions=list(body.actions),
        source_ips=body.source_ips or None,
        decision=body.decision,
    )
    olds = {
        broker: _entry(tables, body.subject, body.resource, body.policy_type) for broker, tables in places
    }
    brokers = [broker for broker, old in olds.items() if _shown(old) != _shown(new)]
    if not brokers:
        raise bad_input("body", f"{body.subject} has this permission already")
    with_acl = {
        broker.address for broker, tables in places if any(acl.subject == body.subject for acl in tables.acls)
    }
    acl = AclInfo(policies=[PolicyInfo(policy_type=body.policy_type, entries=[new])])

    async def put(address: str) -> None:
        change = update_acl if address in with_acl else create_acl
        await change(call.admin, [address], body.subject, acl)

    async def run() -> Done:
        outcomes = await in_turn([broker.address for broker in brokers], put)
        return Done(outcomes=named_outcomes(outcomes, brokers))

    words = ["-s", body.subject, "-r", body.resource, "-a", ",".join(body.actions), "-d", body.decision]
    words += ["-i", ",".join(body.source_ips)] if body.source_ips else []
    command = "updateAcl" if with_acl else "createAcl"
    return Plan(
        effects=[
            f"{body.subject}, {body.resource} on {where([broker])}: {_shown(olds[broker])} → {_shown(new)}"
            for broker in brokers
        ],
        warnings=places.warnings,
        commands=await access_commands(call, brokers, command, *words)
        if body.policy_type == "Custom"
        else [],
        run=run,
    )


async def _delete(call: Call[NoQuery, RuleKey]) -> Plan:
    body = call.body
    places = await access_places(call.admin, AuthTables, body.brokers, NO_AUTH)
    olds = {
        broker: old
        for broker, tables in places
        if (old := _entry(tables, body.subject, body.resource, body.policy_type)) is not None
    }
    brokers = list(olds)
    if not brokers:
        raise not_found(f"{body.subject} has no {body.policy_type} permission for {body.resource}")

    async def run() -> Done:
        outcomes = await delete_acl(
            call.admin,
            [broker.address for broker in brokers],
            body.subject,
            resource=body.resource,
            policy_type=body.policy_type,
        )
        return Done(outcomes=named_outcomes(outcomes, brokers))

    words = ["-s", body.subject, "-r", body.resource]
    return Plan(
        effects=[
            f"{body.subject}, {body.resource} on {where([broker])}: {_shown(old)} → nothing"
            for broker, old in olds.items()
        ],
        warnings=places.warnings,
        commands=await access_commands(call, brokers, "deleteAcl", *words)
        if body.policy_type == "Custom"
        else [],
        run=run,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(
        method="PUT",
        path="/access/rules",
        summary="Allow or deny a user actions on a resource",
        body=Rule,
        planner=_put,
    ),
    Change(
        method="DELETE",
        path="/access/rules",
        summary="Remove a permission of a user",
        body=RuleKey,
        planner=_delete,
    ),
)
