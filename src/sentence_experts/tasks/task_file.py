"""Task files: tasks with their datasets, instructions, experts and ways to train.

Source: MoTE, section 3.2 (training examples organised by task and dataset) and appendix D.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from sentence_experts.config import check_content
from sentence_experts.errors import InputError
from sentence_experts.names import EXPERT, FOLDER
from sentence_experts.pairs.table_folder import MANIFEST
from sentence_experts.storage import check_unchanged, read_json
from sentence_experts.yaml_files import read_yaml

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Kind:
    """One kind of task."""

    name: str
    columns: tuple[str, ...]  # columns of a row: texts, a label or a score
    trainable: bool  # whether models are trained on it; if not, its datasets are test sets
    mteb_type: str
    batches: str = "homogeneous"  # a batch is of one dataset; "heterogeneous": of all datasets of the task
    temperature: float = 0.03  # temperature of the contrastive loss
    binary: bool = False  # whether scores are 0 or 1
    optional: tuple[str, ...] = ()  # further columns that a row may have
    instructions: Mapping[str, str] = field(default_factory=dict, hash=False)  # none: one, the task's name

    @property
    def labelled(self) -> bool:
        """Whether rows are a text and its label; texts of one label are positives of each other."""
        return "label" in self.columns


_PAIR, _LABELLED, _SCORED = ("anchor", "positive"), ("text", "label"), ("anchor", "positive", "score")
_SEARCH = {"query": "search query: ", "document": "search document: "}
_CLASSIFICATION = {"classification": "classification: "}
_MIXED: dict[str, Any] = {"batches": "heterogeneous"}
_NEGATIVE: dict[str, Any] = {"optional": ("negative", "label")}
# Batches and temperatures: MoTE, appendix D.2. The instructions of kinds that are only measured: its map for
# tasks that no model is trained on (re-ranking as search, the others as classification).
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("retrieval", _PAIR, True, "Retrieval", instructions=_SEARCH, **_NEGATIVE),
        Kind("classification", _LABELLED, True, "Classification", **_MIXED),
        Kind("clustering", _LABELLED, True, "Clustering", temperature=0.06, **_MIXED),
        Kind("pairs", _PAIR, True, "Retrieval", **_NEGATIVE),
        Kind("reranking", _PAIR, False, "Reranking", instructions=_SEARCH, **_NEGATIVE),
        Kind("pair_classification", _SCORED, False, "PairClassification", binary=True,
             instructions=_CLASSIFICATION),
        Kind("sts", _SCORED, False, "STS", instructions=_CLASSIFICATION),
    )
}  # fmt: skip

PLACES = ("file", "files", "corpus", "hub", "table")
IN_MEMORY = "a table in memory"  # the place of a table in a manifest
ROLES = ("anchor", "positive", "negative", "text", "label", "score")


class Source(BaseModel):
    """The source of a dataset's rows: a file, a file per split, a corpus, a hub dataset or a table.

    Columns are named by their role: `anchor`, `positive`, `negative`, `text`, `label`, `score`; a role that
    is not given is the column of that name. A text of several columns is joined with spaces. Pairs may have
    labels: 1 for linked texts, 0 for a `positive` that is none, which counts as a negative. With the name ""
    a column `label` or `negative` is not read. A column `split`
    of a file or table gives the split of each row: train, validation (dev) or test, in any case. Rows of one
    `group` (a column; by default the paper in a corpus) are never in two splits; leading "Re:" and "Fwd:",
    case and white space do not count, so a subject line names a thread.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    file: str | None = None
    files: dict[Split, str] | None = Field(None, min_length=1)
    corpus: str | None = None
    hub: str | None = None
    config: str | None = None
    splits: dict[Split, str] | None = Field(None, min_length=1)
    anchor: str | tuple[str, ...] | None = None
    positive: str | tuple[str, ...] | None = None
    negative: str | tuple[str, ...] | None = None
    text: str | tuple[str, ...] | None = None
    label: str | None = None
    score: str | None = None
    group: str | None = None
    table: Any = Field(None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _table_alone(cls, given: Any) -> Any:
        return given if isinstance(given, Mapping | Source | str) else {"table": given}

    @model_validator(mode="after")
    def _one_place(self) -> Source:
        places = [place for place in PLACES if getattr(self, place) is not None]
        if len(places) != 1:
            given = " and ".join(places) or "none"
            raise ValueError(f"give one of {', '.join(PLACES[:-1])} (got {given})")
        if self.hub is None and (own := [name for name in ("splits", "config") if getattr(self, name)]):
            raise ValueError(
                f"{own[0]}: is for a hub dataset, and has no effect on a {places[0]}: leave it out"
            )
        return self

    def columns(self, kind: Kind, found: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
        """Return role -> the columns it is in; optional roles only if they are given, or were `found`."""
        if empty := [role for role in kind.columns if getattr(self, role) in ("", [], ())]:
            raise InputError(f"`{empty[0]}`: name a column")
        wanted = {role: getattr(self, role) or role for role in kind.columns}
        wanted |= {role: names for role in kind.optional if (names := getattr(self, role))}
        used = {name for names in wanted.values() for name in ([names] if isinstance(names, str) else names)}
        for name in sorted(found, key=lambda name: name not in kind.optional):  # first "label", then "Label"
            role = name.strip().lower()
            is_open = role in kind.optional and role not in wanted and getattr(self, role) is None
            if is_open and name not in (*used, self.group):
                wanted[role] = name
        return {role: (names,) if isinstance(names, str) else tuple(names) for role, names in wanted.items()}


def _check_folder_name(name: str) -> str:
    FOLDER.check("task and dataset", name)
    return name


Name = Annotated[str, AfterValidator(_check_folder_name)]


class Task(BaseModel):
    """One task: kind, routes with their instructions and experts, datasets."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    name: str = ""
    instructions: dict[str, str] = Field(default_factory=dict, max_length=2)
    experts: dict[str, str] = Field(default_factory=dict)
    batches: Literal["homogeneous", "heterogeneous"] = "homogeneous"
    temperature: float = Field(0.03, gt=0)
    weight: float | None = Field(None, gt=0)
    datasets: dict[Name, Source] = Field(min_length=1)

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind not in KINDS:
            raise ValueError(f"there is no kind {kind!r}; known kinds: {', '.join(KINDS)}")
        return kind

    @field_validator("instructions")
    @classmethod
    def _not_empty(cls, instructions: dict[str, str]) -> dict[str, str]:
        EXPERT.check("route", *instructions)
        if empty := [route for route, text in instructions.items() if not text.strip()]:
            raise ValueError(f"the instruction of route {empty[0]!r} is empty")
        return instructions

    @model_validator(mode="after")
    def _sources_fit_the_kind(self) -> Task:
        kind, known = self.of, (*self.of.columns, *self.of.optional)
        for dataset, source in self.datasets.items():
            where = f"datasets.{dataset}"
            splits = {*(source.files or ()), *(source.splits or ())} - {"test"}
            if splits and not kind.trainable:
                raise ValueError(f"{where}: kind {kind.name} is only measured; its rows are file: or test:")
            for role in ROLES:
                if getattr(source, role) is not None and role not in known:
                    listed = ", ".join(known)
                    raise ValueError(f"{where}: {role}: rows of kind {kind.name} have {listed}, no {role}")
        return self

    @property
    def of(self) -> Kind:
        """The properties of its kind."""
        return KINDS[self.kind]

    @property
    def anchor_route(self) -> str:
        """The route of anchors (queries); of all texts if the task has one route."""
        return next(iter(self.instructions))

    @property
    def positive_route(self) -> str:
        """The route of positives (documents)."""
        return list(self.instructions)[-1]


class TaskFile(BaseModel):
    """All tasks of a task file, in its order; what the file leaves out has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tasks: dict[Name, Task] = Field(min_length=1)

    @field_validator("tasks", mode="before")
    @classmethod
    def _with_defaults(cls, tasks: Any) -> Any:
        return _fill_in(tasks) if isinstance(tasks, Mapping) else tasks

    @model_validator(mode="after")
    def _routes_agree(self) -> TaskFile:
        instructions: dict[str, str] = {}
        owner: dict[str, str] = {}
        for name, task in self.tasks.items():
            for route, text in task.instructions.items():
                if instructions.setdefault(route, text) != text:
                    raise ValueError(
                        f"tasks.{name}.instructions: route {route!r} has two instructions, "
                        f"{instructions[route]!r} and {text!r}; one route has one, rename one of the routes"
                    )
                if owner.setdefault(text.strip(), route) != route:
                    raise ValueError(
                        f"tasks.{name}.instructions: routes {owner[text.strip()]!r} and {route!r} have the "
                        f"same instruction {text!r}; give the tasks one route, or change an instruction"
                    )
        shared = self._shared()
        for name, task in self.tasks.items():
            for route, expert in task.experts.items():
                where = f"tasks.{name}.experts: {route}: {expert}"
                if unknown := {route, expert} - set(instructions):
                    known = ", ".join(instructions)
                    raise ValueError(f"{where}: there is no route {min(unknown)!r}; the routes are {known}")
                if shared[route] != expert or expert in shared:
                    other = shared.get(expert, shared[route])
                    raise ValueError(f"{where}: {route!r} or {expert!r} already uses the expert of {other!r}")
        return self

    @classmethod
    def read(cls, path: Path | str) -> TaskFile:
        """Read the tasks of a task file (YAML), or of a folder written by `compile_tasks`.

        Raises:
            InputError: no such file, not YAML, or a key or value that is not allowed (the message names it).
        """
        path = Path(path)
        if path.is_dir():
            check_unchanged(path, only=MANIFEST)
            return cls.from_manifest(path, read_json(path / MANIFEST))
        content = read_yaml(path, "a task file")
        if not isinstance(content, dict) or "tasks" not in content:
            raise InputError(f"{path}: a task file begins with 'tasks:', then one block per task")
        return check_content(cls, content, path)

    @classmethod
    def from_mapping(cls, tasks: Mapping[str, Any]) -> TaskFile:
        """Return the tasks of a mapping as a task file has it under `tasks:`, or of a whole task file.

        The value of a dataset may be a table (pandas, polars, Arrow, `datasets.Dataset`) instead of keys.

        Raises:
            InputError: a key or value is not allowed (the message names it).
        """
        return check_content(cls, tasks if set(tasks) == {"tasks"} else {"tasks": tasks}, "tasks")

    @classmethod
    def from_manifest(cls, path: Path, manifest: Any) -> TaskFile:
        """Return the tasks that a tasks folder was compiled from; InputError if it holds no tasks."""
        if not isinstance(manifest, dict) or manifest.get("kind") != "tasks":
            raise InputError(f"{path}: its {MANIFEST} does not describe tasks")
        return check_content(cls, manifest["hierarchy"], path / MANIFEST)

    def stored(self) -> dict[str, Any]:
        """Return the tasks as a manifest holds them; a table in memory is named, not held."""
        plain = self.model_dump(mode="json", exclude_none=True)
        for name, task in self.tasks.items():
            for dataset, source in task.datasets.items():
                if source.table is not None:
                    plain["tasks"][name]["datasets"][dataset]["file"] = IN_MEMORY
        return plain

    def instructions(self) -> dict[str, str]:
        """Return route -> instruction, of all tasks, in the order of the file."""
        return {route: text for task in self.tasks.values() for route, text in task.instructions.items()}

    def experts(self) -> dict[str, str]:
        """Return route -> the expert it uses: the one of the same name, or another route's."""
        return {route: route for route in self.instructions()} | self._shared()

    def _shared(self) -> dict[str, str]:
        return {route: expert for task in self.tasks.values() for route, expert in task.experts.items()}

    def search_routes(self) -> dict[str, str]:
        """Return route of queries -> route of documents, of the tasks that tell them apart."""
        two = (task for task in self.tasks.values() if len(task.instructions) == 2)
        return {task.anchor_route: task.positive_route for task in two}

    def trainable(self) -> list[Task]:
        """Return the tasks that models are trained on."""
        return [task for task in self.tasks.values() if task.of.trainable]


def _fill_in(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tasks with their names and the defaults of their kinds.

    Tasks that are only measured take the routes of those that are trained, if there are any.
    """
    kinds = {
        name: KINDS[str(task["kind"])]
        for name, task in tasks.items()
        if isinstance(task, Mapping) and str(task.get("kind")) in KINDS
    }
    trains = any(kind.trainable for kind in kinds.values())
    filled, known = dict(tasks), dict[str, str]()
    for name, kind in sorted(kinds.items(), key=lambda item: not item[1].trainable):
        task = {key: value for key, value in tasks[name].items() if value is not None}
        given = task.pop("instructions", None)
        own = given or dict(kind.instructions) or {str(name): f"{name}: "}
        if trains and not kind.trainable and not given:
            if unknown := [route for route in own if route not in known]:
                raise ValueError(
                    f"{name}: kind {kind.name} is only measured, by default under the route {unknown[0]!r}, "
                    "which no task here has; give it the instructions of a task that is trained"
                )
            own = {route: known[route] for route in own}
        known |= own if isinstance(own, Mapping) else {}
        defaults = {"batches": kind.batches, "temperature": kind.temperature}
        filled[name] = {"name": str(name), "instructions": own, **defaults, **task}
    return filled
