"""Taught routes as routes of a search, and as heads of a model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.retrieval.matching import find_renumbered, trace_paper
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.search_routes import Blend, SearchRoute
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.taught import (
    DEFAULT,
    MAX_ID,
    Mark,
    Profile,
    ProfileState,
    TaughtEntry,
    check_taught_name,
)
from sentence_experts.retrieval.teaching import Examples, fit_head, number_groups
from sentence_experts.storage import sha256_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.encoder import ExpertEncoder

logger = logging.getLogger(__name__)

MIN_EACH = 2  # similar papers, and others
LASTING = ("doi:", "pmid:", "pmc:", "openalex:")  # what ids begin with that do not change
_ENCODING = Lock()  # a model's tokenizer takes one call at a time, and a server has many threads
MAX_TITLE = 1_000  # characters of a title that are kept; hostile records hold megabytes


class TaughtRoutes(Mapping[str, SearchRoute]):
    """The taught routes of a profile by name; each is fitted when it is first used.

    Left out are those whose name the model has: they were written into it (`add_taught_route`).
    `before` belong to another state of the profile; the unchanged ones are taken.

    Attributes:
        unfit: those that were taught on a route which the model does not have, or that are called as a model
            without routes is (which that name means), with the reason.
    """

    def __init__(self, searcher: Searcher, state: ProfileState, before: TaughtRoutes | None = None) -> None:
        model_routes, known = searcher.encoder.routes, searcher.encoder.known_routes
        self._searcher = searcher
        self._entries: dict[str, TaughtEntry] = {}
        self.unfit: dict[str, str] = {}
        for name, entry in state.routes.items():
            if name in model_routes:
                continue
            if not known.prompts and name == known.model:
                self.unfit[name] = (
                    f"{name!r} is the name of the model, too: give the taught route another one"
                )
                continue
            try:
                _find_route(searcher, entry)
            except (RouteError, UsageError):
                on = f"on {entry.on!r}" if entry.on else "without a route"
                self.unfit[name] = f"{name!r} was taught {on}, which does not fit this model: teach it again"
            else:
                self._entries[name] = entry
        self._fitted: dict[str, SearchRoute] = {}
        if before is not None and before._searcher is searcher:
            for name, route in list(before._fitted.items()):
                if before._entries[name] == self._entries.get(name):
                    self._fitted[name] = route

    def __getitem__(self, name: str) -> SearchRoute:
        entry = self._entries[name]
        if name not in self._fitted:
            self._fitted[name] = _fit(self._searcher, name, entry, _find_route(self._searcher, entry))
        return self._fitted[name]

    def check(self, route: Any) -> None:
        """Refuse a route that is among `unfit`.

        Raises:
            UsageError: it is.
        """
        if isinstance(route, str) and route in self.unfit:
            raise UsageError(f"`route`: {self.unfit[route]}")

    def warn_of_changes(self, blend: Blend) -> None:
        """Warn where routes were taught on other texts, or with another model, or their marks are gone."""
        for name in dict.fromkeys(each.name for each in blend.routes if each.taught is not None):
            if name in self._entries:
                if changed := describe_change(self._searcher, name, self._entries[name]):
                    logger.warning(changed)
                _warn_of_gone(self._searcher.papers, name, self._entries[name])

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # also if too few of its papers are left

    def is_usable(self, name: str) -> bool:
        """Return whether a route fits the model, and enough of the papers that taught it are left."""
        try:
            self[name]
        except (KeyError, UsageError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def describe_change(searcher: Searcher, name: str, entry: TaughtEntry) -> str | None:
    """Describe where a route is fitted to other texts, or by another model, than it was taught; else None."""
    before, now = (entry.unit, entry.model), (searcher.unit, searcher.encoder.name)
    if before == now:
        return None
    on, here = (f"{unit} with {model}" for unit, model in (before, now))
    return f"{name!r} was taught on {on}; here it is fitted on {here}: its figures may not hold"


def _warn_of_gone(papers: Papers, name: str, entry: TaughtEntry) -> None:
    count = len(entry.marks)
    if gone := known_rows(papers, entry.marks).count(None):
        logger.warning(
            f"{name!r}: {count - gone:,} of the {count:,} marks that taught it are left, since the corpus "
            "lacks the other papers: teach it again"
        )


def _find_route(searcher: Searcher, entry: TaughtEntry) -> SearchRoute:
    """Return the model's route that another one was taught on; RouteError or UsageError if it has none."""
    if not entry.on and searcher.encoder.routes:
        raise UsageError("the model has routes")
    return searcher.one_route(entry.on)


def _fit(searcher: Searcher, name: str, entry: TaughtEntry, on: SearchRoute) -> SearchRoute:
    if entry.kind != "head":
        logger.warning(
            f"{name!r} moved queries in the version that it was taught with; it is a linear map now: teach "
            "it again for its figures"
        )
    return SearchRoute(name, on.document_route, on.query_route, fit_head(gather(searcher, on, entry.marks)))


def add_taught_route(
    model: str | Path | SentenceTransformer,
    corpus: CorpusFolder | Path | str,
    name: str,
    *,
    profile: str = DEFAULT,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> ExpertEncoder:
    """Write a taught route into a model, as a head.

    The head shares the expert or adapter of the route that it was taught on, or the base if it was taught on
    a model without routes. Where queries have another route than papers, there are two: `name` for papers and
    `name query` for queries; `search` and the server pair them.

    Args:
        model: a model in memory, or the path or name of one: a dense encoder, or one with routes.
        corpus: the corpus, or its folder, beside which the route was taught.
        name: name of the taught route.
        profile: profile that it belongs to.
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: start over, replacing another model in `out`.

    Raises:
        UsageError: no such taught route, or the model has one of its name, or it was taught on an instruction
            of a model that has domain tokens too.
        InputError: the model's pooling does not commute with a linear map.
    """
    from sentence_experts.models.surgery.add_drop_routes import with_heads
    from sentence_experts.models.surgery.assemble import make_and_store

    opened = CorpusFolder.open(corpus)
    entry = Profile(opened, profile).read().entry(name)
    encoder = BatchEncoder.open(model)
    on_base = not entry.on and bool(encoder.routes)  # it was taught on a model without routes

    def make(grown: Any) -> ExpertEncoder:
        check_taught_name(name, set(encoder.routes), "name")
        if on_base:
            width = encoder.dimension
            grown = with_heads(grown, {name: (np.eye(width), np.zeros(width))})
            searcher = Searcher(BatchEncoder(grown), opened, entry.unit)
            (begun,) = searcher.blend(name).routes
            route = _fit(searcher, name, entry, begun)
        else:
            searcher = Searcher(encoder, opened, entry.unit)
            taught = TaughtRoutes(searcher, ProfileState(routes={name: entry}))
            if name in taught.unfit:
                raise UsageError(f"`name`: {taught.unfit[name]}")
            route = taught[name]
        _warn_of_gone(searcher.papers, name, entry)
        return _with_taught(grown, searcher, route)

    marks = [mark.model_dump(mode="json", exclude={"title", "entry"}) for mark in entry.marks]
    settings: dict[str, Any] = {"taught": name, "on": entry.on, "kind": "head", "marks": marks}
    settings |= {"unit": entry.unit, "texts": _hash_texts(Papers(opened), entry)}
    settings |= {"on_base": True} if on_base else {}
    return make_and_store(make, model, out, overwrite, settings, {})


def _hash_texts(papers: Papers, entry: TaughtEntry) -> str:
    """Return a hash of the texts that taught a route, of the papers that the corpus has."""
    rows = [row for row in current_rows(papers, entry.marks).values() if row is not None]
    return sha256_text(*papers.texts(rows, entry.unit))


def _with_taught(grown: Any, searcher: Searcher, route: SearchRoute) -> ExpertEncoder:
    """Return a model with the head of a taught route, and with another for queries if they need one.

    The prompts of a dense model, which are its routes, come behind the tokens of the heads.
    """
    from sentence_experts.compat.sentence_transformers import leaves_prompts_out
    from sentence_experts.models.encoder import ExpertEncoder
    from sentence_experts.models.pooling import scales_after_pooling
    from sentence_experts.models.routes.route_tokens import domain_token
    from sentence_experts.models.surgery.add_drop_routes import query_half, with_heads

    change, known, of_queries = route.taught, getattr(grown, "head_routes", {}), query_half(route.name)
    assert change is not None
    sides = {route.name: route.document_route}
    if route.query_route != route.document_route:
        sides[of_queries] = route.query_route
        if of_queries in searcher.encoder.routes:
            raise UsageError(f"`name`: the model has a route {of_queries!r} already, and queries need one")
    if not scales_after_pooling(grown):
        raise UsageError(
            "modules after the model's pooling do more than scale vectors, so that a head, which comes "
            "before them, cannot hold what was taught: search with the taught route beside the corpus"
        )
    width, is_dense = searcher.encoder.dimension, not isinstance(grown, ExpertEncoder)
    if is_dense and (route.document_route or route.query_route) and leaves_prompts_out(grown):
        raise UsageError(
            "the model's pooling leaves prompts out, which a head beside a token cannot: "
            "call model.set_pooling_include_prompt(True), and teach the route again"
        )
    made: ExpertEncoder = grown
    for side, on in sides.items():
        weight, bias = known.get(on, (np.eye(width, dtype=np.float32), np.zeros(width, np.float32)))
        weight, bias = change.weight @ weight, change.weight @ bias
        made = with_heads(made, {side: (weight, bias)}, on=None if is_dense else on)
        if is_dense:
            made.prompts[side] = domain_token(side) + (grown.prompts[on] if on else "")
    if of_queries in sides:
        made.routed_model.config.search_routes |= {of_queries: route.name}
    return made


def known_rows(papers: Papers, marks: Sequence[Mark]) -> list[int | None]:
    """Return the row of the paper of each mark; None where it, or one that it is like, is gone."""
    rows = current_rows(papers, marks)
    return [None if None in map(rows.get, mark.like) else rows[mark.paper] for mark in marks]


def current_rows(papers: Papers, marks: Sequence[Mark]) -> dict[str, int | None]:
    """Return the row of each paper that marks name; None where it is gone.

    A paper whose id is a hash or the user's own is found again if its record has changed, or another paper
    has its id, unless a mark names what is found.
    """
    named = list(dict.fromkeys(name for mark in marks for name in (mark.paper, *mark.like)))
    rows = dict(zip(named, papers.rows_of(named), strict=True))
    passing = [mark for mark in marks if not mark.paper.startswith(LASTING)]
    ids = papers.column("paper_id")  # by another name a paper is found by a DOI or PMID, which do not change
    titles = {
        row: mark.title
        for mark in passing
        if mark.title and (row := rows[mark.paper]) is not None and ids[row].as_py() == mark.paper
    }
    others = find_renumbered(papers, titles)
    for mark in passing:
        if mark.title and rows[mark.paper] in others:
            rows[mark.paper] = None
    marked = {rows[mark.paper] for mark in marks}
    for mark in passing:
        if rows[mark.paper] is None:
            found = trace_paper(papers, mark.title, mark.entry)
            rows[mark.paper] = None if found in marked else found
    return rows


def current_ids(papers: Papers, marks: Sequence[Mark], gone: str | None = None) -> dict[str, str]:
    """Return the id that the corpus has for each paper that marks name; for one that is gone `gone`, or the
    one named."""
    rows = current_rows(papers, marks)
    there = [name for name, row in rows.items() if row is not None]
    found = papers.column("paper_id").take(pa.array([rows[name] for name in there], pa.int64()))
    named = {name: name if gone is None else gone for name in rows}
    return named | dict(zip(there, found.to_pylist(), strict=True))


def find_listed(papers: Papers, marks: Sequence[Mark], unread: Sequence[Mark]) -> list[Mark]:
    """Return the marks of a list with the present ids of their papers, and without titles.

    A paper is found again by its title only if no other row of the list, marked or `unread`, names that one.
    """
    rows, now = current_rows(papers, [*marks, *unread]), current_ids(papers, [*marks, *unread])
    by_id = dict(zip(rows, papers.rows_of([*rows]), strict=True))
    _warn_of_titles(papers, [*marks, *unread], by_id, rows, now)
    for name, row in by_id.items():
        if row == rows[name]:
            now[name] = name
        elif rows[name] is None:  # another paper has its id
            now[name] = f"no paper now: {name}"[:MAX_ID]
    return [
        mark.model_copy(
            update={"paper": now[mark.paper], "like": tuple(map(now.__getitem__, mark.like)), "title": None}
        )
        for mark in marks
    ]


def _warn_of_titles(
    papers: Papers,
    marks: Sequence[Mark],
    by_id: Mapping[str, int | None],
    rows: Mapping[str, int | None],
    now: Mapping[str, str],
) -> None:
    """Warn of papers of a list whose titles are not those of the papers that their ids name."""
    moved = [name for name, row in by_id.items() if row is not None and rows[name] not in (None, row)]
    if moved:
        logger.warning(
            f"ids ({len(moved):,}) name other papers than the titles beside them, such as {moved[0]!r}, "
            f"whose title is that of {now[moved[0]]!r}: the titles count"
        )
    titles = {
        row: mark.title
        for mark in marks
        if mark.title and (row := by_id[mark.paper]) is not None and row == rows[mark.paper]
    }
    if others := find_renumbered(papers, titles):
        first = min(others)
        logger.warning(
            f"papers ({len(others):,}) have other titles than the list says, such as "
            f"{papers.column('paper_id')[first].as_py()}, {titles[first][:60]!r}: their identifiers count"
        )


def latest_marks(papers: Papers, marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks that count, with the ids that the corpus has for their papers.

    Of several on one paper, against the same query or papers, the last one counts; a warning names papers
    that are marked in both ways.
    """
    ids = current_ids(papers, marks)
    latest, both = dict[str, Mark](), dict[str, None]()
    for mark in marks:
        current = mark.model_copy(update={"like": tuple(ids[name] for name in mark.like)})
        if ids[mark.paper] != mark.paper:
            current = current.model_copy(update={"paper": ids[mark.paper], "title": None, "entry": None})
        if latest.pop(current.key, current).similar != current.similar:
            both[mark.paper] = None
        latest[current.key] = current
    if both:
        logger.warning(
            f"papers are marked yes and no ({len(both):,}, such as {next(iter(both))}): the last mark counts"
        )
    return list(latest.values())


def described_marks(papers: Papers, marks: Sequence[Mark]) -> list[Mark]:
    """Return marks with the titles and entries of their papers, as far as they lack both."""
    bare = [mark.paper for mark in marks if mark.title is None and mark.entry is None]
    rows = sorted({row for row in papers.rows_of(bare) if row is not None})  # read group by group
    facts = {each["paper_id"]: each for each in papers.facts(rows)}
    described = []
    for mark in marks:
        if mark.paper in facts and mark.title is None and mark.entry is None:
            title, entry = (facts[mark.paper].get(name) for name in ("title", "entry"))
            mark = mark.model_copy(update={"title": title and title[:MAX_TITLE], "entry": entry})
        described.append(mark)
    return described


def gather(searcher: Searcher, on: SearchRoute, marks: Sequence[Mark]) -> Examples:
    """Return marks as examples; those on, or by likeness to, papers that the corpus lacks are left out.

    They are sorted, so that what is learned does not depend on the order of the marks.

    Raises:
        UsageError: too few are left.
    """
    marks = sorted(latest_marks(searcher.papers, marks), key=lambda mark: (mark.key, mark.similar))
    rows = known_rows(searcher.papers, marks)
    vectors = searcher.vectors(on)
    found = [
        (row, mark, vector)
        for row, mark in zip(rows, marks, strict=True)
        if row is not None and (vector := vectors.of_rows([row])[0]).any()
    ]
    groups, anchors = number_groups([mark.anchor for _, mark, _ in found])
    similar = np.array([mark.similar for _, mark, _ in found], bool)
    for count, kind in ((similar.sum(), "similar"), ((~similar).sum(), "not similar")):
        if count < MIN_EACH:
            gone = rows.count(None)
            more = (
                f", without the {gone} that the corpus does not have under this id and title" if gone else ""
            )
            raise UsageError(f"mark at least {MIN_EACH} papers as {kind}; there are {count}{more}")
    blend, means = Blend((on,)), np.zeros((len(anchors), vectors.dimension), np.float32)
    texts = [place for place, (query, _) in enumerate(anchors) if query is not None]
    if texts:
        with _ENCODING:
            means[texts] = searcher.encode([anchors[place][0] for place in texts], blend)[0]
    for place, (query, like) in enumerate(anchors):
        if query is None:
            means[place] = searcher.mean_vectors(searcher.papers.find(like), blend)[0][0]
    papers = np.array([row for row, _, _ in found], np.int64)
    return Examples(np.stack([vector for _, _, vector in found]), similar, groups, means, papers)
