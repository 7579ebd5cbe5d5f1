"""The table of mutants (.ci/mutants.py) is about the code as it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "mutants.py"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_mutants", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks for its module there
    spec.loader.exec_module(module)
    return module


def test_each_mutant_changes_one_place_and_has_tests(mutants: ModuleType) -> None:
    for mutant in mutants.MUTANTS:
        assert len(mutant.places(ROOT)) == 1, f"{mutant.files}: {mutant.old}"
        assert mutant.new != mutant.old
        paths = [word for word in mutant.tests if word.endswith(".py")]
        assert paths and all((ROOT / path).is_file() for path in paths), mutant.tests
