"""Pairs that were never written: from tables, or compiled without a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.compile_pairs import RULES, SMALL, Compile, tables_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import SPLITS
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.pair_tables import PAIR_COLUMNS
from sentence_experts.storage import RECORD

FRAME = pd.DataFrame(
    {
        "anchor": ["a cat", "a dog", "a rose"],
        "positive": ["a kitten", "a puppy", "a tulip"],
        "domain": ["animals", "animals", "plants"],
    }
)


def test_compiled_in_memory_equals_compiled_to_folder(
    compiled: Compile, corpus: CorpusFolder, tmp_path: Path
) -> None:
    in_memory = compile_pairs(corpus.path, domains=RULES, **SMALL)
    on_disk = compiled()
    assert in_memory.path is None
    assert in_memory.domains == on_disk.domains
    assert in_memory.fingerprint() == on_disk.fingerprint()
    for name in SPLITS:
        assert in_memory.split(name).equals(on_disk.split(name))
    assert in_memory.known_links().equals(on_disk.known_links())
    saved = in_memory.save(tmp_path / "saved")
    for file in {*on_disk.path.iterdir()} - {on_disk.path / RECORD}:
        assert (saved.path / file.name).read_bytes() == file.read_bytes(), file.name


def test_corpus_from_tables_gives_the_same_pairs(compiled: Compile, corpus: CorpusFolder) -> None:
    papers, citations = (pq.read_table(file) for file in (corpus.papers, corpus.citations))
    pairs = compile_pairs((papers.to_pandas(), citations), domains=RULES, **SMALL)
    for name in SPLITS:
        assert pairs.split(name).equals(compiled().split(name))


def test_papers_with_a_domain_column_need_no_rules(corpus: CorpusFolder) -> None:
    papers, citations = (pq.read_table(file) for file in (corpus.papers, corpus.citations))
    domain = pa.array(["one" if row % 2 else "two" for row in range(papers.num_rows)])
    pairs = compile_pairs((papers.append_column("domain", domain), citations), **SMALL)
    assert pairs.domains == ["one", "two"]


def test_texts_that_papers_lack_and_domains_that_rules_replace_are_told(
    corpus: CorpusFolder, caplog: pytest.LogCaptureFixture
) -> None:
    papers, citations = (pq.read_table(file) for file in (corpus.papers, corpus.citations))
    frame = papers.to_pandas().assign(domain="one")
    settings = SMALL | {"unit": "abstract"}
    compile_pairs((frame, citations), domains=RULES, **settings)
    assert "the rules of `domains` sort the papers: their column `domain` is not read" in caplog.text
    assert "they are in no pair" not in caplog.text
    frame.loc[frame.index % 20 == 0, "abstract"] = None
    frame.loc[frame.index % 20 == 10, "abstract"] = ""
    frame.loc[frame.index % 20 == 5, "abstract"] = " \n"
    frame.loc[frame.index % 5 == 1, "retracted"] = True
    compile_pairs((frame, citations), **settings)
    assert f"of {len(frame):,} papers have no abstract: they are in no pair" in caplog.text
    assert "retracted papers are in no pair (" in caplog.text
    assert "papers that are no research" not in caplog.text
    assert caplog.text.count("is not read") == 1


def test_papers_without_a_domain_are_told_where_the_column_counts(
    corpus: CorpusFolder, caplog: pytest.LogCaptureFixture
) -> None:
    papers, citations = (pq.read_table(file) for file in (corpus.papers, corpus.citations))
    names = [("one", "two", "Two", None)[row % 4] for row in range(papers.num_rows)]
    tables = (papers.append_column("domain", pa.array(names)), citations)
    compile_pairs(tables, **SMALL)
    assert f"papers: {names.count(None):,} of {papers.num_rows:,} have no `domain`" in caplog.text
    assert "papers: domains differ in case alone (1), such as 'Two' and 'two'" in caplog.text
    caplog.clear()
    compile_pairs(tables, domains=RULES, **SMALL)
    assert "their column `domain` is not read" in caplog.text
    assert "have no `domain`" not in caplog.text


def test_corpus_tables_have_one_row_per_paper_and_whole_ids() -> None:
    papers = pd.DataFrame({"paper_id": [1, 2], "title": ["a", "b"]})
    citations = pd.DataFrame({"citing": [1, 2], "cited": [2, None]})
    corpus = CorpusFolder.of((papers, citations))
    assert pq.read_table(corpus.citations)["cited"].to_pylist() == ["2", None]
    with pytest.raises(InputError, match="1 `paper_id` stand in several rows, the first is '1'"):
        CorpusFolder.of((pd.concat([papers, papers[:1]]), citations))
    with pytest.raises(InputError, match="1 of 3 rows have no `paper_id`"):
        CorpusFolder.of(pd.DataFrame({"paper_id": ["x", "y", None]}))


@pytest.mark.parametrize("form", ["pandas", "arrow", "polars", "datasets"])
def test_tables_of_every_library(form: str) -> None:
    table = FRAME
    if form == "arrow":
        table = pa.Table.from_pandas(FRAME)
    elif form == "polars":
        table = pytest.importorskip("polars").from_pandas(FRAME)
    elif form == "datasets":
        table = pytest.importorskip("datasets").Dataset.from_pandas(FRAME)
    pairs = Pairs.of(table)
    assert tuple(pairs.split("train").column_names) == PAIR_COLUMNS
    assert pairs.split("train")["anchor"].to_pylist() == list(FRAME["anchor"])
    assert pairs.split("validation").num_rows == 0
    assert pairs.domains == ["animals", "plants"]
    assert repr(pairs) == "Pairs(train: 3, validation: 0, test: 0; domains: animals, plants; in memory)"


def test_defaults_of_optional_columns() -> None:
    pairs = Pairs.from_tables(train={"anchor": ["a", "b"], "positive": ["b", "c"]})
    rows = pairs.split("train").to_pylist()
    assert [(row["label"], row["domain"], row["count"]) for row in rows] == [(1, "all", 1)] * 2
    assert rows[0]["positive_id"] == rows[1]["anchor_id"]
    assert pairs.known_links().num_rows == 2


def test_columns_count_whatever_their_case(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sentence_experts")
    row = {
        "Anchor": "a",
        "positive ": "b",
        "Label": 0,
        "Route": "x",
        "NEGATIVE": "c",
        "Split": "Dev",
        "note": "",
    }
    table = Pairs.of([row]).split("validation")
    read = table.select(["anchor", "positive", "label", "domain", "negative"]).to_pylist()
    assert read == [{"anchor": "a", "positive": "b", "label": 0, "domain": "x", "negative": "c"}]
    assert "not read: the column note" in caplog.text
    with pytest.raises(InputError, match="two columns are 'label'"):
        Pairs.of([row | {"label": 1}])
    assert Pairs.of([row | {"Year": 1, "year": 2}]).split("validation").num_rows == 1


def test_a_dataset_of_one_file_is_divided_by_its_column() -> None:
    rows = [{"anchor": f"a {n}", "positive": f"b {n}", "split": ("train", "test")[n % 2]} for n in range(6)]
    for pairs in (Pairs.of({"train": rows}), Pairs.of(rows)):
        assert pairs.split("test")["anchor"].to_pylist() == ["a 1", "a 3", "a 5"]
    assert Pairs.of({"train": rows[::2], "test": rows[1::2]}).split("test").num_rows == 3


def test_split_column_and_saving(tmp_path: Path) -> None:
    table = FRAME.assign(split=["train", "train", "test"], label=[1, 1, 0])
    pairs = Pairs.of(table)
    saved = pairs.save(tmp_path / "pairs")
    assert saved.fingerprint() == pairs.fingerprint()
    assert Pairs.of(tmp_path / "pairs").split("test").equals(pairs.split("test"))
    assert saved.to_pandas()["split"].tolist() == ["train", "train", "test"]
    assert Pairs.of(pairs) is pairs
    assert pairs.save(tmp_path / "pairs").fingerprint() == pairs.fingerprint()
    with pytest.raises(UsageError, match="holds other files"):
        pairs.save(tmp_path)


def test_pairs_are_compiled_once(corpus: CorpusFolder, tmp_path: Path) -> None:
    def compiled(**settings: Any) -> tuple[str, int]:
        made = compile_pairs(corpus, out=tmp_path / "p", domains=rules, **SMALL | settings)
        return made.fingerprint(), (tmp_path / "p" / "test.parquet").stat().st_mtime_ns

    rules = tmp_path / "rules.yaml"
    shutil.copy(RULES, rules)
    first = compiled()
    (tmp_path / "p" / "notes.txt").write_text("mine")
    assert compiled(engine="local[1]") == first
    with pytest.raises(UsageError, match=r"another seed \(0\)"):
        compiled(seed=1)
    rules.write_text(RULES.read_text().replace("none: drop", "none: rest"))
    with pytest.raises(UsageError, match="other domains"):
        compiled()
    shutil.copy(RULES, rules)
    assert compiled(seed=1, overwrite=True) != first
    assert (tmp_path / "p" / "notes.txt").read_text() == "mine"
    (tmp_path / "p" / "test.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"test\.parquet has changed"):
        compiled(seed=1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"anchor": ["a"]}, "lacks the column positive"),
        ({"anchor": ["a"], "positive": [None]}, "'positive' has rows without"),
        ({"anchor": ["a"], "positive": [" \u200b\n"]}, "'positive' has rows without"),
        ({"anchor": ["a"], "positive": ["b"], "label": [2]}, "label is 1"),
        ({"anchor": [], "positive": []}, "no pairs"),
        ({"anchor": ["a"], "positive": ["b"], "split": ["later"]}, "'later' is none of"),
    ],
)
def test_tables_that_hold_no_pairs_are_refused(columns: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs.of(columns)


@pytest.mark.parametrize("form", ["csv", "jsonl", "list of dicts", "mapping of splits"])
def test_pairs_of_files_and_python_objects(form: str, tmp_path: Path) -> None:
    table = FRAME.rename(columns={"domain": "route"}).assign(split=["train", "train", "dev"], label=1)
    file = tmp_path / f"pairs.{form}"
    if form == "csv":
        table.to_csv(file, index=False)
    elif form == "jsonl":
        table.to_json(file, orient="records", lines=True)
    source = {
        "list of dicts": table.to_dict("records"),
        "mapping of splits": {"train": table[:2], "val": table[2:]},
    }.get(form, file)
    pairs = Pairs.of(source)
    assert [pairs.split(name).num_rows for name in SPLITS] == [2, 1, 0]
    assert pairs.domains == ["animals", "plants"]
    assert pairs.fingerprint() == Pairs.of(table).fingerprint()


def test_negatives_are_kept_and_texts_with_the_same_words_are_one_paper(tmp_path: Path) -> None:
    pairs = Pairs.of([{"anchor": "A cat.", "positive": "a cat", "negative": "a dog"}])
    row = pairs.split("train").to_pylist()[0]
    assert row["anchor_id"] == row["positive_id"]
    assert row["negative"] == "a dog"
    assert pairs.save(tmp_path / "pairs").to_pandas()["negative"].tolist() == ["a dog"]


@pytest.mark.parametrize("column", ["anchor", "positive", "negative"])
@pytest.mark.parametrize("value", [1.5, ["a"], {"a": "b"}])
def test_columns_that_are_no_texts_are_refused(column: str, value: object) -> None:
    row = {"anchor": "a", "positive": "b", "negative": "c", column: value}
    with pytest.raises(InputError, match=f"column {column}: texts are expected, not a column of"):
        Pairs.of([row])


@pytest.mark.parametrize(
    ("column", "value", "keep", "count"),
    [("retracted", True, "keep_retracted", "retracted"), ("kind", "correction", "keep_notices", "notices")],
)
def test_retracted_papers_and_notices_are_left_out_of_pairs_unless_kept(
    column: str, value: object, keep: str, count: str
) -> None:
    papers = pd.DataFrame(
        {
            "paper_id": [f"w{n}" for n in range(20)],
            "title": [f"Work {n}" for n in range(20)],
            "retracted": False,
            "kind": "article",
        }
    )
    papers.loc[papers.paper_id.isin(["w3", "w4"]), column] = value
    rows = [(f"c{n}", f"w{(n + k) % 20}", f"Work {(n + k) % 20}") for n in range(20) for k in range(3)]
    citations = pd.DataFrame(rows, columns=["citing", "cited", "cited_title"])
    settings = {"unit": "title", "split": "random", "fractions": "0.5,0.25,0.25"}
    left_out = compile_pairs(tables_corpus(papers, citations), settings)
    kept = compile_pairs(tables_corpus(papers, citations), settings | {keep: True})
    assert left_out.manifest[count] == kept.manifest[count] == 2
    for pairs, expected in ((left_out, set()), (kept, {"w3", "w4"})):
        frame = pairs.to_pandas()
        assert {"w3", "w4"} & {*frame.anchor_id, *frame.positive_id} == expected


@pytest.mark.parametrize(
    ("title", "keep", "count"),
    [("RETRACTED: Work", "keep_retracted", "retracted"), ("Correction: Work", "keep_notices", "notices")],
)
def test_works_outside_the_corpus_are_judged_by_their_titles(title: str, keep: str, count: str) -> None:
    papers = pd.DataFrame(
        {"paper_id": [f"c{n}" for n in range(30)], "title": [f"Paper {n}" for n in range(30)]}
    )
    named = {n: f"{title} {n}" if n in (3, 4) else f"Work {n}" for n in range(20)}
    rows = [(f"c{n}", f"w{(n + k) % 20}", named[(n + k) % 20]) for n in range(30) for k in range(3)]
    citations = pd.DataFrame(rows, columns=["citing", "cited", "cited_title"])
    settings = {"unit": "title", "split": "random", "fractions": "0.5,0.25,0.25"}
    left_out = compile_pairs((papers, citations), settings)
    kept = compile_pairs((papers, citations), settings | {keep: True})
    assert left_out.manifest[count] == kept.manifest[count] == 2
    for pairs, expected in ((left_out, set()), (kept, {"w3", "w4"})):
        frame = pairs.to_pandas()
        assert {"w3", "w4"} & {*frame.anchor_id, *frame.positive_id} == expected


def test_ids_of_tables_in_memory_are_without_spaces() -> None:
    papers = pd.DataFrame(
        {"paper_id": [f"w{n}" + " " * (n % 2) for n in range(20)], "title": [f"Work {n}" for n in range(20)]}
    )
    citations = pd.DataFrame(
        [(f"c{n}", f" w{(n + k) % 20}") for n in range(20) for k in range(3)], columns=["citing", "cited"]
    )
    settings = {"unit": "title", "split": "random", "fractions": "0.5,0.25,0.25"}
    stripped = (
        papers.assign(paper_id=papers["paper_id"].str.strip()),
        citations.assign(cited=citations["cited"].str.strip()),
    )
    given, right = (compile_pairs(each, settings) for each in ((papers, citations), stripped))
    assert given.to_pandas().equals(right.to_pandas())


def test_rows_that_contradict_each_other_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [("a", "b", 1), ("B", "a", 0), ("a", "c", 1), ("a", "c", 1)]
    table = pd.DataFrame(rows, columns=["anchor", "positive", "label"])
    Pairs.of({"test": table})
    assert "test: 2 rows say the opposite of others about the same texts" in caplog.text
    caplog.clear()
    Pairs.of({"test": table[1:]})
    assert "test: rows that repeat another one count each time: 1 of 3" in caplog.text
    caplog.clear()
    Pairs.of({"train": table[2:], "test": table[1:3]})
    assert not caplog.text


def test_two_names_of_one_set_are_refused() -> None:
    row = {"anchor": "a", "positive": "b", "label": 1}
    with pytest.raises(InputError, match="has val and dev, which are one split here"):
        Pairs.of({"train": [row], "val": [row], "dev": [row]})
