"""What the studies share: finished runs that are kept, a plain training loop, intervals, results.

The studies train in a loop of their own, with the package's models and its loss: `train` writes a checkpoint
at every validation and keeps the best one, while the studies want the test figure at several steps of one
run, the model of the last step whatever it scores, and the processor seconds of the steps alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from measuring import hardware, p_text, versions
from sentence_experts.evaluation.statistics import Estimate, Runs, ScoredPairs, estimate, holm, runs_of
from study import RESULTS

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

SEEDS = 5
WARMUP_STEPS = 10
TEMPERATURE = 0.05
COSINES = 10_000  # cosines are kept as integers, in units of 1 / COSINES

Row = dict[str, Any]
Scores = Mapping[str, NDArray[np.float64]]  # route -> cosines of the test pairs, shape (pairs,)


class RunFile:
    """The finished runs of a study, one JSON object per line, each written as soon as it is known.

    A run is known by its key, such as arm and seed. Without a file the runs of results/NAME.json are taken,
    so that a later call goes on from the published ones.
    """

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        """Args:
            folder: where NAME.jsonl stands or will stand.
            name: of the study.
            settings: what a run depends on beside its key. Runs made with others are refused.

        Raises:
            SystemExit: the runs were made with other settings.
        """
        self.path = folder / f"{name}.jsonl"
        self.settings: Row = json.loads(json.dumps(settings))
        published = RESULTS / f"{name}.json"
        if self.path.exists():
            # A line that a killed process left unfinished is not a run.
            lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]
            self.rows: list[Row] = [json.loads(line) for line in lines]
        else:
            found = json.loads(published.read_text(encoding="utf-8")) if published.exists() else {}
            same = {key: found[key] for key in ("settings", "hardware") if key in found}
            self.rows = [{**same, **row} for row in found.get("runs", [])]
        for row in self.rows:
            if (theirs := row["settings"]) != self.settings:
                differ = [key for key in self.settings if theirs.get(key) != self.settings[key]]
                raise SystemExit(
                    f"{self.path}: runs with other settings ({', '.join(differ)}); move them away"
                )
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(row)}\n" for row in self.rows)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.path)

    def done(self, **key: Any) -> bool:
        """Whether there is a run with these values."""
        return bool(self.find(**key))

    def find(self, **key: Any) -> list[Row]:
        """The runs with these values, in the order of their seeds."""
        found = [row for row in self.rows if all(row.get(name) == value for name, value in key.items())]
        return sorted(found, key=lambda row: int(row.get("seed", 0)))

    def append(self, row: Row) -> None:
        """Keep a finished run."""
        whole = {"settings": self.settings, "hardware": hardware(), **row}
        self.rows.append(whole)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{json.dumps(whole)}\n")
            file.flush()
            os.fsync(file.fileno())


def arguments(description: str | None, **choices: Sequence[str]) -> argparse.Namespace:
    """The command line of a study: the folder of the runs, the number of seeds, and what else it offers.

    Args:
        description: the study's docstring.
        **choices: option -> its values; one whose name ends in "s" takes several, by default all; any other
            takes one, by default the first.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the finished runs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    for name, values in choices.items():
        several: Row = (
            {"nargs": "+", "default": list(values)} if name.endswith("s") else {"default": values[0]}
        )
        parser.add_argument(f"--{name}", choices=values, **several)
    parser.add_argument(
        "--report", action="store_true", help="write the tables of what is finished, and stop"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    one_thread()
    return given


def one_thread() -> None:
    """Compute on one thread: a processor second is then a second of one core."""
    import torch

    torch.set_num_threads(1)


def first_blocks(blocks: int, base: str = "minilm") -> SentenceTransformer:
    """The base with its first blocks only, on the CPU."""
    import sentence_experts
    from sentence_experts.compat.sentence_transformers import transformer_of

    encoder = sentence_experts.load(base, device="cpu")
    model = transformer_of(encoder)
    model.encoder.layer = model.encoder.layer[:blocks]
    model.config.num_hidden_layers = blocks
    return encoder


class Batch(NamedTuple):
    """Pairs of one route: texts behind its prompt. Texts of equal groups are no negatives of each other."""

    anchors: list[str]
    positives: list[str]
    groups: Sequence[int]


class FasterTokens:
    """Embeddings of some tokens that learn at a multiple of the rate: their steps are made so much longer."""

    def __init__(self, model: SentenceTransformer, tokens: Sequence[str], factor: float) -> None:
        """Args:
        model: that is trained.
        tokens: whose embeddings learn faster, as they stand in a text.
        factor: of the rate.
        """
        from sentence_experts.compat.sentence_transformers import transformer_of

        self._weight = transformer_of(model).get_input_embeddings().weight
        self._rows = [model.tokenizer(token, add_special_tokens=False)["input_ids"][0] for token in tokens]
        self._factor = factor

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the optimizer make its step, then lengthen that of the tokens."""
        before = self._weight.detach()[self._rows].clone()
        optimizer.step()
        rows = self._weight.detach()
        rows[self._rows] = before + self._factor * (rows[self._rows] - before)


def train_steps(
    model: SentenceTransformer,
    batches: Iterable[Batch],
    learning_rate: float,
    seed: int,
    after: Callable[[int, float], None] = lambda step, seconds: None,
    max_length: int | None = None,
    faster: FasterTokens | None = None,
) -> float:
    """Train in place, one step a batch: AdamW, a constant rate after `WARMUP_STEPS`, gradients clipped at 1.

    Args:
        model: all weights that require a gradient are trained.
        batches: one per step.
        learning_rate: the rate after the warmup.
        seed: of dropout.
        after: called after each step with its number, from 1, and the seconds so far.
        max_length: maximum number of tokens per text, while training.
        faster: tokens whose embeddings have a higher rate.

    Returns:
        The processor seconds of all steps, without what `after` takes.
    """
    import torch

    from sentence_experts.training.losses import ContrastiveLoss, KnownPositives

    none = torch.zeros(0, dtype=torch.long)
    loss = ContrastiveLoss(model, [TEMPERATURE], known=KnownPositives(none, none, 2**31))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=learning_rate, weight_decay=0.01, fused=True)
    torch.manual_seed(seed)
    before, model.max_seq_length = model.max_seq_length, max_length or model.max_seq_length
    spent = 0.0
    for step, batch in enumerate(batches, 1):
        started = time.process_time()
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, step / WARMUP_STEPS)
        groups = torch.tensor(list(batch.groups))
        labels = torch.stack([torch.zeros_like(groups), torch.zeros_like(groups), groups, groups], dim=1)
        loss([model.preprocess(batch.anchors), model.preprocess(batch.positives)], labels).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        faster.step(optimizer) if faster else optimizer.step()
        optimizer.zero_grad()
        spent += time.process_time() - started
        state = torch.get_rng_state()  # measuring changes nothing of the training
        after(step, spent)
        torch.set_rng_state(state)
    model.max_seq_length = before
    model.eval()
    return spent


def cosines(
    model: SentenceTransformer,
    first: Sequence[str],
    second: Sequence[str],
    prompt: str | None = None,
    max_length: int | None = None,
) -> NDArray[np.float64]:
    """Cosines of pairs of texts behind a prompt, (pairs,); texts in several pairs are encoded once."""
    texts = list(dict.fromkeys([*first, *second]))
    place = {text: number for number, text in enumerate(texts)}
    model.eval()
    before, model.max_seq_length = model.max_seq_length, max_length or model.max_seq_length
    behind = [f"{prompt or ''}{text}" for text in texts]
    vectors = model.encode(behind, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
    model.max_seq_length = before
    left, right = (vectors[[place[text] for text in side]] for side in (first, second))
    found: NDArray[np.float64] = (left * right).sum(1).astype(np.float64)
    return found


def packed(scores: Scores) -> dict[str, list[int]]:
    """Cosines as a run file keeps them."""
    return {route: [round(float(value) * COSINES) for value in values] for route, values in scores.items()}


def auc_of(test: Mapping[str, ScoredPairs], scores: Mapping[str, Sequence[float]]) -> Runs:
    """The mean over the routes of the ROC-AUC of one run.

    Args:
        test: route -> its pairs (their scores are not used), as many for each route.
        scores: route -> a score per pair.
    """
    domains = {
        route: ScoredPairs(np.asarray(scores[route], float), pairs.labels, pairs.first, pairs.second)
        for route, pairs in test.items()
    }
    _, _, mean = runs_of(domains, replicates=1)
    return mean["roc_auc"]


@dataclass(frozen=True)
class Difference:
    """The first arm minus the second, paired by seed.

    Attributes:
        verdict: "better", "worse", "equal within 0.01" (the margin) or "not told apart".
    """

    first: str
    second: str
    estimate: Estimate
    p_holm: float
    verdict: str

    def sizes(self) -> str:
        """`+0.041 (+0.012 to +0.070)`."""
        return with_sign(self.estimate)

    def told(self) -> str:
        """`+0.041 (+0.012 to +0.070), p 0.021 after Holm`: the interval is that of this difference alone."""
        return f"{self.sizes()}, p {p_text(self.p_holm)} after Holm"

    def cells(self) -> list[str]:
        """A row of the table of differences."""
        return [f"{self.first} - {self.second}", self.sizes(), p_text(self.p_holm), self.verdict]


DIFFERENCE_HEADER = ["ROC-AUC, paired by seed", "difference (95% interval)", "p, Holm", "verdict"]


def with_sign(change: Estimate) -> str:
    """`+0.041 (+0.012 to +0.070)`."""
    interval = change.interval()
    return f"{change.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def differences(
    arms: Mapping[str, Runs], compared: Sequence[tuple[str, str]], margin: float
) -> list[Difference]:
    """Differences of arms: intervals over the clustered test pairs and the seeds, p-values after Holm.

    The runs of an arm are in the order of their seeds, from 0; those that the other arm lacks are left out.
    Two arms are equal within the margin where the 95% interval lies within it, as in `evaluate`.
    """
    found = []
    estimates = {}
    for first, second in compared:
        if not {first, second} <= set(arms):
            continue
        seeds = min(len(arms[first].values), len(arms[second].values))
        one = estimate(*_of_seeds(arms[first], seeds).minus(_of_seeds(arms[second], seeds)))
        if one is not None:
            estimates[first, second] = one
    corrected = holm([one.p_value() for one in estimates.values()]) if estimates else []
    for (pair, one), p_holm in zip(estimates.items(), corrected, strict=True):
        inner = one.interval()
        verdict = "not told apart"
        if p_holm < 0.05:
            verdict = "better" if one.value > 0 else "worse"
        if -margin < inner.low and inner.high < margin:
            verdict = f"equal within {margin:g}"
        found.append(Difference(*pair, one, p_holm, verdict))
    return found


def _of_seeds(runs: Runs, count: int) -> Runs:
    return Runs(runs.values[:count], runs.influence[:count], runs.averaged[:count], runs.sharing)


def with_interval(runs: Runs) -> str:
    """`0.917 (0.900 to 0.934)`."""
    found = estimate(runs)
    if found is None:
        return "–"
    interval = found.interval(0.0, 1.0)
    return f"{found.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def write_study(name: str, about: Mapping[str, Any], runs: RunFile, text: str) -> None:
    """results/NAME.json, which holds every run, and results/NAME.md; prints the text."""
    RESULTS.mkdir(exist_ok=True)
    libraries = versions()
    machines = list(dict.fromkeys(row.get("hardware", hardware()) for row in runs.rows)) or [hardware()]
    head = {**about, "hardware": machines[0], "versions": libraries, "settings": runs.settings}
    usual = {"settings": runs.settings, "hardware": machines[0]}  # of a run that names no other
    rows = [
        {key: value for key, value in row.items() if key not in usual or value != usual[key]}
        for row in runs.rows
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    opened = json.dumps(head, indent=1).removesuffix("\n}")
    (RESULTS / f"{name}.json").write_text(f'{opened},\n "runs": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    told = ", ".join(f"{library} {number}" for library, number in libraries.items())
    counts = {name: sum(row.get("hardware", name) == name for row in runs.rows) for name in machines}
    made = "; ".join(
        f"{name}{f' ({count} runs)' if len(machines) > 1 else ''}" for name, count in counts.items()
    )
    whole = f"{text}\n\n{made}, one thread; {told}.\n"
    (RESULTS / f"{name}.md").write_text(whole, encoding="utf-8")
    print(whole)
