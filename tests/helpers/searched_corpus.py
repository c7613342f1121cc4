"""A corpus to search in a browser: made-up papers of two topics, with citations, and some hostile records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from starlette.testclient import TestClient

from helpers.samples import TOPICS
from sentence_experts.corpus.corpus_folder import (
    CITATIONS_SCHEMA,
    FORMAT,
    FORMAT_VERSION,
    PAPERS_SCHEMA,
    CorpusFolder,
)
from sentence_experts.storage import sha256_file, write_json, write_parquet

QUERY = "drought in rice fields"
NOTICE = 3  # the paper that is a correction
JOURNALS = ("Journal of Made-up Crops", "Annals of Invention", 'Ho"st<i>le & Sons')
TYPES = ("research-article", "review-article")
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE: list[dict[str, Any]] = [
    {
        "paper_id": "h:script",
        "title": f"Rice drought {SCRIPT}",
        "abstract": f"Rice {SCRIPT} drought. Rust {SCRIPT}.",
    },
    {
        "paper_id": "h:quotes",
        "title": "Rice drought \"'`${x}</title>\\",
        "abstract": 'It\'s "rice" & drought: {{7*7}}.',
    },
    {
        "paper_id": "h:bidi",
        "title": "Rice drought \u202eevil\u2066 \u200f\u0000",
        "abstract": "\u202edrought rice\u202c " * 9,
    },
    {
        "paper_id": "h:large",
        "title": "Rice drought, at length",
        "abstract": "Rice in drought was measured again. " * 28_000,
    },
    {"paper_id": "h:long", "title": f"Rice drought {'x' * 5_000}", "abstract": "y" * 5_000},
    {"paper_id": "h:bare", "title": "Rice drought, without anything else"},
    {"paper_id": "h:untitled", "abstract": "Rice in a drought, without a title 🌾. Then 🌾🌾 rice."},
    {
        "paper_id": "h:'\"><b>",
        "title": "Rice drought of an odd id",
        "doi": "10.1/<b>\"'",
        "journal": SCRIPT,
        "year": -5,
        "entry": "javascript:alert(1)",
    },
]


def searched_papers(count: int = 40) -> list[dict[str, Any]]:
    """The harmless papers; every fifth was retracted."""
    dice = random.Random(0)
    topics = [(domain, topic) for domain, each in TOPICS.items() for topic in each]
    papers = []
    for number in range(count):
        domain, topic = topics[number % len(topics)]
        words = topic.split()
        title = f"Made-up {' '.join(dice.sample(words, 3))} {number}"
        sentences = [
            f"{' '.join(dice.sample(words, 2)).capitalize()} was simulated in plot {n}." for n in range(4)
        ]
        papers.append({
            "paper_id": f"doi:10.5555/made-up.{number:03}", "doi": f"10.5555/made-up.{number:03}",
            "title": title, "abstract": " ".join(sentences), "year": 2001 + number % 12,
            "journal": JOURNALS[number % 3], "article_type": TYPES[number % 2],
            "subjects": [domain], "retracted": number % 5 == 4,
            "authors": [f"Family{number}, Given", "Ito, A", "Mbeki, C"][: 1 + number % 3],
            "volume": "2", "issue": "3", "pages": f"{number}-{number + 9}",
            "keywords": [words[0], "Simulation"], "mesh": ["Plants"] if domain == "crops" else [],
            "kind": "correction" if number == NOTICE else "article",
            "entry": f"@made{number}", "file": f"/home/ann/<b>{number}.pdf",
        })  # fmt: skip
    return papers


def write_searched_corpus(folder: Path, hostile: bool = True) -> CorpusFolder:
    """A finished corpus of these papers; each cites the ones eight and sixteen places before it."""
    papers = searched_papers()
    cited = [
        {"citing": papers[n]["paper_id"], "cited": papers[n - back]["paper_id"]}
        for n in range(len(papers)) for back in (8, 16) if n >= back
    ]  # fmt: skip
    empty = dict.fromkeys(PAPERS_SCHEMA.names) | {"retracted": False}
    rows = sorted((empty | each for each in papers + HOSTILE * hostile), key=lambda row: row["paper_id"])
    write_parquet(folder / "papers.parquet", pa.Table.from_pylist(rows, PAPERS_SCHEMA))
    links = [dict.fromkeys(CITATIONS_SCHEMA.names) | each for each in cited]
    write_parquet(folder / "citations.parquet", pa.Table.from_pylist(links, CITATIONS_SCHEMA))
    tables = {name: sha256_file(folder / name) for name in ("papers.parquet", "citations.parquet")}
    write_json(
        folder / "manifest.json", {"format": FORMAT, "format_version": FORMAT_VERSION, "tables": tables}
    )
    return CorpusFolder.open(folder)


def ask(client: TestClient, **fields: Any) -> dict[str, Any]:
    """The answer to a search."""
    answer = client.post("/search", json=fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(answer: dict[str, Any], route: int = 0) -> list[str]:
    """The papers that one route of an answer lists."""
    return [answer["papers"][hit["paper"]]["paper_id"] for hit in answer["routes"][route]["hits"]]
