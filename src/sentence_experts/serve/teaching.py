"""`/search/taught`: marks on papers, and the routes that they teach, for each profile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence, Set
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from fastapi import APIRouter, Request, Response
from pydantic import Field

from sentence_experts.corpus.formats.exports import read_listed_papers
from sentence_experts.retrieval.matching import match_papers
from sentence_experts.retrieval.papers import Filters
from sentence_experts.retrieval.screening import order_papers
from sentence_experts.retrieval.taught import MAX_QUERY, Mark, ProfileState, TaughtEntry
from sentence_experts.retrieval.taught_routes import (
    current_ids,
    current_rows,
    described_marks,
    known_rows,
    latest_marks,
)
from sentence_experts.retrieval.teach import learn
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import Schema, body_of, json_answer, read
from sentence_experts.serve.library import CorpusView, Library, LibraryRoute, profile_of
from sentence_experts.serve.search import PaperId, shown_facts

FIRST_NAME = "my-method"
TO_READ = 20  # papers in a list to read
MAX_LABELLED = 200  # papers that a keyword marks as similar, and at most as many others

Told = dict[str, Any] | None
Name = Annotated[str, Field(max_length=200, description="Name of a taught route")]


class MarkedPaper(Schema):
    """A judgement of a paper: `similar` null takes it back."""

    paper: PaperId
    similar: bool | None
    query: Annotated[str, Field(max_length=MAX_QUERY)] | None = None
    like: list[str] = Field([], max_length=20)


class MarksRequest(Schema):
    """Papers that are similar, or not, to a query or to other papers, in the way that is meant."""

    marks: Annotated[list[MarkedPaper], Field(max_length=100)] = Field(
        description="`paper`, `similar` (true, false, or null to forget), and `query` or `like`"
    )


class ListRequest(Schema):
    """A list of papers that are similar, or not, or a keyword whose papers are."""

    text: str | None = Field(
        None, description="BibTeX, RIS, NBIB, a CSV of PubMed or Zotero, or an id or title per line"
    )
    similar: bool = Field(True, description="Whether the papers of `text` are similar")
    keyword: str | None = Field(
        None,
        description="Keyword or collection: its papers (of many, 200 at random) are similar, as many "
        "others (at random) not",
    )


class TeachRequest(Schema):
    """A request to teach a route by the marks."""

    name: Name | None = Field(
        None, description="Name of the route. Default: that of the last one, or a new one"
    )
    on: str | None = Field(
        None, description="NAME:ROUTE that it begins as. Default: as before, of a new one the first"
    )


class ScreenRequest(Schema):
    """A request for papers to read, by the marks."""

    on: str | None = Field(
        None, description="NAME:ROUTE whose vectors they are ordered by. Default: as the marks were taught"
    )
    draw: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0, description="Unread papers to draw at random: once all are read, they tell how many are left"
    )


class BeginRequest(Schema):
    """A request to go on with the marks of a taught route, or with none."""

    name: Name | None = None


class NameRequest(Schema):
    """A taught route."""

    name: Name


class RenameRequest(NameRequest):
    """Another name of a taught route."""

    to: Name


router = APIRouter(tags=["Taught routes"], prefix="/search/taught", route_class=LibraryRoute)


@router.get("")
async def show(request: Request) -> Response:
    """Show the marks and taught routes of a profile (header `X-Profile`)."""
    return await _changed(request, None)


@router.post("/marks", openapi_extra=body_of(MarksRequest))
async def mark(request: Request) -> Response:
    """Mark papers as similar in the way that is meant, or as not similar, or forget marks."""
    body = await read(request, MarksRequest)
    library: Library = request.app.state.library

    def change(state: ProfileState) -> None:
        rows = library.rows([each.paper for each in body.marks], "marks")
        ids = [each["paper_id"] for each in library.papers.facts(rows)]
        for place, each in enumerate(body.marks):
            if each.query is not None and not each.query.strip():
                raise RequestError(422, "is empty", f"marks.{place}.query")
            if each.query is not None and each.like:
                raise RequestError(422, "give `query` or `like`, not both", f"marks.{place}.like")
            library.rows(each.like, f"marks.{place}.like")
        marks = [
            Mark(paper=paper, similar=bool(each.similar), query=each.query, like=tuple(each.like))
            for paper, each in zip(ids, body.marks, strict=True)
        ]
        last = {one.key: place for place, one in enumerate(marks)}
        wanted = [
            (each.similar is not None) if last[one.key] == place else None
            for place, (one, each) in enumerate(zip(marks, body.marks, strict=True))
        ]
        kept, forgotten = (
            latest_marks(
                library.papers, [one for one, each in zip(marks, wanted, strict=True) if each is way]
            )
            for way in (True, False)
        )
        _mark(state, library, kept, forgotten)

    return await _changed(request, change)


@router.post("/list", openapi_extra=body_of(ListRequest))
async def mark_list(request: Request) -> Response:
    """Mark the papers of a list, or by a keyword, at most 200; `marked` counts them, `changed` those
    of them that were marked otherwise before, `left_out` those beyond, `unknown` are not in the corpus."""
    body = await read(request, ListRequest)
    library: Library = request.app.state.library
    if (body.text is None) == (body.keyword is None):
        raise RequestError(422, "give `text` or `keyword`", "text")
    if body.keyword is not None and not body.similar:
        raise RequestError(422, "is for `text`: papers of a keyword are similar", "similar")
    if body.text is not None and _is_table_of_marks(body.text):
        why = "a table with a column `similar` is for the command `teach`; give a list of papers"
        raise RequestError(422, why, "text")

    def change(state: ProfileState) -> Told:
        papers, unknown, marked, left_out = library.papers, list[str](), dict[int, bool](), 0
        if body.text is not None:
            listed = read_listed_papers(body.text)
            for paper, row in zip(listed, match_papers(papers, listed), strict=True):
                if row is None:
                    unknown.append((paper.title or paper.names()[0])[:200])
                else:
                    marked[row] = body.similar
        else:
            has = np.asarray(papers.places(Filters.of(keyword=[str(body.keyword)])))
            before = current_rows(papers, [*state.marks.values()])
            known = {row for row in before.values() if row is not None}
            assumed = {before[mark.paper] for mark in state.marks.values() if mark.assumed}
            alike = np.setdiff1d(np.flatnonzero(has), [*known - assumed])  # marks by the user stay
            others = np.setdiff1d(np.flatnonzero(~has), [*known])
            room = min(len(alike), MAX_LABELLED)
            left_out = len(alike) - room
            for similar, rows in ((True, alike), (False, others)):
                marked |= dict.fromkeys(np.random.default_rng(0).permutation(rows)[:room].tolist(), similar)
        ids = papers.column("paper_id").take(pa.array(list(marked), pa.int64())).to_pylist()
        marks = [
            Mark(paper=paper, similar=similar, assumed=body.text is None and not similar)
            for paper, similar in zip(ids, marked.values(), strict=True)
        ]
        told = {"marked": len(marked), "changed": _mark(state, library, marks), "left_out": left_out}
        return told | {"unknown": len(unknown), "examples": unknown[:5]}

    return await _changed(request, change)


_OUTDATED = {
    "verdict": "Taught by an earlier version, which moved queries; a linear map by now: teach it again."
}


def _corrections(library: Library, name: str, entry: TaughtEntry) -> dict[str, str]:
    """Return the verdict on a route whose figures are of another fit than the present one."""
    if entry.kind != "head":
        return _OUTDATED
    changed = library.change_of(name, entry)
    return {"verdict": f"{changed}. {entry.figures.get('verdict', '')}".strip()} if changed else {}


def _is_table_of_marks(text: str) -> bool:
    header = text.lstrip("\ufeff \n").partition("\n")[0].lower()
    columns = {each.strip(' \r"') for each in re.split("[,;\t]", header)}
    # A title may begin with "Similar, but not the same".
    is_named = not columns.isdisjoint(_NAMING) or all(len(each.split()) < 3 for each in columns)
    return "similar" in columns and len(columns) > 1 and is_named


_NAMING = {"paper", "paper_id", "id", "doi", "pmid", "title"}


@router.post("/begin", openapi_extra=body_of(BeginRequest))
async def begin(request: Request) -> Response:
    """Go on with the marks of a taught route, or with none."""
    body = await read(request, BeginRequest)
    return await _changed(request, lambda state: state.begin(body.name))


@router.post("", openapi_extra=body_of(TeachRequest))
async def teach(request: Request) -> Response:
    """Teach a route by the marks: it is searched by its name at once; `taught` is the name in requests."""
    body = await read(request, TeachRequest)
    view = await _view(request, body.on, body.name)

    def change(state: ProfileState) -> Told:
        marks = latest_marks(view.searcher.papers, [*state.marks.values()])
        name = body.name or state.name or _new_name({*state.routes, *_taken(request)})
        result = learn(view.searcher, view.blend.main, marks, name)
        entry = result.entry(view.searcher, view.blend.main, marks)
        state.put(name, entry, _taken(request))
        if name != state.name:
            state.leave(with_marks=False)
        state.name, state.sample = name, state.sample or state.routes[name].sample
        return {"taught": f"{view.served.name}:{name}"}

    return await _changed(request, change)


@router.post("/screen", openapi_extra=body_of(ScreenRequest))
async def screen(request: Request) -> Response:
    """List the papers to read next by the marks, and how many relevant ones are unread at most."""
    body = await read(request, ScreenRequest)
    view = await _view(request, body.on)

    def change(state: ProfileState) -> Told:
        marks = [*state.marks.values()]
        result = order_papers(view.searcher, view.blend.main, marks, state.sample, body.draw)
        verdict = result.verdict
        if body.draw:
            if state.sample:
                drawn = len(state.sample.papers)
                verdict = f"A new sample takes the place of the {drawn:,} random papers before. {verdict}"
            state.sample = result.sample
        listed = [each for each in result.papers[:TO_READ] if each["rank"]]
        papers = view.searcher.papers
        facts = map(shown_facts, papers.facts(papers.find([each["paper_id"] for each in listed])))
        sampled = [known | {"sampled": each["sampled"]} for known, each in zip(facts, listed, strict=True)]
        return {"papers": sampled, "verdict": verdict}

    return await _changed(request, change, undoes=body.draw > 0)


@router.post("/rename", openapi_extra=body_of(RenameRequest))
async def rename(request: Request) -> Response:
    """Give a taught route another name."""
    body = await read(request, RenameRequest)
    return await _changed(request, lambda state: state.rename(body.name, body.to, _taken(request)))


@router.post("/delete", openapi_extra=body_of(NameRequest))
async def delete(request: Request) -> Response:
    """Delete a taught route."""
    body = await read(request, NameRequest)
    return await _changed(request, lambda state: state.delete(body.name))


@router.post("/undo")
async def undo(request: Request) -> Response:
    """Undo the last change of a profile: of marks, of a route, or of its name."""
    return await _changed(request, ProfileState.step_back, undoes=False)


async def _view(request: Request, on: str | None, name: str | None = None) -> CorpusView:
    """Return the route of a model that a request names, else that which the taught route `name`, or the one
    of the present marks, began as, else the first one."""
    library: Library = request.app.state.library
    if on is None:
        with library.refusing():
            state = await asyncio.to_thread(library.profile(profile_of(request)).read)
        entry = state.routes.get(name or state.name or "")
        return (entry and library.view_of(entry)) or next(iter(library.views.values()))
    view = await asyncio.to_thread(library.find_one, on, "on", profile_of(request))
    if view.name not in library.views:
        raise RequestError(422, "name one route of a model", "on")
    return view


async def _changed(
    request: Request, change: Callable[[ProfileState], Told] | None, undoes: bool = True
) -> Response:
    """Change a profile, and answer with what it is then and what `change` tells."""
    library: Library = request.app.state.library

    def run() -> tuple[ProfileState, list[Mark], Told, dict[str, int]]:
        profile, told = library.profile(profile_of(request)), None
        with library.refusing():
            if change is not None:
                with profile.changing(undoes) as state:
                    told = change(state)
            state = profile.read()
            missing = {name: _count_gone(library, each.marks) for name, each in state.routes.items()}
            return state, latest_marks(library.papers, [*state.marks.values()]), told, missing

    state, marks, told, missing = await asyncio.to_thread(run)
    content = {
        "profile": profile_of(request),
        "name": state.name,
        "marks": [each.model_dump(exclude={"title", "entry"}) for each in marks],
        "routes": [
            {"name": name, "on": each.on, "model": each.model, "kind": each.kind, "marks": len(each.marks)}
            | {"missing": missing[name], "figures": each.figures | _corrections(library, name, each)}
            | {"source": library.source_of(each.model)}
            for name, each in state.routes.items()
        ],
        "can_undo": bool(state.undo),
    }
    return await json_answer(content | (told or {}))


def _count_gone(library: Library, marks: Sequence[Mark]) -> int:
    """Count the marks on, or by likeness to, papers that the corpus does not have."""
    return known_rows(library.papers, marks).count(None)


def _mark(state: ProfileState, library: Library, marks: Sequence[Mark], forget: Sequence[Mark] = ()) -> int:
    """Add marks with the ids that the corpus has now, as the former ones get, whose places they may take.

    Return the number of the user's own marks that are turned.
    """
    before = [*state.marks.values()]
    if state.sample:
        state.sample = state.sample.renamed(current_ids(library.papers, before))
    former = latest_marks(library.papers, before)
    state.marks = {each.key: each for each in described_marks(library.papers, former)}
    own = {each.key: each.similar for each in former if not each.assumed}
    state.mark(described_marks(library.papers, marks), forget)
    return sum(own.get(each.key, each.similar) != each.similar for each in marks)


def _taken(request: Request) -> Set[str]:
    """Return the names of the models and of their routes, which no taught route can have."""
    models = request.app.state.engine.models
    return {name for served in models for name in (served.name, *served.known.prompts)}


def _new_name(taken: Set[str]) -> str:
    """Return a name that no route has."""
    names = [FIRST_NAME, *(f"{FIRST_NAME}-{number}" for number in range(2, len(taken) + 3))]
    folded = {name.casefold() for name in taken}
    return next(name for name in names if name.casefold() not in folded)
