# The public API: each name beside the module that has it. Type checkers read this, and `__init__.py`, which
# imports each name when it is first used.

from .corpus.corpus_folder import CorpusFolder
from .corpus.fetching import estimate_fetch, fetch_corpus
from .corpus.importing import add_to_corpus, import_corpus
from .encoding.encode import encode
from .errors import InputError, RouteError, SentenceExpertsError, UsageError
from .evaluation.audit import audit
from .evaluation.evaluate import evaluate
from .evaluation.moee.analysis import analyse
from .evaluation.moee.make_and_evaluate import evaluate_parts, make_embedder
from .evaluation.similarity import similarity
from .models.encoder import ExpertEncoder
from .models.export.export import export
from .models.loading import load
from .models.surgery.add_drop_routes import add_route, drop_route, with_heads
from .models.surgery.extend import extend
from .moee.embedder import MoeEmbedder
from .pairs.compile import compile_pairs
from .pairs.dataset import Pairs
from .pairs.importing import import_pairs
from .pairs.suggesting import suggest_domains
from .report.write import write_report
from .reproduce.run import reproduce_recipe
from .retrieval.build import build_index
from .retrieval.screening import screen
from .retrieval.search import search
from .retrieval.taught_routes import add_taught_route
from .retrieval.teach import teach
from .serve.run import create_app, serve
from .tasks.compile import compile_tasks
from .tasks.dataset import Tasks
from .training.batches import RouteBatches
from .training.fit import FitResult, fit
from .training.losses import ContrastiveLoss
from .training.run import train
from .training.tune import tune
from .training.validation import Validator

__all__ = [
    "ContrastiveLoss",
    "CorpusFolder",
    "ExpertEncoder",
    "FitResult",
    "InputError",
    "MoeEmbedder",
    "Pairs",
    "RouteBatches",
    "RouteError",
    "SentenceExpertsError",
    "Tasks",
    "UsageError",
    "Validator",
    "__version__",
    "add_route",
    "add_taught_route",
    "add_to_corpus",
    "analyse",
    "audit",
    "build_index",
    "compile_pairs",
    "compile_tasks",
    "create_app",
    "drop_route",
    "encode",
    "estimate_fetch",
    "evaluate",
    "evaluate_parts",
    "export",
    "extend",
    "fetch_corpus",
    "fit",
    "import_corpus",
    "import_pairs",
    "load",
    "make_embedder",
    "reproduce_recipe",
    "screen",
    "search",
    "serve",
    "similarity",
    "suggest_domains",
    "teach",
    "train",
    "tune",
    "with_heads",
    "write_report",
]

__version__: str
