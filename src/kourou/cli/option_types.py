"""Kinds of options that click has not, or not so: values of an enum, numbers within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
"""What decorators of options take and give: the function of a command."""


def choice_option(
    *names: str, default: StrEnum, help: str, metavar: str | None = None, case_sensitive: bool = True
) -> Callable[[Command], Command]:
    """An option that takes the values of an enum.

    click's own choice takes the names of its members.
    """
    kind = type(default)

    def member(context: click.Context, parameter: click.Parameter, value: str) -> StrEnum:
        return kind(value)

    return click.option(
        *names,
        type=click.Choice([choice.value for choice in kind], case_sensitive=case_sensitive),
        default=default.value,
        callback=member,
        metavar=metavar,
        help=help,
    )


class IntRange(click.IntRange):
    """Whole numbers within bounds. Of others click would say that they are no "integer range"."""

    name = "integer"


class FloatRange(click.FloatRange):
    """Numbers within bounds. click's takes NaN too, which compares as being outside of none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that the option was given."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number
