"""Where a recipe of MoEE runs: small on the data at hand, full on mteb's datasets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sentence_experts.reproduce.experiment import SMALL
from sentence_experts.reproduce.moee.published import Published
from sentence_experts.reproduce.moee.recipe import Recipe
from sentence_experts.storage import write_text

DATA = "${SENTENCE_EXPERTS_DATA}"
EVALUATED = "tasks.json"


@dataclass(frozen=True)
class Setting:
    """Where a recipe runs.

    Attributes:
        model: hub id or folder.
        data: the folder of the real data; None at full scale.
    """

    recipe: Recipe
    published: Published
    scale: str
    root: Path
    report: Path
    model: str
    data: Path | None

    @property
    def small(self) -> bool:
        """Whether this is the small scale."""
        return self.scale == SMALL

    @property
    def tasks_file(self) -> Path:
        """The task file of the small scale, its folders filled in."""
        return self.root / "tasks.yaml"

    def evaluation(self, prompt: str) -> Path:
        """The figures under a prompt."""
        return self.report / prompt / EVALUATED

    def prepare(self) -> None:
        """Write the task file."""
        if self.data is not None:
            shipped = self.recipe.protocol.file.parent / self.recipe.protocol.small.tasks
            text = shipped.read_text(encoding="utf-8").replace(DATA, str(self.data.resolve()))
            write_text(self.tasks_file, text)
