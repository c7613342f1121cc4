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
    from sentence_experts.corpus.fetching import estimate_fetch, fetch_corpus
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
    from sentence_experts.models.export.config import ExportConfig, QuantizeConfig
    from sentence_experts.models.export.export import export
    from sentence_experts.models.export.quantize import quantize
    from sentence_experts.models.loading import LoadConfig, load
    from sentence_experts.models.routing.automatic import AutoRoutedEncoder, fit_auto_routes
    from sentence_experts.models.routing.config import AutoRouteConfig
    from sentence_experts.models.surgery.config import ExtendConfig
    from sentence_experts.models.surgery.extend import extend
    from sentence_experts.models.surgery.grow import add_expert, drop_expert
    from sentence_experts.moee.config import MoeeConfig
    from sentence_experts.moee.embedder import MoeEmbedder
    from sentence_experts.pairs.compile import compile_pairs
    from sentence_experts.pairs.config import PairsConfig
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.report.write import write_report
    from sentence_experts.reproduce.config import ReproduceConfig
    from sentence_experts.reproduce.run import reproduce_recipe
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
    "config": ("Config",),
    "corpus.config": ("FetchConfig", "ImportConfig"),
    "corpus.fetching": ("estimate_fetch", "fetch_corpus"),
    "corpus.importing": ("import_corpus",),
    "corpus.tables": ("CorpusFolder",),
    "encoding.config": ("EncodeConfig",),
    "encoding.encode": ("encode",),
    "errors": ("InputError", "RouteError", "SentenceExpertsError", "UsageError"),
    "evaluation.audit.run": ("audit",),
    "evaluation.compare": ("compare",),
    "evaluation.config": ("AuditConfig", "CompareConfig", "EvaluateConfig", "SimilarityConfig"),
    "evaluation.evaluate": ("evaluate",),
    "evaluation.similarity": ("similarity",),
    "models.encoder": ("ExpertEncoder",),
    "models.export.config": ("ExportConfig", "QuantizeConfig"),
    "models.export.export": ("export",),
    "models.export.quantize": ("quantize",),
    "models.loading": ("LoadConfig", "load"),
    "models.routing.automatic": ("AutoRoutedEncoder", "fit_auto_routes"),
    "models.routing.config": ("AutoRouteConfig",),
    "models.surgery.config": ("ExtendConfig",),
    "models.surgery.extend": ("extend",),
    "models.surgery.grow": ("add_expert", "drop_expert"),
    "moee.config": ("MoeeConfig",),
    "moee.embedder": ("MoeEmbedder",),
    "pairs.compile": ("compile_pairs",),
    "pairs.config": ("PairsConfig",),
    "pairs.dataset": ("Pairs",),
    "report.write": ("write_report",),
    "reproduce.config": ("ReproduceConfig",),
    "reproduce.run": ("reproduce_recipe",),
    "retrieval.config": ("SearchConfig",),
    "retrieval.search": ("search",),
    "tasks.compile": ("compile_tasks",),
    "tasks.config": ("TasksConfig",),
    "tasks.dataset": ("Tasks",),
    "training.config": ("TrainConfig", "TuneConfig"),
    "training.run": ("train",),
    "training.tune": ("tune",),
}
_MODULE_OF = {name: f"sentence_experts.{module}" for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "AuditConfig",
    "AutoRouteConfig",
    "AutoRoutedEncoder",
    "CompareConfig",
    "Config",
    "CorpusFolder",
    "EncodeConfig",
    "EvaluateConfig",
    "ExpertEncoder",
    "ExportConfig",
    "ExtendConfig",
    "FetchConfig",
    "ImportConfig",
    "InputError",
    "LoadConfig",
    "MoeEmbedder",
    "MoeeConfig",
    "Pairs",
    "PairsConfig",
    "QuantizeConfig",
    "ReproduceConfig",
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
    "estimate_fetch",
    "evaluate",
    "export",
    "extend",
    "fetch_corpus",
    "fit_auto_routes",
    "import_corpus",
    "load",
    "quantize",
    "reproduce_recipe",
    "search",
    "similarity",
    "train",
    "tune",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
