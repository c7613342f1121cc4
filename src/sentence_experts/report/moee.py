"""The report of an analysis of routing weights (`evaluation.moee.analysis`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from sentence_experts.evaluation.estimates import Interval
from sentence_experts.evaluation.moee.analysis import Analysis
from sentence_experts.evaluation.results import Difference
from sentence_experts.moee.vectors import PARTS
from sentence_experts.report.content import Figure, Item, Report, Table, Verdict
from sentence_experts.report.figures import matrix
from sentence_experts.report.wording import describe_standing, names_of_measured, number, points

PART_NAMES = {"hs": "HS", "rw": "RW", "concat": "MoEE (concat)", "sum": "MoEE (sum)"}
AGREEMENT = {"ami": "AMI", "nmi": "NMI", "jaccard": "Jaccard", "exact_match": "Exact matching"}
MEANS = {"hs_hs": "HS with HS", "rw_rw": "RW with RW", "hs_rw": "HS with RW"}
SHARES = {
    "both_right": "both right",
    "only_hidden": "only HS right",
    "only_routing": "only RW right",
    "both_wrong": "both wrong",
}
CASES = {"only_rw": "HS is wrong, RW is right", "only_hs": "RW is wrong, HS is right"}


def analysis_report(analysis: Analysis) -> Report:
    """Return the report: the correlations of each part, then how the two parts differ."""
    figures, settings = analysis.figures, analysis.settings
    first, *others = (_make_correlations(figures, prompt) for prompt in figures["prompts"])
    main: list[Item] = [
        "HS: the hidden state of the last token of a text. RW: the routing weights of all blocks for it. "
        "After Li & Zhou 2024, MoEE.",
        first,
        _make_complementarity(figures["complementarity"]),
    ]
    details: dict[str, list[Item]] = {"Influence of the prompt": [_make_stability(figures)]}
    if others:
        details["Correlation with human scores under the other prompts"] = list(others)
    details["Agreement between parts and prompts"] = [_draw_between_prompts(figures["between_prompts"])]
    for name, cases in figures["cases"].items():
        details[f"Pairs of {name} that one part alone is right about"] = _make_cases(cases)
    details["Clusters by HS and by RW"] = [_make_clusters(figures["clusters"])]
    title = f"Routing weights and hidden states of {settings.get('model', 'a language model')}"
    return Report(title, analysis_verdict(figures, settings), main, details, settings=settings)


def _make_correlations(analysis: Mapping[str, Any], prompt: str) -> Table:
    own = {(row["dataset"], row["part"]): row for row in analysis["correlations"] if row["prompt"] == prompt}
    datasets, rows = list(analysis["datasets"]), []
    for part in PARTS:
        row = [PART_NAMES[part]]
        for dataset in datasets:
            value, low, high = (100 * own[dataset, part][name] for name in ("value", "low", "high"))
            row.append(f"{value:.2f}" + (f"\n{low:.1f} to {high:.1f}" if low == low else ""))
        mean = sum(own[dataset, part]["value"] for dataset in datasets) / len(datasets)
        rows.append([*row, f"{100 * mean:.2f}"])
    title = f"Prompt {prompt}: Spearman's correlation × 100, 95% bootstrap intervals over pairs"
    return Table(title, ("Vector", *datasets, "Mean"), rows)


def _make_stability(analysis: Mapping[str, Any]) -> Item:
    prompts, datasets = len(analysis["prompts"]), analysis["datasets"]
    if prompts < 2:
        return "There is only one prompt: nothing to compare."
    own = {
        (row["part"], row["dataset"]): f"{row['mean']:.3f}\n{row['variance']:.5f}"
        for row in analysis["stability"]
    }
    cells = [[PART_NAMES[part], *(own[part, dataset] for dataset in datasets)] for part in PARTS]
    title = f"Mean over {prompts} prompts, and variance below it (MoEE, figure 5)"
    return Table(title, ("Vector", *datasets), cells)


def _draw_between_prompts(own: Mapping[str, Any]) -> Figure:
    means = "; ".join(f"{name} {number(own['means'][key], '.2f')}" for key, name in MEANS.items())
    values = np.array(own["matrix"])
    texts = np.vectorize("{:.2f}".format, otypes=[object])(values)
    return Figure(
        partial(matrix, own["sides"], values, texts, "Blues", (0, 1.6)),
        f"Matrix of correlations. Means: {means}.",
        f"Spearman's correlation between the cosines of the pairs of {own['dataset']} (MoEE, figure 4). "
        f"Means: {means}.",
    )


def _make_complementarity(own: Mapping[str, Any]) -> Table:
    rows = [
        [name, *(f"{shares[key]:.0%}" for key in SHARES), f"{shares['one_alone']:.0%}"]
        for name, shares in own["datasets"].items()
    ]
    title = (
        "Shares of the pairs that each part is right about (MoEE, figure 2). A part is wrong about a pair if "
        f"its rank by cosine differs from that by human scores by more than {own['failed_above']:.0%} of the "
        "ranks; the paper does not state its criterion"
    )
    return Table(title, ("Dataset", *SHARES.values(), "one alone"), rows)


def _make_cases(cases: Mapping[str, Any]) -> list[Item]:
    """Return the pairs that one part is right about and the other is not (MoEE, section 4.5)."""
    items: list[Item] = [
        "Score: of people; HS and RW: cosines. Below each number is the rank of the pair among all pairs, "
        "from 0% (least alike) to 100%. Listed first are the pairs where one part's rank is near that by "
        "score and the other's far from it."
    ]
    forms = {"score": ".2f", "hs": ".4f", "rw": ".4f"}
    for key, title in CASES.items():
        rows = []
        for one in cases[key]:
            cells = (f"{one[name]:{form}}\n{one['ranks'][name]:.0%}" for name, form in forms.items())
            rows.append([f"{one['first']}\n{one['second']}", *cells])
        items.append(Table(title, ("Texts", "Score", "HS", "RW"), rows) if rows else f"{title}: no pair.")
    return items


def _make_clusters(own: Mapping[str, Any]) -> Table:
    rows = [[name, f"{own['agreement'][key]:.2f}"] for key, name in AGREEMENT.items()]
    title = (
        f"Agreement of {own['clusters']} clusters of {own['texts']:,} texts of {own['dataset']}; 1 is equal "
        "(MoEE, section 3.2)"
    )
    return Table(title, ("Measure", "Agreement"), rows)


def analysis_verdict(analysis: Mapping[str, Any], settings: Mapping[str, Any]) -> Verdict:
    """Judge by the mean over datasets of the correlation with human scores, under the first prompt."""
    (prompt, *others), datasets = analysis["prompts"], analysis["datasets"]
    values: dict[str, float] = {}
    for row in analysis["correlations"]:
        if row["prompt"] == prompt:
            name = PART_NAMES[row["part"]]
            values[name] = values.get(name, 0.0) + row["value"] / len(datasets)
    order = sorted(values, key=lambda name: -values[name])
    compared = (
        f"{names_of_measured(values)} of {settings.get('model', 'a language model')} on the rated pairs of "
        f"{', '.join(f'{name} ({count:,})' for name, count in datasets.items())}; prompt {prompt}"
        f"{f', of {len(others) + 1}' if others else ''}."
    )
    gaps = [
        Difference(
            PART_NAMES[each["first"]], PART_NAMES[each["second"]], "average", "spearman", each["value"],
            Interval(each["low"], each["high"]), p_holm=each["p_holm"],
        )
        for each in analysis["differences"]
    ]  # fmt: skip
    shares = analysis["complementarity"]["datasets"].values()
    alone = sum(each["one_alone"] for each in shares) / max(1, len(shares))
    findings = [
        "Spearman's correlation with the scores × 100: "
        f"{'; '.join(f'{name} {100 * values[name]:.1f}' for name in order)}.",
        *describe_standing(order, gaps, points),
        f"HS or RW alone is right about {alone:.0%} of the pairs: what joining them could gain.",
    ]
    advice = []
    if not others:
        advice.append("Compare prompts with `prompts`: they often matter more than the part.")
    if PART_NAMES["sum"] in values:
        advice.append(
            "Choose the weight of RW in the sum on pairs of your own: `develop` of `make_embedder`."
        )
    advice.append("Measure the leading part on tasks: `moee evaluate`.")
    return Verdict(compared, findings, advice)
