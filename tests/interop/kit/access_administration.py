"""Administration of accounts by requests: what an administrator asks, in this order, and what comes back.

Every step stands on those before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.command import RemotingCommand
from tests.interop.kit.access_accounts import ADMIN, WORKER, Identity
from tests.interop.kit.access_answers import answer_of
from tests.interop.kit.access_servers import AUTH, PLAIN
from tests.interop.kit.signed_wire import SignedConnection


@dataclass(frozen=True, slots=True)
class Step:
    """One request to administer accounts; the body as JSON."""

    name: str
    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    identity: Identity = ADMIN.identity


def steps(version: str) -> list[Step]:
    """All steps of a version."""
    return list({PLAIN: _plain, AUTH: _auth}[version]())


def _plain() -> Iterator[Step]:
    create, delete = Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG
    white, show = Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Code.GET_BROKER_CLUSTER_ACL_CONFIG
    versions = Code.GET_BROKER_CLUSTER_ACL_INFO
    key = {"accessKey": "createduser"}
    full = {**key, "secretKey": "createdsecret", "admin": "false", "whiteRemoteAddress": "10.0.0.1"}
    perms = {"defaultTopicPerm": "PUB", "defaultGroupPerm": "SUB", "topicPerms": "A=PUB,B=PUB|SUB"}
    yield Step("show", show)
    yield Step("create", create, {**full, **perms, "groupPerms": "G=SUB"})
    yield Step("show created", show)
    yield Step("create without secret", create, {"accessKey": "otheruser", "admin": "false"})
    yield Step("create with short key", create, {"accessKey": "short", "secretKey": "longsecret"})
    yield Step("create with short secret", create, {"accessKey": "longuser", "secretKey": "short"})
    yield Step("create without key", create, {"secretKey": "longsecret", "admin": "false"})
    yield Step("create with broken topics", create, {**full, "topicPerms": "A"})
    yield Step("create with unknown word", create, {**full, "topicPerms": "A=READ"})
    yield Step("create with unknown default", create, {**full, "defaultTopicPerm": "READ"})
    yield Step("create with admin resource", create, {**full, "groupPerms": "G"})
    yield Step("update without secret", create, {**key, "defaultGroupPerm": "DENY"})
    key |= {"secretKey": "createdsecret"}
    yield Step("update one field", create, {**key, "defaultGroupPerm": "DENY"})
    yield Step("show one field updated", show)
    yield Step("update topics", create, {**key, "topicPerms": "C=SUB"})
    yield Step("update to admin", create, {**key, "admin": "true"})
    yield Step("update secret", create, {**key, "secretKey": "othersecret"})
    yield Step("update to empty lists", create, {**key, "topicPerms": "", "groupPerms": ""})
    yield Step("show updated", show)
    yield Step("white", white, {"globalWhiteAddrs": "10.10.10.1,10.10.11.*"})
    yield Step("show white", show)
    yield Step("white broken", white, {"globalWhiteAddrs": "10.10.10"})
    yield Step(
        "white wrong file", white, {"globalWhiteAddrs": "10.10.10.2", "aclFileFullPath": "/etc/none.yml"}
    )
    yield Step("white empty", white, {"globalWhiteAddrs": ""})
    yield Step("white missing", white)
    yield Step("show white again", show)
    yield Step("delete", delete, key)
    yield Step("delete again", delete, key)
    yield Step("delete missing", delete)
    yield Step("show end", show)
    yield Step("versions", versions)


def _auth() -> Iterator[Step]:
    yield from _users()
    yield from _acls()
    yield from _endings()


def _user(**values: str) -> dict[str, str]:
    return values


def _users() -> Iterator[Step]:
    create, update, get = Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_GET_USER
    listing = Code.AUTH_LIST_USER
    name = {"username": "createduser"}
    yield Step("create user", create, name, _user(username="createduser", password="createdsecret"))
    yield Step("create user again", create, name, _user(username="createduser", password="createdsecret"))
    yield Step("get user", get, name)
    yield Step("create super", create, {"username": "superuser2"}, _user(password="p2", userType="super"))
    yield Step("get super", get, {"username": "superuser2"})
    yield Step("create user without password", create, {"username": "other"}, _user(username="other"))
    yield Step(
        "create user of unknown type", create, {"username": "typed"}, _user(password="p", userType="x")
    )
    yield Step("get user of unknown type", get, {"username": "typed"})
    odd = _user(password="p", userStatus="x")
    yield Step("create user of unknown status", create, {"username": "stated"}, odd)
    yield Step("get user of unknown status", get, {"username": "stated"})
    yield Step("create user of blank name", create, {"username": " "}, _user(password="p"))
    yield Step("create user without name", create, {}, _user(password="p"))
    yield Step("create user without body", create, {"username": "bodiless"})
    yield Step("get missing user", get, {"username": "missing"})
    yield Step("get user without name", get)
    yield Step("update password", update, name, _user(password="newsecret"))
    yield Step("update status", update, name, _user(userStatus="DISABLE"))
    yield Step("update type", update, name, _user(userType="Super"))
    yield Step("get updated user", get, name)
    yield Step("update nothing", update, name, {})
    yield Step("update type back", update, name, _user(userType="normal", userStatus="Enable"))
    yield Step("update missing user", update, {"username": "missing"}, _user(password="p"))
    yield Step("update user without name", update, {}, _user(password="p"))
    yield Step("list users", listing)
    yield Step("list filtered users", listing, {"filter": "created"})
    yield Step("list no users", listing, {"filter": "nothing like it"})
    worker = WORKER.identity
    yield Step("ordinary user lists users", listing, {}, None, worker)
    yield Step("ordinary user creates user", create, name, _user(password="p"), worker)


_SUBJECT: Final = {"subject": "User:createduser"}


def _entry(resource: str, *actions: str, decision: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


def _acl(
    *entries: Any, policy_type: str | None = None, subject: str | None = _SUBJECT["subject"]
) -> dict[str, Any]:
    policy: dict[str, Any] = {"entries": entries}
    if policy_type is not None:
        policy["policyType"] = policy_type
    acl: dict[str, Any] = {"policies": [policy]}
    return acl if subject is None else {"subject": subject, **acl}


def _acls() -> Iterator[Step]:
    create, update, get = Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_GET_ACL
    listing = Code.AUTH_LIST_ACL
    yield Step("create acl", create, _SUBJECT, _acl(_entry("Topic:A", "Pub", "Sub")))
    yield Step(
        "create acl again", create, _SUBJECT, _acl(_entry("Topic:A", "pub"), _entry("Group:g*", "SUB"))
    )
    yield Step("create default", create, _SUBJECT, _acl(_entry("*", "Get"), policy_type="Default"))
    yield Step("get acl", get, _SUBJECT)
    addresses = ["10.0.0.1", "10.1.0.0/16", "::1"]
    yield Step("create with addresses", create, _SUBJECT, _acl(_entry("Topic:B", "All", sourceIps=addresses)))
    yield Step("create deny", create, _SUBJECT, _acl(_entry("Cluster:*", "All", decision="deny")))
    yield Step("update acl", update, _SUBJECT, _acl(_entry("Topic:A", "Sub"), _entry("Topic:C", "Get")))
    yield Step("get updated acl", get, _SUBJECT)
    yield from _refused_acls()
    for subject in ("User:missing", "createduser", ""):
        acl = _acl(_entry("Topic:A", "Pub"), subject=subject)
        yield Step(f"create acl of '{subject}'", create, {"subject": subject}, acl)
        yield Step(f"update acl of '{subject}'", update, {"subject": subject}, acl)
        yield Step(f"get acl of '{subject}'", get, {"subject": subject})
    by_header = _acl(_entry("Topic:H", "Pub"), subject=None)
    yield Step("create acl of the header's subject", create, _SUBJECT, by_header)
    yield Step("create acl without subject", create, {}, by_header)
    other = _acl(_entry("Topic:S", "Pub"), subject="User:superuser2")
    yield Step("create acl with two subjects", create, _SUBJECT, other)
    yield Step("get acl of the body's subject", get, {"subject": "User:superuser2"})
    yield Step("get acl without subject", get)
    yield Step("get acl with headers", get, _SUBJECT)
    yield Step("list acls", listing)
    yield Step("list acls of subject", listing, {"subjectFilter": "created"})
    yield Step("list acls of resource", listing, {"resourceFilter": "Topic:A"})
    yield Step("list no acls", listing, {"subjectFilter": "nothing like it"})


def _refused_acls() -> Iterator[Step]:
    broken = {
        "unknown type": _entry("Thing:A", "Pub"),
        "no type": _entry("A", "Pub"),
        "empty name": _entry("Topic:", "Pub"),
        "no resource": {"actions": ["Pub"], "decision": "Allow"},
        "no actions": _entry("Topic:A"),
        "unknown action": _entry("Topic:A", "Fly"),
        "any action": _entry("Topic:A", "Any"),
        "some unknown action": _entry("Topic:D", "Fly", "Pub"),
        "unknown decision": _entry("Topic:A", "Pub", decision="Perhaps"),
        "no decision": {"resource": "Topic:A", "actions": ["Pub"]},
        "broken address": _entry("Topic:A", "Pub", sourceIps=["10.0.0"]),
        "inner star": _entry("Topic:a*b", "Pub"),
        "namespace": _entry("Namespace:n", "Get"),
        "any type": _entry("Any:*", "Get"),
    }
    for name, entry in broken.items():
        yield Step(f"create acl with {name}", Code.AUTH_CREATE_ACL, _SUBJECT, _acl(entry))
    yield Step("create acl without entries", Code.AUTH_CREATE_ACL, _SUBJECT, _acl())
    yield Step("create acl without policies", Code.AUTH_CREATE_ACL, _SUBJECT, dict(_SUBJECT))
    yield Step("create acl without body", Code.AUTH_CREATE_ACL, _SUBJECT)
    policy = _acl(_entry("Topic:E", "Pub"), policy_type="Strange")
    yield Step("create acl of unknown policy type", Code.AUTH_CREATE_ACL, _SUBJECT, policy)
    yield Step("get acl after refusals", Code.AUTH_GET_ACL, _SUBJECT)


def _endings() -> Iterator[Step]:
    delete, get = Code.AUTH_DELETE_ACL, Code.AUTH_GET_ACL
    yield Step("delete resource", delete, {**_SUBJECT, "resource": "Topic:C"})
    yield Step("delete missing resource", delete, {**_SUBJECT, "resource": "Topic:missing"})
    yield Step("delete default resource", delete, {**_SUBJECT, "policyType": "Default", "resource": "*"})
    yield Step("get acl without resource", get, _SUBJECT)
    yield Step("delete acl", delete, _SUBJECT)
    yield Step("delete acl again", delete, _SUBJECT)
    yield Step("get deleted acl", get, _SUBJECT)
    yield Step("delete acl of missing user", delete, {"subject": "User:missing"})
    yield Step("delete acl without subject", delete)
    entry = _acl(_entry("Topic:A", "Pub"))
    yield Step("update acl without acl", Code.AUTH_UPDATE_ACL, _SUBJECT, entry)
    yield Step("get acl once more", get, _SUBJECT)
    name = {"username": "createduser"}
    yield Step("delete user", Code.AUTH_DELETE_USER, name)
    yield Step("delete user again", Code.AUTH_DELETE_USER, name)
    yield Step("get acl of deleted user", get, _SUBJECT)
    yield Step("delete super", Code.AUTH_DELETE_USER, {"username": "superuser2"})
    yield Step("delete user without name", Code.AUTH_DELETE_USER)
    yield Step("list users at the end", Code.AUTH_LIST_USER)


def administration_answers(address: str, version: str) -> dict[str, list[Any]]:
    """What a broker answers to every step: code, remark, body."""
    answers: dict[str, list[Any]] = {}
    for step in steps(version):
        body = b"" if step.body is None else json.dumps(step.body).encode()
        with SignedConnection(address, step.identity) as connection:
            answers[step.name] = _described(connection.call(step.code, step.fields, body, timeout_s=3))
    return answers


def _described(response: RemotingCommand | None) -> list[Any]:
    """Code, remark and content, without times and places."""
    answer = answer_of(response)
    body = json.loads(response.body) if response is not None and response.body else None
    if isinstance(body, list):  # RocketMQ lists in the order of its hashes
        body.sort(key=lambda one: str(one.get("username") or one.get("subject")))
    fields = dict((response.ext_fields if response is not None else None) or {})
    described = [answer.code, answer.remark, body, fields] if fields else [answer.code, answer.remark, body]
    text = re.sub(r'(timestamp\\*"?:)\d+', r"\g<1>0", json.dumps(described))
    text = re.sub(r'/[^"\\]*/conf/', "/home/conf/", re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:10911", text))
    masked: list[Any] = json.loads(text)
    return masked
