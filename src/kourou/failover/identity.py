"""MemberIdentity: which member of which broker set a store is. In the store: `config/failoverMember.json`.

The set's id was drawn at random by its first member, so that a store is not mistaken for one of another set
of the same name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from kourou.errors import StoreFormatError
from kourou.store.disk.files import Files

FILE_NAME: Final = "failoverMember.json"


class MemberIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`has_taken_part`: it has followed a master of the set, or been one. Before that its messages may be of
    anywhere, and nothing is cut off."""

    set_id: str
    member_id: int
    has_taken_part: bool = False


class IdentityFile:
    """The identity in one store; on disk whenever a method returns."""

    def __init__(self, files: Files, store_root: Path) -> None:
        self._files = files
        self.path = store_root / "config" / FILE_NAME

    def load(self) -> MemberIdentity | None:
        """None: the store is no member's. StoreFormatError."""
        try:
            return msgspec.json.decode(self._files.read(self.path), type=MemberIdentity)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise StoreFormatError(
                self.path, f"not the identity of a member ({error}); restore it, or start with an empty store"
            ) from error

    def save(self, identity: MemberIdentity) -> None:
        """Write or replace it."""
        for folder in (self.path.parent.parent, self.path.parent):
            self._files.make_folder(folder)
        self._files.replace(self.path, msgspec.json.encode(identity))
