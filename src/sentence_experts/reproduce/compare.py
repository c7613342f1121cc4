"""Our figures beside the published ones, each marked with what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sentence_experts.reproduce.plan import Model, Plan
from sentence_experts.reproduce.published import ALL_DOMAINS, Published, PublishedFigure
from sentence_experts.reproduce.recipe import Recipe
from sentence_experts.reproduce.setting import Setting
from sentence_experts.storage import read_json

OTHER_DATA, OTHER_BASE, OTHER_SCALE, OTHER_PROTOCOL = "data", "base", "scale", "protocol"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Compared:
    """One published figure and ours.

    Attributes:
        domain_here: the domain that ours is of.
        value: ours, None where it is undefined or the model was not run.
        interval: low and high end of our 95% interval, where there is one.
        differs: what is not as in the paper: data, base, scale, protocol; or that the model was not run.
    """

    published: PublishedFigure
    domain_here: str
    value: float | None
    interval: tuple[float, float] | None
    differs: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """A recipe's whole result. `differences` says in words what differs, `notes` what the paper garbles."""

    title: str
    paper: str
    scale: str
    figures: tuple[Compared, ...]
    differences: tuple[str, ...]
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return asdict(self)


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
        figures=tuple(figures),
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
    yield from _changed("pairs", recipe.protocol.pairs, setting.pairs)
    bases = {f"{one.base} for {one.published_base}" for one in plan.models if one.base != one.published_base}
    if bases:
        yield f"base: {', '.join(sorted(bases))}"
    changed = {
        line
        for run in recipe.runs
        for line in _changed(
            "training", recipe.train_settings(run, False), recipe.train_settings(run, setting.small)
        )
    }
    yield from sorted(changed)
    if not recipe.protocol.faithful:
        yield "protocol: not the published one; see the choices"
    if plan.left_out:
        yield f"not run, since only the hub has them: {', '.join(each.model for each in plan.left_out)}"


def _changed(what: str, published: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    changes = [
        f"{key} {_plain(value)} for {_plain(published.get(key, 'none'))}"
        for key, value in here.items()
        if _plain(value) != _plain(published.get(key))
    ]
    if changes:
        yield f"{what}: {'; '.join(changes)}"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value).replace(",", ", ")
