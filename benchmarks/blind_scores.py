"""What reads no text, or one text at a time, on the test pairs of a study: the package's text-free scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import studies
from measuring import table
from sentence_experts.evaluation.statistics import ScoredPairs
from sentence_experts.evaluation.text_free import text_free_scores
from sentence_experts.pairs.dataset import PAIR_COLUMNS

MOST_COLUMNS = 7


@dataclass(frozen=True)
class Texts:
    """Test pairs with their texts, each (pairs,)."""

    first: Sequence[str]
    second: Sequence[str]
    pairs: ScoredPairs

    @classmethod
    def of(cls, table: pa.Table) -> Texts:
        """The pairs of a table."""
        ends = (table[f"{end}_id"].to_pylist() for end in ("anchor", "positive"))
        labels = table["label"].to_numpy()
        pairs = ScoredPairs(np.zeros(len(labels)), labels, *ends)
        return cls(table["anchor"].to_pylist(), table["positive"].to_pylist(), pairs)

    def as_table(self, route: str) -> pa.Table:
        """The columns of a pairs file."""
        size = len(self.first)
        ids = [[str(each) for each in side] for side in (self.pairs.first, self.pairs.second)]
        labels = [int(label) for label in self.pairs.labels]
        columns = [list(self.first), list(self.second), labels, [route] * size, labels, *ids]
        return pa.table(dict(zip(PAIR_COLUMNS, columns, strict=True)))


def blind_table(tests: Mapping[str, Texts], works: pa.Table | None = None) -> str:
    """Markdown: the ROC-AUC of each score for each route, and their mean with its interval.

    Scores with one value for all pairs are named below: they have 0.5.

    Args:
        tests: route -> its test pairs.
        works: what is known of their works (`Pairs.works`).
    """
    scores: dict[str, dict[str, list[float]]] = {}
    for route, test in tests.items():
        pairs = test.as_table(route)
        for label, found in text_free_scores(pairs, works).items():
            scores.setdefault(label, {})[route] = found.tolist()
    routes = list(tests) if 1 < len(tests) <= MOST_COLUMNS else []
    pairs_of = {route: test.pairs for route, test in tests.items()}
    rows: list[list[str]] = []
    constant: list[str] = []
    for label, own in scores.items():
        if all(np.ptp(each) < 1e-12 for each in own.values()):
            constant.append(label)
            continue
        mean = studies.auc_of(pairs_of, own)
        single = [studies.auc_of({route: pairs}, own).values[0] for route, pairs in pairs_of.items()]
        cells = [f"{each:.3f}" for each in single] if routes else []
        rows.append([label, *cells, studies.with_interval(mean)])
    told = table(["what compares no texts", *routes, "ROC-AUC, mean" if len(tests) > 1 else "ROC-AUC"], rows)
    return told + (f"\n\nThe same for all pairs, so 0.5: {', '.join(constant)}." if constant else "")
