"""lists_options: names the keyword options of a client in its docstring, for `help()`.

The signature has them as `**options`, so `help()` would show none. What each of them means is in
docs/client-options.md.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

_ClassT = TypeVar("_ClassT", bound=type[Any])

_INDENT: Final = "    "
_WIDTH: Final = 100


def lists_options(*options: type[Any]) -> Callable[[_ClassT], _ClassT]:
    """Append the options of these dataclasses, with their defaults, to the docstring of a client."""

    def append(client: _ClassT) -> _ClassT:
        if client.__doc__ is not None:  # absent under -OO
            listed = ", ".join(text for each in options for text in _options_of(each))
            text = f"Options, with their defaults (docs/client-options.md describes each): {listed}."
            lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
            client.__doc__ = "\n".join(
                [client.__doc__.rstrip(), "", *(_INDENT + line for line in lines), _INDENT]
            )
        return client

    return append


def _options_of(options: type[Any]) -> list[str]:
    return [
        option.name if option.default is MISSING else f"{option.name}={_shown(option.default)}"
        for option in fields(options)
        if not option.name.startswith("_")
    ]


def _shown(default: object) -> str:
    """The default as it can be written; of an object without such a form its type."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    return f"{type(default).__name__}()" if repr(default).startswith("<") else repr(default)
