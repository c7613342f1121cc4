"""Our figures beside the published ones, each marked with what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sentence_experts.reproduce.comparison import (
    NOT_RUN,
    OTHER_BASE,
    OTHER_DATA,
    OTHER_PROTOCOL,
    OTHER_SCALE,
    Comparison,
    changed_settings,
)
from sentence_experts.reproduce.pairs.plan import Model, Plan
from sentence_experts.reproduce.pairs.published import ALL_DOMAINS, Published, PublishedFigure
from sentence_experts.reproduce.pairs.recipe import Recipe
from sentence_experts.reproduce.pairs.setting import Setting
from sentence_experts.reproduce.pairs.tables import LEGEND, Compared, tables_of
from sentence_experts.storage import read_json


def compare(recipe: Recipe, setting: Setting, plan: Plan) -> Comparison:
    """Read the evaluations of a finished plan and set them beside the published figures.

    Raises:
        InputError: an evaluation is missing.
    """
    published = Published.read(recipe.protocol.published)
    evaluations = {key: _by_label(read_json(file)) for key, file in plan.evaluations.items()}
    figures = [
        _compared(figure, recipe, setting, plan, evaluations)
        for figure in published.figures()
        if figure.table in recipe.tables and figure.pairs in evaluations and figure.row in _rows(plan)
    ]
    return Comparison(
        title=recipe.title,
        paper=published.paper,
        scale=setting.scale,
        legend=LEGEND,
        figures=tuple(figures),
        tables=tuple(tables_of(figures)),
        differences=tuple(differences(recipe, setting, plan)),
        choices=tuple(f"{each.what} ({each.kind}). Here: {each.here}" for each in recipe.protocol.choices),
        notes=published.notes,
    )


def _rows(plan: Plan) -> set[str]:
    return {model.row for model in plan.models} | {baseline.row for baseline in plan.left_out}


def _by_label(evaluation: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {model["label"]: model for model in evaluation["models"]}


def _compared(
    figure: PublishedFigure,
    recipe: Recipe,
    setting: Setting,
    plan: Plan,
    evaluations: Mapping[str, Mapping[str, Any]],
) -> Compared:
    here = setting.domains.get(figure.domain, figure.domain)
    model = next((one for one in plan.models if _stands_in_row(one, figure)), None)
    if model is None:
        return Compared(figure, here, None, None, (NOT_RUN,))
    result = evaluations[figure.pairs][model.label]
    view = result[figure.view] if figure.domain == ALL_DOMAINS else result["domains"][here]
    ends = view["intervals"].get(figure.metric)
    interval = (ends["low"], ends["high"]) if ends else None
    return Compared(figure, here, view["metrics"][figure.metric], interval, _marks(model, recipe, setting))


def _stands_in_row(model: Model, figure: PublishedFigure) -> bool:
    return model.row == figure.row and model.published_for in (None, figure.domain)


def _marks(model: Model, recipe: Recipe, setting: Setting) -> tuple[str, ...]:
    marks = {
        OTHER_DATA: True,
        OTHER_BASE: model.base != model.published_base,
        OTHER_SCALE: setting.small and model.trained,
        OTHER_PROTOCOL: not recipe.protocol.faithful,
    }
    return tuple(mark for mark, differs in marks.items() if differs)


def differences(recipe: Recipe, setting: Setting, plan: Plan) -> Iterator[str]:
    """What differs from the published experiment, found by comparing the settings."""
    yield f"data: {setting.data}"
    stand_ins = [f"{here} for {paper}" for paper, here in setting.domains.items() if paper != here]
    if stand_ins:
        yield f"domains: {', '.join(stand_ins)}"
    yield from changed_settings("pairs", recipe.protocol.pairs, setting.pairs)
    bases = {f"{one.base} for {one.published_base}" for one in plan.models if one.base != one.published_base}
    if bases:
        yield f"base: {', '.join(sorted(bases))}"
    changed = {
        line
        for run in recipe.runs
        for line in changed_settings(
            "training", recipe.train_settings(run, False), recipe.train_settings(run, setting.small)
        )
    }
    yield from sorted(changed)
    if not recipe.protocol.faithful:
        yield "protocol: not the published one; see the choices"
    if plan.left_out:
        yield f"not run, since only the hub has them: {', '.join(each.model for each in plan.left_out)}"
