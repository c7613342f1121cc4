"""What `scale.py` needs beside the timed results: tokens, bytes on disk, and memory of planning an index.

    python benchmarks/scale_sizes.py

Tokens are those of all-MiniLM-L6-v2, of the texts of `encode.py` and of 1,000 abstracts of eLife. Bytes are
those of eLife's articles as a corpus, of a generated OpenAlex corpus (whose citations have no titles), and of
LanceDB's tables. `index build` keeps a digest and a row number of every paper in memory, which is measured on
made-up texts in processes of their own. No time is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from measuring import elife_texts, table, write
from openalex_import import start, write_snapshot
from study import DATA, ELIFE

ENCODED = 300  # titles and abstracts in `results/encode.json`
ABSTRACTS = 1000
WORKS = 50_000  # of the generated snapshot
VECTORS = 50_000  # in LanceDB


def tokens() -> dict[str, float]:
    """The tokens of the texts that `encode.py` encoded, and on average of more abstracts."""
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.sources import model_folder

    model = SentenceTransformer(model_folder("minilm"), device="cpu")
    limit = {"truncation": True, "max_length": model.max_seq_length}
    titles, abstracts = (
        [len(ids) for ids in model.tokenizer(texts, **limit)["input_ids"]] for texts in elife_texts(ABSTRACTS)
    )
    half = ENCODED // 2
    return {
        "titles": sum(titles[:ENCODED]),
        "mix": sum(titles[:half] + abstracts[:half]),
        "abstracts": sum(abstracts[:ENCODED]),
        "abstract": sum(abstracts) / len(abstracts),
    }


def planning(sizes: list[int]) -> list[dict[str, float]]:
    """MB that the plan of an index takes for these numbers of papers, each in a process of its own."""
    rows = []
    for size in sizes:
        command = [sys.executable, __file__, "--planned", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append({"papers": size, "megabytes": json.loads(done.stdout)})
    return rows


def planned(size: int) -> float:
    """MB of this process that the plan of so many texts takes."""
    from sentence_experts.retrieval.index import _Plan

    def resident() -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    before = resident()
    plan = _Plan((row, f"paper {row}", None) for row in range(size))
    for _ in plan.chunks():
        pass
    return (resident() - before) / 1000


def sizes_on_disk(folder: Path) -> dict[str, float]:
    """Bytes per paper, citation and vector."""
    from sentence_experts import import_corpus
    from sentence_experts.retrieval import approximate

    import_corpus([DATA / ELIFE], out=folder / "elife", workers=1)
    papers = pq.read_metadata(folder / "elife" / "papers.parquet")
    unpacked = sum(papers.row_group(number).total_byte_size for number in range(papers.num_row_groups))
    out, largest = folder / "openalex", 0
    write_snapshot(folder / "snapshot", WORKS, WORKS // 5)
    process = start(folder / "snapshot", out, ["--workers", "1", "--memory", "4GB"])
    while process.poll() is None:
        largest = max(largest, bytes_under(out))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit("the import failed")
    citations = pq.read_metadata(out / "citations.parquet").num_rows
    dice = np.random.default_rng(0)
    vectors = dice.standard_normal((VECTORS, 384)).astype(np.float32)
    approximate.build(folder / "lance", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return {
        "paper": (folder / "elife" / "papers.parquet").stat().st_size / papers.num_rows,
        "paper_unpacked": unpacked / papers.num_rows,
        "citation": (out / "citations.parquet").stat().st_size / citations,
        "while_imported": largest / bytes_under(out),
        "lance_vector": bytes_under(folder / "lance") / VECTORS,
    }


def bytes_under(folder: Path) -> int:
    """Of all files; those that are renamed or removed meanwhile do not count."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue
    return total


def as_text(found: dict[str, Any]) -> str:
    """The page."""
    plan = [[f"{row['papers']:,}", f"{row['megabytes']:,.0f}"] for row in found["plan"]]
    disk, of = found["bytes"], found["tokens"]
    return "\n\n".join(
        [
            "# Sizes for the computation of 200 million abstracts",
            "Made by `python benchmarks/scale_sizes.py`.",
            f"Tokens: {of['titles']:,} in {ENCODED} titles of eLife, {of['abstracts']:,} in as many "
            f"abstracts, {of['mix']:,} in half of both; {of['abstract']:.0f} in an abstract, the mean of "
            f"{ABSTRACTS:,}.",
            f"Bytes on disk: {disk['paper']:.0f} per eLife paper ({disk['paper_unpacked']:,.0f} unpacked), "
            f"{disk['citation']:.1f} per citation of {WORKS:,} generated works, {disk['lance_vector']:,.0f} "
            "per vector of 384 numbers in LanceDB. While those works were imported, their folder took "
            f"{disk['while_imported']:.1f} times the corpus.",
            "Memory of the plan of an index:",
            table(["papers", "MB"], plan),
        ]
    )


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--planned", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.planned:
        print(json.dumps(planned(given.planned)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {"bytes": sizes_on_disk(Path(folder))}
    found |= {"tokens": tokens(), "plan": planning([10_000, 100_000, 1_000_000])}
    write("scale_sizes", found, as_text(found))


if __name__ == "__main__":
    main()
