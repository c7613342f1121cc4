"""Recipes that compare the parts of a language model on rated pairs (MoEE, sections 3.2, 4.4 and 4.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.reproduce.experiment import Model, OwnFigure, ReportTable
from sentence_experts.reproduce.kinds.language_models import LanguageModelExperiment
from sentence_experts.reproduce.material import DATA_VARIABLE, data_folder
from sentence_experts.reproduce.published import PublishedFigure
from sentence_experts.reproduce.steps import Step

PAIRS = Path("eval", "sts12.jsonl.gz")
ANALYSIS = "analysis"
PARTS = {"hs": "HS", "rw": "RW"}


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
        made_from = (self.data / PAIRS, published, *([Path(model)] if self.small else []))
        chosen = self.recipe.protocol.analyse
        self.steps.append(
            Step("analyse_language_model", arguments, file, chosen, made_from, can_be_replaced=True)
        )

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
