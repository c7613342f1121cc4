"""Which texts are linked by any relation, for clean negatives: in memory, for the texts of some works."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

PAIRS_AT_ONCE = 20_000
MAX_TABLE = 4_000  # texts, of which a table of all pairs takes 16 MB


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
