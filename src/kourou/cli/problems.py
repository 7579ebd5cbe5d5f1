"""How a command ends when something is wrong: one clear line for each problem, exit code 1."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from kourou.errors import KourouError, NameServerNotGivenError

FAILURE = 1
INTERRUPTED = 130  # as a shell says it of SIGINT


def exit_with(program: str, lines: Iterable[str], code: int = FAILURE) -> NoReturn:
    """Say what is wrong on stderr and end the program."""
    for line in lines:
        print(f"{program}: {line}", file=sys.stderr)
    sys.exit(code)


def run_command(program: str, action: Callable[[], None], *, is_output_all: bool = False) -> None:
    """Run the body of a command. What the user can correct is one line without a stack trace.

    `is_output_all`: the command only prints, so that a closed pipe, as of `| head`, is no failure.
    """
    try:
        action()
        sys.stdout.flush()
    except NameServerNotGivenError as error:
        words = str(error).replace("give it as namesrv='host:9876'", "use -n host:9876")
        exit_with(program, [words.replace(" (config_file=…)", "")])
    except KourouError as error:
        exit_with(program, str(error).splitlines() or [type(error).__name__])
    except BrokenPipeError:
        drop_output()
        sys.exit(0 if is_output_all else FAILURE)
    except OSError as error:
        # A full disk behind `> file`, a file that may not be written: nothing that we could mend.
        drop_output()
        exit_with(program, [str(error)])
    except KeyboardInterrupt:
        exit_with(program, ["interrupted"], INTERRUPTED)


def drop_output() -> None:
    """Nobody takes our output, as with `| head`. Python writes what is left when it ends: that must go
    somewhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
