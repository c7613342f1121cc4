"""The simulated corpus, imported once, and pairs compiled from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.compile_pairs import RULES, SMALL, Compile
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.dataset import Pairs


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    folder = tmp_path_factory.mktemp("simulated")
    simulate_corpus(folder / "articles", seed=0)
    return import_corpus([folder / "articles"], folder / "corpus", workers=1)


@pytest.fixture(scope="session")
def compiled(corpus: CorpusFolder, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile pairs of the simulated corpus with some settings; equal settings are compiled once."""
    made: dict[str, Pairs] = {}

    def compile_once(rules: Path | None = RULES, **settings: object) -> Pairs:
        chosen = PairsConfig.model_validate({**SMALL, "domains": rules, **settings})
        key = str(chosen)
        if key not in made:
            made[key] = compile_pairs(corpus, chosen, tmp_path_factory.mktemp("pairs") / "pairs")
        return made[key]

    return compile_once
