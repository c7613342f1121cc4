"""Recipes of models trained on tasks (MoTE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentence_experts.reproduce.experiment import Experiment, Model, OwnFigure, changed_settings
from sentence_experts.reproduce.material import ARCHIVES, DATA_VARIABLE, Material, data_folder
from sentence_experts.reproduce.published import AVERAGES, PublishedFigure
from sentence_experts.reproduce.recipe import Protocol
from sentence_experts.reproduce.steps import Step
from sentence_experts.storage import write_text
from sentence_experts.tasks.task_file import TaskFile

# The paper's type of task -> the type that mteb measures it as.
MTEB_TYPES = {
    "retrieval": "Retrieval",
    "classification": "Classification",
    "clustering": "Clustering",
    "reranking": "Reranking",
    "pair_classification": "PairClassification",
    "sts": "STS",
    "summarization": "Summarization",
}
PERCENT = 100
# Names in task files for folders that only a run knows.
DATA, CORPORA = f"${{{DATA_VARIABLE}}}", "${CORPORA}"
CORPUS_NAMES = ("elife", "crops")  # of the corpora made of ARCHIVES


class TasksExperiment(Experiment):
    """A recipe on tasks.

    Attributes:
        file: the task file.
        data: the folder of the real data; None without, and at full scale.
        corpora: folder of a corpus -> the articles that are imported to it.
    """

    needs = ("tasks", "train", "evaluate")

    @classmethod
    def check_protocol(cls, protocol: Protocol) -> None:
        """Check also the task files."""
        super().check_protocol(protocol)
        for file in (Path(str(protocol.tasks)), protocol.small_file(True), protocol.small_file(False)):
            TaskFile.read(file)

    def find_data(self, corpus: Path | None) -> None:
        """Import and compile the data at hand, or compile the published task file."""
        recipe, protocol = self.recipe, self.recipe.protocol
        self.folder, self.file = self.root / "tasks", Path(str(protocol.tasks))
        self.routes = {task.name: task.name for task in TaskFile.read(self.file).trainable()}
        self.data = data_folder() if self.small else None
        self.simulated = Material.find(self.root.parent / "simulated", None)
        corpora = self.root.parent / "corpora"
        self.corpora: dict[Path, Path] = {}
        self.words = "the public hub datasets nearest to those that the paper refers to"
        if self.small:
            self.file = self.root / "tasks.yaml"
            self.writes_first = f"{self.file}: the tasks, with the folders of their data"
            if self.data is None:
                self.corpora = {corpora / "simulated": self.simulated.sources[0]}
                words = "SIMULATED articles (no real data was found)"
            else:
                archives = [self.data / file for file in ARCHIVES]
                self.corpora = dict(zip((corpora / name for name in CORPUS_NAMES), archives, strict=True))
                words = "eLife and PMC articles, Banking77, tweet emotion, 20 Newsgroups, STS-B"
            self.words = f"{words}, not the paper's datasets"
        for folder, source in self.corpora.items():
            self.steps.append(Step("import_corpus", {"sources": [source], "out": folder}))
        settings = recipe.compile_settings(self.small)
        self.unlike_published = list(changed_settings("tasks", recipe.compile_settings(False), settings))
        self.steps.append(Step("compile_tasks", {"source": self.file, "out": self.folder}, settings))

    def prepare(self) -> None:
        """Write the task file of the small scale, and simulated articles."""
        if self.small:
            template = self.recipe.protocol.small_file(self.data is not None)
            folders = {DATA: self.data or Path(), CORPORA: self.root.parent / "corpora"}
            write_text(self.file, filled_in(template, folders))
            if self.data is None:
                self.simulated.prepare()

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether the table is the recipe's."""
        return figure.table in self.recipe.tables

    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """The models of the column: one, or one per trained task."""
        return self._in_column(figure.table, figure.column)

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """The models' figure for the row's task, in percent."""
        (evaluation,) = evaluations.values()
        tasks = self.published.averaged(figure.table)
        value, interval = self._value(figure.row, models, tasks, evaluation)
        gain = None
        gains_over = str(self.published.table(figure.table).gains_over) if figure.gain else ""
        if figure.gain and (others := self._in_column(figure.table, gains_over)):
            over, _ = self._value(figure.row, others, tasks, evaluation)
            gain = None if value is None or over is None else value - over
        return OwnFigure(value, gain, interval)

    def notes(self, evaluations: Mapping[str, Any]) -> list[str]:
        """How many datasets of each type were measured, beside the paper's."""
        (evaluation,) = evaluations.values()
        counts = [
            f"{task} {_datasets(evaluation, task)} for {published.datasets}"
            for task, published in self.published.tasks.items()
        ]
        return [f"datasets measured: {', '.join(counts)}"]

    def _in_column(self, table: str, column: str) -> list[Model]:
        return [one for one in self.models if one.run is not None and one.run.columns.get(table) == column]

    def _value(
        self, row: str, models: list[Model], tasks: Sequence[str], evaluation: Mapping[str, Any]
    ) -> tuple[float | None, tuple[float, float] | None]:
        """The value and interval of a row; an average is over the datasets of `tasks`."""
        if row in AVERAGES:
            values = []
            for task in tasks:
                value = self._value(task, models, tasks, evaluation)[0]
                if value is not None:
                    values.append((_datasets(evaluation, task), value))
            datasets = sum(count for count, _ in values)
            return (sum(count * value for count, value in values) / datasets if values else None), None
        # Of models of one task each, the one that was trained on this, or on what it is read as.
        trained_on = self.published.tasks[row].read_as or row
        model = next(one for one in models if one.route in (None, trained_on))
        types = next(each["types"] for each in evaluation["models"] if each["label"] == model.label)
        measured = types.get(MTEB_TYPES[row])
        if measured is None:
            return None, None
        ends = measured["interval"]
        return PERCENT * measured["value"], (PERCENT * ends[0], PERCENT * ends[1]) if ends else None


def _datasets(evaluation: Mapping[str, Any], task: str) -> int:
    """Number of datasets of a type of task that were measured."""
    return sum(each["kind"] == MTEB_TYPES[task] for each in evaluation["tasks"])


def filled_in(template: Path, folders: Mapping[str, Path]) -> str:
    """A task file with the folders in place of their names."""
    text = template.read_text(encoding="utf-8")
    for name, folder in folders.items():
        text = text.replace(name, str(folder.resolve()))
    return text
