"""Which requests a client of servers signs."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from kourou.protocol.command import RemotingCommand
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKeys
from kourou.transport.client import RemotingClient
from kourou.transport.request import Request
from kourou.transport.server import RemotingServer
from kourou.transport.settings import RemotingServerConfig

KEYS = SigningKeys("own", "a secret")
CODE = 34


@pytest.mark.parametrize("signs_for_first", [True, False])
async def test_keys_that_one_server_knows_sign_no_requests_to_others(signs_for_first: bool) -> None:
    """A signature does not name the request's code: who gets a request can send it on with another one."""
    signers: list[str | None] = []

    def answer(request: Request) -> None:
        fields = request.ext_fields
        assert (ACCESS_KEY in fields) == (SIGNATURE in fields)
        signers.append(fields.get(ACCESS_KEY))
        request.reply()

    async with AsyncExitStack() as stack:
        addresses = []
        for _ in range(2):
            server = RemotingServer({CODE: answer}, RemotingServerConfig(host="127.0.0.1", port=0))
            await server.start()
            stack.push_async_callback(server.stop, 1_000)
            addresses.append(server.address)
        client = RemotingClient(keys=KEYS, signs_for=addresses[0] if signs_for_first else None)
        stack.push_async_callback(client.stop)
        for address in addresses:
            await client.call(address, RemotingCommand.request(CODE))
            await client.send_oneway(address, RemotingCommand.request(CODE))
            await client.call(address, RemotingCommand.request(CODE))
    own, others = signers[:3], signers[3:]
    assert own == ["own"] * 3
    assert others == ([None] * 3 if signs_for_first else ["own"] * 3)
