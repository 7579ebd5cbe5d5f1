"""What users may import. A change here is a change of the product."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import kourou
import kourou.client

PROJECT = Path(__file__).parents[2]
# The modules that documents may name; everything else may move at any time.
PUBLIC_MODULES = {
    "kourou",
    "kourou.client",
    "kourou.client.otel",
    "kourou.embed",
    "kourou.errors",
    "kourou.filters",
    "kourou.spark",
    "kourou.spark.cluster",
    "kourou.testing",
}
ROOT = """
    AsyncLitePullConsumer AsyncPopConsumer AsyncProducer AsyncPullConsumer AsyncPushConsumer
    AsyncTransactionProducer Broker ConsumeContext ConsumeResult Credentials KourouError LitePullConsumer
    Message MessageExt MessageQueue NameServer PopConsumer Producer PullConsumer PushConsumer QueueReader
    SendResult SendStatus TransactionProducer TransactionState idempotent __version__
""".split()
CLIENT = """
    AllocateAveragely AllocateAveragelyByCircle AllocateByConfig AllocateByMachineRoom
    AllocateConsistentHash AllocateMachineRoomNearby AllocateStrategy AsyncAtomicBatch AsyncDbApiStore
    AsyncPopBatch AsyncPoppedMessage AsyncPullSchedule AsyncQueueProcessor AsyncSqlAlchemyStore
    AsyncTransactionalStore AtomicBatch
    AtomicHandle AtomicPublish Claim ClientTlsConfig CompressionType ConsumeHookContext ConsumerHook
    ConsumerStats DbApiStore EndTransactionContext IdempotenceStore Lag LitePullStats MemoryStore
    PopBatch PoppedMessage ProducerHook ProducerStats PullContext PullResult PullStatus QueueChunk
    QueueEnd QueueProcessor
    QueueSelector RedisStore SendContext SinkBatch SqlAlchemyStore SqliteStore TopicStats Transaction
    TransactionSendResult TransactionalStore business_key lag metrics_text select_by_hash
    select_by_machine_room select_by_random unique_id_key
""".split()
FILTERS = ["FilterFactory", "FilterRecord", "RecordFilter"]
OTEL = ["ConsumeSpans", "SendSpans", "carry", "context_of"]
TESTING = ["AsyncLocalCluster", "ClusterStateError", "LocalCluster", "NotConsumedError", "UnknownTopicError"]
SPARK = [
    *["DataLossError", "LagListener", "ProgressPublisher", "RocketmqDataSource", "StreamLag"],
    "StreamMetrics",
    *["local_session", "open_archive", "parquet_files", "read_lake", "register", "stream_lag"],
]
NAMES = {
    "kourou": ROOT,
    "kourou.client": CLIENT,
    "kourou.client.otel": OTEL,
    "kourou.filters": FILTERS,
    "kourou.spark": SPARK,
    "kourou.testing": TESTING,
}
LAZY = ["kourou", "kourou.client", "kourou.config", "kourou.spark", "kourou.testing"]


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_are_these(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(NAMES[module])


def test_dir_lists_the_public_names() -> None:
    assert dir(kourou) == sorted(ROOT)
    assert dir(kourou.client) == sorted(CLIENT)


def test_a_name_has_one_home() -> None:
    assert set(ROOT) & set(CLIENT) == set()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module, name)
        for module in (kourou, kourou.client)
        for name in module.__all__
        if name != "__version__"
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_each_public_name_is_there_and_documented(module: ModuleType, name: str) -> None:
    value = getattr(module, name)
    assert value.__doc__ or name == "QueueSelector"  # a type alias has no docstring of its own


@pytest.mark.parametrize("module", LAZY)
def test_type_checkers_see_the_names_that_are_loaded_on_first_use(module: str) -> None:
    found = importlib.import_module(module)
    tree = ast.parse(inspect.getsource(found))
    (switch,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = {
        node.module: tuple(alias.name for alias in node.names)
        for node in switch.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kourou")
    }
    (assigned,) = (node for node in switch.orelse if isinstance(node, ast.Assign))
    assert isinstance(assigned.value, ast.Call)
    assert ast.literal_eval(assigned.value.args[1]) == imported
    loaded = {name for names in imported.values() for name in names}
    assert loaded <= set(found.__all__)


def test_a_mistyped_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="'kourou' has no attribute 'Mesage'; did you mean Message"):
        _ = kourou.Mesage
    with pytest.raises(AttributeError, match="'kourou' has no attribute 'xyz'; it offers AsyncLitePull"):
        _ = kourou.xyz


@pytest.mark.parametrize(
    ("package", "name", "hint"),
    [
        ("kourou", "Mesage", "did you mean Message?"),
        (
            "kourou",
            "Consumer",
            "did you mean LitePullConsumer or PopConsumer or PullConsumer or PushConsumer?",
        ),
        ("kourou", "LocalCluster", "it is in kourou.testing: from kourou.testing import LocalCluster"),
        ("kourou", "SendFailedError", "it is in kourou.errors: from kourou.errors import SendFailedError"),
        ("kourou", "PullStatus", "it is in kourou.client: from kourou.client import PullStatus"),
        ("kourou.client", "Producer", "it is in kourou: from kourou import Producer"),
        (
            "kourou.client",
            "SendSpans",
            "it is in kourou.client.otel: from kourou.client.otel import SendSpans",
        ),
        ("kourou.client", "SqlliteStore", "did you mean SqliteStore?"),
    ],
)
def test_an_import_of_an_unknown_name_says_what_was_meant(package: str, name: str, hint: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {package} import {name}")
    assert str(caught.value) == f"cannot import name '{name}' from '{package}'; {hint}"
    assert not hasattr(importlib.import_module(package), name)


# -- documents and examples ----------------------------------------------------------------------


def programs() -> Iterator[tuple[str, str]]:
    for page in [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]:
        for block in re.findall(r"^```(?:py|python)\n(.*?)^```", page.read_text(), re.M | re.S):
            yield str(page.relative_to(PROJECT)), block
    for file in (PROJECT / "examples").rglob("*.py"):
        yield str(file.relative_to(PROJECT)), file.read_text()


def private_imports(program: str) -> list[str]:
    """The names that a program imports from modules that may move, or that their module does not offer."""
    found = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.partition(".")[0] == "kourou"]
            found += [module for module in modules if module not in PUBLIC_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kourou":
            assert node.module is not None
            module = importlib.import_module(node.module)
            offered = getattr(module, "__all__", dir(module)) if node.module in PUBLIC_MODULES else ()
            found += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in offered]
    return found


def test_documents_and_examples_import_public_names_only() -> None:
    checked = [(where, private_imports(program)) for where, program in programs() if "kourou" in program]
    assert len(checked) > 40
    assert [(where, names) for where, names in checked if names] == []


def test_an_import_from_a_module_that_may_move_is_found() -> None:
    program = (
        "import kourou.client.core\nfrom kourou import Message, Mesage\nfrom kourou.store import files\n"
    )
    assert private_imports(program) == ["kourou.client.core", "kourou.Mesage", "kourou.store.files"]
