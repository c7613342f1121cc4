"""Train, validation and test by citing article: no article makes pairs of two sets.

Companion papers share reference lists. If pairs are of cited works, a split by work alone still leaks: the
list of one article makes both training pairs and test pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentence_experts.pairs.splits import (
    CROSSING,
    SPLITS,
    Assignment,
    PairArrays,
    WorkArrays,
    assign_blocks,
    assign_texts,
    order_by_links,
)

ARTICLE_FRACTIONS = (0.6, 0.2, 0.2)


@dataclass(frozen=True)
class CitingArticles:
    """The articles that cite both works of each co-cited pair; columns of shape (articles over all pairs,).

    Attributes:
        pair: rows of a `PairArrays`.
        article: node numbers.
        same_text: per article, the smallest node number among those with its text.
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
    """Separate works and citing articles: none is behind pairs of two sets. Other pairs are left out.

    `fractions` are of articles. In each domain the articles are sampled in blocks of neighbours, which cite
    the same works, as articles sampled one by one would split more pairs. A work goes where most of its links
    were made, on a tie to the later (smaller) set; works with the same text go together, and so do articles.
    A pair is in a set if all its citing articles and both works are.
    """
    texts, text_of = np.unique(works.same_text, return_inverse=True)
    left, right = text_of[works.rows(pairs.left)], text_of[works.rows(pairs.right)]
    article = np.unique(citing.same_text, return_inverse=True)[1]
    split_of_article = _assign_articles(pairs, left, right, citing.pair, article, fractions, rng)

    made_in = split_of_article[article]
    ends = np.concatenate([left[citing.pair], right[citing.pair]])
    votes = np.bincount(np.tile(made_in, 2) + len(SPLITS) * ends, minlength=len(SPLITS) * len(texts))
    votes = votes.reshape(len(texts), len(SPLITS))
    most = len(SPLITS) - 1 - votes[:, ::-1].argmax(axis=1)
    split_of = np.where(votes.any(axis=1), most, assign_texts(len(texts), fractions, rng))

    home = split_of[left]
    kept = home == split_of[right]
    kept[citing.pair[made_in != home[citing.pair]]] = False
    pools = {split: split_of[text_of] == split for split in range(len(SPLITS))}
    return Assignment(np.where(kept, home, CROSSING), pools)


def articles_seen(train: CitingArticles, test: CitingArticles) -> tuple[int, int]:
    """Number of articles behind test pairs that are also behind training pairs, and number of all."""
    tested = np.unique(test.article)
    return int(np.isin(tested, train.article).sum()), len(tested)


def _assign_articles(
    pairs: PairArrays,
    left: np.ndarray,
    right: np.ndarray,
    pair: np.ndarray,
    article: np.ndarray,
    fractions: tuple[float, float, float],
    rng: np.random.Generator,
) -> np.ndarray:
    """The set of each article, shape (articles,), sampled in the domain of most of its pairs."""
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
        order = mine[_order_by_citations(np.tile(position, 2), cited)]
        split_of_article[order] = assign_blocks(len(order), fractions, rng)
    return split_of_article


def _order_by_citations(article: np.ndarray, cited: np.ndarray) -> np.ndarray:
    """Order the articles 0..n-1 so that those that cite the same works are close together.

    Reverse Cuthill-McKee on the graph of articles and works, whose edges are the citations; a graph of
    articles alone would join all that cite a common method with each other.
    """
    articles, work = int(article.max()) + 1, np.unique(cited, return_inverse=True)[1]
    order = order_by_links(np.arange(articles + int(work.max()) + 1), article, articles + work)
    return order[order < articles]
