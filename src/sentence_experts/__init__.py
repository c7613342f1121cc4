"""Mixture-of-experts text embeddings.

`import sentence_experts` is light: torch and transformers load when first needed. For a stock
`SentenceTransformer(path)` that loads a saved model, `import sentence_experts.register` first, or say
`trust_remote_code=True`; `sentence_experts.load(path)` needs neither.
"""

import os

import lazy_loader

import sentence_experts.moee.saved  # noqa: F401  # registers what `load` opens beside models

# ONNX Runtime would note each session, and send the notes; it reads this when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# The public names stand in `__init__.pyi`; each is imported when it is first used.
_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_RENAMED = {"add_expert": "add_route", "drop_expert": "drop_route"}  # names before 0.3


def __getattr__(name: str) -> object:
    return _find(_RENAMED.get(name, name))


__version__ = "0.2.0"
