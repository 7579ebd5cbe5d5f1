"""The admin requests of RocketMQ 4's access control (50 to 54): accounts, exempt addresses, their versions.

A change is on disk, and in force, when it is answered. Answers have RocketMQ's codes and words, but never a
secret key in a remark. Secret keys are returned to administrators only.
Not here: whether the caller may send the request at all (the gate), what a change means (access/plain/).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.access.plain.accounts import AccountTable
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.edits import (
    AccountChange,
    AccountEditor,
    NoSuchAccountError,
    NoSuchAccountsFileError,
)
from kourou.errors import ConfigError, RequestError
from kourou.protocol.bodies import DataVersion, PlainAccessConfig, PlainAclConfig, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.access.plain.rules import PlainRules
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_MASKED: Final = "***"
_BETWEEN: Final = re.compile(r",(?![^{]*\})")
"""The commas between addresses, not those in 10.0.0.{1,2}."""


class PlainAclProcessor:
    """Changes accounts, and shows them. `is_admin` says whether the caller of a request is known to be an
    administrator; `rules_changed` is called after each change."""

    def __init__(
        self,
        *,
        rules: PlainRules,
        is_admin: Callable[[Request], bool],
        rules_changed: Callable[[], None],
        config: LiveConfig,
        address: str,
        disk: DiskThreads,
        requests: TaskOwner,
        now_ms: Callable[[], int],
    ) -> None:
        self._rules = rules
        self._is_admin = is_admin
        self._rules_changed = rules_changed
        self._live_config = config
        self._address = address
        self._disk = disk
        self._requests = requests
        self._editor = AccountEditor(now_ms)
        self._start_ms = now_ms()

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_accounts,
        }

    # -- changes ---------------------------------------------------------------------------------

    def update_account(self, request: Request) -> None:
        """UPDATE_AND_CREATE_ACL_CONFIG: create an account, or change what is given of it."""
        change = _change_of(request.header(CreateAccessConfigRequestHeader))
        self._edit(
            request,
            lambda files: self._editor.put(files, change),
            f"account {change.access_key} written",
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        )

    def delete_account(self, request: Request) -> None:
        """DELETE_ACL_CONFIG."""
        key = request.header(DeleteAccessConfigRequestHeader).access_key or "null"
        self._edit(
            request,
            lambda files: self._editor.delete(files, key),
            f"account {key} deleted",
            ResponseCode.DELETE_ACL_CONFIG_FAILED,
            f"The accesskey[{key}] corresponding to accessConfig has been deleted failed.",
        )

    def update_white_addresses(self, request: Request) -> None:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: replace the white list of one file."""
        header = request.header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        given, failed = header.global_white_addrs, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        if given is None:
            raise RequestError(failed, "The globalWhiteAddresses[null] has been updated failed.")
        addresses = [address.strip() for address in _BETWEEN.split(given)]
        self._edit(
            request,
            lambda files: self._editor.set_white(files, addresses, header.acl_file_full_path),
            f"exempt addresses set to {given}",
            failed,
            f"The globalWhiteAddresses[{given}] has been updated failed.",
        )

    def _edit(
        self,
        request: Request,
        change: Callable[[AccountFiles], None],
        done: str,
        failed: ResponseCode,
        not_there: str = "",
    ) -> None:
        run_request(self._requests, request, self._edited(request, change, done, failed, not_there))

    async def _edited(
        self,
        request: Request,
        change: Callable[[AccountFiles], None],
        done: str,
        failed: ResponseCode,
        not_there: str,
    ) -> None:
        """Change files; `not_there` are RocketMQ's words for an account or file that is not there."""
        try:
            await self._disk.run(self._rules.edit, change)
        except (NoSuchAccountError, NoSuchAccountsFileError) as error:
            raise RequestError(failed, not_there) from error
        except ConfigError as error:
            raise RequestError(failed, str(error)) from error
        self._rules_changed()
        _log.info("%s by %s", done, request.connection.remote_address)
        request.reply()

    # -- queries ---------------------------------------------------------------------------------

    def get_versions(self, request: Request) -> None:
        """GET_BROKER_CLUSTER_ACL_INFO: the version of each file that is not empty."""
        files = [file for file in self._rules.table.files if not file.is_empty]
        versions = {str(file.path): self._dated(file.version) for file in files}
        default = versions.get(str(self._rules.files.default), self._dated(DataVersion()))
        config = self._live_config.current
        request.reply(
            GetBrokerAclConfigResponseHeader(
                version=encode_body(default, v4=True).decode(),
                all_acl_file_version=encode_body(versions, v4=True).decode(),
                broker_name=config.broker_name,
                broker_addr=self._address,
                cluster_name=config.broker_cluster_name,
            )
        )

    def get_accounts(self, request: Request) -> None:
        """GET_BROKER_CLUSTER_ACL_CONFIG: all accounts, and the exempt addresses."""
        body = _listing(self._rules.table, with_secrets=self._is_admin(request))
        request.reply(body=encode_body(body))

    def _dated(self, version: DataVersion) -> DataVersion:
        """A file without a version has RocketMQ's first one, from the start of the broker."""
        return version if version.timestamp else DataVersion(timestamp=self._start_ms)


def _change_of(header: CreateAccessConfigRequestHeader) -> AccountChange:
    return AccountChange(
        access_key=header.access_key,
        secret_key=header.secret_key,
        white_remote_address=header.white_remote_address,
        is_admin=bool(header.admin),
        default_topic_perm=header.default_topic_perm,
        default_group_perm=header.default_group_perm,
        topic_perms=_split(header.topic_perms),
        group_perms=_split(header.group_perms),
    )


def _split(grants: str | None) -> list[str] | None:
    return None if grants is None else grants.split(",")


def _listing(table: AccountTable, *, with_secrets: bool) -> PlainAclConfig:
    """All accounts that count, in the order of the files, as they were written."""
    accounts = [
        PlainAccessConfig(
            access_key=account.name,
            secret_key=account.secret_key if with_secrets else _MASKED,
            white_remote_address=raw.get("whiteRemoteAddress"),
            admin=account.is_admin,
            default_topic_perm=raw.get("defaultTopicPerm"),
            default_group_perm=raw.get("defaultGroupPerm"),
            topic_perms=raw.get("topicPerms") or None,
            group_perms=raw.get("groupPerms") or None,
        )
        for file in table.files
        for account, raw in zip(file.accounts, file.raw_accounts, strict=True)
        if table.accounts[account.name] is account
    ]
    white = [text for file in table.files for text in file.white_texts]
    return PlainAclConfig(global_white_addrs=white, plain_access_configs=accounts)
