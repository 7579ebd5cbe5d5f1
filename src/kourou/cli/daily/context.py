"""`kourou context`: saved clusters, so that `-n` need not be typed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kourou.cli.admin.screen import Screen
from kourou.cli.contexts import (
    CLUSTER_VARIABLES,
    VARIABLE,
    Context,
    Contexts,
    chosen_context,
    read_contexts,
    write_contexts,
)
from kourou.cli.daily.cluster_command import (
    ACL_OPTION,
    DEFAULT_NAMESRV,
    JSON_OPTION,
    NAMESRV_OPTION,
    TLS_OPTIONS,
    aligned,
)
from kourou.cli.daily.names import complete_contexts
from kourou.cli.problems import UsageError, run_command
from kourou.cli.usage import OneLineGroup, program_name
from kourou.errors import ConfigError

context_app = OneLineGroup("context", help="Save clusters by name, and choose the one that commands use.")

_name = click.argument("name", shell_complete=complete_contexts)


def _run(action: Callable[[Screen], None]) -> None:
    screen = Screen()
    run_command(program_name(click.get_current_context()), lambda: action(screen))


def _show(screen: Screen, as_json: bool, data: Any, *lines: str) -> None:
    if as_json:
        screen.json(data)
    else:
        for line in lines:
            screen.line(line)


@context_app.command("add")
@click.argument("name")
@NAMESRV_OPTION
@ACL_OPTION
@TLS_OPTIONS[0]
@TLS_OPTIONS[1]
@click.option("is_current", "--use", is_flag=True, help="Make it the current context.")
@click.option("--replace", is_flag=True, help="Overwrite a context of this name.")
@JSON_OPTION
def add(
    *,
    name: str,
    namesrv: str | None,
    acl: str | None,
    tls: bool,
    tls_config: str | None,
    is_current: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Save a context. The first one becomes the current one."""

    def action(screen: Screen) -> None:
        if namesrv is None:
            raise UsageError("no name server given; use -n host:9876")
        context = Context(namesrv, _absolute("--acl", acl), tls, _absolute("--tls-config", tls_config))
        contexts = read_contexts(os.environ).add(name, context, is_current=is_current, replaces=replace)
        write_contexts(os.environ, contexts)
        is_now = contexts.current == name
        _show(
            screen,
            as_json,
            _entry(name, contexts),
            f"context {name} saved"
            + (" and selected" if is_now else f"; kourou context use {name} selects it"),
        )

    _run(action)


def _absolute(option: str, text: str | None) -> str | None:
    """The absolute path of a file. ConfigError if it does not exist."""
    if text is None:
        return None
    path = Path(text).absolute()
    if not path.is_file():
        raise ConfigError(f"{option} {text}: no such file")
    return str(path)


@context_app.command("list")
@JSON_OPTION
def list_contexts(*, as_json: bool) -> None:
    """List the saved contexts; * is the current one."""

    def action(screen: Screen) -> None:
        contexts = read_contexts(os.environ)
        names = sorted(contexts.contexts)
        if as_json:
            screen.json([_entry(name, contexts) for name in names])
            return
        rows = [
            ["*" if name == contexts.current else "", name, found.namesrv, found.acl or "-", _tls(found)]
            for name in names
            for found in [contexts.contexts[name]]
        ]
        for line in aligned(("", "NAME", "NAME SERVERS", "ACL", "TLS"), rows, screen.head):
            screen.line(line)

    _run(action)


@context_app.command("use")
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("is_none", "--none", is_flag=True, help="Deselect the current context.")
@JSON_OPTION
def use(*, name: str | None, is_none: bool, as_json: bool) -> None:
    """Choose the current context."""

    def action(screen: Screen) -> None:
        if (name is None) != is_none:
            raise UsageError("give the name of a context, or --none")
        write_contexts(os.environ, read_contexts(os.environ).use(name))
        _show(screen, as_json, {"current": name}, f"current context: {name or 'none'}")

    _run(action)


@context_app.command("show")
@click.argument("name", required=False, shell_complete=complete_contexts)
@JSON_OPTION
def show(*, name: str | None, as_json: bool) -> None:
    """Show a context; without a name, what commands connect to now, and why."""

    def action(screen: Screen) -> None:
        found, because = _in_effect(name)
        data = {"name": None if found is None else found[0], **_fields(found)}
        if as_json:
            screen.json({**data, "because": because})
            return
        for key, value in {**data, "because": because}.items():
            if key == "name" or value:
                screen.line(f"{key:<10}  {value or '-'}")

    _run(action)


def _in_effect(name: str | None) -> tuple[tuple[str, Context] | None, str]:
    """The context that a command would use, and why; with a name, that context."""
    found = chosen_context(os.environ, name=name)
    if found is None:
        variable = next((variable for variable in CLUSTER_VARIABLES if os.environ.get(variable)), None)
        return None, f"the environment variable {variable}" if variable else "no context is current"
    if name:
        return found, ""
    return found, f"the environment variable {VARIABLE}" if os.environ.get(VARIABLE) else "it is current"


def _fields(found: tuple[str, Context] | None) -> dict[str, Any]:
    """The content of a context; without one, the name servers that commands connect to."""
    if found is None:
        found = "", Context(next(filter(None, map(os.environ.get, CLUSTER_VARIABLES)), DEFAULT_NAMESRV))
    context = found[1]
    return {
        "namesrv": context.namesrv,
        "acl": context.acl,
        "tls": context.tls or context.tls_config is not None,
        "tls_config": context.tls_config,
    }


@context_app.command("remove")
@_name
@JSON_OPTION
def remove(*, name: str, as_json: bool) -> None:
    """Remove a context; the files it refers to are kept."""

    def action(screen: Screen) -> None:
        write_contexts(os.environ, read_contexts(os.environ).remove(name))
        _show(screen, as_json, {"removed": name}, f"context {name} removed")

    _run(action)


def _entry(name: str, contexts: Contexts) -> dict[str, Any]:
    return {"name": name, "current": contexts.current == name, **_fields((name, contexts.get(name)))}


def _tls(context: Context) -> str:
    return context.tls_config or ("yes" if context.tls else "-")
