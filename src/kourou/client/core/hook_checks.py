"""Whether what a user gave as hooks can be called as such: told when a client is made."""

from __future__ import annotations

import inspect
from collections.abc import Collection


def check_hooks(hooks: object, kind: type) -> None:
    """TypeError unless each of `hooks` has the methods of `kind`, and none of them is async."""
    methods = [name for name in vars(kind) if not name.startswith("_")]
    if isinstance(hooks, str) or not isinstance(hooks, Collection):
        raise TypeError(f"hooks is a list of {kind.__name__} objects, not {hooks!r}")
    for hook in hooks:
        if isinstance(hook, type):
            raise TypeError(f"hooks has objects of a {kind.__name__}, not the class: {hook.__name__}()")
        for name in methods:
            method = getattr(hook, name, None)
            if not callable(method):
                raise TypeError(
                    f"hooks has {hook!r}, which has no method {name}: derive it from {kind.__name__}"
                )
            if inspect.iscoroutinefunction(method):
                raise TypeError(
                    f"{type(hook).__name__}.{name} is async and would not be awaited; make it plain"
                )
