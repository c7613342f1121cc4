"""A random part of a dataset's training pairs, as a dataset of its own."""

from __future__ import annotations

import numpy as np

from sentence_experts.errors import UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.splits import SPLITS


def sample_training(pairs: Pairs, share: float, seed: int = 0) -> Pairs:
    """The dataset with a share of each domain's training pairs, in memory; everything else as in `pairs`.

    Source: Hallee et al. 2024 (preprint), 3.3, which searched for settings on a random tenth.

    Args:
        pairs: the whole dataset.
        share: the share of a domain's training pairs, above 0 and up to 1; at least one pair is taken.
        seed: the same seed gives the same pairs.

    Raises:
        UsageError: `share` is out of range.
    """
    if not 0 < share <= 1:
        raise UsageError(f"`share` must be above 0 and at most 1, got {share:g}")
    tables = {name: pairs.split(name) for name in SPLITS}
    domains = np.array(tables["train"]["domain"].to_pylist(), dtype=object)
    rng = np.random.default_rng(seed)
    sampled = []
    for domain in pairs.domains:
        rows = np.flatnonzero(domains == domain)
        sampled.append(rng.permutation(rows)[: max(1, round(share * len(rows)))])
    tables["train"] = tables["train"].take(np.sort(np.concatenate(sampled)))
    kept = {key: value for key, value in pairs.manifest.items() if key not in ("domains", "files")}
    sample_of = {"pairs": pairs.fingerprint(), "share": share, "seed": seed}
    return Pairs.in_memory(tables, pairs.known_links(), {**kept, "sample_of": sample_of})
