"""Our figures stand beside the published ones of the same row, domain and average."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from sentence_experts.evaluation.metrics import METRIC_NAMES
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED
from sentence_experts.report.content import html, markdown
from sentence_experts.reproduce.comparison import Compared, ReproductionResult
from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.run import plan_recipe

Evaluations = dict[str, dict[str, Any]]


def view(generator: random.Random) -> dict[str, Any]:
    metrics = {name: generator.random() for name in METRIC_NAMES}
    ends = {"low": generator.random(), "high": generator.random(), "replicates": 9}
    return {"metrics": metrics, "intervals": {"f1_max": ends, "roc_auc": None}}


def compared(
    name: str, out: Path, scale: str = "small"
) -> tuple[ReproductionResult, Evaluations, Experiment]:
    """A recipe's comparison with evaluations that hold a different number everywhere."""
    experiment = planned(name, out, scale)
    generator = random.Random(0)
    evaluations: Evaluations = {}
    for key in experiment.evaluations:
        models = [
            {
                "label": model.label,
                POOLED.kind: view(generator),
                PAIR_WEIGHTED_MEAN.kind: view(generator),
                "domains": {domain: view(generator) for domain in experiment.routes.values()},
            }
            for model in experiment.models
        ]
        evaluations[key] = {model["label"]: model for model in models}
    lists = {key: {"models": list(models.values())} for key, models in evaluations.items()}
    return experiment.compare(lists), evaluations, experiment


def planned(name: str, out: Path, scale: str = "small") -> Experiment:
    return plan_recipe(name, out=out, scale=scale, corpus=out / "corpus" if scale == "full" else None)


def figure(
    comparison: ReproductionResult, table: str, row: str, metric: str, pairs: str = "evaluation"
) -> Compared:
    (found,) = [
        one
        for one in comparison.figures
        if (one.published.table, one.published.row, one.published.metric) == (table, row, metric)
        and one.published.group == pairs
    ]
    return found


def test_means_of_domains_pooled_figures_and_domains(tmp_path: Path) -> None:
    comparison, evaluations, _ = compared("hallee2025/moe_all", tmp_path)
    ours = evaluations["evaluation"]["MoE_all"]
    f1_max = figure(comparison, "Table 3", "MoE_all", "f1_max")
    assert f1_max.value == ours[PAIR_WEIGHTED_MEAN.kind]["metrics"]["f1_max"]
    assert f1_max.published.value == 0.8875
    assert (
        figure(comparison, "Table 3", "MoE_all", "roc_auc").value == ours[POOLED.kind]["metrics"]["roc_auc"]
    )
    cvd = figure(comparison, "Table 7", "MoE_all", "f1_max")
    neuroscience = ours["domains"]["neuroscience"]
    assert (cvd.domain_here, cvd.value) == ("neuroscience", neuroscience["metrics"]["f1_max"])
    assert cvd.interval == tuple(neuroscience["intervals"]["f1_max"][end] for end in ("low", "high"))
    assert figure(comparison, "Table 7", "MoE_all", "roc_auc").interval is None


def test_model_of_one_domain_has_its_own_row_in_every_table(tmp_path: Path) -> None:
    comparison, evaluations, _ = compared("hallee2025/se_domain", tmp_path)
    ours = evaluations["evaluation"]
    assert set(ours) == {"SE_health", "SE_genomics", "SE_development", "SE_neuroscience", "SE_cell_biology"}
    other = figure(comparison, "Table 4", "SE_cvd", "ratio")  # CVD's model on the autoimmune domain
    assert other.value == ours["SE_neuroscience"]["domains"]["health"]["metrics"]["ratio"]


def test_a_domain_without_a_measured_pair_has_no_figure(tmp_path: Path) -> None:
    _, evaluations, experiment = compared("hallee2024/mini_se", tmp_path)
    for models in evaluations.values():
        for each in models.values():
            del each["domains"]["development"]
    comparison = experiment.compare({k: {"models": [*v.values()]} for k, v in evaluations.items()})
    values = {one.domain_here: one.value for one in comparison.figures if one.published.row == "Mini-SE"}
    assert (values["development"], values["neuroscience"] is None) == (None, False)
    assert "Mini-SE" in markdown(comparison.report())


def test_marks(tmp_path: Path) -> None:
    def marks(name: str, row: str, table: str = "Table 3", scale: str = "small") -> tuple[str, ...]:
        comparison, _, _ = compared(name, tmp_path / scale, scale)
        return next(one.differs for one in comparison.figures if one.published.row == row)

    assert marks("hallee2025/moe_all", "MoE_all") == ("data", "base", "scale")
    assert marks("hallee2025/moe_all", "MoE_all", scale="full") == ("data",)
    assert marks("default", "MoE_all", scale="full") == ("data", "protocol")
    assert marks("hallee2024/mini_se", "Mini-SE") == ("data", "scale")
    assert marks("hallee2024/scibert_se", "SciBERT-SE") == ("data", "base", "scale")
    assert marks("hallee2025/baselines", "MPNet") == ("not run",)
    assert marks("hallee2025/baselines", "Mini") == ("data",)


def test_differences_come_from_the_settings(tmp_path: Path) -> None:
    lines = "\n".join(planned("hallee2025/moe_all", tmp_path).differences)
    for text in (
        "SIMULATED",
        "neuroscience for cvd",
        "unit title for abstract",
        "minilm for answerdotai/ModernBERT-base",
        "max_steps 60 for none",
    ):
        assert text in lines
    assert "learning_rate" not in lines
    full = planned("hallee2025/moe_all", tmp_path, "full").differences
    assert len(full) == 1
    assert "not the authors' files" in full[0]


def test_our_line_is_above_the_printed_one(tmp_path: Path) -> None:
    comparison, _, _ = compared("hallee2024/baselines", tmp_path)
    first = comparison.tables[0]
    assert first.title == "Table 1: cvd (here neuroscience)"
    assert first.headings[1:3] == ("validation threshold", "validation f1_max")
    lines = dict(
        zip(
            (line[0] for line in first.rows[::2]),
            zip(first.rows[::2], first.rows[1::2], strict=True),
            strict=True,
        )
    )
    assert lines["TF-IDF"][1] == ("  published", "0.00", "0.67", "0.50", "0.50", "0.02", "1.00", "")
    assert lines["BERT"][0][1:3] == ("–", "–")
    assert lines["BERT"][0][-1] == "not run"
    for text in (markdown(comparison.report()), html(comparison.report())):
        assert first.title in text
        assert "Choice of the protocol: " in text
