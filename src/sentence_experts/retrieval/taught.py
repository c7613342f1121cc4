"""Taught routes and the marks that teach them, kept beside a corpus: a file per profile.

The file, `CORPUS/.taught/PROFILE.json`, holds marks by paper id, not vectors. A route is fitted again from
its marks when it is first used, in a fraction of a second; so it follows a corpus that grows and a model that
is replaced.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from operator import itemgetter
from threading import RLock
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sentence_experts.config import check_content
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.routes.task_types import SIDES, fold_name
from sentence_experts.names import EXPERT, FOLDER, check_route_names
from sentence_experts.storage import file_state, locked, read_json, sha256_settings, sha256_text, write_json

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

logger = logging.getLogger(__name__)

FOLDER_NAME, DEFAULT = ".taught", "default"
_DIGEST = "sha256"  # key of the hash of all else in the file
_DIGITS = 8  # of a hash that tells papers apart
MAX_MARKS, MAX_ROUTES, MAX_QUERY, MAX_UNDO, MAX_ID = 1_000, 100, 2_000, 100, 1_000

ProfileName = Annotated[str, Field(description="Profile that taught routes belong to")]


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mark(_Kept):
    """A paper that is similar, or not, in the way that someone means.

    Attributes:
        paper: id of the paper.
        similar: whether it is.
        query: text that it was judged against.
        like: papers that it was judged against; with neither, similar papers are similar to each other.
        assumed: whether nobody judged the paper, which was drawn from those without a keyword.
        title, entry: title and entry of the paper, by which it is found again if its id changes.
    """

    paper: str = Field(max_length=MAX_ID)
    similar: bool
    query: str | None = Field(default=None, max_length=MAX_QUERY)
    like: tuple[str, ...] = Field(default=(), max_length=20)
    assumed: bool = False
    title: str | None = None
    entry: str | None = None

    @property
    def anchor(self) -> tuple[str | None, tuple[str, ...]] | None:
        """The query and papers that the paper was judged against; None if there are none."""
        return (self.query, self.like) if self.query is not None or self.like else None

    @property
    def key(self) -> str:
        """The place of the mark: another judgement of the same paper takes it."""
        return json.dumps([self.query, self.like, self.paper], ensure_ascii=False)


class Sample(_Kept):
    """Papers that were drawn at random: once they are read, they tell how many others are relevant.

    Attributes:
        papers: ids of the papers drawn.
        before: ids of the papers that had been read by then.
        pool: number of papers that they were drawn from; None: all that were not read before.
        others: ids of those that were not drawn; None where only their number, or `rest`, is known.
        rest: the beginnings of the hashes of their ids (`hash_id`), joined, since they may be many.
        titles: the same of the titles of `papers`; None if unknown.
    """

    papers: tuple[str, ...]
    before: tuple[str, ...]
    pool: int | None = None
    others: tuple[str, ...] | None = None
    rest: str | None = None
    titles: str | None = None

    @property
    def hashes(self) -> list[str]:
        """The hashes of `rest`."""
        return split_hashes(self.rest)

    def renamed(self, ids: Mapping[str, str]) -> Sample:
        """Return the sample with the present ids of papers: `ids` has them by those of before."""
        hashes = {hash_id(old): hash_id(new) for old, new in ids.items() if old != new}
        changed = {
            name: papers and tuple(ids.get(paper, paper) for paper in papers)
            for name, papers in (("papers", self.papers), ("before", self.before), ("others", self.others))
        }
        rest = "".join(hashes.get(each, each) for each in self.hashes) if self.rest else self.rest
        return self.model_copy(update=changed | {"rest": rest})


def hash_id(paper: str) -> str:
    """Return the beginning of the hash of a paper's id, or title, which tells papers apart."""
    return sha256_text(paper)[:_DIGITS]


def split_hashes(hashes: str | None) -> list[str]:
    """Split what `hash_id` gave, joined."""
    return [hashes[place : place + _DIGITS] for place in range(0, len(hashes), _DIGITS)] if hashes else []


class TaughtEntry(_Kept):
    """A taught route as it is kept.

    Attributes:
        model, on: names of the model and of the route whose vectors it changes; "" without routes.
        unit: text of a paper whose vectors it was fitted to.
        kind: "head"; or "rocchio", where an earlier version moved queries, which is a linear map by now.
        marks: what taught it.
        figures: what `teach` found, for people to read.
        draft: the marks when these were last the present ones, if it was not taught by them since.
        sample: the random sample that was drawn then.
    """

    model: str
    on: str
    unit: str
    kind: str = "head"
    marks: tuple[Mark, ...]
    figures: dict[str, Any] = {}
    draft: tuple[Mark, ...] | None = None
    sample: Sample | None = None


class ProfileState(BaseModel):
    """The marks and taught routes of a profile, as its file holds them.

    Attributes:
        name: the route that the marks belong to, once it was taught.
        marks: the present marks by their keys.
        routes: the taught routes by name, oldest first.
        sample: papers that were drawn at random to be read (`screen`).
        undo: what the changes replaced, oldest first.
    """

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    marks: dict[str, Mark] = {}
    routes: dict[str, TaughtEntry] = {}
    sample: Sample | None = None
    undo: list[dict[str, Any]] = []

    def mark(self, marks: Sequence[Mark], forget: Sequence[Mark] = ()) -> None:
        """Add marks, and forget others."""
        for each in forget:
            self.marks.pop(each.key, None)
        for each in marks:
            self.marks.pop(each.key, None)  # so that the last one is the one that was judged last
            self.marks[each.key] = each
        if len(self.marks) > MAX_MARKS:
            raise UsageError(f"more than {MAX_MARKS:,} marks: mark fewer papers, or begin another kind")

    def begin(self, name: str | None = None) -> None:
        """Go on with the marks of a route, or with none."""
        self.leave()
        self.name, self.marks, self.sample = name, {}, None
        if name is not None:
            entry = self.entry(name)
            marks = entry.marks if entry.draft is None else entry.draft
            self.marks, self.sample = {each.key: each for each in marks}, entry.sample

    def leave(self, with_marks: bool = True) -> None:
        """Keep the present sample, and the marks, with their route, if it was taught."""
        if self.name in self.routes:
            left, kept = self.routes[self.name], dict[str, Any](sample=self.sample)
            if with_marks:
                same = {(each.key, each.similar) for each in left.marks}
                is_taught = same == {(each.key, each.similar) for each in self.marks.values()}
                kept["draft"] = None if is_taught else tuple(self.marks.values())
            self.routes[self.name] = left.model_copy(update=kept)

    def entry(self, name: str) -> TaughtEntry:
        """Return a route by its name."""
        if name not in self.routes:
            known = ", ".join(self.routes) or "none"
            raise UsageError(f"`name`: no taught route {name!r}; there are {known}")
        return self.routes[name]

    def put(self, name: str, entry: TaughtEntry, taken: Set[str] = frozenset()) -> None:
        """Keep a route under a name that no other one has; `taken` are those of models and their routes."""
        check_taught_name(name, taken, "name")
        before = self.routes.pop(name, None)  # so that the last one is the one that was taught last
        if before and entry.sample is None:
            entry = entry.model_copy(update={"sample": before.sample})
        self.routes[name] = entry
        if len(self.routes) > MAX_ROUTES:
            raise UsageError(f"more than {MAX_ROUTES} taught routes: delete one first")

    def rename(self, name: str, to: str, taken: Set[str] = frozenset()) -> None:
        """Give a route another name; it stays in its place."""
        self.entry(name)
        if to in self.routes:
            raise UsageError(f"`to`: there is a taught route {to!r} already")
        check_taught_name(to, taken, "to")
        self.routes = {to if each == name else each: entry for each, entry in self.routes.items()}
        self.name = to if self.name == name else self.name

    def delete(self, name: str) -> None:
        """Delete a route; its marks stay if they are the present ones."""
        self.entry(name)
        del self.routes[name]

    def step_back(self) -> None:
        """Undo the last change.

        Raises:
            UsageError: there is nothing to undo.
        """
        if not self.undo:
            raise UsageError("there is nothing to undo")
        before = self.undo.pop()
        if (left := before.get("sample_of")) is not None:
            before["sample"] = self.entry(left).sample
        for part in ("marks", "routes"):
            kept = [(key, value) for key, value in getattr(self, part).items() if key not in before[part]]
            values = {key: value for key, value in before[part].items() if value is not None}
            places = before.get("places", {}).get(part) or [len(kept) + len(values)] * len(values)
            for place, (key, value) in sorted(zip(places, values.items(), strict=True), key=itemgetter(0)):
                kept.insert(place, (key, (Mark if part == "marks" else TaughtEntry).model_validate(value)))
            setattr(self, part, dict(kept))
        self.name = before["name"]
        if "sample" in before:
            self.sample = Sample.model_validate(before["sample"]) if before["sample"] else None


def check_taught_name(name: str, taken: Set[str], parameter: str) -> None:
    """Check the name of a taught route; `taken` are the names of models and their routes.

    Raises:
        UsageError: it is no name of a route, or another route's, or that of one side of a search.
    """
    try:
        EXPERT.check("route", name)
        check_route_names([name], ["others"])
    except ValueError as error:
        raise UsageError(f"`{parameter}`: {error}") from None
    # Two such routes in a model would be taken for the queries and documents of one search.
    if fold_name(name) in map(fold_name, SIDES):
        raise UsageError(
            f"`{parameter}`: {name!r} is what models call one side of a search; choose another name"
        )
    if name.casefold() in {each.casefold() for each in taken}:  # the server does not look at case
        raise UsageError(f"`{parameter}`: the model has a route {name!r} already, or is called so")


class Profile:
    """The marks and taught routes of one person, or of one purpose, beside a corpus.

    A reader sees the state before a change or after it, and two changes at once follow each other.
    """

    def __init__(self, corpus: CorpusFolder, name: str = DEFAULT) -> None:
        try:
            FOLDER.check("profile", name)
        except ValueError as error:
            raise UsageError(f"`profile`: {error}") from None
        self.name, self.path = name, corpus.path / FOLDER_NAME / f"{name}.json"
        self._lock = RLock()
        self._seen: Any = None
        self._state = ProfileState()

    def warn_if_new(self) -> None:
        """Warn where nothing is kept under the name, but under others: it may be misspelled."""
        others = sorted(file.stem for file in self.path.parent.glob("*.json"))
        if others and self.name not in (DEFAULT, *others):
            logger.warning(f"`profile`: no {self.name!r} beside the corpus; there are {', '.join(others)}")

    def read(self) -> ProfileState:
        """Return the state, not to be changed; an empty one if nothing is kept.

        Raises:
            InputError: the file is damaged.
        """
        with self._lock:
            try:
                seen = file_state(self.path)
            except FileNotFoundError:
                self._seen, self._state = None, ProfileState()
                return self._state
            if seen != self._seen:
                self._state = check_content(ProfileState, self._read_unchanged(), self.path)
                self._seen = seen
            return self._state

    def _read_unchanged(self) -> Any:
        content = read_json(self.path)
        if isinstance(content, dict):
            digest = content.pop(_DIGEST, None)
            if digest is not None and digest != sha256_settings(content):
                raise InputError(
                    f"{self.path}: changed since it was written: put a copy back, or remove its line "
                    f'"{_DIGEST}" if you changed it yourself'
                )
        return content

    @contextmanager
    def changing(self, undoes: bool = True) -> Iterator[ProfileState]:
        """Yield the state to change; it is written at the end, whole or, after an error, not at all."""
        try:
            with self._lock, locked(self.path, "teach a route", wait=True):
                old = self.read()
                state = old.model_copy(deep=True)
                yield state
                if state == old and _orders(state) == _orders(old):
                    return
                if undoes:
                    state.undo = [*state.undo, _difference(state, old)][-MAX_UNDO:]
                content = state.model_dump(mode="json")
                write_json(self.path, {_DIGEST: sha256_settings(content), **content}, sort=False)
        except ValidationError as error:
            raise UsageError(error.errors()[0]["msg"]) from None
        except PermissionError as error:
            raise InputError(f"{self.path}: cannot be written beside the corpus: {error}") from error


def _orders(state: ProfileState) -> tuple[list[str], list[str]]:
    return list(state.marks), list(state.routes)


def _difference(new: ProfileState, old: ProfileState) -> dict[str, Any]:
    """Return what the new state lacks, changes or moves of the old one's marks and routes; None for new ones.

    `places` are those of the former among all of the old state.
    """
    parts: dict[str, Any] = {"name": old.name, "places": {}}
    left = new.routes.get(old.name or "")
    if new.sample != old.sample and new.name != old.name and left and left.sample == old.sample:
        parts["sample_of"] = old.name
    elif new.sample != old.sample:
        # The list is long, and each new draw would leave one; a paper whose id changed is no draw.
        is_drawn = (
            new.name == old.name
            and new.sample
            and old.sample
            and len(new.sample.rest or "") != len(old.sample.rest or "")
        )
        unkept = {"rest"} if is_drawn else None
        parts["sample"] = old.sample and old.sample.model_dump(mode="json", exclude=unkept)
    for part in ("marks", "routes"):
        before: dict[str, Any] = getattr(old, part)
        after: dict[str, Any] = getattr(new, part)
        same, places = set[str](), {key: place for place, key in enumerate(after)}
        following = len(after)
        for key in reversed(before):  # backwards, since what is judged or taught again comes to stand last
            if after.get(key) == before[key] and places[key] < following:
                same.add(key)
                following = places[key]
        changed = [key for key in before | after if key not in same]
        parts[part] = {key: before[key].model_dump(mode="json") if key in before else None for key in changed}
        parts["places"][part] = [place for place, key in enumerate(before) if key in parts[part]]
    return parts
