"""SQL92 filters evaluated the slow and plain way, straight from the rules, to compare the programs with;
and their text, to compare the parser with."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from kourou.protocol.filter.expressions import (
    And,
    Compare,
    Comparison,
    Condition,
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

Properties = Mapping[str, str]
Value = str | bool | Number | None
_BITS = {NumberType.INTEGER: 32, NumberType.LONG: 64}


class Incomparable(Exception):
    """What Apache throws."""


def evaluate(node: Expression, properties: Properties) -> bool | None:
    """The truth of a node."""
    match node:
        case Property(name):
            return None if name not in properties else False
        case And(operands):
            return _chain(operands, properties, ends_with=False)
        case Or(operands):
            return _chain(operands, properties, ends_with=True)
        case Not(operand):
            found = evaluate(operand, properties)
            return None if found is None else not found
        case Truth(value):
            return value
        case In(name, values):
            return None if name not in properties else properties[name] in values
        case IsNull(operand):
            return _value(operand, properties) is None
        case Find():
            return _find(node, properties)
        case Equal(left, right):
            return _equal(_value(left, properties), _value(right, properties))
        case Compare(comparison, left, right):
            return _compare(comparison, left, right, properties)
    raise AssertionError(node)


def _chain(operands: tuple[Expression, ...], properties: Properties, *, ends_with: bool) -> bool | None:
    seen = set()
    for operand in operands:
        seen.add(evaluate(operand, properties))
        if ends_with in seen:
            return ends_with
    return None if None in seen else not ends_with


def _find(node: Find, properties: Properties) -> bool:
    if node.wanted == "":
        return False
    text = _value(node.operand, properties)
    if not isinstance(text, str):
        return False
    found = {
        Search.CONTAINS: node.wanted in text,
        Search.STARTS_WITH: text[: len(node.wanted)] == node.wanted,
        Search.ENDS_WITH: text[-len(node.wanted) :] == node.wanted,
    }[node.search]
    return found != node.is_negated


def _value(node: Expression, properties: Properties) -> Value:
    match node:
        case Property(name):
            return properties.get(name)
        case Text(value):
            return value
        case Number():
            return node
        case Negative(operand):
            value = _value(operand, properties)
            return Number(-value.value, value.type) if isinstance(value, Number) else None
    return evaluate(node, properties)


def _equal(left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        return True if left is right else (None if left is None else False)
    if type(left) is type(right) and not isinstance(left, Number):
        return left == right
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Incomparable
        return False
    if isinstance(right, bool):
        return right == (left.lower() == "true") if isinstance(left, str) else False
    return _sign(left, right) == 0


def _compare(
    comparison: Comparison, left: Expression, right: Expression, properties: Properties
) -> bool | None:
    one = _value(left, properties)
    if one is None:
        return None
    other = _value(right, properties)
    if other is None:
        return None
    assert not isinstance(one, bool) and not isinstance(other, bool)
    if isinstance(one, str) and isinstance(other, str):
        other = Number(_read(other, NumberType.DOUBLE), NumberType.DOUBLE)
    sign = _sign(one, other)
    return {">": sign > 0, ">=": sign >= 0, "<": sign < 0, "<=": sign <= 0}[comparison.value]


def _sign(left: str | Number, right: str | Number) -> int:
    """Of two of which one is a number at least."""
    if isinstance(left, str):
        assert isinstance(right, Number)
        left = Number(_read(left, right.type), right.type)
    if isinstance(right, str):
        right = Number(_read(right, left.type), left.type)
    one, other = left.value, right.value
    if NumberType.DOUBLE in (left.type, right.type):
        one, other = float(one), float(other)
    return (one > other) - (one < other)


def _read(text: str, type: NumberType) -> int | float:
    """Only of texts that the tests use: ASCII, without the rarer forms of doubles."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise Incomparable from None
    if "_" in text or not number.is_finite():
        raise Incomparable
    if type is NumberType.DOUBLE:
        return float(number)
    if not set(text) <= set("+-0123456789"):
        raise Incomparable
    if not -(2 ** (_BITS[type] - 1)) <= int(text) < 2 ** (_BITS[type] - 1):
        raise Incomparable
    return int(text)


# -- text --------------------------------------------------------------------------------------------


def render(node: Expression) -> str:
    """An expression that says `node`; parentheses around all that is not a single word."""
    match node:
        case Property(name):
            return name
        case Text(value):
            return _quoted(value)
        case Number(value):
            return repr(value)
        case Truth(value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case And(operands):
            return " AND ".join(map(_operand, operands))
        case Or(operands):
            return " OR ".join(map(_operand, operands))
        case Not(operand):
            return f"NOT {_operand(operand)}"
        case Negative(operand):
            return f"- {_operand(operand)}"
        case Equal(left, right):
            return f"{_operand(left)} = {_operand(right)}"
        case Compare(comparison, left, right):
            return f"{_operand(left)} {comparison.value} {_operand(right)}"
        case IsNull(operand):
            return f"{_operand(operand)} IS NULL"
        case In(name, values):
            return f"{name} IN ({', '.join(map(_quoted, sorted(values)))})"
        case Find(search, operand, wanted, is_negated):
            return f"{_operand(operand)} {'NOT ' * is_negated}{search.value} {_quoted(wanted)}"
    raise AssertionError(node)


def _operand(node: Expression) -> str:
    is_word = not isinstance(node, Condition | Negative) or isinstance(node, Truth)
    return render(node) if is_word else f"({render(node)})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
