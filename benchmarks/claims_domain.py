"""Two claims of the domain experts' authors: one layer of experts is enough, and tokens choose better.

    nice python benchmarks/claims_domain.py --out FOLDER [--parts domains conflict] [--seeds 3]

The README of the authors' code says, without figures, that a single layer of experts "gets 85% of the full
MoE extension on average" (theirs is the middle one of the blocks), and that "token-wise routing is better
than sentence-wise routing in general, even for sentence-wise tasks". Here with all six blocks of MiniLM.

`domains`: two domains of works cited together, as in `fair_domains.md`, with 48 updates for each expert. The
criterion is one, so that a model without experts gains too. `conflict`: eLife abstracts by subject and by
organism, as in `md`, behind route tokens. A model without experts tells the routes by the token
alone and gains next to nothing, so that the gain is what the experts bring.

Fixed before the first run. Claim 1: the primary figure is, in `conflict`, the ROC-AUC of one block of experts
minus the value at 85% of the way from no experts to experts in every block; the claim fails if the interval
lies below 0. Second, the same in `domains`, where the way begins at the untrained base, with no experts
beside it as a control: what also holds for no experts says nothing of experts. Claim 2: the primary figure
is, in `domains`, tokens by a router minus an expert per domain, as the authors' paper trains; second, minus
texts by a router. Both routers learn from the pairs alone; with two experts, and the two best for each token,
a token meets both, weighted. Margin 0.01.

Budget: 85 CPU seconds a run of `domains`, 95 of `conflict`: 36 CPU minutes with 3 seeds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

import sentence_experts as se
from measuring import BASE, CROPS, DATA, ELIFE, table
from real_conflict import ROUTES, Article, articles, sides_of_rectangles
from sentence_experts.evaluation.estimates import Estimate, Runs, ScoredPairs, estimate
from sentence_experts.pairs.dataset import LINKED_BY
from sentence_experts.pairs.pair_tables import PAIR_COLUMNS
from sentence_experts.recipes import RECIPES
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
    packed,
    with_interval,
    with_sign,
    write_study,
)
from study_models import Batch, cosines, train_steps

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DOMAINS, CONFLICT = "domains", "conflict"
NAME, MARGIN = "claims_domain", 0.01
OF_DOMAINS = ("crops", "neuroscience")
UPDATES, DOMAIN_BATCH = 48, 16  # updates of an expert, and pairs in each
TRAINING: dict[str, Any] = {
    "max_steps": UPDATES * len(OF_DOMAINS), "batch_size": DOMAIN_BATCH, "learning_rate": 5e-5,
    "max_length": 32,
}  # fmt: skip
MIDDLE = 3  # the middle one of six blocks, as the authors' code chooses it
CLAIMED = 0.85
STEPS, BATCH, MAX_LENGTH, RATE = 60, 12, 64, 1e-4  # of `conflict`
TEST_SHARE, TEST_PAIRS = 0.35, 200
UNTRAINED, FINE = "all-MiniLM-L6-v2", 100_000
SHARES = np.linspace(-3, 5, 801)

NONE, EVERY, ONE = "no experts", "experts in every block", "experts in one block"
TOKENS, TEXTS = "each token by a router", "each text by a router"
EXTEND: dict[str, dict[str, Any]] = {
    NONE: {"layers": "none"},
    EVERY: {},
    ONE: {"layers": str(MIDDLE)},
    TOKENS: {"route": "none", "router": "token"},
    TEXTS: {"route": "none", "router": "learned"},
}
ARMS = {DOMAINS: (*EXTEND,), CONFLICT: (NONE, EVERY, ONE)}
SECOND_CLAIM = [(TOKENS, EVERY), (TOKENS, TEXTS)]
SETTINGS = {
    "training": TRAINING, "middle": MIDDLE, "claimed": CLAIMED, "margin": MARGIN,
    "conflict": [STEPS, BATCH, MAX_LENGTH, RATE],
}  # fmt: skip


@dataclass(frozen=True)
class Conflict:
    """Articles for training and test; pairs of test articles (their numbers) and the route they agree in."""

    train: Sequence[Article]
    test: Sequence[Article]
    pairs: Sequence[tuple[int, int, str]]

    @classmethod
    def of(cls, found: Sequence[Article]) -> Conflict:
        """Split by article; the test pairs of a text agree in one route as often as in the other."""
        random = np.random.default_rng(0)
        order = random.permutation(len(found)).tolist()
        cut = round(len(order) * TEST_SHARE)
        test, train = [found[n] for n in order[:cut]], [found[n] for n in order[cut:]]
        alike: dict[str, list[set[int]]] = {route: [set() for _ in test] for route in ROUTES}
        for other, one in combinations(range(len(test)), 2):
            agree = [route for route in ROUTES if {*test[one].labels(route)} & {*test[other].labels(route)}]
            if len(agree) == 1:
                alike[agree[0]][one].add(other)
                alike[agree[0]][other].add(one)
        return cls(train, test, sides_of_rectangles(alike, TEST_PAIRS, random))

    def by_route(self) -> dict[str, Test]:
        """Route -> all test pairs with the labels of that route."""
        ends = [[str(pair[side]) for pair in self.pairs] for side in (0, 1)]
        first = [self.test[one].text for one, _, _ in self.pairs]
        second = [self.test[other].text for _, other, _ in self.pairs]
        found = {}
        for route in ROUTES:
            labels = np.array([int(pair[2] == route) for pair in self.pairs])
            found[route] = Test(first, second, ScoredPairs(np.zeros(len(labels)), labels, *ends))
        return found

    def score(self, model: SentenceTransformer, prompt: str) -> np.ndarray[Any, Any]:
        """Cosines of the test pairs under one route."""
        test = self.by_route()[ROUTES[0]]
        return cosines(model, test.first, test.second, prompt, MAX_LENGTH)

    def batches(self, seed: int, prompts: Mapping[str, str]) -> Iterator[Batch]:
        """Batches of one route, the routes in turn; labels evenly, and none is a negative of itself."""
        random = np.random.default_rng(seed)
        of_label: dict[str, dict[str, list[str]]] = {route: {} for route in ROUTES}
        for one in self.train:
            for route in ROUTES:
                for label in one.labels(route):
                    of_label[route].setdefault(label, []).append(one.text)
        for step in range(STEPS):
            route = ROUTES[step % len(ROUTES)]
            known = sorted(label for label, own in of_label[route].items() if len(own) > 1)
            labels = random.choice(len(known), BATCH).tolist()
            couples = [random.choice(of_label[route][known[n]], 2, replace=False).tolist() for n in labels]
            first, second = ([prompts[route] + couple[side] for couple in couples] for side in (0, 1))
            yield Batch(first, second, labels)


def compiled(
    out: Path, folder: str = "domain-pairs", most_train: int = 800, most_test: int = 200
) -> se.Pairs:
    """Pairs of the domains, with negatives whose texts are both in linked pairs too."""
    corpus = se.import_corpus([DATA / ELIFE, DATA / CROPS], out=out / "articles")
    rules = yaml.safe_load((RECIPES / "material" / "real_domains.yaml").read_text(encoding="utf-8"))
    rules["domains"] = {name: rules["domains"][name] for name in OF_DOMAINS}
    settings: dict[str, Any] = {"unit": "title", "split": "article", "fractions": [0.6, 0.08, 0.32]}
    settings |= {"max_train_per_domain": most_train, "max_eval_per_domain": most_test, "negatives": "matched"}
    pairs: se.Pairs = se.compile_pairs(corpus, out=out / folder, domains=rules, engine="local[1]", **settings)
    return pairs


def drawn(pairs: se.Pairs, seed: int, number: int = UPDATES * DOMAIN_BATCH) -> se.Pairs:
    """Draw so many pairs of each domain; linked works are no negatives of each other."""
    whole, rows = pairs.split("train"), []
    for place, domain in enumerate(OF_DOMAINS):
        own = np.flatnonzero(pc.equal(whole["domain"], domain).to_numpy(zero_copy_only=False))
        rows.append(np.random.default_rng([seed, place]).permutation(own)[:number])
    train = whole.select(PAIR_COLUMNS).take(pa.array(np.concatenate(rows)))
    works = pa.chunked_array([*train["anchor_id"].chunks, *train["positive_id"].chunks], pa.string()).unique()
    links = pairs.known_links()
    among = pc.and_(*(pc.is_in(links[end], value_set=works) for end in ("left_id", "right_id")))
    splits = {"train": train, "validation": train.slice(0, 0), "test": train.slice(0, 0)}
    return se.Pairs.in_memory(splits, links.filter(among), {})


def domain_cosines(model: SentenceTransformer, test: pa.Table) -> list[int]:
    """Cosines of the test pairs behind the prompts of their domains, in units of 1 / `FINE`."""
    found = np.zeros(len(test))
    for domain in OF_DOMAINS:
        own = np.flatnonzero(pc.equal(test["domain"], domain).to_numpy(zero_copy_only=False))
        first, second = (test[end].take(pa.array(own)).to_pylist() for end in ("anchor", "positive"))
        found[own] = cosines(model, first, second, model.prompts.get(domain))
    return [int(each) for each in np.rint(found * FINE)]


def run_domains(pairs: se.Pairs, arm: str, seed: int) -> Row:
    """Train and test one model; experts of domains have batches of one domain, and so has the dense model."""
    if arm == UNTRAINED:
        return {"cosines": domain_cosines(se.load(BASE), pairs.split("test"))}
    model: Any = se.extend(BASE, list(OF_DOMAINS), seed=seed, **EXTEND[arm])
    batches: Any = "mixed" if arm in (TOKENS, TEXTS) else "homogeneous"
    se.train(model, drawn(pairs, seed), **TRAINING, keep="last", seed=seed, batches=batches)
    return {"cosines": domain_cosines(model, pairs.split("test"))}


def of_domain(test: pa.Table, domain: str) -> Test:
    """The test pairs of a domain, those of one article as related."""
    own = test.filter(pc.equal(test["domain"], domain))
    columns = [own[name].to_pylist() for name in ("anchor_id", "positive_id", LINKED_BY)]
    pairs = ScoredPairs(np.zeros(len(own)), own["label"].to_numpy(), *columns)
    return Test(own["anchor"].to_pylist(), own["positive"].to_pylist(), pairs)


def in_domains(row: Row, domains: np.ndarray[Any, Any]) -> Row:
    """A row with `scores` by the domain of each test pair."""
    scores = np.array(row["cosines"])
    return {**row, "scores": {name: scores[domains == name] for name in OF_DOMAINS}}


def run_conflict(data: Conflict, arm: str, seed: int) -> Row:
    """Train and test one model; its cosines under both routes."""
    model = se.extend(se.load(BASE, device="cpu"), list(ROUTES), seed=seed, **EXTEND[arm])
    prompts = {route: model.prompts[route] or "" for route in ROUTES}
    batches = data.batches(seed, prompts)
    train_steps(model, batches, RATE, seed, max_length=MAX_LENGTH)
    return {"scores": packed({route: data.score(model, prompt) for route, prompt in prompts.items()})}


def run(pairs: se.Pairs, conflict: Conflict, data: str, arm: str, seed: int) -> Row:
    """Train and test one model on either data."""
    started = time.process_time()
    found = run_domains(pairs, arm, seed) if data == DOMAINS else run_conflict(conflict, arm, seed)
    return {**found, "seconds": round(time.process_time() - started, 1)}


def way(none: Runs, every: Runs, one: Runs, share: float) -> Estimate | None:
    """One block of experts minus the value at a share of the way from none to every block, by seed."""
    weighted = [(one, 1.0), (every, -share), (none, share - 1.0)]
    seeds = min(len(runs.values) for runs, _ in weighted)
    influence = sum(weight * runs.averaged[:seeds] for runs, weight in weighted)
    values = sum(weight * runs.values[:seeds] for runs, weight in weighted)
    return estimate(Runs(values, influence, influence, one.sharing))  # type: ignore[arg-type]


def share_of_way(none: Runs, every: Runs, one: Runs) -> str:
    """The share of the way that one block goes, with all shares that the intervals leave open (Fieller)."""
    seeds = min(len(none.values), len(every.values), len(one.values))
    start, end, reached = (float(runs.values[:seeds].mean()) for runs in (none, every, one))
    told = f"{(reached - start) / (end - start):.0%}" if end > start else "–"
    left = []
    for share in SHARES:
        if (found := way(none, every, one, float(share))) is not None:
            interval = found.interval()
            left += [share] if interval.low <= 0 <= interval.high else []
    if not left or left[0] == SHARES[0] or left[-1] == SHARES[-1]:
        return f"{told} (any share is possible)"
    return f"{told} ({left[0]:.0%} to {left[-1]:.0%})"


def first_claim(arms: Mapping[str, Mapping[str, Runs]]) -> tuple[str, str]:
    """Markdown: the shares of the way; and what became of the claim."""
    rows, verdict = [], "not run"
    for data, start, what in ((CONFLICT, NONE, ONE), (DOMAINS, UNTRAINED, ONE), (DOMAINS, UNTRAINED, NONE)):
        own = arms.get(data, {})
        if not {start, EVERY, what} <= set(own):
            continue
        several = own[start], own[EVERY], own[what]
        if (found := way(*several, CLAIMED)) is None:
            continue
        interval = found.interval()
        said = "below 85%" if interval.high < 0 else "above 85%" if interval.low > 0 else "not told apart"
        if data == CONFLICT:
            verdict = f"{what}: {with_sign(found)} from 85% of the way, {said}; {share_of_way(*several)}"
        rows.append([data, start, what, share_of_way(*several), with_sign(found), said])
    header = ["data", "the way begins at", "arm", "share (95%)", "ROC-AUC minus 85% of the way", ""]
    return table(header, rows), verdict


def arms_table(arms: Mapping[str, Runs], rows: Mapping[str, Sequence[Row]], test: Mapping[str, Any]) -> str:
    """Markdown: the ROC-AUC of each arm."""
    lines = [
        [arm, str(len(rows[arm])), with_interval(runs), *by_route(test, rows[arm]),
         f"{np.mean([row['seconds'] for row in rows[arm]]):.0f}"]
        for arm, runs in arms.items()
    ]  # fmt: skip
    return table(["arm", "seeds", "ROC-AUC, mean", *test, "CPU seconds"], lines)


def report(runs: RunFile, pairs: se.Pairs, conflict: Conflict, seeds: int) -> None:
    """Write the tables of what is finished."""
    test = pairs.split("test")
    names = np.array(test["domain"].to_pylist())
    texts = {DOMAINS: {name: of_domain(test, name) for name in OF_DOMAINS}, CONFLICT: conflict.by_route()}
    tests = {data: {name: each.pairs for name, each in own.items()} for data, own in texts.items()}
    found: dict[str, dict[str, list[Row]]] = {DOMAINS: {}, CONFLICT: {}}
    for data, arms in ARMS.items():
        for arm in arms:
            if own := runs.find(data=data, arm=arm)[:seeds]:
                found[data][arm] = [in_domains(row, names) for row in own] if data == DOMAINS else own
    most = max((len(own) for own in found[DOMAINS].values()), default=1)
    base = [in_domains(row, names) for row in runs.find(arm=UNTRAINED)]
    means = {data: {arm: mean_auc(tests[data], own) for arm, own in found[data].items()} for data in found}
    means[DOMAINS] = {UNTRAINED: mean_auc(tests[DOMAINS], base * most), **means[DOMAINS]}
    found[DOMAINS] = {UNTRAINED: base, **found[DOMAINS]}
    shares, first = first_claim(means)
    told = differences(means[DOMAINS], SECOND_CLAIM, MARGIN)
    second = (
        f"{told[0].first} minus {told[0].second}: {told[0].verdict}, {told[0].told()}" if told else "not run"
    )
    steps, length = TRAINING["max_steps"], TRAINING["max_length"]
    text = (
        "# One layer of experts, and routing by token: two claims of the domain experts' authors\n\n"
        f"`python benchmarks/{runs.name}.py --out FOLDER`; the primary figures were fixed in its code. "
        f"MiniLM, all six blocks. {DOMAINS}: {' and '.join(OF_DOMAINS)}, titles of works cited together, "
        f"{steps} steps of {DOMAIN_BATCH} pairs, {length} tokens, {len(test):,} test pairs. "
        f"{CONFLICT}: abstracts of eLife by subject and by organism, {STEPS} steps of "
        f"{BATCH} pairs, {MAX_LENGTH} tokens, {len(conflict.pairs):,} test "
        f"pairs. Experts in one block: in block {MIDDLE} of 0 to 5. 95% intervals over works, articles and "
        "seeds; differences are paired by seed.\n\n"
        f"**One layer gets 85% of the gain** ({CONFLICT}): {first}.\n\n"
        f"**Routing by token beats routing by text** ({DOMAINS}): {second}."
    )
    parts = [text, shares, difference_table(told)]
    for data in found:
        parts += [f"{data}:", arms_table(means[data], found[data], tests[data]), blind_table(texts[data])]
    write_study({"first": first, "second": second}, runs, "\n\n".join(parts))


def main() -> None:
    """Train and test what is missing, and write the results."""
    given = arguments(__doc__, parts=(DOMAINS, CONFLICT))
    out: Path = given.out
    pairs = compiled(out)
    conflict = Conflict.of(articles(out))
    runs = RunFile(out, NAME, {**SETTINGS, "pairs": pairs.fingerprint()})
    runs.make([{"arm": UNTRAINED, "seed": 0}], lambda arm, seed: run_domains(pairs, arm, seed))
    wanted = [
        {"data": data, "arm": arm, "seed": seed}
        for seed in range(given.seeds)
        for data in given.parts
        for arm in ARMS[data]
    ]
    runs.make(() if given.report else wanted, partial(run, pairs, conflict))
    report(runs, pairs, conflict, given.seeds)


if __name__ == "__main__":
    main()
