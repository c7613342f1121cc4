"""BM25 of this package beside the full text search of LanceDB, on judged queries.

    python benchmarks/keywords.py QRELS CORPUS

Both order the papers of a corpus by the words of each query, alone and joined with the cosines of
all-MiniLM-L6-v2 by reciprocal rank fusion. LanceDB is measured with its own settings (English stems, without
stop words) and as plain words; it holds title and abstract in one column, as this package does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from measuring import table, versions, write
from sentence_experts import load
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.search_quality import JudgedPapers, Judgements
from sentence_experts.retrieval.keywords import FUSED, fused, keyword_index
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.texts import texts_of

UNIT = "title+abstract"
Rows = NDArray[np.int64]


def lancedb_search(corpus: CorpusFolder, place: str, **settings: Any) -> Callable[[str], Rows]:
    """The full text search of LanceDB over a corpus."""
    import lancedb
    from lancedb.index import FTS

    rows, texts = zip(*texts_of(corpus, UNIT), strict=True)
    held = lancedb.connect(place).create_table("words", pa.table({"row": rows, "text": texts}))
    held.create_index("text", config=FTS(**settings))

    def search(query: str) -> Rows:
        found = held.search(query, query_type="fts").limit(FUSED).select(["row", "_score"])
        rows: Rows = found.to_arrow()["row"].to_numpy()
        return rows

    return search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("qrels", type=Path)
    parser.add_argument("corpus", type=Path)
    given = parser.parse_args()
    corpus = CorpusFolder.open(given.corpus)
    data = JudgedPapers.of(Judgements.read(given.qrels, None), Papers(corpus))
    encoder = BatchEncoder(load("minilm", device="cpu"))
    searcher = Searcher(encoder, corpus, UNIT)
    blend = searcher.blend()
    compared = searcher.compare(searcher.encode(data.texts, blend), blend)
    nearest = [each.nearest(FUSED) for each in compared]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        plain: dict[str, Any] = {"stem": False, "remove_stop_words": False, "ascii_folding": False}
        words = keyword_index(corpus, UNIT)
        ways: dict[str, Callable[[str], Rows]] = {
            "this package": lambda query: words.search(query, FUSED),
            "LanceDB, its settings": lancedb_search(corpus, f"{name}/stems"),
            "LanceDB, plain words": lancedb_search(corpus, f"{name}/plain", **plain),
        }
        for way, search in ways.items():
            used = time.process_time()
            found = [search(query) for query in data.texts]
            milliseconds = 1000 * (time.process_time() - used) / len(found)
            both = [fused(list(each), 101) for each in zip(nearest, found, strict=True)]
            alone, joined = (data.figures(each)[0].mean() for each in (found, both))
            rows.append([way, f"{alone:.3f}", f"{joined:.3f}", f"{milliseconds:.1f}"])
    heads = ["words by", "nDCG@10 alone", "nDCG@10 with cosines", "CPU ms per query"]
    result = {"queries": len(data.texts), "rows": rows, "versions": versions("lancedb")}
    write("keywords", result, f"# BM25, {len(data.texts)} queries\n\n{table(heads, rows)}")


if __name__ == "__main__":
    main()
