"""Shared by commands that query a cluster: options, a session, confirmations, tables, one-line errors."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from kourou.admin.session import Admin
from kourou.cli.admin.connecting import client_options
from kourou.cli.admin.options import ParsedArgs
from kourou.cli.admin.screen import Screen
from kourou.cli.daily.names import complete_contexts
from kourou.cli.daily.standard_input import lines_of, stdin_chunks
from kourou.cli.problems import FAILURE, run_command
from kourou.cli.usage import program_name
from kourou.errors import ConfigError, NoNameServerError

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
"""Where `kourou standalone` listens."""
_START_ONE: Final = (
    "Start one with kourou standalone, or name another with -n, kourou context add, or NAMESRV_ADDR."
)

NAMESRV_OPTION: Final = click.option(
    "namesrv",
    "-n",
    "--namesrv",
    "--namesrvAddr",
    metavar="LIST",
    help="Name servers, 'host:9876;host:9876'.",
)
ACL_OPTION: Final = click.option(
    "--acl", type=click.Path(), metavar="FILE", help="File with accessKey and secretKey (conf/tools.yml)."
)
TLS_OPTIONS: Final = (
    click.option("--tls", is_flag=True, help="Encrypt; any certificate is trusted."),
    click.option(
        "tls_config",
        "--tls-config",
        type=click.Path(),
        metavar="FILE",
        help="Encrypt with the settings in this file.",
    ),
)
JSON_OPTION: Final = click.option("as_json", "--json", is_flag=True, help="Print JSON.")
YES_OPTION: Final = click.option("--yes", is_flag=True, help="Skip confirmation.")

_NO_LOG: Final = logging.NullHandler()


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command: its cluster and its output."""

    admin: Admin
    screen: Screen
    is_json: bool

    @property
    def where(self) -> str:
        return ";".join(self.admin.namesrvs)

    def show(self, data: Any, show: Callable[[], None]) -> None:
        """Print a result: as JSON if requested, otherwise with `show`."""
        if self.is_json:
            self.screen.json(data)
        else:
            show()

    def table(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print columns as wide as their longest cell; those of numbers are aligned to the right."""
        for line in aligned(names, [[str(cell) for cell in row] for row in rows], self.screen.head):
            self.screen.line(line)

    def note(self, text: str) -> None:
        """Print a note on stderr that is not a failure."""
        print(f"{program_name(click.get_current_context())}: {text}", file=sys.stderr, flush=True)

    def trouble(self, text: str) -> None:
        """Report a failure on stderr while the command continues; its exit code is 1."""
        self.screen.trouble(f"{program_name(click.get_current_context())}: {text}")

    async def confirm(self, question: str, *, yes: bool) -> None:
        """Ask for confirmation of something destructive. ConfigError if the answer is no, or there is no
        terminal."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise ConfigError(f"{question} Confirm with --yes, as there is no terminal.")
        self.screen.flush()
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = await anext(lines_of(stdin_chunks()), b"")
        if answer.strip().lower() not in (b"y", b"yes"):
            raise ConfigError("nothing was changed")


def aligned(
    names: Sequence[str], rows: Sequence[Sequence[str]], head: Callable[[str], None]
) -> Iterable[str]:
    """The lines of a table; `head` formats its header."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    is_number = [_has_numbers(column) for column in zip(names, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_number, strict=True)
        )
        return "  ".join(padded).rstrip()

    head(line(names))
    return map(line, rows)


def _has_numbers(column: Sequence[str]) -> bool:
    """Whether the cells of a column are numbers; `-` stands for an unknown one."""
    cells = [cell for cell in column[1:] if cell != "-"]
    return bool(cells) and all(re.fullmatch(r"-?[\d.]+", cell) for cell in cells)


def cluster_command(
    body: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Turn a coroutine that takes a Session first into the function of a click command.

    Adds the options that select the cluster, `--timeout` and `--json`. Errors that the user can fix are
    printed as one line, with exit code 1.
    """

    @functools.wraps(body)
    def command(**values: Any) -> None:
        given = connecting_options(values)
        is_json = values.pop("as_json")

        def action() -> None:
            screen = Screen(given)
            options = client_options(given, default_namesrv=DEFAULT_NAMESRV)
            # The command reports failures itself. Without a handler, Python would print the client's
            # warnings, too.
            logging.getLogger("kourou").addHandler(_NO_LOG)

            async def run() -> None:
                async with Admin(**options) as admin:
                    await body(Session(admin, screen, is_json), **values)

            try:
                asyncio.run(run())
            except NoNameServerError as error:
                if options.get("namesrv") == DEFAULT_NAMESRV and "namesrvAddr" not in given:
                    raise NoNameServerError(f"{error} {_START_ONE}") from None
                raise
            finally:
                screen.end_progress()
                screen.flush()
            if screen.has_trouble:
                sys.exit(FAILURE)

        run_command(program_name(click.get_current_context()), action, is_output_all=True)

    decorated: Callable[..., None] = command
    for option in reversed(
        (
            NAMESRV_OPTION,
            click.option(
                "--context",
                metavar="NAME",
                shell_complete=complete_contexts,
                help="Saved context to use (kourou context list).",
            ),
            ACL_OPTION,
            *TLS_OPTIONS,
            click.option("--timeout", metavar="MS", help="Timeout of one request; default 5000."),
            JSON_OPTION,
        )
    ):
        decorated = option(decorated)
    return decorated


def connecting_options(values: dict[str, Any]) -> ParsedArgs:
    """The connection options, like mqadmin's; removed from `values`."""
    names = {
        "namesrv": "namesrvAddr",
        "context": "context",
        "acl": "acl",
        "tls_config": "tls-config",
        "timeout": "timeout",
    }
    given = {name: text for own, name in names.items() if (text := values.pop(own, None)) is not None}
    if values.pop("tls", False):
        given["tls"] = ""
    return ParsedArgs(given)
