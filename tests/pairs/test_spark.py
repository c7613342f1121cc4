"""Spark and DuckDB run the same text: whole datasets, byte for byte."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from helpers.compile_pairs import link_graph
from helpers.mentioned_works import mentioned_corpus
from helpers.samples import write_corpus
from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, CorpusFolder
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.links import select_folded_texts
from sentence_experts.pairs.sql_engine import open_engine
from sentence_experts.storage import write_parquet

SPARK = {"engine": "spark[2]", "memory": "1GB"}
DUCKDB = {"engine": "local[2]", "memory": "1GB"}
HERE_IT_RUNS = find_spec("pyspark") is not None and shutil.which("java") is not None
needs_spark = pytest.mark.skipif(not HERE_IT_RUNS, reason="needs pyspark and Java")
# Compiled once and simply: these tables are too small for the optimising compiler to pay.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Compiling and planning anew take longer than these tables do.
FOR_SMALL_TABLES = {
    "codegen.wholeStage": "false",
    "codegen.factoryMode": "NO_CODEGEN",
    "adaptive.enabled": "false",
    "shuffle.partitions": "2",
}

# Alike to one engine's lower case, white space or order and not to the other's, if either is left to itself.
NASTY = [
    "Straße\tund  ΟΔΟΣ",
    "straße UND οδοσ.",
    "STRASSE und οδος",
    "İstanbul: a \x0b study",
    "istanbul; a \x0b study",
    "i̇stanbul a study",
    "𝔘nicode 😀 text",
    "𝔘nicode 😀 TEXT!",
    "\ufb01ne ﬁne",
    "\ue000 after surrogates",
    "é as two",
    "é as two",
    "back\\slash 'quoted' \"twice\" $1 %_",
    "line\nand\r\nline",
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Spark session for all tests here: what is active is used and left running."""
    folder = tmp_path_factory.mktemp("spark").resolve()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JDK_JAVA_OPTIONS", JAVA)
        with open_engine(PairsConfig.of(**SPARK), folder / "pairs") as engine:
            for key, value in FOR_SMALL_TABLES.items():
                engine._spark.conf.set(f"spark.sql.{key}", value)
            yield


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    """Forty papers with awkward texts and ids, each citing a dozen others and works outside."""
    ids = [f"{'Zaé😀'[number % 4]}{number}\ue000" for number in range(40)]
    texts = [NASTY[number % len(NASTY)] + (f" {number}" if number % 3 else "") for number in range(40)]
    texts[7], texts[8] = "\t", "\u00a0"
    papers = [(paper, text, text, 2000, False) for paper, text in zip(ids, texts, strict=True)]
    corpus = write_corpus(tmp_path_factory.mktemp("nasty") / "a[1]" / "corpus", papers)
    rows = []
    for number, citing in enumerate(ids):
        for step in (1, 2, 7):
            cited = (number * 3 + step) % 55
            title = NASTY[cited % len(NASTY)] + f" {cited}" + "." * (number % 2)
            known = ids[cited] if cited < 40 else f"doi:outside/ß{cited}"
            rows.append({"citing": citing, "cited": known, "cited_title": title, "cited_year": 1990 + number})
        rows.append({"citing": citing, "cited": None, "cited_title": "no identifier"})
    # A review, whose list is too long to link what it cites.
    rows += [{"citing": ids[0], "cited": cited} for cited in ids[1:30:4]]
    write_parquet(corpus.citations, pa.Table.from_pylist(rows, CITATIONS_SCHEMA))
    return CorpusFolder(corpus.path, {**corpus.manifest, "counts": {}, "tables": {}})


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(
        "several: each\ndomains:\n  even: {title: ['*study*', '*text*', '*und*'], years: [1990, 2015]}\n"
        "  any: {title: ['*']}\n",
        encoding="utf-8",
    )
    return file


LOOSE = {"max_eval_per_domain": 3, "fractions": (0.4, 0.3, 0.3)}


@needs_spark
@pytest.mark.parametrize(
    "settings",
    [
        {"unit": "title", "split": "article", "max_references": 6},
        pytest.param(
            {"unit": "abstract", "relation": "coupling", "split": "random", "negatives": "random"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"unit": "title+abstract", "relation": "citation", "split": "random"}, marks=pytest.mark.slow
        ),
    ],
    ids=("co-citation", "coupling", "citation"),
)
def test_spark_writes_the_bytes_that_duckdb_writes(
    settings: dict, nasty: CorpusFolder, rules: Path, session: None, tmp_path: Path
) -> None:
    chosen = PairsConfig.model_validate({**LOOSE, **settings})
    there = compile_pairs(nasty, chosen, tmp_path / "spark", domains=rules, **SPARK)
    here = compile_pairs(nasty, chosen, tmp_path / "duckdb", domains=rules, **DUCKDB)
    names = sorted(file.name for file in here.path.iterdir())
    assert names == sorted(file.name for file in there.path.iterdir())
    for name in names:
        assert (here.path / name).read_bytes() == (there.path / name).read_bytes(), name
    assert here.split("test").num_rows > 0


@needs_spark
@pytest.mark.slow
def test_spark_compiles_pairs_by_proximity_as_duckdb_does(session: None, tmp_path: Path) -> None:
    corpus = mentioned_corpus(tmp_path / "corpus", articles=12, works=30, each=12)
    chosen = PairsConfig.model_validate({**LOOSE, "unit": "title", "split": "random", "within": "sentence"})
    there = compile_pairs(corpus, chosen, **SPARK)
    here = compile_pairs(corpus, chosen, **DUCKDB)
    assert there.hashes() == here.hashes()
    assert there.manifest["closest_levels"] == here.manifest["closest_levels"]
    assert here.split("test").num_rows > 0


@needs_spark
@pytest.mark.slow
def test_both_engines_fold_texts_in_the_same_way(nasty: CorpusFolder, session: None, tmp_path: Path) -> None:
    found = []
    for settings in (SPARK, DUCKDB):
        with open_engine(PairsConfig.of(**settings), tmp_path / "pairs") as engine:
            papers, citations = engine.read(nasty.papers), engine.read(nasty.citations)
            found.append(engine.rows(f"{select_folded_texts('title', papers, citations)} ORDER BY paper_id"))
    assert found[0].equals(found[1])
    assert found[0].num_rows > 40
    assert len(set(found[0]["folded"].to_pylist())) < found[0].num_rows


def test_missing_pyspark_is_a_clear_error(nasty: CorpusFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with (
        pytest.raises(SentenceExpertsError, match=r"sentence-experts\[spark\]"),
        link_graph(nasty, PairsConfig(), engine="spark[2]"),
    ):
        pass
