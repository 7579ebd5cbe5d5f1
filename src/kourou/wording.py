"""Words for users: numbers with their noun, and the name that a mistyped word probably means."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "broker"), counted(2, "broker"), counted(1_200, "retry", "retries")
    ('1 broker', '2 brokers', '1,200 retries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def nearest(word: str, names: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The name that a mistyped word probably means, in any case of letters; None if no name is near.

    Two letters that changed places count as one mistake, so that the nearest to `prot` is `port`.
    A name equal to the word is left out: it was added after the word was found to be unknown.
    `likeness`, from 0 to 1: how much of the two has to be equal, as difflib measures it.

    >>> nearest("prot", ["host", "port"]), nearest("ordres", ["Orders"]), nearest("x", ["Orders"])
    ('port', 'Orders', None)
    >>> nearest("Orders", ["Orders", "Ordres"])
    'Ordres'
    """
    from difflib import get_close_matches  # only on the way to an error

    by_small = {name.lower(): name for name in sorted(names) if name != word}
    small = word.lower()
    close = get_close_matches(small, by_small, n=5, cutoff=likeness)
    return by_small[min(close, key=lambda name: _mistakes(small, name))] if close else None


def suggestion(word: str, names: Iterable[str]) -> str:
    """The end of an error message about an unknown name; empty if no name is near.

    >>> suggestion("Ordres", ["Orders", "Payments"])
    '; did you mean Orders?'
    """
    near = nearest(word, names)
    return f"; did you mean {near}?" if near is not None else ""


def _mistakes(word: str, name: str) -> int:
    """Letters that were inserted, left out or replaced, and neighbours that changed places."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(word):
        above, row, before_last = row, [i + 1], before
        for j, other in enumerate(name):
            cost = min(above[j] + (letter != other), above[j + 1] + 1, row[j] + 1)
            if i and j and letter == name[j - 1] and other == word[i - 1]:
                cost = min(cost, before_last[j - 1] + 1)
            row.append(cost)
        before = above
    return row[-1]
