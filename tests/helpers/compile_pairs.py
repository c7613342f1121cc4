"""Helpers of the tests of compiled pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.sql_engine import open_engine
from sentence_experts.recipes import RECIPES

RULES = RECIPES / "material" / "simulated_domains.yaml"
SMALL = {"max_train_per_domain": 60, "max_eval_per_domain": 20}
Compile = Callable[..., Pairs]


def tables_corpus(papers: Any, citations: Any = None) -> CorpusFolder:
    """A corpus of a table of papers and one of citations; ids that are named `id` are resolved."""
    if "paper_id" in (papers[0] if isinstance(papers, list) else papers):
        return CorpusFolder.of(papers if citations is None else (papers, citations))
    return import_corpus(papers=papers, citations=citations, workers=1)


@contextmanager
def link_graph(
    corpus: CorpusFolder, settings: PairsConfig, rules: Any = None, **engine: object
) -> Iterator[LinkGraph]:
    """The graph of a corpus, its scratch folder beside the corpus."""
    config = PairsConfig.of(settings, domains=rules, **engine)
    with open_engine(config, beside=corpus.path) as working:
        yield LinkGraph(corpus, config, working)
