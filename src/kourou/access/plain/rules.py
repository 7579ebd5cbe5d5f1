"""PlainRules: decisions about requests, by the accounts of RocketMQ 4 that are in force.

In order: an address of the global white list passes; an access key is needed, of a known account; an
address of the account's own white list passes; the signature has to be right; some requests are for
administrators; an administrator without listed permissions passes; traces may be sent by all; each topic and
group has to be granted. Refusals have the code and the words of RocketMQ 4.9.7, with the place in its source.

Files that change are read again as a whole. The new table is in force at once; if anything is wrong with a
file, the old one stays. A file that is found empty or missing counts as such when it still is at the next
look: it may be about to be written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kourou.access.model import AccessCall, AccessRefusedError, Account, Action, Need, Needs, RefusalKind
from kourou.access.plain.accounts import AccountTable, PlainAccount, described, resource_key
from kourou.access.plain.accounts_file import AccountFiles, Fingerprint
from kourou.access.plain.addresses import parse_address
from kourou.access.plain.hash_order import in_hash_order
from kourou.access.signatures import is_signed_by
from kourou.errors import ConfigError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC, is_retry_topic
from kourou.wording import counted

_log = logging.getLogger(__name__)

_VALIDATE: Final = "validate"
_CHECK_PERM: Final = "checkPerm"


class PlainRules:
    """The rules of RocketMQ 4. One is made at the start (`load`); `reload_if_changed` is called from time to
    time, and may be in another thread."""

    def __init__(self, files: AccountFiles) -> None:
        self._files = files
        self._table = AccountTable()
        self._seen: Fingerprint | None = None
        self._emptied: Fingerprint | None = None
        self._problem = ""
        self._open_files: list[Path] = []
        self._lock = threading.Lock()

    @property
    def files(self) -> AccountFiles:
        """Where the accounts are."""
        return self._files

    @property
    def table(self) -> AccountTable:
        """The accounts in force."""
        return self._table

    @property
    def version(self) -> object:
        """The table: a change makes another one."""
        return self._table

    # -- decisions -------------------------------------------------------------------------------

    def check(self, call: AccessCall) -> Account | None:
        """The account of the caller; None from an exempt address. AccessRefusedError."""
        table = self._table
        address = parse_address(call.address)
        if table.is_exempt(address):
            return None
        account = _account_of(call, table)
        if account.exempt.matches(address):
            return account
        if call.certificate_user is None and not is_signed_by(call, account.secret_key):
            text = f"Check signature failed for accessKey={account.name}"
            raise _refused(RefusalKind.WRONG_SIGNATURE, text, _VALIDATE, 683, account.name)
        _check_permissions(call, account)
        return account

    def sender(self, access_key: str, topic: str) -> Account | None:
        """The account that may send to a topic from every address, its signature provided."""
        account = self._table.accounts.get(access_key)
        if account is None or is_retry_topic(topic):
            return None
        return account if topic == RMQ_SYS_TRACE_TOPIC or account.may_send_to(topic) else None

    def has_everywhere(self, access_key: str, needs: Needs) -> bool:
        """Whether an account is granted all of them; no permission depends on an address."""
        account = self._table.accounts.get(access_key)
        return account is not None and all(map(account.is_granted, needs.plain))

    # -- files -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Read all files. ConfigError with all problems; nothing has changed then."""
        with self._lock:
            seen = self._files.fingerprint()
            self._adopt(self._files.load(), seen)
            if not self._table.accounts and not self._table.white:
                _log.warning("there are no accounts in %s: every request is refused", self._files.default)

    def reload_if_changed(self) -> bool:
        """Read the files again if one has changed. True: another table is in force. What is wrong with
        the files is logged, once, and the old table stays."""
        with self._lock:
            try:
                seen = self._files.fingerprint()
                if seen == self._seen:
                    return False
                self._seen = seen
                table = self._files.load()
                if self._is_being_written(table, seen):
                    self._seen = None
                    return False
            except ConfigError as error:
                self._keep_table(str(error))
                return False
            self._adopt(table, seen)
            return True

    def edit(self, change: Callable[[AccountFiles], None]) -> None:
        """Change files and put them in force. Raises what `change` raises; nothing has changed then."""
        with self._lock:
            change(self._files)
            seen = self._files.fingerprint()
            self._adopt(self._files.load(), seen)

    def _is_being_written(self, table: AccountTable, seen: Fingerprint) -> bool:
        """Whether to look again first: a file changed meanwhile, or one has become empty just now."""
        if self._files.fingerprint() != seen:
            return True
        gone = self._table.filled_paths() - table.filled_paths()
        is_first_look = seen != self._emptied
        self._emptied = seen if gone else None
        return bool(gone) and is_first_look

    def _adopt(self, table: AccountTable, seen: Fingerprint) -> None:
        self._table = table
        self._seen = seen
        self._problem = ""
        _log.info(
            "%s and %s in force, from %s",
            counted(len(table.accounts), "account"),
            counted(len(table.white), "exempt address", "exempt addresses"),
            counted(len(table.files), "file"),
        )
        for note in table.notes:
            _log.warning("%s", note)
        self._note_open_files()

    def _keep_table(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.error("accounts stay as they were, the files cannot be used:\n%s", problem)

    def _note_open_files(self) -> None:
        try:
            open_files = self._files.readable_by_others()
        except ConfigError:
            return  # the next look reports it; the table is in force
        for path in open_files:
            if path not in self._open_files:
                _log.warning("%s has secret keys, but every user can read it: chmod 600 %s", path, path)
        self._open_files = open_files


def _account_of(call: AccessCall, table: AccountTable) -> PlainAccount:
    """The account that a call names; where the name in the client's certificate counts, the account of that
    name, whose signature is not needed."""
    name = call.certificate_user or call.access_key
    if call.certificate_user and call.access_key not in ("", name):
        text = f"accessKey={call.access_key} is not the user of the client's certificate"
        raise _refused(RefusalKind.WRONG_SIGNATURE, text, _VALIDATE, 683, call.access_key)
    if not name:
        raise _refused(RefusalKind.NO_CREDENTIALS, "No accessKey is configured", _VALIDATE, 663)
    account = table.accounts.get(name)
    if account is None:
        raise _refused(RefusalKind.UNKNOWN_USER, f"No acl config for {name}", _VALIDATE, 667, name)
    return account


def _check_permissions(call: AccessCall, account: PlainAccount) -> None:
    if call.needs.is_plain_admin_only and not account.is_admin:
        text = f"Need admin permission for request code={call.code}, but accessKey={account.name} is not"
        raise _refused(RefusalKind.NO_PERMISSION, text, _CHECK_PERM, 580, account.name)
    refused = {
        resource_key(need)
        for need in call.needs.plain
        if not _is_trace(need) and not account.is_granted(need)
    }
    if refused:
        needed = dict.fromkeys(map(resource_key, call.needs.plain))
        key = next(key for key in in_hash_order(needed) if key in refused)
        text = f"No default permission for {described(key)}"
        line = 610 if key in account.listed else 605
        raise _refused(RefusalKind.NO_PERMISSION, text, _CHECK_PERM, line, account.name)


def _is_trace(need: Need) -> bool:
    """Whether it is sending traces, which needs no permission."""
    return Action.PUB in need.actions and resource_key(need) == RMQ_SYS_TRACE_TOPIC


def _refused(kind: RefusalKind, text: str, method: str, line: int, user: str = "") -> AccessRefusedError:
    """The exception of RocketMQ 4.9.7, as its remark shows it."""
    place = (
        f"org.apache.rocketmq.acl.plain.PlainPermissionManager.{method}(PlainPermissionManager.java:{line})"
    )
    remark = f"org.apache.rocketmq.acl.common.AclException: {text}, {place}"
    return AccessRefusedError(kind, ResponseCode.SYSTEM_ERROR, remark, user=user)
