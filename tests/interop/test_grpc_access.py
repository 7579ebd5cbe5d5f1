"""Access control by RocketMQ 5's users and ACLs at the gRPC port: our proxy and Apache's let the same calls
pass."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.interop.kit.access_accounts import ADMIN, NOBODY, OPEN, UNKNOWN, WORKER, WRONG_KEY, Identity
from tests.interop.kit.grpc.access import IDENTITIES, create_world, rights
from tests.interop.kit.grpc.client import CallFailed, Fields, GrpcClient
from tests.interop.kit.grpc.fixtures import GrpcClients
from tests.interop.kit.grpc.scenarios import Outcome, Scene
from tests.interop.kit.grpc.sides import APACHE, KOUROU, GrpcSide, launch_side, wait_side

pytestmark = pytest.mark.interop

_MAY_DO_SOMETHING = {account.access_key for account in (ADMIN, WORKER, OPEN)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GrpcSide]]:
    """Both sides, with accounts."""
    with ExitStack() as running:
        sides = {}
        for name in (APACHE, KOUROU):
            sides[name] = launch_side(name, tmp_path_factory.mktemp(f"grpc-access-{name}"), has_accounts=True)
            running.callback(sides[name].close)
        for side in sides.values():
            create_world(wait_side(side))
        yield sides


def test_each_account_may_do_the_same_as_at_apaches_proxy(
    guarded: dict[str, GrpcSide], grpc_clients: GrpcClients
) -> None:
    client = grpc_clients["python"]

    def allowed(case: tuple[str, Identity]) -> Outcome:
        scene = Scene(client, guarded[case[0]])
        try:
            return {what: code == "OK" for what, code in rights(scene, case[1]).items()}
        finally:
            scene.close()

    # Wrong keys come last: ours locks the account out for their host.
    identities = sorted(IDENTITIES.values(), key=lambda identity: identity is WRONG_KEY)
    for some in (identities[:-1], identities[-1:]):
        cases = [(side, identity) for identity in some for side in (APACHE, KOUROU)]
        with ThreadPoolExecutor(len(cases)) as threads:
            outcomes = list(threads.map(allowed, cases))
        for identity, theirs, ours in zip(some, outcomes[::2], outcomes[1::2], strict=True):
            assert ours == theirs, identity.name
            assert any(ours.values()) == (identity.name in _MAY_DO_SOMETHING), identity.name


def keys_of(identity: Identity) -> Fields:
    """The keys of an account as options of a client."""
    return {"accessKey": identity.access_key, "secretKey": identity.secret_key}


@pytest.mark.parametrize("language", ["java", "go", "python", "node"])
def test_a_client_with_keys_sends_and_receives(
    guarded: dict[str, GrpcSide], grpc_clients: GrpcClients, language: str
) -> None:
    scene = Scene(grpc_clients[language], guarded[KOUROU])
    keys = keys_of(WORKER.identity)
    consumer = scene.start("simple", topic="Orders", group="Workers", **keys)
    sent = scene.send(scene.producer("Orders", **keys), "Orders", f"from-{language}")
    assert scene.receive_until(consumer, sent[0]["body"])
    refused = scene.try_send(scene.producer("Orders", **keys), "Reads", "refused")
    scene.close()
    assert refused[0]["code"] in (40100, 0), refused


@pytest.mark.parametrize("side", [APACHE, KOUROU])
@pytest.mark.parametrize("identity", [WRONG_KEY, UNKNOWN, NOBODY.identity], ids=lambda one: one.name)
def test_a_client_with_wrong_keys_does_not_start(
    guarded: dict[str, GrpcSide], grpc_clients: GrpcClients, identity: Identity, side: str
) -> None:
    client: GrpcClient = grpc_clients["java"]
    with pytest.raises(CallFailed):
        client.ask(
            "start-producer",
            name=guarded[side].new_name("producer"),
            endpoints=guarded[side].endpoints,
            topics="Orders",
            **keys_of(identity),
        )
