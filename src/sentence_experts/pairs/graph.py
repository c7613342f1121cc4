"""A corpus as a graph of works: their links, their domains, and the articles that cite them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, PAPERS_SCHEMA, CorpusFolder
from sentence_experts.corpus.paper import NOTICE_KINDS
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.dataset import LINKED_BY, PAIR_COLUMNS, WITHIN, WORKS_SCHEMA
from sentence_experts.pairs.engines import LinkEngine
from sentence_experts.pairs.levels import LEVELS
from sentence_experts.pairs.links import (
    MEMBER_ENDS,
    RELATIONS,
    identified,
    linking,
    long_lists,
    references_of_few,
)
from sentence_experts.pairs.memberships import domains_of_works
from sentence_experts.pairs.neighbours import Neighbours
from sentence_experts.pairs.proximity import co_cited_within
from sentence_experts.pairs.splits import (
    UNKNOWN_YEAR,
    CitingArticles,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
)
from sentence_experts.pairs.works import folded_texts, numbered_members, numbered_works, with_texts_of
from sentence_experts.tables import check_columns

LINK_COUNTS = (1, 2, 3, 5)
ENDS = ("anchor", "positive")


class NothingLinkedError(TooFewPairsError):
    """No two works are linked, under the settings."""


class LinkGraph:
    """The works of a corpus that can be in a pair, numbered in the order of their ids, and their links.

    Those are the works that have the unit's text and a domain. They are found first, so that only their
    citations are joined, within each domain; one pass over the citations gives the pairs. A second pass, for
    the `Neighbours` of the works, is made when it is first needed.

    Attributes:
        pairs: the linked pairs of one domain and two texts, by works and domain.
        link_counts: number of pairs of one domain linked at least 1, 2, 3, 5 times, from `min_count` on.
        same_text_pairs: number of those whose works have the same text, which are left out.
        retracted: number of papers with the unit's text that are marked as retracted.
        notices: number of those with the text that are no research (`NOTICE_KINDS`).
        domain_counts: number of papers of each domain, if there are domain rules.
        long_lists: what `max_references` leaves out: papers, and their citations of works that can be in a
            pair (with coupling: by such works); None without that setting.
    """

    def __init__(self, corpus: CorpusFolder, settings: PairsConfig, engine: LinkEngine) -> None:
        self._engine = engine
        self._settings = settings
        papers, references = engine.read(corpus.papers), engine.read(corpus.citations)
        check_columns(str(corpus.papers), PAPERS_SCHEMA.names, papers.columns)
        check_columns(str(corpus.citations), CITATIONS_SCHEMA.names, references.columns)
        self._papers, self._references = papers, references
        self._citations = identified(references)
        self._mentions: ir.Table | None = None
        if settings.needs_mentions or (settings.trained_levels and corpus.has_mentions):
            self._mentions = engine.read(corpus.mentions)
        texts = folded_texts(settings.unit, papers, references)
        retracted = papers.filter(papers.retracted)
        notices = papers.filter(papers.kind.isin(sorted(NOTICE_KINDS)))
        self.retracted, self.notices = (
            int(engine.rows(with_text.aggregate(papers=with_text.count()))["papers"][0].as_py())
            for with_text in (texts.semi_join(each, "paper_id") for each in (retracted, notices))
        )
        if not settings.keep_retracted:
            texts = texts.anti_join(retracted, "paper_id")
        if not settings.keep_notices:
            texts = texts.anti_join(notices, "paper_id")
        self._texts = engine.materialized(texts)
        domains, self.domain_counts = domains_of_works(
            engine, settings.unit, self._texts, papers, references, settings.domains, corpus.domains
        )
        self._works = engine.materialized(numbered_works(self._texts, domains))
        self._wanted = engine.materialized(with_texts_of(self._texts, self._works))
        works = engine.rows(self._works.select("work", "same_text", "year").order_by("work"))
        self._same_text = _wide(works["same_text"])
        self._year = works["year"].fill_null(UNKNOWN_YEAR).to_numpy()
        members = self._number_members(domains)
        self.long_lists: dict[str, int] | None = None
        self._long: ir.Table | None = None
        if settings.max_references is not None:
            self._leave_out_long_lists(references, settings.max_references)
        self._few: ir.Table | None = None
        if settings.relation == "coupling":
            self._few = engine.materialized(references_of_few(self._citations, self._wanted, settings.rare))
        self.pairs = self._linked_pairs(members)
        if len(self.pairs) == 0:
            raise NothingLinkedError(self._nothing_linked())

    def _number_members(self, domains: ir.Table) -> ir.Table:
        """`paper_id, work, group, member`; also stored in arrays by member."""
        names = sorted(self._engine.rows(domains.select("domain").distinct())["domain"].to_pylist())
        self._domain_names = np.array(names, dtype=object)
        groups = pa.array(np.arange(len(names), dtype=np.int32))
        named = self._engine.stored(pa.table({"domain": pa.array(names, pa.string()), "group": groups}))
        members = self._engine.materialized(numbered_members(self._works, domains, named))
        columns = self._engine.rows(members.select("member", "work", "group").order_by("member"))
        self._work_of_member, self._group_of_member = _wide(columns["work"]), columns["group"].to_numpy()
        return members

    def _leave_out_long_lists(self, references: ir.Table, max_references: int) -> None:
        self._long = self._engine.materialized(long_lists(references, max_references))
        left_out = self._citations.semi_join(self._long, "citing")
        for end in MEMBER_ENDS[self._settings.relation]:
            works = self._works.view()
            left_out = left_out.semi_join(works, left_out[end] == works.paper_id)
        left_out = left_out.distinct()
        counts = left_out.aggregate(papers=left_out.citing.nunique(), citations=left_out.count())
        self.long_lists = self._engine.rows(counts).to_pylist()[0]

    def _making_pairs(self, citations: ir.Table) -> ir.Table:
        """The citations that can link, under the settings."""
        if self._long is not None:
            citations = citations.anti_join(self._long, "citing")
        if self._few is not None:
            citations = citations.semi_join(self._few, "cited")
        return citations

    def _links(self, members: ir.Table) -> ir.Table:
        """`left, right, count` of the linked members; with proximity also `level, weight`."""
        citations = self._making_pairs(self._citations)
        if self._mentions is None:
            return RELATIONS[self._settings.relation](citations, members)
        return co_cited_within(citations, self._making_pairs(self._mentions), members, self._settings.within)

    def _linked_pairs(self, members: ir.Table) -> PairArrays:
        """The linked pairs; also sets `link_counts` and `same_text_pairs`."""
        least = self._settings.min_count
        links = self._links(members)
        columns = self._engine.rows(links.filter(links["count"] >= least).order_by("left", "right"))
        left, right, count = (columns[name].to_numpy() for name in ("left", "right", "count"))
        level = columns["level"].to_numpy() if self._mentions is not None else None
        by_weight = self._settings.frequency == "proximity"
        weight = columns["weight"].to_numpy() if by_weight else None
        del columns
        levels = sorted({least, *(level for level in LINK_COUNTS if level > least)})
        self.link_counts = {str(level): int((count >= level).sum()) for level in levels}
        # Members of one domain are in the order of the works; over all domains the works come first.
        group = self._group_of_member[left]
        left, right = self._work_of_member[left], self._work_of_member[right]
        of_two_texts = self._same_text[left] != self._same_text[right]
        self.same_text_pairs = int((~of_two_texts).sum())
        pairs = PairArrays(left, right, count, self._domain_names[group], level, weight)
        if len(self._domain_names) == 1:
            return pairs if of_two_texts.all() else pairs.take(of_two_texts)
        order = np.lexsort((group, right, left))
        return pairs.take(order[of_two_texts[order]])

    def _nothing_linked(self) -> str:
        settings = self._settings
        near = f" within a {settings.within}" if settings.within != "article" else ""
        longer = ", a larger `max_references`" if self.long_lists else ""
        return (
            f"no two works of the same domain that have the text (`unit={settings.unit}`) are linked by "
            f"{settings.relation}{near}{settings.at_least}; check `domains` and `min_count`, or try "
            f"another `relation` or `unit`{longer}"
        )

    @cached_property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self._engine, self._texts, self._works, self._wanted, self._citations)

    @cached_property
    def works(self) -> WorkArrays:
        """The works, with the number of citations of each within the corpus."""
        times_cited = self._neighbours.times_cited(len(self._same_text))
        return WorkArrays(self._same_text, self._year, times_cited)

    def links_among(self, works: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """A function that gives a mask of shape (pairs,) of the pairs of these works that any relation links.

        A link of a work is also one of all works with the same text. Links through long reference lists and
        through references that many cite count too.
        """
        text = self._same_text
        links = self._neighbours.links_among(np.unique(text[works]))
        return lambda left, right: links.linked(text[left], text[right])

    def citing_articles(self, pairs: PairArrays) -> CitingArticles:
        """The articles that cite both works of each pair, ordered by pair and article."""
        return self._neighbours.citing_articles(pairs)

    def known_links(self, works: np.ndarray) -> pa.Table:
        """`left_id, right_id` (left < right) of every link between the works, of any count and domain.

        A link of a text is one of all works with that text, and those are linked with each other: none is a
        negative of another. Ordered by the ids, which is the order of the work numbers.
        """
        among = self._engine.stored(pa.table({"work": works, "same_text": self._same_text[works]}))
        texts = self._neighbours.texts.semi_join(among, "same_text")
        members = texts.select("paper_id", member="same_text", group=ibis.literal(0))
        making = self._making_pairs(self._neighbours.citations)
        links = RELATIONS[self._settings.relation](making, members)
        first, second = among.view(), among.view()
        linked = links.join(first, links.left == first.same_text).select("right", one="work")
        linked = linked.join(second, linked.right == second.same_text).select("one", other="work")
        twins = first.join(second, first.same_text == second.same_text).select(
            one=first.work, other=second.work
        )
        both = linked.union(twins).filter(lambda ends: ends.one != ends.other)
        ends = both.select(left=ibis.least(both.one, both.other), right=ibis.greatest(both.one, both.other))
        known = self._engine.rows(ends.distinct().order_by("left", "right"))
        named = self._works.semi_join(among, "work").select("work", "paper_id").order_by("work")
        ids = self._engine.rows(named)["paper_id"]
        places = {end: np.searchsorted(works, known[end]) for end in ("left", "right")}
        return pa.table({f"{end}_id": ids.take(places[end]) for end in places}).combine_chunks()

    def in_domain(self, domain: str) -> np.ndarray:
        """A mask of shape (works,) of the works of a domain."""
        of_domain = self._domain_names[self._group_of_member] == domain
        mask = np.zeros(len(self._same_text), dtype=bool)
        mask[self._work_of_member[of_domain]] = True
        return mask

    def far_in_one_article(self, anchor: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(pair, other): works far from the anchor of each pair, in an article that mentions its works near
        by.

        Ordered; `other` is the first work of its text (see `proximity.far_in_one_article`).
        """
        if self._mentions is None:
            raise ValueError("the settings need no mentions")
        texts = self._same_text[anchor], self._same_text[near]
        return self._neighbours.far_in_one_article(self._mentions, *texts, works=len(self._same_text))

    def pair_table(
        self, pairs: PairArrays, labels: np.ndarray, rng: np.random.Generator, anchored: bool = False
    ) -> pa.Table:
        """The pairs with texts and ids, in random order, each with its two ends in random order.

        With `anchored`, the left end stays the anchor. Pairs with levels get a column `within`: that of the
        closest one, null if they have none; labelled pairs get `linked_by`.
        """
        order = rng.permutation(len(pairs))
        ends = np.stack([pairs.left[order], pairs.right[order]])
        swap = (rng.random(len(pairs)) < 0.5) & (not anchored)
        ends = np.where(swap, ends[::-1], ends)
        needed = np.unique(ends)
        left, right = np.searchsorted(needed, ends)
        texts = self._named(needed)
        columns = {
            "anchor": texts["text"].take(left),
            "positive": texts["text"].take(right),
            "label": pa.array(labels[order], pa.int64()),
            "domain": pa.array(pairs.domain[order].tolist(), pa.string()),
            "count": pa.array(pairs.count[order], pa.int64()),
            "anchor_id": texts["paper_id"].take(left),
            "positive_id": texts["paper_id"].take(right),
        }
        table = pa.table({name: columns[name] for name in PAIR_COLUMNS})
        if pairs.level is not None:
            names = [LEVELS[level] if level >= 0 else None for level in pairs.level[order].tolist()]
            table = table.append_column(WITHIN, pa.array(names, pa.string()))
        if not labels.all():
            table = table.append_column(LINKED_BY, self._linked_by(table))
        return table.combine_chunks()

    def texts(self, works: np.ndarray) -> list[str]:
        """The texts of works (ascending numbers)."""
        texts: list[str] = self._named(works)["text"].to_pylist()
        return texts

    def _named(self, works: np.ndarray) -> pa.Table:
        """`paper_id` and `text` of works (ascending numbers)."""
        requested = self._works.semi_join(self._engine.stored(pa.table({"work": works})), "work")
        named = requested.select("work", "paper_id").join(self._texts.select("paper_id", "text"), "paper_id")
        return self._engine.rows(named.order_by("work"))

    def works_table(self, works: np.ndarray) -> pa.Table:
        """What is known of works (ascending numbers) beside their text, as in `dataset.WORKS_SCHEMA`."""
        requested = self._engine.stored(
            pa.table({"work": works, "times_cited": self.works.times_cited[works]})
        )
        named = self._works.join(requested, "work").select("work", "paper_id", "times_cited", "year")
        made = self._references.group_by("citing").aggregate(references=self._references.count())
        known = named.left_join(made, named.paper_id == made.citing).drop("citing")
        journals = self._papers.select(of="paper_id", journal=self._papers.journal)
        known = known.left_join(journals, known.paper_id == journals.of)
        known = known.mutate(references=known.references.fill_null(0))
        return self._engine.rows(known.order_by("work").select(WORKS_SCHEMA.names)).cast(WORKS_SCHEMA)

    def _linked_by(self, table: pa.Table) -> pa.Array:
        """For each pair of a table the ids of the papers through which its works are linked: lists."""
        rows = np.flatnonzero(table["label"].to_numpy())
        ends = {
            side: table[f"{end}_id"].take(rows) for side, end in zip(("left", "right"), ENDS, strict=True)
        }
        requested = self._engine.stored(pa.table({"pair": rows, **ends}))
        making = self._making_pairs(self._neighbours.citations)
        links = linking(requested, making, self._settings.relation)
        linked = self._engine.rows(links.order_by("pair", "through"))
        bounds = np.searchsorted(linked["pair"].to_numpy(), np.arange(table.num_rows + 1))
        through = linked["through"].cast(pa.string()).combine_chunks()
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), through)


def _wide(column: pa.ChunkedArray) -> np.ndarray:
    """The column as 64-bit integers, so that products do not overflow."""
    numbers: np.ndarray = column.to_numpy().astype(np.int64)
    return numbers
