"""What programs that embed a broker may import. A change here is a change of the product."""

from __future__ import annotations

from kourou import embed


def test_the_public_names_are_these_and_documented() -> None:
    assert sorted(embed.__all__) == [
        "Broker",
        "BrokerConfig",
        "BrokerHooks",
        "GivenUpTransaction",
        "GrpcServerConfig",
        "MessageCheck",
        "NameServer",
        "NamesrvConfig",
        "Proxy",
        "ProxySettings",
        "PullContext",
        "RequestCheck",
        "RequestCode",
        "ResponseCode",
        "SendContext",
        "TransactionEnd",
    ]
    assert all(getattr(embed, name).__doc__ for name in embed.__all__)
