"""A corpus of articles that mention works in random places of their text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from helpers.samples import write_corpus
from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, MENTIONS_SCHEMA, CorpusFolder
from sentence_experts.storage import write_json, write_parquet

Place = tuple[str, str, int, int, int, int]


def random_mentions(seed: int, articles: int, works: int, each: int) -> list[Place]:
    """(citing, cited, section, paragraph, sentence, bracket); closer levels lie within wider ones."""
    rng = np.random.default_rng(seed)
    found = []
    for article in range(articles):
        section_of = np.sort(rng.integers(0, 3, size=6))
        for work in rng.integers(0, works, size=each).tolist():
            paragraph, bracket = int(rng.integers(6)), int(rng.integers(4))
            place = (int(section_of[paragraph]), paragraph, bracket // 2, bracket)
            found.append((f"a{article:02d}", f"w{work:02d}", *place))
    return found


def mentioned_corpus(folder: Path, articles: int = 30, works: int = 60, each: int = 16) -> CorpusFolder:
    """The corpus; articles also list works that they do not mention, and one came without its text."""
    mentions = random_mentions(0, articles, works, each)
    ids = [*(f"a{number:02d}" for number in range(articles)), *(f"w{number:02d}" for number in range(works))]
    corpus = write_corpus(folder, [(one, f"Title {one}", f"Text {one}", 2000, False) for one in ids])
    listed = {(citing, cited) for citing, cited, *_ in mentions}
    listed |= {(f"a{number:02d}", f"w{number * 7 % works:02d}") for number in range(articles)}
    columns = [field.name for field in MENTIONS_SCHEMA]
    rows = [
        dict.fromkeys(columns)
        | dict(zip(("citing", "cited", "section", "paragraph", "sentence", "bracket"), place, strict=True))
        | {"section_kind": "other", "position": 0}
        for place in mentions
        if place[0] != "a00"
    ]
    write_parquet(folder / "mentions.parquet", pa.Table.from_pylist(rows, MENTIONS_SCHEMA))
    cited = [{"citing": citing, "cited": work} for citing, work in sorted(listed)]
    write_parquet(corpus.citations, pa.Table.from_pylist(cited, CITATIONS_SCHEMA))
    write_json(folder / "manifest.json", {**corpus.manifest, "counts": {"mentions": len(rows)}, "tables": {}})
    return CorpusFolder.open(folder)
