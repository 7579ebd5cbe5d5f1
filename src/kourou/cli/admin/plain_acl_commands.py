"""Commands about the accounts of RocketMQ 4's access control (plain_acl.yml).

Changes go to masters and slaves, reads to masters, as with Apache's. Secret keys are never printed:
getAclConfig has stars where Apache's prints them.
"""

from __future__ import annotations

from typing import Final

from kourou.admin.plain_acl import (
    MASKED,
    AclListing,
    AclVersions,
    acl_listings,
    acl_versions,
    delete_account,
    put_account,
    set_white_addresses,
)
from kourou.admin.targets import Outcome
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.connecting import client_options
from kourou.cli.admin.formatting import format_time
from kourou.cli.admin.options import Option, ParsedArgs, one_of, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import BROKER_OR_CLUSTER, chosen_brokers, chosen_masters, show_outcomes
from kourou.protocol.bodies import PlainAccessConfig

_CHANGED_AT: Final[tuple[Option, ...]] = one_of(
    value("b", "brokerAddr", "broker, as host:port or by its name"),
    value("c", "clusterName", "all masters and slaves of this cluster"),
)
_VERSION_LINE: Final = "{:<16}  {:<22}  {:<22}  {:<20}  {:<22}  {:<22}"
_VERSION_HEADS: Final = (
    "#Cluster Name",
    "#Broker Name",
    "#Broker Addr",
    "#AclFilePath",
    "#AclConfigVersionNum",
    "#AclLastUpdateTime",
)


# -- updateAclConfig, deleteAclConfig, updateGlobalWhiteAddr -----------------------------------------


def _account_of(args: ParsedArgs) -> PlainAccessConfig:
    return PlainAccessConfig(
        access_key=args.text("accessKey").strip(),
        secret_key=args.text("secretKey").strip(),
        white_remote_address=_stripped(args, "whiteRemoteAddress"),
        admin=args.text("admin").strip().lower() == "true",
        default_topic_perm=_stripped(args, "defaultTopicPerm"),
        default_group_perm=_stripped(args, "defaultGroupPerm"),
        topic_perms=_grants(args, "topicPerms"),
        group_perms=_grants(args, "groupPerms"),
    )


def _stripped(args: ParsedArgs, name: str) -> str | None:
    text = args.get(name)
    return None if text is None else text.strip()


def _grants(args: ParsedArgs, name: str) -> list[str] | None:
    text = _stripped(args, name)
    return None if text is None else text.split(",")


def _demotion(args: ParsedArgs) -> str | None:
    """What happens to the rights of the account that signs this command; None: they stay."""
    account, own = _account_of(args), client_options(args).get("credentials")
    if account.admin or own is None or own.access_key != account.access_key:
        return None
    return f"without -m true {account.access_key}, which signs this command, is no administrator any more"


def _demoting(args: ParsedArgs) -> str | None:
    demotion = _demotion(args)
    return None if demotion is None else f"{demotion[0].upper()}{demotion[1:]}. Change it?"


async def _update(call: Call) -> list[Outcome]:
    return await put_account(call.admin, await chosen_brokers(call), _account_of(call.args))


def _show_update(outcomes: list[Outcome], screen: Screen) -> None:
    show_outcomes(
        outcomes, screen, lambda address: f"create or update plain access config to {address} success."
    )
    if any(outcome.is_done for outcome in outcomes):
        screen.write(_java_text(_account_of(screen.args)))
        if (demotion := _demotion(screen.args)) is not None:
            screen.note(f"{demotion}; to undo that, edit plain_acl.yml of the brokers")


def _java_text(account: PlainAccessConfig) -> str:
    """The account as Apache's tool of 5.x prints it; that of 4.9 prints a class and a hash."""
    return (
        f"PlainAccessConfig{{accessKey='{account.access_key}', "
        f"whiteRemoteAddress='{_or_null(account.white_remote_address)}', "
        f"admin={'true' if account.admin else 'false'}, "
        f"defaultTopicPerm='{_or_null(account.default_topic_perm)}', "
        f"defaultGroupPerm='{_or_null(account.default_group_perm)}', "
        f"topicPerms={_java_list(account.topic_perms)}, groupPerms={_java_list(account.group_perms)}}}"
    )


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


def _java_list(texts: list[str] | None) -> str:
    return "null" if texts is None else f"[{', '.join(texts)}]"


async def _delete(call: Call) -> list[Outcome]:
    return await delete_account(call.admin, await chosen_brokers(call), call.args.text("accessKey").strip())


def _show_delete(outcomes: list[Outcome], screen: Screen) -> None:
    show_outcomes(
        outcomes, screen, lambda address: f"delete plain access config account from {address} success."
    )
    if any(outcome.is_done for outcome in outcomes):
        screen.write(f"account's accesskey is:{screen.args.text('accessKey').strip()}")


async def _update_white(call: Call) -> list[Outcome]:
    return await set_white_addresses(
        call.admin,
        await chosen_brokers(call),
        call.args.text("globalWhiteRemoteAddresses").strip(),
        _stripped(call.args, "aclFileFullPath"),
    )


def _show_white(outcomes: list[Outcome], screen: Screen) -> None:
    show_outcomes(
        outcomes, screen, lambda address: f"update global white remote addresses to {address} success."
    )


# -- clusterAclConfigVersion, getAclConfig -----------------------------------------------------------


async def _versions(call: Call) -> list[AclVersions]:
    return await acl_versions(call.admin, await chosen_masters(call))


def _show_versions(brokers: list[AclVersions], screen: Screen) -> None:
    of_cluster = "clusterName" in screen.args
    if of_cluster:
        screen.head(_VERSION_LINE.format(*_VERSION_HEADS))
    for broker in brokers:
        if broker.problem:
            screen.trouble(broker.problem)
        for file in broker.files:
            screen.line(
                _VERSION_LINE.format(
                    broker.cluster_name,
                    broker.broker_name,
                    broker.broker_addr,
                    file.path,
                    file.counter,
                    format_time(file.timestamp),
                )
            )
    whose = "cluster" if of_cluster else "broker"
    screen.line(f"get {whose}'s plain access config version success.")


async def _listings(call: Call) -> list[AclListing]:
    return await acl_listings(call.admin, await chosen_masters(call))


def _show_listings(listings: list[AclListing], screen: Screen) -> None:
    for listing in listings:
        if listing.config is None:
            screen.trouble(listing.problem)
            continue
        screen.line()
        screen.line(f"globalWhiteRemoteAddresses: {_java_list(listing.config.global_white_addrs)}")
        screen.line()
        screen.line("accounts:")
        for account in listing.config.plain_access_configs:
            _show_account(account, screen)


def _show_account(account: PlainAccessConfig, screen: Screen) -> None:
    def listed(texts: list[str] | None) -> str:
        return "" if texts is None else _java_list(texts)

    for name, text in (
        ("accessKey", account.access_key),
        ("secretKey", MASKED),
        ("whiteRemoteAddress", account.white_remote_address),
        ("admin", "true" if account.admin else "false"),
        ("defaultTopicPerm", account.default_topic_perm),
        ("defaultGroupPerm", account.default_group_perm),
        ("topicPerms", listed(account.topic_perms)),
        ("groupPerms", listed(account.group_perms)),
    ):
        screen.line(f"  {name:<18}: {text or ''}")
    screen.line()


def _exempting(args: ParsedArgs) -> str | None:
    """Asks before everyone is let in."""
    patterns = args.text("globalWhiteRemoteAddresses").split(",")
    if not {"*", "*.*.*.*", "*:*:*:*:*:*:*:*"}.isdisjoint(pattern.strip() for pattern in patterns):
        return "Let every address in, without account and signature?"
    return None


PLAIN_ACL_COMMANDS: Final = (
    AdminCommand(
        name="updateAclConfig",
        about="Create or change an account in the brokers' plain_acl.yml.",
        example="updateAclConfig -n 127.0.0.1:9876 -c DefaultCluster -a producers -s secret12 -t Orders=PUB",
        options=(
            *_CHANGED_AT,
            required("a", "accessKey", "name of the account, longer than 6 characters"),
            required("s", "secretKey", "its secret key, longer than 6 characters"),
            value("w", "whiteRemoteAddress", "from these addresses no signature is needed"),
            value("i", "defaultTopicPerm", "for all other topics: PUB, SUB, PUB|SUB or DENY (default)"),
            value("u", "defaultGroupPerm", "for all other groups: SUB or DENY (default)"),
            value("t", "topicPerms", "topics, as in Orders=PUB|SUB,Bills=SUB"),
            value("g", "groupPerms", "groups, as in Workers=SUB"),
            value("m", "admin", "true for an administrator; false if not given"),
        ),
        ask=_update,
        show=_show_update,
        question=_demoting,
    ),
    AdminCommand(
        name="deleteAclConfig",
        about="Delete an account from the brokers' plain_acl.yml.",
        example="deleteAclConfig -n 127.0.0.1:9876 -c DefaultCluster -a producers",
        options=(*_CHANGED_AT, required("a", "accessKey", "name of the account")),
        ask=_delete,
        show=_show_delete,
        aliases=("deleteAccessConfig",),
        question=lambda args: f"Delete account {args.text('accessKey')}?",
    ),
    AdminCommand(
        name="updateGlobalWhiteAddr",
        about="Set the addresses that are exempt from access control: they replace those of the file.",
        example="updateGlobalWhiteAddr -n 127.0.0.1:9876 -c DefaultCluster -g 10.10.103.*,192.168.0.*",
        options=(
            *_CHANGED_AT,
            required("g", "globalWhiteRemoteAddresses", "addresses and patterns, with commas"),
            value("p", "aclFileFullPath", "the file of accounts, instead of plain_acl.yml"),
        ),
        ask=_update_white,
        show=_show_white,
        question=_exempting,
    ),
    AdminCommand(
        name="clusterAclConfigVersion",
        about="Show how often each file of accounts was changed by requests, and when last.",
        example="clusterAclConfigVersion -n 127.0.0.1:9876 -c DefaultCluster",
        options=BROKER_OR_CLUSTER,
        ask=_versions,
        show=_show_versions,
    ),
    AdminCommand(
        name="getAclConfig",
        about="List all accounts of the brokers' plain_acl.yml, without secret keys.",
        example="getAclConfig -n 127.0.0.1:9876 -c DefaultCluster",
        options=BROKER_OR_CLUSTER,
        ask=_listings,
        show=_show_listings,
        aliases=("getAccessConfigSubCommand",),
    ),
)
