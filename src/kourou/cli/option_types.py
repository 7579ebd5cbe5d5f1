"""Option types that click lacks: values of an enum, bounded numbers, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeVar

import click

from kourou.cli.problems import UsageError

_TIME_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
Command = TypeVar("Command", bound=Callable[..., Any])
"""The function of a command, which option decorators take and return."""


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
    """Integers within bounds, with one message for everything else."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} must be an integer{_bounds(self)}.", param, ctx)


class FloatRange(click.FloatRange):
    """Numbers within bounds. click's own type accepts NaN, which no comparison excludes."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} must be a number{_bounds(self)}.", param, ctx)
        return number


def _bounds(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is None:
        return "" if kind.max is None else f" up to {kind.max}"
    return f" from {kind.min}" if kind.max is None else f" from {kind.min} to {kind.max}"


def parse_duration_ms(option: str, text: str) -> int:
    """`500ms`, `30s`, `5m`, `1h`, `7d`. UsageError if it is not a duration."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip().lower())
    if match is None:
        raise UsageError(f"{option} {text}: must be a time such as 30s, 5m, 1h or 2d")
    return round(float(match[1]) * _TIME_MS[match[2]])
