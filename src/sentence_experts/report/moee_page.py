"""The HTML page of an analysis of routing weights (`evaluation.moee.analysis`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from sentence_experts.moee.vectors import PARTS
from sentence_experts.report import html
from sentence_experts.report.figures import complementarity_bars, prompt_matrix, stability
from sentence_experts.report.verdict import PART_NAMES, of_analysis

AGREEMENT = {"ami": "AMI", "nmi": "NMI", "jaccard": "Jaccard", "exact_match": "Exact matching"}
# Li & Zhou 2024, section 3.2: DeepSeekMoE-16B, the pairs of STS12, nine prompts.
PUBLISHED_AGREEMENT = {"ami": 0.29, "nmi": 0.29, "jaccard": 0.06, "exact_match": 0.4554}
PUBLISHED_MEANS = {"hs_hs": 0.52, "rw_rw": 0.63, "hs_rw": 0.51}
CASES = {"only_rw": "HS is wrong, RW is right", "only_hs": "RW is wrong, HS is right"}
MEANS = {"hs_hs": "HS with HS", "rw_rw": "RW with RW", "hs_rw": "HS with RW"}


def moee_page(analysis: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The page: the correlations of each part, then how the two parts differ."""
    sections = (
        ("Correlation with human scores", _correlations(analysis)),
        ("Influence of the prompt", _stability(analysis)),
        ("Agreement between parts and prompts", _between_prompts(analysis)),
        ("Pairs that one part alone is right about", _complementarity(analysis)),
        ("Examples of such pairs", _cases(analysis)),
        ("Clusters by HS and by RW", _clusters(analysis)),
        ("Settings", iter([f"<pre>{escape(json.dumps(settings, indent=1, ensure_ascii=False))}</pre>"])),
    )
    body = "\n".join(
        f"<section>\n<h2>{escape(heading)}</h2>\n{''.join(parts)}\n</section>" for heading, parts in sections
    )
    title = f"Routing weights and hidden states of {settings.get('model', 'a language model')}"
    lead = (
        "<p>HS: the hidden state of the last token of a text. RW: the routing weights of all blocks for it. "
        "After Li &amp; Zhou 2024, MoEE.</p>"
    )
    verdict = html.verdict(of_analysis(analysis, settings).lines())
    return html.document(title, f"{verdict}\n{lead}\n{body}")


def _correlations(analysis: Mapping[str, Any]) -> Iterator[str]:
    rows = analysis["correlations"]
    for prompt in analysis["prompts"]:
        own = {(row["dataset"], row["part"]): row for row in rows if row["prompt"] == prompt}
        cells = (
            (
                PART_NAMES[part],
                "".join(_interval(own[dataset, part]) for dataset in analysis["datasets"])
                + html.cell([f"{_mean(own, part, analysis['datasets']):.2f}"]),
            )
            for part in PARTS
        )
        caption = f"Prompt {prompt}: Spearman's correlation × 100, 95% bootstrap intervals over pairs"
        opened = " open" if prompt == analysis["prompts"][0] else ""
        heads = ("Vector", *analysis["datasets"], "Mean")
        table = html.table(caption, heads, cells)
        yield f"<details{opened}><summary>{escape(prompt)}</summary>{table}</details>"


def _mean(own: Mapping[tuple[str, str], Mapping[str, float]], part: str, datasets: Any) -> float:
    return 100 * sum(own[dataset, part]["value"] for dataset in datasets) / len(datasets)


def _interval(row: Mapping[str, float]) -> str:
    ends = [] if row["low"] != row["low"] else [f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"]
    return html.cell([f"{100 * row['value']:.2f}", *ends])


def _stability(analysis: Mapping[str, Any]) -> Iterator[str]:
    rows, prompts = analysis["stability"], len(analysis["prompts"])
    if prompts < 2:
        yield "<p>There is only one prompt: nothing to compare.</p>"
        return
    yield html.figure(
        stability(rows, prompts), "Mean and spread over prompts, see the table.", "MoEE, figure 5."
    )
    by_place = {(row["part"], row["dataset"]): row for row in rows}
    cells = (
        (
            PART_NAMES[part],
            "".join(
                html.cell([f"{row['mean']:.3f}", f"{row['variance']:.5f}"])
                for dataset in analysis["datasets"]
                for row in (by_place[part, dataset],)
            ),
        )
        for part in PARTS
    )
    yield html.table("Mean, and variance below it", ("Vector", *analysis["datasets"]), cells)


def _between_prompts(analysis: Mapping[str, Any]) -> Iterator[str]:
    own = analysis["between_prompts"]
    means = {name: value if value is None else f"{value:.2f}" for name, value in own["means"].items()}
    listed = "; ".join(
        f"{MEANS[name]} {means[name] or '–'} (published {PUBLISHED_MEANS[name]:.2f})" for name in MEANS
    )
    yield html.figure(
        prompt_matrix(own["sides"], own["matrix"]),
        f"Matrix of correlations. Means: {listed}.",
        f"Spearman's correlation between the cosines of the pairs of {own['dataset']} (MoEE, figure 4). "
        f"Means: {listed}; published for DeepSeekMoE-16B on STS12.",
    )


def _complementarity(analysis: Mapping[str, Any]) -> Iterator[str]:
    own = analysis["complementarity"]
    alone = "; ".join(f"{name} {shares['one_alone']:.0%}" for name, shares in own["datasets"].items())
    yield html.figure(
        complementarity_bars(own["datasets"]),
        f"Shares of pairs where one part alone is right: {alone}.",
        f"One part alone is right: {alone} (MoEE, figure 2). A part is wrong about a pair if its rank by "
        f"cosine differs from that by human scores by more than {own['failed_above']:.0%} of the ranks; the "
        "paper does not state its criterion.",
    )


def _cases(analysis: Mapping[str, Any]) -> Iterator[str]:
    """Tables of pairs that one part is right about and the other is not (MoEE, section 4.5)."""
    heads = ("Texts", "Score", "HS", "RW")
    for name, cases in analysis["cases"].items():
        tables = []
        for key, title in CASES.items():
            rows = [_case(one) for one in cases[key]]
            tables.append(html.table(title, heads, rows) if rows else f"<p>{title}: no pair.</p>")
        opened = " open" if name == next(iter(analysis["cases"])) else ""
        yield f"<details{opened}><summary>{escape(name)}</summary>{''.join(tables)}</details>"
    yield (
        '<p class="note">Score: of people; HS and RW: cosines. Below each number is the rank of the pair '
        "among all pairs by it, from 0% (least alike) to 100%. Listed first are the pairs where one part's "
        "rank is near that by score and the other's far from it.</p>"
    )


def _case(one: Mapping[str, Any]) -> tuple[str, str]:
    texts = f"{escape(one['first'])}<br>{escape(one['second'])}"
    cells = (
        html.cell([f"{one[name]:.{digits}f}", f"{one['ranks'][name]:.0%}"])
        for name, digits in (("score", 2), ("hs", 4), ("rw", 4))
    )
    return texts, "".join(cells)


def _clusters(analysis: Mapping[str, Any]) -> Iterator[str]:
    own = analysis["clusters"]
    rows = (
        (
            name,
            html.cell([f"{own['agreement'][key]:.2f}"]) + html.cell([f"{PUBLISHED_AGREEMENT[key]:.2f}"]),
        )
        for key, name in AGREEMENT.items()
    )
    caption = (
        f"Agreement of {own['clusters']} clusters of {own['texts']:,} texts of {own['dataset']}; 1 is equal "
        "(MoEE, section 3.2)"
    )
    yield html.table(caption, ("", "here", "published, DeepSeekMoE-16B"), rows)
    for part, clusters in own["topics"].items():
        listed = "".join(
            f"<li>{one['texts']:,} texts: {escape(', '.join(one['words']) or '–')}</li>" for one in clusters
        )
        yield f"<h3>Words of the clusters by {PART_NAMES[part]}</h3><ol>{listed}</ol>"
