from __future__ import annotations

from encoding.conftest import experts, experts_model, one_thread, plain, plain_model

__all__ = ["experts", "experts_model", "one_thread", "plain", "plain_model"]
