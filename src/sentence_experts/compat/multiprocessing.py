"""Worker processes that do not run the caller's script again."""

from __future__ import annotations

import sys
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock
from typing import Any

_STARTING = Lock()


class _Process(SpawnProcess):
    """A spawned process that never imports `__main__`.

    A spawned child runs the calling script first, which a script without `if __name__ == "__main__"` does not
    survive. The child finds the script by `__main__.__file__` and `__spec__`, so these are hidden while it
    starts; its work must then come from importable modules.
    """

    def start(self) -> None:
        main = sys.modules["__main__"]
        with _STARTING:
            hidden: dict[str, Any] = {
                name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__
            }
            main.__spec__ = None
            try:
                super().start()
            finally:
                main.__dict__.update(hidden)


class DetachedContext(SpawnContext):
    """The "spawn" context with such processes; for `ProcessPoolExecutor(mp_context=...)`."""

    Process = _Process
