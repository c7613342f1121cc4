"""Co-citation by proximity: how near to each other an article mentions two works.

The levels nest: works in one bracket share its sentence, paragraph, section and article. A pair's weight adds
up over the articles that cite both: the number of places that they share at the closest level of the article,
each worth twice as much as at the next wider level. Source of that scale: Gipp and Beel 2009, Citation
Proximity Analysis, table 1.

As in `links`, each function is one ibis expression, the same on every engine.
"""

from __future__ import annotations

import ibis
import ibis.expr.types as ir

from sentence_experts.pairs.levels import LEVELS, Level
from sentence_experts.pairs.links import pairs_in_lists

# What numbers a place of a level within its article.
_PLACE: dict[str, tuple[str, ...]] = {
    "article": (),
    "section": ("section",),
    "paragraph": ("paragraph",),
    "sentence": ("paragraph", "sentence"),
    "bracket": ("paragraph", "bracket"),
}


def co_cited_within(citations: ir.Table, mentions: ir.Table, members: ir.Table, within: Level) -> ir.Table:
    """`left, right, count, level, weight` of works that an article cites together at a level or closer.

    `count` is the number of such articles, `level` the number in `LEVELS` of the closest one. The tables are
    those of `links.co_citation`, and `mentions(citing, cited, section, paragraph, sentence, bracket)`.
    """
    wide = LEVELS.index(within)
    together = ibis.union(
        *(
            _together(citations, mentions, members, level).mutate(
                level=ibis.literal(number, "int64"), weight=lambda each, n=number: each.places * 2**n
            )
            for number, level in enumerate(LEVELS)
            if number >= wide
        )
    )
    of_article = together.group_by("left", "right", "citing").aggregate(
        level=together.level.max(), weight=together.weight.argmax(together.level)
    )
    return of_article.group_by("left", "right").aggregate(
        count=of_article.count(),
        level=of_article.level.max(),
        weight=of_article.weight.sum().cast("int64"),
    )


def _together(citations: ir.Table, mentions: ir.Table, members: ir.Table, level: Level) -> ir.Table:
    """`left, right, citing, places`: the number of places of a level that two works share in an article."""
    cited, place = (citations if level == "article" else mentions), _PLACE[level]
    ends = cited.join(members, cited.cited == members.paper_id)
    ends = ends.select("citing", *place, "group", "member")
    pairs = pairs_in_lists(ends, ("citing", *place), keep=("citing",))
    return pairs.group_by("left", "right", "citing").aggregate(places=pairs.count())


def far_in_one_article(pairs: ir.Table, mentions: ir.Table, citations: ir.Table) -> ir.Table:
    """`pair, other`: works far from the anchor of a pair in an article that mentions its works near by.

    "Near" is in one paragraph. No article mentions `other` near the anchor, and every article that cites both
    is known to mention both. Works are numbered by their texts: `pairs(pair, anchor, near)`,
    `mentions(citing, paragraph, text)`, `citations(citing, text)`, each row once.
    """
    first, second = mentions.view(), mentions.view()
    near_by = pairs.join(first, pairs.anchor == first.text)
    near_by = near_by.select("pair", "anchor", "near", "citing", "paragraph")
    near_by = near_by.semi_join(
        second,
        [near_by.citing == second.citing, near_by.paragraph == second.paragraph, near_by.near == second.text],
    )
    near_by = near_by.select("pair", "anchor", "citing").distinct()
    mentioned = mentions.select("citing", "text").distinct()
    others = near_by.join(mentioned, "citing").select("pair", "anchor", other="text")
    others = others.filter(others.anchor != others.other).distinct()
    ends = others.select("anchor", "other").distinct()
    excluded = _near(ends, mentions).union(_unknown(ends, mentioned, citations))
    return others.anti_join(excluded, ["anchor", "other"]).select("pair", "other")


def _near(ends: ir.Table, mentions: ir.Table) -> ir.Table:
    """The rows of `ends(anchor, other)` that an article mentions in one paragraph."""
    first, second = mentions.view(), mentions.view()
    places = ends.join(first, ends.anchor == first.text).select("anchor", "other", "citing", "paragraph")
    same = [
        places.citing == second.citing,
        places.paragraph == second.paragraph,
        places.other == second.text,
    ]
    return places.semi_join(second, same).select("anchor", "other")


def _unknown(ends: ir.Table, mentioned: ir.Table, citations: ir.Table) -> ir.Table:
    """The rows of `ends(anchor, other)` that an article cites without mentioning both."""
    first, second = citations.view(), citations.view()
    both = ends.join(first, ends.anchor == first.text).select("anchor", "other", "citing")
    both = both.semi_join(second, [both.citing == second.citing, both.other == second.text])
    known = mentioned.view()
    missing = (
        both.anti_join(known, [both.citing == known.citing, both[end] == known.text])
        for end in ("anchor", "other")
    )
    return ibis.union(*missing).select("anchor", "other")
