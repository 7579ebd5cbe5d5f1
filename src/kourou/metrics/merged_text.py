"""Texts of several processes as one: Prometheus wants the samples of a metric together, and its head once.

The labels of the samples tell the processes apart; nothing is added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def merged_text(texts: Iterable[str]) -> Iterator[str]:
    """The text of all families, those of one metric together, a metric at a time.

    >>> list(merged_text(["# TYPE a gauge\\na{x=\\"1\\"} 1\\n", "# TYPE a gauge\\na{x=\\"2\\"} 1\\n"]))
    ['# TYPE a gauge\\na{x="1"} 1\\na{x="2"} 1\\n']
    """
    heads: dict[str, dict[str, None]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, {})[line] = None
                samples.setdefault(name, [])
            elif line and name:
                samples[name].append(line)
    for name, head in heads.items():
        yield "\n".join((*_one_of_each(head), *samples[name], ""))


def _one_of_each(head: Iterable[str]) -> Iterator[str]:
    """One HELP and one TYPE: processes of another version may have other words."""
    seen = set()
    for line in head:
        kind = line.split(" ", 2)[1]
        if kind not in seen:
            seen.add(kind)
            yield line
