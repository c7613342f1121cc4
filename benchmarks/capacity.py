"""How much of a model does a kind of similarity need: a linear map, an adapter, an expert, or a whole model?

    python benchmarks/capacity.py --work FOLDER --plan      # all runs, and their estimated seconds
    python benchmarks/capacity.py --work FOLDER [--only debian4 ...] [--shard 1/4] [--device cuda]
    python benchmarks/capacity.py --work FOLDER --report

All six blocks of all-MiniLM-L6-v2, nine sets of texts (`capacity_data.py`), an arm for each way in which a
route can own a part of the model. Each finished run is a line of results/capacity.jsonl and is not made
again; runs of several processes with different `--shard`, or of several machines, add up.

Fixed before the first run: the primary figure is nDCG@10 of "more like this" on texts that training has not
seen, the mean over the routes of a set; differences within 0.01 count as equal. The second is the ROC-AUC
of pairs that two routes judge in opposite ways, where a model blind to the route has a mean of exactly 0.5.
Arms are paired by seed; each question is one family of tests (Holm), and the questions stand in
`capacity_report.py`. Texts that share a label of a route are no negatives of each other under it. A rate is
the best of four on validation texts (of five for adapters, since in the first set the highest of four was
best), after a quarter of the steps at seed 0; arms and sets that are like others take theirs (`LIKE`).
Validation also chooses the step, no training at all among them. Heads are trained as `fit` trains them, 500
steps of 64 pairs, but at four rates. Costs are the processor seconds of training, the trained weights, and
for a text under all routes the milliseconds and bytes.

To stay near 7 hours of one core (0.5 s for a step of 16 pairs with 32 tokens in bfloat16), this is less than
was wished for: five seeds of linear maps and of three arms with trained blocks on three sets (`FIRST`), three
seeds of all other arms on the set with the shortest texts and of experts on three more sets (`TRAINED_ON`),
linear maps alone for four and eight places in a text and for domains; 32 tokens of a package, 48 of an
article; 160 to 600 steps for all routes together. Heads with four times as many (`long`) show what more steps
would give them. With few pairs, the best other arm (by validation, with all pairs) stands beside heads, with
the rate that it has there. Validation texts are not few there: who has so few pairs would have to choose the
step without them.

Training and validation compute in bfloat16, tests in float32. The rate of trained blocks falls to 0: after
400 steps experts of `debian4` were 0.025 better by that on validation texts than at a constant rate, and
still gained, so the steps became 600 (one run each, before all others).

Changes that came later, each with what had been seen:

- After one seed of four arms: these experts were better, on validation texts, than at the higher rate that a
  quarter of the steps had preferred by 0.002. Since then the two best rates, if they are within 0.01, are
  compared after all steps.
- After three seeds of the main arms on three sets: on eLife, where a quarter is 60 steps, all steps had
  preferred a dense model's second rate by 0.034. There all rates within 0.03 are compared after all steps,
  and runs at another rate than the one now chosen were made again.
- After the first seeds of all main arms on real texts: arms on whole texts (256 tokens, in training 128),
  since what a head saves can be spent on reading.
- At first a training also ended after two measurements without a gain; two on eLife did (an adapter and
  experts, seed 2; 88 validation texts), while others gained most in their last third, as the rate fell: these
  two were made again to the end.
- After 161 runs of the first plan of 375: its line was drawn closer. Left out were experts and adapters on
  whole texts of Debian, adapters on those of eLife, trained blocks for four places and for domains
  (`domain_few.py` has them), dense models and adapters on the smaller sets, separate models on Debian,
  trained blocks with four times the steps, and two seeds of all but the main arms. Heads of four times the
  steps were added, since many were kept near their last.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import capacity_overview
import capacity_report
from capacity_data import CONFLICTS, SETS, Folders
from capacity_models import BATCH, Arm
from capacity_runs import TRAINED_TOKENS, Bench
from measuring import RESULTS, table
from study import Row, RunFile

NAME = "capacity"
SEEDS, FEWER_SEEDS = 5, 3
SCREENED = 0.25  # of the steps, by which a rate is chosen
# Of nDCG@10: within how much of the best two rates, or all of them, are compared after all steps.
CLOSE, CLOSE_OF_ALL = 0.01, {"elife": 0.03}
LONG = 4  # times the steps of a head
HEAD_STEPS = 500
FEW, FEW_TRAINED = (10, 30, 100, 300, 1000), (10, 100, 1000)  # pairs per route
FEW_STEPS = 160
WHOLE = 256  # tokens that the base reads

BLOCK_RATES, ADAPTER_RATES = (5e-5, 1e-4, 2e-4, 4e-4), (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
HEAD_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
DENSE = {"route": "prefix", "layers": "none"}
EXPERT = {"route": "prefix", "expert_norms": True}
ARMS = {
    "base": Arm("base"),
    "head": Arm("head", rates=HEAD_RATES),
    "head, rank 64": Arm("head", rates=HEAD_RATES, rank=64),
    "head, rank 16": Arm("head", rates=HEAD_RATES, rank=16),
    "base, whole texts": Arm("base", tokens=WHOLE),
    "head, whole texts": Arm("head", rates=HEAD_RATES, tokens=WHOLE),
    "dense": Arm("blocks", DENSE, BLOCK_RATES),
    "adapter, rank 8": Arm("blocks", {"kind": "adapter", "rank": 8}, ADAPTER_RATES),
    "expert": Arm("blocks", EXPERT, BLOCK_RATES),
    "expert, whole texts": Arm("blocks", EXPERT, BLOCK_RATES, tokens=WHOLE),
    "separate": Arm("separate", None, BLOCK_RATES),
    "head and base": Arm("joint", None, BLOCK_RATES),
    "dense, mixed batches": Arm("blocks", DENSE, BLOCK_RATES, mixed=True),
    "adapter, rank 32": Arm("blocks", {"kind": "adapter", "rank": 32}, ADAPTER_RATES),
    "expert, alternate blocks": Arm("blocks", {**EXPERT, "layers": "alternate"}, BLOCK_RATES),
    "expert, last two blocks": Arm("blocks", {**EXPERT, "layers": "4,5"}, BLOCK_RATES),
}
TRAINED = [arm for arm, own in ARMS.items() if own.kind not in ("base", "head")]
UNTRAINED = [arm for arm, own in ARMS.items() if arm not in TRAINED and not own.tokens]
BEST = "best trained"  # by validation
MOST = "wordnet"  # the set with all arms: its texts are the shortest
CORE = ["dense", "adapter, rank 8", "expert"]
TRAINED_ON = {
    "debian4": CORE,
    MOST: [arm for arm in TRAINED if not ARMS[arm].tokens],
    "elife": [*CORE, "expert, whole texts"],
    "elife masked": ["expert"],
    "debian2": ["expert"],
    "banking2": ["expert"],
}
FIRST = ("debian4", MOST, "elife")  # sets with all seeds of linear maps and `CORE`
LONGER = ("debian4", "elife")  # whose texts are cut for all arms but those of `WHOLE`
# Sets and arms that take the rates of others, which are like them.
LIKE = {
    "debian2": "debian4",
    "elife masked": "elife",
    "dense, mixed batches": "dense",
    "adapter, rank 32": "adapter, rank 8",
    "expert, alternate blocks": "expert",
    "expert, last two blocks": "expert",
    "separate": "expert",
    "expert, whole texts": "expert",
}
SETTINGS = {
    "batch": BATCH, "conflicts": CONFLICTS, "few_steps": FEW_STEPS, "head_steps": HEAD_STEPS,
    "screened": SCREENED, "tokens": {name: each.tokens for name, each in SETS.items()},
    "steps": {name: each.steps for name, each in SETS.items()},
}  # fmt: skip
# Seconds of one core: a token that is trained on, one that is encoded, a head of one route.
TRAINED_TOKEN, ENCODED_TOKEN, HEAD_SECONDS = 0.55e-3, 0.15e-3, 10.0


# ---- plan ----------------------------------------------------------------------------------------


def plan() -> Iterator[Row]:
    """The keys of all runs, in the order in which they are made; a stage is rate, seed, few or long.

    The rate of a run is that which `rate` runs have chosen; the arm of `few` is known when all arms are
    there.
    """
    for seed in range(SEEDS):
        for name in SETS:
            for arm in UNTRAINED if seed == 0 else UNTRAINED[1:]:
                if seed < seeds_of(name, arm):
                    yield {"data": name, "arm": arm, "stage": "seed", "seed": seed}
        for name in LONGER:
            for arm in ("base", "head") if seed == 0 else ("head",):
                yield {"data": name, "arm": f"{arm}, whole texts", "stage": "seed", "seed": seed}
        for name, arms in TRAINED_ON.items():
            for arm in arms:
                if seed < seeds_of(name, arm):
                    yield from _rates(name, arm, seed)
                    yield {"data": name, "arm": arm, "stage": "seed", "seed": seed}
        for pairs in FEW:
            yield {"data": MOST, "arm": "head", "pairs": pairs, "stage": "few", "seed": seed}
    for seed in range(FEWER_SEEDS):
        for pairs in FEW_TRAINED:
            yield {"data": MOST, "arm": BEST, "pairs": pairs, "stage": "few", "seed": seed}
    for name in FIRST:
        yield {"data": name, "arm": "head", "stage": "long", "seed": 0}


def seeds_of(name: str, arm: str) -> int:
    """The number of runs of an arm on a set, with all pairs."""
    return SEEDS if name in FIRST and arm in ("head", *CORE) else FEWER_SEEDS


def _rates(name: str, arm: str, seed: int) -> Iterator[Row]:
    if seed == 0 and name not in LIKE and arm not in LIKE:
        for rate in ARMS[arm].rates:
            yield {"data": name, "arm": arm, "stage": "rate", "rate": rate, "seed": 0}


def steps_of(key: Row) -> int:
    """The steps of a run, at most; for a head, those of each route and rate."""
    arm = ARMS.get(key["arm"])
    if arm is not None and arm.kind == "head":
        return HEAD_STEPS * (LONG if key["stage"] == "long" else 1)
    steps = SETS[key["data"]].steps
    sizes = {"rate": round(SCREENED * steps), "few": FEW_STEPS}
    return sizes.get(key["stage"], steps)


def seconds_of(key: Row) -> float:
    """The estimated processor seconds of a run."""
    own, arm = SETS[key["data"]], ARMS.get(key["arm"], ARMS["expert"])
    tokens = min(3 * own.mean_tokens, TRAINED_TOKENS) if arm.tokens else own.mean_tokens
    if arm.kind == "base":
        return ENCODED_TOKEN * tokens * 3000
    if arm.kind == "head":
        return HEAD_SECONDS * own.routes * steps_of(key) / HEAD_STEPS
    training = TRAINED_TOKEN * tokens * 2 * BATCH * steps_of(key)
    once = 1 if arm.kind == "joint" else 0.7 * own.routes  # of the texts, those with a label of the route
    measured = 240 * (1 if key["stage"] == "rate" else 6) + (0 if key["stage"] == "rate" else 600)
    return training + ENCODED_TOKEN * tokens * measured * once


def plan_table() -> str:
    """Markdown: each data set and arm with its runs, their steps and estimated seconds; and each stage."""
    lines: dict[tuple[str, ...], list[float]] = {}
    for key in plan():
        name = f"{key['arm']}, few pairs" if key["stage"] == "few" else key["arm"]
        steps = str(steps_of(key)) if key["arm"] in (*TRAINED, BEST) else "–"
        lines.setdefault((key["data"], name, key["stage"], steps), []).append(seconds_of(key))
    rows = [
        [
            data,
            arm,
            stage,
            steps,
            str(len(own)),
            f"{own[0]:,.0f}",
            f"{sum(own):,.0f}",
        ]
        for (data, arm, stage, steps), own in lines.items()
    ]
    whole = sum(sum(own) for own in lines.values())
    rows.append(["all", "", "", "", str(sum(map(len, lines.values()))), "", f"{whole:,.0f}"])
    header = ["data", "arm", "stage", "steps at most", "runs", "seconds of one", "of all"]
    return f"{table(header, rows)}\n\n{whole / 3600:.1f} hours of one core."


# ---- runs ----------------------------------------------------------------------------------------


def rate_of(runs: RunFile, key: Row) -> float | None:
    """The rate that validation has chosen for an arm on a set, or for what is like them; None until then."""
    data, arm = (str(LIKE.get(key[part], key[part])) for part in ("data", "arm"))
    rows = runs.find(data=data, arm=arm, stage="seed", seed=0)
    return float(rows[0]["rate"]) if rows else None


def close_rates(runs: RunFile, key: Row) -> list[float]:
    """The rate that is best after a quarter of the steps, and those that are about as good; in order."""
    rows = runs.find(data=key["data"], arm=key["arm"], stage="rate")
    if len(rows) < len(ARMS[key["arm"]].rates):
        return []
    rows.sort(key=lambda row: float(row["validation"]), reverse=True)
    wide = CLOSE_OF_ALL.get(key["data"])
    near = [row["rate"] for row in rows if rows[0]["validation"] - row["validation"] <= (wide or CLOSE)]
    return near if wide else near[:2]


def first_run(runs: RunFile, bench: Bench, key: Row) -> Row:
    """The run of seed 0: that of several close rates which is best on validation texts after all steps."""
    found = []
    for rate in close_rates(runs, key):
        whole = {**key, "stage": "whole", "rate": rate}
        if not runs.find(**whole):
            runs.append(
                {**whole, "device": bench.device, **bench.run(ARMS[key["arm"]], whole, rate, steps_of(key))}
            )
        found += runs.find(**whole)
    best = max(found, key=lambda row: float(row["validation"]))
    return {name: value for name, value in best.items() if name not in (*key, "settings", "hardware")}


def best_trained(runs: RunFile) -> str | None:
    """The arm with trained blocks that is best on validation texts of `MOST`; None until all are there."""
    found = {arm: runs.find(data=MOST, arm=arm, stage="seed") for arm in TRAINED_ON[MOST]}
    if any(len(rows) < FEWER_SEEDS for rows in found.values()):
        return None
    return max(found, key=lambda arm: float(np.mean([row["validation"] for row in found[arm]])))


def make_runs(runs: RunFile, benches: Mapping[str, Bench], keys: Sequence[Row]) -> None:
    """Make the runs that are missing, in order; those that depend on missing ones are left for later."""
    for key in keys:
        if key["arm"] == BEST:
            if (best := best_trained(runs)) is None:
                continue
            key = {**key, "arm": best}
        arm = ARMS[key["arm"]]
        if runs.find(**key):
            continue
        bench = benches[key["data"]]
        own_rates = key["arm"] in TRAINED and not {key["data"], key["arm"]} & set(LIKE)
        if key["stage"] == "seed" and key["seed"] == 0 and own_rates and close_rates(runs, key):
            found = first_run(runs, bench, key)
        else:
            rate = key.get("rate", rate_of(runs, key) if key["arm"] in TRAINED else 0.0)
            if rate is None:
                print("needs its rate first:", *key.values(), flush=True)
                continue
            found = bench.run(arm, key, rate, steps_of(key))
        runs.append({**key, "device": bench.device, **found})
        told = {name: found.get(name) for name in ("rate", "validation", "kept", "mean", "seconds")}
        print(*key.values(), *(f"{name} {value}" for name, value in told.items() if value), flush=True)


def is_made(runs: RunFile, key: Row) -> bool:
    """Whether a run of the plan is there."""
    return bool(runs.find(**{**key, "arm": best_trained(runs) if key["arm"] == BEST else key["arm"]}))


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for what is read once (eLife)")
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=SETS, metavar="SET")
    parser.add_argument("--arms", nargs="+", default=None, metavar="ARM")
    parser.add_argument("--stages", nargs="+", default=("rate", "seed", "few", "long"))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds below this number only")
    parser.add_argument("--shard", default="0/1", help="I/N: every Nth set and arm, from the Ith")
    parser.add_argument("--plan", action="store_true", help="print the plan, and stop")
    parser.add_argument("--report", action="store_true", help="write the tables of what is there, and stop")
    return parser.parse_args()


def wanted(given: argparse.Namespace) -> list[Row]:
    """The keys that this process makes: all runs of a set and an arm are in one shard."""
    number, shards = map(int, given.shard.split("/"))
    keys = [
        key
        for key in plan()
        if key["data"] in given.only
        and key["arm"] in (given.arms or [*ARMS, BEST])
        and key["stage"] in given.stages
        and key["seed"] < given.seeds
    ]
    cells = list(dict.fromkeys((key["data"], key["arm"]) for key in keys))
    return [key for key in keys if cells.index((key["data"], key["arm"])) % shards == number]


def main() -> None:
    """Make the runs that are missing, or write the tables."""
    given = options()
    if given.plan:
        print(plan_table())
        return
    import torch

    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    folders = Folders(given.work, given.wordnet)
    runs = RunFile(RESULTS, NAME, SETTINGS)
    if given.report:
        capacity_report.write(
            runs,
            folders,
            f"{sum(is_made(runs, key) for key in plan())} of {len(list(plan()))}",
            plan_table(),
            capacity_overview.PICTURE,
            capacity_overview.PAGES,
        )
        return
    benches = {name: Bench(own, folders, given.device) for name, own in SETS.items()}
    make_runs(runs, benches, wanted(given))


if __name__ == "__main__":
    main()
