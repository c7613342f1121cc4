"""The kinds of inputs that `fuzz_inputs` breaks: what is whole, how it is broken, and who reads it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz_folders import break_folder, break_index, break_model, read_folder, read_index, read_model
from fuzz_mutations import MUTATIONS
from fuzz_values import ODD, break_bytes, break_json


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        about: what is broken.
        break_one: makes a broken input in a folder; returns what `read` takes.
        read: reads it, as the package would.
    """

    about: str
    break_one: Callable[[Random, Path], Any]
    read: Callable[[Any], object]


def mutation(kind: str, seed: int, number: int, folder: Path) -> Any:
    """Mutation `number` of a kind, written to a folder."""
    return KINDS[kind].break_one(Random(f"{seed}-{kind}-{number}"), folder)


# ---- tables --------------------------------------------------------------------------------------

ROWS = [
    {
        "id": str(n),
        "title": f"Zürich, no. {n}\nsecond",
        "abstract": "",
        "anchor": f"a {n}",
        "positive": "b",
        "n": n / 2,
    }
    for n in range(40)
]


def _delimited(delimiter: str) -> bytes:
    held = io.StringIO()
    table = csv.DictWriter(held, list(ROWS[0]), delimiter=delimiter)
    table.writeheader()
    table.writerows(ROWS)
    return held.getvalue().encode()


@cache
def _tables() -> dict[str, bytes]:
    held = io.BytesIO()
    columns = pa.Table.from_pylist(ROWS)
    columns = columns.append_column("many", pa.array([["a", "b"]] * 40))
    columns = columns.append_column("raw", pa.array([str(row["title"]).encode() for row in ROWS]))
    pq.write_table(columns, held, row_group_size=16)
    plain = "".join(f"{row['title']}\n" for row in ROWS).encode()
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    files = {"a.csv": _delimited(","), "a.tsv": _delimited("\t"), "a.jsonl": lines, "a.txt": plain}
    return {**files, "a.parquet": held.getvalue()}


def _break_table(random: Random, folder: Path) -> tuple[str, Path]:
    name = random.choice(sorted(_tables()))
    data = _tables()[name]
    if name == "a.jsonl" and random.random() < 0.5:
        rows = [json.dumps(row).encode() for row in ROWS]
        rows[random.randrange(40)] = break_json(random, ROWS[0])
        data = b"\n".join(rows)
    elif name != "a.parquet" and random.random() < 0.3:
        encoding = random.choice(("latin-1", "utf-16", "utf-16-le", "utf-32", "utf-7", "cp037", "utf-8-sig"))
        data = data.decode().encode(encoding, "replace")
    else:
        data = break_bytes(random, data)
    if random.random() < 0.2:
        name, data = f"{name}.gz", gzip.compress(data, 1)
        data = break_bytes(random, data) if random.random() < 0.5 else data
    path = folder / (name if random.random() < 0.9 else random.choice(sorted(_tables())))
    path.write_bytes(data)
    return random.choice(("rows", "texts", "papers", "pairs")), path


def _read_table(case: tuple[str, Path]) -> None:
    from sentence_experts.corpus.importing import import_corpus
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tables import BadRowError, TextTable, read_columns, read_rows

    how, path = case
    if how == "rows":
        for row in read_rows(path):
            assert isinstance(row, dict | BadRowError)
    elif how == "texts":
        columns = read_columns(path)
        column = next((name for name in columns if name in ("title", "text")), None)
        for text in TextTable(path, column, "id" if "id" in columns else None).rows():
            text.text.encode()
    elif how == "papers":
        import_corpus(papers=path, workers=1)
    else:
        Pairs.of(path).to_pandas()


# ---- YAML ----------------------------------------------------------------------------------------

RULES = """several: first
none: rest
domains:
  copd: {mesh: ["Asthma"], keywords: ["COPD", "emph*"], years: [2010, 2022]}
  cvd:
    subjects: ["Cell Biology"]
    title: ["heart"]
"""
TASKS = """tasks:
  retrieval:
    kind: retrieval
    instructions: {query: "search query: ", document: "search document: "}
    datasets: {papers: {corpus: x, anchor: title, positive: abstract}}
  mood:
    kind: classification
    temperature: 0.05
    datasets: {small: {file: a.csv, text: [a, b], label: mood}}
"""
SETTINGS = "fractions: [0.6, 0.2, 0.2]\nsplit: paper\nunit: abstract\nseed: 3\nmax_references: 50\n"
PLAN = "source: pmc\nlicences: any\ndomains:\n  copd: '\"COPD\"[MeSH]'\nmax_articles: 5\nemail: a@b.org\n"
_LINES = (
    "a: 1", "  - x", "\t x: 1", "? [a]", "<<: *x", "x: &x [*x]", "- ", "!!python/name:os.system x", "...",
    "---", 'a: "\\ud800"', "a: 2020-99-99", "n: 0o9", "x: " + "9" * 5000, "[" * 300, "&a &b c", "%YAML 9",
    "a: |", "'", '"',
)  # fmt: skip


def _break_yaml(random: Random, folder: Path) -> tuple[str, Path]:
    what, text = random.choice(
        (("rules", RULES), ("tasks", TASKS), ("pairs", SETTINGS), ("fetch", PLAN), ("recipe", _recipe()))
    )
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 2, 3))):
        how, place = random.randrange(6), random.randrange(len(lines))
        if how == 0:
            lines.insert(place, lines[place])
        elif how == 1:
            lines[place] = " " * random.randrange(5) + lines[place].strip()
        elif how == 2:
            lines.insert(place, random.choice(_LINES))
        elif how == 3 and len(lines) > 1:
            del lines[place]
        else:
            lines[place] = f"{lines[place].partition(':')[0]}: {json.dumps(random.choice(ODD))}"
    data = "\n".join(lines).encode()
    path = folder / "a.yaml"
    path.write_bytes(break_bytes(random, data) if random.random() < 0.2 else data)
    return what, path


@cache
def _recipe() -> str:
    from sentence_experts.recipes import RECIPES

    return sorted(RECIPES.glob("hallee2025/*.yaml"))[0].read_text(encoding="utf-8")


def _read_yaml(case: tuple[str, Path]) -> None:
    from sentence_experts.corpus.config import FetchConfig
    from sentence_experts.pairs.config import PairsConfig
    from sentence_experts.pairs.domains import DomainRules
    from sentence_experts.reproduce.recipe_files import read_recipe
    from sentence_experts.tasks.task_file import TaskFile

    what, path = case
    if what == "rules":
        paper = {"title": "A heart", "mesh": ["*Asthma/drug therapy"], "keywords": ["COPD"], "year": 2012}
        DomainRules.read(path).classifier()(paper)
    elif what == "tasks":
        TaskFile.read(path)
    elif what == "recipe":
        read_recipe(path)
    else:
        (PairsConfig if what == "pairs" else FetchConfig).read(path)


# ---- answers of services -------------------------------------------------------------------------

_SEARCH = (
    "<eSearchResult><Count>3</Count><QueryKey>1</QueryKey><WebEnv>M</WebEnv><IdList><Id>7</Id><Id>8</Id>"
    "<Id>9</Id></IdList></eSearchResult>"
)
_LISTING = (
    "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><CommonPrefixes><Prefix>PMC7.1/</Prefix>"
    "</CommonPrefixes></ListBucketResult>"
)
_WORKS = [{"id": f"https://openalex.org/W{number}", "title": "A", "ids": {}} for number in (7, 8)]
ANSWERS: dict[str, Any] = {
    "openalex": {"meta": {"count": 2, "next_cursor": None}, "results": _WORKS},
    "metadata": {"pmid": 7, "license_code": "CC BY", "is_retracted": False, "xml_url": "s3://x?md5=" + "0"},
    "search": _SEARCH.encode(), "listing": _LISTING.encode(),
}  # fmt: skip
_XML = ("delete elements", "swap tags", "nasty texts", "nasty attributes", "strange tags", "entities", "deep")


def _break_answer(random: Random, folder: Path) -> tuple[str, bytes]:
    name = random.choice(sorted(ANSWERS))
    whole = ANSWERS[name]
    if isinstance(whole, bytes):
        how = random.choice((*_XML, "bytes"))
        return name, break_bytes(random, whole) if how == "bytes" else MUTATIONS[how](random, whole)
    return name, break_json(random, whole)


class _Client:
    """Gives one body to every request of one kind, and whole ones to the others."""

    def __init__(self, body: bytes, replaced: Callable[[str], bool]) -> None:
        self._body, self._replaced = body, replaced

    def get(self, url: str, params: Any = None, check: Any = None, *, form: bool = False) -> bytes:
        from sentence_experts.corpus.sources.http import FailedError

        whole = _LISTING.encode() if url.endswith("bucket/") else b"<article/>"
        whole = json.dumps(ANSWERS["metadata"]).encode() if url.endswith(".json") else whole
        body = self._body if self._replaced(url) else whole
        if check is not None:
            try:
                check(body)
            except ValueError as error:
                raise FailedError(str(error)) from error
        return body


def _read_answer(case: tuple[str, bytes]) -> None:

    from sentence_experts.corpus.sources.entrez import Entrez
    from sentence_experts.corpus.sources.journal import MEMORY, open_journal
    from sentence_experts.corpus.sources.openalex import OpenAlexSource
    from sentence_experts.corpus.sources.pmc import PmcSource
    from sentence_experts.corpus.sources.requests import Requests
    from sentence_experts.corpus.sources.services import Services

    name, body = case
    services = Services.model_validate({"pmc_bucket": {"url": "http://x/bucket", "per_second": 9}})
    ending = {"listing": "bucket/", "metadata": ".json"}.get(name, "")
    client: Any = _Client(body, lambda url: url.endswith(ending))
    with open_journal(MEMORY) as journal:
        requests = Requests(client, journal, services, "a@b.org")
        source = PmcSource(requests)
        ways: dict[str, Callable[[], object]] = {
            "openalex": lambda: OpenAlexSource(requests, True).find("q"),
            "search": lambda: Entrez(requests).search("q"),
        }
        ways.get(name, lambda: source.fetch(["PMC7"], lambda steps=1, note="": None))()
        # What entered the journal is used by the next steps.
        source.version("PMC7")
        list(OpenAlexSource(requests, True).papers(["W7", "W8"]))


KINDS = {
    "table": Kind("CSV, TSV, JSON lines, plain text, Parquet, each also gzipped", _break_table, _read_table),
    "yaml": Kind("domain rules, task files, settings, plans, recipes", _break_yaml, _read_yaml),
    "answer": Kind("PMC, Entrez and OpenAlex", _break_answer, _read_answer),
    "folder": Kind("corpora, pairs, tasks", break_folder, read_folder),
    "index": Kind("vectors, rows and settings of a search index", break_index, read_index),
    "model": Kind("saved models of three families", break_model, read_model),
}
