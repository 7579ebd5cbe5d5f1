"""Changes of the accounts and the white list of RocketMQ 4's access control. A secret key is never part of a
preview or an answer."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from kourou.admin.access import PlainListed, PlainListing, plain_secret
from kourou.admin.plain_acl import delete_account, put_account, set_white_addresses
from kourou.admin.session import BrokerAddress
from kourou.admin.users import in_turn
from kourou.console.api.access_places import AccessPlaces, access_commands, access_places, where
from kourou.console.api.access_users import AccessScope
from kourou.console.api.places import named_outcomes
from kourou.console.api_errors import ApiError, bad_input, not_found
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan
from kourou.errors import ConfigError
from kourou.protocol.bodies import PlainAccessConfig

NO_PLAIN: Final = "no broker here has access control of RocketMQ 4"
_SECRET: Final = "SECRET"
"""In command lines, instead of a secret key."""

Perm = Literal["", "DENY", "PUB", "SUB", "PUB|SUB"]


class AccountSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an account may do. What is not given stays, or is RocketMQ's default in a new account."""

    white_remote_address: str | None = None
    """An address pattern from which it needs no signature."""
    admin: bool | None = None
    default_topic_perm: Perm | None = None
    default_group_perm: Perm | None = None
    topic_perms: list[str] | None = None
    """`name=PERM`."""
    group_perms: list[str] | None = None


class NewAccount(AccountSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An account to create on the brokers with these names, on all if there are none."""

    access_key: str
    secret_key: str
    brokers: list[str] = []


class AccountChange(AccountSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be changed of an account."""

    secret_key: str | None = None
    brokers: list[str] = []


class NewWhiteList(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Address patterns from which no request needs an account."""

    addresses: list[str]
    brokers: list[str] = []


async def _places(call: Call[Any, Any]) -> AccessPlaces[PlainListing]:
    return await access_places(call.admin, PlainListing, call.body.brokers, NO_PLAIN)


def _account(listing: PlainListing, access_key: str) -> PlainListed | None:
    accounts = listing.plain_access_configs or ()
    return next((one for one in accounts if one.access_key == access_key), None)


# -- create and change -------------------------------------------------------------------------------


async def _create(call: Call[NoQuery, NewAccount]) -> Plan:
    body, places = call.body, await _places(call)
    for field, value in (("access_key", body.access_key), ("secret_key", body.secret_key)):
        if len(value) <= 6:
            raise bad_input(field, "RocketMQ needs more than 6 characters")
    _check_perms(body)
    brokers = [broker for broker, listing in places if _account(listing, body.access_key) is None]
    if not brokers:
        raise ApiError(
            HTTPStatus.CONFLICT,
            "account_exists",
            f"account {body.access_key} already exists",
            "change it instead",
        )
    changes = {broker: _differences(PlainListed(), body) for broker in brokers}
    settings = "; ".join(changes[brokers[0]]) or "without permissions"
    return Plan(
        effects=[f"Creates account {body.access_key} on {where(brokers)}: {settings}"],
        warnings=[*places.warnings, *_warnings(body)],
        commands=await access_commands(
            call,
            brokers,
            "updateAclConfig",
            *("-a", body.access_key, "-s", _SECRET),
            *_options(body, is_admin=bool(body.admin)),
        ),
        run=lambda: _put(call, body.access_key, dict.fromkeys(brokers, PlainListed())),
        is_secret=True,
    )


async def _change(call: Call[NoQuery, AccountChange]) -> Plan:
    key, body, places = call.path["key"], call.body, await _places(call)
    _check_perms(body)
    if body.secret_key and len(body.secret_key) <= 6:
        raise bad_input("secret_key", "RocketMQ needs more than 6 characters")
    olds = {broker: old for broker, listing in places if (old := _account(listing, key)) is not None}
    if not olds:
        raise not_found(f"there is no account {key}")
    effects, changed = [], {}
    for broker, old in olds.items():
        _check_not_emptied(old, body)
        changes = (["new secret key"] if body.secret_key else []) + _differences(old, body)
        if changes:
            effects.append(f"{where([broker])}: {'; '.join(changes)}")
            changed[broker] = old
    if not changed:
        raise bad_input("body", f"account {key} is like this already")
    secret = ("-s", _SECRET) if body.secret_key else ("-s", "ITS_SECRET_KEY")
    return Plan(
        effects=[f"Changes account {key}", *effects],
        warnings=[*places.warnings, *_warnings(body), *_own_account(call, key)],
        commands=await access_commands(
            call,
            list(changed),
            "updateAclConfig",
            *("-a", key, *secret),
            *_options(body, is_admin=any(_is_admin(old, body) for old in changed.values())),
        ),
        run=lambda: _put(call, key, changed),
        is_secret=body.secret_key is not None,
    )


async def _put(call: Call[Any, Any], access_key: str, olds: dict[BrokerAddress, PlainListed]) -> Done:
    body = call.body
    by_address = {broker.address: old for broker, old in olds.items()}

    async def put(address: str) -> None:
        old = by_address[address]
        secret = body.secret_key or await plain_secret(call.admin, address, access_key)
        if secret is None:
            raise ConfigError("this broker needs the secret key with each change; give it, too")
        changed = {name: getattr(body, name) for name in _WORDS if _differs(old, body, name)}
        account = PlainAccessConfig(access_key=access_key, secret_key=secret, **changed)
        # A change without this field takes it away.
        await put_account(call.admin, [address], msgspec.structs.replace(account, admin=_is_admin(old, body)))

    return Done(outcomes=named_outcomes(await in_turn(list(by_address), put), olds))


def _is_admin(old: PlainListed, body: AccountSettings) -> bool:
    return old.admin if body.admin is None else body.admin


_WORDS: Final = {
    "admin": "administrator",
    "white_remote_address": "address without signature",
    "default_topic_perm": "default for topics",
    "default_group_perm": "default for groups",
    "topic_perms": "topics",
    "group_perms": "groups",
}


def _differences(old: PlainListed, new: AccountSettings) -> list[str]:
    return [
        f"{words} {_shown(getattr(old, name))} → {_shown(getattr(new, name))}"
        for name, words in _WORDS.items()
        if _differs(old, new, name)
    ]


def _differs(old: PlainListed, new: AccountSettings, name: str) -> bool:
    given = getattr(new, name)
    return given is not None and (getattr(old, name) or None) != (given or None)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) if isinstance(value, list) else str(value or "")) or "none"


def _check_perms(body: AccountSettings) -> None:
    for field in ("topic_perms", "group_perms"):
        for text in getattr(body, field) or ():
            name, _, perm = text.partition("=")
            if not name.strip() or perm not in ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"):
                raise bad_input(field, f"{text!r} is not NAME=PUB, NAME=SUB, NAME=PUB|SUB or NAME=DENY")
            if "," in text:
                raise bad_input(field, f"{text!r} has a comma")


def _check_not_emptied(old: PlainListed, new: AccountSettings) -> None:
    for field in ("topic_perms", "group_perms"):
        if getattr(new, field) == [] and getattr(old, field):
            raise bad_input(
                field,
                "RocketMQ 4 cannot empty this list by a request; set its names to DENY, or delete the "
                "account and create it again",
            )


def _options(body: AccountSettings, *, is_admin: bool) -> list[str]:
    words: list[str] = []
    for letter, value in (
        ("-w", body.white_remote_address),
        ("-i", body.default_topic_perm),
        ("-u", body.default_group_perm),
        ("-t", None if body.topic_perms is None else ",".join(body.topic_perms)),
        ("-g", None if body.group_perms is None else ",".join(body.group_perms)),
        ("-m", str(is_admin).lower()),
    ):
        words += [] if value is None else [letter, value]
    return words


def _warnings(body: AccountSettings) -> list[str]:
    found = []
    if body.admin and (body.topic_perms or body.group_perms):
        found.append("An administrator with a list of topics or groups is confined to it, as any account")
    if body.white_remote_address:
        found.append(f"Clients at {body.white_remote_address} do not need the secret key of this account")
    return found


def _own_account(call: Call[Any, Any], access_key: str) -> list[str]:
    is_own = access_key == call.visitor.user and call.context.settings.accounts
    return ["You are logged in with this account"] if is_own else []


# -- delete, white list ------------------------------------------------------------------------------


async def _delete(call: Call[NoQuery, AccessScope]) -> Plan:
    key, places = call.path["key"], await _places(call)
    brokers = [broker for broker, listing in places if _account(listing, key) is not None]
    if not brokers:
        raise not_found(f"there is no account {key}")

    async def run() -> Done:
        outcomes = await delete_account(call.admin, [broker.address for broker in brokers], key)
        return Done(outcomes=named_outcomes(outcomes, brokers))

    return Plan(
        effects=[f"Deletes account {key} from {where(brokers)}"],
        warnings=[
            *places.warnings,
            f"Clients with the keys of {key} are refused from now on",
            *_own_account(call, key),
        ],
        commands=await access_commands(call, brokers, "deleteAclConfig", "-a", key),
        run=run,
    )


async def _white_list(call: Call[NoQuery, NewWhiteList]) -> Plan:
    places, new = await _places(call), list(dict.fromkeys(filter(None, map(str.strip, call.body.addresses))))
    olds = {broker: listing.global_white_addrs or [] for broker, listing in places}
    brokers = [broker for broker, old in olds.items() if old != new]
    if not brokers:
        raise bad_input("addresses", "the white list is like this already")
    text = ",".join(new)

    async def run() -> Done:
        addresses = [broker.address for broker in brokers]
        return Done(outcomes=named_outcomes(await set_white_addresses(call.admin, addresses, text), brokers))

    warnings = [f"Clients at {text} need no account and may do everything"] if new else []
    return Plan(
        effects=[
            f"White list of {where([broker])}: {_shown(olds[broker])} → {_shown(new)}" for broker in brokers
        ],
        warnings=[*places.warnings, *warnings],
        commands=await access_commands(call, brokers, "updateGlobalWhiteAddr", "-g", text),
        run=run,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(
        path="/access/accounts",
        summary="Create an account of RocketMQ 4's access control",
        body=NewAccount,
        planner=_create,
        is_secret=True,
    ),
    Change(
        method="PUT",
        path="/access/accounts/{key:path}",
        summary="Change an account",
        body=AccountChange,
        planner=_change,
        is_secret=True,
    ),
    Change(
        method="DELETE",
        path="/access/accounts/{key:path}",
        summary="Delete an account",
        body=AccessScope,
        planner=_delete,
    ),
    Change(
        method="PUT",
        path="/access/white-list",
        summary="Replace the addresses that need no account",
        body=NewWhiteList,
        planner=_white_list,
    ),
)
