from __future__ import annotations

from encoding.conftest import experts, plain

__all__ = ["experts", "plain"]
