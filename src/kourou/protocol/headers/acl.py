"""Headers of access control: the accounts of 4.9, users and policies of 5.x."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader

__all__ = [
    "CreateAccessConfigRequestHeader",
    "CreateAclRequestHeader",
    "CreateUserRequestHeader",
    "DeleteAccessConfigRequestHeader",
    "DeleteAclRequestHeader",
    "DeleteUserRequestHeader",
    "GetAccessRequestHeader",
    "GetAclRequestHeader",
    "GetBrokerAclConfigResponseHeader",
    "GetUserRequestHeader",
    "ListAclsRequestHeader",
    "ListUsersRequestHeader",
    "UpdateAclRequestHeader",
    "UpdateGlobalWhiteAddrsConfigRequestHeader",
    "UpdateUserRequestHeader",
]


class CreateAccessConfigRequestHeader(CommandHeader, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG; permissions are `name=PERM` joined by commas."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        # Without the secret: it must not get into a log or an error.
        return f"CreateAccessConfigRequestHeader(access_key={self.access_key!r})"


class DeleteAccessConfigRequestHeader(CommandHeader, kw_only=True):
    """DELETE_ACL_CONFIG."""

    access_key: str | None = None


class GetBrokerAclConfigResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_BROKER_CLUSTER_ACL_INFO; both versions are JSON text."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandHeader, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG; addresses are joined by commas."""

    global_white_addrs: str | None = None
    acl_file_full_path: str | None = None


class CreateUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_CREATE_USER."""

    username: str | None = None


class UpdateUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_UPDATE_USER."""

    username: str | None = None


class DeleteUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_DELETE_USER."""

    username: str | None = None


class GetUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequestHeader(CommandHeader, kw_only=True):
    """AUTH_LIST_USER."""

    filter: str | None = None


class CreateAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_CREATE_ACL; a subject is written `User:name`."""

    subject: str | None = None


class UpdateAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_UPDATE_ACL."""

    subject: str | None = None


class DeleteAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_DELETE_ACL."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_GET_ACL."""

    subject: str | None = None


class ListAclsRequestHeader(CommandHeader, kw_only=True):
    """AUTH_LIST_ACL."""

    subject_filter: str | None = None
    resource_filter: str | None = None


class GetAccessRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_ACCESS, which slaves send. `kourou_data_version`: the version that the slave has, as JSON;
    if the master has the same, the response has no body."""

    kourou_data_version: str | None = None
