"""Problems that name what the operator typed: options of a command instead of RocketMQ's keys.

For problems found after parsing, such as a port in use. Not here: bad values (settings.py).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager

from kourou.errors import ConfigError


@contextmanager
def naming_options(option_names: Mapping[str, str], typed: Container[str]) -> Iterator[None]:
    """Make a ConfigError raised in the body name options; see `keys_as_options`."""
    try:
        yield
    except ConfigError as error:
        problems = (keys_as_options(problem, option_names, typed) for problem in error.problems)
        raise ConfigError(*problems) from error


def keys_as_options(problem: str, option_names: Mapping[str, str], typed: Container[str]) -> str:
    """The problem, with each key that was typed as an option (`typed`) replaced by that option, and with
    the option added to the others, which may stand in a file.

    >>> keys_as_options("brokerIP1=x: unknown; choose another listenPort",
    ...     {"brokerIP1": "--advertise", "listenPort": "--port"}, {"brokerIP1"})
    '--advertise x: unknown; choose another listenPort (--port)'
    """
    for key, option in option_names.items():
        if key in typed:
            problem = re.sub(rf"\b{key}=", f"{option} ", problem)
            problem = re.sub(rf"\b{key}\b", option, problem)
        else:
            problem = re.sub(rf"\b{key}\b(?!=)", f"{key} ({option})", problem)
    return problem
