"""Models of the studies: training step by step or by `train`, cosines of test pairs, pairs of a corpus.

`train` writes a checkpoint at every validation and keeps the best one. The studies that want the test figure
at several steps of one run, or the processor seconds of the steps alone, train in a loop of their own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import sentence_experts as se
from measuring import BASE
from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from study import Row, RunFile

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

WARMUP_STEPS = 10
TEMPERATURE = 0.05
FINE_COSINES = 100_000  # what pairs of a corpus keep of a cosine, in units of 1 / FINE_COSINES
UNTRAINED = "all-MiniLM-L6-v2"


def first_blocks(blocks: int, base: str = BASE) -> SentenceTransformer:
    """The base with its first blocks only, on the CPU."""
    encoder = se.load(base, device="cpu")
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


# ---- pairs of works --------------------------------------------------------------------------------


class Citing:
    """Which articles of corpora cite a work, and when it appeared."""

    def __init__(self, *corpora: se.CorpusFolder) -> None:
        self._of: dict[str, set[str]] = defaultdict(set)
        self._years: dict[str, int | None] = {}
        for corpus in corpora:
            table = pq.read_table(corpus.citations, columns=["citing", "cited", "cited_year"])
            for citing, cited, year in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if cited is not None:
                    self._of[cited].add(citing)
                    self._years[cited] = year

    def both(self, one: str, other: str) -> set[str]:
        """The articles that cite both works."""
        return self._of[one] & self._of[other]

    def linked(self, one: str, other: str) -> bool:
        """Whether an article cites both, or one of them the other."""
        return bool(self.both(one, other)) or one in self._of[other] or other in self._of[one]

    def times(self, work: str) -> int:
        """How many articles cite the work."""
        return len(self._of.get(work, ()))

    def works(self) -> pa.Table:
        """What is known of the cited works, as `Pairs.works` has it; of journals and references nothing."""
        columns: dict[str, list[Any]] = {"paper_id": list(self._of), "year": list(self._years.values())}
        columns["times_cited"] = [self.times(work) for work in self._of]
        return pa.table(columns | {name: [None] * len(self._of) for name in ("references", "journal")})


def pairs_of(train: pa.Table, known_links: pa.Table) -> se.Pairs:
    """Training pairs alone, for `keep="last"`; linked works are no negatives of each other."""
    train = train.select(PAIR_COLUMNS)
    works = pa.chunked_array([*train["anchor_id"].chunks, *train["positive_id"].chunks], pa.string()).unique()
    among = pc.and_(*(pc.is_in(known_links[end], value_set=works) for end in ("left_id", "right_id")))
    splits = {"train": train, "validation": train.slice(0, 0), "test": train.slice(0, 0)}
    return se.Pairs.in_memory(splits, known_links.filter(among), {})


def cosines_of_pairs(
    model: SentenceTransformer | str, test: pa.Table, route_map: Mapping[str, str] | None = None
) -> list[int]:
    """The cosines of the test pairs in their order, in units of 1 / `FINE_COSINES`."""
    from sentence_experts.evaluation.results import PairEvaluation, score_column

    pairs = se.Pairs.from_tables(test=test)
    found = se.evaluate({"model": model}, pairs, bootstrap=0, route_map=dict(route_map or {}))
    assert isinstance(found, PairEvaluation)
    scores = found.scores[score_column("model")].to_numpy()
    return [int(each) for each in np.rint(scores * FINE_COSINES)]


def measure_untrained(runs: RunFile, test: pa.Table) -> None:
    """Test the base as it is, unless that is done."""

    def run(**key: Any) -> Row:
        started = time.process_time()
        return {"cosines": cosines_of_pairs(BASE, test), "seconds": round(time.process_time() - started, 1)}

    runs.make([{"arm": UNTRAINED, "seed": 0}], run)


def in_domains(row: Row, domains: NDArray[np.str_], rows: NDArray[np.int64] | None = None) -> Row:
    """A row of a run with `scores` by the domain of each test pair.

    Args:
        row: its `cosines` are those of all test pairs, or of `rows` alone where it has no others.
        domains: the domain of each test pair.
        rows: numbers of the pairs that are wanted, by default all.
    """
    scores = np.array(row["cosines"])
    if rows is not None:
        scores = scores if len(scores) == len(rows) else scores[rows]
        domains = domains[rows]
    return {**row, "scores": {str(name): scores[domains == name] for name in np.unique(domains)}}
