from __future__ import annotations

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.ranking import nearest
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.errors import InputError
from sentence_experts.retrieval import approximate
from sentence_experts.retrieval.build import CorpusIndex, build_index
from sentence_experts.retrieval.index import route_vectors, vector_settings
from sentence_experts.retrieval.lance_table import export_index

lancedb = pytest.importorskip("lancedb")

ROWS = [
    {
        "id": f"10.1000/{n}",
        "title": f"Rice {n}" if n % 5 else "",
        "abstract": "Voles slept." if n % 2 else "",
        "year": 2000 + n % 7,
        "journal": "Plants" if n % 3 else "Brain",
        "article_type": "review",
        "subjects": ["Crops", "Soil"] if n % 2 else ["Sleep"],
    }
    for n in range(1, 60)
    if n % 5 or n % 2
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return import_corpus(out=tmp_path_factory.mktemp("table") / "corpus", papers=ROWS)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_one_table_has_a_column_of_vectors_per_route(corpus, experts, tmp_path, scheme) -> None:
    index = build_index(experts, corpus, route=["crops", "neuro"], unit="title")
    uri = f"{scheme}{tmp_path / 'lance'}"
    assert sorted(export_index(index, uri)) == ["crops", "neuro"]
    table = lancedb.connect(uri).open_table("papers")
    rows = table.to_arrow()
    papers = pq.read_table(corpus.papers)
    assert rows["paper_id"].to_pylist() == papers["paper_id"].to_pylist()
    for route in ("crops", "neuro"):
        ours = route_vectors(experts, corpus, route, "title")
        theirs = rows[route].to_pylist()
        assert {place for place, each in enumerate(theirs) if each is not None} == set(ours.rows.tolist())
        assert np.array([theirs[row] for row in ours.rows]) == pytest.approx(ours.vectors)
        noted = table.schema.field(route).metadata
        assert noted[b"fingerprint"].decode() == vector_settings(experts, route, "title")["fingerprint"]
    assert {each.index_type for each in table.list_indices()} == {"BTree", "Bitmap", "LabelList", "FTS"}


def test_other_programs_filter_and_search_the_table(corpus, plain, tmp_path) -> None:
    export_index(build_index(plain, corpus), tmp_path / "lance")
    table = lancedb.connect(tmp_path / "lance").open_table("papers")
    near = route_vectors(plain, corpus)
    query = near.vectors[7]
    condition = "year >= 2003 AND array_has(subjects, 'Crops')"
    found = (
        table.search(query, vector_column_name="vector").where(condition, prefilter=True).limit(5).to_arrow()
    )
    papers = pq.read_table(corpus.papers)
    allowed = np.array([row["year"] >= 2003 and "Crops" in row["subjects"] for row in papers.to_pylist()])
    best = nearest(near, query, 5, allowed)[1]
    assert 1 - found["_distance"].to_numpy() / 2 == pytest.approx(best, abs=1e-5)
    words = table.search("voles", query_type="fts").limit(100).to_arrow()
    assert set(words["abstract"].to_pylist()) == {"Voles slept."}
    arrow = table.to_arrow()  # noqa: F841  # DuckDB finds it by its name
    counted = duckdb.sql("SELECT count(*), count(vector) FROM arrow WHERE year >= 2003").fetchall()[0]
    assert counted[0] == counted[1] == sum(row["year"] >= 2003 for row in papers.to_pylist())


def test_a_route_more_adds_a_column_and_large_corpora_an_index(
    corpus, experts, tmp_path, monkeypatch
) -> None:
    first = build_index(experts, corpus, route=["crops"])
    keep = [part for part in first.parts if part["unit"] == "title+abstract" and part["route"] == "crops"]
    export_index(CorpusIndex(corpus, keep), tmp_path)
    before = lancedb.connect(tmp_path).open_table("papers").to_arrow()
    keep += [
        part for part in build_index(experts, corpus, route=["neuro"]).parts if part["route"] == "neuro"
    ][:1]
    monkeypatch.setattr(approximate, "LARGE", 20)
    monkeypatch.setattr(approximate, "ivf", lambda *size: lancedb.index.IvfFlat("dot", num_partitions=1))
    export_index(CorpusIndex(corpus, keep), tmp_path)
    table = lancedb.connect(tmp_path).open_table("papers")
    assert table.to_arrow().drop(["neuro"]).equals(before)
    assert sum(each.index_type == "IvfFlat" for each in table.list_indices()) == 2


def test_what_cannot_be_written_is_named(corpus, plain, tmp_path) -> None:
    empty = CorpusIndex(corpus, [])
    with pytest.raises(InputError, match="`build_index` makes them"):
        export_index(empty, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export_index(build_index(plain, corpus), tmp_path / "file" / "below")
