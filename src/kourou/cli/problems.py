"""How commands fail: one clear line for each problem, exit code 1; 2 if the command line is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from kourou.errors import ConfigError, KourouError, NameServerNotGivenError

FAILURE = 1
USAGE = 2  # the command line is wrong: the exit code of click, argparse and the shell
INTERRUPTED = 130  # the shell's exit code for SIGINT


class UsageError(ConfigError):
    """The words of a command line do not fit the command."""


def exit_with(program: str, lines: Iterable[str], code: int = FAILURE) -> NoReturn:
    """Print a problem on stderr and exit."""
    for line in lines:
        print(f"{program}: {line}", file=sys.stderr)
    sys.exit(code)


def run_command(program: str, action: Callable[[], None], *, is_output_all: bool = False) -> None:
    """Run the body of a command. Errors that the user can fix are printed as one line without a stack trace.

    `is_output_all`: the command only prints, so that a closed pipe, as with `| head`, is not a failure.
    """
    try:
        action()
        sys.stdout.flush()
    except NameServerNotGivenError as error:
        words = str(error).replace("give it as namesrv='host:9876'", "use -n host:9876")
        exit_with(program, [words.replace(" (config_file=…)", "")])
    except KourouError as error:
        code = USAGE if isinstance(error, UsageError) else FAILURE
        exit_with(program, str(error).splitlines() or [type(error).__name__], code)
    except BrokenPipeError:
        drop_output()
        sys.exit(0 if is_output_all else FAILURE)
    except OSError as error:
        # Such as a full disk behind `> file`, or missing permissions.
        drop_output()
        exit_with(program, [str(error)])
    except KeyboardInterrupt:
        exit_with(program, ["interrupted"], INTERRUPTED)


def drop_output() -> None:
    """The output was closed, as with `| head`. Python flushes the rest at exit: redirect it to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
