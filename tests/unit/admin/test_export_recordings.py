"""Exports print what Apache's print for the same answers, and write the same files.

Fields of maps are compared as sets: Java writes them in the order of a hash table, we sort them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kourou.store import pretty_json
from tests.golden.mqadmin import VERSIONS, exported_file, recordings, run_replayed

_APACHES_FOLDER = "/opt/rocketmq/export"
_FILES = {
    "exportMetadata": "metadata.json",
    "exportConfigs": "configs.json",
    "exportMetrics": "metrics.json",
}


def _of_any_time(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: "a time" if name == "exportTime" else value for name, value in tree.items()}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", _FILES)
async def test_export(version: str, name: str, tmp_path: Path) -> None:
    recording = recordings(version)[name]
    arguments = tuple(str(tmp_path) if word == _APACHES_FOLDER else word for word in recording.arguments)
    printed = await run_replayed(replace(recording, arguments=arguments))
    assert printed.replace(str(tmp_path), _APACHES_FOLDER) == recording.stdout
    ours, apaches = (tmp_path / _FILES[name]).read_text(), exported_file(version, _FILES[name])
    assert _of_any_time(json.loads(ours)) == _of_any_time(json.loads(apaches))
    # The layout is the same, too, but for lists of text, which RocketMQ 4.9 writes on one line.
    if not (version.startswith("4") and name == "exportMetrics"):
        assert pretty_json.write(json.loads(apaches)).decode() == apaches
    assert pretty_json.write(json.loads(ours)).decode() == ours
