"""Users and policies from RocketMQ's JSON: what a request or a file has, checked, with RocketMQ's words.

Stricter than Apache, which drops unknown words: an unknown type, status, policy type or action
is refused: otherwise a user would stay enabled, or a resource allowed, without notice.
"""

from __future__ import annotations

from typing import Final, NoReturn

from kourou.access.auth.model import (
    Acl,
    Decision,
    Entry,
    PatternKind,
    PolicyType,
    ResourcePattern,
    User,
    UserStatus,
    UserType,
    Word,
    user_of_subject,
    word_of,
)
from kourou.access.auth.sources import Source
from kourou.access.model import Action
from kourou.errors import RequestError
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.codes import ResponseCode

MAX_NAME_CHARS: Final = 255
_ANY_ACTION: Final = "any"


def refuse(remark: str, code: ResponseCode = ResponseCode.NO_PERMISSION) -> NoReturn:
    """RequestError, with the code that RocketMQ uses for whatever its tables refuse."""
    raise RequestError(code, remark)


def checked_name(name: str | None) -> str:
    """A user name; RequestError if it is blank, or cannot be written in a log."""
    if not name:
        refuse("The username is blank", ResponseCode.INVALID_PARAMETER)
    if not name.strip():
        refuse("username can not be blank")
    if len(name) > MAX_NAME_CHARS or not name.isprintable():
        refuse(
            f"The username must have at most {MAX_NAME_CHARS} printable characters",
            ResponseCode.INVALID_PARAMETER,
        )
    return name


def new_user(name: str | None, info: UserInfo) -> User:
    """A user as described; one that is not said to be anything else is an enabled Normal one."""
    name = checked_name(name)
    if not (info.password or "").strip():
        refuse("password can not be blank")
    return changed_user(User(name, ""), info)


def changed_user(user: User, info: UserInfo) -> User:
    """A user with what is described; what is not given, or blank, stays."""
    password = info.password if (info.password or "").strip() else user.password
    return User(
        user.name,
        password or "",
        _word("userType", UserType, info.user_type) or user.type,
        _word("userStatus", UserStatus, info.user_status) or user.status,
    )


def checked_subject(subject: str | None) -> str:
    """The user of a subject."""
    name = user_of_subject(subject)
    if name is None:
        refuse("The subject is null.")
    return checked_name(name)


def policy_type_of(text: str | None) -> PolicyType:
    """A policy type; Custom if none is given."""
    return _word("policyType", PolicyType, text) or PolicyType.CUSTOM


def acl_of(subject: str | None, info: AclInfo) -> Acl:
    """The policies that are described, of the subject in the description if it has one."""
    name = user_of_subject(info.subject or subject)
    if name is None:
        refuse(
            "An system error occurred, please try again later. The subject must be User:name",
            ResponseCode.SYSTEM_ERROR,
        )
    if info.policies is None:
        refuse("The body of acl is null", ResponseCode.SYSTEM_ERROR)
    acl = Acl(checked_name(name))
    for policy in info.policies:
        acl = merged(acl, policy_type_of(policy.policy_type), _entries(policy))
    if acl.is_empty:
        refuse("The policies is empty.")
    return acl


def merged(acl: Acl, policy_type: PolicyType, entries: tuple[Entry, ...]) -> Acl:
    """The policies with these entries, each instead of one of the same resource."""
    table = {entry.resource: entry for entry in (*acl.entries(policy_type), *entries)}
    return acl.with_entries(policy_type, table.values())


def resource_of(text: str | None) -> ResourcePattern:
    """A pattern of resources."""
    pattern = ResourcePattern.parse(text)
    if pattern is None:
        refuse("The resource is null.")
    if pattern.kind is not PatternKind.ANY and not pattern.name.isprintable():
        refuse("The resource must have printable characters.")
    return pattern


def _entries(policy: PolicyInfo) -> tuple[Entry, ...]:
    return tuple(map(_entry, policy.entries or ()))


def _entry(info: PolicyEntryInfo) -> Entry:
    resource = resource_of(info.resource)
    actions = _actions(info.actions or ())
    sources = tuple(map(_source, info.source_ips or ()))
    decision = word_of(Decision, info.decision)
    if decision is None:
        refuse("The decision is null or illegal.")
    return Entry(resource=resource, actions=actions, sources=sources, decision=decision)


def _actions(words: list[str] | tuple[()]) -> tuple[Action, ...]:
    if any(word.strip().lower() == _ANY_ACTION for word in words):
        refuse("The actions can not be Any.")
    found = {word: word_of(Action, word) for word in words}
    actions = dict.fromkeys(action for action in found.values() if action is not None)
    if not actions:
        refuse("The actions is empty.")
    unknown = [word for word, action in found.items() if action is None]
    if unknown:
        refuse(f"The actions are not all known: {', '.join(unknown)}.")
    return tuple(actions)


def _source(text: str) -> Source:
    if not text.strip():
        refuse("The source ip is empty.")
    source = Source.parse(text)
    if source is None:
        refuse("The source ip is invalid.")
    return source


def _word(name: str, words: type[Word], text: str | None) -> Word | None:
    """The word that is given; None if none is."""
    if not (text or "").strip():
        return None
    word = word_of(words, text)
    if word is None:
        known = ", ".join(str(each.value) for each in words)
        refuse(f"The {name} is illegal; it must be one of {known}.", ResponseCode.INVALID_PARAMETER)
    return word
