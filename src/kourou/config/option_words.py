"""Problems in the words that the operator typed: options of a command instead of RocketMQ's keys.

Not here: values that options have wrong (settings.py); this is for what shows later, such as a taken port.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager

from kourou.errors import ConfigError


@contextmanager
def naming_options(option_names: Mapping[str, str], typed: Container[str]) -> Iterator[None]:
    """Let a ConfigError of the body name options; see `in_option_words`."""
    try:
        yield
    except ConfigError as error:
        problems = (in_option_words(problem, option_names, typed) for problem in error.problems)
        raise ConfigError(*problems) from error


def in_option_words(problem: str, option_names: Mapping[str, str], typed: Container[str]) -> str:
    """The problem, with each key that was typed as an option (`typed`) called by that option's name, and
    the option beside the others: they may stand in a file.

    >>> in_option_words("brokerIP1=x: unknown; choose another listenPort",
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
