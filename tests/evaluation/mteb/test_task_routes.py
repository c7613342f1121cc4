from __future__ import annotations

import pytest

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.evaluation.mteb.routes import TaskRoutes, read_route_map

MOTE = ("query", "document", "classification", "clustering")


def routes(known=MOTE, **options) -> TaskRoutes:
    return TaskRoutes(known, "mote", **options)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("Retrieval", {"query": "query", "document": "document"}),
        ("Reranking", {"query": "query", "document": "document"}),
        ("Classification", {"text": "classification"}),
        ("Clustering", {"text": "clustering"}),
        ("PairClassification", {"text": "classification"}),
        ("STS", {"text": "classification"}),
        ("Summarization", {"text": "classification"}),
    ],
)
def test_routes_of_types_equal_the_paper(kind, taken):
    assert routes().check("Any", kind) == taken


def test_narrowest_key_and_user_routes_come_first():
    given = {"*": "clustering", "Retrieval": "document", "Retrieval.query": "query", "NQ": "classification"}
    own = {"sts.stsb": "query", "papers.query": "document"}
    mapped = routes(given=given, own=own)
    assert mapped.route("SciFact", "Retrieval", "query") == "query"
    assert mapped.route("SciFact", "Retrieval", "document") == "document"
    assert mapped.route("NQ", "Retrieval", "query") == "classification"
    assert mapped.route("STS12", "STS") == "clustering"
    assert mapped.route("sts.stsb", "STS") == "clustering"
    assert routes(own=own).route("sts.stsb", "STS") == "query"
    assert routes(own=own).route("papers", "Retrieval", "query") == "document"
    assert routes(own=own).route("STS12", "STS") == "classification"


def test_model_without_routes_needs_no_route():
    assert routes(()).check("STS12", "STS") == {"text": None}
    assert routes((), own={"STS12": "classification"}).route("STS12", "STS") is None
    assert routes(("passage",), given={"*": "none"}).check("NQ", "Retrieval") == {
        "query": None,
        "document": None,
    }


def test_missing_route_error_names_the_route_map():
    with pytest.raises(RouteError) as error:
        routes(("copd", "cvd")).check("SciFact", "Retrieval")
    message = str(error.value)
    assert "\n" not in message
    for part in ("SciFact (Retrieval.query)", "copd, cvd", "`route_map` Retrieval.query=ROUTE", "none:"):
        assert part in message
    with pytest.raises(RouteError, match="no route for it; its routes"):
        routes().route("Tatoeba", "BitextMining")
    with pytest.raises(RouteError, match="no route 'clasification' for it"):
        routes(given={"STS": "clasification"}).route("STS12", "STS")


def test_the_route_map_is_read_for_all_and_for_one_model():
    tasks = [("sts.stsb", "STS")]
    found = read_route_map({"STS": "a", "runs:1:STS": "b", "mote:sts.stsb": "c", "*": "d"}, tasks)
    assert found.for_all_models == {"STS": "a", "*": "d"}
    assert found.for_one_model == {"runs:1": {"STS": "b"}, "mote": {"sts.stsb": "c"}}
    own = [*tasks, ("retrieval.own", "Retrieval")]
    for key in ("Retrieval.document", "retrieval.own.query"):
        assert read_route_map({key: "a"}, own).for_all_models == {key: "a"}
    for key in ("Sts", "STS.query", "sts.stsb.query"):  # texts of STS are no queries: it would do nothing
        with pytest.raises(UsageError, match=rf"`route_map` {key}=a: neither a task type nor a task"):
            read_route_map({key: "a"}, own)


def test_a_key_of_no_measured_task_is_told(caplog):
    tasks = [("sts.stsb", "STS"), ("own.papers", "Retrieval")]
    used = {"STS": "a", "own.papers.query": "b", "Retrieval.document": "c", "*": "d", "mote:sts.stsb": "e"}
    read_route_map(used, tasks)
    assert not caplog.records
    read_route_map({**used, "Clustering": "f", "Reranking.query": "g"}, tasks)
    assert "of no task measured here, and without effect: Clustering, Reranking.query" in caplog.text
