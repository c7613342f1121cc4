"""The entry of a dataset in a task file: the place of its rows, and their columns."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sentence_experts.errors import InputError
from sentence_experts.tasks.kinds import Kind

VARIABLE = re.compile(r"\$\{(\w+)\}")
PLACES = ("file", "files", "corpus", "hub", "table")
# The place of a table in a manifest.
IN_MEMORY = "a table in memory"
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
        wanted |= {role: getattr(self, role) for role in kind.optional if getattr(self, role)}
        return {role: (names,) if isinstance(names, str) else tuple(names) for role, names in wanted.items()}


def resolved(written: str, folder: Path) -> Path:
    """A path of a task file in `folder`: ${VAR} is replaced, and the path is relative to the file.

    Raises:
        InputError: a variable is not set.
    """
    for name in VARIABLE.findall(written):
        if name not in os.environ:
            raise InputError(f"{written}: the environment variable {name} is not set")
    filled = VARIABLE.sub(lambda match: os.environ[match.group(1)], written)
    return folder / Path(filled).expanduser()
