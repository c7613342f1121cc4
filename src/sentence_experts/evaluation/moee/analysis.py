"""The comparison of the routing weights (RW) and hidden states (HS) of a language model, prompt by prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import cosines as row_cosines
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import AnalyseConfig
from sentence_experts.evaluation.moee.agreement import (
    MAX_RANK_DISTANCE,
    agreement,
    cluster,
    complementarity,
    correlation,
    mean_between,
    mean_correlations,
    rank_correlations,
    ranks,
    right_alone,
)
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.evaluation.results import StoredResult, measured_once
from sentence_experts.evaluation.statistics import Estimate, holm
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.prompts import PROMPTS
from sentence_experts.moee.saved import load_embedder
from sentence_experts.moee.vectors import HIDDEN, PARTS, ROUTING, SUM, Rows, States, joined
from sentence_experts.storage import check_apart, read_json, sha256_text, write_json

Column = NDArray[np.float64]
# (prompt, dataset) -> part -> the cosine of each pair, shape (pairs,)
Cosines = Mapping[tuple[str, str], Mapping[str, Column]]
ReadStates = Callable[[str, Sequence[str]], States]  # prompt, texts -> states
Combine = Callable[[States, str], Rows]  # states, part -> vectors


@dataclass(frozen=True, repr=False)
class Analysis(StoredResult):
    """How the parts of an embedder differ on rated pairs.

    Attributes:
        figures: all of them, as `analyse_states` gives them.
        settings: what they were made with.
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
        write_json(out / self.FILES[0], {**self.figures, "settings": self.settings}, sort=False)

    @classmethod
    def _read(cls, out: Path) -> Self:
        content = read_json(out / cls.FILES[0])
        return cls(content, content.pop("settings"))


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
            `prompts` are compared.
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
    check_apart(out, overwrite, model, pairs)

    def made_from() -> dict[str, Any]:
        read = {each.name: sha256_text(*each.first, *each.second, str(list(each.scores))) for each in data}
        return {"model": embedder.fingerprint, "pairs": read, "config": chosen.model_dump(mode="json")}

    def measure(place: Path | None) -> Analysis:
        if place is not None:
            embedder.cache_states(place / "states")
        return _analysed(embedder, data, chosen)

    return measured_once(Analysis, "analysis", out, overwrite, made_from, measure, caches=["states"])


def _analysed(embedder: MoeEmbedder, data: Sequence[RatedPairs], config: AnalyseConfig) -> Analysis:
    def read(prompt: str, texts: Sequence[str]) -> States:
        return embedder.with_prompt(prompt).states(texts, f"reading, prompt {prompt}")

    def combine(states: States, part: str) -> Rows:
        return embedder.with_parts(part).combined(states)

    figures = analyse_states(data, read, config, alpha=embedder.alpha, combine=combine)
    made = {"seed": config.seed, "replicates": config.bootstrap, **embedder.reader.settings()}
    of_vectors = {name: embedder.settings[name] for name in ("standard", "standard_batch")}
    fitted = {"fitted": embedder.fitted is not None}
    return Analysis(figures, {"model": Path(embedder.reader.name).name, **made, **of_vectors, **fitted})


@with_settings(AnalyseConfig)
def analyse_states(
    datasets: Sequence[RatedPairs],
    read: ReadStates,
    config: AnalyseConfig | None = None,
    *,
    alpha: float = 1.0,
    combine: Combine | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Compare routing weights and hidden states on scored pairs (MoEE, sections 3.2, 4.4 and 4.5).

    Args:
        datasets: scored pairs; the first one's texts are clustered, and its pairs correlated between prompts.
        read: gives the states of texts under a prompt.
        alpha: weight of RW in "sum".
        combine: gives the vectors of a part; by default those of `joined`.
        config, settings: an `AnalyseConfig`, or single fields of it.

    Returns:
        Plain values, ready for JSON.

    Raises:
        UsageError: no dataset, or two datasets or prompts with the same name.
    """
    chosen = AnalyseConfig.of(config, **settings)
    prompts = chosen.prompts or list(PROMPTS)
    names = [each.name for each in datasets]
    for what, given in (("dataset", names), ("prompt", prompts)):
        if not given or len(set(given)) < len(given):
            raise UsageError(
                f"give at least one {what}, and each only once (got {', '.join(given) or 'none'})"
            )
    combined = combine or (lambda states, part: joined(states.hidden, states.routing, part, alpha))
    cosines = {
        (prompt, data.name): _pair_cosines(data, prompt, read, combined)
        for prompt, data in product(prompts, datasets)
    }
    first = datasets[0]
    correlations = _correlations(datasets, prompts, cosines, chosen)
    return {
        "datasets": {each.name: len(each.scores) for each in datasets},
        "prompts": prompts,
        "alpha": alpha,
        "correlations": correlations,
        "differences": _differences(datasets, prompts[0], cosines, chosen),
        "stability": _stability(names, correlations),
        "between_prompts": _between_prompts(first, prompts, cosines),
        "complementarity": {
            "failed_above": MAX_RANK_DISTANCE,
            "datasets": {
                data.name: complementarity(own[HIDDEN], own[ROUTING], data.scores)
                for data in datasets
                for own in (cosines[prompts[0], data.name],)
            },
        },
        "cases": {data.name: _cases(data, cosines[prompts[0], data.name], chosen.cases) for data in datasets},
        "clusters": {
            "dataset": first.name,
            **_clusters(first, read(prompts[0], first.texts), combined, chosen),
        },
    }


def _pair_cosines(data: RatedPairs, prompt: str, read: ReadStates, combine: Combine) -> dict[str, Column]:
    """Return part -> the cosines of the pairs (for "sum", the weighted sum of cosines)."""
    texts = data.texts
    states, row = read(prompt, texts), {text: place for place, text in enumerate(texts)}
    sides = [states[[row[text] for text in side]] for side in (data.first, data.second)]
    by_part = {}
    for part in PARTS:
        vectors = [combine(side, part) for side in sides]
        # The dot product of two "sum" vectors is the weighted sum of the cosines.
        by_part[part] = (
            np.einsum("ij,ij->i", *vectors, dtype=np.float64) if part == SUM else row_cosines(*vectors)
        )
    return by_part


def _correlations(
    datasets: Sequence[RatedPairs], prompts: Sequence[str], cosines: Cosines, config: AnalyseConfig
) -> list[dict[str, Any]]:
    """Return Spearman's correlation with the scores for each prompt, dataset and part."""
    return [
        {"prompt": prompt, "dataset": data.name, "part": part}
        | correlation(cosines[prompt, data.name][part], data.scores, config.bootstrap, config.seed)
        for prompt, data, part in product(prompts, datasets, PARTS)
    ]


def _differences(
    datasets: Sequence[RatedPairs], prompt: str, cosines: Cosines, config: AnalyseConfig
) -> list[dict[str, Any]]:
    """Each part minus each later one: the mean correlation over the datasets, with paired intervals."""
    if not config.bootstrap:
        return []
    means = {
        part: mean_correlations(
            [(cosines[prompt, data.name][part], data.scores) for data in datasets],
            config.bootstrap,
            config.seed,
        )
        for part in PARTS
    }
    rows, p_values = [], []
    for first, second in combinations(PARTS, 2):
        value = means[first][0] - means[second][0]
        estimate = Estimate(value, float(np.nanstd(means[first][1] - means[second][1])), np.inf)
        rows.append(
            {"first": first, "second": second, "value": value, **asdict(estimate.interval(-2.0, 2.0))}
        )
        p_values.append(estimate.p_value())
    return [row | {"p_holm": p_holm} for row, p_holm in zip(rows, holm(p_values), strict=True)]


def _stability(datasets: Sequence[str], correlations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and variance over the prompts of the correlation with the scores (MoEE, figure 5)."""
    rows = []
    for name, part in product(datasets, PARTS):
        values = [row["value"] for row in correlations if (row["dataset"], row["part"]) == (name, part)]
        variance = float(np.var(values, ddof=1)) if len(values) > 1 else None
        rows.append({"dataset": name, "part": part, "mean": float(np.mean(values)), "variance": variance})
    return rows


def _between_prompts(data: RatedPairs, prompts: Sequence[str], cosines: Cosines) -> dict[str, Any]:
    """Spearman's correlations between HS and RW under all prompts, and their means (MoEE, figure 4)."""
    sides = [(part, prompt) for part in (HIDDEN, ROUTING) for prompt in prompts]
    matrix = rank_correlations([cosines[prompt, data.name][part] for part, prompt in sides])
    half = len(prompts)
    hidden, routing = range(half), range(half, 2 * half)
    means = {
        "hs_hs": mean_between(matrix, hidden, hidden),
        "rw_rw": mean_between(matrix, routing, routing),
        "hs_rw": mean_between(matrix, hidden, routing),
    }
    return {
        "dataset": data.name,
        "sides": [f"{part} {prompt}" for part, prompt in sides],
        "matrix": matrix.round(4).tolist(),
        "means": {name: value if np.isfinite(value) else None for name, value in means.items()},
    }


def _cases(data: RatedPairs, cosines: Mapping[str, Column], most: int) -> dict[str, Any]:
    """Return the pairs that one part alone is right about (MoEE, section 4.5), those of the widest gap first.

    Equal pairs are listed once.
    """
    described = _describer(data, cosines)

    def listed(right: str, wrong: str) -> list[dict[str, Any]]:
        pairs: dict[tuple[str, str], dict[str, Any]] = {}
        for place in right_alone(cosines[right], cosines[wrong], data.scores).tolist():
            pairs.setdefault((data.first[place], data.second[place]), described(place))
        return list(pairs.values())[:most]

    return {"only_rw": listed(ROUTING, HIDDEN), "only_hs": listed(HIDDEN, ROUTING)}


def _describer(data: RatedPairs, cosines: Mapping[str, Column]) -> Callable[[int], dict[str, Any]]:
    """Describes a pair by its place: texts, score and cosines, their ranks, and which part is right."""
    columns = {"score": data.scores, HIDDEN: cosines[HIDDEN], ROUTING: cosines[ROUTING]}
    places = {name: ranks(values) for name, values in columns.items()}

    def described(place: int) -> dict[str, Any]:
        own = {name: round(float(values[place]), 4) for name, values in columns.items()}
        own_ranks = {name: float(values[place]) for name, values in places.items()}
        right = [
            part
            for part in (HIDDEN, ROUTING)
            if abs(own_ranks[part] - own_ranks["score"]) <= MAX_RANK_DISTANCE
        ]
        return {
            "first": data.first[place],
            "second": data.second[place],
            **own,
            "ranks": {name: round(value, 4) for name, value in own_ranks.items()},
            "right": {0: "neither", 1: "".join(right), 2: "both"}[len(right)],
        }

    return described


def _clusters(data: RatedPairs, states: States, combine: Combine, config: AnalyseConfig) -> dict[str, Any]:
    """How far clusters by HS and by RW agree (MoEE, section 3.2)."""
    number = min(config.clusters, len(data.texts))
    labels = [cluster(combine(states, part), number, config.seed) for part in (HIDDEN, ROUTING)]
    return {"texts": len(data.texts), "clusters": number, "agreement": agreement(*labels)}
