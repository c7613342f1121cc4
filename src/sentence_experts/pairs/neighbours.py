"""All citations that some works make and receive, for the split by article and for clean negatives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from sentence_experts.pairs.links import linking
from sentence_experts.pairs.proximity import far_in_one_article
from sentence_experts.pairs.splits import CitingArticles, PairArrays
from sentence_experts.pairs.sql_engine import SqlEngine

PAIRS_AT_ONCE = 20_000
MAX_TABLE = 4_000  # texts, of which a table of all pairs takes 16 MB


class Neighbours:
    """The citations that works make and receive, under every id that their texts were published under.

    Every citation counts here, also those in long reference lists.

    Attributes:
        citations: the table `citing, cited`, distinct, by id.
        texts: the table `paper_id, node, same_text` of each end of them that has a text, numbered from the
            works on; `same_text` is the smallest number of those with that text.
    """

    def __init__(self, engine: SqlEngine, texts: str, works: str, wanted: str, identified: str) -> None:
        """Reduce the `identified` citations of a corpus to those of `works(paper_id, work)`.

        `texts` are the corpus's works with a text (`folded_texts`), `wanted` those with a text of `works`.
        """
        self._engine = engine
        self.citations = engine.compute(_touching(identified, wanted))
        # The works keep their numbers; the other ends follow in the order of their ids.
        nodes = engine.compute(f"""SELECT paper_id, work AS node FROM {works} UNION ALL
            SELECT paper_id, CAST(row_number() OVER (ORDER BY paper_id) - 1
                + (SELECT count(*) FROM {works}) AS INT) AS node
            FROM (SELECT paper_id FROM {wanted} UNION SELECT citing FROM {self.citations}
                UNION SELECT cited FROM {self.citations}) AS ends ANTI JOIN {works} USING (paper_id)""")
        self.texts = engine.compute(f"""SELECT paper_id, node,
                min(node) OVER (PARTITION BY folded) AS same_text
            FROM {texts} JOIN {nodes} USING (paper_id)""")
        self._numbered = engine.compute(f"""SELECT a.node AS citing, b.node AS cited
            FROM {self.citations} AS c
            JOIN {nodes} AS a ON c.citing = a.paper_id JOIN {nodes} AS b ON c.cited = b.paper_id""")
        # A citation of a reprint is one of the paper.
        self._of_texts = engine.compute(f"""SELECT DISTINCT citing, cited FROM (
                SELECT coalesce(a.same_text, c.citing) AS citing, coalesce(b.same_text, c.cited) AS cited
                FROM {self._numbered} AS c LEFT JOIN {self.texts} AS a ON c.citing = a.node
                LEFT JOIN {self.texts} AS b ON c.cited = b.node
            ) AS renamed WHERE citing <> cited""")

    def times_cited(self, works: int) -> np.ndarray:
        """How many papers cite each work: shape (works,)."""
        counts = self._engine.rows(
            f"SELECT cited, count(*) AS times FROM {self._numbered} WHERE cited < {works} GROUP BY cited"
        )
        times = np.zeros(works, dtype=np.int64)
        times[counts["cited"].to_numpy()] = counts["times"].to_numpy()
        return times

    def links_among(self, texts: np.ndarray) -> TextLinks:
        """All links among texts (distinct numbers, as in `same_text`)."""
        requested = self._engine.store(pa.table({"paper_id": texts}))
        links = self._engine.rows(_touching(self._of_texts, requested))
        return TextLinks(texts, *(links[end].to_numpy().astype(np.int64) for end in ("citing", "cited")))

    def far_in_one_article(
        self, mentions: str, anchor: np.ndarray, near: np.ndarray, works: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(pair, other): for each pair of texts, the works that an article that mentions both near by
        mentions far from the anchor; ordered. `works` is their number."""
        cited = self._engine.compute(f"""SELECT DISTINCT citing, same_text AS text
            FROM {self.citations} AS c JOIN {self.texts} AS t ON c.cited = t.paper_id""")
        named = self._engine.compute(f"""SELECT DISTINCT citing, paragraph, same_text AS text
            FROM {mentions} AS m JOIN {self.texts} AS t ON m.cited = t.paper_id""")
        pairs = self._engine.store(pa.table({"pair": np.arange(len(anchor)), "anchor": anchor, "near": near}))
        rows = self._engine.rows(f"""SELECT pair, other FROM ({far_in_one_article(pairs, named, cited)})
            WHERE other < {works} ORDER BY pair, other""")
        return rows["pair"].to_numpy(), rows["other"].to_numpy().astype(np.int64)

    def citing_articles(self, pairs: PairArrays) -> CitingArticles:
        """The articles that cite both works of each pair, ordered by pair and article.

        Those with long reference lists count too: they make no pairs, but must not be behind two sets.
        """
        requested = self._engine.store(
            pa.table({"pair": np.arange(len(pairs)), "one": pairs.left, "other": pairs.right})
        )
        rows = self._engine.rows(f"""SELECT pair, through, coalesce(same_text, through) AS text
            FROM ({linking(requested, self._numbered, "co-citation")}) AS behind
            LEFT JOIN {self.texts} AS t ON through = node ORDER BY pair, through""")
        return CitingArticles(*(rows[name].to_numpy().astype(np.int64) for name in rows.column_names))


class TextLinks:
    """The citations that some texts make and receive, of which any link between two of them follows.

    Two texts are linked if one cites the other, a third paper cites both or both cite a third work, however
    often that is cited.
    """

    def __init__(self, texts: np.ndarray, citing: np.ndarray, cited: np.ndarray) -> None:
        """Keep the citations of `texts` (distinct numbers) among all those from `citing` to `cited`.

        The numbers are those of `same_text`; the columns are of shape (citations,).
        """
        self._texts = np.sort(texts)
        size = int(max(texts.max(initial=0), citing.max(initial=0), cited.max(initial=0))) + 1
        made, received = np.isin(citing, self._texts), np.isin(cited, self._texts)
        # Columns: each paper that cites the text, then each work that it cites. A text is among its own
        # citing papers, so that it shares a column with what it cites.
        rows = np.concatenate([self._texts, cited[received], citing[made]])
        columns = np.concatenate([self._texts, citing[received], size + cited[made]])
        shape = (len(self._texts), 2 * size)
        near = csr_array((np.ones(len(rows), dtype=np.int32), (self._rows(rows), columns)), shape=shape)
        near.sum_duplicates()
        self._near = near
        # Negatives of few texts are sought in many small rounds, for which a look-up is ten times as fast.
        self._table = (near @ near.T).toarray() > 0 if len(self._texts) <= MAX_TABLE else None

    def linked(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """A mask of shape (pairs,) of the pairs of texts that are linked."""
        one, other = self._rows(left), self._rows(right)
        if self._table is not None:
            known: np.ndarray = self._table[one, other]
            return known
        masks = [np.zeros(0, dtype=bool)]
        for start in range(0, len(one), PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            shared = self._near[one[some]].multiply(self._near[other[some]])
            masks.append(np.diff(csr_array(shared).indptr) > 0)
        return np.concatenate(masks)

    def _rows(self, texts: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._texts, texts)


def _touching(citations: str, works: str) -> str:
    """Distinct rows of `citations(citing, cited)` that a work of `works(paper_id)` makes or receives."""
    return f"""SELECT citing, cited FROM {citations} AS c SEMI JOIN {works} AS w ON c.cited = w.paper_id
        UNION SELECT citing, cited FROM {citations} AS c SEMI JOIN {works} AS w ON c.citing = w.paper_id"""
