"""Our messages of rocketmq.v2 beside those of the official Python client, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kourou.proxy.wire import generate, rocketmq_v2
from kourou.proxy.wire.rocketmq_v2 import Message
from tests.interop.kit.grpc.client_programs import PROGRAMS

pytestmark = pytest.mark.interop

# Prints what fields, enums and methods are; run by both processes, on their own descriptors.
DESCRIBE = """
import json

def described(files):
    found = {}
    def message(prefix, descriptor):
        name = prefix + descriptor.name
        for field in descriptor.fields:
            oneof = field.containing_oneof
            found[name + "." + field.name] = [
                field.number,
                field.type,
                field.is_repeated,
                field.has_presence,
                field.message_type.full_name if field.message_type else None,
                field.enum_type.full_name if field.enum_type else None,
                oneof.name if oneof else None,
            ]
        for nested in descriptor.nested_types:
            message(name + ".", nested)
        for nested in descriptor.enum_types:
            enum(name + ".", nested)
    def enum(prefix, descriptor):
        for value in descriptor.values:
            found[prefix + descriptor.name + "." + value.name] = value.number
    for file in files:
        for descriptor in file.message_types_by_name.values():
            message("", descriptor)
        for descriptor in file.enum_types_by_name.values():
            enum("", descriptor)
        for service in file.services_by_name.values():
            for method in service.methods:
                found[service.full_name + "/" + method.name] = [
                    method.input_type.full_name,
                    method.output_type.full_name,
                    method.client_streaming,
                    method.server_streaming,
                ]
    return found
"""
OFFICIAL = """
from rocketmq.grpc_protocol import definition_pb2, service_pb2
print(json.dumps(described([definition_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR])))
"""


# Its environment has grpcio-tools, too.
COMPILED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("generate", sys.argv[1])
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)
print(generate.descriptor_source(generate.compile_proto()), end="")
"""


def in_official(folder: Path, source: str, *arguments: str) -> str:
    """What a program prints in the environment of the official client."""
    (program,) = (each for each in PROGRAMS if each.language == "python")
    command = [program.command(folder)[0], "-c", source, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def official(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(in_official(folder, DESCRIBE + OFFICIAL))
    return found


def ours() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(DESCRIBE, names)
    described: dict[str, Any] = names["described"]([Message.DESCRIPTOR.file])  # type: ignore[attr-defined]
    return json.loads(json.dumps(described))  # type: ignore[no-any-return]


def test_everything_of_the_official_client_is_the_same_here(tmp_path: Path) -> None:
    theirs, own = official(tmp_path), ours()
    assert len(theirs) > 300
    assert {name: own.get(name) for name in theirs} == theirs
    # What is newer here: nothing that they have under another name.
    newer = own.keys() - theirs.keys()
    assert all(
        name.startswith(("Settings.", "Code.", "SystemProperties.", "ChangeInvisible")) for name in newer
    ), newer
    assert set(rocketmq_v2.METHODS) >= {f"/{name}" for name in theirs if "/" in name}


def test_what_is_generated_is_current(tmp_path: Path) -> None:
    compiled = in_official(tmp_path, COMPILED, str(generate.HERE / "generate.py"))
    assert compiled == generate.DESCRIPTOR.read_text()
