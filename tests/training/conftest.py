"""A small pairs dataset and a small encoder with two experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from samples import make_tiny_encoder
from sentence_experts.pairs.dataset import PairsFolder, write_pairs_folder

DOMAINS = {
    "plants": "leaf root seed flower stem soil water light",
    "stars": "star orbit planet comet dust gas sun moon",
}


def make_pairs(folder: Path, train: int = 64, evaluated: int = 24, seed: int = 0) -> PairsFolder:
    """Pairs of short texts; the two of a positive pair share a rare word."""
    rng = np.random.default_rng(seed)

    def split(count: int, labels: tuple[int, ...]) -> pa.Table:
        rows = []
        for number in range(count):
            domain = sorted(DOMAINS)[number % 2]
            words = DOMAINS[domain].split()
            label = labels[(number // 2) % len(labels)]
            texts = [" ".join(rng.choice(words, 4)) for _ in range(2)]
            marks = [f"x{number}", f"x{number}" if label else f"y{number}"]
            rows.append(
                {
                    "anchor": f"{marks[0]} {texts[0]}",
                    "positive": f"{texts[1]} {marks[1]}",
                    "label": label,
                    "domain": domain,
                    "count": label,
                    "anchor_id": f"a{number}",
                    "positive_id": f"b{number}",
                }
            )
        return pa.Table.from_pylist(rows)

    tables = {
        "train": split(train, (1,)),
        "validation": split(evaluated, (1, 0)),
        "test": split(evaluated, (0, 1)),
    }
    counts = {name: {"positives": 1, "negatives": 1, "papers": 2} for name in tables}
    manifest = {
        "settings": {"relation": "co-citation", "unit": "title", "split": "paper", "negatives_min_cited": 0},
        "corpus": {"licences": {}},
        "domains": dict.fromkeys(DOMAINS, counts),
        "test_papers": 1,
        "test_papers_seen_in_training": 0,
    }
    return write_pairs_folder(folder, tables, manifest)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PairsFolder:
    return make_pairs(tmp_path_factory.mktemp("pairs") / "pairs")


@pytest.fixture(scope="session")
def tiny_experts(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("tiny") / "experts", minilm, experts=("plants", "stars"))
