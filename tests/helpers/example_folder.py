"""Files that the examples of the docs name: articles, a corpus, pairs, a base, models, and texts."""

from __future__ import annotations

import shutil
from pathlib import Path

import sentence_experts
from helpers.samples import make_tiny_encoder
from helpers.small_language_models import make_language_model
from sentence_experts.corpus.simulate import simulate_corpus

MATERIAL = Path(sentence_experts.__file__).parent / "recipes" / "material"


def fill(folder: Path, minilm: str) -> None:
    """Write all of it to a folder."""
    simulate_corpus(folder / "articles", articles=120, seed=0)
    shutil.copy(MATERIAL / "simulated_domains.yaml", folder / "domains.yaml")
    sentence_experts.import_corpus([folder / "articles"], folder / "corpus", workers=1)
    sentence_experts.compile_pairs(
        folder / "corpus",
        out=folder / "pairs",
        domains=folder / "domains.yaml",
        unit="title",
        split="article",
        fractions=[0.5, 0.2, 0.3],
        max_train_per_domain=32,
        max_eval_per_domain=16,
    )
    make_tiny_encoder(folder / "base", minilm)
    pairs = sentence_experts.Pairs.open(folder / "pairs")
    make_tiny_encoder(folder / "model", minilm, tuple(pairs.domains))
    make_language_model(folder / "language-model", "olmoe")
    (folder / "texts.txt").write_text("Drought in rice\nSleep and memory\nWheat rust\n", encoding="utf-8")
