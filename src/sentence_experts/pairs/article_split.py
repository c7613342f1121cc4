"""Train, validation and test by citing article: no article stands behind pairs of two sets.

Companion papers share reference lists. Where pairs are of cited works, a split by work alone still leaks: the
list of one article makes pairs of training and pairs of the test set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from sentence_experts.pairs.splits import (
    CROSSING,
    SPLITS,
    Assignment,
    PairArrays,
    WorkArrays,
    draw_blocks,
    draw_texts,
)

ARTICLE_FRACTIONS = (0.6, 0.2, 0.2)


@dataclass(frozen=True)
class CitingArticles:
    """Which article cites both works of which co-cited pair; columns of shape (articles over all pairs,).

    Attributes:
        pair: rows of a `PairArrays`.
        article: node numbers.
        same_text: of each article, the smallest node number among those with its text.
    """

    pair: np.ndarray
    article: np.ndarray
    same_text: np.ndarray


def split_by_article(
    pairs: PairArrays,
    works: WorkArrays,
    citing: CitingArticles,
    fractions: tuple[float, float, float],
    rng: np.random.Generator,
) -> Assignment:
    """No work and no citing article is behind pairs of two sets; other pairs are left out.

    `fractions` are of articles. In each domain the articles are drawn in blocks of neighbours, which cite the
    same works, as articles drawn one by one would tear more pairs apart. A work goes where most of its links
    were made, in a tie to the later (smaller) set; works with the same text go together, and so do articles.
    A pair is in a set when all its citing articles and both works are.
    """
    texts, text_of = np.unique(works.same_text, return_inverse=True)
    left, right = text_of[works.rows(pairs.left)], text_of[works.rows(pairs.right)]
    article = np.unique(citing.same_text, return_inverse=True)[1]
    split_of_article = _draw_articles(pairs, left, right, citing.pair, article, fractions, rng)

    made_in = split_of_article[article]
    ends = np.concatenate([left[citing.pair], right[citing.pair]])
    votes = np.bincount(np.tile(made_in, 2) + len(SPLITS) * ends, minlength=len(SPLITS) * len(texts))
    votes = votes.reshape(len(texts), len(SPLITS))
    most = len(SPLITS) - 1 - votes[:, ::-1].argmax(axis=1)
    split_of = np.where(votes.any(axis=1), most, draw_texts(len(texts), fractions, rng))

    home = split_of[left]
    kept = home == split_of[right]
    kept[citing.pair[made_in != home[citing.pair]]] = False
    pools = {split: split_of[text_of] == split for split in range(len(SPLITS))}
    return Assignment(np.where(kept, home, CROSSING), pools)


def articles_seen(train: CitingArticles, test: CitingArticles) -> tuple[int, int]:
    """How many articles behind test pairs are behind training pairs too, and how many there are."""
    tested = np.unique(test.article)
    return int(np.isin(tested, train.article).sum()), len(tested)


def _draw_articles(
    pairs: PairArrays,
    left: np.ndarray,
    right: np.ndarray,
    pair: np.ndarray,
    article: np.ndarray,
    fractions: tuple[float, float, float],
    rng: np.random.Generator,
) -> np.ndarray:
    """The set of each article, shape (articles,); each is drawn in the domain of most of its pairs."""
    names, domain_of_pair = np.unique(pairs.domain, return_inverse=True)
    domain = domain_of_pair[pair]
    articles = int(article.max()) + 1
    counts = np.bincount(article * len(names) + domain, minlength=articles * len(names))
    home = counts.reshape(articles, len(names)).argmax(axis=1)
    split_of_article = np.empty(articles, dtype=np.int64)
    for number in np.unique(home):
        rows = (domain == number) & (home[article] == number)
        mine, position = np.unique(article[rows], return_inverse=True)
        cited = np.concatenate([left[pair[rows]], right[pair[rows]]])
        order = mine[_neighbours_together(np.tile(position, 2), cited)]
        split_of_article[order] = draw_blocks(len(order), fractions, rng)
    return split_of_article


def _neighbours_together(article: np.ndarray, cited: np.ndarray) -> np.ndarray:
    """An order of the articles 0..n-1 in which those that cite the same works stand close together.

    Reverse Cuthill-McKee on the graph of articles and works: its edges are the citations, whereas a graph
    of articles alone would join all that cite a common method with each other.
    """
    articles, work = int(article.max()) + 1, np.unique(cited, return_inverse=True)[1]
    size = articles + int(work.max()) + 1
    citations = coo_array((np.ones(len(article)), (article, articles + work)), shape=(size, size))
    order: np.ndarray = reverse_cuthill_mckee((citations + citations.T).tocsr(), symmetric_mode=True)
    return order[order < articles]
