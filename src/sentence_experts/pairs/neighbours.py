"""All citations that some works make and receive, for the split by article and for clean negatives."""

from __future__ import annotations

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from sentence_experts.pairs.engines import LinkEngine
from sentence_experts.pairs.links import citing_both
from sentence_experts.pairs.proximity import far_in_one_article
from sentence_experts.pairs.splits import CitingArticles, PairArrays
from sentence_experts.pairs.text_links import TextLinks
from sentence_experts.pairs.works import (
    citations_of_texts,
    citations_touching,
    number_nodes,
    numbered_citations,
    same_texts,
)


class Neighbours:
    """The citations that works make and receive, under every id that their texts were published under.

    Every citation counts here, also those in long reference lists.

    Attributes:
        citations: `citing, cited`, distinct, by id.
        texts: `paper_id, node, same_text` of each end of them that has a text.
    """

    def __init__(
        self, engine: LinkEngine, texts: ir.Table, works: ir.Table, wanted: ir.Table, identified: ir.Table
    ) -> None:
        """Reduce the `identified` citations of a corpus to those of `works(paper_id, work)`.

        `texts` are the corpus's works with a text (`folded_texts`), `wanted` those with a text of `works`.
        """
        self._engine = engine
        self.citations = engine.materialized(citations_touching(identified, wanted))
        nodes = engine.materialized(number_nodes(works, wanted, self.citations))
        self.texts = engine.materialized(same_texts(texts, nodes))
        self._numbered = engine.materialized(numbered_citations(self.citations, nodes))
        self._of_texts = engine.materialized(citations_of_texts(self._numbered, self.texts))

    def times_cited(self, works: int) -> np.ndarray:
        """How many papers cite each work: shape (works,)."""
        received = self._numbered.filter(self._numbered.cited < works)
        counts = self._engine.rows(received.group_by("cited").aggregate(times=received.count()))
        times = np.zeros(works, dtype=np.int64)
        times[counts["cited"].to_numpy()] = counts["times"].to_numpy()
        return times

    def links_among(self, texts: np.ndarray) -> TextLinks:
        """All links among texts (distinct numbers, as in `same_text`)."""
        requested = self._engine.stored(pa.table({"text": texts}))
        every = self._of_texts
        touching = every.cited.isin(requested.text) | every.citing.isin(requested.text)
        links = self._engine.rows(every.filter(touching))
        return TextLinks(texts, *(links[end].to_numpy().astype(np.int64) for end in ("citing", "cited")))

    def far_in_one_article(
        self, mentions: ir.Table, anchor: np.ndarray, near: np.ndarray, works: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(pair, other): for each pair of texts, the works that an article that mentions both near by
        mentions far from the anchor; ordered. `works` is their number."""
        texts = self.texts.select("paper_id", text="same_text")
        cited = self.citations.join(texts, self.citations.cited == texts.paper_id)
        cited = self._engine.materialized(cited.select("citing", "text").distinct())
        named = mentions.join(texts, mentions.cited == texts.paper_id)
        named = self._engine.materialized(named.select("citing", "paragraph", "text").distinct())
        pairs = self._engine.stored(
            pa.table({"pair": np.arange(len(anchor)), "anchor": anchor, "near": near})
        )
        far = far_in_one_article(pairs, named, cited)
        rows = self._engine.rows(far.filter(far.other < works).order_by("pair", "other"))
        return rows["pair"].to_numpy(), rows["other"].to_numpy().astype(np.int64)

    def citing_articles(self, pairs: PairArrays) -> CitingArticles:
        """The articles that cite both works of each pair, ordered by pair and article.

        Those with long reference lists count too: they make no pairs, but must not be behind two sets.
        """
        requested = self._engine.stored(
            pa.table({"pair": np.arange(len(pairs)), "left": pairs.left, "right": pairs.right})
        )
        behind = citing_both(requested, self._numbered)
        named = behind.left_join(self.texts, behind.article == self.texts.node)
        rows = self._engine.rows(
            named.select("pair", "article", text=named.same_text.fill_null(named.article)).order_by(
                "pair", "article"
            )
        )
        return CitingArticles(*(rows[name].to_numpy().astype(np.int64) for name in rows.column_names))
