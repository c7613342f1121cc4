"""Co-citation by proximity: how near to each other an article mentions two works.

The levels nest: works in one bracket share its sentence, paragraph, section and article. A pair's weight adds
up over the articles that cite both: the number of places that they share at the closest level of the article,
each worth twice as much as at the next wider level. Source of that scale: Gipp and Beel 2009, Citation
Proximity Analysis, table 1.

As in `links`, each function returns a query that runs on DuckDB and on Spark.
"""

from __future__ import annotations

from typing import Literal, get_args

from sentence_experts.pairs.links import pairs_in_lists

Level = Literal["article", "section", "paragraph", "sentence", "bracket"]
# From the widest to the closest; each lies within the one before.
LEVELS: tuple[Level, ...] = get_args(Level)
# Levels at which a pair shares a paragraph.
NEAR: tuple[Level, ...] = LEVELS[LEVELS.index("paragraph") :]
AUTO_LEVEL: Literal["auto"] = "auto"
# Levels that training pairs are kept to where enough are so near, since those have more in common.
TRAINED_LEVELS: tuple[Level, ...] = ("bracket", "sentence", "paragraph")
# Training pairs of a domain that are enough to leave wider levels out: some thirty batches of 32, with which
# a first training was better than the base (docs/training.md).
ENOUGH_TO_TRAIN = 1_000
# The columns that number a place of a level within its article.
_PLACE: dict[str, tuple[str, ...]] = {
    "article": (),
    "section": ("section",),
    "paragraph": ("paragraph",),
    "sentence": ("paragraph", "sentence"),
    "bracket": ("paragraph", "bracket"),
}


def co_cited_within(citations: str, mentions: str, members: str, within: Level) -> str:
    """`one, other, count, level, weight` of works that an article cites together at a level or closer.

    `count` is the number of such articles, `level` the number in `LEVELS` of the closest one. The tables are
    those of `links.co_citation`, and `mentions(citing, cited, section, paragraph, sentence, bracket)`.
    """
    together = []
    for number in range(LEVELS.index(within), len(LEVELS)):
        level = LEVELS[number]
        through = ("citing", *_PLACE[level])
        cited = citations if level == "article" else mentions
        ends = f"""SELECT {", ".join(through)}, domain_number, member
            FROM {cited} AS c JOIN {members} AS m ON c.cited = m.paper_id"""
        together.append(f"""SELECT one, other, citing, {number} AS level, count(*) * {2**number} AS weight
            FROM ({pairs_in_lists(ends, through, keep=("citing",))}) AS pairs GROUP BY one, other, citing""")
    return f"""WITH together AS ({" UNION ALL ".join(together)}),
        of_article AS (SELECT one, other, max(level) AS level, max_by(weight, level) AS weight
            FROM together GROUP BY one, other, citing)
        SELECT one, other, count(*) AS count, CAST(max(level) AS BIGINT) AS level,
            CAST(sum(weight) AS BIGINT) AS weight FROM of_article GROUP BY one, other"""


def far_in_one_article(pairs: str, mentions: str, citations: str) -> str:
    """`pair, other`: works far from the anchor of a pair in an article that mentions its works near by.

    "Near" is in one paragraph. No article mentions `other` near the anchor, and every article that cites both
    is known to mention both. Works are numbered by their texts: `pairs(pair, anchor, near)`,
    `mentions(citing, paragraph, text)`, `citations(citing, text)`, each row once.
    """
    return f"""WITH near_by AS (SELECT DISTINCT pair, anchor, m.citing
            FROM {pairs} AS p JOIN {mentions} AS m ON p.anchor = m.text
            SEMI JOIN {mentions} AS n ON m.citing = n.citing AND m.paragraph = n.paragraph
                AND p.near = n.text),
        mentioned AS (SELECT DISTINCT citing, text FROM {mentions}),
        others AS (SELECT DISTINCT pair, anchor, text AS other FROM near_by JOIN mentioned USING (citing)
            WHERE anchor <> text),
        ends AS (SELECT DISTINCT anchor, other FROM others),
        cited_both AS (SELECT anchor, other, c.citing
            FROM ends JOIN {citations} AS c ON ends.anchor = c.text
            SEMI JOIN {citations} AS d ON c.citing = d.citing AND ends.other = d.text),
        excluded AS (
            SELECT anchor, other FROM ends JOIN {mentions} AS m ON ends.anchor = m.text
            SEMI JOIN {mentions} AS n ON m.citing = n.citing AND m.paragraph = n.paragraph
                AND ends.other = n.text
            UNION ALL SELECT anchor, other FROM cited_both AS c ANTI JOIN mentioned AS m
                ON c.citing = m.citing AND c.anchor = m.text
            UNION ALL SELECT anchor, other FROM cited_both AS c ANTI JOIN mentioned AS m
                ON c.citing = m.citing AND c.other = m.text)
        SELECT pair, other FROM others ANTI JOIN excluded USING (anchor, other)"""
