"""What the parts of an SQL92 filter mean: each node of an expression becomes a function over a row of values.

Results are true, false or nothing (None). Values that cannot be compared end the whole evaluation
(ValueError).

Apache's oddities, each kept because clients rely on the same messages from either broker:

- `a = b` is true if both are absent, nothing if only the left one is, and false if only the right one
  is. So `a <> 'x'` does not find messages without `a`, but `'x' <> a` does.
- A property compared with a whole number has to be one, of the same size: `a > 5` is an error for
  `7.5` and for `3000000000`; write `a > 5.0`.
- Two properties are compared by order as doubles, and by `=` as texts: `1` is not equal to `1.0`.
- A text on the left of a truth value becomes one (`a = TRUE`); on its right it is an error.
- A truth value is never equal to a number. A bare property is never true, only false or absent.
- The minus of anything but a number is nothing.
- CONTAINS and its like are false, never nothing, without a text to search in or for; so are their
  negated forms: `a NOT CONTAINS 'x'` does not find messages without `a`.
- An error counts from the left: `TRUE OR a > 5` is true whatever `a` is, `a > 5 OR TRUE` may be an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kourou.protocol.filter.expressions import (
    And,
    Compare,
    Comparison,
    Equal,
    Expression,
    Find,
    In,
    IsNull,
    Negative,
    Not,
    Number,
    NumberType,
    Or,
    Property,
    Search,
    Text,
    Truth,
)
from kourou.protocol.filter.java_numbers import (
    compare_doubles,
    compare_numbers,
    read_double,
    read_integer,
    read_long,
)

Row: TypeAlias = Sequence[str | None]
"""Values of properties, in the order of the names that were given to `compile_condition`."""
Judge: TypeAlias = Callable[[Row], bool | None]
Value: TypeAlias = str | bool | Number | None
Read: TypeAlias = Callable[[Row], Value]

_READERS: Final[dict[NumberType, Callable[[str], int | float]]] = {
    NumberType.INTEGER: read_integer,
    NumberType.LONG: read_long,
    NumberType.DOUBLE: read_double,
}
_ORDERS: Final[dict[Comparison, Callable[[int | float, int | float], bool]]] = {
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
}
# `5 < a` is `a > 5`: what is known before any message goes to the right.
_TURNED: Final = {
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
}
_SEARCHES: Final[dict[Search, Callable[[str, str], bool]]] = {
    Search.CONTAINS: operator.contains,
    Search.STARTS_WITH: str.startswith,
    Search.ENDS_WITH: str.endswith,
}


def compile_condition(expression: Expression, names: Sequence[str]) -> Judge:
    """The function that judges rows with the values of `names`, among them all of the expression."""
    return _Compiler(names).condition(expression)


class _Compiler:
    """Makes the functions of one program."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}

    def condition(self, node: Expression) -> Judge:
        """The truth of a node where one is needed."""
        match node:
            case And(operands):
                return _and([self.condition(each) for each in operands])
            case Or(operands):
                return _or([self.condition(each) for each in operands])
            case Not(operand):
                return _not(self.condition(operand))
            case Equal(left, right):
                return self._equal(left, right)
            case Compare(comparison, left, right):
                return self._compare(comparison, left, right)
            case In(name, values):
                return _in(self._places[name], values)
            case IsNull(operand):
                return _is_null(self._value(operand))
            case Find(search, operand, wanted, is_negated):
                return _find(_SEARCHES[search], self._value(operand), wanted, is_negated)
            case Truth(value):
                return lambda row: value
            case Property(name):
                return _bare(self._places[name])
        raise AssertionError(f"the parser lets no {node} stand for a condition")

    def _value(self, node: Expression) -> Read:
        """The value of a node where any will do."""
        if isinstance(node, Property):
            return operator.itemgetter(self._places[node.name])
        if isinstance(node, Text):
            return _constant(node.value)
        if (number := _number(node)) is not None:
            return _constant(number)
        if isinstance(node, Negative):
            return _nothing(self._value(node.operand))
        return self.condition(node)

    def _equal(self, left: Expression, right: Expression) -> Judge:
        number = _number(right)
        if isinstance(left, Property) and isinstance(right, Text):
            return _property_is_text(self._places[left.name], right.value)
        if isinstance(left, Property) and number is not None:
            return _property_is_number(self._places[left.name], number)
        return _equal(self._value(left), self._value(right))

    def _compare(self, comparison: Comparison, left: Expression, right: Expression) -> Judge:
        number = _number(right)
        if isinstance(left, Property) and number is not None:
            return _property_to_number(self._places[left.name], _ORDERS[comparison], number)
        if isinstance(right, Property) and (number := _number(left)) is not None:
            return _property_to_number(self._places[right.name], _ORDERS[_TURNED[comparison]], number)
        return _compare(_ORDERS[comparison], self._value(left), self._value(right))


def _number(node: Expression) -> Number | None:
    """The number that a node always is; None when it is something else."""
    if isinstance(node, Negative) and (number := _number(node.operand)) is not None:
        return Number(-number.value, number.type)
    return node if isinstance(node, Number) else None


# -- words -------------------------------------------------------------------------------------------


def _and(judges: Sequence[Judge]) -> Judge:
    def judge(row: Row) -> bool | None:
        result: bool | None = True
        for each in judges:
            found = each(row)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return judge


def _or(judges: Sequence[Judge]) -> Judge:
    def judge(row: Row) -> bool | None:
        result: bool | None = False
        for each in judges:
            found = each(row)
            if found:
                return True
            if found is None:
                result = None
        return result

    return judge


def _not(inner: Judge) -> Judge:
    def judge(row: Row) -> bool | None:
        found = inner(row)
        return None if found is None else not found

    return judge


def _in(place: int, values: frozenset[str]) -> Judge:
    def judge(row: Row) -> bool | None:
        value = row[place]
        return None if value is None else value in values

    return judge


def _is_null(read: Read) -> Judge:
    return lambda row: read(row) is None


def _find(search: Callable[[str, str], bool], read: Read, wanted: str, is_negated: bool) -> Judge:
    if not wanted:
        return lambda row: False  # without a look at the operand, which might be an error

    def judge(row: Row) -> bool | None:
        value = read(row)
        return isinstance(value, str) and search(value, wanted) is not is_negated

    return judge


def _bare(place: int) -> Judge:
    return lambda row: None if row[place] is None else False


def _constant(value: Value) -> Read:
    return lambda row: value


def _nothing(read: Read) -> Read:
    def read_nothing(row: Row) -> None:
        read(row)  # it may be an error

    return read_nothing


# -- comparison by order -----------------------------------------------------------------------------


def _property_to_number(
    place: int, order: Callable[[int | float, int | float], bool], number: Number
) -> Judge:
    reader, value = _READERS[number.type], number.value
    if isinstance(value, float):
        bound = value

        def judge_double(row: Row) -> bool | None:
            text = row[place]
            return None if text is None else order(compare_doubles(read_double(text), bound), 0)

        return judge_double

    def judge(row: Row) -> bool | None:
        text = row[place]
        return None if text is None else order(reader(text), value)

    return judge


def _compare(order: Callable[[int | float, int | float], bool], left: Read, right: Read) -> Judge:
    """For two properties, two numbers, and what is nothing: the parser lets through nothing else."""

    def judge(row: Row) -> bool | None:
        one = left(row)
        if one is None:
            return None
        other = right(row)
        if other is None:
            return None
        if isinstance(one, Number) and isinstance(other, Number):
            return order(compare_numbers(one.value, other.value), 0)
        assert isinstance(one, str) and isinstance(other, str)
        return order(compare_doubles(read_double(one), read_double(other)), 0)

    return judge


# -- equality ----------------------------------------------------------------------------------------


def _property_is_text(place: int, wanted: str) -> Judge:
    def judge(row: Row) -> bool | None:
        value = row[place]
        return None if value is None else value == wanted

    return judge


def _property_is_number(place: int, number: Number) -> Judge:
    def judge(row: Row) -> bool | None:
        value = row[place]
        return None if value is None else _is_number(value, number)

    return judge


def _equal(left: Read, right: Read) -> Judge:
    def judge(row: Row) -> bool | None:
        one, other = left(row), right(row)
        if one is None:
            return True if other is None else None
        return False if other is None else _are_equal(one, other)

    return judge


def _are_equal(one: str | bool | Number, other: str | bool | Number) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) and isinstance(other, str):
        raise ValueError("a text on the right is not turned into a truth value")
    if isinstance(one, Number) and isinstance(other, Number):
        return compare_numbers(one.value, other.value) == 0
    if isinstance(one, Number) and isinstance(other, str):
        return _is_number(other, one)
    if isinstance(one, str):
        return _is_number(one, other) if isinstance(other, Number) else (one.lower() == "true") is other
    return one is other  # a number is no truth value


def _is_number(text: str, number: Number) -> bool:
    return compare_numbers(_READERS[number.type](text), number.value) == 0
