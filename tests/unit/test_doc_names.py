"""Programs of the documents and examples can be run one after the other on one broker."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.e2e.doc_programs import PROJECT, steps

PAGES = ["README.md", *sorted(str(path.relative_to(PROJECT)) for path in (PROJECT / "docs").glob("*.md"))]
EXAMPLES = ("fastapi_lifespan.py", "django_consumer", "orders_app/orders")
TOPIC = re.compile(r'(?:\bTOPIC = |Message\(|subscribe\(|queues\()"(\w+)"')
GROUP = re.compile(r'(?:\bGROUP = |(?:Push|Pull)Consumer\(\s*)"([\w-]+)"')
NAMESPACE = re.compile(r'namespace="([\w-]+)"')


def programs() -> Iterator[tuple[str, str]]:
    """What may share topics and groups: the programs of one section, or the files of one example."""
    for page in PAGES:
        for step in steps(page):
            if step.is_program and "LocalCluster" not in step.text and step.file_name is None:
                # The quick start is one story; all other pages have a program or two in each section.
                yield page if page.endswith("quickstart.md") else f"{page}, {step.section}", step.text
    for name in EXAMPLES:
        path = PROJECT / "examples" / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            yield f"examples/{name}", file.read_text()


def owners(pattern: re.Pattern[str]) -> dict[str, set[str]]:
    """Who uses each name."""
    found: dict[str, set[str]] = defaultdict(set)
    for owner, text in programs():
        namespace = NAMESPACE.search(text)
        for name in pattern.findall(text):
            found[f"{namespace[1]}%{name}" if namespace else name].add(owner)
    return found


@pytest.mark.parametrize(("pattern", "least"), [(TOPIC, 20), (GROUP, 20)], ids=["topics", "groups"])
def test_no_two_sections_share_a_topic_or_a_group(pattern: re.Pattern[str], least: int) -> None:
    found = owners(pattern)
    assert len(found) >= least
    assert {name: users for name, users in found.items() if len(users) > 1} == {}
