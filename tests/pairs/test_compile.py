"""The compiled dataset keeps its promises, checked with SQL written apart from the package's expressions."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from helpers.compile_pairs import RULES, SMALL, Compile, link_graph, tables_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.pairs.compile import _warn_of_left_out, compile_pairs
from sentence_experts.pairs.config import SPLITS, PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.domains import DomainRules

VARIANTS = [
    {"relation": "co-citation", "unit": "abstract"},
    {"relation": "co-citation", "unit": "title", "min_count": 2},
    {"relation": "coupling", "unit": "title+abstract", "rare": 20},
    {"relation": "citation", "unit": "abstract", "max_eval_per_domain": 5},
    {"split": "random", "fractions": (0.8, 0.1, 0.1)},
    pytest.param({"split": "year", "max_eval_per_domain": 5}, marks=pytest.mark.slow),
    pytest.param({"split": "article", "unit": "title"}, marks=pytest.mark.slow),
    {"negatives": "cited", "negatives_min_cited": 1},
]
LINKED = {
    "co-citation": "select pairs.* from pairs join c a on a.cited = anchor_id "
    "join c b on b.cited = positive_id and a.citing = b.citing",
    "coupling": "select pairs.* from pairs join c a on a.citing = anchor_id "
    "join c b on b.citing = positive_id and a.cited = b.cited",
    "citation": "select pairs.* from pairs join c on (citing = anchor_id and cited = positive_id) "
    "or (citing = positive_id and cited = anchor_id)",
}
"""Relation -> the pairs of the table `pairs` that it links."""

EVERY_LINK = {
    "co-citation": "select distinct a.cited, b.cited from c a join c b on a.citing = b.citing "
    "where a.cited < b.cited and a.cited in (from trained) and b.cited in (from trained)",
    "coupling": "select distinct a.citing, b.citing from c a join c b on a.cited = b.cited "
    "where a.citing < b.citing and a.citing in (from trained) and b.citing in (from trained) and a.cited in "
    "(select cited from c where cited is not null group by cited having count(distinct citing) <= $rare)",
    "citation": "select distinct least(citing, cited), greatest(citing, cited) from c "
    "where citing <> cited and citing in (from trained) and cited in (from trained)",
}


@pytest.fixture(params=VARIANTS, ids=lambda variant: "-".join(str(value) for value in variant.values()))
def pairs(request: pytest.FixtureRequest, compiled: Compile) -> Pairs:
    return compiled(**request.param)


def citations_of(corpus: CorpusFolder) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"create view c as select distinct citing, cited from '{corpus.citations}'")
    return connection


def test_negatives_are_balanced_cited_and_unlinked(pairs: Pairs, corpus: CorpusFolder) -> None:
    settings, connection = pairs.manifest["settings"], citations_of(corpus)
    for name in ("validation", "test"):
        rows = pairs.split(name).to_pylist()
        for domain in {row["domain"] for row in rows}:
            labels = [row["label"] for row in rows if row["domain"] == domain]
            assert sum(labels) * 2 == len(labels)
        unlinked = [row for row in rows if not row["label"]]
        connection.register("pairs", pa.Table.from_pylist(unlinked))
        assert not any(row["count"] for row in unlinked)
        for relation, query in LINKED.items():
            assert not connection.execute(query).fetchall(), relation
        times = dict(connection.execute("select cited, count(*) from c group by cited").fetchall())
        for paper in {row[end] for row in unlinked for end in ("anchor_id", "positive_id")}:
            assert settings["negatives"] != "cited" or times[paper] >= settings["negatives_min_cited"]
    assert set(pairs.split("train")["label"].to_pylist()) == {1}


def test_pairs_keep_the_papers_that_link_them(pairs: Pairs, corpus: CorpusFolder) -> None:
    settings, lists = pairs.manifest["settings"], dict[str, set[str]]()
    for citing, cited in citations_of(corpus).execute("select citing, cited from c").fetchall():
        lists.setdefault(citing, set()).add(cited)
    for name in ("validation", "test"):
        for row in pairs.split(name).to_pylist():
            assert len(set(row["linked_by"])) == len(row["linked_by"])
            # A citation has one, the citing paper, and a count of 1 with it.
            assert len(row["linked_by"]) == row["count"]
            for paper in row["linked_by"] if settings["relation"] == "co-citation" else ():
                assert {row["anchor_id"], row["positive_id"]} <= lists[paper]
    assert "linked_by" not in pairs.split("train").column_names


def test_both_works_of_a_pair_are_of_its_domain(compiled: Compile, corpus: CorpusFolder) -> None:
    domains_of = DomainRules.of(RULES).classifier()
    papers = {
        row["paper_id"]: row for row in duckdb.read_parquet(str(corpus.papers)).to_arrow_table().to_pylist()
    }
    for name in SPLITS:
        for row in compiled().split(name).to_pylist():
            for paper in (row["anchor_id"], row["positive_id"]):
                assert row["domain"] in domains_of(papers[paper])


def test_under_title_works_outside_the_corpus_count(compiled: Compile, corpus: CorpusFolder) -> None:
    inside = set(duckdb.read_parquet(str(corpus.papers)).select("paper_id").fetchnumpy()["paper_id"].tolist())
    title = compiled(unit="title", min_count=2).split("train")
    assert not set(title["anchor_id"].to_pylist()) <= inside
    assert set(compiled(unit="abstract").split("train")["anchor_id"].to_pylist()) <= inside


def papers_in(table: pa.Table) -> set[str]:
    return set(table["anchor_id"].to_pylist()) | set(table["positive_id"].to_pylist())


def test_random_split_says_how_many_test_papers_were_seen(compiled: Compile) -> None:
    pairs = compiled(split="random", fractions=(0.8, 0.1, 0.1))
    positives = pairs.split("test").filter(pa.compute.equal(pairs.split("test")["label"], 1))
    seen = papers_in(positives) & papers_in(pairs.split("train"))
    assert pairs.manifest["test_papers_seen_in_training"] == len(seen) > 0


def test_known_links_are_all_links_of_the_training_papers(pairs: Pairs, corpus: CorpusFolder) -> None:
    settings, connection = pairs.manifest["settings"], citations_of(corpus)
    links = pairs.known_links()
    assert links.column_names == ["left_id", "right_id"]
    known = list(zip(links["left_id"].to_pylist(), links["right_id"].to_pylist(), strict=True))
    assert known == sorted(set(known))
    assert all(left < right for left, right in known)
    train = pairs.split("train")
    trained = {tuple(sorted((row["anchor_id"], row["positive_id"]))) for row in train.to_pylist()}
    assert trained < set(known), "links that were not drawn are known, too"
    connection.register("trained", pa.table({"id": sorted(papers_in(train))}))
    values = {"rare": settings["rare"]} if settings["relation"] == "coupling" else {}
    expected = connection.execute(EVERY_LINK[settings["relation"]], values).fetchall()
    assert set(known) == set(expected)


def test_the_fingerprint_covers_the_known_links(compiled: Compile) -> None:
    pairs = compiled()
    files = pairs.manifest["files"] | {"known_links.parquet": "other"}
    assert Pairs(pairs.path, pairs.manifest | {"files": files}).fingerprint() != pairs.fingerprint()


def test_a_corpus_paper_that_the_rules_drop_is_in_no_pair(corpus: CorpusFolder, tmp_path: Path) -> None:
    # Many papers of these topics lack the word in their title, and are cited by papers that have it.
    rules = tmp_path / "rules.yaml"
    rules.write_text("domains: {memory: {title: ['hippocampus*']}, cells: {title: ['mitosis*', 'spindle*']}}")
    settings = PairsConfig.model_validate({**SMALL, "unit": "title", "max_eval_per_domain": 5})
    pairs = compile_pairs(corpus, settings, tmp_path / "pairs", domains=rules)
    domains_of = DomainRules.of(rules).classifier()
    papers = {
        row["paper_id"]: row for row in duckdb.read_parquet(str(corpus.papers)).to_arrow_table().to_pylist()
    }
    for name in SPLITS:
        for paper in papers_in(pairs.split(name)) & set(papers):
            assert domains_of(papers[paper])


@pytest.mark.parametrize("unit", ["abstract", "title"])
def test_works_of_a_domain_are_of_its_years(corpus: CorpusFolder, tmp_path: Path, unit: str) -> None:
    years = duckdb.sql(f"select distinct year from '{corpus.papers}' order by year").fetchall()
    middle = years[len(years) // 2][0]
    rules = tmp_path / "rules.yaml"
    ranges = {"old": (1900, middle), "new": (middle + 1, 2100)}
    rules.write_text(
        json.dumps({"domains": {name: {"title": ["*"], "years": years} for name, years in ranges.items()}})
    )
    settings = PairsConfig.model_validate({**SMALL, "unit": unit})
    pairs = compile_pairs(corpus, settings, tmp_path / "pairs", domains=rules)
    year_of = dict(
        duckdb.sql(
            f"select paper_id, year from '{corpus.papers}' union all select cited, min(cited_year) from "
            f"'{corpus.citations}' where cited not in (select paper_id from '{corpus.papers}') group by cited"
        ).fetchall()
    )
    rows = [row for name in SPLITS for row in pairs.split(name).to_pylist()]
    assert {row["domain"] for row in rows} == set(ranges)
    for row in rows:
        first, last = ranges[row["domain"]]
        assert first <= year_of[row["anchor_id"]] <= last
        assert first <= year_of[row["positive_id"]] <= last


def test_other_folders_are_never_replaced(corpus: CorpusFolder, tmp_path: Path) -> None:
    before = sorted(file.name for file in corpus.path.iterdir())
    for overwrite, message in ((False, "holds a corpus: give another `out`"), (True, "would replace")):
        with pytest.raises(UsageError, match=message):
            compile_pairs(corpus, out=corpus.path, domains=RULES, overwrite=overwrite, **SMALL)
    assert sorted(file.name for file in corpus.path.iterdir()) == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        compile_pairs(corpus, out=tmp_path, domains=RULES, **SMALL)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_either_paper_of_a_pair_comes_first_about_as_often(compiled: Compile) -> None:
    train = compiled(unit="title").split("train")
    ends = zip(train["anchor_id"].to_pylist(), train["positive_id"].to_pylist(), strict=True)
    first = [one < other for one, other in ends]
    assert 0.35 < sum(first) / len(first) < 0.65


@pytest.mark.slow
def test_duplication_repeats_training_pairs_by_their_count(compiled: Compile) -> None:
    plain = compiled(frequency="none").split("train").num_rows
    rows = compiled(frequency="duplication").split("train").to_pylist()
    times: dict[frozenset, int] = {}
    for row in rows:
        key = frozenset((row["anchor_id"], row["positive_id"]))
        times[key] = times.get(key, 0) + 1
        assert row["count"] >= times[key]
    assert len(times) == plain < len(rows)


def test_caps_hold_for_each_domain_and_validation_may_have_a_lower_one(compiled: Compile) -> None:
    for counts in compiled(max_validation_per_domain=5).manifest["domains"].values():
        assert counts["train"]["positives"] <= SMALL["max_train_per_domain"]
        assert counts["test"]["positives"] <= SMALL["max_eval_per_domain"]
        assert counts["validation"]["positives"] <= 5 < counts["test"]["positives"]
    with pytest.raises(UsageError, match=r"`max_validation_per_domain` \(9\) is a lower maximum than"):
        compile_pairs("corpus", max_validation_per_domain=9, max_eval_per_domain=8)


def test_works_of_unknown_years_are_told(caplog: pytest.LogCaptureFixture) -> None:
    papers = [{"paper_id": "p", "title": "Paper p", "year": 2001}]
    citations = [
        {"citing": "p", "cited": f"c{n}", "cited_title": f"Work {n}", "cited_year": n and 2000}
        for n in range(4)
    ]
    citations[0]["cited_year"] = None
    corpus = CorpusFolder.of((papers, citations))
    rules = {"a": {"title": ["*"], "years": [1999, 2002]}}
    settings = PairsConfig(unit="title", split="year")
    for domains in (rules, {"a": {"title": ["*"]}}):
        with link_graph(corpus, settings, domains) as graph:
            _warn_of_left_out(graph, settings)
            _warn_of_left_out(graph, PairsConfig(unit="title"))
        told = "are left out of a, as their year is unknown: 1;" in caplog.text
        assert told is (domains is rules)
        assert ("split by year: 1 of 4 papers have no year" in caplog.text) is not told
        assert len(caplog.records) == 1
        caplog.clear()


def test_datasets_and_stock_trainer_read_the_folder(compiled: Compile, minilm: str, tmp_path: Path) -> None:
    from datasets import load_dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from helpers.samples import make_tiny_encoder

    folder = str(compiled().path)
    data = load_dataset(folder, cache_dir=str(tmp_path / "cache"))
    assert list(data) == list(SPLITS)
    assert data["train"].column_names == ["anchor", "positive", "label"]
    full = load_dataset(folder, "full", cache_dir=str(tmp_path / "cache"))
    assert full["test"].column_names[3:] == ["domain", "count", "anchor_id", "positive_id"]

    model = SentenceTransformer(str(make_tiny_encoder(tmp_path / "tiny", minilm)))
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), max_steps=2, per_device_train_batch_size=4, report_to="none", disable_tqdm=True
    )
    SentenceTransformerTrainer(
        model, arguments, train_dataset=data["train"], loss=MultipleNegativesRankingLoss(model)
    ).train()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"negatives": "cited", "negatives_min_cited": 999}, "lower `negatives_min_cited`"),
        ({"min_count": 10_000}, "`min_count`"),
        ({"fractions": (1.0, 0.0, 0.0)}, "validation split got none"),
    ],
)
def test_impossible_settings_are_errors(settings: dict, message: str) -> None:
    works = [{"paper_id": f"w{n:02d}", "title": f"Work {n}"} for n in range(60)]
    citations = [
        {"citing": f"c{n}", "cited": f"w{(3 * n + k) % 60:02d}"} for n in range(20) for k in range(4)
    ]
    with pytest.raises(SentenceExpertsError, match=message):
        compile_pairs(tables_corpus(works, citations), unit="title", **settings)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path, compiled: Compile) -> None:
    with pytest.raises(InputError, match="`compile_pairs`"):
        Pairs.open(tmp_path)
    with pytest.raises(UsageError, match="no split 'dev'"):
        compiled().split("dev")
