"""Huffman code of HPACK (RFC 7541, appendix B): decoding.

A state is a node of the code's tree at the end of a byte; what a byte does in a state is computed when it
first occurs, and kept.
"""

from __future__ import annotations

from typing import Final

from kourou.proxy.http2.frames import ErrorCode, Http2Error

# Lengths in bits of the codes of symbols 0 to 256 (EOS). The code is canonical: codes of one length ascend
# with the symbol, and follow those of shorter ones.
_LENGTHS: Final = [
    int(length)
    for length in """
    13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28 6 10
    10 12 13 6 8 11 10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10 13 6 7 7 7 7 7 7 7 7 7 7 7 7 7
    7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6 15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 15 11
    14 13 28 20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23
    23 24 22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22
    23 26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26 28 27 27 27
    20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26 30
    """.split()
]
_EOS: Final = 256
_MAX_CACHED: Final = 4_096
_MAX_CACHED_BYTES: Final = 256

# A node is a list of two: a child node, or a symbol.
_Node = list["_Node | int | None"]


def _tree() -> _Node:
    root: _Node = [None, None]
    code = previous = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(_LENGTHS)):
        code <<= length - previous
        previous = length
        node = root
        for bit in range(length - 1, 0, -1):
            child = node[code >> bit & 1]
            if child is None:
                child = node[code >> bit & 1] = [None, None]
            assert isinstance(child, list)
            node = child
        node[code & 1] = symbol
        code += 1
    return root


_ROOT: Final = _tree()


class _State:
    """A position between two bytes."""

    __slots__ = ("is_end", "node", "steps")

    def __init__(self, node: _Node, is_end: bool) -> None:
        self.node = node
        self.is_end = is_end  # at a symbol's end, but for up to seven bits of padding, all ones
        self.steps: list[tuple[_State, str] | None] = [None] * 256


def _padding_nodes() -> list[_Node]:
    nodes, node = [_ROOT], _ROOT
    for _ in range(7):
        child = node[1]
        assert isinstance(child, list)
        node = child
        nodes.append(node)
    return nodes


_ENDS: Final = {id(node) for node in _padding_nodes()}
_START: Final = _State(_ROOT, is_end=True)
_states: Final[dict[int, _State]] = {id(_ROOT): _START}
_cache: Final[dict[bytes, str]] = {}


def _step(state: _State, byte: int) -> tuple[_State, str]:
    node, symbols = state.node, ""
    for bit in range(7, -1, -1):
        child = node[byte >> bit & 1]
        if isinstance(child, list):
            node = child
            continue
        if child is None or child == _EOS:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, "a header value has a code that Huffman's has not")
        symbols += chr(child)
        node = _ROOT
    after = _states.get(id(node))
    if after is None:
        after = _states[id(node)] = _State(node, id(node) in _ENDS)
    state.steps[byte] = step = (after, symbols)
    return step


def decode_huffman(coded: bytes) -> str:
    """The text, one character for each octet; raises Http2Error."""
    cached = _cache.get(coded)
    if cached is not None:
        return cached
    state, parts = _START, []
    for byte in coded:
        state, symbols = state.steps[byte] or _step(state, byte)
        parts.append(symbols)
    if not state.is_end:
        raise Http2Error(ErrorCode.COMPRESSION_ERROR, "a header value ends inside a Huffman code")
    text = "".join(parts)
    if len(_cache) >= _MAX_CACHED:
        _cache.clear()
    if len(coded) <= _MAX_CACHED_BYTES:
        _cache[coded] = text
    return text
