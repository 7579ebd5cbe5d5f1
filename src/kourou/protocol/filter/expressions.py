"""What an SQL92 filter says, as a tree.

Whatever yields a truth value is a Condition; names of properties, texts and numbers are not. The
tree is at most MAX_HEIGHT high, so that whoever walks it may use a function that calls itself.
Not here: which trees are allowed (parser.py), what they mean (compiler.py).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

# Conditions of people are about ten high. A walk takes up to four frames of the stack for each level,
# and Python has a thousand.
MAX_HEIGHT: Final = 150


class NumberType(enum.Enum):
    """Java's types: a property compared with a number has to be one of the number's type."""

    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"


class Comparison(enum.Enum):
    """Comparisons by order; the value is the sign."""

    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


class Search(enum.Enum):
    """Where a text may be found in another; the value is the keyword."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Expression:
    """Any node."""


@dataclass(frozen=True, slots=True)
class Property(Expression):
    """A property of the message; nothing where it has none of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """A text in quotes, without them."""

    value: str


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A number as written, so never below zero."""

    value: int | float
    type: NumberType


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    """A minus sign: only a number has a negative, all else becomes nothing."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Condition(Expression):
    """A node that is true, false or nothing."""


@dataclass(frozen=True, slots=True)
class Truth(Condition):
    """TRUE, FALSE, or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """The opposite of a Condition, or of a bare Property."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And(Condition):
    """Conditions or bare Properties, two at least, judged from the left."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Condition):
    """Conditions or bare Properties, two at least, judged from the left."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Equal(Condition):
    """`left = right`; `left <> right` is its Not."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Compare(Condition):
    """`left > right` and its like; BETWEEN is two of them."""

    comparison: Comparison
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """Whether there is nothing; `IS NOT NULL` is its Not."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class In(Condition):
    """Whether a property is one of some texts; `NOT IN` is its Not."""

    name: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Find(Condition):
    """Whether a text is found in another; the negated form is no Not: see compiler.py."""

    search: Search
    operand: Expression
    wanted: str
    is_negated: bool
