"""ClusterWatch: what the log says of name servers and brokers that cannot be used."""

from __future__ import annotations

import logging

import pytest

from kourou.errors import ConnectError
from kourou.proxy.links.cluster_watch import ClusterWatch
from kourou.transport.tasks import TaskOwner


class FakeCluster:
    def __init__(self) -> None:
        self.why_not: str | None = None
        self.refusal: str | None = None
        self.error: Exception | None = None
        self.probes = 0

    async def why_not_ready(self) -> str | None:
        return self.why_not

    async def refusal_of_unsigned(self) -> str | None:
        self.probes += 1
        if self.error is not None:
            raise self.error
        return self.refusal


async def test_an_unreachable_name_server_is_logged_once_until_it_is_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    cluster = FakeCluster()
    watch = ClusterWatch(cluster, TaskOwner("test"), is_signing=True)
    cluster.why_not = "no name server answers"
    for _ in range(3):
        await watch.look()
    assert caplog.messages == ["gRPC clients cannot be served: no name server answers"]
    cluster.why_not = None
    await watch.look()
    await watch.look()
    assert caplog.messages[1:] == ["the brokers can be reached, and gRPC clients be served"]
    assert not watch.problem and not cluster.probes


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        ("username cannot be null.", "set authenticationEnabled and innerClientAuthenticationCredentials"),
        ("org.apache.rocketmq.acl.common.AclException: No accessKey is configured", "--enable-proxy"),
    ],
)
async def test_brokers_that_want_signatures_are_named_with_the_key_to_set(
    refusal: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()
    cluster.error = ConnectError("a:1", "refused")
    watch = ClusterWatch(cluster, TaskOwner("test"), is_signing=False)
    await watch.look()
    assert watch.problem == "gRPC clients cannot use all brokers: cannot connect to a:1: refused"
    cluster.error, cluster.refusal = None, refusal
    for _ in range(5):
        await watch.look()
    assert refusal in watch.problem and advice in watch.problem
    assert caplog.messages[1:] == [watch.problem] and cluster.probes == 2
