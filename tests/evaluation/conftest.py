"""A small pairs folder with planted topics, and tiny random encoders made offline."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from tiny_encoder import make_tiny_encoder

from sentence_experts.storage import sha256_file, write_json, write_parquet

TOPICS = {
    "crops": ["rice yield drought field", "wheat rust leaf spore", "millet grain heat harvest", "maize root soil"],
    "neuro": ["neuron spike synapse cortex", "memory sleep hippocampus", "glia myelin axon", "retina vision cone"],
}


def _text(domain: str, topic: int, generator: random.Random) -> str:
    words = TOPICS[domain][topic].split()
    filler = ["study", "result", "method", "model", "effect", "measure", "control", "sample"]
    return " ".join(generator.choices(words, k=5) + generator.choices(filler, k=6))


def make_pairs_folder(folder: Path, pairs: int = 24, seed: int = 1) -> Path:
    generator = random.Random(seed)
    for split in ("train", "validation", "test"):
        rows = []
        for domain in TOPICS:
            papers = [(topic, _text(domain, topic, generator)) for topic in range(4) for _ in range(6)]
            for number in range(pairs):
                label = 1 if split == "train" else number % 2
                while True:
                    first, second = generator.sample(range(len(papers)), 2)
                    if (papers[first][0] == papers[second][0]) == bool(label):
                        break
                rows.append(
                    {
                        "anchor": papers[first][1],
                        "positive": papers[second][1],
                        "label": label,
                        "domain": domain,
                        "count": label,
                        "anchor_id": f"{split}-{domain}-{first}",
                        "positive_id": f"{split}-{domain}-{second}",
                    }
                )
        write_parquet(folder / f"{split}.parquet", pa.Table.from_pylist(rows))
    names = [f"{split}.parquet" for split in ("train", "validation", "test")]
    files = {name: sha256_file(folder / name) for name in names}
    write_json(folder / "manifest.json", {"kind": "pairs", "domains": {d: {} for d in TOPICS}, "files": files})
    return folder


@pytest.fixture(scope="session")
def pairs_folder(tmp_path_factory) -> Path:
    return make_pairs_folder(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="session")
def experts_model(tmp_path_factory, minilm) -> Path:
    """Experts named like the domains of `pairs_folder`."""
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, tuple(TOPICS))
