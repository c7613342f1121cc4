"""`/search`: what it finds is what `search` finds, routes are compared rightly, bad requests are refused."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from starlette.testclient import TestClient

import sentence_experts
from helpers.samples import TOPICS
from helpers.searched_corpus import HOSTILE, QUERY, ask, ids
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.serve import search
from sentence_experts.serve.search import MAX_ABSTRACT


@pytest.fixture(scope="module")
def client(search_client: TestClient) -> TestClient:
    return search_client


def test_each_route_finds_what_search_finds(
    client: TestClient, experts: ExpertEncoder, corpus: CorpusFolder
) -> None:
    answer = ask(client, query=QUERY, top_k=5)
    assert [route["name"] for route in answer["routes"]] == ["m:crops", "m:neuro"]
    for number, route in enumerate(("crops", "neuro")):
        (papers,) = sentence_experts.search(experts, corpus, QUERY, route=route, top_k=5).papers
        assert ids(answer, number) == [paper["paper_id"] for paper in papers]
        scores = [hit["score"] for hit in answer["routes"][number]["hits"]]
        np.testing.assert_allclose(scores, [paper["score"] for paper in papers], atol=1e-4)


def test_routes_of_several_models_can_be_mixed(client: TestClient) -> None:
    answer = ask(client, query=QUERY, routes=["dense", "m:neuro"])
    assert [route["name"] for route in answer["routes"]] == ["dense", "m:neuro"]
    about = client.get("/search/corpus").json()
    assert [(route["name"], route["default"]) for route in about["routes"]] == [
        ("m:crops", True), ("m:neuro", True), ("dense", False),
    ]  # fmt: skip
    assert about["papers"] == 40 + len(HOSTILE)
    assert about["corpus"] == "corpus"


def test_ranks_under_other_routes_are_those_of_a_longer_search(client: TestClient) -> None:
    short, long = (ask(client, query=QUERY, top_k=top_k) for top_k in (3, 100))
    for place, route in enumerate(long["routes"]):
        true = {name: rank for rank, name in enumerate(ids(long, place), start=1)}
        for paper in short["papers"]:
            assert paper["ranks"][route["name"]]["rank"] == true[paper["paper_id"]]
    everywhere = set(ids(short, 0)) & set(ids(short, 1))
    for route in short["routes"]:
        for hit in route["hits"]:
            assert hit["only"] == (short["papers"][hit["paper"]]["paper_id"] not in everywhere)


def test_more_like_papers_leaves_them_out(client: TestClient) -> None:
    start = "doi:10.5555/made-up.000"
    answer = ask(client, like=["10.5555/made-up.000"], top_k=100)
    assert [paper["paper_id"] for paper in answer["like"]] == [start]
    for route in (0, 1):
        assert start not in ids(answer, route)
        assert len(ids(answer, route)) == 40 + len(HOSTILE) - 2  # the one asked for, a notice
        ranks = [hit["rank"] for hit in answer["routes"][route]["hits"]]
        assert ranks == list(range(1, len(ranks) + 1))
    assert any(paper["terms"] for paper in answer["papers"])


def test_filters_hold_and_years_ignore_the_filter_of_years(client: TestClient) -> None:
    years = ask(client, query=QUERY, top_k=100)["years"]
    answer = ask(client, query=QUERY, top_k=100, year="2003..2005", types=["review-article"])
    assert answer["papers"]
    for paper in answer["papers"]:
        assert 2003 <= paper["year"] <= 2005
        assert paper["article_type"] == "review-article"
    assert sum(answer["years"].values()) > len(answer["papers"])
    assert set(answer["years"]) < set(years)
    assert ask(client, query=QUERY, journals=["Journal of Made-up Crops"], year="2001")["papers"] != []
    none = ask(client, query=QUERY, year="1850..1900")
    assert (none["papers"], none["without_year"]) == ([], len(HOSTILE) - 1)


def test_citations_among_the_hits(client: TestClient) -> None:
    answer = ask(client, query=QUERY, notices=True, top_k=100)
    numbers = {paper["paper_id"]: n for n, paper in enumerate(answer["papers"])}
    true = {
        (numbers[f"doi:10.5555/made-up.{n:03}"], numbers[f"doi:10.5555/made-up.{n - back:03}"])
        for n in range(40) for back in (8, 16) if n >= back
    }  # fmt: skip
    assert {tuple(pair) for pair in answer["citations"]} == true


def test_the_best_sentence_is_the_nearest_one(client: TestClient, experts: ExpertEncoder) -> None:
    papers = ask(client, query=QUERY, top_k=100)["papers"]
    paper = next(each for each in papers if each["paper_id"].startswith("doi:10.5555"))
    sentences = [f"{each.strip('. ')}." for each in paper["abstract"].split(". ")]
    asked = {"query": QUERY, "route": "m:crops", "papers": [paper["paper_id"], "h:bare"]}
    for _ in range(2):  # computed, and from memory
        best = client.post("/search/sentences", json=asked).json()["sentences"]
        assert best["h:bare"] is None
        place = best[paper["paper_id"]]
        vectors = experts.encode([QUERY, *sentences], prompt_name="crops", normalize_embeddings=True)
        assert (
            paper["abstract"][place["start"] : place["end"]]
            == sentences[int((vectors[1:] @ vectors[0]).argmax())]
        )


def test_with_passages_the_sentence_is_of_the_best_passage(experts: ExpertEncoder, tmp_path: Path) -> None:
    sections = [
        f"Plot {n} was dry. {topic} stood in plot {n}." for n, topic in enumerate(TOPICS["crops"] * 40)
    ]
    papers = [
        {"id": "10.1000/a", "title": "Rice", "abstract": "Nothing.", "full_text": " ".join(sections)},
        {"id": "10.1000/b", "title": "Sleep", "full_text": ""},
    ]
    corpus = sentence_experts.import_corpus(out=tmp_path / "corpus", papers=papers)
    (hits,) = sentence_experts.search(experts, corpus, QUERY, route="crops", passages=True).papers
    app = sentence_experts.create_app({"m": experts}, corpus=corpus.path, passages=True, watch=False)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/search/corpus").json()["passages"]
        asked = {"query": QUERY, "route": "m:crops", "papers": [hit["paper_id"] for hit in hits]}
        for _ in range(2):  # computed, and from memory
            best = client.post("/search/sentences", json=asked).json()["sentences"]
            for hit in hits:
                of_paper = best[hit["paper_id"]]
                assert of_paper["passage"] == hit["passage"]
                assert hit["passage"][of_paper["start"] : of_paper["end"]] == hit["sentence"]
            assert "rice" in {term.lower() for term in best["doi:10.1000/a"]["terms"]}


def test_passages_are_those_of_the_corpus_that_a_server_started_with(
    experts: ExpertEncoder, tmp_path: Path
) -> None:
    paper = {"id": "10.1000/a", "title": "Rice", "full_text": " ".join(TOPICS["crops"] * 40)}
    corpus = sentence_experts.import_corpus(out=tmp_path / "corpus", papers=[paper])
    (hits,) = sentence_experts.search(experts, corpus, QUERY, route="crops", passages=True).papers
    app = sentence_experts.create_app({"m": experts}, corpus=corpus.path, passages=True, watch=False)
    changed = paper | {"full_text": "Nothing of it is left. " * 40}
    asked = {"query": QUERY, "route": "m:crops", "papers": [hits[0]["paper_id"]]}
    with TestClient(app, base_url="http://localhost") as client:
        sentence_experts.import_corpus(out=tmp_path / "corpus", papers=[changed], overwrite=True)
        for _ in range(2):
            best = client.post("/search/sentences", json=asked).json()["sentences"]["doi:10.1000/a"]
            assert best["passage"] == hits[0]["passage"]
            shutil.rmtree(tmp_path / "corpus", ignore_errors=True)
            client.post("/search/sentences", json=asked | {"query": "another one"})


def test_a_corpus_that_is_copied_over_in_place_is_noticed(experts: ExpertEncoder, tmp_path: Path) -> None:
    """As by `cp -r`; files that are renamed into its place are not read."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, topic in zip(folders, ("crops", "neuro"), strict=True):
        papers = [{"id": f"10.1000/{number}", "title": title} for number, title in enumerate(TOPICS[topic])]
        sentence_experts.import_corpus(out=folder, papers=papers)
        sentence_experts.search(experts, folder, QUERY, route="crops", hybrid=True)
    app = sentence_experts.create_app({"m": experts}, corpus=folders[0], watch=False)
    asked = {"query": QUERY, "routes": ["m:crops"]}
    with TestClient(app, base_url="http://localhost") as client:
        before = client.post("/search", json=asked).json()["papers"]
        shutil.copytree(folders[0], tmp_path / "kept")
        for file in folders[1].rglob("*.*"):  # under its own name, from a file beside it
            if file.is_file():
                place = folders[0] / file.relative_to(folders[1])
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, beside := place.with_name("beside"))
                beside.replace(place)
        assert client.post("/search", json=asked).json()["papers"] == before
    shutil.rmtree(folders[0])
    (tmp_path / "kept").rename(folders[0])
    for name in ("papers.parquet", "citations.parquet", "vectors.npy", "data.csc.index.npy"):
        app = sentence_experts.create_app({"m": experts}, corpus=folders[0], watch=False)
        with TestClient(app, base_url="http://localhost") as client:
            assert client.post("/search", json=asked).json()["papers"] == before
            (file, *_) = folders[0].rglob(name)
            content = file.read_bytes()
            for changed in (b"\0" + content[1:], content[:10], content):
                file.write_bytes(changed)
                for path in ("/search", "/search/corpus", "/search/taught"):
                    answer = client.get(path) if path != "/search" else client.post(path, json=asked)
                    assert answer.status_code == 503, (name, path)
                    assert "written to while it is served" in answer.text


def test_papers_become_a_file(client: TestClient) -> None:
    asked = ["10.5555/made-up.001", "h:script"]
    answer = client.post("/search/export", json={"papers": asked, "format": "csv"})
    assert answer.headers["Content-Disposition"] == 'attachment; filename="papers.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["paper_id"] for row in rows] == ["doi:10.5555/made-up.001", "h:script"]
    for form in ("ris", "bibtex"):
        assert "made-up.001" in client.post("/search/export", json={"papers": asked, "format": form}).text


def test_a_large_abstract_is_cut(client: TestClient) -> None:
    answer = ask(client, query="Rice drought, at length", top_k=100)
    (paper,) = (each for each in answer["papers"] if each["paper_id"] == "h:large")
    assert len(paper["abstract"]) == MAX_ABSTRACT + 1
    assert (
        client.post("/search/export", json={"papers": ["h:large"], "format": "ris"}).text.count("Rice")
        > 20_000
    )


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("", {}, 422, "query: give `query`, a text, or `like`"),
        ("", {"query": "a", "like": ["h:bare"]}, 422, "give `query`"),
        ("", {"query": " "}, 422, "query: is empty"),
        ("", {"like": ["h:bare"], "hybrid": True}, 422, "hybrid: needs the words of a query"),
        ("", {"like": []}, 422, "like: name a paper"),
        ("", {"like": ["10.1/nowhere"]}, 422, "no paper"),
        ("", {"query": "a", "routes": ["m:nowhere"]}, 404, "there are m:crops, m:neuro, dense"),
        ("", {"query": "a", "routes": ["m:crops=0,neuro=0"]}, 422, "the weights sum to 0"),
        ("", {"query": "a", "routes": ["m:crops=-1,neuro=2"]}, 422, "weight of 0 or more"),
        ("", {"query": "a", "routes": ["m:crops=1,soil=2"]}, 422, "no route 'soil'"),
        ("", {"query": "a", "routes": []}, 422, "routes: name at least one"),
        ("", {"query": "a", "top_k": 0}, 422, "top_k"),
        ("", {"query": "a", "top_k": 101}, 422, "top_k"),
        ("", {"query": "a", "year": "soon"}, 422, "year"),
        ("?top_k=3", {"query": "a"}, 422, "fields in the address are not read"),
        ("/taught/marks", {"marks": [{"paper": "h:bare", "similar": True, "query": " "}]}, 422, "is empty"),
        ("", {"query": "a", "journals": ["nowhere"]}, 422, "journal"),
        ("", {"query": "a", "journals": ["*" * 60 + "x"]}, 422, "journal"),
        ("", {"query": "a", "types": ["*"] * 101}, 422, "types"),
        ("", {"query": "a", "year": "2015-2016"}, 422, "year: '2015-2016' is not of the form"),
        ("", {"query": "a", "types": ["x"]}, 422, "types: no paper of the corpus has 'x'; there are"),
        ("", {"query": "a", "domains": ["x"]}, 422, "domains: no paper of the corpus has 'x'; there are"),
        ("/sentences", {"query": "a", "route": "m", "papers": ["h:bare"]}, 422, "name one: m:crops, m:neuro"),
        ("/sentences", {"query": "a", "route": "x", "papers": ["h:bare"]}, 404, "route: no route 'x'"),
        ("", {"query": "a", "colour": 1}, 422, "colour"),
        ("/sentences", {"query": "a", "route": "m:crops", "papers": ["x"] * 51}, 422, "papers"),
        ("/export", {"papers": ["h:bare"], "format": "docx"}, 422, "format"),
        ("/export", {"papers": ["nowhere"], "format": "ris"}, 422, "papers: no paper"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused(
    client: TestClient, corpus: CorpusFolder, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post(f"/search{path}", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
    assert str(corpus.path) not in answer.text


def test_without_a_corpus_there_is_no_search(plain: SentenceTransformer) -> None:
    app = sentence_experts.create_app({"m": plain}, watch=False)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.post("/search", json={"query": "a"}).status_code == 404
        assert "--corpus" in client.get("/").text


def test_the_page_is_open_but_its_data_asks_for_the_key(
    plain: SentenceTransformer, corpus: CorpusFolder, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("secret\n")
    app = sentence_experts.create_app(
        {"m": plain}, corpus=corpus.path, host="0.0.0.0", api_key_file=tmp_path / "keys", watch=False
    )
    with TestClient(app, base_url="http://example.org") as client:
        page = client.get("/")
        assert page.status_code == client.get("/static/page.js").status_code == 200
        assert "Made-up" not in page.text
        assert client.get("/static/nothing.js").status_code == 404
        for method, path in (
            ("GET", "/search/corpus"),
            ("POST", "/search"),
            ("POST", "/search/export"),
            ("POST", "/"),
        ):
            assert client.request(method, path, json={"query": "a"}).status_code == 401, path
        asked = {"headers": {"Authorization": "Bearer secret"}, "json": {"query": "a"}}
        assert client.post("/search", **asked).status_code == 200


def test_the_page_is_small_and_loads_nothing_from_elsewhere(client: TestClient) -> None:
    folder = Path(sentence_experts.__file__).parent / "serve"
    files = [*(folder / "static").iterdir(), *(folder / "templates").iterdir()]
    page = client.get("/").text
    sizes = [len(page.encode())]
    for file in files:
        text = file.read_text(encoding="utf-8")
        addresses = [each for each in ("http://", "https://", " url(", "@import") if each in text]
        assert set(addresses) <= {"http://", "https://"}, file
        if file.parent.name == "static":
            sizes.append(len(client.get(f"/static/{file.name}").content))
            assert ".innerHTML" not in text
            assert "insertAdjacentHTML" not in text
    assert sum(sizes) < 100_000
    assert "<style" not in page
    assert page.count("<script") == 1


def test_hybrid_ranks_by_words_too(client: TestClient, experts: ExpertEncoder, corpus: CorpusFolder) -> None:
    answer = ask(client, query="leaf rust", hybrid=True, top_k=5)
    for number, route in enumerate(("crops", "neuro")):
        (papers,) = sentence_experts.search(
            experts, corpus, "leaf rust", route=route, top_k=5, hybrid=True
        ).papers
        assert ids(answer, number) == [paper["paper_id"] for paper in papers]
        for rank, hit in enumerate(answer["routes"][number]["hits"], start=1):
            name = answer["routes"][number]["name"]
            assert answer["papers"][hit["paper"]]["ranks"][name]["rank"] == hit["rank"] == rank


@pytest.mark.parametrize("year", [None, "2005.."])
def test_hybrid_ranks_under_other_routes_are_those_of_a_longer_search(
    client: TestClient, year: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in ("leaf rust", "drought", "simulated plot 3"):
        asked: dict[str, Any] = {"query": query, "hybrid": True, "year": year}
        short, long = (ask(client, **asked, top_k=top_k) for top_k in (4, 100))
        for place, route in enumerate(long["routes"]):
            true = {name: rank for rank, name in enumerate(ids(long, place), start=1)}
            for paper in short["papers"]:
                assert paper["ranks"][route["name"]]["rank"] == true[paper["paper_id"]]
    monkeypatch.setattr(search, "NEAR", 4)
    few = ask(client, **asked, top_k=4)
    for place, route in enumerate(few["routes"]):
        others = [each for each in few["papers"] if each["paper_id"] not in ids(few, place)]
        assert {each["ranks"][route["name"]]["rank"] for each in others} <= {None}


def test_notices_are_hidden_unless_they_are_asked_for(client: TestClient) -> None:
    notice = "doi:10.5555/made-up.003"
    hidden = ask(client, query=QUERY, top_k=100)
    shown = ask(client, query=QUERY, top_k=100, notices=True)
    assert hidden["hidden"] == 1
    assert shown["hidden"] == 0
    assert notice not in ids(hidden)
    assert notice in ids(shown)


def test_keywords_and_mesh_headings_filter(client: TestClient) -> None:
    answer = ask(client, query=QUERY, top_k=100, keywords=["simul*"], mesh=["plants"])
    assert answer["papers"]
    assert all("Simulation" in paper["keywords"] for paper in answer["papers"])
    assert all(paper["mesh"] == ["Plants"] for paper in answer["papers"])
    about = client.get("/search/corpus").json()
    assert about["values"]["keyword"]["Simulation"] == 40
    refused = client.post("/search", json={"query": QUERY, "keywords": ["nowhere"]})
    assert refused.status_code == 422


def test_a_paper_has_authors_a_source_and_its_citations(client: TestClient) -> None:
    answer = ask(client, query=QUERY, top_k=100)
    paper = next(each for each in answer["papers"] if each["paper_id"] == "doi:10.5555/made-up.020")
    assert paper["by"] == "Family20 et al."
    assert (paper["volume"], paper["issue"], paper["pages"]) == ("2", "3", "20-29")
    assert (paper["cites"], paper["cited_by"]) == (2, 2)
    found = client.post("/search/citations", json={"paper": paper["paper_id"]}).json()
    assert {each["paper_id"][-3:] for each in found["cites"]} == {"012", "004"}
    assert {each["paper_id"][-3:] for each in found["cited_by"]} == {"028", "036"}
    assert (found["paper"]["cites"], found["paper"]["cited_by"]) == (2, 2)
    values = search.shown_facts({"authors": ["Ito, A"] * 41, "keywords": ["rice"] * 40})
    assert (values["authors"][-2:], values["keywords"][-1]) == (["Ito, A", "…"], "rice")


def test_routes_blend(client: TestClient, experts: ExpertEncoder, corpus: CorpusFolder) -> None:
    name = "m:crops=0.5,neuro=0.5"
    answer = ask(client, query=QUERY, routes=[name, "m:crops"], top_k=5)
    assert [route["name"] for route in answer["routes"]] == [name, "m:crops"]
    weights = {"crops": 1, "neuro": 1}
    (papers,) = sentence_experts.search(experts, corpus, QUERY, route=weights, top_k=5).papers
    assert ids(answer, 0) == [paper["paper_id"] for paper in papers]
    for hit, paper in zip(answer["routes"][0]["hits"], papers, strict=True):
        assert hit["route"] == paper["route"] in weights
        assert hit["score"] == pytest.approx(paper["score"], abs=1e-4)
    assert ids(ask(client, like=["10.5555/made-up.000"], routes=[name]), 0)
    asked = {"query": QUERY, "route": name, "papers": ids(answer, 0)}
    assert any(client.post("/search/sentences", json=asked).json()["sentences"].values())
