"""Routes taught by papers of a corpus: kept beside it, searched by name, blended, written into models."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Dense

import sentence_experts
from helpers.command_line import run
from helpers.searched_corpus import NOTICE, searched_papers, write_searched_corpus
from sentence_experts import CorpusFolder
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.citation_export import export_papers
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.search_routes import Blend, SearchRoute
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.taught import Mark, Profile, TaughtEntry
from sentence_experts.retrieval.taught_routes import TaughtRoutes, add_taught_route, find_listed, known_rows
from sentence_experts.retrieval.teach import _describe, read_marks, teach
from sentence_experts.retrieval.teaching import Examples, fit_head
from sentence_experts.retrieval.texts import PaperTexts
from sentence_experts.retrieval.vectors import RouteVectors

QUERY = "rice drought"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "library"
    write_searched_corpus(folder, hostile=False)
    return folder


def examples(count: int = 12, **more: Any) -> list[dict[str, Any]]:
    """Crops are similar."""
    papers = searched_papers()[:count]
    return [{"paper": each["doi"], "similar": each["subjects"] == ["crops"]} | more for each in papers]


def order(found: Any) -> list[str]:
    return [each["paper_id"] for each in found.papers[0]]


def test_a_taught_route_is_searched_by_its_name_and_in_blends(corpus: Path, plain_model: Path) -> None:
    result = teach(str(plain_model), corpus, examples(query=QUERY), name="my way")
    assert (result.similar, result.not_similar, result.missing) == (8, 4, 0)
    assert repr(result.low) in repr(result.to_json())
    options = {"top_k": 40, "sentences": False}
    plain = sentence_experts.search(plain_model, corpus, QUERY, **options)
    found = sentence_experts.search(plain_model, corpus, QUERY, route="my way", **options)
    assert order(found) != order(plain)
    whole = {each["paper_id"]: each["score"] for each in found.papers[0]}
    liked = {"like": ["10.5555/made-up.020"], **options}
    near = [sentence_experts.search(plain_model, corpus, route=each, **liked) for each in (None, "my way")]
    assert len({found.papers[0][0]["score"] for found in near}) == 2
    blended = sentence_experts.search(plain_model, corpus, QUERY, route={"my way": 2}, **options)
    assert {each["paper_id"]: pytest.approx(each["score"], abs=1e-6) for each in blended.papers[0]} == whole
    mixed = sentence_experts.search(
        plain_model, corpus, QUERY, route=f"my way=1,{plain_model.name}=1", **options
    )
    both = {each["paper_id"]: (each["score"] + whole[each["paper_id"]]) / 2 for each in plain.papers[0]}
    assert {each["paper_id"]: each["score"] for each in mixed.papers[0]} == pytest.approx(both, abs=1e-5)
    moved = [*result.papers["up"], *result.papers["down"]]
    assert {each["paper_id"] for each in moved}.isdisjoint({f"doi:{each['paper']}" for each in examples()})
    assert all(each["before"] > each["after"] for each in result.papers["up"])
    with pytest.raises(UsageError, match="no route 'another'"):
        sentence_experts.search(plain_model, corpus, QUERY, route={"my way": 1, "another": 1})
    with pytest.raises(RouteError, match="no route 'my way'"):
        sentence_experts.search(plain_model, corpus, QUERY, route="my way", profile="someone-else")


def test_a_route_that_is_taught_by_other_papers_is_told(
    corpus: Path, plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for count in (8, 12):  # more marks are no surprise
        teach(plain_model, corpus, examples(count), name="again")
    assert "takes the place" not in caplog.text
    teach(plain_model, corpus, examples()[2:], name="again")
    assert "the route 'again', of whose 12 marks the table lacks 2" in caplog.text


def test_a_taught_route_becomes_one_of_a_model(corpus: Path, plain_model: Path, tmp_path: Path) -> None:
    teach(str(plain_model), corpus, examples(), name="mine", profile="ann")
    options: Any = {"route": "mine", "top_k": 40, "sentences": False}
    beside = sentence_experts.search(plain_model, corpus, QUERY, profile="ann", **options)
    made = add_taught_route(plain_model, corpus, "mine", profile="ann", out=tmp_path / "model")
    assert [route.name for route in made.routes] == ["mine"]
    inside = sentence_experts.search(tmp_path / "model", corpus, QUERY, **options)
    scores = [{each["paper_id"]: each["score"] for each in found.papers[0]} for found in (beside, inside)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    again = sentence_experts.search(tmp_path / "model", corpus, QUERY, profile="ann", **options)
    assert again.papers == inside.papers, "the model's route, also beside the taught one of its name"
    again = add_taught_route(plain_model, corpus, "mine", profile="ann", out=tmp_path / "model")
    assert again.prompts == made.prompts
    with pytest.raises(UsageError, match="no taught route 'other'; there are mine"):
        add_taught_route(plain_model, corpus, "other", profile="ann")


@pytest.mark.parametrize(
    "prompts",
    [
        {"clustering": "group these: "},
        {"query": "question: "},
        {"query": "question: ", "document": "paper: "},
        {"query": "question: ", "document": "", "clustering": "group these: "},
    ],
)
def test_what_is_taught_on_prompts_of_a_dense_model_keeps_them(
    corpus: Path,
    plain_model: Path,
    tmp_path: Path,
    prompts: dict[str, str],
) -> None:
    model = load(plain_model, device="cpu")
    model.prompts = dict(prompts)
    on = "clustering" if "clustering" in prompts else None
    teach(model, corpus, examples(query=QUERY), name="mine", profile="prompts", on=on)
    options: Any = {"route": "mine", "top_k": 40, "sentences": False}
    beside = sentence_experts.search(model, corpus, QUERY, profile="prompts", **options)
    add_taught_route(model, corpus, "mine", profile="prompts", out=tmp_path / "model")
    inside = sentence_experts.search(tmp_path / "model", corpus, QUERY, **options)
    scores = [{each["paper_id"]: each["score"] for each in found.papers[0]} for found in (beside, inside)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_a_second_route_on_one_that_was_written_keeps_its_prompts_and_heads(
    corpus: Path, plain_model: Path
) -> None:
    model = load(plain_model, device="cpu")
    model.prompts = {"query": "question: ", "document": "paper: "}
    teach(model, corpus, examples(query=QUERY), name="first", profile="twice")
    first = add_taught_route(model, corpus, "first", profile="twice")
    others = [row | {"similar": place % 2 == 0} for place, row in enumerate(examples(query="sleep"))]
    teach(first, corpus, others, name="second", profile="twice", on="first")
    options: Any = {"route": "second", "top_k": 40, "sentences": False}
    beside = sentence_experts.search(first, corpus, QUERY, profile="twice", **options)
    made = add_taught_route(first, corpus, "second", profile="twice")
    assert [made.prompts[name].split("]")[1] for name in ("second", "second query")] == [
        "paper: ",
        "question: ",
    ]
    inside = sentence_experts.search(made, corpus, QUERY, **options)
    scores = [{each["paper_id"]: each["score"] for each in found.papers[0]} for found in (beside, inside)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_prompts_that_the_pooling_leaves_out_are_refused(corpus: Path, plain_model: Path) -> None:
    model = load(plain_model, device="cpu")
    model.prompts = {"clustering": "group these: "}
    model.set_pooling_include_prompt(False)
    teach(model, corpus, examples(), name="mine", profile="left-out", on="clustering")
    with pytest.raises(UsageError, match="leaves prompts out"):
        add_taught_route(model, corpus, "mine", profile="left-out")


def test_a_head_before_other_layers_holds_no_taught_route(corpus: Path, plain_model: Path) -> None:
    model = load(plain_model, device="cpu")
    model.append(Dense(32, 32))
    teach(model, corpus, examples(), name="mine", profile="dense")
    with pytest.raises(UsageError, match="do more than scale vectors"):
        add_taught_route(model, corpus, "mine", profile="dense")


def test_marks_of_likeness_to_a_paper_that_is_gone_are_left_out(plain_model: Path, tmp_path: Path) -> None:
    papers = [{name: each[name] for name in ("doi", "title", "abstract")} for each in searched_papers(13)]
    corpus = import_corpus(papers=papers, out=tmp_path / "library").path
    like = examples(6, like=papers[12]["doi"])
    teach(str(plain_model), corpus, [*examples(query=QUERY), *like], name="mine")
    import_corpus(papers=papers[:12], out=corpus, overwrite=True)
    found = sentence_experts.search(plain_model, corpus, QUERY, route="mine", top_k=3)
    assert len(found.papers[0]) == 3
    marks = Profile(CorpusFolder.open(corpus)).read().routes["mine"].marks
    assert known_rows(Papers(CorpusFolder.open(corpus)), marks).count(None) == 6


@pytest.mark.slow
def test_a_model_with_a_route_that_was_taught_by_other_texts_is_not_taken_for_finished(
    plain_model: Path, tmp_path: Path
) -> None:
    papers = [{name: each[name] for name in ("doi", "title", "abstract")} for each in searched_papers(12)]
    corpus = import_corpus(papers=papers, out=tmp_path / "library").path
    teach(str(plain_model), corpus, examples(), name="mine", unit="title")
    add_taught_route(plain_model, corpus, "mine", out=tmp_path / "model")
    teach(str(plain_model), corpus, examples(), name="mine", unit="abstract")
    with pytest.raises(UsageError, match="another unit"):
        add_taught_route(plain_model, corpus, "mine", out=tmp_path / "model")
    papers[0]["title"] = "Rice in another drought"
    teach(str(plain_model), corpus, examples(), name="mine", unit="title")
    import_corpus(papers=papers, out=corpus, overwrite=True)
    with pytest.raises(UsageError, match="other texts"):
        add_taught_route(plain_model, corpus, "mine", out=tmp_path / "model")
    again = add_taught_route(plain_model, corpus, "mine", out=tmp_path / "model", overwrite=True)
    assert add_taught_route(plain_model, corpus, "mine", out=tmp_path / "model").prompts == again.prompts


@pytest.mark.slow
def test_kinds_that_were_taught_without_routes_share_the_base(
    tmp_path: Path, corpus: Path, plain_model: Path
) -> None:
    rows = examples(16)
    others = [row | {"similar": place % 2 == 0, "query": QUERY} for place, row in enumerate(rows)]
    for name, marks in (("first", rows), ("second", others)):
        teach(plain_model, corpus, marks, name=name, profile="two")
    options = {"corpus": corpus, "profile": "two"}
    one = add_taught_route(plain_model, name="first", **options)
    both = add_taught_route(one, name="second", **options, out=tmp_path / "both")
    alone = add_taught_route(plain_model, name="second", **options)
    texts = ["rice in drought", "sleep of rats"]
    names = ("first", "second")
    first, second = (both.encode(texts, prompt_name=name) for name in names)
    assert np.array_equal(first, one.encode(texts, prompt_name=names[0]))
    assert second == pytest.approx(alone.encode(texts, prompt_name=names[1]), abs=1e-4)
    assert not np.allclose(first, second, atol=1e-2)
    search = {"profile": "two", "top_k": 40, "sentences": False}
    wanted, found = (
        {hit["paper_id"]: hit["score"] for hit in sentence_experts.search(
            model, corpus, "rice", route="second", **search
        ).papers[0]}
        for model in (plain_model, tmp_path / "both")
    )  # fmt: skip
    assert found == pytest.approx(wanted, abs=1e-5)
    whole = {route.name for route in both.routes}
    for dropped in whole - {"first", "first query"}:  # either half takes the other one with it
        rest = sentence_experts.drop_route(both, dropped)
        assert whole - {route.name for route in rest.routes} == {"second", names[1]}
        assert "second query" not in rest.routed_model.config.search_routes
    again = add_taught_route(rest, name="second", **options)
    assert np.array_equal(second, again.encode(texts, prompt_name=names[1]))
    with pytest.raises(
        UsageError, match="'second' was taught without a route, which does not fit this model"
    ):
        sentence_experts.search(one, corpus, "rice", route="second", **search)


def test_on_routes_with_heads_and_with_experts(
    corpus: Path, plain_model: Path, experts_model: Path, tmp_path: Path
) -> None:
    dice = np.random.default_rng(0)
    heads = {"use": (dice.normal(size=(32, 32)), dice.normal(size=32))}
    sentence_experts.with_heads(plain_model, heads).save(str(tmp_path / "heads"))
    with pytest.raises(UsageError, match="the model has a route 'use'"):
        teach(str(tmp_path / "heads"), corpus, examples(), name="use")
    teach(str(tmp_path / "heads"), corpus, examples(), name="mine", on="use")
    teach(str(experts_model), corpus, examples(), name="ours", on="crops")
    made = add_taught_route(tmp_path / "heads", corpus, "mine")
    for model, route in ((tmp_path / "heads", "mine"), (experts_model, "ours")):
        searcher = Searcher(
            BatchEncoder(load(model, device="cpu")), sentence_experts.CorpusFolder.open(corpus)
        )
        taught = TaughtRoutes(searcher, Profile(searcher.corpus).read())[route]
        assert taught.taught is not None
        blend = searcher.blend(taught)
        (compared,) = searcher.compare(searcher.encode([QUERY], blend), blend)
        papers = taught.taught.apply(
            searcher.vectors(searcher.blend(taught.document_route).main).of_rows([0, 7])
        )
        hits = compared.hits([0, 7])
        assert [hit.score for hit in hits if hit] == pytest.approx(papers @ compared.queries[0], abs=1e-5)
        if route == "mine":
            text = searcher.papers.texts([7], searcher.unit)[0]
            known = made.encode(text, prompt_name="mine", normalize_embeddings=True)
            assert known == pytest.approx(papers[1], abs=1e-5)
    with pytest.raises(RouteError, match="needs a route"):
        teach(str(experts_model), corpus, examples(), name="nowhere")


@pytest.mark.parametrize(
    "of",
    ["expert", "pair", *(pytest.param(each, marks=pytest.mark.slow) for each in ("adapter", "instruction"))],
)
def test_what_is_taught_on_any_route_becomes_a_head_on_it(
    corpus: Path,
    plain_model: Path,
    tmp_path: Path,
    of: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    routes = ["search_query", "search_document"] if of == "pair" else ["crops", "other"]
    settings = {"kind": "adapter"} if of == "adapter" else {} if of == "expert" else {"route": "prefix"}
    model = sentence_experts.extend(plain_model, routes=routes, **settings)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".experts." in name or ".adapters." in name:
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
    model.save(str(tmp_path / "model"))
    on = routes[-1]
    teach(str(tmp_path / "model"), corpus, examples(), name="mine", on=on)
    options: Any = {"route": "mine", "top_k": 40, "sentences": False}
    beside = sentence_experts.search(tmp_path / "model", corpus, QUERY, **options)
    made = add_taught_route(tmp_path / "model", corpus, "mine", out=tmp_path / "made")
    shown = run(
        capsys, "add-route", tmp_path / "model", "mine", "--from", corpus, "--out", tmp_path / "made"
    )[1]
    assert f"mine, on the {'adapter' if of == 'adapter' else 'expert'} of {on}, texts begin with" in shown
    assert [each.name for each in made.routes if each.kind == "head"] == ["mine", "mine query"][
        : 1 + (of == "pair")
    ]
    inside = sentence_experts.search(tmp_path / "made", corpus, QUERY, **options)
    scores = [{each["paper_id"]: each["score"] for each in found.papers[0]} for found in (beside, inside)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    for route in routes:
        assert np.array_equal(*(each.encode([QUERY], prompt_name=route) for each in (model, made)))
    smaller = sentence_experts.drop_route(made, on)
    assert not {"mine", "mine query"} & {route.name for route in smaller.routes}


def test_the_order_of_examples_changes_nothing(corpus: Path, plain_model: Path) -> None:
    rows = [row | {"query": QUERY} for row in examples(10)] + examples(20)
    found = []
    for place, given in enumerate((rows, rows[::-1], rows[15:] + rows[:15])):
        name = f"order {place}"
        result = teach(plain_model, corpus, given, name=name, profile="order")
        hits = sentence_experts.search(
            plain_model, corpus, QUERY, route=name, profile="order", top_k=30, sentences=False
        )
        scores = [(hit["paper_id"], hit["score"]) for hit in hits.papers[0]]
        found.append((scores, result.auc, result.words, result.papers))
    assert found[0] == found[1] == found[2]


def spellings_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same marks, each three times, in three spellings of their papers."""
    forms = ("{}", "https://doi.org/{}", "DOI:{}")
    return [row | {"paper": form.format(row["paper"].upper())} for form in forms for row in rows]


def test_a_mark_counts_once_and_the_last_one_of_a_paper(
    corpus: Path, plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = examples(12)
    changed = rows[0] | {"similar": not rows[0]["similar"]}
    found = {}
    for name, given in {
        "once": rows,
        "thrice": [*rows, *rows, *rows],
        "spelled": spellings_of(rows),
        "corrected": [changed, *spellings_of(rows)],
        "beside": [*rows, *spellings_of([row | {"query": QUERY} for row in rows])],
        "all beside": [*rows, *[row | {"query": QUERY} for row in rows]],
    }.items():
        caplog.clear()
        result = teach(plain_model, corpus, given, name=name, profile="counts")
        assert ("papers are marked yes and no (1," in caplog.text) == (name == "corrected")
        found[name] = {key: value for key, value in result.to_json().items() if key != "name"}
    assert found["once"] == found["thrice"] == found["spelled"] == found["corrected"]
    assert found["beside"] == found["all beside"]
    assert (found["once"]["similar"], found["once"]["missing"]) == (8, 0)
    assert found["beside"]["similar"] == 16


def test_papers_that_moved_are_those_that_a_search_finds(corpus: Path, plain_model: Path) -> None:
    given = [
        row | {"query": QUERY} for row in examples(20) if row["paper"] != searched_papers()[NOTICE]["doi"]
    ]
    result = teach(plain_model, corpus, given, name="moved", profile="moved")
    moved = [each for way in result.papers.values() for each in way]
    assert result.to_pandas().drop(columns="moved").to_dict("records") == moved
    options: dict[str, Any] = {"profile": "moved", "top_k": 40, "sentences": False}
    for place, route in (("before", None), ("after", "moved")):
        (found,) = sentence_experts.search(plain_model, corpus, QUERY, route=route, **options).papers
        ranks = {each["paper_id"]: rank for rank, each in enumerate(found, start=1)}
        assert moved
        assert [each[place] for each in moved] == [ranks[each["paper_id"]] for each in moved]


def test_ranks_beside_similar_papers_are_those_of_papers_like_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:03}" for number in range(200)]
    searcher = object.__new__(Searcher)
    searcher.papers = Papers(import_corpus(papers=[{"id": each, "title": f"Rice {each}"} for each in names]))
    vectors = unit(np.random.default_rng(0).normal(0.1, 1, (200, 32)).astype(np.float32))
    plain = RouteVectors(vectors, np.arange(200))
    monkeypatch.setattr(
        searcher, "vectors", lambda route: plain.mapped(route.taught.weight) if route.taught else plain
    )
    rows, nothing = np.arange(20), np.zeros((0, 32), np.float32)
    examples = Examples(vectors[rows], rows < 10, np.full(20, -1), nothing, rows)
    taught = SearchRoute("mine", None, None, fit_head(examples))
    _, moved = _describe(searcher, SearchRoute("", None, None), taught, examples)
    (query,) = searcher.mean_vectors(range(10), Blend((taught,)))
    ids, scores = searcher.papers.column("paper_id").to_pylist(), searcher.vectors(taught).scores(query[0])
    ranks = {ids[row]: rank for rank, row in enumerate(np.argsort(-scores), start=1)}
    shown = [each for way in moved.values() for each in way]
    assert shown
    assert [each["after"] for each in shown] == [ranks[each["paper_id"]] for each in shown]


def test_many_examples_without_a_difference_are_not_too_few(corpus: Path, plain_model: Path) -> None:
    result = teach(plain_model, corpus, examples(12), name="any", profile="verdict")
    ends = {"auc": 0.49, "low": 0.44, "high": 0.55}
    assert replace(result, **ends).verdict.startswith("Nothing was learned that can be measured: ROC-AUC")
    assert "too few to tell" in replace(result, **{**ends, "high": 0.8}).verdict


def test_routes_are_not_taught_on_a_blend(corpus: Path, experts_model: Path) -> None:
    for verb, settings in ((teach, {"name": "mine"}), (sentence_experts.screen, {})):
        with pytest.raises(UsageError, match=r"`on`: 'crops=0\.5,neuro=0\.5' is a blend: name one route"):
            verb(experts_model, corpus, examples(), on="crops=0.5,neuro=0.5", **settings)


@pytest.mark.parametrize("paper", ["@smith2012", "=A1", "-x1", "+b", "'quoted"])
def test_marks_of_an_exported_list_name_the_same_papers(tmp_path: Path, paper: str) -> None:
    rows = [{"paper_id": paper, "title": "T"}, {"paper_id": "z", "title": "Z"}]
    lines = export_papers(rows, "csv").splitlines()
    table = "\r\n".join([f"{lines[0]},similar", *(f"{line},yes" for line in lines[1:])])
    (tmp_path / "list.csv").write_text(table)
    assert [mark.paper for mark in read_marks(tmp_path / "list.csv")[0]] == [paper, "z"]


def test_a_route_is_not_called_as_its_model(corpus: Path, plain_model: Path) -> None:
    for name in (BatchEncoder.open(plain_model).name, BatchEncoder.open(plain_model).name.upper()):
        with pytest.raises(UsageError, match=f"has a route '{name}' already, or is called so"):
            teach(plain_model, corpus, examples(12), name=name)


@pytest.mark.parametrize("name", ["query", "document", "passage"])
def test_a_route_is_not_called_as_one_side_of_a_search(corpus: Path, plain_model: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is what models call one side of a search"):
        teach(plain_model, corpus, examples(12), name=name)


def test_a_model_stays_itself_beside_a_route_taught_on_another_under_its_name(
    corpus: Path, plain_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "my-model"
    shutil.copytree(plain_model, model)
    teach(model, corpus, examples(query=QUERY), name="mine")

    def ask() -> Any:
        return sentence_experts.search(model, corpus, QUERY, route="mine=0.5,my-model=0.5").papers

    before = ask()
    teach(plain_model, corpus, examples(12), name="my-model")
    assert ask() == before
    with pytest.raises(UsageError, match="'my-model' is the name of the model, too"):
        sentence_experts.search(model, corpus, QUERY, route="my-model")
    sentence_experts.search(plain_model, corpus, QUERY, route="my-model")


def test_a_change_to_the_same_is_no_step_to_undo(corpus: Path) -> None:
    profile = Profile(CorpusFolder.open(corpus), "idle")
    with profile.changing() as state:
        state.mark([Mark(paper="a", similar=True)])
    for _ in range(2):
        with profile.changing() as state:
            state.mark([Mark(paper="a", similar=True)])
    with profile.changing(undoes=False) as state:
        state.step_back()
    assert profile.read().marks == {}


def test_examples_that_cannot_be_used(corpus: Path, plain_model: Path) -> None:
    few = [each for each in examples() if not each["similar"]] + examples()[:1]
    with pytest.raises(UsageError, match="at least 2 papers as similar; there are 1"):
        teach(str(plain_model), corpus, few, name="mine")
    strangers = [{"paper": f"10.1/{n}", "similar": True} for n in range(3)]
    assert teach(str(plain_model), corpus, examples() + strangers, name="mine").missing == 3
    for row, reason in (
        ({"paper": "10.1/x", "similar": "perhaps"}, "row 1: yes or no for `similar`, not 'perhaps'"),
        ({"paper": "10.1/x", "similar": "-"}, "row 1: yes or no for `similar`, not '-'"),
        ({"paper": None, "similar": True}, "row 1: give a `paper`"),
        ({"paper": "10.1/x", "similar": True, "query": "x" * 3000}, "row 1: String should have at most"),
        ({"paper": "10.1/x", "similar": "y", "query": "rice", "like": "10.1/y"}, "row 1: .* not both"),
    ):
        with pytest.raises(InputError, match=reason):
            read_marks([row])
    with pytest.raises(InputError, match="similar"):
        read_marks([{"paper": "10.1/x"}])
    empty = {"paper": "10.1/x", "similar": "NA", "query": "NA"}  # as R writes empty cells
    blank = dict.fromkeys(empty)
    assert read_marks([empty, empty | {"similar": "yes"}, blank])[0] == [Mark(paper="10.1/x", similar=True)]
    for name in ("all", "a=b", "x" * 101, ""):
        with pytest.raises(UsageError, match="name"):
            teach(str(plain_model), corpus, examples(), name=name)
    for profile in ("../x", ".hidden", "a/b", ""):
        with pytest.raises(UsageError, match="profile"):
            teach(str(plain_model), corpus, examples(), name="mine", profile=profile)


def mark(number: int, similar: bool = True) -> Mark:
    return Mark(paper=f"p{number}", similar=similar, query="a text")


def test_changes_of_several_at_once_are_all_kept(corpus: Path) -> None:
    folder = sentence_experts.CorpusFolder.open(corpus)
    profiles = [Profile(folder, "several") for _ in range(3)]

    def change(number: int) -> None:
        with profiles[number % 3].changing() as state:
            state.mark([mark(number)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(30)))
    assert len(Profile(folder, "several").read().marks) == 30
    assert not [each for each in profiles[0].path.parent.iterdir() if "tmp" in each.name]


def test_a_profile_that_was_damaged_is_refused(corpus: Path) -> None:
    profile = Profile(CorpusFolder.open(corpus))
    with profile.changing() as state:
        state.mark([Mark(paper="doi:10.5555/made-up.001", similar=True)])
    whole = profile.path.read_text()
    for old, new in (("made-up.001", "made-up.002"), ("true", "false"), ('sha256": "', 'sha256": "0')):
        profile.path.write_text(whole.replace(old, new, 1))
        with pytest.raises(InputError, match=r"default\.json: changed since it was written"):
            Profile(CorpusFolder.open(corpus)).read()
    by_hand = "".join(line for line in whole.splitlines(True) if "sha256" not in line)
    profile.path.write_text(by_hand.replace("true", "false"))
    assert not next(iter(profile.read().marks.values())).similar


def test_every_change_can_be_undone(corpus: Path) -> None:
    profile = Profile(sentence_experts.CorpusFolder.open(corpus), "undone")
    entry = TaughtEntry(model="m", on="", unit="title", marks=(mark(1), mark(2, False)))
    changes: list[Any] = [
        lambda state: state.mark([mark(1), mark(3)]),
        lambda state: state.mark([mark(3, False)]),
        lambda state: state.put("one", entry),
        lambda state: state.rename("one", "other"),
        lambda state: state.mark([], [mark(3)]),
        lambda state: state.begin("other"),
        lambda state: state.begin(),
        lambda state: state.delete("other"),
    ]
    states = []
    for each in changes:
        states.append(profile.read().model_dump(exclude={"undo"}))
        with profile.changing() as state:
            each(state)
        assert profile.read().model_dump(exclude={"undo"}) != states[-1]
    for before in reversed(states):
        with profile.changing(undoes=False) as state:
            state.step_back()
        assert profile.read().model_dump(exclude={"undo"}) == before
    with pytest.raises(UsageError, match="nothing to undo"), profile.changing(undoes=False) as state:
        state.step_back()


def test_a_change_that_fails_or_is_killed_changes_nothing(corpus: Path) -> None:
    profile = Profile(sentence_experts.CorpusFolder.open(corpus), "whole")
    with profile.changing() as state:
        state.mark([mark(1)])
    kept = profile.path.read_bytes()
    changes: list[Any] = [
        (lambda state: (state.mark([mark(2)]), state.delete("nothing")), "no taught route"),
        (lambda state: state.mark([mark(number) for number in range(1_001)]), "more than 1,000 marks"),
    ]
    for change, reason in changes:
        with pytest.raises(UsageError, match=reason), profile.changing() as state:
            change(state)
    assert profile.path.read_bytes() == kept
    leftover = profile.path.with_name(f".{profile.path.name}.{os.getpid()}.new.tmp")
    leftover.write_text("{")  # of a process that was killed while it wrote
    assert len(profile.read().marks) == 1
    with profile.changing() as state:
        state.mark([mark(2)])
    assert not leftover.exists()
    assert len(Profile(sentence_experts.CorpusFolder.open(corpus), "whole").read().marks) == 2
    for damage in ("{", json.dumps({"marks": 3}), json.dumps({"routes": {"a": {"kind": "head"}}})):
        profile.path.write_text(damage)
        with pytest.raises(InputError, match=r"whole\.json"):
            profile.read()


@pytest.mark.slow
def test_a_corpus_that_is_replaced_keeps_what_was_taught(tmp_path: Path, plain_model: Path) -> None:
    papers = [{"id": each["doi"], "title": each["title"]} for each in searched_papers()]
    out = tmp_path / "library"
    sentence_experts.import_corpus(papers=papers, out=out)
    teach(str(plain_model), out, examples(), name="mine")
    sentence_experts.import_corpus(papers=papers[1:], out=out, overwrite=True)
    found = sentence_experts.search(plain_model, out, QUERY, route="mine", top_k=50, sentences=False)
    assert len(order(found)) == len(papers) - 1
    similar = {each["paper"] for each in examples() if each["similar"]}
    few = [each for each in papers if each["id"] not in similar]
    shrunk = sentence_experts.import_corpus(papers=few, out=out, overwrite=True)
    searcher = Searcher.open(plain_model, shrunk, PaperTexts())
    taught = TaughtRoutes(searcher, Profile(searcher.corpus).read())
    assert "mine" in taught
    assert not taught.is_usable("mine")
    with pytest.raises(UsageError, match="mark at least 2 papers as similar; there are 0"):
        taught["mine"]


def test_from_the_command_line(
    corpus: Path, plain_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "examples.csv"
    rows = [f"{each['paper']},{'yes' if each['similar'] else 'no'}" for each in examples()]
    table.write_text("\n".join(["paper,similar", *rows, "10.1/unknown,yes"]))
    code, out, error = run(capsys, "teach", plain_model, table, "--corpus", corpus, "--name", "by hand")
    assert code == 0, error
    assert "ROC-AUC" in out
    assert "1 of the papers are not in the corpus" in error
    assert run(capsys, "search", plain_model, "rice", "--corpus", corpus, "--route", "by hand")[0] == 0
    add = ("add-route", plain_model, "by hand", "--from", corpus)
    code, out, error = run(capsys, *add, "--out", tmp_path / "model")
    assert code == 0, error
    assert "by hand" in out
    code, out, error = run(capsys, *add, "--out", tmp_path / "x", "--kind", "head")
    assert (code, error.count("\n")) == (2, 1)
    assert "needs no other settings" in error
    other = ("add-route", plain_model, "new", "--profile", "ann", "--out", tmp_path / "x")
    code, _, error = run(capsys, *other)
    assert (code, "is for a taught route" in error) == (2, True)
    (tmp_path / "served.bib").write_text("")
    (tmp_path / "served.bib.corpus").symlink_to(corpus)
    code, _, error = run(capsys, *add[:-1], tmp_path / "served.bib", "--out", tmp_path / "x")
    assert (code, "served.bib is no corpus: give " in error) == (1, True)


def test_marks_by_likeness_follow_numbers_of_rows() -> None:
    titles = ["Rice and roots in drought", "Whale songs at night", "Stars of the old sky"]
    rows = [{"paper": str(n + 1), "similar": n < 1, "like": "3", "title": titles[n]} for n in range(3)]
    marks, _, unread = read_marks(rows)
    papers = [{"id": str(n), "title": each} for n, each in enumerate(["Quantum gravity", *titles], start=1)]
    listed = find_listed(Papers(import_corpus(papers=papers)), marks, unread)
    assert [(mark.paper, mark.like) for mark in listed] == [(each, ("4",)) for each in "234"]


def test_columns_of_marks_count_in_any_case_and_others_are_named(caplog: pytest.LogCaptureFixture) -> None:
    row = {"Paper": "10.1/x", "SIMILAR": "yes", "Query ": "sleep", "Title": "T", "authors": "A"}
    (mark,), _, _ = read_marks([row])
    assert mark == Mark(paper="10.1/x", similar=True, query="sleep", title="T")
    assert not caplog.text
    read_marks([row | {"queries": "x", "paper_id": "y"}])
    assert "columns that are not used: paper_id;" in caplog.text
    caplog.clear()
    read_marks([{"paper": "x", "similar": "yes", "queries": "x"}])
    assert "columns that are not used: queries;" in caplog.text
    with pytest.raises(InputError, match="two columns are named 'similar' but for their case"):
        read_marks([row | {"similar": "no"}])


def test_other_columns_of_an_export_are_neither_named_nor_refused(caplog: pytest.LogCaptureFixture) -> None:
    names = ("nearness", "closeness", "entry", "file", "link", "index", "my thoughts", "Notes", "notes")
    row = {"paper_id": "10.1/x", "similar": "yes", "Similarity": 0.3}
    assert len(read_marks([row | dict.fromkeys(names, "x")])[0]) == 1
    assert not caplog.text


def test_queries_that_differ_in_case_or_white_space_are_one() -> None:
    queries = ("Rice  yields", "rice yields", "Rice Yields ", "wheat")
    marks, _, _ = read_marks([{"paper": "x", "similar": True, "query": each} for each in queries])
    assert [mark.query for mark in marks] == ["Rice  yields"] * 3 + ["wheat"]


def test_rows_that_teach_nothing_or_have_no_query_are_told_to_teachers_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"paper": f"p{n}", "similar": "yes", "query": "rice"} for n in range(3)]
    read_marks(rows, to_teach=True)
    rows += [{"paper": "p3", "similar": None, "query": "rice"}, {"paper": "p4", "similar": "no"}]
    read_marks(rows)
    assert not caplog.text
    read_marks(rows, to_teach=True)
    assert "without yes or no for `similar` teach nothing: 1" in caplog.text
    assert "without `query` or `like` (1 of 4, such as 'p4') are compared with each other" in caplog.text


def test_queries_with_papers_of_one_kind_are_told_and_refused_if_all_are_such(
    corpus: Path, plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings: Any = {"name": "mine", "profile": "kinds"}
    rows = examples()
    teach(plain_model, corpus, rows, **settings)
    assert "count for nothing" not in caplog.text
    only = [row | {"query": "sleep", "similar": True} for row in rows[:3]]
    teach(plain_model, corpus, rows + only, **settings)
    assert "papers (3) count for nothing" in caplog.text
    apart = [row | {"query": "sleep" if row["similar"] else "rice"} for row in rows]
    with pytest.raises(UsageError, match="nothing can be learned: no query, or `like`, has both"):
        teach(plain_model, corpus, apart, **settings)


def test_a_route_that_is_searched_elsewhere_than_it_was_taught_is_told(
    plain_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    papers = [{name: each[name] for name in ("doi", "title", "abstract")} for each in searched_papers(14)]
    corpus = import_corpus(papers=papers, out=tmp_path / "library").path
    teach(plain_model, corpus, examples(), name="mine", profile="ann", unit="title")
    options: Any = {"route": "mine", "profile": "ann", "sentences": False}
    sentence_experts.search(plain_model, corpus, QUERY, unit="title", **options)
    assert "mine" not in caplog.text
    sentence_experts.search(plain_model, corpus, QUERY, unit="abstract", **options)
    name = plain_model.name
    assert f"'mine' was taught on title with {name}; here it is fitted on abstract with {name}" in caplog.text
    import_corpus(papers=papers[1:], out=corpus, overwrite=True)
    sentence_experts.search(plain_model, corpus, QUERY, unit="title", **options)
    assert "'mine': 11 of the 12 marks that taught it are left" in caplog.text
    assert "no 'anne' beside the corpus" not in caplog.text
    sentence_experts.search(plain_model, corpus, QUERY, profile="anne", sentences=False)
    assert "`profile`: no 'anne' beside the corpus; there are ann" in caplog.text


def test_titles_that_are_not_those_of_the_ids_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "sentence_experts")
    titles = ["Rice and roots in drought", "Whale songs at night", "Stars of the old sky"]
    papers = Papers(import_corpus(papers=[{"id": f"p{n}", "title": each} for n, each in enumerate(titles)]))
    rows = [{"paper": f"p{n}", "similar": n < 1, "title": titles[n]} for n in range(3)]
    find_listed(papers, *read_marks(rows)[::2])
    assert not caplog.text
    shifted = [row | {"title": title} for row, title in zip(rows, [*titles[1:], titles[0]], strict=True)]
    assert [mark.paper for mark in find_listed(papers, *read_marks(shifted)[::2])] == ["p1", "p2", "p0"]
    assert "ids (3) name other papers than the titles beside them, such as 'p0', whose" in caplog.text
    caplog.clear()
    lasting = [{"doi": f"10.1234/{n}", "title": each} for n, each in enumerate(titles)]
    rows = [{"paper": "10.1234/0", "similar": True, "title": titles[1]}]
    (mark,) = find_listed(Papers(import_corpus(papers=lasting)), *read_marks(rows)[::2])
    assert mark.paper == "10.1234/0"
    assert "papers (1) have other titles than the list says, such as doi:10.1234/0" in caplog.text
