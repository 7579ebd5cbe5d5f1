"""Users and policies as admin requests change them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.access.auth.changes import (
    acl_of_subject,
    acls_like,
    change_acl,
    create_user,
    delete_acl,
    delete_user,
    update_user,
    users_like,
)
from kourou.access.auth.data import AuthData
from kourou.access.auth.model import User, UserStatus, UserType
from kourou.errors import RequestError
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from tests.unit.access.auth.calls import ALICE, ROOT, acl, acl_info, data, entry

BOTH = data(ALICE, ROOT)


def lines(content: AuthData) -> list[str]:
    """The policies of all users in short."""
    return [
        f"{info.subject} {policy.policy_type} {each.resource} {'|'.join(each.actions or [])} {each.decision}"
        for info in (found.info() for found in acls_like(content, None, None))
        for policy in info.policies or []
        for each in policy.entries or []
    ]


class TestUsers:
    def test_created_with_defaults(self) -> None:
        made = create_user(AuthData(), "bob", UserInfo(password="p"), by_super=False)
        assert made.users["bob"] == User("bob", "p", UserType.NORMAL, UserStatus.ENABLE)

    def test_words_in_any_case(self) -> None:
        info = UserInfo(password="p", user_type="SUPER", user_status="Disable")
        made = create_user(AuthData(), "bob", info, by_super=True).users["bob"]
        assert (made.type, made.status) == (UserType.SUPER, UserStatus.DISABLE)

    @pytest.mark.parametrize(
        ("name", "info", "code", "words"),
        [
            ("", UserInfo(password="p"), 29, "The username is blank"),
            (" ", UserInfo(password="p"), 16, "username can not be blank"),
            ("a\nb", UserInfo(password="p"), 29, "printable"),
            ("bob", UserInfo(password=" "), 16, "password can not be blank"),
            ("alice", UserInfo(password="p"), 16, "The user is existed"),
            ("bob", UserInfo(password="p", user_type="Super"), 1, "can only be create by super user"),
            ("bob", UserInfo(password="p", user_type="Boss"), 29, "userType is illegal"),
        ],
    )
    def test_not_created(self, name: str, info: UserInfo, code: int, words: str) -> None:
        with pytest.raises(RequestError, match=words) as caught:
            create_user(BOTH, name, info, by_super=False)
        assert caught.value.response_code == code

    def test_updated_where_given(self) -> None:
        changed = update_user(BOTH, "alice", UserInfo(password="", user_status="disable"), by_super=False)
        assert changed.users["alice"] == replace(ALICE, status=UserStatus.DISABLE)

    @pytest.mark.parametrize(
        ("name", "info", "code", "words"),
        [
            ("bob", UserInfo(password="p"), 16, "The user is not exist"),
            ("alice", UserInfo(user_status="disabled"), 29, "userStatus is illegal"),
            ("alice", UserInfo(user_type="Super"), 1, "can only be update by super user"),
            ("root", UserInfo(password="p"), 16, "can only be update by super user"),
            ("root", UserInfo(user_type="Normal"), 16, "can only be update by super user"),
        ],
    )
    def test_not_updated(self, name: str, info: UserInfo, code: int, words: str) -> None:
        with pytest.raises(RequestError, match=words) as caught:
            update_user(BOTH, name, info, by_super=False)
        assert caught.value.response_code == code

    def test_deleted_with_policies(self) -> None:
        content = data(ALICE, ROOT, acls=(acl(entry("*", "All")),))
        assert delete_user(content, "alice", by_super=False) == data(ROOT)
        assert delete_user(content, "nobody", by_super=False).same_as(content)

    def test_super_user_is_deleted_by_super_users(self) -> None:
        with pytest.raises(RequestError, match="can only be update by super user"):
            delete_user(BOTH, "root", by_super=False)
        assert delete_user(BOTH, "root", by_super=True) == data(ALICE)

    def test_listed_by_a_part_of_the_name(self) -> None:
        assert users_like(BOTH, "") == [ALICE, ROOT]
        assert users_like(BOTH, "oo") == [ROOT]


class TestAcls:
    def test_entries_are_merged(self) -> None:
        content = change_acl(BOTH, "User:alice", acl_info(entry("Topic:a", "Pub"), entry("Topic:b", "Sub")))
        content = change_acl(content, "user:alice", acl_info(entry("topic:a", "sub,GET", "deny")))
        content = change_acl(content, "User:alice", acl_info(entry("Topic:a", "Pub"), policy_type="default"))
        assert lines(content) == [
            "User:alice Custom Topic:a Sub|Get Deny",
            "User:alice Custom Topic:b Sub Allow",
            "User:alice Default Topic:a Pub Allow",
        ]

    @pytest.mark.parametrize(
        ("each", "words"),
        [
            (entry("Tpic:a", "Pub"), "The resource is null."),
            (PolicyEntryInfo("Topic:a", [], None, "Allow"), "The actions is empty."),
            (entry("Topic:a", "Foo"), "The actions is empty."),
            (entry("Topic:a", "Pub,Foo"), "The actions are not all known: Foo."),
            (entry("Topic:a", "Pub,any"), "The actions can not be Any."),
            (entry("Topic:a", "Pub", "Allow", "10.0.0.300"), "The source ip is invalid."),
            (entry("Topic:a", "Pub", "Allow", " "), "The source ip is empty."),
            (entry("Topic:a", "Pub", "Perhaps"), "The decision is null or illegal."),
        ],
    )
    def test_bad_entry(self, each: PolicyEntryInfo, words: str) -> None:
        with pytest.raises(RequestError) as caught:
            change_acl(BOTH, "User:alice", acl_info(each))
        assert (str(caught.value), caught.value.response_code) == (words, 16)

    @pytest.mark.parametrize(
        ("subject", "info", "words"),
        [
            ("User:bob", acl_info(entry("*", "All")), "The subject of User:bob is not exist."),
            ("Role:bob", acl_info(entry("*", "All")), "An system error occurred.*must be User:name"),
            (" ", acl_info(entry("*", "All")), "An system error occurred"),
            ("User:alice", AclInfo(), "The body of acl is null"),
            ("User:alice", AclInfo(policies=[PolicyInfo()]), "The policies is empty."),
            ("User:alice", acl_info(entry("*", "All"), policy_type="x"), "The policyType is illegal.*"),
        ],
    )
    def test_bad_policies(self, subject: str, info: AclInfo, words: str) -> None:
        with pytest.raises(RequestError, match=words):
            change_acl(BOTH, subject, info)

    def test_deleted_by_resource_and_type(self) -> None:
        content = change_acl(BOTH, "User:alice", acl_info(entry("Topic:a", "Pub"), entry("Topic:b", "Sub")))
        content = change_acl(content, "User:alice", acl_info(entry("Topic:a", "Pub"), policy_type="Default"))
        content = delete_acl(content, "User:alice", None, "Topic:a")
        assert [line.split(" ", 1)[1] for line in lines(content)] == [
            "Custom Topic:b Sub Allow",
            "Default Topic:a Pub Allow",
        ]
        content = delete_acl(content, "User:alice", "Default", "topic:a")
        assert delete_acl(content, "User:alice", None, "Topic:b").acls == {}
        assert delete_acl(content, "User:alice", None, "").acls == {}

    def test_nothing_to_delete(self) -> None:
        with pytest.raises(RequestError, match="The acl is not exist."):
            delete_acl(BOTH, "User:alice", None, None)
        with pytest.raises(RequestError, match="The subject is not exist."):
            delete_acl(BOTH, "User:bob", None, None)
        with pytest.raises(RequestError, match="The resource is null."):
            delete_acl(BOTH, "User:alice", None, "orders")

    def test_found_by_subject(self) -> None:
        content = change_acl(BOTH, "User:alice", acl_info(entry("*", "All")))
        assert acl_of_subject(content, "User:alice") == content.acls["alice"]
        assert acl_of_subject(content, "User:root") is None
        with pytest.raises(RequestError, match="The subject is not exist."):
            acl_of_subject(content, "User:bob")

    def test_listed_by_parts_of_subject_and_resource(self) -> None:
        content = change_acl(BOTH, "User:alice", acl_info(entry("Topic:a", "Pub"), entry("Group:b", "Sub")))
        content = change_acl(content, "User:root", acl_info(entry("Topic:c", "Pub")))
        found = acls_like(content, "User:", "Topic:")
        assert [(each.user_name, len(each.custom)) for each in found] == [("alice", 1), ("root", 1)]
        assert [each.user_name for each in acls_like(content, "roo", "")] == ["root"]
