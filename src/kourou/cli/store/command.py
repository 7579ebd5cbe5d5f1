"""`kourou store`: check, inspect, compare, back up and restore stores; no store is changed.

Parses options; the modules beside this one do the work, imported on demand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from kourou.cli.option_types import IntRange
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineGroup
from kourou.errors import KourouError

CANNOT_READ = 2

store_app = OneLineGroup("store", help="Check, inspect, compare, back up and restore stores.")

_folder = click.argument("folder", type=Path, metavar="DIR")
_commit_log = click.option(
    "--commit-log",
    multiple=True,
    metavar="DIR[,DIR]",
    help="Folder of the CommitLog, if elsewhere: as in storePathCommitLog, or repeated.",
)
_index_slots = click.option(
    "--index-slots",
    type=IntRange(1),
    help="maxHashSlotNum of the index, if it is not a quarter of maxIndexNum.",
)
_json = click.option("as_json", "--json", is_flag=True, help="Print JSON.")


@store_app.command()
@_folder
@_commit_log
@_index_slots
@click.option("--delay-levels", help="messageDelayLevel of the broker, if it is not the default.")
@_json
def check(
    *,
    folder: Path,
    commit_log: tuple[str, ...],
    index_slots: int | None,
    delay_levels: str | None,
    as_json: bool,
) -> None:
    """Check every file of a store. Read-only; safe beside a running broker.

    DIR is the store, the folder that contains `commitlog`; or the folder of `kourou standalone`, whose broker
    stores are all checked.

    Exit code 0: no problems (those that the next start repairs are listed). 1: problems found. 2: not a store
    directory, or a file cannot be read.
    """
    from kourou.cli.store.check import CheckCommand

    command = CheckCommand(
        folder=folder,
        log_folders=_folders(commit_log),
        index_slots=index_slots,
        delay_levels=delay_levels,
        as_json=as_json,
    )
    _run("kourou store check", command.run)


@store_app.command(short_help="Show the content of a store, of a saved tail, or one message.")
@click.argument("folder", type=Path, metavar="DIR|FILE")
@click.option("--topic", help="Only this topic.")
@click.option("--queue", type=IntRange(0), help="Only this queue; lists its messages.")
@click.option("first", "--from", type=IntRange(0), help="With --queue: from this offset.")
@click.option("--limit", type=IntRange(1), default=20, help="With --queue, or of a FILE: number of messages.")
@click.option("--message", metavar="PHY_OFFSET|MSGID", help="Show one message.")
@click.option(
    "--record", type=IntRange(0), metavar="PHY_OFFSET", help="Show the fields of the record at this offset."
)
@click.option("with_hex", "--hex", is_flag=True, help="With --record: also show the bytes.")
@_commit_log
@_index_slots
@_json
def inspect(
    *,
    folder: Path,
    topic: str | None,
    queue: int | None,
    first: int | None,
    limit: int,
    message: str | None,
    record: int | None,
    with_hex: bool,
    commit_log: tuple[str, ...],
    index_slots: int | None,
    as_json: bool,
) -> None:
    """Show the content of a store: files, queues, group offsets; or one message, or one record.

    DIR is the store, the folder that contains `commitlog`; or the folder of a `kourou standalone` with one
    broker.

    FILE is the tail of a CommitLog that fail-over has cut off, in the folder `orphaned` of a store: its range
    is shown, and its messages are listed. --topic and --queue select some; --message shows one.

    Exit code 2: not a store directory, a file cannot be read or is damaged, or nothing was found.
    """
    if folder.is_file():
        from kourou.cli.store.inspect_tail import InspectTailCommand

        for option, value in (("--from", first), ("--record", record), ("--index-slots", index_slots)):
            if value is not None:
                raise click.BadParameter(f"{option} is for stores, and {folder} is a file")
        tail = InspectTailCommand(
            path=folder, topic=topic, queue_id=queue, limit=limit, message=message, as_json=as_json
        )
        _run("kourou store inspect", tail.run, is_output_all=True)
        return
    from kourou.cli.store.inspect import InspectCommand

    if with_hex and record is None:
        raise click.BadParameter("--hex shows the bytes of a record: give its offset with --record")
    command = InspectCommand(
        given_folder=folder,
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
    _run("kourou store inspect", command.run, is_output_all=True)


@store_app.command(short_help="Show where two stores differ.")
@click.argument("folder_a", type=Path, metavar="A")
@click.argument("folder_b", type=Path, metavar="B")
@click.option(
    "--commit-log-a", multiple=True, metavar="DIR[,DIR]", help="Folder of A's CommitLog, if elsewhere."
)
@click.option(
    "--commit-log-b", multiple=True, metavar="DIR[,DIR]", help="Folder of B's CommitLog, if elsewhere."
)
@_json
def compare(
    *,
    folder_a: Path,
    folder_b: Path,
    commit_log_a: tuple[str, ...],
    commit_log_b: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show from which offset on the stores A and B differ. Read-only; safe beside running brokers.

    Compared are the bytes of the CommitLog in the range that both have, up to the shorter end at the start of
    the command; then the ends of the queues. A and B are stores or backups; of a `kourou standalone` with one
    broker its folder is accepted.

    Exit code 0: equal in the common range, or a log is empty; one of the two may be longer. 1: they differ,
    or have no range in common. 2: not a store directory, or a file cannot be read.
    """
    from kourou.cli.store.compare import CompareCommand

    command = CompareCommand(
        folder_a=folder_a,
        folder_b=folder_b,
        log_folders_a=_folders(commit_log_a),
        log_folders_b=_folders(commit_log_b),
        as_json=as_json,
    )
    _run("kourou store compare", command.run)


_copies_only = click.option(
    "copies_only", "--copy", is_flag=True, help="Copy files instead of hard-linking them."
)


@store_app.command(short_help="Copy a store, also of a running broker.")
@click.argument("store", type=Path, metavar="DIR")
@click.argument("target", type=Path, metavar="TARGET")
@_commit_log
@click.option(
    "--base",
    type=Path,
    metavar="BACKUP",
    help="An earlier backup: CommitLog files that it has are linked to it.",
)
@_copies_only
@_json
def backup(
    *,
    store: Path,
    target: Path,
    commit_log: tuple[str, ...],
    base: Path | None,
    copies_only: bool,
    as_json: bool,
) -> None:
    """Copy the store in DIR to TARGET, a new or empty folder. The broker may run meanwhile.

    The backup contains every message that was acknowledged before the command started. CommitLog files that
    are full and durable are hard-linked where the file system allows, everything else is copied. TARGET gets
    a manifest, `backup.json`, as its last file; `kourou store restore` accepts no backup without it.

    Exit code 2: not a store directory, TARGET is not empty, or a file cannot be read or written.
    """
    from kourou.cli.store.backup import BackupCommand

    command = BackupCommand(
        store=store,
        target=target,
        log_folders=_folders(commit_log),
        base=base,
        copies_only=copies_only,
        as_json=as_json,
    )
    _run("kourou store backup", command.run)


@store_app.command(short_help="Make a store of a backup.")
@click.argument("backup_folder", type=Path, metavar="BACKUP")
@click.argument("store", type=Path, metavar="DIR")
@_copies_only
@_json
def restore(*, backup_folder: Path, store: Path, copies_only: bool, as_json: bool) -> None:
    """Restore BACKUP to DIR, a new or empty folder, as the store of a broker.

    Every file is checked against the manifest. The first start of the broker reads again what the running
    broker had not entered into its queues when the backup was made.

    Exit code 2: the backup is incomplete or damaged, DIR is not empty, or a file cannot be read or written.
    """
    from kourou.cli.store.backup import RestoreCommand

    command = RestoreCommand(backup=backup_folder, store=store, copies_only=copies_only, as_json=as_json)
    _run("kourou store restore", command.run)


def _folders(options: Iterable[str]) -> tuple[Path, ...]:
    """Apache's list, with commas between the folders."""
    names = (name.strip() for option in options for name in option.split(","))
    return tuple(Path(name) for name in names if name)


def _run(program: str, action: Callable[[], int], *, is_output_all: bool = False) -> None:
    """Run a command and end with its exit code."""
    run_command(program, lambda: _end(program, action), is_output_all=is_output_all)


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
