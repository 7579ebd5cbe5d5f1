"""Users, policies and calls for the tests of RocketMQ 5's access control."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kourou.access.auth.data import AuthData
from kourou.access.auth.infos import acl_of
from kourou.access.auth.model import Acl, User, UserType, subject_of
from kourou.access.auth.rules import AuthRules
from kourou.access.auth.settings import AuthSettings
from kourou.access.auth.tables import AuthTables
from kourou.access.model import AccessCall, Action, Need, Needs, Resource, ResourceType
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of

ALICE = User("alice", "alice-secret")
ROOT = User("root", "root-secret", UserType.SUPER)
PUB_ORDERS = Need(Resource(ResourceType.TOPIC, "orders"), frozenset({Action.PUB}))


def entry(resource: str, actions: str, decision: str = "Allow", *sources: str) -> PolicyEntryInfo:
    """An entry as a request has it."""
    return PolicyEntryInfo(resource, actions.split(","), list(sources) or None, decision)


def acl_info(*entries: PolicyEntryInfo, policy_type: str | None = None) -> AclInfo:
    """Policies of one type as a request has them."""
    return AclInfo(policies=[PolicyInfo(policy_type, list(entries))])


def acl(*entries: PolicyEntryInfo, name: str = "alice", policy_type: str | None = None) -> Acl:
    """Policies of a user."""
    return acl_of(subject_of(name), acl_info(*entries, policy_type=policy_type))


def data(*users: User, acls: tuple[Acl, ...] = ()) -> AuthData:
    """Users and policies."""
    return AuthData({user.name: user for user in users}, {each.user_name: each for each in acls})


def rules(folder: Path, content: AuthData, settings: AuthSettings | None = None) -> AuthRules:
    """Rules for some users and policies."""
    return AuthRules(settings or AuthSettings(), tables(folder, content))


def tables(folder: Path, content: AuthData) -> AuthTables:
    """Tables in memory."""
    made = AuthTables(folder, lambda: 1)
    made.adopt(content)
    return made


def call(
    user: User | None,
    *needs: Need,
    code: int = RequestCode.SEND_MESSAGE_V2,
    address: str = "10.0.0.1",
    is_admin_only: bool = False,
    certificate_user: str | None = None,
    **fields: str,
) -> AccessCall:
    """A request of a user, signed if there is one."""
    given: Mapping[str, str] = fields
    if user is not None:
        given = {ACCESS_KEY: user.name, **fields}
        given = {**given, SIGNATURE: signature_of(given, b"body", user.password)}
    return AccessCall(
        code=code,
        version=500,
        fields=given,
        body=b"body",
        address=address,
        needs=Needs(auth=needs, is_admin_only=is_admin_only),
        certificate_user=certificate_user,
    )
