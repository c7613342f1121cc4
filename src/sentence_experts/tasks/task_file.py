"""Task files: tasks with their datasets, instructions, experts and ways to train.

Source: MoTE, section 3.2 (training examples organised by task and dataset) and appendix D.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from sentence_experts.errors import InputError, UsageError
from sentence_experts.names import EXPERT, FOLDER
from sentence_experts.pairs.table_folder import MANIFEST
from sentence_experts.storage import read_json
from sentence_experts.yaml_files import read_yaml

# ---- kinds of tasks ------------------------------------------------------------------------------

HOMOGENEOUS, HETEROGENEOUS = "homogeneous", "heterogeneous"
SEARCH: Mapping[str, str] = {"query": "search query: ", "document": "search document: "}
CLASSIFICATION: Mapping[str, str] = {"classification": "classification: "}


@dataclass(frozen=True)
class Kind:
    """One kind of task.

    Attributes:
        name: the value of `kind:` in a task file.
        columns: the columns of each row: texts, a label or a score.
        trainable: whether models are trained on it; if not, its datasets are test sets.
        batches: "homogeneous" (a batch is of one dataset) or "heterogeneous" (of all datasets of the task).
        temperature: of the contrastive loss.
        metric: of the evaluation (MoTE, table 1).
        mteb_type: the task type of mteb.
        labelled: rows are a text and its label; texts of one label are positives of each other.
        binary: scores are 0 or 1.
        optional: further columns that a row may have.
        instructions: default instruction per route; empty means one route, the task's name.
    """

    name: str
    columns: tuple[str, ...]
    trainable: bool
    batches: str
    temperature: float
    metric: str
    mteb_type: str
    labelled: bool = False
    binary: bool = False
    optional: tuple[str, ...] = ()
    instructions: Mapping[str, str] = field(default_factory=dict, hash=False)


_PAIR = ("anchor", "positive")
_LABELLED = ("text", "label")
_SCORED = (*_PAIR, "score")
# Batches and temperatures: MoTE, appendix D.2. The instructions of kinds that are only measured: its map for
# tasks that no model is trained on (re-ranking as search, the others as classification).
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("retrieval", _PAIR, True, HOMOGENEOUS, 0.03, "nDCG@10", "Retrieval",
             optional=("negative",), instructions=SEARCH),
        Kind("classification", _LABELLED, True, HETEROGENEOUS, 0.03, "accuracy", "Classification",
             labelled=True),
        Kind("clustering", _LABELLED, True, HETEROGENEOUS, 0.06, "V-measure", "Clustering", labelled=True),
        Kind("pairs", _PAIR, True, HOMOGENEOUS, 0.03, "nDCG@10", "Retrieval", optional=("negative",)),
        Kind("reranking", _PAIR, False, HOMOGENEOUS, 0.03, "MAP", "Reranking",
             optional=("negative",), instructions=SEARCH),
        Kind("pair_classification", _SCORED, False, HOMOGENEOUS, 0.03, "AP", "PairClassification",
             binary=True, instructions=CLASSIFICATION),
        Kind("sts", _SCORED, False, HOMOGENEOUS, 0.03, "Spearman", "STS", instructions=CLASSIFICATION),
    )
}  # fmt: skip

# ---- datasets ------------------------------------------------------------------------------------

PLACES = ("file", "files", "corpus", "hub", "table")
IN_MEMORY = "a table in memory"  # the place of a table in a manifest
ROLES = ("anchor", "positive", "negative", "text", "label", "score")
Split = Literal["train", "validation", "test"]


class Source(BaseModel):
    """Where the rows of a dataset come from: a file, a file per split, a corpus, a hub dataset or a table.

    Columns are named by their role: `anchor`, `positive`, `negative`, `text`, `label`, `score`; a role that
    is not given is the column of that name. A text of several columns is joined with spaces. Rows of one
    `group` (a column; by default the paper in a corpus) are never in two splits; leading "Re:" and "Fwd:",
    case and white space do not count, so a subject line names a thread. If a label is a list (a paper's
    subjects), `several` decides on rows with more than one: drop them, or take the first label.
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
    several: Literal["drop", "first"] = "drop"
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
        if self.hub is None and (self.config or self.splits):
            raise ValueError("config and splits are for hub datasets")
        return self

    def check_kind(self, kind: Kind) -> None:
        """Refuse columns and splits that rows of this kind do not have.

        Raises:
            ValueError: one is not.
        """
        given = [split for split in (*(self.files or ()), *(self.splits or ())) if split != "test"]
        if given and not kind.trainable:
            raise ValueError(f"{given[0]}: kind {kind.name} is only measured; its rows are file: or test:")
        known = (*kind.columns, *kind.optional)
        for role in ROLES:
            if getattr(self, role) is not None and role not in known:
                raise ValueError(f"{role}: rows of kind {kind.name} have {', '.join(known)}, no {role}")

    def columns(self, kind: Kind) -> dict[str, tuple[str, ...]]:
        """Role -> the columns it is in; optional roles only if given."""
        wanted = {role: getattr(self, role) or role for role in kind.columns}
        wanted |= {role: names for role in kind.optional if (names := getattr(self, role))}
        return {role: (names,) if isinstance(names, str) else tuple(names) for role, names in wanted.items()}


# ---- tasks ---------------------------------------------------------------------------------------


def _folder_name(name: str) -> str:
    FOLDER.check("task and dataset", name)
    return name


Name = Annotated[str, AfterValidator(_folder_name)]


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
        empty = [route for route, text in instructions.items() if not text.strip()]
        if empty:
            raise ValueError(f"the instruction of route {empty[0]!r} is empty")
        return instructions

    @model_validator(mode="after")
    def _sources_fit_the_kind(self) -> Task:
        for dataset, source in self.datasets.items():
            try:
                source.check_kind(self.of)
            except ValueError as error:
                raise ValueError(f"datasets.{dataset}: {error}") from error
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
        if not isinstance(tasks, Mapping):
            return tasks
        given = _given_instructions(tasks)
        return {name: _filled_in(str(name), task, given) for name, task in tasks.items()}

    @model_validator(mode="after")
    def _routes_agree(self) -> TaskFile:
        instructions: dict[str, str] = {}
        for task in self.tasks.values():
            for route, text in task.instructions.items():
                if instructions.setdefault(route, text) != text:
                    raise ValueError(
                        f"tasks.{task.name}.instructions: route {route!r} has two instructions, "
                        f"{instructions[route]!r} and {text!r}; one route has one, rename one of the routes"
                    )
        owner: dict[str, str] = {}
        for route, text in instructions.items():
            if owner.setdefault(text.strip(), route) != route:
                raise ValueError(
                    f"routes {owner[text.strip()]!r} and {route!r} have the same instruction {text!r}; give "
                    "the tasks the same route, or change one instruction"
                )
        self._check_experts(instructions)
        return self

    def _check_experts(self, instructions: Mapping[str, str]) -> None:
        shared: dict[str, str] = {}
        known = ", ".join(instructions)
        for task in self.tasks.values():
            for route, expert in task.experts.items():
                where = f"tasks.{task.name}.experts: {route}: {expert}"
                for one in (route, expert):
                    if one not in instructions:
                        raise ValueError(f"{where}: there is no route {one!r}; the routes are {known}")
                if route == expert:
                    raise ValueError(f"{where}: a route has its own expert anyway; leave this out")
                if shared.setdefault(route, expert) != expert:
                    raise ValueError(f"{where}: route {route!r} already uses the expert of {shared[route]!r}")
        for route, expert in shared.items():
            if expert in shared:
                raise ValueError(
                    f"experts: {route}: {expert}: route {expert!r} itself uses the expert of "
                    f"{shared[expert]!r}; name that one"
                )

    @classmethod
    def read(cls, path: Path | str) -> TaskFile:
        """The tasks of a task file (YAML), or of a folder written by `compile_tasks`.

        Raises:
            InputError: no such file, not YAML, or a key or value that is not allowed (the message names it).
        """
        path = Path(path)
        if path.is_dir():
            return cls.from_manifest(path, read_json(path / MANIFEST))
        try:
            content = read_yaml(path, "a task file")
        except InputError as error:
            hint = "; quote paths with ${...} that stand inside {...}" if "${" in str(error) else ""
            raise InputError(f"{error}{hint}") from error
        if not isinstance(content, dict) or "tasks" not in content:
            raise InputError(f"{path}: a task file begins with 'tasks:', then one block per task")
        return cls._validated(path, content)

    @classmethod
    def from_mapping(cls, tasks: Mapping[str, Any]) -> TaskFile:
        """The tasks of a mapping as a task file has it under `tasks:`, or of a whole task file.

        The value of a dataset may be a table (pandas, polars, Arrow, `datasets.Dataset`) instead of keys.

        Raises:
            InputError: a key or value is not allowed (the message names it).
        """
        return cls._validated(Path("tasks"), tasks if set(tasks) == {"tasks"} else {"tasks": tasks})

    def stored(self) -> dict[str, Any]:
        """The tasks as a manifest holds them; a table in memory is named, not held."""
        plain = self.model_dump(mode="json", exclude_none=True)
        for name, task in self.tasks.items():
            for dataset, source in task.datasets.items():
                if source.table is not None:
                    plain["tasks"][name]["datasets"][dataset]["file"] = IN_MEMORY
        return plain

    @classmethod
    def from_manifest(cls, path: Path, manifest: Any) -> TaskFile:
        """The tasks that a tasks folder was compiled from.

        Raises:
            InputError: the manifest is not one of tasks.
        """
        if not isinstance(manifest, dict) or manifest.get("kind") != "tasks":
            raise InputError(f"{path}: its {MANIFEST} is not that of a tasks folder")
        # Under this name since the first version.
        return cls._validated(path / MANIFEST, manifest["hierarchy"])

    @classmethod
    def _validated(cls, path: Path, content: Any) -> TaskFile:
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(f"{path}: {_first_problem(error)}") from error

    def instructions(self) -> dict[str, str]:
        """Route -> instruction, of all tasks, in the order of the file."""
        return {route: text for task in self.tasks.values() for route, text in task.instructions.items()}

    def experts(self) -> dict[str, str]:
        """Route -> the expert it uses: its own, or that of another route."""
        shared = {route: expert for task in self.tasks.values() for route, expert in task.experts.items()}
        return {route: shared.get(route, route) for route in self.instructions()}

    def search_routes(self) -> dict[str, str]:
        """Route of queries -> route of documents, of the tasks that tell them apart."""
        return {
            task.anchor_route: task.positive_route
            for task in self.tasks.values()
            if len(task.instructions) == 2
        }

    def trainable(self) -> list[Task]:
        """The tasks that models are trained on."""
        return [task for task in self.tasks.values() if task.of.trainable]

    def task(self, name: str) -> Task:
        """The task of this name.

        Raises:
            UsageError: there is none; the message lists the tasks.
        """
        if name not in self.tasks:
            raise UsageError(f"there is no task {name!r}; the tasks are {', '.join(self.tasks)}")
        return self.tasks[name]


def _kind_of(task: Any) -> Kind | None:
    return KINDS.get(str(task.get("kind"))) if isinstance(task, Mapping) else None


def _given_instructions(tasks: Mapping[str, Any]) -> dict[str, str]:
    """Route -> instruction, as given by the tasks or by default for trained tasks.

    If nothing is trained, all tasks have the instructions of their kinds.
    """
    known: dict[str, str] = {}
    kinds = [kind for task in tasks.values() if (kind := _kind_of(task))]
    if not any(kind.trainable for kind in kinds):
        known |= {route: text for kind in kinds for route, text in kind.instructions.items()}
    for name, task in tasks.items():
        given = task.get("instructions") if isinstance(task, Mapping) else None
        if isinstance(given, Mapping):
            known |= {str(route): str(text) for route, text in given.items()}
        elif (kind := _kind_of(task)) and kind.trainable:
            known |= kind.instructions or {str(name): f"{name}: "}
    return known


def _filled_in(name: str, task: Any, given: Mapping[str, str]) -> Any:
    """The task with its name and the defaults of its kind: instructions, batches, temperature."""
    kind = _kind_of(task)
    if kind is None:
        return task
    defaults = dict(kind.instructions) or {name: f"{name}: "}
    if not kind.trainable and not task.get("instructions"):
        if unknown := [route for route in defaults if route not in given]:
            raise ValueError(
                f"{name}: kind {kind.name} is only measured, by default under the route {unknown[0]!r}, "
                "which no task here has; give it the instructions of a task that is trained"
            )
        defaults = {route: given[route] for route in defaults}
    filled = {"name": name, "instructions": defaults, "batches": kind.batches}
    stated = {key: value for key, value in task.items() if value is not None}
    return {**filled, "temperature": kind.temperature, **stated}


def _first_problem(error: ValidationError) -> str:
    """The place and message of the first problem; for an unknown key, the known keys."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        models: dict[int, type[BaseModel]] = {1: TaskFile, 3: Task}
        model = models.get(len(first["loc"]), Source)
        known = (key for key in model.model_fields if key not in ("name", "table"))
        message = f"unknown key; known keys: {', '.join(known)}"
    elif first["type"] == "missing":
        message = "is missing"
    elif first["type"] != "value_error":
        message = f"{message} (got {first['input']!r})"
    # A message on several tasks names its place itself.
    return message if not where or message.startswith("tasks.") else f"{where}: {message}"
