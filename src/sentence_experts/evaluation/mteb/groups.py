"""mteb's own tasks by name: single tasks, benchmarks, and the groups of `groups.yaml`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

from sentence_experts.errors import UsageError
from sentence_experts.yaml_files import parse_yaml

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask


class TaskSource(Protocol):
    """Something that makes a task: mteb's tasks have random state, so every model gets a new one."""

    @property
    def name(self) -> str:
        """The name under which results are stored."""

    @property
    def kind(self) -> str:
        """mteb's type of the task."""

    def make(self) -> AbsTask:
        """Return the task, its data not yet loaded."""


@dataclass(frozen=True)
class HubTask:
    """A task of mteb, or some of its subsets and splits; the data come from the hub."""

    name: str
    subsets: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None

    @cached_property
    def kind(self) -> str:
        """mteb's type of the task."""
        return str(self.make().metadata.type)

    def make(self) -> AbsTask:
        """Return the task, its data not yet loaded; KeyError if mteb has none of this name."""
        import mteb

        subsets = list(self.subsets) if self.subsets else None
        return mteb.get_task(self.name, hf_subsets=subsets, eval_splits=list(self.splits or ()) or None)


@lru_cache(maxsize=1)
def _file() -> dict[str, dict[str, Any]]:
    text = resources.files(__package__).joinpath("groups.yaml").read_text(encoding="utf-8")
    content: dict[str, dict[str, Any]] = parse_yaml(text, "groups.yaml")
    return content


def groups() -> dict[str, str]:
    """Return name of each group -> the source of its list."""
    return {name: str(group["about"]) for name, group in _file().items()}


def group_tasks(name: str) -> list[HubTask]:
    """Return the tasks of a group of `groups.yaml`."""
    group = _file()[name]
    if "part_of" in group:
        return [task for task in group_tasks(group["part_of"]) if task.kind in group["types"]]
    return [_entry(entry) for entry in group["tasks"]]


def hub_tasks(names: Iterable[str], only: Sequence[str] = ()) -> list[HubTask]:
    """Return the tasks of these names, each once, in order.

    Args:
        names: of groups, mteb's benchmarks or tasks; one string may hold several, separated by commas.
        only: names or types of the tasks to keep; empty keeps all.

    Raises:
        UsageError: an unknown name, a task that is not on texts alone, or an unknown name in `only`.
    """
    tasks = dict.fromkeys(task for given in names for name in _split(given) for task in _named(name))
    return selected(list(tasks), only)


def selected(tasks: Sequence[Any], only: Sequence[str]) -> list[Any]:
    """Return the tasks whose name or type is in `only`, or whose name begins with one of these and a dot.

    Raises:
        UsageError: one of `only` matches no task.
    """
    if not only:
        return list(tasks)
    matching = {wanted: [task for task in tasks if _matches(wanted, task)] for wanted in only}
    for wanted, matched in matching.items():
        if not matched:
            known = ", ".join(dict.fromkeys([*(task.kind for task in tasks), *(task.name for task in tasks)]))
            raise UsageError(f"`only` {wanted}: no such task or type here; there are {known}")
    return [task for task in tasks if any(task in matched for matched in matching.values())]


def _matches(wanted: str, task: TaskSource) -> bool:
    return wanted in (task.name, task.kind) or task.name.startswith(f"{wanted}.")


def _split(given: str) -> list[str]:
    """Split at commas outside brackets: "STS12,MTEB(Medical, v1)" is two names."""
    names, depth = [""], 0
    for character in given:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            names.append("")
        else:
            names[-1] += character
    return [name.strip() for name in names if name.strip()]


def _named(name: str) -> list[HubTask]:
    import mteb

    if name in _file():
        return group_tasks(name)
    try:
        tasks = [HubTask(name).make()]
    except KeyError:
        try:
            tasks = list(mteb.get_benchmark(name).tasks)
        except KeyError as error:
            raise UsageError(_unknown(name)) from error
    found = []
    for task in tasks:
        if list(task.metadata.modalities) != ["text"]:
            raise UsageError(
                f"{name}: {task.metadata.name} is on {' and '.join(task.metadata.modalities)}, "
                "but these models only take text"
            )
        whole = HubTask(task.metadata.name).make()
        subsets = None if list(whole.hf_subsets) == list(task.hf_subsets) else tuple(task.hf_subsets)
        splits = None if list(whole.eval_splits) == list(task.eval_splits) else tuple(task.eval_splits)
        found.append(HubTask(task.metadata.name, subsets, splits))
    return found


def _entry(entry: str | dict[str, dict[str, list[str]]]) -> HubTask:
    if isinstance(entry, str):
        return HubTask(entry)
    ((name, part),) = entry.items()
    return HubTask(name, *(tuple(part[key]) if key in part else None for key in ("subsets", "splits")))


def _unknown(name: str) -> str:
    import mteb

    tasks, benchmarks = mteb.get_tasks(), mteb.get_benchmarks()
    names = [*_file(), *(task.metadata.name for task in tasks), *(each.name for each in benchmarks)]
    near = difflib.get_close_matches(name, names, n=3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{name}: no folder, and no task, benchmark or group of mteb{meant}; "
        f"groups: {', '.join(_file())}; benchmarks as mteb calls them"
    )
