"""`kourou console`: the web console for a cluster, and its users."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kourou.cli.admin.connecting import client_options
from kourou.cli.daily.cluster_command import (
    ACL_OPTION,
    DEFAULT_NAMESRV,
    NAMESRV_OPTION,
    TLS_OPTIONS,
    connecting_options,
)
from kourou.cli.daily.names import complete_contexts
from kourou.cli.problems import UsageError, run_command
from kourou.cli.serving import (
    ServerOptions,
    log_config,
    log_name,
    log_place,
    log_start,
    logged_failure,
    run_folder,
)
from kourou.cli.usage import OneLineGroup, program_name, whole_number
from kourou.config.home import config_home, state_home
from kourou.config.host import LOOPBACK
from kourou.console.settings import DEFAULT_PORT, ConsoleSettings
from kourou.errors import ConfigError
from kourou.logs import LogLevel, logging_to

if TYPE_CHECKING:
    from kourou.client.core.settings import ClientOptions
    from kourou.console.server import ConsoleServer

COMPONENT: Final = "console"
_MISSING: Final = "the web console needs the extra `console`: pip install 'kourou[console]'"


def console_settings(
    audit_folder: Path,
    *,
    host: str,
    port: int,
    users_file: Path | None = None,
    accounts: bool = False,
    audit_file: Path | None = None,
    allowed_hosts: tuple[str, ...] = (),
    port_option: str = "--port",
) -> ConsoleSettings:
    """The settings of a console, with the users and the audit log of this user unless others are given.
    ConfigError if they cannot be used, or the extra is not installed."""
    check_installed()
    settings = ConsoleSettings(
        audit_file=(audit_file or audit_folder / "console-audit.log").absolute(),
        host=host,
        port=port,
        port_option=port_option,
        users_file=users_file or (None if accounts else _existing_users()),
        accounts=accounts,
        allowed_hosts=allowed_hosts,
    )
    settings.check()
    return settings


def check_installed() -> None:
    """ConfigError if the extra `console` is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{_MISSING} ({error})") from error


def default_users_file() -> Path:
    """The users file that is used if it exists and no other is named."""
    return config_home(os.environ) / "console-users"


def _existing_users() -> Path | None:
    path = default_users_file()
    return path if path.exists() else None


def run_console(settings: ConsoleSettings, client: ClientOptions, log: ServerOptions) -> None:
    """Serve the console until a signal stops it."""
    name = log_name(COMPONENT, settings.port, DEFAULT_PORT)
    config = log_config(state_home(os.environ) / "logs" / name, log)
    with logging_to(config), logged_failure(COMPONENT):
        log_start(COMPONENT)
        from kourou.cli.service import Service, run_server
        from kourou.console.server import ConsoleServer

        async def started(server: ConsoleServer) -> None:
            print(console_line(server), log_place(config), sep="\n", flush=True)

        run_server(
            Service(
                lambda: ConsoleServer(settings, client),
                COMPONENT,
                started,
                run_folder(os.environ),
                shown_name="The console",
            )
        )


def console_line(server: ConsoleServer) -> str:
    """A line with the address to open."""
    return f"console: {server.url}"


# -- the commands ------------------------------------------------------------------------------------

_USERS_OPTION: Final = click.option(
    "users_file",
    "--users",
    type=Path,
    metavar="FILE",
    help="File of users; default: console-users in your configuration folder.",
)


def console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `kourou console` and `kourou standalone` share."""
    for option in (
        click.option(
            "allowed_hosts",
            "--allowed-host",
            multiple=True,
            metavar="NAME",
            help="Host name that browsers may use for the console; may be repeated.",
        ),
        click.option(
            "audit_file", "--audit-log", type=Path, metavar="FILE", help="File for a line per change."
        ),
        _USERS_OPTION,
    ):
        command = option(command)
    return command


@click.group(
    COMPONENT,
    cls=OneLineGroup,
    invoke_without_command=True,
    help="Serve the web console for a cluster.",
)
@NAMESRV_OPTION
@click.option("--context", metavar="NAME", shell_complete=complete_contexts, help="Saved context to use.")
@ACL_OPTION
@TLS_OPTIONS[0]
@TLS_OPTIONS[1]
@click.option("--host", metavar="ADDR", default=LOOPBACK, help="Address to listen on.")
@click.option("--port", metavar="PORT", default=str(DEFAULT_PORT), help="Port to listen on; 0 picks one.")
@click.option("--accounts", is_flag=True, help="Log in with accounts of the cluster: access and secret key.")
@console_options
@click.option("--log-file", metavar="FILE", help="Log file; - logs to the terminal.")
@click.pass_context
def console_app(ctx: click.Context, /, **values: Any) -> None:
    if ctx.invoked_subcommand is not None:
        return

    def action() -> None:
        log = ServerOptions(log_file=values.pop("log_file"), log_level=LogLevel.INFO)
        settings = console_settings(
            state_home(os.environ),
            host=values.pop("host"),
            port=whole_number("--port", values.pop("port")),
            users_file=values.pop("users_file"),
            accounts=values.pop("accounts"),
            audit_file=values.pop("audit_file"),
            allowed_hosts=values.pop("allowed_hosts"),
        )
        client = client_options(connecting_options(values), default_namesrv=DEFAULT_NAMESRV)
        run_console(settings, client, log)

    run_command("kourou console", action)


user_app = OneLineGroup("user", help="Add, list and remove the console's users.")
console_app.add_command(user_app)


def _user_command(body: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(body)
    def command(users_file: Path | None, **values: Any) -> None:
        path = users_file or default_users_file()

        def action() -> None:
            check_installed()
            body(path, **values)

        run_command(program_name(click.get_current_context()), action)

    return _USERS_OPTION(command)


@user_app.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(["reader", "administrator"]), default="reader", show_default=True)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@_user_command
def add_user(path: Path, *, name: str, role: str, password_stdin: bool) -> None:
    """Add a user, or change the role and password of one."""
    from kourou.console.security.users import (
        ROLES,
        User,
        changed_users,
        check_new_user,
        hash_password,
        parse_users,
    )

    if path.exists():
        parse_users(path)  # reports what is wrong with it before it asks for a password
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True)
    else:
        raise UsageError("no terminal to ask for the password; use --password-stdin")
    check_new_user(name, password)
    user = User(name, ROLES[role], hash_password(password))
    with changed_users(path) as users:
        is_new = name not in users
        users[name] = user
    print(f"{'Added' if is_new else 'Changed'} {role} {name} in {path}")


@user_app.command("list")
@_user_command
def list_users(path: Path) -> None:
    """List the users and their roles."""
    from kourou.console.security.users import parse_users

    for user in parse_users(path).values():
        print(f"{user.name}  {user.role.label}")


@user_app.command("remove")
@click.argument("name")
@_user_command
def remove_user(path: Path, *, name: str) -> None:
    """Remove a user; open sessions of the user end at once."""
    from kourou.console.security.users import changed_users, parse_users

    parse_users(path)
    with changed_users(path) as users:
        if users.pop(name, None) is None:
            raise ConfigError(f"{path}: no user {name!r}; there are: {', '.join(users) or 'none'}")
    print(f"Removed {name} from {path}")
