"""Recipes on language models with experts (MoEE): an evaluation under each prompt, and an analysis of rated
pairs (sections 3.2, 4.4 and 4.5), without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from sentence_experts.errors import InputError
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTS
from sentence_experts.reproduce.experiment import Experiment, Model, OwnFigure, ReportTable, changed_settings
from sentence_experts.reproduce.kinds.tasks import DATA, MTEB_TYPES, PERCENT, filled_in
from sentence_experts.reproduce.material import DATA_VARIABLE, data_folder
from sentence_experts.reproduce.published import AVERAGES, PublishedFigure
from sentence_experts.reproduce.recipe import MTEB, TRUST, Protocol, without_benchmark
from sentence_experts.reproduce.steps import Step
from sentence_experts.storage import write_text

SMALL_DATA = "tweet emotion, 20 Newsgroups and STS12-16 at hand, not the paper's 20 datasets"
FULL_DATA = "mteb's present versions of the datasets that the paper names"


PAIRS = Path("eval", "sts12.jsonl.gz")
ANALYSIS = "analysis"
PARTS = {"hs": "HS", "rw": "RW"}


class LanguageModelExperiment(Experiment):
    """A recipe on a language model; `data` is the folder of the real data, at small scale."""

    reads_language_model = True
    needs: ClassVar[tuple[str, ...]] = ("prompts", "evaluate")

    @classmethod
    def check_protocol(cls, protocol: Protocol) -> None:
        """Check also the names of prompts."""
        super().check_protocol(protocol)
        if unknown := [prompt for prompt in protocol.prompts if prompt not in (*PROMPTS, NO_PROMPT)]:
            raise InputError(f"{protocol.file}: prompts: {unknown[0]!r} is not one of the paper's prompts")

    def find_data(self, corpus: Path | None) -> None:
        """Compile the test sets at hand; the full scale loads those of mteb."""
        self.words, self.data = FULL_DATA, Path()
        if self.small:
            folder = data_folder()
            if folder is None:
                raise InputError(
                    f"the small scale measures on real texts: set {DATA_VARIABLE} to their folder"
                )
            self.words, self.data, self.folder = SMALL_DATA, folder, self.root / "tasks"
            self.file = self.root / "tasks.yaml"
            self.writes_first = f"{self.file}: the tasks, with the folder of their data"
            self.steps.append(Step("compile_tasks", {"source": self.file, "out": self.folder}))

    def prepare(self) -> None:
        """Write the task file of the small scale."""
        if self.small:
            template = self.recipe.protocol.small_file(True)
            write_text(self.file, filled_in(template, {DATA: self.data}))

    def plan(self) -> None:
        """An evaluation under each prompt."""
        recipe, protocol = self.recipe, self.recipe.protocol
        model, read = self.find_model()
        ((_, settings),) = recipe.evaluate_settings(self.small).items()
        for prompt in protocol.prompts:
            file = self.evaluations[prompt] = self.report / prompt / self.result
            arguments = {
                "model": model,
                "data": settings.get(MTEB) or self.folder,
                "out": file.parent,
                "prompt": prompt,
                "read": read,
                "states": self.root / "states",
            }
            chosen = without_benchmark(settings)
            self.steps.append(Step("evaluate_language_model", arguments, chosen, can_be_replaced=True))

    def find_model(self) -> tuple[str, dict[str, Any]]:
        """The language model, a folder or hub id, and how it is read."""
        recipe, protocol = self.recipe, self.recipe.protocol
        hub = self.published.models[str(recipe.model)].hub
        model = str(protocol.file.parent / protocol.small.base) if self.small else hub
        self.pretrained = [model]
        base = Path(model).name if self.small else hub
        self.models = [Model(str(recipe.model), str(recipe.model), (model,), base, hub)]
        read = recipe.read_settings(self.small)
        self.unlike_published = list(changed_settings("reading", recipe.read_settings(False), read))
        return model, {**read, TRUST: True} if self.trusts_code and not self.small else read

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether it is an average of the recipe's model."""
        return figure.model == self.recipe.model and not figure.group and figure.prompt in evaluations

    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """The language model."""
        return self.models

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """In percent; the mean is over the types that were measured."""
        measured = evaluations[str(figure.prompt)]["models"]
        types = next(each["types"] for each in measured if each["label"] == figure.row)
        kinds = MTEB_TYPES.values() if figure.column in AVERAGES else [MTEB_TYPES[figure.column]]
        values = [PERCENT * float(types[kind]["value"]) for kind in kinds if kind in types]
        return OwnFigure(sum(values) / len(values) if values else None)


class AnalysisExperiment(LanguageModelExperiment):
    """An analysis of a language model; `data` is the folder of the real data, at both scales."""

    result = "analysis.json"
    needs = ("analyse",)

    def find_data(self, corpus: Path | None) -> None:
        """Find the rated pairs; there is nothing to compile."""
        folder = data_folder()
        if folder is None or not (folder / PAIRS).is_file():
            raise InputError(
                f"this recipe measures on the pairs of STS12: set {DATA_VARIABLE} to a folder with {PAIRS}"
            )
        self.words, self.data = "STS12, the test set at hand", folder

    def prepare(self) -> None:
        """Nothing is needed."""

    def plan(self) -> None:
        """One step: the analysis, and the pairs that the paper prints."""
        model, read = self.find_model()
        published = self.recipe.protocol.published
        file = self.evaluations[ANALYSIS] = self.report / self.result
        arguments = {
            "model": model,
            "pairs": self.data / PAIRS,
            "out": file.parent,
            "read": read,
            "states": self.root / "states",
            "published": published,
        }
        self.steps.append(Step("analyse_language_model", arguments, self.recipe.protocol.analyse))

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether it is of the recipe's model."""
        return figure.model == self.recipe.model

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """The agreement of clusters, or a mean correlation between prompts."""
        analysis = evaluations[ANALYSIS]
        value = {**analysis["clusters"]["agreement"], **analysis["between_prompts"]["means"]}[figure.column]
        return OwnFigure(value)

    def more_tables(self, evaluations: Mapping[str, Any]) -> Iterator[ReportTable]:
        """The paper's examples, then those of this model."""
        analysis = evaluations[ANALYSIS]
        lines = []
        for case, own in zip(self.published.cases, analysis["published_cases"], strict=True):
            texts = f"{case.first} / {case.second}"
            here = ("not among the pairs",) + ("",) * 3 if own is None else _numbers(own, own["right"])
            lines.append((texts, PARTS[case.right], *here))
        numbers = ("right here", "score (rank)", "HS (rank)", "RW (rank)")
        yield ReportTable("Section 4.5: the paper's examples", ("", "right there", *numbers), tuple(lines))
        for key, right in (("only_hs", "hs"), ("only_rw", "rw")):
            own = [
                (f"{one['first']} / {one['second']}", *_numbers(one, right))
                for cases in analysis["cases"].values()
                for one in cases[key]
            ]
            yield ReportTable(f"Examples here: {PARTS[right]} alone is right", ("", *numbers), tuple(own))


def _numbers(case: Mapping[str, Any], right: str) -> tuple[str, ...]:
    score, *cosines = (
        f"{case[name]:.{digits}f} ({case['ranks'][name]:.0%})"
        for name, digits in (("score", 2), *((part, 4) for part in PARTS))
    )
    return PARTS.get(right, right), score, *cosines
