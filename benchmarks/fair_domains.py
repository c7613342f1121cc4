"""Do domain experts pay with matched negatives, and when an expert gets as many updates as a dense model?

    python benchmarks/fair_domains.py --out FOLDER [--parts main router routing few seven long seven_long]

The first study (results/domain_experts_main.md) had negatives that "times cited" tells from the positives,
and gave an expert 15 updates where the dense model had 105. Here both ends of a negative are ends of
positives, and each expert has as many updates as a dense model of its domain alone would need. Real articles
of eLife and of PMC on crops, titles of works cited together, split by citing article; the model of the last
step. Every arm sees the same pairs in as many steps, dense models and fixed experts behind the same domain
tokens. Fixed experts have batches of one domain, the others mixed ones.

`few`: one domain has 50, 200 or 800 pairs. Is it served better by its expert, or by the shared model? With
those of `main`, which has 384, these are four sizes. `seven`: all domains of the first study, on their own.
`long`: two domains, and 105 updates for each expert, as many as the dense model of the first study had.
`seven_long`, added after the results of the others: seven domains with as many.
`long_equal`: in `long`, a dense model with batches of one domain too, as the experts have them; added when it
was seen that only the experts had had such batches. `seven_large`: seven domains with 105 updates and four
times the test pairs, since these and not the seeds limited what could be shown, and both dense models; added
after all others.
`routing`, added when the learned router had turned out worse than the base: the same trained on its own
choices in place of the domains, and with batches of one domain.

Budget: 0.75 CPU seconds per step, 6 per test: 7 CPU minutes for dense and experts with 5 seeds, 4 for the
learned router and 8 for its variants, 20 for few pairs, 13 for seven domains, 25 for
`long`, 90 for `seven_long`. `main` has two domains, so that this fits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

import sentence_experts as se
from measuring import BASE, CROPS, DATA, ELIFE, table
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from sentence_experts.recipes import RECIPES
from study import (
    Difference,
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
    with_sign,
    write_study,
)
from study_models import UNTRAINED, Citing, cosines_of_pairs, in_domains, measure_untrained, pairs_of

RULES = RECIPES / "material" / "real_domains.yaml"
DOMAINS = tuple(yaml.safe_load(RULES.read_text(encoding="utf-8"))["domains"])
# All fixed before the first result of each part.
BATCH, MAX_TRAINING_PAIRS = 16, 800
FEW, SMALL = (50, 200, 800), "crops"
MARGIN = 0.01
PRIMARY = "ROC-AUC, mean of the domains, an expert per domain minus "

DENSE, EXPERTS, ROUTER = "dense", "an expert per domain", "learned router"
DENSE_ONE_DOMAIN = f"{DENSE}, batches of one domain"
OWN_CHOICE, ONE_DOMAIN = f"{ROUTER}, by its own choice", f"{ROUTER}, batches of one domain"
LEARNED = {"route": "none", "router": "learned"}
# Settings of `extend`, and of `train`. While it is trained, a text meets its domain's expert, or in
# `OWN_CHOICE` that which the router chooses.
ARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    DENSE: ({"layers": "none"}, {"batches": "mixed"}),
    DENSE_ONE_DOMAIN: ({"layers": "none"}, {"batches": "homogeneous"}),
    EXPERTS: ({}, {"batches": "homogeneous"}),
    ROUTER: (LEARNED, {"batches": "mixed", "route_by": "domain"}),
    OWN_CHOICE: (LEARNED, {"batches": "mixed", "route_by": "router"}),
    ONE_DOMAIN: (LEARNED, {"batches": "homogeneous", "route_by": "domain"}),
}
# Planned; added after the first results; added last: each is a family of tests.
FAMILIES = (
    [(EXPERTS, DENSE), (ROUTER, DENSE), (EXPERTS, ROUTER)],
    [(OWN_CHOICE, DENSE), (ONE_DOMAIN, DENSE)],
    [(EXPERTS, DENSE_ONE_DOMAIN), (DENSE_ONE_DOMAIN, DENSE)],
)
Arms = dict[str, list[Row]]


@dataclass(frozen=True)
class Study:
    """Domains, the updates of each expert (the dense model has as many as all experts together), the
    positive test pairs of a domain, and the arm that the experts are compared with first.
    """

    name: str
    folder: str
    domains: tuple[str, ...]
    updates: int
    test_pairs: int
    rival: str = DENSE

    @property
    def primary(self) -> str:
        """The primary figure."""
        return f"{PRIMARY}{self.rival}"

    @property
    def training(self) -> dict[str, Any]:
        """Settings of `train`, for every arm."""
        steps = self.updates * len(self.domains)
        return {"max_steps": steps, "batch_size": BATCH, "learning_rate": 5e-5, "max_length": 32}

    def compiled(self, out: Path) -> se.Pairs:
        """Pairs of the domains, with matched negatives."""
        corpus = se.import_corpus([DATA / ELIFE, DATA / CROPS], out=out / "articles")
        rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
        rules["domains"] = {name: rules["domains"][name] for name in self.domains}
        settings: dict[str, Any] = {"unit": "title", "split": "article", "fractions": [0.6, 0.08, 0.32]}
        settings |= {"max_train_per_domain": MAX_TRAINING_PAIRS, "max_eval_per_domain": self.test_pairs}
        return se.compile_pairs(
            corpus, out=out / self.folder, domains=rules, engine="local[1]", negatives="matched", **settings
        )

    def drawn(self, pairs: se.Pairs, seed: int, small: int | None) -> se.Pairs:
        """`updates` batches of pairs of each domain, but `small` pairs of the small one, by seed."""
        table = pairs.split("train")
        rows = []
        for number, domain in enumerate(self.domains):
            own = np.flatnonzero(pc.equal(table["domain"], domain).to_numpy(zero_copy_only=False))
            size = small if small and domain == SMALL else self.updates * BATCH
            rows.append(np.random.default_rng([seed, number]).permutation(own)[:size])
        return pairs_of(table.take(pa.array(np.concatenate(rows))), pairs.known_links())


TWO = Study("fair_domains", "domain-pairs", ("crops", "neuroscience"), updates=24, test_pairs=200)
SEVEN = Study("fair_domains_seven", "seven-pairs", DOMAINS, updates=12, test_pairs=100)
LONG = replace(TWO, name="fair_domains_long", updates=105)
SEVEN_LONG = replace(SEVEN, name="fair_domains_seven_long", updates=LONG.updates)
SEVEN_LARGE = replace(
    SEVEN_LONG,
    name="fair_domains_seven_large",
    folder="seven-large-pairs",
    test_pairs=400,
    rival=DENSE_ONE_DOMAIN,
)


def small_rows(test: pa.Table) -> np.ndarray:
    """The rows of the small domain."""
    return np.flatnonzero(pc.equal(test["domain"], SMALL).to_numpy(zero_copy_only=False))


def run(study: Study, pairs: se.Pairs, arm: str, seed: int, small: int | None) -> Row:
    """Train and test one model; with few pairs in the small domain, on the test pairs of that domain."""
    started = time.process_time()
    extending, training = ARMS[arm]
    model = se.extend(BASE, list(study.domains), seed=seed, **extending)
    data = study.drawn(pairs, seed, small)
    se.train(model, data, **study.training, keep="last", seed=seed, **training)
    test = pairs.split("test").select(PAIR_COLUMNS)
    found = cosines_of_pairs(model, test.take(pa.array(small_rows(test))) if small else test)
    return {"cosines": found, "seconds": round(time.process_time() - started, 1)}


def finished(
    runs: RunFile, test: pa.Table, seeds: int, small: int | None = None, alone: bool = False
) -> Arms:
    """The arms that have all seeds, on all test pairs or on those of the small domain alone."""
    rows = small_rows(test) if alone else None
    domains = np.array(test["domain"].to_pylist())
    own = {arm: runs.find(arm=arm, small=small)[:seeds] for arm in ARMS}
    own = {UNTRAINED: runs.find(arm=UNTRAINED)[:1] * seeds} | own
    return {
        arm: [in_domains(row, domains, rows) for row in found]
        for arm, found in own.items()
        if len(found) == seeds
    }


def main_tables(arms: Arms, tests: Mapping[str, Test]) -> tuple[str, str, list[Difference]]:
    """Markdown: the arms, and their differences; and the differences."""
    pairs = {name: test.pairs for name, test in tests.items()}
    means = {arm: mean_auc(pairs, rows) for arm, rows in arms.items()}
    told = [one for family in FAMILIES for one in differences(means, family, MARGIN)]
    gains = differences(means, [(arm, UNTRAINED) for arm in arms if arm != UNTRAINED], MARGIN)
    gained = {one.first: with_sign(one.estimate) for one in gains}
    rows = [
        [arm, with_interval(means[arm]), gained.get(arm, ""), *by_route(pairs, own)]
        for arm, own in arms.items()
    ]
    header = ["", "ROC-AUC, mean of domains", "minus untrained", *tests]
    return table(header, rows), difference_table(told), told


def few_table(study: Study, runs: RunFile, test: pa.Table, seeds: int) -> str:
    """Markdown: the small domain by its number of training pairs; the most are those of `main`."""
    pairs = {SMALL: Test.of(by_domain(test)[SMALL]).pairs}
    rows = []
    for small in sorted((*FEW, None), key=lambda size: size or study.updates * BATCH):
        found = finished(runs, test, seeds, small, alone=True)
        means = {arm: mean_auc(pairs, own) for arm, own in found.items()}
        for one in differences(means, [(EXPERTS, DENSE)], MARGIN):
            size = str(small or study.updates * BATCH)
            rows.append([size, *(with_interval(means[arm]) for arm in (DENSE, EXPERTS)), one.told()])
    return table([f"ROC-AUC of {SMALL}, pairs", "dense", "an expert", "expert - dense"], rows)


def by_domain(test: pa.Table) -> dict[str, pa.Table]:
    """Domain -> its test pairs."""
    names = sorted(test["domain"].unique().to_pylist())
    return {name: test.filter(pc.equal(test["domain"], name)) for name in names}


def report(study: Study, runs: RunFile, pairs: se.Pairs, seeds: int, citing: Citing) -> None:
    """Write the study's page and its figures."""
    test = pairs.split("test")  # with the articles behind each pair, by which intervals cluster
    tests = {name: Test.of(own) for name, own in by_domain(test).items()}
    arms, differing, told = main_tables(finished(runs, test, seeds), tests)
    primary = [one for one in told if (one.first, one.second) == (EXPERTS, study.rival)]
    said = f"{study.primary}: {primary[0].verdict}, {primary[0].told()}" if primary else "not run"
    part = next((f" --parts {part}" for part, one in STUDIES.items() if one is study), "")
    text = (
        "# Do domain experts pay, with matched negatives and as many updates?\n\n"
        f"Primary figure: {study.primary}; margin {MARGIN}. "
        f"`python benchmarks/fair_domains.py --out FOLDER{part}`, {len(study.domains)} domains.\n\n"
        f"{seeds} seeds, {study.training['max_steps']} steps of {BATCH} pairs, {study.updates} for each "
        f"expert; {len(test):,} test pairs, split by citing article. 95% intervals over works, articles and "
        f"seeds; differences are paired by seed.\n\n**Verdict**: {said}."
    )
    few = [few_table(study, runs, test, seeds)] if study is TWO else []
    parts = [text, arms, differing, *few, blind_table(tests, citing.works())]
    write_study({"verdict": said}, runs, "\n\n".join(parts))


# Training pairs of the small domain (None: as of the others), and the arms.
PARTS: dict[str, list[tuple[int | None, tuple[str, ...]]]] = {
    "main": [(None, (DENSE, EXPERTS))],
    "router": [(None, (ROUTER,))],
    "routing": [(None, (OWN_CHOICE, ONE_DOMAIN))],
    "few": [(small, (DENSE, EXPERTS)) for small in FEW],
    "seven": [(None, (DENSE, EXPERTS))],
    "long": [(None, (DENSE, EXPERTS))],
    "seven_long": [(None, (DENSE, EXPERTS))],
    "long_equal": [(None, (DENSE_ONE_DOMAIN,))],
    "seven_large": [(None, (DENSE_ONE_DOMAIN, EXPERTS, DENSE))],
}
STUDIES = {
    "seven": SEVEN,
    "long": LONG,
    "seven_long": SEVEN_LONG,
    "long_equal": LONG,
    "seven_large": SEVEN_LARGE,
}  # of all other parts: TWO


def main() -> None:
    """Train and test what is missing, and write the results."""
    given = arguments(__doc__, parts=tuple(PARTS))
    for study in dict.fromkeys((TWO, *STUDIES.values())):
        parts = [part for part in given.parts if STUDIES.get(part, TWO) is study]
        if not parts:
            continue
        pairs = study.compiled(given.out)
        settings = {"training": study.training, "primary": study.primary, "margin": MARGIN}
        runs = RunFile(given.out, study.name, {**settings, "pairs": pairs.fingerprint()})
        measure_untrained(runs, pairs.split("test").select(PAIR_COLUMNS))
        # Seed by seed, so that arms that are compared have as many runs wherever the study stops.
        wanted: list[Row] = [
            {"arm": arm, "seed": seed, "small": small}
            for part in parts
            for small, arms in PARTS[part]
            for seed in range(given.seeds)
            for arm in arms
        ]
        runs.make(() if given.report else wanted, partial(run, study, pairs))
        report(study, runs, pairs, given.seeds, Citing(se.CorpusFolder.open(given.out / "articles")))


if __name__ == "__main__":
    main()
