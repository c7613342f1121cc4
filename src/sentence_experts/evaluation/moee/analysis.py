"""The comparison of the routing weights (RW) and hidden states (HS) of a language model, prompt by prompt.

The paper does not say when a part is wrong about a pair (MoEE, figure 2). Here cosines and scores are turned
into ranks from 0 to 1, and a part is wrong about a pair if the two ranks differ by more than
`MAX_RANK_DISTANCE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import cosines as row_cosines
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import AnalyseConfig
from sentence_experts.evaluation.estimates import Estimate, holm
from sentence_experts.evaluation.moee.agreement import (
    Column,
    agreement,
    cluster,
    correlation,
    mean_correlations,
    ranks,
)
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.evaluation.results import StoredResult, measure_once
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.moee_config import MoeeConfig
from sentence_experts.moee.prompts import PROMPTS
from sentence_experts.moee.saved import load_embedder
from sentence_experts.moee.vectors import HIDDEN, PARTS, ROUTING, SUM, States
from sentence_experts.storage import check_apart, read_json, sha256_text, write_json

MAX_RANK_DISTANCE = 0.25
NUMBERS = ("value", "low", "high", "mean", "p_holm")  # NaN where they are not defined; null in the file
# (prompt, dataset) -> part -> the cosine of each pair, shape (pairs,)
Cosines = Mapping[tuple[str, str], Mapping[str, Column]]


@dataclass(frozen=True, repr=False)
class Analysis(StoredResult):
    """The differences between the parts of an embedder on rated pairs.

    Attributes:
        figures: all figures, as `analyse_states` gives them.
        settings: settings that the figures were made with.
    """

    FILES = ("analysis.json",)
    NAMES = (*FILES, "analysis.html")
    figures: dict[str, Any]
    settings: dict[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per prompt, dataset and part: Spearman's correlation with the scores, its interval."""
        rows: list[dict[str, Any]] = self.figures["correlations"]
        return rows

    def save(self, out: Path) -> None:
        """Write `analysis.json` to a folder."""
        write_json(out / self.FILES[0], _replace_nan({**self.figures, "settings": self.settings}), sort=False)

    @classmethod
    def _read(cls, out: Path) -> Self:
        content = read_json(out / cls.FILES[0])
        # With one prompt there is no variance, and it is None in memory too.
        numbers = NUMBERS + (("variance",) if len(content["prompts"]) > 1 else ())
        for row in [*content["correlations"], *content["stability"], *content["differences"]]:
            row |= {name: np.nan for name in numbers if row.get(name, 0.0) is None}
        between = content["between_prompts"]
        between["matrix"] = np.array(between["matrix"], dtype=float).tolist()  # where None becomes NaN
        return cls(content, content.pop("settings"))


def _replace_nan(value: Any) -> Any:
    """Return plain values, with None for NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _replace_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nan(each) for each in value]
    return None if isinstance(value, float) and np.isnan(value) else value


@with_settings(AnalyseConfig)
def analyse(
    model: str | Path | MoeEmbedder,
    pairs: Sequence[Path | str | RatedPairs] | Path | str | RatedPairs,
    config: AnalyseConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Analysis:
    """Compare routing weights and hidden states on rated pairs (MoEE, sections 3.2 and 4.4).

    Args:
        model: an embedder, its folder, or a mixture-of-experts language model. Its prompt does not matter:
            `prompts` are compared; but one with fitted standard scores has them for its own prompt alone.
        pairs: a file of rated pairs for each dataset; the texts of the first are clustered.
        config: the settings; those given by name come before it.
        out: folder for analysis.json and the states of the texts, which are then not computed again.
        overwrite: start over, replacing another analysis in `out`.

    Raises:
        UsageError: two datasets or prompts with the same name, or `out` holds something else.
        InputError: the model or a file cannot be read.

    Example:
        >>> import pandas as pd
        >>> texts = [[f"rice {n}", f"wheat {n % 7}", n % 5] for n in range(20)]
        >>> frame = pd.DataFrame(texts, columns=["sentence1", "sentence2", "score"])
        >>> frame.to_csv("sts.csv", index=False)
        >>> result = analyse("language-model", "sts.csv", prompts=["none"], clusters=2, bootstrap=0)
        >>> sorted(result.to_pandas()["part"])
        ['concat', 'hs', 'rw', 'sum']
    """
    chosen = AnalyseConfig.of(config, **settings)
    given = [pairs] if isinstance(pairs, Path | str | RatedPairs) else pairs
    data = [each if isinstance(each, RatedPairs) else RatedPairs.read(Path(each), chosen) for each in given]
    embedder = model if isinstance(model, MoeEmbedder) else load_embedder(str(model))
    embedder.with_parts(SUM)  # refuses an alpha of other weights, before anything is read
    check_apart(out, overwrite, model, pairs)

    def made_from() -> dict[str, Any]:
        read = {each.name: sha256_text(*each.first, *each.second, str(list(each.scores))) for each in data}
        made: dict[str, Any] = {
            "model": embedder.fingerprint,
            "pairs": read,
            "config": chosen.model_dump(mode="json"),
        }
        if embedder.parts != SUM and embedder.alpha != MoeeConfig.of().alpha:  # sum is measured all the same
            made["alpha"] = embedder.alpha
        # Its texts are clustered, and the record holds mappings without their order.
        return made | ({"first dataset": data[0].name} if len(data) > 1 else {})

    def measure(place: Path | None) -> Analysis:
        cached = embedder if place is None else embedder.with_cache(place / "states")
        made = {"seed": chosen.seed, "replicates": chosen.bootstrap, **embedder.reader.settings()}
        made.pop("prompt", None)  # `prompts` are compared
        made |= {name: embedder.settings[name] for name in ("standard", "standard_batch")}
        made |= {"model": Path(embedder.reader.name).name, "fitted": embedder.fitted is not None}
        return Analysis(analyse_states(cached, data, chosen), made)

    return measure_once(Analysis, "analysis", out, overwrite, made_from, measure, caches=["states"])


@with_settings(AnalyseConfig)
def analyse_states(
    embedder: MoeEmbedder,
    datasets: Sequence[RatedPairs],
    config: AnalyseConfig | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Compare routing weights and hidden states on scored pairs (MoEE, sections 3.2, 4.4 and 4.5).

    The first dataset's texts are clustered, and its pairs correlated between prompts.

    Returns:
        Plain values, ready for JSON.

    Raises:
        UsageError: no dataset, or two datasets or prompts with the same name.
    """
    chosen = AnalyseConfig.of(config, **settings)
    own = [] if embedder.fitted is None else [embedder.settings["prompt"]]
    prompts = chosen.prompts or own or list(PROMPTS)
    if own and prompts != own:
        raise UsageError(
            f"`prompts`: the standard scores of this embedder were fitted under the prompt {own[0]!r}, and "
            "fit no other one: give that alone, or an embedder that was made without `calibrate`"
        )
    names = [each.name for each in datasets]
    for what, given in (("dataset", names), ("prompt", prompts)):
        if not given or len(set(given)) < len(given):
            raise UsageError(
                f"give at least one {what}, and each only once (got {', '.join(given) or 'none'})"
            )
    cosines = {
        (prompt, data.name): _compute_pair_cosines(data, prompt, embedder)
        for prompt, data in product(prompts, datasets)
    }
    correlations = [
        {"prompt": prompt, "dataset": data.name, "part": part}
        | correlation(cosines[prompt, data.name][part], data.scores, chosen.bootstrap, chosen.seed)
        for prompt, data, part in product(prompts, datasets, PARTS)
    ]
    first, main = datasets[0], {data.name: cosines[prompts[0], data.name] for data in datasets}
    clusters = min(chosen.clusters, len(first.texts))
    states = _read_states(embedder, prompts[0], first.texts)
    vectors = (embedder.with_parts(part).combined(states) for part in (HIDDEN, ROUTING))
    labels = [cluster(own, clusters, chosen.seed) for own in vectors]
    return {
        "datasets": {each.name: len(each.scores) for each in datasets},
        "prompts": prompts,
        "alpha": embedder.alpha,
        "correlations": correlations,
        "differences": _compute_differences(datasets, main, chosen) if chosen.bootstrap else [],
        "stability": _measure_stability(names, correlations),
        "between_prompts": _correlate_prompts(first, prompts, cosines),
        "complementarity": {
            "failed_above": MAX_RANK_DISTANCE,
            "datasets": {data.name: complementarity(main[data.name], data.scores) for data in datasets},
        },
        "cases": {data.name: _find_cases(data, main[data.name], chosen.cases) for data in datasets},
        "clusters": {
            "dataset": first.name,
            "texts": len(first.texts),
            "clusters": clusters,
            "agreement": agreement(*labels),
        },
    }


def _read_states(embedder: MoeEmbedder, prompt: str, texts: Sequence[str]) -> States:
    return embedder.with_prompt(prompt).states(texts, f"reading, prompt {prompt}")


def _compute_pair_cosines(data: RatedPairs, prompt: str, embedder: MoeEmbedder) -> dict[str, Column]:
    """Return part -> the cosines of the pairs (for "sum", the weighted sum of cosines)."""
    texts = data.texts
    states, row = _read_states(embedder, prompt, texts), {text: place for place, text in enumerate(texts)}
    sides = [states[[row[text] for text in side]] for side in (data.first, data.second)]
    vectors = {part: [embedder.with_parts(part).combined(side) for side in sides] for part in PARTS}
    # The dot product of two "sum" vectors is the weighted sum of the cosines.
    sums = np.einsum("ij,ij->i", *vectors[SUM], dtype=np.float64)
    return {part: sums if part == SUM else row_cosines(*own) for part, own in vectors.items()}


def _compute_differences(
    datasets: Sequence[RatedPairs], cosines: Mapping[str, Mapping[str, Column]], config: AnalyseConfig
) -> list[dict[str, Any]]:
    """Return each part minus each later one: mean correlations over the datasets, with paired intervals."""
    means = {}
    for part in PARTS:
        columns = [(cosines[data.name][part], data.scores) for data in datasets]
        means[part] = mean_correlations(columns, config.bootstrap, config.seed)
    rows, p_values = [], []
    for first, second in combinations(PARTS, 2):
        value = means[first][0] - means[second][0]
        estimate = Estimate(value, float(np.nanstd(means[first][1] - means[second][1])), np.inf)
        rows.append(
            {"first": first, "second": second, "value": value, **asdict(estimate.interval(-2.0, 2.0))}
        )
        p_values.append(estimate.p_value())
    return [row | {"p_holm": p_holm} for row, p_holm in zip(rows, holm(p_values), strict=True)]


def _measure_stability(
    datasets: Sequence[str], correlations: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return mean and variance over the prompts of the correlation with the scores (MoEE, figure 5)."""
    rows = []
    for name, part in product(datasets, PARTS):
        values = [row["value"] for row in correlations if (row["dataset"], row["part"]) == (name, part)]
        variance = float(np.var(values, ddof=1)) if len(values) > 1 else None
        rows.append({"dataset": name, "part": part, "mean": float(np.mean(values)), "variance": variance})
    return rows


def _correlate_prompts(data: RatedPairs, prompts: Sequence[str], cosines: Cosines) -> dict[str, Any]:
    """Return Spearman's correlations of HS and RW under all prompts, and their means (MoEE, figure 4)."""
    sides = [(part, prompt) for part in (HIDDEN, ROUTING) for prompt in prompts]
    columns = [rankdata(cosines[prompt, data.name][part]) for part, prompt in sides]
    matrix = np.atleast_2d(np.corrcoef(columns))
    half, others = len(prompts), ~np.eye(len(columns), dtype=bool)
    means = {}
    for name, rows, places in (("hs_hs", 0, 0), ("rw_rw", half, half), ("hs_rw", 0, half)):
        block = np.s_[rows : rows + half, places : places + half]
        values = matrix[block][others[block]]  # without those of a column with itself
        means[name] = float(np.mean(values)) if np.isfinite(values).all() and len(values) else None
    return {
        "dataset": data.name,
        "sides": [f"{part} {prompt}" for part, prompt in sides],
        "matrix": matrix.round(4).tolist(),
        "means": means,
    }


def _compute_distances(cosines: Mapping[str, Column], scores: ArrayLike) -> list[Column]:
    """Return the distance of each pair's rank by HS, and by RW, from its rank by the scores."""
    return [np.abs(ranks(cosines[part]) - ranks(scores)) for part in (HIDDEN, ROUTING)]


def complementarity(cosines: Mapping[str, Column], scores: ArrayLike) -> dict[str, float]:
    """Return the shares of the pairs that both, one or none of the parts is right about; they add up to 1.

    `one_alone` is the share that one part alone is right about: what combining the parts can gain.
    `cosines` has the cosines of each part; all columns have shape (pairs,).
    """
    hidden, routing = (distance <= MAX_RANK_DISTANCE for distance in _compute_distances(cosines, scores))
    shares = {
        "both_right": hidden & routing,
        "only_hidden": hidden & ~routing,
        "only_routing": ~hidden & routing,
        "both_wrong": ~hidden & ~routing,
        "one_alone": hidden ^ routing,
    }
    return {name: float(right.mean()) for name, right in shares.items()}


def _find_cases(data: RatedPairs, cosines: Mapping[str, Column], most: int) -> dict[str, Any]:
    """Return the pairs that one part alone is right about (MoEE, section 4.5), the widest gap first.

    Equal pairs are listed once.
    """
    columns = {"score": data.scores, HIDDEN: cosines[HIDDEN], ROUTING: cosines[ROUTING]}
    places = {name: ranks(values) for name, values in columns.items()}
    hidden, routing = _compute_distances(cosines, data.scores)
    cases = {}
    for name, near, far in (("only_rw", routing, hidden), ("only_hs", hidden, routing)):
        alone = np.flatnonzero((near <= MAX_RANK_DISTANCE) & (far > MAX_RANK_DISTANCE))
        listed: dict[tuple[str, str], dict[str, Any]] = {}
        for place in alone[np.argsort(near[alone] - far[alone], kind="stable")].tolist():
            first, second = data.first[place], data.second[place]
            case = {"first": first, "second": second}
            case |= {key: round(float(values[place]), 4) for key, values in columns.items()}
            case["ranks"] = {key: round(float(values[place]), 4) for key, values in places.items()}
            listed.setdefault((first, second), case)
        cases[name] = list(listed.values())[:most]
    return cases
