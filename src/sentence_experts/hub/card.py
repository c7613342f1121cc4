"""The card of a published model: its own, with the base, data, results and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, ModelResult, PairEvaluation, PairMetrics
from sentence_experts.models.card import PLACE
from sentence_experts.pairs.card import describe_licences
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.report.tables import COLUMNS
from sentence_experts.tasks.dataset import Tasks

SHOWN = {metric: COLUMNS[metric] for metric in ("roc_auc", "f1_max")}
LIMITS = """## Limits

- Each text needs a route in front, unless the model has a default one; a text without one is an error. A
  route that a text was not meant for still gives a vector, but a worse one.
- The vectors of different routes are not meant to be compared with each other.
- A text is cut off after {length:,} tokens.
- Figures hold for the data that they name. What the model does on other texts and languages was not measured.
"""


def hub_card(
    own: str,
    repo: str,
    *,
    length: int,
    base: str | None = None,
    licence: str | None = None,
    dense: Mapping[str, str] = {},
    data: Sequence[Pairs | Tasks] = (),
    results: tuple[PairEvaluation, ModelResult] | None = None,
    routes: Sequence[str] = (),
) -> str:
    """Return the README.md of a repository.

    Args:
        own: the card that the model was saved with.
        repo: the repository's id.
        length: number of tokens that the model reads of a text.
        base: hub id of the base model.
        licence: of the weights.
        dense: route -> folder of its dense model in the repository.
        data: what the model was trained on.
        results: an evaluation, and the model's part of it.
        routes: names of the model's routes.
    """
    _, front, body = own.split("---\n", 2) if own.startswith("---\n") else ("", "", own)
    metadata: dict[str, Any] = yaml.safe_load(front) or {}
    metadata |= {name: value for name, value in (("base_model", base), ("license", licence)) if value}
    if results is not None:
        metadata["model-index"] = [{"name": repo.partition("/")[2], "results": _index(*results)}]
    sections = [body.replace(PLACE, repo).strip(), _in_part(repo, routes), _dense(repo, dense)]
    sections += [_data(data), "" if results is None else _results(*results), LIMITS.format(length=length)]
    text = "\n\n".join(section.strip() for section in sections if section)
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n{text}\n"


def _in_part(repo: str, routes: Sequence[str]) -> str:
    if len(routes) < 2:
        return ""
    return f"""To download and load only the experts of some routes:

```python
import sentence_experts

model = sentence_experts.load("{repo}", routes=["{routes[0]}"])
```"""


def _dense(repo: str, dense: Mapping[str, str]) -> str:
    if not dense:
        return ""
    rows = "\n".join(f"| {route} | `{folder}` |" for route, folder in dense.items())
    first = next(iter(dense.values()))
    return f"""## Dense models

Each route is also there as an ordinary dense model, which gives the same vectors without this package: for
sentence-transformers, Text Embeddings Inference, vLLM, and converters to other formats.

| route | folder |
|---|---|
{rows}

```bash
hf download {repo} --include "{first}/*" --local-dir model
text-embeddings-router --model-id model/{first}
```"""


def _data(data: Sequence[Pairs | Tasks]) -> str:
    """List what the model was trained on, with the licences of the texts."""
    return "## Data\n\n" + ("\n".join(f"- {_described(each)}" for each in data) or "Not stated.")


def _described(data: Pairs | Tasks) -> str:
    if isinstance(data, Tasks):
        names = sorted(name for datasets in data.counts.values() for name in datasets)
        return f"{data.name}: tasks made of {', '.join(names)}; licences: those of the datasets"
    train = data.split("train").num_rows
    licences = describe_licences((data.manifest.get("corpus") or {}).get("licences"))
    simulated = "SIMULATED, no real articles; " if data.are_simulated else ""
    return (
        f"{data.name}: {simulated}{train:,} training pairs of {', '.join(data.domains)}; licences of the "
        f"articles: {licences}"
    )


def _index(evaluation: PairEvaluation, model: ModelResult) -> list[dict[str, Any]]:
    """Return the results in the form of the hub's `model-index`."""
    settings = evaluation.settings
    dataset = {"type": "pairs", "name": str(settings["pairs"]), "split": settings["split"]}
    metrics = [
        {"type": metric, "name": f"{title}, mean of the domains{_interval(measured, metric)}", "value": value}
        for measured in [model.views[PAIR_WEIGHTED_MEAN]]
        for metric, title in SHOWN.items()
        if (value := measured.metrics.get(metric)) is not None
    ]
    task = {"type": "sentence-similarity", "name": "Linked pairs of texts"}
    return [{"task": task, "dataset": dataset, "metrics": metrics}]


def _results(evaluation: PairEvaluation, model: ModelResult) -> str:
    """Return a table of the figures by domain, with their intervals."""
    settings = evaluation.settings
    simulated = " **The corpus is SIMULATED.**" if settings.get("simulated") else ""
    rows = "\n".join(_rows(model))
    return f"""## Results

On the {settings["split"]} split of {settings["pairs"]}; 95% intervals over papers (and seeds).{simulated}

| | pairs | {" | ".join(SHOWN.values())} |
|---|---|{"---|" * len(SHOWN)}
{rows}"""


def _rows(model: ModelResult) -> Iterator[str]:
    for view, measured in model.views.items():
        name = view.domain or {"pooled": "all pairs, one threshold"}.get(view.kind, "mean of the domains")
        cells = [_cell(measured, metric) for metric in SHOWN]
        yield f"| {name} | {measured.pairs:,} | {' | '.join(cells)} |"


def _cell(measured: PairMetrics, metric: str) -> str:
    value = measured.metrics.get(metric)
    return "-" if value is None else f"{value:.3f}{_interval(measured, metric)}"


def _interval(measured: PairMetrics, metric: str) -> str:
    interval = measured.intervals.get(metric)
    return "" if interval is None else f" ({interval.low:.3f} to {interval.high:.3f})"
