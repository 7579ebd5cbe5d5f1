"""Policies of RocketMQ 5's access control: created, changed, deleted, read and copied.

Creating and changing are the same to brokers: an entry replaces the one of the same resource, others stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from kourou.admin.session import Admin
from kourou.admin.targets import Outcome
from kourou.admin.users import in_turn, outcome_of
from kourou.errors import ResponseError
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, decode_body, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.acl import (
    CreateAclRequestHeader,
    DeleteAclRequestHeader,
    GetAclRequestHeader,
    ListAclsRequestHeader,
    UpdateAclRequestHeader,
)

_NO_SUBJECT = "The subject is not exist."


def entries_of(
    resources: Sequence[str], actions: Sequence[str], sources: Sequence[str], decision: str
) -> AclInfo:
    """The same entry for several resources, as Apache's tools send it: without a type, which means Custom."""
    entries = [
        PolicyEntryInfo(
            resource=resource, actions=list(actions), source_ips=list(sources) or None, decision=decision
        )
        for resource in resources
    ]
    return AclInfo(policies=[PolicyInfo(entries=entries)])


async def create_acl(admin: Admin, addresses: Sequence[str], subject: str, acl: AclInfo) -> list[Outcome]:
    """Add entries to the policies of a subject on each broker."""
    return await in_turn(addresses, lambda address: _create(admin, address, subject, acl))


async def update_acl(admin: Admin, addresses: Sequence[str], subject: str, acl: AclInfo) -> list[Outcome]:
    """Change entries of the policies of a subject on each broker."""
    return await in_turn(addresses, lambda address: _update(admin, address, subject, acl))


async def delete_acl(
    admin: Admin,
    addresses: Sequence[str],
    subject: str,
    *,
    resource: str | None = None,
    policy_type: str | None = None,
) -> list[Outcome]:
    """Delete the entry of a resource, or all policies of a subject, on each broker."""
    header = DeleteAclRequestHeader(subject=subject, policy_type=policy_type, resource=resource)
    return await in_turn(addresses, lambda address: admin.call(address, RequestCode.AUTH_DELETE_ACL, header))


async def get_acl(admin: Admin, address: str, subject: str) -> AclInfo | None:
    """The policies of a subject on a broker; None if it has none."""
    answer = await admin.call(address, RequestCode.AUTH_GET_ACL, GetAclRequestHeader(subject=subject))
    return decode_body(answer.body, AclInfo) if answer.body else None


async def list_acls(
    admin: Admin, address: str, subject_text: str | None = None, resource_text: str | None = None
) -> list[AclInfo]:
    """The policies of subjects that contain a text, of resources that contain another."""
    header = ListAclsRequestHeader(subject_filter=subject_text, resource_filter=resource_text)
    answer = await admin.call(address, RequestCode.AUTH_LIST_ACL, header)
    return decode_body(answer.body, list[AclInfo]) if answer.body else []


async def copy_acls(
    admin: Admin, source: str, target: str, subjects: Sequence[str] = ()
) -> list[tuple[str, Outcome]]:
    """Copy policies, of all subjects by default: each subject, and what became of it."""
    if subjects:
        found = [await get_acl(admin, source, subject) for subject in subjects]
        acls = [acl for acl in found if acl is not None]
    else:
        acls = await list_acls(admin, source)
    return [(acl.subject or "", await outcome_of(target, _copy(admin, target, acl))) for acl in acls]


async def _copy(admin: Admin, target: str, acl: AclInfo) -> None:
    subject = acl.subject or ""
    if await _has_acl(admin, target, subject):
        await _update(admin, target, subject, acl)
    else:
        await _create(admin, target, subject, acl)


async def _has_acl(admin: Admin, address: str, subject: str) -> bool:
    try:
        return await get_acl(admin, address, subject) is not None
    except ResponseError as error:
        # Creating it says which subject is missing.
        if error.code == ResponseCode.NO_PERMISSION and _NO_SUBJECT in str(error):
            return False
        raise


async def _create(admin: Admin, address: str, subject: str, acl: AclInfo) -> None:
    header = CreateAclRequestHeader(subject=subject)
    await admin.call(address, RequestCode.AUTH_CREATE_ACL, header, encode_body(acl))


async def _update(admin: Admin, address: str, subject: str, acl: AclInfo) -> None:
    header = UpdateAclRequestHeader(subject=subject)
    await admin.call(address, RequestCode.AUTH_UPDATE_ACL, header, encode_body(acl))
