"""Mixture-of-experts text embeddings.

`import sentence_experts` is light: torch and transformers load when first needed. It also registers the
package's model types with transformers (now, or when transformers is imported), so that a stock
`SentenceTransformer(path)` loads a saved model without `trust_remote_code`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sentence_experts.models.architectures.registration import register

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder
    from sentence_experts.models.loading import load
    from sentence_experts.models.surgery.extend import extend

__version__ = "0.1.0"

# Public name -> the module that has it, imported when the name is first used.
_LAZY = {
    "ExpertEncoder": "sentence_experts.models.encoder",
    "extend": "sentence_experts.models.surgery.extend",
    "load": "sentence_experts.models.loading",
}

__all__ = ["ExpertEncoder", "__version__", "extend", "load"]

register()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
