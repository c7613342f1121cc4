"""Which route a request means, by whatever field says so."""

from __future__ import annotations

from typing import Any

import pytest

from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import find_model, find_routes


def model(*routes: str, default: str | None = None) -> Any:
    known = KnownRoutes("m", {name: f"[{name}]" for name in routes}, default, ())
    served = object.__new__(ServedModel)
    served.__dict__.update(name="m", known=known)
    return served


class Models(dict[str, Any]):
    names = property(lambda self: tuple(self))
    first = property(lambda self: next(iter(self.values())))


CROPS = model("crops", "neuro")


@pytest.mark.parametrize("field", ["route", "prompt_name", "input_type", "task"])
def test_each_field_names_a_route_for_all_texts_or_for_each(field: str) -> None:
    assert find_routes(CROPS, None, {field: "neuro"}, 2) == ["neuro", "neuro"]
    assert find_routes(CROPS, None, {field: ["neuro", "crops"]}, 2) == ["neuro", "crops"]
    assert find_routes(CROPS, "crops", {field: ["crops", None]}, 2) == ["crops", "crops"]


def refusal(*arguments: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        find_routes(*arguments)
    assert refused.value.status == 422
    return refused.value


def test_missing_unknown_and_contradicting_routes_are_refused_with_their_place() -> None:
    missing = refusal(CROPS, None, {}, 1)
    assert "m needs a route; its routes: crops, neuro" in missing.message
    assert '"model": "m:crops"' in missing.message
    unknown = refusal(CROPS, None, {"route": ["crops", "soil"]}, 2)
    assert (unknown.message, unknown.field) == ("m has no route 'soil'; its routes: crops, neuro", "route.1")
    assert refusal(CROPS, None, {"route": ["crops", None]}, 2).field == "route.1"
    assert "weight of 0 or more" in refusal(CROPS, None, {"route": "crops="}, 1).message
    assert "no route 'x'" in refusal(CROPS, None, {"route": "crops=1,x=0"}, 1).message
    assert refusal(CROPS, None, {"route": ["crops"]}, 2).message == "1 routes for 2 texts"
    assert refusal(CROPS, None, {"route": ["crops"] * 2}, 1).message == "2 routes for 1 text"
    torn = refusal(CROPS, "crops", {"task": "neuro"}, 1)
    assert torn.message == "names the route 'neuro', but `model` names 'crops'"
    assert "its routes: none" in refusal(model(), None, {"route": "crops"}, 1).message


def test_the_default_route_decides_where_nothing_is_named() -> None:
    assert find_routes(model("a", "b", default="b"), None, {"route": ["a", None]}, 2) == ["a", "b"]
    assert find_routes(model(), None, {}, 2) == [None, None]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("search_query", "query"),
        ("retrieval.passage", "document"),
        ("RETRIEVAL_QUERY", "query"),
        ("Query", "query"),
    ],
)
def test_purposes_of_other_protocols_are_routes_of_that_purpose(asked: str, found: str) -> None:
    assert find_routes(model("query", "document"), None, {"input_type": asked}, 1) == [found]
    assert find_routes(model("search_query", "search_document"), None, {"task": found}, 1) == [
        f"search_{found}"
    ]
    assert find_routes(model(), None, {"input_type": asked}, 1) == [None]


@pytest.mark.parametrize("asked", ["document", "search_document", "passage"])
def test_documents_have_no_prompt_where_only_queries_have_one(asked: str) -> None:
    queries = model("query")
    assert find_routes(queries, None, {}, 2) == [None, None]
    assert find_routes(queries, None, {"input_type": [asked, "search_query"]}, 2) == [None, "query"]
    assert find_routes(queries, "document", {"task": asked}, 1) == [None]
    torn = refusal(queries, "query", {"task": asked}, 1)
    assert torn.message == "names the route 'document', but `model` names 'query'"
    assert "`task` names 'document'" in refusal(queries, None, {"task": asked, "route": "query"}, 1).message


def test_a_name_that_two_routes_could_mean_is_refused() -> None:
    assert (
        "no route 'passage'"
        in refusal(model("document", "search_document"), None, {"task": "passage"}, 1).message
    )


def test_a_name_in_other_letters_is_no_other_route() -> None:
    served = model("lung", "心臓", "Größe")
    assert find_routes(served, None, {"route": ["心臓", "größe"]}, 2) == ["心臓", "Größe"]
    for asked in ("肺", "Grüße", "!!!", "lung-", "lung!"):
        assert "has no route" in refusal(served, None, {"route": asked}, 1).message


def test_models_are_found_by_name_with_a_route_behind_it() -> None:
    two = Models(a=CROPS, b=CROPS)
    assert find_model(two, "a:x:y") == (CROPS, "x:y")
    assert find_model(Models(a=CROPS), None) == (CROPS, None)
    for asked, status in ((None, 422), ("c", 404), ("", 404)):
        with pytest.raises(RequestError, match="those served: a, b") as refused:
            find_model(two, asked)
        assert (refused.value.status, refused.value.field) == (status, "model")
