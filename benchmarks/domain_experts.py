"""Do domain experts pay? Single experts, one dense model and experts, on real co-cited papers, 3 seeds.

    python benchmarks/domain_experts.py --out FOLDER [--study main levers abstracts] [--seeds 3] [--jobs 2]

Every model is made by the command line, from the same all-MiniLM-L6-v2, and sees the same training pairs as
often (`--epochs`), in batches of one size. Pairs are split by citing article: no article and no work stands
behind pairs of two sets. Validation picks the step, the test set picks nothing. What is finished is kept: the
script goes on where it was stopped.

The articles are those of SENTENCE_EXPERTS_DATA: 1,489 of eLife and 2,975 of PMC on crops, in seven domains.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from study import BASE, CROPS, DATA, ELIFE, HERE, RESULTS, cli, slug

ARCHIVES = (ELIFE, CROPS)
RULES = HERE.parent / "src" / "sentence_experts" / "recipes" / "material" / "real_domains.yaml"
DOMAINS = tuple(yaml.safe_load(RULES.read_text(encoding="utf-8"))["domains"])
MEAN = "pair_weighted_mean"
VIEWS = ("pooled", MEAN)


@dataclass(frozen=True)
class Run:
    """One model of a study: how it is extended and trained, in addition to the settings of the study."""

    name: str
    extend: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    domains: tuple[str, ...] = DOMAINS


@dataclass(frozen=True)
class Study:
    """Models that are trained on the same pairs and compared on the same test set."""

    pairs: tuple[str, ...]
    train: tuple[str, ...]
    runs: tuple[Run, ...]


DENSE = ("--layers", "none")
LEARNED = ("--route", "none", "--router", "learned")
TITLES = (
    *("--relation", "co-citation", "--unit", "title", "--min-count", "1", "--split", "article"),
    *(
        "--fractions",
        "0.6,0.08,0.32",
        "--negatives",
        "cited",
        "--negatives-min-cited",
        "2",
        "--max-train-per-domain",
        "480",
    ),
    *("--max-eval-per-domain", "250", "--max-validation-per-domain", "60"),
)
ABSTRACTS = (
    *("--relation", "coupling", "--rare", "10", "--unit", "abstract", "--split", "paper"),
    *("--fractions", "0.55,0.1,0.35", "--negatives", "random", "--max-train-per-domain", "120"),
    *("--max-eval-per-domain", "150", "--max-validation-per-domain", "40"),
)
COMMON = ("--epochs", "1", "--learning-rate", "5e-5", "--eval-steps", "35", "--batches", "homogeneous")
TITLE_TRAINING = (*COMMON, "--batch-size", "32", "--max-length", "40")
ABSTRACT_TRAINING = (*COMMON, "--batch-size", "8")
DENSE_ALL, EXPERTS_ALL = Run("SE_all", DENSE), Run("MoE_all")
MIXED, HARD = ("--batches", "mixed"), ("--hard-negatives", "1")
# Adapters begin at zero and are few: the customary rate for them is higher.
ADAPTERS = ("--lora-rank", "8", "--learning-rate", "2e-4", "--expert-learning-rate", "5e-5")
STUDIES = {
    "main": Study(
        TITLES,
        TITLE_TRAINING,
        (
            DENSE_ALL,
            EXPERTS_ALL,
            Run("MoE_router", LEARNED),
            Run("MoE_lora", train=ADAPTERS),
            *(Run(f"SE_{domain}", DENSE, ("--routes", domain), (domain,)) for domain in DOMAINS),
        ),
    ),
    # Each lever changes one thing; where it changes the dense model too, that one is the control.
    "levers": Study(
        TITLES,
        TITLE_TRAINING,
        (
            DENSE_ALL,
            EXPERTS_ALL,
            Run("SE_all, mixed batches", DENSE, MIXED),
            Run("MoE_all, mixed batches", train=MIXED),
            Run("MoE_all, experts' rate x5", train=("--expert-learning-rate", "2.5e-4")),
            Run("MoE_all, attention frozen", train=("--freeze", "attention")),
            Run("MoE_all, expert norms", ("--expert-norms",)),
            Run("SE_all, hard negatives", DENSE, HARD),
            Run("MoE_all, hard negatives", train=HARD),
            Run("SE_all, 1.5 epochs", DENSE, ("--epochs", "1.5")),
            Run("MoE_all, 1.5 epochs", train=("--epochs", "1.5")),
        ),
    ),
    "abstracts": Study(ABSTRACTS, ABSTRACT_TRAINING, (DENSE_ALL, EXPERTS_ALL)),
}


def compile_pairs(out: Path, study: str) -> Path:
    """The study's pairs dataset; studies with the same settings share it."""
    corpus = out / "corpus"
    if not (corpus / "manifest.json").exists():
        cli(
            out / "logs" / "corpus.log",
            "corpus",
            "import",
            *(str(DATA / a) for a in ARCHIVES),
            "--out",
            str(corpus),
        )
    unit = STUDIES[study].pairs[STUDIES[study].pairs.index("--unit") + 1]
    pairs = out / f"pairs-{unit}"
    if not (pairs / "manifest.json").exists():
        flags = [*STUDIES[study].pairs, "--domains", str(RULES), "--out", str(pairs)]
        cli(out / "logs" / f"{pairs.name}.log", "pairs", "compile", str(corpus), *flags)
    return pairs


def train(out: Path, pairs: Path, study: Study, run: Run, seed: int) -> Path:
    """One model of one seed; the folder of the trained model."""
    name = f"{pairs.name.removeprefix('pairs-')}-{slug(run.name)}-{seed}"
    untrained, trained, log = out / "untrained" / name, out / "runs" / name, out / "logs" / f"{name}.log"
    if not (trained / "run.json").exists():
        if not (untrained / "modules.json").exists():
            experts = ",".join(run.domains)
            cli(log, "extend", BASE, "--experts", experts, *run.extend, "--out", str(untrained))
        flags = ["--pairs", str(pairs), "--out", str(trained), "--seed", str(seed)]
        cli(log, "train", str(untrained), *flags, *study.train, *run.train)
        # Caches the test vectors, so that models are encoded in parallel; they are compared at the end.
        measured = ["--pairs", str(pairs), "--cache", str(out / "vectors"), "--bootstrap", "0"]
        cli(log, "evaluate", str(trained / "model"), *measured, "--out", str(out / "single" / name))
        print(f"{run.name}, seed {seed}: trained", flush=True)
    for needless in (untrained, trained / "checkpoints"):
        shutil.rmtree(needless, ignore_errors=True)
    return trained / "model"


def evaluate(out: Path, pairs: Path, name: str, models: Sequence[tuple[str, Path]]) -> dict:
    """Results of all models of a study, joined over the seeds of each model."""
    folder = out / "evaluation" / name
    named = [part for label, model in models for part in ("--seeds", f"{label}={model}")]
    flags = [*named, "--baseline", BASE, "--baseline", "tfidf", "--cache", str(out / "vectors")]
    cli(
        out / "logs" / f"evaluate-{name}.log", "evaluate", "--pairs", str(pairs), *flags, "--out", str(folder)
    )
    found: dict = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    return found


def figure(figures: dict, metric: str) -> str:
    """A figure with its interval: ".7347 (.7121-.7602)"."""
    interval = figures["intervals"][metric]
    return f"{figures['metrics'][metric]:.3f} ({interval['low']:.3f}-{interval['high']:.3f})"


def model_table(found: dict) -> list[str]:
    """Markdown: every model's figures, pooled and as the mean of the domains."""
    heads = "F1max, pooled | ROC-AUC, pooled | F1max, mean of domains | ROC-AUC, mean of domains"
    rows = [f"| model | {heads} |", "|---|---|---|---|---|"]
    for model in found["models"]:
        views = [model["pooled"], model["pair_weighted_mean"]]
        cells = [figure(view, metric) for view in views for metric in ("f1_max", "roc_auc")]
        rows.append(f"| {model['label']} | {' | '.join(cells)} |")
    return rows


def domain_table(found: dict) -> list[str]:
    """Markdown: ROC-AUC by domain."""
    rows = [f"| ROC-AUC | {' | '.join(DOMAINS)} |", "|---|" + "---|" * len(DOMAINS)]
    for model in found["models"]:
        cells = [f"{model['domains'][domain]['metrics']['roc_auc']:.3f}" for domain in DOMAINS]
        rows.append(f"| {model['label']} | {' | '.join(cells)} |")
    return rows


def difference_table(found: dict, first: Sequence[str]) -> list[str]:
    """Markdown: ROC-AUC of these models minus that of every other, as the mean of the domains."""
    rows = ["| ROC-AUC, mean of domains | difference | 95% interval | p, Holm |", "|---|---|---|---|"]
    for one in found["differences"]:
        if one["view"] != MEAN or one["metric"] != "roc_auc" or one["first"] not in first:
            continue
        low, high = one["interval"]["low"], one["interval"]["high"]
        pair = f"{one['first']} - {one['second']}"
        rows.append(f"| {pair} | {one['value']:+.4f} | {low:+.4f} to {high:+.4f} | {one['p_holm']:.3g} |")
    return rows


def write(out: Path, name: str, found: dict, pairs: Path) -> None:
    """The study's tables, for people and for programs."""
    study = STUDIES[name]
    manifest = json.loads((pairs / "manifest.json").read_text(encoding="utf-8"))
    seeds = max(len(model["runs"]) for model in found["models"])
    test_pairs = sum(figures["pairs"] for figures in found["models"][0]["domains"].values())
    seen, works = manifest["test_papers_seen_in_training"], manifest["test_papers"]
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    runs = [f"- {run.name}: `{' '.join((*run.extend, *run.train)) or 'as it is'}`" for run in study.runs]
    text = [
        f"# Do domain experts pay? Study: {name}",
        "",
        f"Made by `benchmarks/domain_experts.py`, study {name}; {machine}.",
        f"{seeds} seeds. {test_pairs:,} test pairs of {works:,} works, {seen} of them seen in training.",
        "",
        f"Pairs: `{' '.join(study.pairs)}`. Training: `{' '.join(study.train)}`. Beside that:",
        "",
        *runs,
        "",
        *(line for table in (model_table(found), domain_table(found)) for line in (*table, "")),
        *difference_table(found, [run.name for run in study.runs if len(run.domains) > 1]),
        "",
    ]
    (out / f"domain_experts_{name}.md").write_text("\n".join(text), encoding="utf-8")
    kept = {"differences": [one for one in found["differences"] if one["view"] in VIEWS]}
    models = [{**model, "runs": len(model["runs"])} for model in found["models"]]
    kept |= {"models": models, "routers": found["routers"], "pairs": found["settings"]["pairs_fingerprint"]}
    (out / f"domain_experts_{name}.json").write_text(json.dumps(kept), encoding="utf-8")


def run_study(out: Path, name: str, seeds: int, jobs: int) -> None:
    """Train and evaluate what is not there yet, and write the study's tables."""
    study, pairs = STUDIES[name], compile_pairs(out, name)
    wanted = [(run, seed) for run in study.runs for seed in range(seeds)]
    with ThreadPoolExecutor(jobs) as pool:
        trained = list(pool.map(lambda one: train(out, pairs, study, *one), wanted))
    models = [(run.name, model) for (run, _), model in zip(wanted, trained, strict=True)]
    write(RESULTS, name, evaluate(out, pairs, name, models), pairs)


def main() -> None:
    """Train and evaluate all models that are missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for corpus, pairs, runs and results")
    parser.add_argument("--study", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel trainings")
    given = parser.parse_args()
    for name in given.study:
        run_study(given.out, name, given.seeds, given.jobs)


if __name__ == "__main__":
    main()
