"""A corpus as a graph of works: their links, their domains, and the articles that cite them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, PAPERS_SCHEMA, CorpusFolder
from sentence_experts.corpus.paper import NOTICE_KINDS
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.dataset import LINKED_BY, PAIR_COLUMNS, WITHIN, WORKS_SCHEMA
from sentence_experts.pairs.domain_papers import domains_of_works
from sentence_experts.pairs.links import (
    MEMBER_ENDS,
    RELATIONS,
    identified,
    linking,
    long_lists,
    references_of_few,
)
from sentence_experts.pairs.neighbours import Neighbours
from sentence_experts.pairs.proximity import LEVELS, co_cited_within
from sentence_experts.pairs.splits import (
    UNKNOWN_YEAR,
    CitingArticles,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
)
from sentence_experts.pairs.sql_engine import SqlEngine
from sentence_experts.pairs.works import folded_texts, numbered_members, numbered_works, same_text_works
from sentence_experts.tables import check_columns

LINK_COUNTS = (1, 2, 3, 5)


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

    def __init__(self, corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine) -> None:
        self._engine = engine
        self._settings = settings
        self._papers, self._references = engine.read(corpus.papers), engine.read(corpus.citations)
        for path, schema in ((corpus.papers, PAPERS_SCHEMA), (corpus.citations, CITATIONS_SCHEMA)):
            check_columns(str(path), schema.names, pq.read_schema(path).names)
        self._citations = identified(self._references)
        self._mentions: str | None = None
        if settings.needs_mentions or (settings.trained_levels and corpus.has_mentions):
            self._mentions = engine.read(corpus.mentions)
        self._texts = self._with_texts()
        domains, self.domain_counts = domains_of_works(
            engine,
            settings.unit,
            self._texts,
            self._papers,
            self._references,
            settings.domains,
            corpus.domains,
        )
        self._works = engine.compute(numbered_works(self._texts, domains))
        self._wanted = engine.compute(same_text_works(self._texts, self._works))
        works = engine.rows(f"SELECT work, same_text, year FROM {self._works} ORDER BY work")
        self._same_text = _wide(works["same_text"])
        self._year = works["year"].fill_null(UNKNOWN_YEAR).to_numpy()
        members = self._number_members(domains)
        self.long_lists: dict[str, int] | None = None
        self._making_pairs: list[str] = []  # joins that keep the citations that can link
        if settings.max_references is not None:
            self._leave_out_long_lists(settings.max_references)
        if settings.relation == "coupling":
            few = engine.compute(references_of_few(self._citations, self._wanted, settings.rare))
            self._making_pairs.append(f"SEMI JOIN {few} USING (cited)")
        self.pairs = self._linked_pairs(members)
        if len(self.pairs) == 0:
            raise NothingLinkedError(self._nothing_linked())

    def _with_texts(self) -> str:
        """The table `folded_texts` of the papers that are kept; also counts the others."""
        texts = self._engine.compute(folded_texts(self._settings.unit, self._papers, self._references))
        kinds = ", ".join(f"'{kind}'" for kind in sorted(NOTICE_KINDS))
        conditions = ("retracted", f"kind IN ({kinds})")
        counts = (
            self._engine.rows(f"""SELECT count(*) AS papers FROM {texts}
                SEMI JOIN (SELECT paper_id FROM {self._papers} WHERE {condition}) AS p USING (paper_id)""")
            for condition in conditions
        )
        self.retracted, self.notices = (each["papers"][0].as_py() for each in counts)
        are_kept = (self._settings.keep_retracted, self._settings.keep_notices)
        out = [condition for condition, kept in zip(conditions, are_kept, strict=True) if not kept]
        if not out:
            return texts
        return self._engine.compute(f"""SELECT * FROM {texts} ANTI JOIN (
            SELECT paper_id FROM {self._papers} WHERE {" OR ".join(out)}) AS out USING (paper_id)""")

    def _number_members(self, domains: str) -> str:
        """The table of `numbered_members`; also stored in arrays by member."""
        names = self._engine.rows(f"SELECT DISTINCT domain FROM {domains}")["domain"].to_pylist()
        self._domain_names = np.array(sorted(names), dtype=object)
        numbers = pa.array(np.arange(len(names), dtype=np.int32))
        named = self._engine.store(
            pa.table({"domain": pa.array(sorted(names), pa.string()), "domain_number": numbers})
        )
        members = self._engine.compute(numbered_members(self._works, domains, named))
        columns = self._engine.rows(f"SELECT work, domain_number FROM {members} ORDER BY member")
        self._work_of_member = _wide(columns["work"])
        self._domain_of_member = columns["domain_number"].to_numpy()
        return members

    def _leave_out_long_lists(self, max_references: int) -> None:
        long = self._engine.compute(long_lists(self._references, max_references))
        of_works = " ".join(
            f"SEMI JOIN {self._works} AS {end}_work ON c.{end} = {end}_work.paper_id"
            for end in MEMBER_ENDS[self._settings.relation]
        )
        left_out = f"""SELECT DISTINCT c.citing, c.cited FROM {self._citations} AS c
            SEMI JOIN {long} AS listed ON c.citing = listed.citing {of_works}"""
        counts = f"SELECT count(DISTINCT citing) AS papers, count(*) AS citations FROM ({left_out}) AS out"
        self.long_lists = self._engine.rows(counts).to_pylist()[0]
        self._making_pairs.append(f"ANTI JOIN {long} USING (citing)")

    def _that_link(self, citations: str) -> str:
        """The citations that can link, under the settings."""
        return f"(SELECT * FROM {citations} AS every {' '.join(self._making_pairs)})"

    def _linked_pairs(self, members: str) -> PairArrays:
        """The linked pairs; also sets `link_counts` and `same_text_pairs`."""
        least = self._settings.min_count
        citations = self._that_link(self._citations)
        if self._mentions is None:
            links = RELATIONS[self._settings.relation](citations, members)
        else:
            mentions = self._that_link(self._mentions)
            links = co_cited_within(citations, mentions, members, self._settings.within)
        columns = self._engine.rows(
            f"SELECT * FROM ({links}) AS links WHERE count >= {least} ORDER BY one, other"
        )
        one, other, count = (columns[name].to_numpy() for name in ("one", "other", "count"))
        level = columns["level"].to_numpy() if self._mentions is not None else None
        weight = columns["weight"].to_numpy() if self._settings.frequency == "proximity" else None
        del columns
        self.link_counts = {
            str(level): int((count >= level).sum())
            for level in sorted({least, *LINK_COUNTS})
            if level >= least
        }
        # Members of one domain are in the order of the works; over all domains the works come first.
        domain = self._domain_of_member[one]
        left, right = self._work_of_member[one], self._work_of_member[other]
        of_two_texts = self._same_text[left] != self._same_text[right]
        self.same_text_pairs = int((~of_two_texts).sum())
        pairs = PairArrays(left, right, count, self._domain_names[domain], level, weight)
        if len(self._domain_names) == 1:
            return pairs if of_two_texts.all() else pairs.take(of_two_texts)
        order = np.lexsort((domain, right, left))
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
        among = self._engine.store(pa.table({"work": works, "same_text": self._same_text[works]}))
        members = f"""(SELECT paper_id, same_text AS member, 0 AS domain_number
            FROM {self._neighbours.texts} SEMI JOIN {among} USING (same_text))"""
        links = RELATIONS[self._settings.relation](self._that_link(self._neighbours.citations), members)
        known = self._engine.rows(f"""WITH ends AS (
                SELECT a.work AS one, b.work AS other FROM ({links}) AS links
                JOIN {among} AS a ON links.one = a.same_text JOIN {among} AS b ON links.other = b.same_text
                UNION ALL SELECT a.work, b.work FROM {among} AS a JOIN {among} AS b USING (same_text))
            SELECT DISTINCT least(one, other) AS first, greatest(one, other) AS second FROM ends
            WHERE one <> other ORDER BY first, second""")
        ids = self._named(works)["paper_id"]
        ends = (ids.take(np.searchsorted(works, known[end])) for end in ("first", "second"))
        return pa.table(dict(zip(("left_id", "right_id"), ends, strict=True))).combine_chunks()

    def in_domain(self, domain: str) -> np.ndarray:
        """A mask of shape (works,) of the works of a domain."""
        of_domain = self._domain_names[self._domain_of_member] == domain
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
        requested = self._engine.store(pa.table({"work": works}))
        return self._engine.rows(f"""SELECT paper_id, text FROM {self._works}
            SEMI JOIN {requested} USING (work)
            JOIN (SELECT paper_id, text FROM {self._texts}) AS texts USING (paper_id) ORDER BY work""")

    def works_table(self, works: np.ndarray) -> pa.Table:
        """Return facts about works (ascending numbers) beside their text, as in `dataset.WORKS_SCHEMA`."""
        requested = self._engine.store(
            pa.table({"work": works, "times_cited": self.works.times_cited[works]})
        )
        known = self._engine.rows(f"""SELECT w.paper_id, times_cited, coalesce(entries, 0), w.year, journal
            FROM {self._works} AS w JOIN {requested} AS r ON w.work = r.work
            LEFT JOIN (SELECT citing, count(*) AS entries FROM {self._references} GROUP BY citing) AS made
                ON w.paper_id = made.citing
            LEFT JOIN {self._papers} AS p ON w.paper_id = p.paper_id ORDER BY w.work""")
        return known.rename_columns(WORKS_SCHEMA.names).cast(WORKS_SCHEMA)

    def _linked_by(self, table: pa.Table) -> pa.Array:
        """For each pair of a table the ids of the papers through which its works are linked: lists."""
        rows = np.flatnonzero(table["label"].to_numpy())
        ends = {"one": table["anchor_id"].take(rows), "other": table["positive_id"].take(rows)}
        requested = self._engine.store(pa.table({"pair": rows, **ends}))
        citations = self._that_link(self._neighbours.citations)
        links = linking(requested, citations, self._settings.relation)
        linked = self._engine.rows(f"SELECT * FROM ({links}) AS links ORDER BY pair, through")
        bounds = np.searchsorted(linked["pair"].to_numpy(), np.arange(table.num_rows + 1))
        through = linked["through"].cast(pa.string()).combine_chunks()
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), through)


def _wide(column: pa.ChunkedArray) -> np.ndarray:
    """The column as 64-bit integers, so that products do not overflow."""
    numbers: np.ndarray = column.to_numpy().astype(np.int64)
    return numbers
