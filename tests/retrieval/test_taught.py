"""Marks and taught routes as a profile keeps them: their order, and undoing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.samples import write_corpus
from sentence_experts.errors import UsageError
from sentence_experts.retrieval.taught import (
    MAX_ROUTES,
    Mark,
    Profile,
    ProfileState,
    Sample,
    TaughtEntry,
    check_taught_name,
)

ENTRY = TaughtEntry(model="m", on="", unit="title", kind="head", marks=())


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(write_corpus(tmp_path))


def mark(paper: str, similar: bool = True, query: str | None = None) -> Mark:
    return Mark(paper=paper, similar=similar, query=query)


def content(state: ProfileState) -> tuple[list[Mark], list[tuple[str, TaughtEntry]]]:
    return [*state.marks.values()], [*state.routes.items()]


def test_the_last_judgement_stands_last(profile: Profile) -> None:
    with profile.changing() as state:
        state.mark([mark("a", query="x"), mark("a", False, "y"), mark("b")])
    with profile.changing() as state:
        state.mark([mark("a", query="x")])
    assert [each.query for each in profile.read().marks.values()] == ["y", None, "x"]


def test_a_random_sample_stays_with_its_route(profile: Profile) -> None:
    sample = Sample(papers=("a", "b"), before=("c",))
    with profile.changing() as state:
        state.routes = dict.fromkeys(("review", "other"), ENTRY)
        state.name, state.sample = "review", sample
    for name, known in (("other", None), ("review", sample), (None, None), ("review", sample)):
        with profile.changing() as state:
            state.begin(name)
        assert profile.read().sample == known, name
    with pytest.raises(UsageError, match="no taught route"), profile.changing() as state:
        state.begin("gone")
    assert profile.read().sample == sample


def test_marks_since_a_route_was_taught_stay_with_it(profile: Profile) -> None:
    with profile.changing() as state:
        state.routes = dict.fromkeys(("review", "other"), ENTRY)
        state.begin("review")
        state.mark([mark("new"), mark("a", False)])
        marks = dict(state.marks)
    for name in ("other", "review", None, "review", "review"):
        with profile.changing() as state:
            state.begin(name)
        assert (profile.read().marks == marks) == (name == "review"), name
        assert profile.read().routes["review"].marks == ENTRY.marks
    with profile.changing() as state:
        state.put("review", ENTRY)
        state.begin("other")
        state.begin("review")
    assert profile.read().marks == marks, "these were the present ones"


def test_a_route_that_is_taught_again_keeps_its_sample(profile: Profile) -> None:
    sample = Sample(papers=("a",), before=(), others=("b", "c"))
    with profile.changing() as state:
        state.put("review", ENTRY)
        state.begin("review")
        state.sample = sample
    with profile.changing() as state:
        state.begin()
    with profile.changing() as state:
        state.put("review", ENTRY.model_copy(update={"unit": "abstract"}))
        state.begin("review")
    assert profile.read().sample == sample


def test_undoing_a_change_of_routes_keeps_the_samples(profile: Profile) -> None:
    samples = [
        Sample(papers=papers, before=(), rest="00" * 8 * rest)
        for papers, rest in ((("a",), 3), (("b", "c"), 5))
    ]
    with profile.changing() as state:
        state.routes = {
            name: ENTRY.model_copy(update={"sample": sample})
            for name, sample in zip(("one", "two"), samples, strict=True)
        }
        state.begin("one")
    with profile.changing() as state:
        state.begin("two")
    with profile.changing(undoes=False) as state:
        state.step_back()
    assert profile.read().sample == samples[0]
    with profile.changing() as state:
        state.begin("two")
    assert "rest" not in json.dumps(profile.read().undo[-1]), "a list of all papers is kept once"


def test_a_renamed_route_stays_in_its_place(profile: Profile) -> None:
    with profile.changing() as state:
        state.routes = dict.fromkeys(map(str, range(MAX_ROUTES)), ENTRY)
    with profile.changing() as state:
        state.rename("5", "five")
    names = list(profile.read().routes)
    assert (len(names), names[4:7]) == (MAX_ROUTES, ["4", "five", "6"])
    with pytest.raises(UsageError, match="`to`"), profile.changing() as state:
        state.rename("five", "7")


def test_what_is_undone_has_its_old_place(profile: Profile) -> None:
    with profile.changing() as state:
        state.mark([mark(each) for each in "abcd"])
        state.routes = dict.fromkeys("rst", ENTRY)
    states = [content(profile.read())]
    for change in (
        lambda state: state.mark([mark("b", False), mark("e")], [mark("a")]),
        lambda state: state.rename("s", "z"),
        lambda state: state.delete("r"),
        lambda state: state.put("t", ENTRY.model_copy(update={"unit": "title+abstract"})),
        lambda state: state.put("z", ENTRY.model_copy(update={"unit": "abstract"})),
        lambda state: state.mark([mark("c"), mark("d")]),
        lambda state: state.begin(),
    ):
        with profile.changing() as state:
            change(state)
        states.append(content(profile.read()))
    assert len({repr(each) for each in states}) == len(states)
    for before in states[-2::-1]:
        with profile.changing(undoes=False) as state:
            state.step_back()
        assert content(profile.read()) == before


def test_what_was_undoable_before_places_were_kept_can_be_undone(profile: Profile) -> None:
    with profile.changing() as state:
        state.mark([mark("a"), mark("b")])
    with profile.changing() as state:
        state.mark([mark("c")], [mark("a")])
    with profile.changing(undoes=False) as state:
        for each in state.undo:
            del each["places"]
    for papers in (["b", "a"], []):
        with profile.changing(undoes=False) as state:
            state.step_back()
        assert [each.paper for each in profile.read().marks.values()] == papers


@pytest.mark.parametrize("name", ["search document", "RETRIEVAL_QUERY", "Search-Query"])
def test_a_taught_route_is_not_called_as_a_side_of_a_search(name: str) -> None:
    with pytest.raises(UsageError, match="one side of a search"):
        check_taught_name(name, set(), "name")
