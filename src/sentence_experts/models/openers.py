"""Openers of folders that hold other kinds of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The file that marks such a folder -> what opens it, given the folder and a `LoadConfig`. Packages that build
# on this one fill it in; `sentence_experts/__init__.py` imports the modules that do.
OPENERS: dict[str, Callable[[str, Any], Any]] = {}
