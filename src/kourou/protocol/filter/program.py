"""FilterProgram: an SQL92 filter that is ready to judge messages.

A program reads its properties into a row once and judges the row. Only true lets a message pass: nothing
does not, nor do values that cannot be compared.
Not here: what the parts of an expression mean (compiler.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from kourou.protocol.filter.compiler import Row, compile_condition
from kourou.protocol.filter.expressions import (
    And,
    Compare,
    Equal,
    Expression,
    Find,
    In,
    IsNull,
    Negative,
    Not,
    Or,
    Property,
)
from kourou.protocol.filter.parser import parse
from kourou.protocol.layout import Buffer
from kourou.protocol.properties import PropertyFinder

Lookup: TypeAlias = Callable[[str], str | None]


class FilterProgram:
    """A compiled filter. `names` are the properties it reads, `terms` how much work a message is.

    Has no state: any thread may use it.
    """

    __slots__ = ("_find", "_judge", "names", "terms", "text")

    def __init__(self, text: str) -> None:
        expression = parse(text)
        nodes = list(_walk(expression))
        self.text = text
        self.names = tuple(dict.fromkeys(name for node in nodes for name in _names(node)))
        self.terms = len(nodes)
        self._judge = compile_condition(expression, self.names)
        self._find = PropertyFinder(self.names).values

    def __repr__(self) -> str:
        return f"<FilterProgram {self.text[:80]!r}>"

    def evaluate(self, lookup: Lookup) -> bool | None:
        """The result for a message whose properties `lookup` knows, such as `properties.get`.

        ValueError where values cannot be compared.
        """
        return self._judge([lookup(name) for name in self.names])

    def matches(self, lookup: Lookup) -> bool:
        """Whether the message passes."""
        return self.matches_row([lookup(name) for name in self.names])

    def matches_bytes(self, buffer: Buffer, start: int, end: int) -> bool:
        """The same for a message's property string, which is at `start` in a buffer, as it is stored."""
        try:
            return self._judge(self._find(buffer, start, end)) is True
        except ValueError:
            return False

    def matches_row(self, row: Row) -> bool:
        """The same for the values of `names`, in their order."""
        try:
            return self._judge(row) is True
        except ValueError:
            return False


def _walk(expression: Expression) -> Iterator[Expression]:
    """Every node; without a function that calls itself, for there may be many."""
    todo = [expression]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(_children(node))


def _children(node: Expression) -> tuple[Expression, ...]:
    match node:
        case And(operands) | Or(operands):
            return operands
        case Equal(left, right) | Compare(_, left, right):
            return left, right
        case Not(operand) | IsNull(operand) | Negative(operand) | Find(_, operand):
            return (operand,)
    return ()


def _names(node: Expression) -> tuple[str, ...]:
    return (node.name,) if isinstance(node, Property | In) else ()
