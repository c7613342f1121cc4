"""Recipes on language models with experts (MoEE), without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.report.content import Table
from sentence_experts.reproduce.experiment import Experiment, Model, OwnFigure, changed_settings
from sentence_experts.reproduce.material import DATA_VARIABLE, data_folder
from sentence_experts.reproduce.published import AVERAGES, PublishedFigure
from sentence_experts.reproduce.recipe import MTEB, without_benchmark
from sentence_experts.reproduce.trained import DATA, MTEB_TYPES, PERCENT, filled_in, of_label

RATED_PAIRS = Path("eval", "sts12.jsonl.gz")
PARTS = {"hs": "HS", "rw": "RW"}


class LanguageModelExperiment(Experiment):
    """A recipe on a language model: an evaluation under each prompt, without training."""

    def _find_data(self, corpus: Path | None) -> None:
        """Compile the test sets at hand; the full scale loads those of mteb."""
        words = "mteb's present versions of the datasets that the paper names"
        if self.small:
            data = data_folder()
            if data is None:
                raise InputError(
                    f"the small scale measures on real texts: set {DATA_VARIABLE} to their folder"
                )
            words = "tweet emotion, 20 Newsgroups and STS12-16 at hand, not the paper's 20 datasets"
            self.folder = self.root / "tasks"
            source = filled_in(self.recipe.protocol.small_file(True), {DATA: data})
            self._add("compile_tasks", source=source, out=self.folder)
        self.differences = [f"data: {words}"]

    def _plan(self) -> None:
        model, read = self._find_model()
        ((_, settings),) = self.recipe.evaluate_settings(self.small).items()
        for prompt in self.recipe.protocol.prompts:
            file = self.evaluations[prompt] = self.report / prompt / self.result
            self._add(
                "evaluate_language_model",
                without_benchmark(settings),
                model=model,
                data=settings.get(MTEB) or self.folder,
                out=file.parent,
                prompt=prompt,
                read=read,
                states=self.root / "states",
            )

    def _find_model(self) -> tuple[str, dict[str, Any]]:
        """Return the language model, a folder or hub id, and how it is read."""
        recipe, protocol = self.recipe, self.recipe.protocol
        hub = self.published.models[str(recipe.model)].hub
        model = str(protocol.file.parent / protocol.small.base) if self.small else hub
        self.pretrained = [model]
        base = Path(model).name if self.small else hub
        self.models = [Model(str(recipe.model), str(recipe.model), (model,), base, hub)]
        read = recipe.read_settings(self.small)
        self.differences += changed_settings("reading", recipe.read_settings(False), read)
        return model, {**read, "trust_remote_code": True} if self.trusts_code and not self.small else read

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether it is an average of the recipe's model."""
        return figure.model == self.recipe.model and not figure.group and figure.prompt in evaluations

    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """Return the language model."""
        return self.models

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """Return our figure in percent; the mean is over the types that were measured."""
        types = of_label(evaluations[str(figure.prompt)], figure.row)["types"]
        kinds = MTEB_TYPES.values() if figure.column in AVERAGES else [MTEB_TYPES[figure.column]]
        values = [PERCENT * float(types[kind]["value"]) for kind in kinds if kind in types]
        return OwnFigure(sum(values) / len(values) if values else None)


class AnalysisExperiment(LanguageModelExperiment):
    """An analysis of a language model on rated pairs (sections 3.2, 4.4 and 4.5), at both scales."""

    result = "analysis.json"

    def _find_data(self, corpus: Path | None) -> None:
        """Find the rated pairs; there is nothing to compile."""
        data = data_folder()
        if data is None or not (data / RATED_PAIRS).is_file():
            raise InputError(
                f"this recipe measures on the pairs of STS12: set {DATA_VARIABLE} to a folder with "
                f"{RATED_PAIRS}"
            )
        self.pairs = data / RATED_PAIRS
        self.differences = ["data: STS12, the test set at hand"]

    def _plan(self) -> None:
        """Plan one step: the analysis, and the pairs that the paper prints."""
        model, read = self._find_model()
        file = self.evaluations["analysis"] = self.report / self.result
        self._add(
            "analyse_language_model",
            self.recipe.protocol.analyse,
            model=model,
            pairs=self.pairs,
            out=file.parent,
            read=read,
            states=self.root / "states",
            published=self.recipe.protocol.published,
        )

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether it belongs to the recipe's model."""
        return figure.model == self.recipe.model

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """Return the agreement of clusters, or a mean correlation between prompts."""
        (analysis,) = evaluations.values()
        return OwnFigure(
            {**analysis["clusters"]["agreement"], **analysis["between_prompts"]["means"]}[figure.column]
        )

    def more_tables(self, evaluations: Mapping[str, Any]) -> Iterator[Table]:
        """Return the paper's examples, then those of this model."""
        (analysis,) = evaluations.values()
        lines = []
        for case, own in zip(self.published.cases, analysis["published_cases"], strict=True):
            here = ("not among the pairs",) + ("",) * 3 if own is None else _numbers(own, own["right"])
            lines.append((f"{case.first} / {case.second}", PARTS[case.right], *here))
        numbers = ("right here", "score (rank)", "HS (rank)", "RW (rank)")
        yield Table("Section 4.5: the paper's examples", ("", "right there", *numbers), lines)
        for key, right in (("only_hs", "hs"), ("only_rw", "rw")):
            own = [
                (f"{one['first']} / {one['second']}", *_numbers(one, right))
                for cases in analysis["cases"].values()
                for one in cases[key]
            ]
            yield Table(f"Examples here: {PARTS[right]} alone is right", ("", *numbers), own)


def _numbers(case: Mapping[str, Any], right: str) -> tuple[str, ...]:
    score, *cosines = (
        f"{case[name]:.{digits}f} ({case['ranks'][name]:.0%})"
        for name, digits in (("score", 2), *((part, 4) for part in PARTS))
    )
    return PARTS.get(right, right), score, *cosines
