"""Do domain experts pay with matched negatives, and when an expert gets as many updates as a dense model?

    OMP_NUM_THREADS=1 python benchmarks/fair_domains.py --out FOLDER [--seeds 5] [--parts main router few]

The first study (`domain_experts.py`) had negatives that "times cited" tells from the positives, and gave an
expert 15 updates where the dense model had 105. Here both ends of a negative are ends of positives, and each
expert has as many updates as a dense model of its domain alone would need. Real articles of eLife and of PMC
on crops, titles of works cited together, split by citing article; the model of the last step. Every arm sees
the same pairs in as many steps, dense models and fixed experts behind the same domain tokens. Fixed experts
have batches of one domain, the others mixed ones.

`few`: one domain has only 50, 200 or 800 pairs. Is it served better by its expert, or by the shared model?

Budget, measured before the first result: 0.9 CPU seconds per step on a busy machine, 6 per test: 8 CPU
minutes for dense and experts with 5 seeds, 4 for the learned router, 24 for few pairs. There are two domains,
so that this fits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

import sentence_experts as se
from domain_experts import RULES
from pair_study import Clock, areas, compared, cosines, difference, gap, pairs_of, verdict
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from studies import RunFile, arguments, write_study
from study import BASE, CROPS, DATA, ELIFE

# All fixed before the first result.
DOMAINS, SMALL = ("crops", "neuroscience"), "crops"
UPDATES, BATCH = 24, 16  # of each expert; the dense model has as many steps as all experts together
STEPS = UPDATES * len(DOMAINS)
TRAINING: dict[str, Any] = {"max_steps": STEPS, "batch_size": BATCH, "learning_rate": 5e-5, "max_length": 32}
FEW = (50, 200, 800)
TEST_PAIRS = 200  # positives of a domain
MARGIN = 0.01
PRIMARY = "ROC-AUC, mean of the domains, an expert per domain minus dense"

UNTRAINED = "all-MiniLM-L6-v2"
DENSE, EXPERTS, ROUTER = "dense", "an expert per domain", "learned router"
ARMS: dict[str, dict[str, Any]] = {
    DENSE: {"layers": "none"},
    EXPERTS: {},
    ROUTER: {"route": "none", "router": "learned"},
}
MEAN = "pair_weighted_mean"


def compiled(out: Path) -> se.Pairs:
    """Pairs of the domains, with matched negatives."""
    corpus = se.import_corpus([DATA / ELIFE, DATA / CROPS], out=out / "articles")
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    rules["domains"] = {name: rules["domains"][name] for name in DOMAINS}
    settings: dict[str, Any] = {"unit": "title", "split": "article", "fractions": [0.6, 0.08, 0.32]}
    settings |= {"max_train_per_domain": max(FEW), "max_eval_per_domain": TEST_PAIRS, "negatives": "matched"}
    return se.compile_pairs(corpus, out=out / "domain-pairs", domains=rules, threads=1, **settings)


def drawn(pairs: se.Pairs, seed: int, small: int | None) -> se.Pairs:
    """`UPDATES` batches of pairs of each domain, but `small` pairs of the small one, by seed."""
    table = pairs.split("train")
    rows = []
    for number, domain in enumerate(DOMAINS):
        own = np.flatnonzero(pc.equal(table["domain"], domain).to_numpy(zero_copy_only=False))
        size = small if small and domain == SMALL else UPDATES * BATCH
        rows.append(np.random.default_rng([seed, number]).permutation(own)[:size])
    return pairs_of(table.take(pa.array(np.concatenate(rows))), pairs.known_links())


def run(arm: str, seed: int, small: int | None, pairs: se.Pairs) -> dict[str, Any]:
    """Train and test one model."""
    clock = Clock()
    model = se.extend(BASE, list(DOMAINS), seed=seed, **ARMS[arm])
    batches = "homogeneous" if arm == EXPERTS else "mixed"
    data = drawn(pairs, seed, small)
    se.train(model, data, **TRAINING, keep="last", seed=seed, batches=batches)
    found = cosines(model, pairs.split("test").select(PAIR_COLUMNS))
    return {"arm": arm, "seed": seed, "small": small, "cosines": found, "seconds": clock.seconds()}


def report(runs: RunFile, pairs: se.Pairs, seeds: int) -> None:
    """Write the study's page and its figures."""
    test = pairs.split("test")  # with the articles behind each pair, by which intervals cluster
    untrained = [runs.find(arm=UNTRAINED)[0]["cosines"]]

    def finished(small: int | None, table: pa.Table, rows: np.ndarray) -> Any:
        whole = {arm: runs.find(arm=arm, small=small)[:seeds] for arm in ARMS}
        kept = {
            arm: [each["cosines"] for each in found] for arm, found in whole.items() if len(found) >= seeds
        }
        scores = {UNTRAINED: untrained, **kept}
        taken = {arm: [np.array(one)[rows] for one in each] for arm, each in scores.items()}
        return compared(table, taken, MARGIN, [UNTRAINED])

    main = finished(None, test, np.arange(len(test)))
    labels = [model.label for model in main.models]
    head = " | ".join(DOMAINS)
    table = [
        f"| | ROC-AUC, mean of domains | minus untrained | {head} |",
        "|---|---|---|" + "---|" * len(DOMAINS),
    ]
    for model in main.models:
        single = [f"{model.domains[name].metrics['roc_auc']:.3f}" for name in DOMAINS]
        over = "" if model.label == UNTRAINED else gap(main, model.label, UNTRAINED, MEAN)
        table.append(f"| {model.label} | {areas(main, model.label, MEAN)} | {over} | {' | '.join(single)} |")
    table += ["", "| ROC-AUC, mean of domains | difference |", "|---|---|"]
    for pair in ((EXPERTS, DENSE), (ROUTER, DENSE), (EXPERTS, ROUTER)):
        if set(pair) <= set(labels):
            table.append(f"| {' - '.join(pair)} | {gap(main, *pair, MEAN)} |")
    rows = np.flatnonzero(pc.equal(test["domain"], SMALL).to_numpy(zero_copy_only=False))
    few = ["", f"| pairs of {SMALL} | dense | an expert | expert - dense |", "|---|---|---|---|"]
    for small in FEW:
        found = finished(small, test.take(pa.array(rows)), rows)
        if {DENSE, EXPERTS} <= {model.label for model in found.models}:
            figures = (areas(found, DENSE), areas(found, EXPERTS), gap(found, EXPERTS, DENSE))
            few.append(f"| {small} | {' | '.join(figures)} |")
    if len(few) == 3:
        few = ["", f"Few pairs ({', '.join(map(str, FEW))} of {SMALL}): not run yet."]
    said = verdict(difference(main, EXPERTS, DENSE, MEAN), PRIMARY, MARGIN)
    spent = sum(row["seconds"] for row in runs.rows) / 60
    text = [
        "# Do domain experts pay, with matched negatives and as many updates?",
        "",
        f"Primary figure: {PRIMARY}; margin {MARGIN}. `python benchmarks/fair_domains.py --out FOLDER`.",
        "",
        f"{seeds} seeds, {STEPS} steps of {BATCH} pairs, {UPDATES} for each expert; {len(test):,} test pairs "
        f"of {len(DOMAINS)} domains, split by citing article. 95% intervals over works, articles and seeds; "
        "differences are paired by seed.",
        "",
        *table,
        *few,
        "",
        f"**{said}**",
        "",
        f"{len(runs.rows)} runs, {spent:.0f} CPU minutes.",
    ]
    write_study("fair_domains", {"verdict": said}, runs, "\n".join(text))


def main() -> None:
    """Train and test what is missing, and write the results."""
    given = arguments(__doc__, parts=("main", "router", "few"))
    pairs = compiled(given.out)
    settings = {"training": TRAINING, "primary": PRIMARY, "margin": MARGIN, "pairs": pairs.fingerprint()}
    runs = RunFile(given.out, "fair_domains", settings)
    if not runs.done(arm=UNTRAINED):
        clock = Clock()
        found = cosines(BASE, pairs.split("test").select(PAIR_COLUMNS))
        runs.append({"arm": UNTRAINED, "seed": 0, "cosines": found, "seconds": clock.seconds()})
    wanted: dict[str, list[tuple[str, int | None]]] = {
        "main": [(DENSE, None), (EXPERTS, None)],
        "router": [(ROUTER, None)],
        "few": [(arm, small) for small in FEW for arm in (DENSE, EXPERTS)],
    }
    for part in () if given.report else given.parts:
        for seed in range(given.seeds):
            for arm, small in wanted[part]:
                if not runs.done(arm=arm, seed=seed, small=small):
                    runs.append(run(arm, seed, small, pairs))
                    print(arm, small, seed, runs.rows[-1]["seconds"], flush=True)
    report(runs, pairs, given.seeds)


if __name__ == "__main__":
    main()
