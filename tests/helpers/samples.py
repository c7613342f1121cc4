"""Small made-up inputs for the tests: a random encoder, a pairs folder, a corpus."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import (
    CITATIONS_SCHEMA,
    FORMAT,
    FORMAT_VERSION,
    PAPERS_SCHEMA,
    CorpusFolder,
)
from sentence_experts.storage import sha256_file, write_json, write_parquet

TOPICS = {
    "crops": ["rice yield drought field", "wheat rust leaf", "millet grain harvest", "maize root soil"],
    "neuro": ["neuron spike cortex", "memory sleep hippocampus", "glia myelin axon", "retina vision cone"],
}
INSTRUCTIONS = {"search", "query", "document", "classification", "clustering"}
# All letters and their continuations are among the first; the rest costs time at each load, step and save.
VOCABULARY = 4200


def save_small_tokenizer(folder: Path, minilm: str) -> int:
    """Save MiniLM's tokenizer with its commonest pieces and the words of the data; return their number."""
    tokenizer = json.loads((Path(minilm) / "tokenizer.json").read_text())
    pieces = list(tokenizer["model"]["vocab"])
    words = INSTRUCTIONS | {word for topics in TOPICS.values() for topic in topics for word in topic.split()}
    kept = pieces[:VOCABULARY] + sorted(words & set(pieces[VOCABULARY:]))
    tokenizer["model"]["vocab"] = {piece: number for number, piece in enumerate(kept)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    shutil.copy(Path(minilm) / "tokenizer_config.json", folder)
    return len(kept)


def make_tiny_encoder(
    folder: Path, minilm: str, experts: tuple[str, ...] = (), seed: int = 0, blocks: int = 2
) -> Path:
    """Save a small BERT with mean pooling to `folder`, with one expert per name if any."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel

    import sentence_experts

    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": blocks,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    plain = folder.with_name(f"{folder.name}-plain") if experts else folder
    size = save_small_tokenizer(plain, minilm)
    BertModel(BertConfig(vocab_size=size, **sizes)).save_pretrained(plain)
    encoder = SentenceTransformer(str(plain), device="cpu")
    if experts:
        encoder = sentence_experts.extend(encoder, experts=experts)
        # Before training all experts are alike; make them differ.
        for name, weight in encoder.named_parameters():
            if "expert" in name:
                weight.data += 0.05 * torch.randn_like(weight)
    encoder.save(str(folder), create_model_card=False)
    return folder


def _text(domain: str, topic: int, generator: random.Random) -> str:
    words = TOPICS[domain][topic].split()
    filler = ["study", "result", "method", "model", "effect", "measure", "control", "sample"]
    return " ".join(generator.choices(words, k=5) + generator.choices(filler, k=6))


def make_pairs_folder(folder: Path, pairs: int = 24, seed: int = 1) -> Path:
    """A pairs folder with planted topics: linked pairs share one."""
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
    write_known_links(folder)
    names = [f"{split}.parquet" for split in ("train", "validation", "test")] + ["known_links.parquet"]
    files = {name: sha256_file(folder / name) for name in names}
    domains: dict[str, dict[str, int]] = {domain: {} for domain in TOPICS}
    settings = {"relation": "co-citation", "unit": "title", "split": "paper"}
    manifest = {"kind": "pairs", "settings": settings, "domains": domains, "files": files}
    write_json(folder / "manifest.json", manifest)
    return folder


def replace_table(folder: Path, name: str, table: pa.Table) -> None:
    """Another table in place of one of a folder, and its hash in the manifest."""
    write_parquet(folder / name, table)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = sha256_file(folder / name)
    write_json(folder / "manifest.json", manifest)


def write_known_links(folder: Path) -> None:
    """The links of the training pairs, as known_links.parquet."""
    train = pq.read_table(folder / "train.parquet").to_pylist()
    links = sorted({tuple(sorted((row["anchor_id"], row["positive_id"]))) for row in train})
    columns = [pa.array([link[end] for link in links], pa.string()) for end in (0, 1)]
    write_parquet(folder / "known_links.parquet", pa.table(columns, names=["left_id", "right_id"]))


PAPERS = [
    ("doi:10.1/a", "Rice in drought", "Yields fell.", 2012, False),
    ("doi:10.1/b", "Sleep and memory", "Rats dreamt.", 2014, True),
    ("doi:10.1/c", "A title alone", None, None, False),
    ("doi:10.1/d", None, None, 2016, False),
    ("doi:10.1/e", "Wheat rust", "Spores spread.", 2015, False),
]


def write_corpus(folder: Path, papers: Sequence[tuple[Any, ...]] = PAPERS) -> CorpusFolder:
    """A finished corpus of a few papers; one has no text, one no abstract, one was retracted."""
    empty = dict.fromkeys(PAPERS_SCHEMA.names)
    names = ("paper_id", "title", "abstract", "year", "retracted")
    rows = [empty | dict(zip(names, paper, strict=True)) for paper in papers]
    write_parquet(folder / "papers.parquet", pa.Table.from_pylist(rows, PAPERS_SCHEMA))
    write_parquet(folder / "citations.parquet", pa.Table.from_pylist([], CITATIONS_SCHEMA))
    tables = {name: sha256_file(folder / name) for name in ("papers.parquet", "citations.parquet")}
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, "tables": tables}
    write_json(folder / "manifest.json", manifest)
    return CorpusFolder.open(folder)
