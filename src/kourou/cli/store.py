"""`kourou store`: look at a store's files without changing them.

Parses options; the work is in store_check.py and store_inspect.py, imported when it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kourou.cli.problems import run_command
from kourou.errors import KourouError

CANNOT_READ = 2

store_app = typer.Typer(
    name="store",
    help="Look into a store: check it, show what it holds.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The store: the folder that holds `commitlog`.")]
_LogFolders = Annotated[
    list[str] | None,
    typer.Option(
        "--commit-log",
        metavar="DIR[,DIR]",
        help="Where the CommitLog is, if elsewhere: as in storePathCommitLog, or repeated.",
    ),
]
_IndexSlots = Annotated[
    int | None,
    typer.Option(min=1, help="maxHashSlotNum of the index, if it is not a quarter of maxIndexNum."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@store_app.command()
def check(
    folder: _Folder,
    commit_log: _LogFolders = None,
    index_slots: _IndexSlots = None,
    delay_levels: Annotated[
        str | None, typer.Option(help="messageDelayLevel of the broker, if it is not the default.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Check every file of a store. Changes nothing; works beside a running broker.

    Exit code 0: nothing is wrong (what the next start mends is listed). 1: something is. 2: there is no
    store, or a file of it cannot be read.
    """
    from kourou.cli.store_check import CheckCommand

    command = CheckCommand(
        folder=folder,
        log_folders=_folders(commit_log),
        index_slots=index_slots,
        delay_levels=delay_levels,
        as_json=as_json,
    )
    _run("kourou store check", command.run)


@store_app.command(short_help="Show what a store holds, or one message of it.")
def inspect(
    folder: _Folder,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue; lists its messages.")] = None,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="With --queue: from this offset.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --queue: how many messages.")] = 20,
    message: Annotated[str | None, typer.Option(metavar="PHY_OFFSET|MSGID", help="Show one message.")] = None,
    record: Annotated[
        int | None, typer.Option(metavar="PHY_OFFSET", min=0, help="Show the fields of what lies there.")
    ] = None,
    with_hex: Annotated[bool, typer.Option("--hex", help="With --record: show the bytes too.")] = False,
    commit_log: _LogFolders = None,
    index_slots: _IndexSlots = None,
    as_json: _Json = False,
) -> None:
    """Show what a store holds: files, queues, offsets of groups; or one message, or one record.

    Exit code 2: there is no store, a file cannot be read, or nothing is there.
    """
    from kourou.cli.store_inspect import InspectCommand

    if with_hex and record is None:
        raise typer.BadParameter("--hex shows the bytes of a record: give its place with --record")
    command = InspectCommand(
        folder=folder,
        log_folders=_folders(commit_log),
        index_slots=index_slots,
        topic=topic,
        queue_id=queue,
        first_queue_offset=first,
        limit=limit,
        message=message,
        record_phy_offset=record,
        with_hex=with_hex,
        as_json=as_json,
    )
    _run("kourou store inspect", command.run)


def _folders(options: list[str] | None) -> tuple[Path, ...]:
    """Apache's list, with commas between the folders."""
    names = (name.strip() for option in options or () for name in option.split(","))
    return tuple(Path(name) for name in names if name)


def _run(program: str, action: Callable[[], int]) -> None:
    """Run a command and end with its exit code."""
    run_command(program, lambda: _end(program, action))


def _end(program: str, action: Callable[[], int]) -> None:
    try:
        code = action()
    except BrokenPipeError:
        raise
    except (KourouError, OSError) as error:
        print(f"{program}: {_line(error)}", file=sys.stderr)
        code = CANNOT_READ
    sys.stdout.flush()
    if code:
        sys.exit(code)


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
