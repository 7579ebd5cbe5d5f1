"""Accounts of RocketMQ 4's access control, in a broker's plain_acl.yml: changed, deleted, listed.

Secret keys are sent to brokers, and never returned from here: brokers return them to administrators.
Changes are made at one broker after the other, in the given order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kourou.admin.session import Admin
from kourou.admin.targets import Outcome, call_each
from kourou.admin.users import in_turn
from kourou.errors import KourouError
from kourou.protocol.bodies import DataVersion, PlainAccessConfig, PlainAclConfig, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

MASKED: Final = "***"


@dataclass(frozen=True, slots=True)
class AclFileVersion:
    """How often a file was changed by requests, and when last."""

    path: str
    counter: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class AclVersions:
    """The files of accounts of a broker; what it calls itself."""

    address: str
    cluster_name: str = ""
    broker_name: str = ""
    broker_addr: str = ""
    files: Sequence[AclFileVersion] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AclListing:
    """The accounts of a broker, with stars for secret keys."""

    address: str
    config: PlainAclConfig | None = None
    problem: str = ""


async def put_account(admin: Admin, addresses: Sequence[str], account: PlainAccessConfig) -> list[Outcome]:
    """Create an account on each broker, or change what is not None of it, and `admin`."""
    header = CreateAccessConfigRequestHeader(
        access_key=account.access_key,
        secret_key=account.secret_key,
        white_remote_address=account.white_remote_address,
        admin=account.admin,
        default_topic_perm=account.default_topic_perm,
        default_group_perm=account.default_group_perm,
        topic_perms=_joined(account.topic_perms),
        group_perms=_joined(account.group_perms),
    )
    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    return await in_turn(addresses, lambda address: admin.call(address, code, header))


async def delete_account(admin: Admin, addresses: Sequence[str], access_key: str) -> list[Outcome]:
    """Delete an account on each broker."""
    header = DeleteAccessConfigRequestHeader(access_key=access_key)
    return await in_turn(
        addresses, lambda address: admin.call(address, RequestCode.DELETE_ACL_CONFIG, header)
    )


async def set_white_addresses(
    admin: Admin, addresses: Sequence[str], patterns: str, file: str | None = None
) -> list[Outcome]:
    """Replace the exempt addresses, joined by commas, of a file; that is plain_acl.yml if none is given."""
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs=patterns, acl_file_full_path=file)
    code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    return await in_turn(addresses, lambda address: admin.call(address, code, header))


async def acl_versions(admin: Admin, addresses: Sequence[str]) -> list[AclVersions]:
    """The versions of the files of several brokers."""
    answers = await call_each(addresses, lambda address: _versions(admin, address))
    return [
        AclVersions(address, problem=str(answer)) if isinstance(answer, KourouError) else answer
        for address, answer in answers
    ]


async def acl_listings(admin: Admin, addresses: Sequence[str]) -> list[AclListing]:
    """The accounts of several brokers."""
    answers = await call_each(addresses, lambda address: _listing(admin, address))
    return [
        AclListing(address, problem=str(answer))
        if isinstance(answer, KourouError)
        else AclListing(address, answer)
        for address, answer in answers
    ]


async def _versions(admin: Admin, address: str) -> AclVersions:
    answer = await admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    header = answer.header(GetBrokerAclConfigResponseHeader)
    versions = decode_body((header.all_acl_file_version or "{}").encode(), dict[str, DataVersion])
    files = [AclFileVersion(path, version.counter, version.timestamp) for path, version in versions.items()]
    return AclVersions(address, header.cluster_name, header.broker_name, header.broker_addr, files)


async def _listing(admin: Admin, address: str) -> PlainAclConfig:
    answer = await admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    config = decode_body(answer.body, PlainAclConfig)
    masked = [msgspec.structs.replace(account, secret_key=MASKED) for account in config.plain_access_configs]
    return msgspec.structs.replace(config, plain_access_configs=masked)


def _joined(grants: list[str] | None) -> str | None:
    return None if grants is None else ",".join(grants)
