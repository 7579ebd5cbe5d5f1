"""The keys of a name server's access control, which Apache's name servers do not have.

The form is that of access_settings.py. What they mean together: docs/security.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.access_settings import AccessGateSettings, access_problem, user_problem
from kourou.config.inner_credentials import InnerCredentialsSettings
from kourou.config.keys import BOOL, STRING, setting
from kourou.config.networks import networks

_SECTION: Final = "Access control of the name server"
_own = partial(setting, _SECTION, live=False, protected=True, shown=False)


# The methods are generated once, for NamesrvConfig: a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NamesrvAccessSettings(AccessGateSettings, InnerCredentialsSettings):
    """Permissions to register brokers, to change tables, and to see routes."""

    acl_enable: bool = _own(
        "aclEnable",
        BOOL,
        False,
        "Only administrators register brokers and administer the name server: accounts of RocketMQ 4 with "
        "`admin: true`, in `conf/plain_acl.yml` and `conf/acl/` of the home folder.",
    )
    authentication_enabled: bool = _own(
        "authenticationEnabled",
        BOOL,
        False,
        "The same with users of RocketMQ 5 of the type Super: those of `initAuthenticationUser`, of "
        "`innerClientAuthenticationCredentials` and of `accessUsersFolder`. Lists of topics need the "
        "permission for them.",
    )
    init_authentication_user: str = _own(
        "initAuthenticationUser",
        STRING,
        "",
        'A Super user `{"username":"…","password":"…"}`. Never shown.',
        secret=True,
        check=user_problem,
    )
    access_users_folder: str | None = _own(
        "accessUsersFolder",
        STRING,
        None,
        "The folder of `users.json` and `acls.json`, in the form of a broker, whose folder it may be; "
        "`namesrv` in the home folder if not set. It is followed, never written.",
    )
    access_allowed_brokers: str = _own(
        "accessAllowedBrokers",
        STRING,
        "",
        "Brokers that register without a signature, such as Apache's before 5.3, by the address that they "
        "connect from, as in `10.0.0.7,10.1.0.0/16`. Empty: none.",
        check=networks,
    )
    access_routes_need_signature: bool = _own(
        "accessRoutesNeedSignature",
        BOOL,
        False,
        "Routes and the brokers of the cluster are shown to accounts only, those of the name "
        "server; off: to every client.",
    )

    @property
    def access_problem(self) -> str | None:
        """Why these do not go together; None if they do."""
        return access_problem(
            acl=self.acl_enable, authentication=self.authentication_enabled, authorization=False
        )
