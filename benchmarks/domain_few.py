"""Does a domain with few pairs need an expert, or does a linear map do?

    nice python benchmarks/domain_few.py --out FOLDER [--seeds 5] [--report]

Two domains of works cited together, as in `claims_domain.py`, which share their criterion: linked or not.
In `fair_domains.md` a domain with 50 pairs gained 0.022 by an expert over a dense model. Here both domains
have 50, 200 or 1,000 pairs, and the rivals are heads and adapters on the frozen base, and a dense model with
the same batches of one domain. MiniLM with all six blocks.

Fixed before the first run: the primary figure is the ROC-AUC of linked and unlinked test pairs, the mean of
the domains, an expert minus a head, with 50 pairs; margin 0.01; differences of a size are a family (Holm).
Each arm has the rate that is best on validation pairs among four, with 200 pairs at seed 0. Every arm makes
24 steps of 16 pairs for each domain, 63 with 1,000 pairs; heads three times as many (ten times was planned,
but `train` reads the texts at every step of theirs too).
The model of the last step is tested.

Budget: 25 to 90 CPU seconds a run, 55 minutes for 5 seeds (3 with 1,000 pairs).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import sentence_experts as se
from claims_domain import OF_DOMAINS, compiled, domain_cosines, drawn, in_domains, of_domain
from measuring import BASE, table
from study import (
    Row,
    RunFile,
    Test,
    arguments,
    blind_table,
    by_route,
    difference_table,
    differences,
    mean_auc,
    with_interval,
    write_study,
)

NAME, MARGIN = "domain_few", 0.01
UNTRAINED, DENSE, HEAD, ADAPTER, EXPERT = "all-MiniLM-L6-v2", "dense", "head", "adapter", "expert"
BLOCK_RATES, ADAPTER_RATES = (2.5e-5, 5e-5, 1e-4, 2e-4), (5e-4, 1e-3, 2e-3, 4e-3)
HEAD_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
ARMS: Mapping[str, tuple[dict[str, Any], Sequence[float]]] = {
    DENSE: ({"layers": "none"}, BLOCK_RATES),
    HEAD: ({"kind": "head"}, HEAD_RATES),
    ADAPTER: ({"kind": "adapter"}, ADAPTER_RATES),
    EXPERT: ({}, BLOCK_RATES),
}
SIZES, RATED = (50, 200, 1000), 200
UPDATES, MOST_UPDATES, HEAD_FACTOR = 24, 63, 3  # steps of a domain
TEST_PAIRS = 400
COMPARED = [(EXPERT, HEAD), (EXPERT, DENSE), (ADAPTER, HEAD), (HEAD, DENSE)]
TRAINING: dict[str, Any] = {"batch_size": 16, "max_length": 32, "batches": "homogeneous", "keep": "last"}
SETTINGS = {
    "training": TRAINING, "updates": [UPDATES, MOST_UPDATES, HEAD_FACTOR], "margin": MARGIN,
    "rates": {arm: list(rates) for arm, (_, rates) in ARMS.items()},
}  # fmt: skip


def steps_of(arm: str, size: int) -> int:
    """The steps of a training, over all domains."""
    updates = MOST_UPDATES if size == max(SIZES) else UPDATES
    return updates * len(OF_DOMAINS) * (HEAD_FACTOR if arm == HEAD else 1)


def train_and_test(pairs: se.Pairs, arm: str, size: int, seed: int, rate: float, split: str = "test") -> Row:
    """Train with so many pairs of each domain; cosines of a split."""
    started = time.process_time()
    model: Any = se.extend(BASE, routes=list(OF_DOMAINS), seed=seed, **ARMS[arm][0])
    steps = steps_of(arm, size)
    se.train(model, drawn(pairs, seed, size), **TRAINING, max_steps=steps, learning_rate=rate, seed=seed)
    spent = round(time.process_time() - started, 1)
    return {"rate": rate, "cosines": domain_cosines(model, pairs.split(split)), "seconds": spent}


def choose_rate(runs: RunFile, arm: str) -> float:
    """The rate that validation has chosen."""
    rows = runs.find(arm=arm, stage="rate")
    return float(max(rows, key=lambda row: row["validation"])["rate"])


def run_rate(pairs: se.Pairs, arm: str, stage: str, rate: float) -> Row:
    """The mean ROC-AUC of validation pairs with this rate."""
    validation = pairs.split("validation")
    found = train_and_test(pairs, arm, RATED, 0, rate, "validation")
    names = np.array(validation["domain"].to_pylist())
    tests = {name: of_domain(validation, name).pairs for name in OF_DOMAINS}
    value = float(mean_auc(tests, [in_domains(found, names)]).values[0])
    return {"validation": round(value, 4), "seconds": found["seconds"]}


def run_seed(runs: RunFile, pairs: se.Pairs, arm: str, size: int, seed: int) -> Row:
    """Train and test one model at its arm's rate."""
    return train_and_test(pairs, arm, size, seed, choose_rate(runs, arm))


def tables(runs: RunFile, tests: Mapping[str, Test], names: Any, seeds: int) -> Iterator[str]:
    """Markdown for each size: the figures of the arms, and their differences."""
    pairs = {name: each.pairs for name, each in tests.items()}
    base = [in_domains(row, names) for row in runs.find(arm=UNTRAINED)]
    for size in SIZES:
        rows = {
            arm: [in_domains(row, names) for row in runs.find(arm=arm, size=size)[:seeds]] for arm in ARMS
        }
        rows = {
            UNTRAINED: base * max(map(len, rows.values())),
            **{arm: own for arm, own in rows.items() if own},
        }
        means = {arm: mean_auc(pairs, own) for arm, own in rows.items() if own}
        lines = [
            [arm, str(1 if arm == UNTRAINED else len(rows[arm])), with_interval(mean),
             *by_route(pairs, rows[arm]), f"{np.mean([row.get('seconds', 0) for row in rows[arm]]):.0f}"]
            for arm, mean in means.items()
        ]  # fmt: skip
        told = differences(means, [*COMPARED, *((arm, UNTRAINED) for arm in ARMS)], MARGIN)
        header = ["arm", "seeds", "ROC-AUC, mean", *pairs, "CPU seconds"]
        yield f"## {size:,} pairs of each domain\n\n{table(header, lines)}\n\n{difference_table(told)}"


def report(runs: RunFile, pairs: se.Pairs, seeds: int) -> None:
    """Write the tables of what is finished."""
    test = pairs.split("test")
    names = np.array(test["domain"].to_pylist())
    tests = {name: of_domain(test, name) for name in OF_DOMAINS}
    rates = "; ".join(
        f"{arm}: "
        + ", ".join(f"{row['rate']:g}: {row['validation']:.3f}" for row in runs.find(arm=arm, stage="rate"))
        for arm in ARMS
    )
    text = (
        "# Does a domain with few pairs need an expert?\n\n"
        f"`python benchmarks/{NAME}.py --out FOLDER`, which says what is compared and was fixed beforehand. "
        f"MiniLM, all six blocks. {' and '.join(OF_DOMAINS)}, titles of works cited together, {len(test):,} "
        "test pairs. 95% intervals over works, articles and seeds; differences are paired by seed.\n\n"
        f"ROC-AUC on validation pairs by rate: {rates}."
    )
    parts = [text, *tables(runs, tests, names, seeds), blind_table(tests)]
    write_study({}, runs, "\n\n".join(parts))


def main() -> None:
    """Train and test what is missing, and write the results."""
    given = arguments(__doc__)
    pairs = compiled(given.out, "few-pairs", max(SIZES), TEST_PAIRS)
    runs = RunFile(given.out, NAME, {**SETTINGS, "pairs": pairs.fingerprint()})
    if not given.report:
        runs.make(
            [{"arm": UNTRAINED, "seed": 0}],
            lambda arm, seed: {"cosines": domain_cosines(se.load(BASE), pairs.split("test"))},
        )
        rated = [
            {"arm": arm, "stage": "rate", "rate": rate} for arm, (_, own) in ARMS.items() for rate in own
        ]
        runs.make(rated, partial(run_rate, pairs))
        wanted = [
            {"arm": arm, "size": size, "seed": seed}
            for size in SIZES
            for seed in range(given.seeds)
            for arm in ARMS
        ]
        runs.make(wanted, partial(run_seed, runs, pairs))
    report(runs, pairs, given.seeds)


if __name__ == "__main__":
    main()
