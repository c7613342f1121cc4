"""The kinds of inputs that `fuzz.py` breaks: how a broken one is made, and who reads it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz_mutations import CONTAINERS, ODD, XML, break_bytes, break_json
from measuring import DATA
from sentence_experts.corpus.config import Services
from sentence_experts.corpus.sources.client import Client, FailedError
from sentence_experts.corpus.sources.journal import MEMORY, Journal, open_journal

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for `helpers`
ARTICLES = DATA / "formats"


class Kind(NamedTuple):
    """One kind of input.

    Attributes:
        mutations: number of mutations of a whole run.
        make: makes a broken input in a folder; gives what `read` takes, and names of what was done to it.
        read: reads it, as the package would; gives why nothing was read, if that is no error.
    """

    about: str
    mutations: int
    make: Callable[[Random, Path], tuple[Any, ...]]
    read: Callable[[Any], str | None]


# ---- articles ------------------------------------------------------------------------------------


@cache
def _articles(folder: Path) -> list[tuple[str, bytes]]:
    """The documents under a folder, by name; those of archives are left alone."""
    files = sorted(path for kind in ("*.xml", "*.nxml") for path in folder.rglob(kind))
    if not files:
        raise SystemExit(f"no .xml or .nxml file under {folder}")
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]


def _break_article(random: Random, folder: Path) -> tuple[Any, ...]:
    # A kind of article first: of some there are many more than of others.
    by_place: dict[str, list[bytes]] = {}
    for name, content in _articles(ARTICLES):
        by_place.setdefault(name.rpartition("/")[0], []).append(content)
    document = random.choice(by_place[random.choice(sorted(by_place))])
    names = random.choices(sorted(XML), k=random.choice((1, 1, 1, 2, 3)))
    for name in names:
        document = XML[name](random, document)
    container = random.choice(("bare", "bare", "bare", random.choice(sorted(CONTAINERS))))
    file, content = CONTAINERS.get(container, lambda _, data: ("article.xml", data))(random, document)
    (folder / file).write_bytes(content)
    return folder / file, *dict.fromkeys(names), f"in {container}"


def _read_article(path: Path) -> str | None:
    """Parse as an import does; papers, deletions, members passed over and named rejections are foreseen."""
    from sentence_experts.corpus import parsing
    from sentence_experts.corpus.formats.archives import Source, kind_of
    from sentence_experts.corpus.parts import REJECTED, open_parts, read_rejections

    parts = open_parts(path.parent / "parts")
    passed = parsing.parse_sources([Source(path.name, kind_of(path), path)], parts, 1)
    papers = sum(pq.read_metadata(file).num_rows for file in parts.paths())
    rejected = [each for file in parts.paths(REJECTED) for each in read_rejections(file)]
    for each in rejected:
        assert each.reason != "error", each.detail
    assert papers or rejected or passed, "nothing came of it"
    return None if papers else ", ".join(sorted({each.reason for each in rejected})) or "passed over"


# ---- tables --------------------------------------------------------------------------------------

ROWS = [
    {"id": str(n), "title": f"Zürich, no. {n}\nsecond", "abstract": "", "anchor": f"a {n}", "positive": "b",
     "n": n / 2}
    for n in range(40)
]  # fmt: skip
_ENCODINGS = ("latin-1", "utf-16", "utf-16-le", "utf-32", "utf-7", "cp037", "utf-8-sig")


def _delimited(delimiter: str) -> bytes:
    held = io.StringIO()
    table = csv.DictWriter(held, list(ROWS[0]), delimiter=delimiter)
    table.writeheader()
    table.writerows(ROWS)
    return held.getvalue().encode()


@cache
def _tables() -> dict[str, bytes]:
    held = io.BytesIO()
    columns = pa.Table.from_pylist(ROWS).append_column("many", pa.array([["a", "b"]] * 40))
    columns = columns.append_column("raw", pa.array([str(row["title"]).encode() for row in ROWS]))
    pq.write_table(columns, held, row_group_size=16)
    plain = "".join(f"{row['title']}\n" for row in ROWS).encode()
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    files = {"a.csv": _delimited(","), "a.tsv": _delimited("\t"), "a.jsonl": lines, "a.txt": plain}
    return {**files, "a.parquet": held.getvalue()}


def _break_table(random: Random, folder: Path) -> tuple[Any, ...]:
    name = random.choice(sorted(_tables()))
    data = _tables()[name]
    if name == "a.jsonl" and random.random() < 0.5:
        rows = [json.dumps(row).encode() for row in ROWS]
        rows[random.randrange(40)] = break_json(random, ROWS[0])
        data = b"\n".join(rows)
    elif name != "a.parquet" and random.random() < 0.3:
        data = data.decode().encode(random.choice(_ENCODINGS), "replace")
    else:
        data = break_bytes(random, data)
    if random.random() < 0.2:
        name, data = f"{name}.gz", gzip.compress(data, 1)
        data = break_bytes(random, data) if random.random() < 0.5 else data
    path = folder / (name if random.random() < 0.9 else random.choice(sorted(_tables())))
    path.write_bytes(data)
    return ((random.choice(("rows", "texts", "papers", "pairs")), path),)


def _read_table(case: tuple[str, Path]) -> None:
    from sentence_experts.cells import BadRowError
    from sentence_experts.corpus.importing import import_corpus
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tables import read_columns, read_rows
    from sentence_experts.text_table import TextTable

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

YAML = {
    "rules": """several: first
none: rest
domains:
  copd: {mesh: ["Asthma"], keywords: ["COPD", "emph*"], years: [2010, 2022]}
  cvd:
    subjects: ["Cell Biology"]
    title: ["heart"]
""",
    "tasks": """tasks:
  retrieval:
    kind: retrieval
    instructions: {query: "search query: ", document: "search document: "}
    datasets: {papers: {corpus: x, anchor: title, positive: abstract}}
  mood:
    kind: classification
    temperature: 0.05
    datasets: {small: {file: a.csv, text: [a, b], label: mood}}
""",
    "pairs": "fractions: [0.6, 0.2, 0.2]\nsplit: paper\nunit: abstract\nseed: 3\nmax_references: 50\n",
    "fetch": "source: pmc\nlicences: any\ndomains:\n  copd: 'COPD[MeSH]'\nmax_articles: 5\nemail: a@b.org\n",
}
_LINES = (
    "a: 1", "  - x", "\t x: 1", "? [a]", "<<: *x", "x: &x [*x]", "- ", "!!python/name:os.system x", "...",
    "---", 'a: "\\ud800"', "a: 2020-99-99", "n: 0o9", "x: " + "9" * 5000, "[" * 300, "&a &b c", "%YAML 9",
    "a: |", "'", '"',
)  # fmt: skip


def _break_yaml(random: Random, folder: Path) -> tuple[Any, ...]:
    from sentence_experts.recipes import RECIPES

    recipe = (RECIPES / "hallee2025" / "baselines.yaml").read_text(encoding="utf-8")
    what, text = random.choice([*YAML.items(), ("recipe", recipe)])
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
    data, path = "\n".join(lines).encode(), folder / "a.yaml"
    path.write_bytes(break_bytes(random, data) if random.random() < 0.2 else data)
    return ((what, path),)


def _read_yaml(case: tuple[str, Path]) -> None:
    from sentence_experts.corpus.config import FetchConfig
    from sentence_experts.pairs.config import PairsConfig
    from sentence_experts.pairs.domains import DomainRules
    from sentence_experts.reproduce.recipe import read_recipe
    from sentence_experts.tasks.task_file import TaskFile

    what, path = case
    paper = {"title": "A heart", "mesh": ["*Asthma/drug therapy"], "keywords": ["COPD"], "year": 2012}
    readers: dict[str, Callable[[Path], object]] = {
        "rules": lambda path: DomainRules.of(path).classifier()(paper),
        "tasks": TaskFile.read,
        "recipe": read_recipe,
        "pairs": PairsConfig.read,
        "fetch": FetchConfig.read,
    }
    readers[what](path)


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
_OF_XML = ("delete elements", "swap elements", "nasty texts", "nasty attributes", "strange tags", "entities")


def _break_answer(random: Random, folder: Path) -> tuple[Any, ...]:
    name = random.choice(sorted(ANSWERS))
    whole = ANSWERS[name]
    if isinstance(whole, bytes):
        return ((name, random.choice((break_bytes, *(XML[how] for how in _OF_XML)))(random, whole)),)
    return ((name, break_json(random, whole)),)


class _Client(Client):
    """Gives one body to every request of one kind, and whole ones to the others."""

    def __init__(self, services: Services, journal: Journal, body: bytes, ending: str) -> None:
        super().__init__(services, journal, "a@b.org")
        self._body, self._ending = body, ending

    def _once(self, service: Any, path: str, sent: Any, parse: Any) -> Any:
        url = service.url + path
        whole = _LISTING.encode() if url.endswith("bucket/") else b"<article/>"
        whole = json.dumps(ANSWERS["metadata"]).encode() if url.endswith(".json") else whole
        try:
            return parse(self._body if url.endswith(self._ending) else whole)
        except ValueError as error:
            raise FailedError(str(error)) from error


def _read_answer(case: tuple[str, bytes]) -> None:
    from sentence_experts.corpus.sources.openalex import OpenAlexSource
    from sentence_experts.corpus.sources.pmc import PmcSource

    name, body = case
    services = Services.model_validate({"pmc_bucket": {"url": "http://x/bucket", "per_second": 9}})
    ending = {"listing": "bucket/", "metadata": ".json"}.get(name, "")
    with open_journal(MEMORY) as journal, _Client(services, journal, body, ending) as client:
        source = PmcSource(client)
        ways: dict[str, Callable[[], object]] = {
            "openalex": lambda: OpenAlexSource(client, True).find("q"),
            "search": lambda: source.find("q"),
        }
        ways.get(name, lambda: source.fetch(["PMC7"], lambda steps=1, note="": None))()
        # The next steps use what entered the journal.
        source.version("PMC7")
        list(OpenAlexSource(client, True).papers(["W7", "W8"]))


# ---- folders -------------------------------------------------------------------------------------


def _break_file(random: Random, source: Path, folder: Path) -> tuple[Path]:
    """Copy a folder, with one file broken, missing, empty or exchanged."""
    copy = folder / source.name
    shutil.copytree(source, copy)
    files = sorted(file for file in copy.rglob("*") if file.is_file() and file.suffix != ".md")
    file, how = random.choice(files), random.random()
    if how < 0.05:
        file.unlink()
    elif how < 0.1:
        file.write_bytes(b"")
    elif how < 0.15:
        shutil.copy(random.choice(files), folder / "other")
        (folder / "other").replace(file)
    elif file.suffix == ".json" and how < 0.7:
        file.write_bytes(break_json(random, json.loads(file.read_bytes())))
    else:
        file.write_bytes(break_bytes(random, file.read_bytes()))
    return (copy,)


@cache
def _folders() -> list[Path]:
    """A corpus, pairs and tasks, made once for all."""
    from sentence_experts.corpus.importing import import_corpus
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tasks.compile import compile_tasks

    base = Path(tempfile.mkdtemp(prefix="fuzz-"))
    papers = [{"id": f"p{n}", "title": f"Title {n}", "abstract": "A", "subjects": "A; B"} for n in range(9)]
    citations = [{"citing": f"c{n}", "cited": f"p{k}"} for n in range(3) for k in range(9)]
    import_corpus(papers=papers, citations=citations, out=base / "corpus", workers=1)
    rows = [{"anchor": f"a {n}", "positive": f"b {n}"} for n in range(9)]
    Pairs.of([{**row, "split": split} for row in rows for split in ("train", "test")]).save(base / "pairs")
    texts = pa.table({"text": [f"I feel {n}" for n in range(40)], "label": ["x", "y"] * 20})
    compile_tasks({"mood": {"kind": "classification", "datasets": {"d": texts}}}, out=base / "tasks")
    return [base / name for name in ("corpus", "pairs", "tasks")]


def _read_folder(path: Path) -> None:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.pairs.compile import compile_pairs
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tasks.dataset import Tasks

    if path.name == "corpus":
        corpus = CorpusFolder.open(path)
        repr(corpus)
        corpus.count_values("subjects")
        corpus.to_pandas()
        compile_pairs(corpus, unit="title", split="random", fractions="0.5,0.3,0.2")
    else:
        opened = (Pairs if path.name == "pairs" else Tasks).open(path)
        repr(opened)
        opened.to_pandas()


@cache
def _encoder() -> Any:
    from helpers.samples import make_tiny_encoder
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.models.loading import load
    from sentence_experts.models.sources import minilm_path

    folder = make_tiny_encoder(Path(tempfile.mkdtemp(prefix="fuzz-encoder-")), minilm_path())
    return BatchEncoder(load(folder, device="cpu"))


def _index_of(corpus: Path) -> Any:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.retrieval.index import route_vectors

    return route_vectors(_encoder(), CorpusFolder.open(corpus), None, "title")


@cache
def _indexed() -> Path:
    corpus = _folders()[0]
    indexed = shutil.copytree(corpus, corpus.parent / "indexed")
    _index_of(indexed)
    return Path(indexed)


def _break_index(random: Random, folder: Path) -> tuple[Path]:
    copy = Path(shutil.copytree(_indexed(), folder / "corpus"))
    (index,) = [path.parent for path in copy.glob(".vectors/*/made_from.json")]
    (broken,) = _break_file(random, index, folder)
    shutil.rmtree(index)
    broken.replace(index)
    return (copy,)


def _read_index(path: Path) -> None:
    from helpers.ranking import nearest
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.retrieval.papers import Papers

    rows, scores = nearest(_index_of(path), _encoder().encode(["Title 3"], normalize=True)[0], 3)
    assert all(abs(score) <= 1.001 for score in scores), scores
    Papers(CorpusFolder.open(path)).facts(rows)


@cache
def _models() -> list[Path]:
    """Small models: one for each way to choose an expert."""
    import sentence_experts
    from helpers.samples import make_tiny_encoder
    from sentence_experts.models.sources import minilm_path

    base = Path(tempfile.mkdtemp(prefix="fuzz-models-"))
    plain = make_tiny_encoder(base / "plain", minilm_path())
    for router in ("route", "learned", "token"):
        sentence_experts.extend(plain, ["a", "b"], router=router, out=base / router)
    sentence_experts.extend(plain, ["a", "b"], route="prefix", out=base / "prefix")
    return [base / name for name in ("route", "learned", "token", "prefix")]


def _read_model(path: Path) -> None:
    from sentence_experts.models.loading import load

    load(path, device="cpu")


def _break_one_of(folders: Callable[[], list[Path]], random: Random, folder: Path) -> tuple[Path]:
    return _break_file(random, random.choice(folders()), folder)


KINDS = {
    "article": Kind("JATS and PubMed XML, also in archives", 10_000, _break_article, _read_article),
    "table": Kind("CSV, TSV, JSON lines, plain text, Parquet, also gzipped", 3000, _break_table, _read_table),
    "yaml": Kind("domain rules, task files, settings, plans, recipes", 2500, _break_yaml, _read_yaml),
    "answer": Kind("PMC, Entrez and OpenAlex", 2500, _break_answer, _read_answer),
    "folder": Kind("corpora, pairs, tasks", 900, partial(_break_one_of, _folders), _read_folder),
    "index": Kind("vectors, rows and settings of a search index", 600, _break_index, _read_index),
    "model": Kind("saved models of three families", 500, partial(_break_one_of, _models), _read_model),
}  # fmt: skip
