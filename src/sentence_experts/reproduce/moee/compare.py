"""The figures of a language model beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.moee.vectors import PARTS
from sentence_experts.reproduce.comparison import (
    OTHER_BASE,
    OTHER_DATA,
    OTHER_SCALE,
    Comparison,
    TableOfRows,
    changed_settings,
)
from sentence_experts.reproduce.moee.published import MEAN, PublishedFigure
from sentence_experts.reproduce.moee.setting import Setting
from sentence_experts.storage import read_json

TYPES = {
    "classification": "Classification",
    "clustering": "Clustering",
    "pair_classification": "PairClassification",
    "reranking": "Reranking",
    "sts": "STS",
    "summarization": "Summarization",
}
LEGEND = "In percent, our figure above the printed one; –: no dataset of this type was measured"
SMALL_DATA = "tweet emotion, 20 Newsgroups and STS12-16 at hand, not the paper's 20 datasets"
FULL_DATA = "mteb's present versions of the datasets that the paper names"
NONE = "–"


@dataclass(frozen=True)
class Compared:
    """One published figure and ours, in percent; None where its type was not measured."""

    published: PublishedFigure
    value: float | None
    differs: tuple[str, ...]


def compare(setting: Setting) -> Comparison:
    """Read the finished evaluations and set them beside the published figures.

    Raises:
        InputError: one is missing.
    """
    found = {
        prompt: {
            model["label"].rsplit("-", 1)[1]: model["types"]
            for model in read_json(setting.evaluation(prompt))["models"]
        }
        for prompt in setting.recipe.protocol.prompts
    }
    marks = (OTHER_DATA, OTHER_BASE, OTHER_SCALE) if setting.small else (OTHER_DATA,)
    figures = tuple(
        Compared(figure, _value(found[figure.prompt][figure.part], figure.kind), marks)
        for figure in setting.published.figures(setting.recipe.model)
        if figure.prompt in found
    )
    return Comparison(
        title=setting.recipe.title,
        paper=setting.published.paper,
        scale=setting.scale,
        legend=LEGEND,
        figures=figures,
        tables=tuple(_tables(figures)),
        differences=tuple(_differences(setting)),
        choices=tuple(
            f"{one.what} ({one.kind}). Here: {one.here}" for one in setting.recipe.protocol.choices
        ),
        notes=setting.published.notes,
    )


def _value(types: dict[str, Any], kind: str) -> float | None:
    """In percent; the mean is over the types that were measured."""
    if kind == MEAN:
        values = [value for own in TYPES if (value := _value(types, own)) is not None]
        return sum(values) / len(values) if values else None
    found = types.get(TYPES[kind])
    return None if found is None else 100 * float(found["value"])


def _tables(figures: tuple[Compared, ...]) -> Iterator[TableOfRows]:
    for table in dict.fromkeys(one.published.table for one in figures):
        own = {
            (one.published.kind, one.published.part): one for one in figures if one.published.table == table
        }
        prompt = next(iter(own.values())).published.prompt
        lines: list[tuple[str, ...]] = []
        for kind in dict.fromkeys(kind for kind, _ in own):
            row = [own[kind, part] for part in PARTS]
            lines.append((kind, *(NONE if one.value is None else f"{one.value:.2f}" for one in row)))
            lines.append(("  published", *(f"{one.published.value:.2f}" for one in row)))
        yield TableOfRows(f"{table}, prompt {prompt}", ("", *PARTS), tuple(lines))


def _differences(setting: Setting) -> Iterator[str]:
    yield f"data: {SMALL_DATA if setting.small else FULL_DATA}"
    if setting.small:
        yield f"model: {Path(setting.model).name} for {setting.published.models[setting.recipe.model]}"
    full, here = (setting.recipe.evaluate_settings(small) for small in (False, setting.small))
    yield from changed_settings("evaluation", full, here)
