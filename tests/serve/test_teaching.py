"""`/search/taught`: marks, taught routes, profiles; and taught routes wherever a request names a route."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from starlette.testclient import TestClient

import sentence_experts
from helpers.running_server import running_server
from helpers.searched_corpus import searched_papers, write_searched_corpus
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.screening import bound_relevant
from sentence_experts.retrieval.taught import Mark
from sentence_experts.retrieval.taught_routes import TaughtRoutes
from sentence_experts.serve import teaching

QUERY = "rice drought"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_searched_corpus(tmp_path_factory.mktemp("taught") / "library").path


@pytest.fixture(scope="module")
def app_client(library: Path, plain: SentenceTransformer) -> Iterator[TestClient]:
    app = sentence_experts.create_app({"m": plain}, corpus=library, watch=False)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(app_client: TestClient, request: pytest.FixtureRequest) -> TestClient:
    """A client with a profile for the test alone."""
    app_client.headers["X-Profile"] = str(abs(hash(request.node.name)))
    return app_client


def marks(count: int = 10, query: str | None = QUERY, **more: Any) -> dict[str, Any]:
    """Crops are similar."""
    papers = searched_papers()[:count]
    return {
        "marks": [
            {"paper": each["doi"], "similar": each["subjects"] == ["crops"], "query": query} | more
            for each in papers
        ]
    }


def post(client: Any, path: str, content: Any = None, **headers: str) -> dict[str, Any]:
    answer = client.post(f"/search/taught{path}", json=content or {}, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_marks_teach_a_route_that_requests_name(client: TestClient, plain: SentenceTransformer) -> None:
    first = post(client, "/marks", marks())
    assert (len(first["marks"]), first["routes"], first["can_undo"]) == (10, [], True)
    taught = post(client, "", {"name": "by hand"})
    assert (taught["taught"], taught["name"]) == ("m:by hand", "by hand")
    (route,) = taught["routes"]
    assert route["source"] is None, "of a model in memory, or in a folder"
    assert route["figures"]["verdict"].startswith(("10 examples", "Tells", "No better"))
    about = client.get("/search/corpus").json()
    assert about["routes"][-1] == {"name": "m:by hand", "label": "by hand", "default": True, "taught": True}
    asked = {"query": QUERY, "top_k": 30}
    found = client.post("/search", json=asked).json()
    assert [each["name"] for each in found["routes"]] == ["m", "m:by hand"]
    alone = client.post("/search", json={**asked, "routes": ["m:by hand"]}).json()
    blend = client.post("/search", json={**asked, "routes": ["m:by hand=1"]}).json()
    for other in (alone, blend):
        scores = [
            [hit["score"] for hit in each["routes"][place]["hits"]]
            for each, place in ((found, 1), (other, 0))
        ]
        assert scores[0] == pytest.approx(scores[1])
    named = {"query": QUERY, "route": "m:by hand", "papers": [searched_papers()[0]["doi"]]}
    assert client.post("/search/sentences", json=named).status_code == 200
    # In OpenAI's form too: the cosine of both sides is the score of the search.
    given = {"model": "m:by hand", "input": [QUERY]}
    answer = client.post("/v1/embeddings", json=given).json()
    vector = np.array(answer["data"][0]["embedding"])
    base = plain.encode([QUERY], normalize_embeddings=True)[0]
    library = client.app.state.library  # type: ignore[attr-defined]
    change = library.taught("m", client.headers["X-Profile"])["by hand"]
    assert vector == pytest.approx(change.apply(base[None])[0], abs=1e-5)
    assert not np.allclose(vector, base, atol=1e-3)
    # And the scores of papers and sentences are those of both sides under the route.
    searcher = library.views["m"].searcher
    papers = change.apply(searcher.vectors(searcher.routes[0]).of_rows(range(searcher.papers.count)))
    best = found["routes"][1]["hits"][0]["score"]
    assert best == pytest.approx(float((papers @ change.apply(base[None])[0]).max()), abs=1e-4)
    abstract = searched_papers()[0]["abstract"]
    answer = client.post("/search/sentences", json=named).json()["sentences"][named["papers"][0]]
    sentence = plain.encode([abstract[answer["start"] : answer["end"]]], normalize_embeddings=True)
    score = change.apply(sentence) @ change.apply(base[None])[0]
    assert answer["score"] == pytest.approx(float(score[0]), abs=1e-4)


@pytest.mark.slow
def test_a_route_that_does_not_fit_another_model_is_left_out(
    library: Path, plain: SentenceTransformer, experts: SentenceTransformer
) -> None:
    """Taught on a model without routes, or on a route; the same library is then served by another model."""
    asked = {"query": QUERY, "top_k": 3}
    for number, (before, after, on) in enumerate(((plain, experts, None), (experts, plain, "m:crops"))):
        profile = {"X-Profile": f"moved-{number}"}
        for model, fits in ((before, True), (after, False)):
            app = sentence_experts.create_app({"m": model}, corpus=library, watch=False)
            with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
                if fits:
                    post(client, "/marks", marks(), **profile)
                    post(client, "", {"name": "mine", **({"on": on} if on else {})}, **profile)
                found = client.post("/search", json=asked, headers=profile)
                assert found.status_code == 200, found.text
                assert any(each["name"] == "m:mine" for each in found.json()["routes"]) is fits
                listed = client.get("/search/corpus", headers=profile).json()["routes"]
                assert any(each["name"] == "m:mine" for each in listed) is fits
                alone = client.post("/search", json={**asked, "routes": ["m:mine"]}, headers=profile)
                sent = {"model": "m:mine", "input": "rice"}
                vectors = client.post("/v1/embeddings", json=sent, headers=profile)
                assert (alone.status_code, vectors.status_code) == ((200, 200) if fits else (404, 404))
                assert fits or "does not fit this model: teach it again" in alone.text


def test_marks_are_replaced_forgotten_and_undone(client: TestClient) -> None:
    post(client, "/marks", marks(4))
    turned = post(client, "/marks", marks(4, similar=False))
    assert [each["similar"] for each in turned["marks"]] == [False] * 4
    assert len(post(client, "/marks", marks(4, query=None))["marks"]) == 8, (
        "without a query: another judgement"
    )
    assert len(post(client, "/marks", marks(3, similar=None))["marks"]) == 5
    for count in (8, 4):
        assert len(post(client, "/undo")["marks"]) == count
    assert any(each["similar"] for each in post(client, "/undo")["marks"])
    assert not post(client, "/undo")["can_undo"]


def test_the_last_mark_of_a_paper_in_a_request_counts(client: TestClient) -> None:
    (one,) = marks(1, similar=True)["marks"]
    none = one | {"similar": None}
    assert post(client, "/marks", {"marks": [one, none]})["marks"] == []
    assert len(post(client, "/marks", {"marks": [one, none, one]})["marks"]) == 1


def test_marks_follow_papers_whose_ids_change(tmp_path: Path, plain: SentenceTransformer) -> None:
    papers = [{"id": each["doi"], "title": each["title"]} for each in searched_papers(8)]
    for first in ("mine-1", "10.9999/rice"):
        papers[0]["id"] = first
        corpus = import_corpus(papers=papers, out=tmp_path / "library", overwrite=True)
        app = sentence_experts.create_app({"m": plain}, corpus=corpus.path, watch=False)
        with TestClient(app, base_url="http://localhost") as client:
            ids = [each if each == "mine-1" else f"doi:{each}" for each in (one["id"] for one in papers)]
            if first == "mine-1":
                given = [{"paper": each, "similar": each in ids[:4]} for each in ids]
                post(client, "/marks", {"marks": given})
                post(client, "", {"name": "mine"})
                continue
            shown = post(client, "/begin", {"name": "mine"})
            assert shown["routes"][0]["missing"] == 0
            assert {each["paper"]: each["similar"] for each in shown["marks"]} == {
                each: each in ids[:4] for each in ids
            }
            turned = post(client, "/marks", {"marks": [{"paper": ids[0], "similar": False}]})
            assert [each["similar"] for each in turned["marks"]].count(True) == 3
            assert (len(turned["marks"]), turned["marks"][-1]["paper"]) == (8, ids[0])
            route = post(client, "", {"name": "mine"})["routes"][0]["figures"]
            assert (route["similar"], route["not_similar"], route["missing"]) == (3, 5, 0)
            assert "8 papers read, 3 of them relevant" in post(client, "/screen")["verdict"]
            assert len(post(client, "/undo")["marks"]) == len(post(client, "/undo")["marks"]) == 8
            forgotten = post(client, "/marks", {"marks": [{"paper": ids[0], "similar": None}]})
            assert len(forgotten["marks"]) == 7


def test_a_sample_follows_papers_whose_ids_change(tmp_path: Path, plain: SentenceTransformer) -> None:
    papers = searched_papers()
    ids = [f"mine-{number}" for number in range(len(papers))]
    verdicts, read = list[str](), list[dict[str, Any]]()
    for is_first in (True, False):
        changed = {each["paper"] for each in read}
        rows = [
            {
                "id": paper["doi"] if each in changed else each,
                "title": f"{paper['title']} in the year of {each}",
            }
            for each, paper in zip(ids, papers, strict=True)
        ]
        corpus = import_corpus(papers=rows, out=tmp_path / "library", overwrite=True)
        app = sentence_experts.create_app({"m": plain}, corpus=corpus.path, watch=False)
        with TestClient(app, base_url="http://localhost") as client:
            if is_first:
                read = [{"paper": each, "similar": number < 2} for number, each in enumerate(ids[:5])]
                post(client, "/marks", {"marks": read})
                drawn = post(client, "/screen", {"draw": 6})["papers"][:6]
                read += [
                    {"paper": each["paper_id"], "similar": place < 3} for place, each in enumerate(drawn)
                ]
                post(client, "/marks", {"marks": read[5:]})
            verdicts.append(post(client, "/screen")["verdict"])
            post(client, "/marks", {"marks": []})  # the profile is written with the present ids
            verdicts.append(post(client, "/screen")["verdict"])
    assert "in a random sample 3 of 6)" in verdicts[0]
    assert len({*verdicts}) == 1, verdicts


def test_openai_clients_list_taught_routes_and_ask_for_blends(
    client: TestClient, plain: SentenceTransformer
) -> None:
    post(client, "/marks", marks())
    post(client, "", {"name": "mine"})
    (listed,) = client.get("/v1/models").json()["data"]
    assert (listed["id"], listed["routes"]) == ("m", ["mine"])
    assert client.get("/v1/models", headers={"X-Profile": "no-one"}).json()["data"][0]["routes"] == []
    asked = {"query": QUERY, "routes": ["m", "m:mine", "m:mine=3,m=1"], "top_k": 100}
    routes = client.post("/search", json=asked).json()["routes"]
    scores = [{hit["paper"]: hit["score"] for hit in each["hits"]} for each in routes]
    assert routes[2]["label"] == "mine 75%, m 25%"
    expected = {paper: 0.75 * scores[1][paper] + 0.25 * scores[0][paper] for paper in scores[0]}
    assert scores[2] == pytest.approx(expected, abs=1e-5)
    vectors = []
    for body in (
        {"model": "m:mine"},
        {"model": "m", "route": "mine"},
        {"model": "m:mine=3,m=1"},
        {"model": "m"},
    ):
        answer = client.post("/v1/embeddings", json={**body, "input": [QUERY, "rust"]}).json()
        vectors.append(unit(np.array([each["embedding"] for each in answer["data"]])))
    assert vectors[0] == pytest.approx(vectors[1])
    mixed = 0.75 * vectors[0] + 0.25 * vectors[3]
    assert vectors[2] == pytest.approx(unit(mixed), abs=1e-5)
    refused = client.post("/v1/embeddings", json={"model": "m:mine=1,other=1", "input": "x"})
    assert (refused.status_code, "other" in refused.text) == (422, True)


def test_a_model_stays_itself_beside_a_route_taught_elsewhere_under_its_name(
    client: TestClient, library: Path, plain: SentenceTransformer
) -> None:
    post(client, "/marks", marks())
    post(client, "", {"name": "mine"})

    def ask(route: str) -> list[Any]:
        scores = client.post("/search", json={"query": QUERY, "routes": [f"m:{route}"]})
        vectors = client.post("/v1/embeddings", json={"model": f"m:{route}", "input": QUERY})
        return [scores.json()["routes"], vectors.json()["data"]]

    before = ask("mine=0.5,m=0.5")
    profile = client.headers["X-Profile"]
    examples = [{**mark, "similar": not mark["similar"]} for mark in marks()["marks"]]
    sentence_experts.teach(plain, library, examples, name="m", profile=profile)
    assert ask("mine=0.5,m=0.5") == before
    for path, asked in (("/search", {"query": QUERY, "routes": ["m:m"]}),
                        ("/v1/embeddings", {"model": "m:m", "input": QUERY})):  # fmt: skip
        refused = client.post(path, json=asked)
        assert refused.status_code == 404
        assert "'m' is the name of the model, too" in refused.text


def test_a_taught_route_takes_no_other_route_beside_it(client: TestClient) -> None:
    post(client, "/marks", marks())
    post(client, "", {"name": "mine"})

    def asked(**fields: Any) -> Any:
        return client.post("/v1/embeddings", json={"model": "m:mine", "input": [QUERY, "rust"]} | fields)

    plain, expected = asked(model="m").json(), asked().json()
    same: tuple[dict[str, Any], ...] = (
        {"route": "mine"}, {"route": ["mine", None]}, {"input_type": "query"}, {"model": "m", "task": "mine"},
    )  # fmt: skip
    for fields in same:
        assert asked(**fields).json()["data"] == expected["data"], fields
    for fields in ({"route": "x"}, {"task": "x"}, {"route": ["mine", "x"]}, {"route": "query"}):
        refused = asked(**fields)
        assert (refused.status_code, "names the route" in refused.text) == (422, True), fields
    twice = asked(model="m:mine=1,m=1").json()["usage"]
    assert twice["total_tokens"] == 2 * plain["usage"]["total_tokens"]


def test_lists_and_keywords_become_marks_in_one_request(client: TestClient) -> None:
    papers = searched_papers()
    doi, title = papers[0]["doi"], papers[1]["title"].upper()
    bibtex = (
        f"@misc{{a, title={{x}}, doi={{{doi}}}}}\n@misc{{b, title={{{{{title}!}}}}}}\n@misc{{title={{No}}}}"
    )
    found = post(client, "/list", {"text": bibtex})
    assert (found["marked"], found["unknown"], found["examples"]) == (2, 1, ["No"])
    ris = f"TY  - JOUR\nDO  - {papers[2]['doi']}\nER  - \nTY  - JOUR\nAU  - X\nER  - \nTI  - Y\nER  - \n"
    found = post(client, "/list", {"text": ris, "similar": False})
    assert (found["marked"], found["unknown"]) == (1, 2), "a record without a title has a DOI"
    lines = f"{papers[3]['doi']}\n\nhttps://doi.org/{papers[4]['doi']}\n{papers[5]['title']}\n10.1/none"
    found = post(client, "/list", {"text": lines, "similar": False})
    assert (found["marked"], found["changed"], found["examples"]) == (3, 0, ["10.1/none"])
    turned = post(client, "/list", {"text": doi, "similar": False})
    assert (turned["marked"], turned["changed"]) == (1, 1)
    found = post(client, "/undo")
    ids = [f"doi:{each['doi']}" for each in papers]
    expected = {paper: number < 2 for number, paper in enumerate(ids[:6])}
    assert {each["paper"]: each["similar"] for each in found["marks"]} == expected
    assert not any(each["query"] or each["like"] for each in found["marks"])
    several = f"doi:{papers[6]['doi']}, https://doi.org/{papers[7]['doi']}\t{papers[8]['doi']};10.1234/none"
    found = post(client, "/list", {"text": several})
    assert (found["marked"], found["examples"]) == (3, ["10.1234/none"])
    found = post(client, "/list", {"text": "Similar, but not the same: roots"})
    assert found["examples"] == ["Similar, but not the same: roots"], "a title"
    post(client, "/begin")
    found = post(client, "/list", {"keyword": papers[0]["keywords"][0].upper()})
    similar = {each["paper"] for each in found["marks"] if each["similar"]}
    assert similar == {
        paper for paper, each in zip(ids, papers, strict=True) if papers[0]["keywords"][0] in each["keywords"]
    }
    assert found["marked"] == len(found["marks"]) == 2 * len(similar)
    assert found["left_out"] == 0
    assert post(client, "/screen")["verdict"].startswith(f"{len(similar)} papers read, {len(similar)} of")
    one = next(each["paper"] for each in found["marks"] if each["assumed"])
    post(client, "/marks", {"marks": [{"paper": one, "similar": False}]})
    assert post(client, "/screen")["verdict"].startswith(f"{len(similar) + 1} papers read")
    again = post(client, "/list", {"keyword": papers[0]["keywords"][0]})
    assert again["marked"] == 0
    assert len(again["marks"]) == len(found["marks"])
    again = again["marks"]
    assert not next(each for each in again if each["paper"] == one)["assumed"], "a judgement stays"
    (route,) = post(client, "")["routes"]
    assert (route["marks"], "was taught" in route["figures"]["verdict"]) == (len(again), False)
    library = client.app.state.library  # type: ignore[attr-defined]
    with library.profile(client.headers["X-Profile"]).changing() as state:
        state.routes |= {
            name: each.model_copy(update={"unit": "title"}) for name, each in state.routes.items()
        }
    (route,) = client.get("/search/taught").json()["routes"]
    assert (
        "was taught on title with m; here it is fitted on title+abstract with m"
        in route["figures"]["verdict"]
    )
    post(client, "/begin")
    judged = {"paper": ids[0], "similar": False}
    post(client, "/marks", {"marks": [judged]})
    found = post(client, "/list", {"keyword": papers[0]["keywords"][0]})
    assert {each["paper"]: each["similar"] for each in found["marks"]}[ids[0]] is False, (
        "what a user marked stays"
    )
    assert sum(each["similar"] for each in found["marks"]) == len(similar) - 1


def test_papers_to_read_and_a_sample_that_tells_what_is_left(client: TestClient) -> None:
    crops = {f"doi:{each['doi']}" for each in searched_papers() if each["subjects"] == ["crops"]}
    read = lambda: {each["paper"] for each in post(client, "/marks", {"marks": []})["marks"]}  # noqa: E731
    post(client, "/marks", marks())
    first = post(client, "/screen")
    ids = [each["paper_id"] for each in first["papers"]]
    assert (len(ids), read() & {*ids}) == (teaching.TO_READ, set())
    assert first["verdict"].endswith("Only a random sample can tell how many of these are relevant")
    drawn = post(client, "/screen", {"draw": 6})
    sample = [each["paper_id"] for each in drawn["papers"][:6]]
    assert [each["sampled"] for each in drawn["papers"]] == ["yes"] * 6 + ["no"] * (teaching.TO_READ - 6)
    assert "Read the 6 random papers first (0 so far)" in drawn["verdict"]
    assert "takes the place" not in drawn["verdict"]
    judged = [{"paper": paper, "similar": paper in crops} for paper in sample]
    post(client, "/marks", {"marks": judged[:5]})
    again = post(client, "/screen")
    assert "(5 so far)" in again["verdict"]
    assert again["papers"][0]["paper_id"] == sample[5], "the rest of the sample comes first"
    post(client, "/marks", {"marks": judged[5:]})
    found = len(crops & {*sample})
    last = post(client, "/screen")
    new = post(client, "/screen", {"draw": 2})["verdict"]
    assert new.startswith("A new sample takes the place of the 6 random papers before. ")
    post(client, "/undo")
    unread = int(last["verdict"].split("; ")[1].split()[0])
    bound = bound_relevant(unread + 6, 6, found) - found
    assert f"at most {bound} (in a random sample {found} of 6)" in last["verdict"]
    for _ in range(2):
        post(client, "/undo")
    post(client, "/undo")
    assert post(client, "/screen")["verdict"] == first["verdict"], "a sample can be undone"


def test_marked_papers_that_left_the_corpus_are_counted(client: TestClient) -> None:
    post(client, "/marks", marks())
    assert post(client, "", {"name": "mine"})["routes"][0]["missing"] == 0
    app: Any = client.app
    with app.state.library.profile(client.headers["X-Profile"]).changing() as state:
        entry = state.routes["mine"]
        more = (*entry.marks, Mark(paper="doi:10.9/gone", similar=True))
        state.routes["mine"] = entry.model_copy(update={"marks": more})
    assert client.get("/search/taught").json()["routes"][0]["missing"] == 1


def test_rename_delete_undo_and_go_on(client: TestClient) -> None:
    post(client, "/marks", marks())
    assert post(client, "")["taught"] == "m:my-method"
    assert post(client, "/begin")["marks"] == []
    post(client, "/marks", marks(6))
    assert post(client, "")["taught"] == "m:my-method-2"
    assert post(client, "", {"name": "my-method"})["routes"][-1]["name"] == "my-method", "taught last"
    assert post(client, "/undo")["name"] == "my-method-2"
    renamed = post(client, "/rename", {"name": "my-method", "to": "mine"})
    assert [each["name"] for each in renamed["routes"]] == ["mine", "my-method-2"]
    assert len(post(client, "/begin", {"name": "mine"})["marks"]) == 10
    gone = post(client, "/delete", {"name": "mine"})
    assert [each["name"] for each in gone["routes"]] == ["my-method-2"]
    assert client.post("/search", json={"query": "rice", "routes": ["m:mine"]}).status_code == 404
    assert "mine" in [each["name"] for each in post(client, "/undo")["routes"]]
    assert client.post("/search", json={"query": "rice", "routes": ["m:mine"]}).status_code == 200


@pytest.mark.slow
def test_a_route_stays_on_what_it_began_as(library: Path, experts: SentenceTransformer) -> None:
    app = sentence_experts.create_app({"m": experts}, corpus=library, watch=False, base=False)
    with TestClient(app, base_url="http://localhost") as client:
        client.headers["X-Profile"] = "places"
        routes = [each["name"] for each in client.get("/search/corpus").json()["routes"]]
        post(client, "/marks", marks())
        post(client, "", {"on": routes[1], "name": "mine"})
        lists = [
            [each["paper_id"] for each in post(client, "/screen", on)["papers"]]
            for on in ({}, {"on": routes[1]})
        ]
        assert lists[0] == lists[1]
        post(client, "/begin")
        post(client, "/begin", {"name": "mine"})
        post(client, "/marks", marks(12))
        assert post(client, "")["routes"][0]["on"] == routes[1].partition(":")[2]


def test_a_table_that_teaches_the_present_route_brings_its_marks(
    client: TestClient, library: Path, plain: SentenceTransformer
) -> None:
    post(client, "/marks", marks())
    name = post(client, "")["name"]
    rows = [{"paper": each["paper"], "similar": each["similar"]} for each in marks(14)["marks"]]
    profile = client.headers["X-Profile"]
    sentence_experts.teach(plain, library, rows, name=name, profile=profile)
    found = client.get("/search/taught").json()
    assert len(found["marks"]) == found["routes"][0]["marks"] == 14
    assert len(post(client, "/undo")["marks"]) == 10


def test_an_export_that_names_cited_works_is_no_list(client: TestClient) -> None:
    one, other = (each["doi"] for each in searched_papers()[:2])
    for text in (
        f"FN Clarivate\nVR 1.0\nPT J\nCR A, DOI {other}\nDI {one}\nER\n",
        f"PT\tAU\tCR\tDI\nJ\tA\t{other}\t{one}",
    ):
        answer = client.post("/search/taught/list", json={"text": text})
        assert answer.status_code == 422
        assert "export them as RIS" in answer.text


def test_profiles_are_apart_and_several_at_once_lose_nothing(client: TestClient) -> None:
    for name, count in (("ann", 6), ("bob", 8)):
        post(client, "/marks", marks(count), **{"X-Profile": name})
        post(client, "", {"name": "mine"}, **{"X-Profile": name})
    assert client.get("/search/taught").json()["routes"] == []
    asked = {"query": QUERY, "routes": ["m:mine"]}
    assert client.post("/search", json=asked).status_code == 404
    scores = []
    for name in ("ann", "bob"):
        found = client.post("/search", json=asked, headers={"X-Profile": name}).json()
        scores.append([hit["score"] for hit in found["routes"][0]["hits"]])
    assert scores[0] != pytest.approx(scores[1], abs=1e-4)
    single = [{"marks": [each]} for each in marks(24)["marks"]]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: post(client, "/marks", each, **{"X-Profile": "all"}), single))
    assert len(client.get("/search/taught", headers={"X-Profile": "all"}).json()["marks"]) == 24


@pytest.mark.parametrize(
    ("path", "content", "status", "text"),
    [
        ("", {}, 422, "mark at least 2 papers as similar; there are 0"),
        ("", {"on": "m:nothing"}, 404, "on: no route 'm:nothing'"),
        ("", {"name": 3}, 422, "name"),
        ("/marks", {"marks": [{"paper": "10.1/none", "similar": True}]}, 422, "marks: no paper"),
        ("/marks", marks(2, like=["10.1/none"]), 422, "marks.0.like: give `query` or `like`, not both"),
        ("/marks", {"marks": [{"paper": "10.1/none"}]}, 422, "marks.0.similar: this field is needed"),
        ("/marks", {"marks": [{"paper": "x", "similar": True, "query": "x" * 2001}]}, 422, "marks.0.query"),
        ("/marks", marks(20) | {"marks": marks(20)["marks"] * 6}, 422, "marks: "),
        ("/rename", {"name": "none", "to": "x"}, 422, "name: no taught route 'none'; there are none"),
        ("/delete", {}, 422, "name: this field is needed"),
        ("/list", {}, 422, "text: give `text` or `keyword`"),
        ("/list", {"text": "paper,similar\n10.1/x,no\n"}, 422, "text: a table with a column `similar`"),
        ("/list", {"text": "doi\tsimilar\n10.1/x\tno\n"}, 422, "text: a table with a column `similar`"),
        (
            "/list",
            {"text": "paper,similar,why it is left out\nx,no,a\n"},
            422,
            "text: a table with a column `similar`",
        ),
        ("/list", {"keyword": "sleep", "similar": False}, 422, "similar: is for `text`"),
        ("/list", {"keyword": "nothing"}, 422, "keywords: no paper of the corpus has 'nothing'"),
        ("/list", {"text": "10.5555/made-up.001", "similar": 3}, 422, "similar: "),
        ("/screen", {}, 422, "mark at least 2 papers as similar; there are 0"),
        ("/screen", {"draw": -1}, 422, "draw: "),
        ("/begin", {"name": "none"}, 422, "name: no taught route"),
        ("/undo", {}, 422, "there is nothing to undo"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    client: TestClient, path: str, content: Any, status: int, text: str
) -> None:
    answer = client.post(f"/search/taught{path}", json=content)
    message = answer.json()["error"]["message"]
    assert (answer.status_code, text in message, "\n" in message) == (status, True, False), message
    assert "/library" not in message


def test_names_and_profiles_that_cannot_be(client: TestClient) -> None:
    post(client, "/marks", marks())
    for name in ("a=b", "all", " x", "x" * 150, "<b>"):
        answer = client.post("/search/taught", json={"name": name})
        assert (answer.status_code, "name: " in answer.text) == (422, True)
    for name in ("../x", "a/b", ".x", "a b", "x" * 200):
        for path in ("/search/taught", "/search/corpus"):
            answer = client.get(path, headers={"X-Profile": name})
            assert (answer.status_code, "X-Profile" in answer.text) == (422, True), name
    assert post(client, "")["taught"] == "m:my-method"


def test_a_route_is_fitted_again_only_if_its_marks_changed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(client, "/marks", marks())
    post(client, "", {"name": "mine"})
    client.post("/search", json={"query": QUERY})
    fit, fitted = TaughtRoutes.__getitem__, []

    def counted(self: TaughtRoutes, name: str) -> Any:
        if name not in self._fitted:
            fitted.append(name)
        return fit(self, name)

    monkeypatch.setattr(TaughtRoutes, "__getitem__", counted)
    post(client, "/marks", marks(2, query="another"))
    client.post("/search", json={"query": QUERY})
    assert fitted == []
    post(client, "", {"name": "mine"})
    client.post("/search", json={"query": QUERY})
    assert fitted == ["mine"]


def test_a_damaged_file_is_an_error_of_one_line_that_changes_nothing(
    client: TestClient, library: Path
) -> None:
    post(client, "/marks", marks())
    file = library / ".taught" / f"{client.headers['X-Profile']}.json"
    file.write_text("{")
    answer = client.post("/search/taught/marks", json=marks(2))
    assert answer.status_code == 422
    assert "not valid JSON" in answer.json()["error"]["message"]
    assert file.read_text() == "{"


def test_a_full_disk_is_the_servers_error(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object, **settings: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    post(client, "/marks", marks())
    before = client.get("/search/taught").json()
    monkeypatch.setattr("sentence_experts.retrieval.taught.write_json", fill)
    answer = client.post("/search/taught/marks", json=marks(12))
    assert (answer.status_code, answer.json()["error"]["type"]) == (507, "server_error")
    monkeypatch.undo()
    assert client.get("/search/taught").json() == before


@pytest.mark.slow  # servers of their own
def test_nothing_is_lost_by_a_server_that_is_killed(tmp_path: Path, plain_model: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    folder = write_searched_corpus(tmp_path / "library").path
    arguments = (f"m={plain_model}", "--corpus", folder, "--api-key-file", tmp_path / "keys")
    headers = {"Authorization": "Bearer secret"}
    with running_server(*arguments) as running:
        assert httpx.get(f"{running.url}/search/taught").status_code == 401
        with httpx.Client(base_url=running.url, headers=headers, timeout=60) as client:
            post(client, "/marks", marks())
            post(client, "", {"name": "mine"})
            scores = client.post("/search", json={"query": QUERY, "routes": ["m:mine"]}).json()["routes"]
        running.process.kill()
        running.process.join()
    with (
        running_server(*arguments) as running,
        httpx.Client(base_url=running.url, headers=headers, timeout=60) as client,
    ):
        assert len(client.get("/search/taught").json()["marks"]) == 10
        assert client.post("/search", json={"query": QUERY, "routes": ["m:mine"]}).json()["routes"] == scores


def test_names_are_new() -> None:
    names = [teaching._new_name({*()}), teaching._new_name({"my-method", "my-method-2", "other"})]
    assert names == ["my-method", "my-method-3"]


def test_papers_of_a_keyword_beyond_the_most_that_are_marked_are_counted(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["sentence_experts.serve.teaching"], "MAX_LABELLED", 3)
    keyword, other = searched_papers()[0]["keywords"][:2]
    with_it = sum(keyword in each["keywords"] for each in searched_papers())
    assert with_it > 3, other
    found = post(client, "/list", {"keyword": keyword})
    assert (found["marked"], found["left_out"]) == (6, with_it - 3)
