"""Users, permissions and accounts of the cluster, as far as it has them. Not here: their changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from kourou.admin.access import ClusterAccess, cluster_access
from kourou.admin.session import command_line
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Read, Role
from kourou.console.refusals import readable


class AccessPage(msgspec.Struct, frozen=True):
    """Users and permissions."""

    access: ClusterAccess
    commands: list[str]


async def _access(call: Call[NoQuery, NoBody]) -> AccessPage:
    access = await call.view.shared("access", lambda: cluster_access(call.admin))
    access = replace(access, problems=[readable(problem) for problem in access.problems])
    names: tuple[str, ...] = ("listUser", "listAcl") if access.is_supported else ()
    names += ("getAclConfig",) if access.is_plain else ()
    clusters = sorted({broker.cluster for broker in (await call.view.brokers()).data})
    commands = [
        command_line(call.admin.namesrvs, command, "-c", cluster) for cluster in clusters for command in names
    ]
    return AccessPage(access, commands)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/access",
        summary="Users and permissions of the cluster",
        role=Role.OPERATOR,
        handler=_access,
        returns=AccessPage,
    ),
)
