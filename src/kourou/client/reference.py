"""docs/client-options.md, generated from the code: `python -m kourou.client.reference [FILE]`.

A test compares the file with the output.
"""

from __future__ import annotations

import ast
import enum
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from kourou.client.core.settings import ClientSettings
from kourou.client.pop.pop_options import PopOptions
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.pull.lite_pull_options import LitePullOptions
from kourou.client.push.consumer_options import ConsumerOptions

_INTRODUCTION: Final = """\
# Options of the Python client

Generated from the code by `make docs`; a test compares them. All options are keyword arguments of the \
clients. Units are part of their names; RocketMQ's name of an option is in parentheses. A mistyped option is \
rejected, and the error suggests the nearest one.
"""
_PARTS: Final[tuple[tuple[str, type[Any]], ...]] = (
    ("Every client", ClientSettings),
    ("`Producer`, `TransactionProducer`", ProducerOptions),
    ("`PushConsumer`", ConsumerOptions),
    ("`LitePullConsumer`", LitePullOptions),
    ("`PopConsumer`", PopOptions),
)


def reference() -> str:
    parts = [_INTRODUCTION]
    for title, options in _PARTS:
        parts += [f"## {title}\n", "| option | default | means |\n|---|---|---|"]
        parts += [*_rows(options), ""]
    return "\n".join(parts)


def _rows(options: type[Any]) -> Iterator[str]:
    described = meanings(options)
    for option in fields(options):
        if not option.name.startswith("_"):
            yield f"| `{option.name}` | {_default(option)} | {described.get(option.name, '')} |"


def _default(option: Field[Any]) -> str:
    default = option.default
    if default is None or default is MISSING or default == ():
        return ""
    if isinstance(default, enum.Enum):
        return f"`{default.name}`"
    return f"`{default}`" if isinstance(default, str | int) else f"`{type(default).__name__}()`"


def meanings(options: type[Any]) -> dict[str, str]:
    """The docstring of each attribute, as one line."""
    (class_node,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(class_node, ast.ClassDef)
    found = {}
    for node, following in pairwise(class_node.body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = str(following.value.value)
            found[node.target.id] = " ".join(text.split()).replace("|", "\\|")
    return found


def main() -> None:
    """Write the document, or print it."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference())
    else:
        print(reference(), end="")


if __name__ == "__main__":
    main()
