"""What the tests of compiled pairs share."""

from __future__ import annotations

from collections.abc import Callable

from sentence_experts.demo import plan
from sentence_experts.pairs.dataset import PairsFolder

RULES = plan.HERE / "simulated_domains.yaml"
SMALL = {"negatives_min_cited": 1, "max_train_per_domain": 60, "max_eval_per_domain": 20}
Compile = Callable[..., PairsFolder]
