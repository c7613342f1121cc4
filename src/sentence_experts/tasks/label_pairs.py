"""Pairs of texts with the same label, for classification and clustering.

Source: MoTE, section 2.1 (pairs for each downstream task) and appendix D.2. Its pairs come from datasets
published as pairs; here they are made from the labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from sentence_experts.tasks.rows import Row, text_key
from sentence_experts.tasks.split import uniform


def same_label_pairs(rows: Sequence[Row], pairs_per_text: int, seed: int) -> tuple[list[Row], list[str]]:
    """Make pairs of the labelled texts of one split; also returns the labels of one text, which have no pair.

    Each text is the anchor of `pairs_per_text` pairs (fewer in a smaller class) and the positive of as many:
    the texts of a class form a circle, in an order given by the seed and their words, and each is paired with
    those that follow. Texts that differ only in punctuation count as one.
    """
    classes: dict[str, dict[str, Row]] = {}
    for row in rows:
        classes.setdefault(str(row.label), {}).setdefault(text_key(row.anchor), row)
    pairs: list[Row] = []
    for label, texts in sorted(classes.items()):
        circle = [texts[key] for key in sorted(texts, key=lambda key: (uniform(seed, key), key))]
        for step in range(1, min(pairs_per_text, len(circle) - 1) + 1):
            turned = circle[step:] + circle[:step]
            pairs += [
                Row(anchor=row.anchor, positive=other.anchor, label=label)
                for row, other in zip(circle, turned, strict=True)
            ]
    return pairs, sorted(label for label, texts in classes.items() if len(texts) == 1)
