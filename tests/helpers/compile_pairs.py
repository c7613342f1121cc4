"""What the tests of compiled pairs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sentence_experts.corpus.tables import CorpusFolder
from sentence_experts.demo import plan
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.pairs.engine_settings import EngineSettings
from sentence_experts.pairs.engines import opened
from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.settings import PairSettings

RULES = plan.HERE / "simulated_domains.yaml"
SMALL = {"negatives_min_cited": 1, "max_train_per_domain": 60, "max_eval_per_domain": 20}
Compile = Callable[..., PairsFolder]


@contextmanager
def link_graph(
    corpus: CorpusFolder, settings: PairSettings, rules: Path | None = None, **engine: object
) -> Iterator[LinkGraph]:
    """The graph of a corpus, its scratch folder beside the corpus."""
    with opened(EngineSettings.model_validate(engine), beside=corpus.path) as working:
        yield LinkGraph(corpus, settings, rules, working)
