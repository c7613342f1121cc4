"""Mixture-of-experts text embeddings.

`import sentence_experts` is light: torch and transformers load when first needed. For a stock
`SentenceTransformer(path)` that loads a saved model, `import sentence_experts.register` first, or say
`trust_remote_code=True`; `sentence_experts.load(path)` needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_experts.config import Config
    from sentence_experts.corpus.config import FetchConfig, ImportConfig
    from sentence_experts.corpus.fetching import fetch_corpus
    from sentence_experts.corpus.importing import import_corpus
    from sentence_experts.corpus.tables import CorpusFolder
    from sentence_experts.encoding.config import EncodeConfig
    from sentence_experts.encoding.encode import encode
    from sentence_experts.errors import InputError, RouteError, SentenceExpertsError, UsageError
    from sentence_experts.evaluation.audit.run import audit
    from sentence_experts.evaluation.compare import compare
    from sentence_experts.evaluation.config import (
        AuditConfig,
        CompareConfig,
        EvaluateConfig,
        SimilarityConfig,
    )
    from sentence_experts.evaluation.evaluate import evaluate
    from sentence_experts.evaluation.similarity import similarity
    from sentence_experts.models.encoder import ExpertEncoder
    from sentence_experts.models.loading import LoadConfig, load
    from sentence_experts.models.surgery.extend import extend
    from sentence_experts.models.surgery.grow import add_expert, drop_expert
    from sentence_experts.moee.embedder import MoeEmbedder
    from sentence_experts.pairs.compile import compile_pairs
    from sentence_experts.pairs.config import PairsConfig
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.retrieval.config import SearchConfig
    from sentence_experts.retrieval.search import search
    from sentence_experts.tasks.compile import compile_tasks
    from sentence_experts.tasks.config import TasksConfig
    from sentence_experts.tasks.dataset import Tasks
    from sentence_experts.training.config import TrainConfig, TuneConfig
    from sentence_experts.training.run import train
    from sentence_experts.training.tune import tune

__version__ = "0.1.0"

# Module -> the public names that it has, imported when first used.
_PUBLIC = {
    "sentence_experts.config": ("Config",),
    "sentence_experts.corpus.config": ("FetchConfig", "ImportConfig"),
    "sentence_experts.corpus.fetching": ("fetch_corpus",),
    "sentence_experts.corpus.importing": ("import_corpus",),
    "sentence_experts.encoding.config": ("EncodeConfig",),
    "sentence_experts.encoding.encode": ("encode",),
    "sentence_experts.corpus.tables": ("CorpusFolder",),
    "sentence_experts.errors": ("InputError", "RouteError", "SentenceExpertsError", "UsageError"),
    "sentence_experts.evaluation.audit.run": ("audit",),
    "sentence_experts.evaluation.compare": ("compare",),
    "sentence_experts.evaluation.config": (
        "AuditConfig",
        "CompareConfig",
        "EvaluateConfig",
        "SimilarityConfig",
    ),
    "sentence_experts.evaluation.evaluate": ("evaluate",),
    "sentence_experts.evaluation.similarity": ("similarity",),
    "sentence_experts.models.encoder": ("ExpertEncoder",),
    "sentence_experts.models.loading": ("LoadConfig", "load"),
    "sentence_experts.models.surgery.extend": ("extend",),
    "sentence_experts.models.surgery.grow": ("add_expert", "drop_expert"),
    "sentence_experts.moee.embedder": ("MoeEmbedder",),
    "sentence_experts.pairs.compile": ("compile_pairs",),
    "sentence_experts.pairs.config": ("PairsConfig",),
    "sentence_experts.pairs.dataset": ("Pairs",),
    "sentence_experts.tasks.compile": ("compile_tasks",),
    "sentence_experts.tasks.config": ("TasksConfig",),
    "sentence_experts.tasks.dataset": ("Tasks",),
    "sentence_experts.training.config": ("TrainConfig", "TuneConfig"),
    "sentence_experts.training.run": ("train",),
    "sentence_experts.training.tune": ("tune",),
    "sentence_experts.retrieval.config": ("SearchConfig",),
    "sentence_experts.retrieval.search": ("search",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "AuditConfig",
    "CompareConfig",
    "Config",
    "CorpusFolder",
    "EncodeConfig",
    "EvaluateConfig",
    "ExpertEncoder",
    "FetchConfig",
    "ImportConfig",
    "InputError",
    "LoadConfig",
    "MoeEmbedder",
    "Pairs",
    "PairsConfig",
    "RouteError",
    "SearchConfig",
    "SentenceExpertsError",
    "SimilarityConfig",
    "Tasks",
    "TasksConfig",
    "TrainConfig",
    "TuneConfig",
    "UsageError",
    "__version__",
    "add_expert",
    "audit",
    "compare",
    "compile_pairs",
    "compile_tasks",
    "drop_expert",
    "encode",
    "evaluate",
    "extend",
    "fetch_corpus",
    "import_corpus",
    "load",
    "search",
    "similarity",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
