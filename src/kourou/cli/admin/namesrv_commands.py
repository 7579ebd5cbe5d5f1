"""Commands about name servers: their configuration and their KV configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kourou.admin.namesrvs import (
    ServerConfig,
    delete_kv_config,
    namesrv_configs,
    put_kv_config,
    update_namesrv_config,
)
from kourou.admin.targets import ConfigUpdate, Outcome
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import required
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import show_update_notes

_NAMESPACE: Final = required("s", "namespace", "namespace of the key")
_KEY: Final = required("k", "key", "key")


# -- KV configuration --------------------------------------------------------------------------------


async def _put_kv(call: Call) -> list[Outcome]:
    args = call.args
    return await put_kv_config(call.admin, args.text("namespace"), args.text("key"), args.text("value"))


async def _delete_kv(call: Call) -> list[Outcome]:
    return await delete_kv_config(call.admin, call.args.text("namespace"), call.args.text("key"))


def _show_put(outcomes: list[Outcome], screen: Screen) -> None:
    screen.line("create or update kv config to namespace success.")
    _show_troubles(outcomes, screen)


def _show_deletion(outcomes: list[Outcome], screen: Screen) -> None:
    screen.line("delete kv config from namespace success.")
    _show_troubles(outcomes, screen)


def _show_troubles(outcomes: Iterable[Outcome], screen: Screen) -> None:
    for outcome in outcomes:
        if outcome.problem:
            screen.trouble(outcome.problem)


# -- configuration -----------------------------------------------------------------------------------


async def _configs(call: Call) -> list[ServerConfig]:
    return await namesrv_configs(call.admin)


def _show_configs(configs: list[ServerConfig], screen: Screen) -> None:
    for config in configs:
        if config.problem:
            screen.trouble(config.problem)
            continue
        screen.head(f"============{config.address}============")
        for key in sorted(config.config):
            screen.line(f"{key:<50}=  {config.config[key]}")


@dataclass(frozen=True, slots=True)
class _ConfigUpdate:
    """A key that was changed on name servers."""

    key: str
    value: str
    namesrvs: list[ConfigUpdate]


async def _update(call: Call) -> _ConfigUpdate:
    key, value = call.args.text("key"), call.args.text("value")
    return _ConfigUpdate(key, value, await update_namesrv_config(call.admin, key, value))


def _show_update(update: _ConfigUpdate, screen: Screen) -> None:
    done = ", ".join(outcome.address for outcome in update.namesrvs if outcome.is_done)
    screen.line(f"update name server config success![{done}]")
    screen.line(f"{update.key} : {update.value}")
    show_update_notes(update.namesrvs, screen)
    _show_troubles(update.namesrvs, screen)


NAMESRV_COMMANDS: Final = (
    AdminCommand(
        name="updateKvConfig",
        about="Write a key to the KV configuration of all name servers.",
        example="updateKvConfig -n 127.0.0.1:9876 -s ORDER_TOPIC_CONFIG -k Orders -v broker-a:4",
        options=(_NAMESPACE, _KEY, required("v", "value", "value")),
        ask=_put_kv,
        show=_show_put,
    ),
    AdminCommand(
        name="deleteKvConfig",
        about="Delete a key from the KV configuration of all name servers.",
        example="deleteKvConfig -n 127.0.0.1:9876 -s ORDER_TOPIC_CONFIG -k Orders",
        options=(_NAMESPACE, _KEY),
        ask=_delete_kv,
        show=_show_deletion,
        question=lambda args: (
            f"Delete key {args.text('key')} of namespace {args.text('namespace')} from all name servers?"
        ),
    ),
    AdminCommand(
        name="getNamesrvConfig",
        about="Show the configuration of each name server.",
        example="getNamesrvConfig -n 127.0.0.1:9876",
        ask=_configs,
        show=_show_configs,
    ),
    AdminCommand(
        name="updateNamesrvConfig",
        about="Change one configuration key of all name servers.",
        example="updateNamesrvConfig -n 127.0.0.1:9876 -k orderMessageEnable -v true",
        options=(required("k", "key", "configuration key"), required("v", "value", "its new value")),
        ask=_update,
        show=_show_update,
    ),
)
