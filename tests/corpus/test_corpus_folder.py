"""Tables of a corpus are written in row groups of one size, whatever batches come."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_experts.corpus.corpus_folder import DOMAINS_SCHEMA, PAPERS_SCHEMA, CorpusFolder
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.errors import InputError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.table_folder import TableFolder
from sentence_experts.storage import files, write_stream
from sentence_experts.tasks.dataset import Tasks


@pytest.mark.parametrize("sizes", [[], [1], [3, 9, 0, 2], [25], [10, 10]])
def test_batches_of_any_size_and_nullable_fields_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(files, "_ROWS_PER_GROUP", 10)
    rows = [{"paper_id": f"p{n}", "domain": "d"} for n in range(sum(sizes))]
    # Databases give nullable fields; the table's own may not be null.
    nullable = pa.schema([("paper_id", pa.string()), ("domain", pa.string())])
    assert not DOMAINS_SCHEMA.field("paper_id").nullable
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    batches = [
        pa.RecordBatch.from_pylist(rows[start : start + size], nullable)
        for start, size in zip(starts, sizes, strict=True)
    ]
    write_stream(tmp_path / "t.parquet", batches, DOMAINS_SCHEMA)
    written = pq.ParquetFile(tmp_path / "t.parquet")
    assert written.schema_arrow.equals(DOMAINS_SCHEMA)
    assert written.read().to_pylist() == rows
    groups = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert all(size == 10 for size in groups[:-1])
    assert sum(groups) == len(rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that tests copy."""
    row = {"id": "1", "title": "A", "abstract": "B"}
    return import_corpus(papers=[row], out=tmp_path_factory.mktemp("made") / "c").path


@pytest.mark.parametrize(
    "manifest",
    [[], {"format": "sentence-experts corpus", "format_version": 1, "counts": 5},
     {"format": "sentence-experts corpus", "format_version": 1, "tables": []},
     {"format": "sentence-experts corpus", "format_version": {}}],
)  # fmt: skip
def test_a_manifest_of_another_shape_is_refused(made: Path, tmp_path: Path, manifest: object) -> None:
    corpus = CorpusFolder.open(shutil.copytree(made, tmp_path / "c"))
    (corpus.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=str(corpus.path)):
        CorpusFolder.open(corpus.path)


def test_a_changed_manifest_is_refused(made: Path, tmp_path: Path) -> None:
    corpus = CorpusFolder.open(shutil.copytree(made, tmp_path / "c"))
    file = corpus.path / "manifest.json"
    whole = file.read_text()
    for old, new in (('"papers": 1', '"papers": 2'), ('"citations": 0', '"citations": 1')):
        assert old in whole
        file.write_text(whole.replace(old, new, 1))
        with pytest.raises(InputError, match=r"manifest\.json has changed since it was written"):
            CorpusFolder.open(corpus.path)
    file.write_text(whole)
    assert CorpusFolder.open(corpus.path).manifest == corpus.manifest


def test_a_corpus_of_a_newer_version_is_refused_by_name(made: Path, tmp_path: Path) -> None:
    corpus = CorpusFolder.open(shutil.copytree(made, tmp_path / "c"))
    for name in ("manifest.json", "made_from.json"):
        as_it_was = (corpus.path / name).read_text()
        (corpus.path / name).write_text(json.dumps(json.loads(as_it_was) | {"format_version": 99}))
        with pytest.raises(InputError, match=f"{name}: written by a newer sentence-experts"):
            CorpusFolder.open(corpus.path)
        (corpus.path / name).write_text(as_it_was)
    CorpusFolder.open(corpus.path)


@pytest.mark.parametrize("folder", [Pairs, Tasks])
def test_pairs_and_tasks_of_a_newer_version_are_refused_by_name(
    tmp_path: Path, folder: type[TableFolder]
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": folder.kind}))
    (tmp_path / "made_from.json").write_text(
        json.dumps({"format": "sentence-experts output", "format_version": 99})
    )
    with pytest.raises(InputError, match=r"made_from\.json: written by a newer sentence-experts"):
        folder.read_manifest(tmp_path)


def test_pairs_of_exchanged_tables_are_refused(made: Path, tmp_path: Path) -> None:
    corpus = CorpusFolder.open(shutil.copytree(made, tmp_path / "c"))
    corpus.citations.write_bytes(corpus.papers.read_bytes())
    with pytest.raises(InputError, match=r"a table of the corpus is damaged .*citing"):
        compile_pairs(corpus)


@pytest.mark.parametrize(
    ("doi", "label"), [("10.5555/simulated.1", "seen (SIMULATED)"), ("10.7554/elife.1", "seen")]
)
def test_label_says_if_papers_are_simulated(tmp_path: Path, doi: str, label: str) -> None:
    corpus = import_corpus(out=tmp_path / "seen", papers=[{"id": "1", "doi": doi, "title": "Sleep"}])
    assert corpus.label == label


def test_tables_that_were_changed_are_refused(tmp_path: Path) -> None:
    rows = [{"id": each, "title": f"Rice {each}", "abstract": "", "subjects": "Rice"} for each in "ab"]
    corpus = import_corpus(papers=rows, out=tmp_path / "corpus", workers=1)
    assert corpus.count_values("subjects") == {"Rice": 2}
    pq.write_table(pq.read_table(corpus.papers).slice(1), corpus.papers)
    for read in (corpus.to_pandas, lambda: corpus.count_values("subjects")):
        with pytest.raises(InputError, match=r"papers\.parquet has changed since it was written"):
            read()


def test_tables_in_memory_have_the_kinds_and_abstracts_of_an_import() -> None:
    rows = [
        {"title": "Correction: Rice", "abstract": "N/A"}, {"title": "Rice", "kind": "Review"},
        {"title": "Sleep", "article_type": "editorial", "abstract": "[No abstract available]"},
        {"title": "Oak", "kind": "article", "abstract": "An oak."},
    ]  # fmt: skip
    frame = (
        pa.Table.from_pylist(rows, PAPERS_SCHEMA).to_pandas().assign(paper_id=list("abcd"), retracted=False)
    )
    imported = import_corpus(papers=[{"id": each, **row} for each, row in zip("abcd", rows, strict=True)])
    columns = ["kind", "abstract", "retracted"]
    assert CorpusFolder.of(frame).to_pandas()[columns].equals(imported.to_pandas()[columns])


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("ns"), pa.dictionary(pa.int8(), pa.date32())])
def test_dates_in_the_place_of_years_are_years(kind: pa.DataType) -> None:
    days = pa.chunked_array([pa.array([date(2001, 12, 31), None], pa.date32())])
    days = days.dictionary_encode() if pa.types.is_dictionary(kind) else days.cast(kind)
    for name in ("year", "Year"):
        corpus = CorpusFolder.of(pa.table({"paper_id": ["a", "b"], "title": ["Rice", "Oak"], name: days}))
        assert corpus.to_pandas()["year"].tolist()[0] == 2001


def test_columns_that_differ_in_case_are_refused() -> None:
    with pytest.raises(InputError, match="two columns are named 'title' but for their case"):
        CorpusFolder.of(pa.table({"paper_id": ["a"], "TITLE": ["x1"], "Title": ["Rice"]}))


def test_titles_tell_which_papers_of_a_table_were_retracted() -> None:
    titles = ["RETRACTED: Rice", "Rice", None]
    papers = pa.table({"paper_id": ["a", "b", "c"], "title": titles})
    for table, expected in (
        (papers, [True, False, False]),
        (papers.append_column("retracted", pa.array([False, True, False])), [True, True, False]),
        (papers.drop_columns("title"), [False, False, False]),
    ):
        corpus = CorpusFolder.of(table)
        stored = pq.read_table(corpus.papers)
        assert stored["retracted"].to_pylist() == expected


def test_citations_in_memory_count_once() -> None:
    papers = [{"paper_id": each, "title": f"Rice {each}"} for each in "abc"]
    ends = ["ab", "ab", "aa", "ac", "ba"]
    rows = [{"citing": citing, "cited": cited} for citing, cited in ends]
    rows += [{"citing": "a", "cited": None, "cited_title": "Iron"}] * 2
    found = CorpusFolder.of((papers, rows)).to_pandas("citations")
    assert found["citing"].str.cat(found["cited"].fillna("-")).tolist() == ["ab", "ac", "ba", "a-", "a-"]


def test_columns_of_tables_in_memory_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = {"paper_id": ["a", "b", "c"], "title": ["Rice", "Oak", "Rye"], "domain": ["x", "X", None]}
    CorpusFolder.of(pa.table({**rows, "abstracts": ["", "", ""], "note": ["", "", ""]}))
    assert "papers: columns that are not used: abstracts (did you mean abstract?), note" in caplog.text
    assert "domain" not in caplog.text
