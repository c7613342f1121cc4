from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sentence_experts
from helpers.samples import make_tiny_encoder, write_corpus
from helpers.searching import find_papers
from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, PAPERS_SCHEMA, CorpusFolder
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Paper
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import unit
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.retrieval.closeness import UNRELATED, Scale, is_nothing_close
from sentence_experts.retrieval.matching import match_papers
from sentence_experts.retrieval.papers import Filters, Papers
from sentence_experts.retrieval.search import search
from sentence_experts.retrieval.search_routes import (
    SearchRoute,
    find_blend,
    find_search_route,
    list_search_routes,
)
from sentence_experts.retrieval.searcher import Searcher, sentence_spans
from sentence_experts.storage import write_parquet

PAPERS = [
    {"paper_id": "doi:10.1000/a", "doi": "10.1000/a", "pmid": "11", "title": "Rice in drought", "year": 2012},
    {"paper_id": "pmid:12", "pmid": "12", "title": "Wheat rust", "year": 2015, "journal": "Plants, Daily"},
    {"paper_id": "pmc:PMC7", "pmcid": "PMC7", "title": "Sleep", "year": None, "subjects": ["Brain"]},
    {"paper_id": "mine-1", "title": "Memory in rats", "year": 2020, "article_type": "Review"},
    {"paper_id": "mine-2", "title": None, "year": 2021, "article_type": "letter"},
]
ABSTRACT = "Rats slept for hours. E. coli did not. Memory was tested after that."
CITATIONS = [("doi:10.1000/a", "pmid:12"), ("mine-1", "doi:10.1000/a"), ("mine-1", "doi:10.1000/else")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> CorpusFolder:
    folder = tmp_path_factory.mktemp("corpus")
    names = list(dict.fromkeys(name for paper in PAPERS for name in paper))
    rows = [dict.fromkeys(names) | {"abstract": None} | paper for paper in PAPERS]
    rows[3]["abstract"] = ABSTRACT
    links = [dict(zip(("citing", "cited"), pair, strict=True)) for pair in CITATIONS]
    citations = pa.Table.from_pylist([dict.fromkeys(CITATIONS_SCHEMA.names) | link for link in links])
    papers = [{each.name: row.get(each.name) for each in PAPERS_SCHEMA} for row in rows]
    for paper in papers:
        paper["retracted"] = bool(paper["retracted"])
    write_parquet(folder / "papers.parquet", pa.Table.from_pylist(papers, PAPERS_SCHEMA))
    write_parquet(folder / "citations.parquet", citations.cast(CITATIONS_SCHEMA))
    return CorpusFolder(folder, {"counts": {}, "tables": {"papers.parquet": "", "citations.parquet": ""}})


@pytest.fixture(scope="module")
def searcher(plain, corpus) -> Searcher:
    return Searcher(plain, corpus)


def test_like_leaves_its_papers_out_and_finds_them_by_any_id(searcher):
    for name in ("10.1000/A", "https://doi.org/10.1000/a", "pmid:11", "11", "doi:10.1000/a"):
        assert searcher.papers.find([name]) == [0]
    assert searcher.papers.find(["PMC7", "mine-1", "12"]) == [2, 3, 1]
    liked = searcher.papers.find(["PMC7", "mine-1"])
    blend = searcher.blend()
    twice = searcher.mean_vectors([*liked, liked[0]], blend)
    assert np.array_equal(twice, searcher.mean_vectors(liked, blend)), "a paper counts once"
    (compared,) = searcher.compare(searcher.mean_vectors(liked, blend), blend)
    assert sorted(hit.row for hit in searcher.find(compared, 9, searcher.passing(None, liked))) == [0, 1]
    vectors = searcher.vectors(blend.main).of_rows([2, 3])
    assert compared.queries[0] == pytest.approx(unit(vectors.mean(axis=0, keepdims=True))[0])
    with pytest.raises(InputError, match=r"no paper with the id '10\.1000/b'"):
        searcher.papers.find(["10.1000/b"])
    with pytest.raises(UsageError, match="no text"):
        searcher.mean_vectors(searcher.papers.find(["mine-2"]), blend)


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ({"year": "2015"}, [1]),
        ({"year": "2013..2020"}, [1, 3]),
        ({"year": "2015.."}, [1, 3]),
        ({"year": "..2014"}, [0]),
        ({"type": ["review"]}, [3]),
        ({"journal": ["plants, daily"]}, [1]),
        ({"journal": ["plants*"], "year": "2015"}, [1]),
        ({"domain": ["brain"]}, [2]),
        ({"type": ["review"], "year": 2015}, []),
        ({}, [0, 1, 2, 3]),
    ],
)
def test_filters_choose_the_papers_that_are_looked_at(searcher, filters, rows):
    hits = find_papers(searcher, "rice", filters=Filters.of(**filters))
    assert sorted(hit.row for hit in hits) == rows
    everything = {hit.row: hit.score for hit in find_papers(searcher, "rice")}
    assert all(hit.score == pytest.approx(everything[hit.row]) for hit in hits)


@pytest.mark.parametrize(
    "year", ["", "..", "2020..2015", "20155", "15..", "x", "2015-2020", "2015..2016..2017"]
)
def test_a_year_of_another_form_is_refused(year):
    with pytest.raises(UsageError, match="`year`"):
        Filters.of(year)


def test_a_value_that_no_paper_has_is_named_with_those_that_there_are(searcher):
    with pytest.raises(InputError, match=r"`type`: no paper of .* has 'poem'; there are Review, letter"):
        find_papers(searcher, "rice", filters=Filters.of(type=["poem"]))


def test_mesh_is_compared_without_stars_and_qualifiers() -> None:
    headings = [["*Mice/genetics/*metabolism", "Sleep"], None, ["Mice"], [], ["Mice, Nude"]]
    rows = [{"id": name, "title": "T", "mesh": mesh} for name, mesh in zip("abcde", headings, strict=True)]
    corpus = import_corpus(papers=rows, workers=1)
    papers = Papers(corpus)
    assert papers.places(Filters.of(mesh=["mice"])).nonzero()[0].tolist() == [0, 2]
    assert papers.places(Filters.of(mesh=["*ice*"])).nonzero()[0].tolist() == [0, 2, 4]
    assert papers.values("mesh") == {"Mice": 2, "Mice, Nude": 1, "Sleep": 1}


def test_a_value_with_a_star_is_no_pattern_and_papers_without_a_year_are_counted() -> None:
    keywords = ["C*-algebras", "Clifford algebras, C-algebras"]
    rows = [{"id": each, "title": "T", "keywords": [each], "year": None} for each in keywords]
    papers = Papers(import_corpus(papers=[*rows, {"id": "3", "title": "T", "year": 2001}], workers=1))
    assert papers.places(Filters.of(keyword=["c*-Algebras"])).nonzero()[0].tolist() == [1]
    assert papers.places(Filters.of(keyword=["c*-a*"])).sum() == 2
    counts = [papers.without_year(Filters.of(*each)) for each in ((), ("2001",))]
    assert [*counts, papers.without_year(Filters.of("2001", keyword=[keywords[0]]))] == [0, 2, 1]


def test_a_hostile_pattern_takes_no_time(corpus) -> None:
    with pytest.raises(InputError, match="no paper"):
        Papers(corpus).places(Filters.of(journal=["*" * 60 + "x", "*a*" * 60]))


def test_rows_of_many_ids_are_those_of_each(corpus) -> None:
    papers = Papers(corpus)
    ids = ["mine-1", "https://doi.org/10.1000/A", "nowhere", "12", "pmid:12", "PMC7", "", "mine-1"]
    assert (
        papers.rows_of(ids) == [papers.rows_of([each])[0] for each in ids] == [3, 0, None, 1, 1, 2, None, 3]
    )
    assert papers.rows_of([]) == []


def test_facts_citations_and_values(searcher):
    first, second = searcher.papers.facts([2, 0])
    assert (first["pmcid"], second["title"]) == ("PMC7", "Rice in drought")
    assert second["link"] == "https://doi.org/10.1000/a"
    assert searcher.papers.facts([3])[0]["link"] is None
    assert searcher.papers.citations([0, 1, 2]) == [(0, 1)]
    assert sorted(searcher.papers.citations(range(5))) == [(0, 1), (3, 0)]
    assert searcher.papers.values("year") == {"2012": 1, "2015": 1, "2020": 1, "2021": 1}
    assert searcher.papers.values("type", [3]) == {"Review": 1}
    assert searcher.papers.values("domain") == {"Brain": 1}


def test_citations_that_were_changed_are_refused(tmp_path: Path) -> None:
    rows = [{"id": each, "title": f"Paper {each}", "abstract": ""} for each in "ab"]
    corpus = import_corpus(papers=rows, citations=[{"citing": "a", "cited": "b"}], out=tmp_path / "corpus")
    assert Papers(corpus).citations([0, 1]) == [(0, 1)]
    table = pq.read_table(corpus.citations)
    write_parquet(corpus.citations, table.slice(0, 0))
    with pytest.raises(InputError, match=r"citations.parquet has changed since it was written"):
        Papers(CorpusFolder.open(tmp_path / "corpus")).citations([0, 1])


def test_papers_stay_those_of_the_corpus_that_was_opened(tmp_path: Path) -> None:
    rows = [{"id": name, "title": name, "full_text": f"Body of {name}."} for name in "ab"]
    links = [{"citing": "a", "cited": "b"}]
    folder = tmp_path / "corpus"
    kept = Papers(import_corpus(papers=rows, citations=links, out=folder))
    changed = [row | {"full_text": "Another body."} for row in rows[::-1]]
    import_corpus(papers=changed, citations=[{"citing": "b", "cited": "a"}], out=folder, overwrite=True)
    for _ in range(2):
        assert kept.citations([0, 1]) == [(0, 1)]
        assert kept.texts([1], "passages") == ["b\nBody of b."]
        shutil.rmtree(folder, ignore_errors=True)


def test_a_listed_paper_is_one_of_the_same_title_unless_its_doi_says_otherwise() -> None:
    row = {"id": "10.1234/a", "title": "Introduction", "authors": "Smith, Ann; Ito, B", "year": 2012}
    papers = Papers(import_corpus(papers=[row, {"id": "10.1234/b", "title": "Rice"}]))
    work = Paper(title="Introduction.", doi="10.9999/other", authors=("Smith, A.",), year=2011)  # a preprint
    others = {"authors": ("Ito, B",)}, {"authors": ()}, {"year": 2001}
    same = {"year": None}, {"authors": ("Ann Smith",)}, {"year": 2009}, {"doi": None, "authors": ()}
    assert match_papers(papers, [work, *(replace(work, **each) for each in others)]) == [0, None, None, None]
    assert match_papers(papers, [replace(work, **each) for each in same]) == [0] * 4
    row = {"id": "10.1234/a", "title": "Deep learning for proteins", "authors": "Wei Wang", "year": 2020}
    papers_of_wang = Papers(import_corpus(papers=[row, {"id": "10.1234/b", "title": "Rice"}]))
    zhang = Paper(title=row["title"], doi="10.9999/other", authors=("Wei Zhang",), year=2020)
    assert match_papers(papers_of_wang, [zhang]) == [None], "with two DOIs the family name counts"
    # Without a DOI a short title tells little, a long one enough.
    row = {"id": "10.1234/c", "title": "Yields of rice in drought", "authors": "Ito, B", "year": 2012}
    papers = Papers(import_corpus(papers=[row, {**row, "id": "10.1234/a", "title": "Introduction"}]))
    other = Paper(title="Introduction", authors=("Jones, C",), year=2012)
    near = replace(other, authors=("Ito, Bea",))
    listed = [
        other,
        replace(near, year=1980),
        near,
        replace(other, authors=()),
        replace(other, title=row["title"]),
    ]
    assert match_papers(papers, listed) == [None, None, 0, 0, 1]
    # Another year's edition, by others.
    edition = replace(other, title=row["title"], year=1980)
    assert match_papers(papers, [edition, replace(edition, authors=("Ito, B",))]) == [None, 1]


@pytest.mark.parametrize(
    ("known", "listed", "is_same"),
    [
        ("Smith, John", "Jones, John", False), ("de Vries, A", "de Boer, B", False), ("O, K", "Li, M", False),
        ("王, 伟", "李, 娜", False), ("Иванов, Иван", "Петров, Пётр", False),
        ("Yamada, Taro", "山田 太郎", True), ("Breiman, Leo", "Breiman L", True),
        ("van der Berg, J", "Berg, Jan van der", True), ("García-López, A", "García, A", True),
        ("O'Brien, J", "OBrien, Jane", True), ("O'Brien, J", "O'Neill, K", False),
        ("Li, Wei", "Wang, Li", False), ("Li, Wei", "Wei, Li", True), ("D'Angelo, M", "Angelo, M D", True),
        ("García, A", "Garcia, Ana", True), ("Breiman L", "Leo Breiman", True),
    ],
)  # fmt: skip
def test_first_authors_tell_works_of_one_short_title_apart(known: str, listed: str, is_same: bool) -> None:
    rows = {"paper_id": ["doi:10.1234/a", "doi:10.1234/b"], "title": ["Introduction", "Rice"]}
    table = pa.table({**rows, "authors": [[known], []], "year": [2012, None]})
    papers = Papers(CorpusFolder.of(table))
    other = Paper(title="Introduction", authors=(listed,), year=2012)
    assert match_papers(papers, [other]) == [0 if is_same else None]


@pytest.mark.parametrize("name", ["title", "Title", "TITLE"])
def test_columns_of_a_table_that_is_searched_are_named_in_any_case(plain_model: Path, name: str) -> None:
    rows = [{"paper_id": "a", name: "Sleep"}, {"paper_id": "b", name: "Rice"}]
    (found,) = search(plain_model, pd.DataFrame(rows), "Rice", unit="title", top_k=1).papers
    assert found[0]["title"] == "Rice"


def test_columns_in_another_case_count_where_their_values_fit(caplog: pytest.LogCaptureFixture) -> None:
    rows = {
        "Paper_ID": ["a", "b"],
        "Title": ["x", "y"],
        "Year": [2001, 2002],
        "Authors": ["A B", "C"],
        "DOI": [None, "10.1/a"],
    }
    frame = CorpusFolder.of(pd.DataFrame(rows)).to_pandas()
    assert (frame["year"].tolist(), frame["doi"].tolist()[1]) == ([2001, 2002], "10.1/a")
    assert "papers: the column 'Authors' is not read" in caplog.text


def test_best_sentence_is_the_one_nearest_to_the_query(searcher):
    assert [ABSTRACT[a:b] for a, b in sentence_spans(ABSTRACT)] == [
        "Rats slept for hours.",
        "E. coli did not.",
        "Memory was tested after that.",
    ]
    (compared,) = searcher.compare(searcher.encode(["E. coli did not."], searcher.blend()), searcher.blend())
    spans = searcher.best_sentences(compared, [ABSTRACT, ""])
    assert ABSTRACT[slice(*spans[0])] == "E. coli did not."
    assert spans[1] is None


def known(default=None, **prompts) -> KnownRoutes:
    return KnownRoutes.of("m", prompts, default)


def test_queries_and_documents_have_a_route_of_both_routes():
    tasks = known(query="search query: ", document="search document: ", clustering="clustering: ")
    assert list_search_routes(tasks) == (
        SearchRoute("document", "document", "query"),
        SearchRoute("clustering", "clustering", "clustering"),
    )
    pair = SearchRoute("document", "document", "query")
    for route in (None, "query", "document"):
        assert find_search_route(tasks, route) == pair
    assert find_search_route(tasks, "clustering").query_route == "clustering"
    with pytest.raises(RouteError, match="no route 'x'"):
        find_search_route(tasks, "x")
    domains = known("a", a="[A]", b="[B]", query="[A]", document="[A]")  # as a default route is saved
    assert [route.name for route in list_search_routes(domains)] == ["a", "b"]
    assert find_search_route(domains) == SearchRoute("a", "a", "a")
    with pytest.raises(RouteError, match="needs a route"):
        find_search_route(known(a="[A]", b="[B]"))
    assert list_search_routes(known()) == (SearchRoute("", None, None),)
    assert find_search_route(known()).name == ""


def test_hybrid_brings_the_paper_with_the_rare_word_up(searcher):
    text = "Memory in rats tested"
    plain = [hit.row for hit in find_papers(searcher, text)]
    hybrid = find_papers(searcher, text, hybrid=True)
    assert sorted(plain) == sorted(hit.row for hit in hybrid)
    assert hybrid[0].row == 3
    scores = {hit.row: hit.score for hit in find_papers(searcher, text)}
    assert all(hit.score == pytest.approx(scores[hit.row], abs=1e-5) for hit in hybrid)
    only = find_papers(searcher, text, hybrid=True, filters=Filters.of(2015))
    assert [hit.row for hit in only] == [1]


def test_rules_sort_papers_into_domains_for_a_filter(corpus):
    papers = Papers(corpus, {"crops": {"title": ["rice", "wheat"]}, "brain": {"subjects": ["Brain"]}})
    assert np.flatnonzero(papers.places(Filters.of(domain=["crops"]))).tolist() == [0, 1]
    assert papers.values("domain") == {"crops": 2, "brain": 1}


def test_the_task_file_says_which_route_is_for_queries(tmp_path, minilm):
    rows = [{"anchor": "rice?", "positive": "Rice."}, {"anchor": "rust?", "positive": "Rust."}]
    instructions = {"ask": "question: ", "answer": "passage: "}
    task = {"kind": "retrieval", "instructions": instructions, "datasets": {"own": rows}}
    file = tmp_path / "tasks.yaml"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task["datasets"] = {"own": {"file": "rows.jsonl"}}
    file.write_text(json.dumps({"tasks": {"qa": task}}))
    plain = make_tiny_encoder(tmp_path / "plain", minilm)
    folder = tmp_path / "model"
    sentence_experts.extend(plain, tasks=file, out=folder)
    pair = SearchRoute("answer", "answer", "ask")
    assert list_search_routes(KnownRoutes.read(folder)) == (pair,)
    model = load(folder, device="cpu")
    assert find_search_route(BatchEncoder(model).known_routes) == pair
    grown = sentence_experts.add_route(folder, "more", prefix="more: ")
    assert find_search_route(BatchEncoder(grown).known_routes) == pair


def test_close_and_weak_are_told_apart_in_a_library_of_one_subject(minilm: str) -> None:
    papers = [
        {"id": f"10.1/{kind}{place}".replace(" ", "-"), "title": f"{kind} of Anopheles mosquitoes in {place}"}
        for kind in ("Larval ecology", "Insecticide resistance", "Biting behaviour", "Population genetics")
        for place in ("Kenya", "Mali", "Ghana", "Benin", "Uganda", "Sudan", "Angola", "Niger", "Chad")
    ]
    searcher = Searcher(BatchEncoder(load(minilm, device="cpu")), import_corpus(papers=papers))
    queries = ("pyrethroid resistance of malaria vectors", "baroque violin bows")
    near, far = (find_papers(searcher, query) for query in queries)
    assert near[0].closeness in ("fair", "close")
    assert {hit.closeness for hit in far} == {"weak"}
    assert not is_nothing_close(hit.to_json() for hit in near)
    assert is_nothing_close(hit.to_json() for hit in far)
    assert not is_nothing_close([])


def test_papers_like_another_are_judged_as_papers(plain_model: Path) -> None:
    model = load(plain_model)
    model.prompts = {"query": "question about the rice roots: ", "document": ""}
    rows = [{"id": str(n), "title": f"Rice roots {n}"} for n in range(4)]
    searcher = Searcher(BatchEncoder(model), import_corpus(papers=rows), "title")
    blend = searcher.blend()
    of_papers = searcher.encode_papers(UNRELATED, blend.main)
    assert searcher.scale(blend, like=True) == pytest.approx(Scale.of(of_papers @ of_papers.T), rel=1e-4)
    queries = searcher.encode(UNRELATED, blend)[0]
    assert searcher.scale(blend) == pytest.approx(Scale.of(queries @ of_papers.T), rel=1e-4)
    assert searcher.scale(blend).mean != pytest.approx(searcher.scale(blend, like=True).mean, rel=3e-4)


def test_papers_without_the_text_are_told(plain_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": str(n), "title": f"Rice {n}", "abstract": "Roots." * (n % 2)} for n in range(6)]
    corpus = import_corpus(papers=rows)
    assert len(search(plain_model, corpus, "rice", unit="abstract").papers[0]) == 3
    assert "3 of 6 papers have no abstract to compare, and are not compared" in caplog.text
    search(plain_model, corpus, like=["0", "1"], unit="abstract")
    assert "0 has no abstract to compare, and counts for nothing" in caplog.text


def test_nearness_is_in_standard_deviations_of_unrelated_texts() -> None:
    dice = np.random.default_rng(0)
    vectors = unit(dice.normal(size=(len(UNRELATED), 64)).astype(np.float32))
    scale = Scale.of(vectors @ vectors.T)
    off = (vectors @ vectors.T)[~np.eye(len(vectors), dtype=bool)]
    nearness = [scale.nearness(cosine) for cosine in off.tolist()]
    assert np.mean(nearness) == pytest.approx(0, abs=1e-4)
    assert np.std(nearness) == pytest.approx(1, rel=1e-3)


def test_ranks_of_given_papers_are_those_of_a_search(searcher):
    blend = searcher.blend()
    (compared,) = searcher.compare(searcher.encode(["rice"], blend), blend)
    assert compared.hits([4]) == [None]
    for filters in (None, Filters.of("2015..")):
        found = find_papers(searcher, "rice", filters=filters)
        ranked = compared.hits([hit.row for hit in found], searcher.passing(filters))
        assert [(hit.rank, hit.row) for hit in ranked] == [(hit.rank, hit.row) for hit in found]


def test_a_blend_is_the_weighted_sum_of_its_routes(tmp_path, experts):
    searcher = Searcher(experts, write_corpus(tmp_path))
    alone = {
        route: {hit.row: hit.score for hit in find_papers(searcher, "rice", route)}
        for route in ("crops", "neuro")
    }
    for route in ("crops=0.75,neuro=0.25", {"neuro": 1, "crops": 3}):
        hits = find_papers(searcher, "rice", route)
        shares = {row: (0.75 * alone["crops"][row], 0.25 * alone["neuro"][row]) for row in alone["crops"]}
        assert {hit.row: hit.score for hit in hits} == pytest.approx(
            {row: sum(both) for row, both in shares.items()}
        )
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for hit in hits:
            assert hit.route == ("crops" if shares[hit.row][0] > shares[hit.row][1] else "neuro")
    one = find_papers(searcher, "rice", "crops=1")
    assert one == find_papers(searcher, "rice", "crops") == find_papers(searcher, "rice", "crops=2,neuro=0")
    assert one[0].route is None


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("a=0,b=0", "sum to 0"),
        ("a=0.5,nope=0.5", "has no route 'nope'"),
        ("a=-1,b=2", "weight of 0 or more"),
        ("a=nan,b=2", "weight of 0 or more"),
        ("a=1,b", "weight of 0 or more"),
        ("a=", "weight of 0 or more"),
        ("a=1_0,b=1", "weight of 0 or more"),
        ("a=\u0661,b=1", "weight of 0 or more"),
        ("a=1,a=2", "each route once"),
        ({}, "sum to 0"),
        ({"a": True}, "weight of 0 or more"),
        ("a=1,x=1", "no route 'x'"),
    ],
)
def test_a_bad_blend_is_refused(route, message):
    with pytest.raises((UsageError, RouteError), match=message):
        find_blend(known(a="[A]", b="[B]"), route)


def test_query_and_document_routes_are_used_for_their_sides(tmp_path, minilm, corpus):
    folder = make_tiny_encoder(tmp_path / "tasks", minilm, ("query", "document"))
    encoder = BatchEncoder(load(folder, device="cpu"), batch_size=4)
    searcher = Searcher(encoder, corpus)
    query = encoder.encode(["rice"], "query", normalize=True)[0]
    papers = encoder.encode(["Rice in drought"], "document", normalize=True)[0]
    hit = next(hit for hit in find_papers(searcher, "rice") if hit.row == 0)
    assert hit.score == pytest.approx(float(query @ papers), abs=1e-5)
    assert (
        abs(float(query @ encoder.encode(["Rice in drought"], "query", normalize=True)[0]) - hit.score) > 1e-4
    )


def test_a_damaged_table_of_papers_is_named(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    corpus.papers.write_bytes(corpus.papers.read_bytes()[:500])
    with pytest.raises(InputError, match=r"papers\.parquet is damaged \(.*\): make it again"):
        Papers(corpus)


def test_papers_without_a_year_that_a_filter_leaves_out_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": str(n), "title": f"Rice {n}", "year": 2000 + n if n else None} for n in range(10)]
    Papers(import_corpus(papers=rows)).places(Filters.of("2005.."))
    assert "`year`" not in caplog.text
    papers = Papers(import_corpus(papers=rows[:5]))
    for year in ("2001..", "2002.."):
        papers.places(Filters.of(year))
    assert caplog.text.count("`year`: 1 of 5 papers have none, and are left out") == 1


def test_the_path_of_a_table_is_no_query(
    plain_model: Path, corpus: CorpusFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("queries.csv").write_text("text\nrice\n")
    with pytest.raises(UsageError, match=r"`queries`: 'queries.csv' is a file: give Path"):
        search(plain_model, corpus, "queries.csv")
    with pytest.raises(UsageError, match="give `queries` or `like`, not both"):
        search(plain_model, corpus, "others.csv", like=["mine-1"])


def test_papers_of_a_kind_whose_source_has_another_word_for_it_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    types = {"a": "review", "b": "systematic-review", "c": "research-article"}
    rows = [{"id": name, "title": f"Rice {name}", "article_type": kind} for name, kind in types.items()]
    papers = Papers(import_corpus(papers=rows))
    assert papers.places(Filters.of(type=["review*"], notices=True)).tolist() == [True, False, False]
    assert "papers of this kind" not in caplog.text
    assert papers.places(Filters.of(type=["review"], notices=True)).tolist() == [True, False, False]
    assert "papers of this kind have other types, too, and are left out: systematic-review (1)" in caplog.text
