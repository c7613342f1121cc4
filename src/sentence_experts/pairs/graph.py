"""A corpus as a graph of works: their links, their domains, and the articles that cite them."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.paper import NOTICE_KINDS, TELLING, Paper, is_retracted, kind_of
from sentence_experts.pairs.config import LEVELS, PairsConfig
from sentence_experts.pairs.dataset import LINKED_BY, WITHIN, WORKS_SCHEMA
from sentence_experts.pairs.domains import domains_of_works
from sentence_experts.pairs.links import (
    BEYOND_THE_CORPUS,
    co_cited_within,
    references_of_few,
    select_folded_texts,
    select_linked_members,
    select_linking,
    select_numbered_members,
    select_numbered_works,
    select_touching,
)
from sentence_experts.pairs.negatives import PairTest
from sentence_experts.pairs.pair_tables import PAIR_COLUMNS
from sentence_experts.pairs.splits import (
    UNKNOWN_YEAR,
    CitingArticles,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
)
from sentence_experts.pairs.sql_engine import SqlEngine

logger = logging.getLogger(__name__)

KNOWN_REFERENCES = 1000  # longer lists, as of bibliographies, say nothing of what is a negative
LINK_COUNTS = (1, 2, 3, 5)
PAIRS_AT_ONCE = 20_000
MAX_TABLE = 4_000  # maximum number of texts for a table of all pairs, which then takes 16 MB
# Relation -> the ends of a citation that are members if it makes pairs.
_MEMBER_ENDS = {"co-citation": ("cited",), "coupling": ("citing",), "citation": ("citing", "cited")}


class NothingLinkedError(TooFewPairsError):
    """An error of settings under which no two works are linked."""


class _AllCitations(NamedTuple):
    """The names of the tables of all citations that the works make and receive.

    Attributes:
        by_id: table of `citing, cited`, distinct ids.
        texts: table of `paper_id, node, same_text` of the ends that have a text, numbered from the works on;
            `same_text` is the smallest number of those with that text.
        by_node: table of `citing, cited`, by number.
        by_text: the same table between texts; a citation of a reprint is one of the paper.
    """

    by_id: str
    texts: str
    by_node: str
    by_text: str


class LinkGraph:
    """The works of a corpus that can be in a pair, numbered in the order of their ids, and their links.

    Those are the works that have the unit's text and a domain. They are found first, so that only their
    citations are joined, within each domain; one pass over the citations gives the pairs. A second pass gives
    all citations that the works make and receive under every id that their texts were published under, also
    those in long reference lists: for clean negatives and the split by article.

    Attributes:
        pairs: linked pairs of one domain and two texts, by works and domain.
        works: works, with the number of citations of each within the corpus.
        counts: numbers in the manifest about papers and links: `papers` of each domain, if there are rules;
            `retracted` papers and `notices` (`NOTICE_KINDS`) with the unit's text; `link_counts`, pairs
            linked at least 1, 2, 3, 5 times, from `min_count` on; `left_out_by_max_references`, papers and
            their citations of works that can be in a pair (with coupling: by such works), None without that
            setting.
    """

    def __init__(self, corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine) -> None:
        self._engine, self._settings = engine, settings
        self._papers, self._references = engine.read(corpus.papers), engine.read(corpus.citations)
        self._mentions: str | None = None
        if settings.needs_mentions or (settings.trained_levels and corpus.has_mentions):
            self._mentions = engine.read(corpus.mentions)
        self._texts, left_out = self._compute_texts()
        domains, papers = domains_of_works(
            engine, settings, self._texts, self._papers, self._references, corpus.domains
        )
        self._works = engine.compute(select_numbered_works(self._texts, domains))
        works = engine.rows(f"SELECT work, same_text, year FROM {self._works} ORDER BY work")
        self._same_text = _widen(works["same_text"])
        self._year = works["year"].fill_null(UNKNOWN_YEAR).to_numpy()
        members = engine.compute(select_numbered_members(self._works, domains))
        columns = engine.rows(f"SELECT work, domain FROM {members} ORDER BY member")
        self._work_of_member = _widen(columns["work"])
        self._domain_of_member = columns["domain"].to_numpy().astype(object)
        # All references with an identifier, and the works under every id that their text has.
        self._cited = f"(SELECT citing, cited FROM {self._references} WHERE citing <> cited)"
        self._wanted = engine.compute(f"""SELECT paper_id FROM {self._texts} SEMI JOIN (
            SELECT folded FROM {self._texts} SEMI JOIN {self._works} USING (paper_id)) AS wanted
            USING (folded)""")
        self._short = self._not_very_long = self._rare = ""  # joins that keep the citations that can link
        long_lists = None
        if settings.max_references is not None:
            long_lists = self._leave_out_long_lists(settings.max_references)
        if settings.relation == "coupling":
            few = engine.compute(references_of_few(self._cited, self._wanted, settings.rare))
            self._rare = f"SEMI JOIN {few} USING (cited)"
        self.pairs, link_counts = self._link_works(members)
        if len(self.pairs) == 0:
            longer = ", a larger `max_references`" if long_lists else ""
            raise NothingLinkedError(
                f"no two works of the same domain that have the text (`unit={settings.unit}`) are linked by "
                f"{settings.relation}{settings.at_least}; check `domains` and `min_count`, or try "
                f"another `relation` or `unit`{longer}"
            )
        self.counts = {
            "papers": papers, "link_counts": link_counts, "left_out_by_max_references": long_lists, **left_out
        }  # fmt: skip

    def _compute_texts(self) -> tuple[str, dict[str, int]]:
        """Compute the texts of the papers that are kept (`select_folded_texts`), and count the others."""
        texts = self._engine.compute(select_folded_texts(self._settings.unit, self._papers, self._references))
        kinds = ", ".join(f"'{kind}'" for kind in sorted(NOTICE_KINDS))
        works = f"SELECT paper_id, retracted, kind IN ({kinds}) AS is_notice FROM {self._papers}"
        if self._settings.unit in BEYOND_THE_CORPUS:
            works += f" UNION ALL SELECT * FROM {self._judge_titles(texts)}"
        counts = self._engine.rows(f"""SELECT coalesce(sum(CAST(retracted AS INT)), 0) AS retracted,
            coalesce(sum(CAST(is_notice AS INT)), 0) AS notices
            FROM ({works}) AS works SEMI JOIN {texts} USING (paper_id)""").to_pylist()[0]
        out = [] if self._settings.keep_retracted else ["retracted"]
        out += [] if self._settings.keep_notices else ["is_notice"]
        if out:
            texts = self._engine.compute(f"""SELECT * FROM {texts} ANTI JOIN (
                SELECT paper_id FROM ({works}) AS works WHERE {" OR ".join(out)}) AS out USING (paper_id)""")
        return texts, {name: int(count) for name, count in counts.items()}

    def _judge_titles(self, texts: str) -> str:
        """Return a table of the works outside the corpus whose titles tell of a notice or a retraction."""
        telling = " OR ".join(f"lower(text) LIKE '%{word}%'" for word in TELLING)
        found = self._engine.rows(f"""SELECT paper_id, text
            FROM {texts} ANTI JOIN {self._papers} USING (paper_id) WHERE {telling} ORDER BY paper_id""")
        works = [Paper(title=title) for title in found["text"].to_pylist()]
        columns = {
            "paper_id": found["paper_id"],
            "retracted": pa.array(map(is_retracted, works), pa.bool_()),
            "is_notice": pa.array([kind_of(work) in NOTICE_KINDS for work in works], pa.bool_()),
        }
        return self._engine.store(pa.table(columns))

    def _leave_out_long_lists(self, max_references: int) -> dict[str, int]:
        """Let papers with more references, identified or not, link nothing, and count them."""
        counted = f"SELECT citing FROM {self._references} GROUP BY citing HAVING count(*) >"
        long = self._engine.compute(f"{counted} {max_references}")
        very_long = self._engine.compute(f"{counted} {max(max_references, KNOWN_REFERENCES)}")
        of_works = " ".join(
            f"SEMI JOIN {self._works} AS {end}_work ON c.{end} = {end}_work.paper_id"
            for end in _MEMBER_ENDS[self._settings.relation]
        )
        counts = self._engine.rows(f"""SELECT count(DISTINCT citing) AS papers, count(*) AS citations FROM (
            SELECT DISTINCT c.citing, c.cited FROM {self._cited} AS c
            SEMI JOIN {long} AS listed ON c.citing = listed.citing {of_works}) AS out""")
        self._short = f"ANTI JOIN {long} USING (citing)"
        self._not_very_long = f"ANTI JOIN {very_long} USING (citing)"
        row: dict[str, int] = counts.to_pylist()[0]
        return row

    def _that_link(self, citations: str) -> str:
        """Return the citations that can link, under the settings."""
        return f"(SELECT * FROM {citations} AS every {self._short} {self._rare})"

    def _warn_of_no_text(self) -> None:
        """Warn if more than a tenth of the papers that cite came without text."""
        [counts] = self._engine.rows(f"""SELECT
            count(DISTINCT c.citing) AS every, count(DISTINCT m.citing) AS known
            FROM {self._cited} AS c LEFT JOIN (SELECT DISTINCT citing FROM {self._mentions}) AS m
            ON c.citing = m.citing""").to_pylist()
        without = counts["every"] - counts["known"]
        message = (
            f"{without:,} of {counts['every']:,} papers that cite came without their text: they link nothing "
            f"within a {self._settings.within}"
        )
        if 10 * without > counts["every"] and message not in self._engine.warned:
            logger.warning(message)
            self._engine.warned.add(message)

    def _link_works(self, members: str) -> tuple[PairArrays, dict[str, int]]:
        """Return the linked pairs, and the number of pairs by how often they are linked."""
        settings, cited = self._settings, self._that_link(self._cited)
        if self._mentions is not None and settings.within != "article":
            self._warn_of_no_text()
        if self._mentions is None:
            links = select_linked_members(settings.relation, cited, members)
        else:
            links = co_cited_within(cited, self._that_link(self._mentions), members, settings.within)
        columns = self._engine.rows(
            f"SELECT * FROM ({links}) AS links WHERE count >= {settings.min_count} ORDER BY one, other"
        )
        one, other, count = (columns[name].to_numpy() for name in ("one", "other", "count"))
        level = columns["level"].to_numpy() if self._mentions is not None else None
        del columns
        counted = {settings.min_count, *(each for each in LINK_COUNTS if each > settings.min_count)}
        left, right = self._work_of_member[one], self._work_of_member[other]
        of_two_texts = self._same_text[left] != self._same_text[right]
        pairs = PairArrays(left, right, count, self._domain_of_member[one], level)
        # Members are in the order of domains and then works; over all domains the works come first.
        order = np.lexsort((right, left))
        return pairs.take(order[of_two_texts[order]]), {
            str(times): int((count[of_two_texts] >= times).sum()) for times in sorted(counted)
        }

    @cached_property
    def _every(self) -> _AllCitations:
        compute, works = self._engine.compute, self._works
        by_id = compute(select_touching(self._cited, self._wanted))
        # The works keep their numbers; the other ends follow in the order of their ids.
        nodes = compute(f"""SELECT paper_id, work AS node FROM {works} UNION ALL
            SELECT paper_id, CAST(row_number() OVER (ORDER BY paper_id) - 1
                + (SELECT count(*) FROM {works}) AS INT) AS node
            FROM (SELECT paper_id FROM {self._wanted} UNION SELECT citing FROM {by_id}
                UNION SELECT cited FROM {by_id}) AS ends ANTI JOIN {works} USING (paper_id)""")
        texts = compute(f"""SELECT paper_id, node, min(node) OVER (PARTITION BY folded) AS same_text
            FROM {self._texts} JOIN {nodes} USING (paper_id)""")
        by_node = compute(f"""SELECT a.node AS citing, b.node AS cited FROM {by_id} AS c
            JOIN {nodes} AS a ON c.citing = a.paper_id JOIN {nodes} AS b ON c.cited = b.paper_id""")
        by_text = compute(f"""SELECT DISTINCT citing, cited FROM (
                SELECT coalesce(a.same_text, c.citing) AS citing, coalesce(b.same_text, c.cited) AS cited
                FROM {by_node} AS c LEFT JOIN {texts} AS a ON c.citing = a.node
                LEFT JOIN {texts} AS b ON c.cited = b.node
            ) AS renamed WHERE citing <> cited""")
        return _AllCitations(by_id, texts, by_node, by_text)

    @cached_property
    def works(self) -> WorkArrays:
        """The works, with the number of citations of each within the corpus."""
        number = len(self._same_text)
        counts = self._engine.rows(f"""SELECT cited, count(*) AS times FROM {self._every.by_node}
            WHERE cited < {number} GROUP BY cited""")
        times_cited = np.zeros(number, dtype=np.int64)
        times_cited[counts["cited"].to_numpy()] = counts["times"].to_numpy()
        return WorkArrays(self._same_text, self._year, times_cited)

    def links_among(self, works: np.ndarray) -> PairTest:
        """Make a test that gives a mask of shape (pairs,) of the pairs of these works that a relation links.

        A link of a work is also one of all works with the same text. Links through long reference lists and
        through references that many cite count too.
        """
        text = self._same_text
        texts = np.unique(text[works])
        asked = self._engine.store(pa.table({"paper_id": texts}))
        links = self._engine.rows(select_touching(self._every.by_text, asked))
        linked = find_links(texts, _widen(links["citing"]), _widen(links["cited"]))
        return lambda left, right: linked(text[left], text[right])

    def citing_articles(self, pairs: PairArrays) -> CitingArticles:
        """Return the articles that cite both works of each pair, ordered by pair and article.

        Articles with long reference lists count too: they make no pairs, but must not be behind two sets.
        """
        asked = self._engine.store(
            pa.table({"pair": np.arange(len(pairs)), "one": pairs.left, "other": pairs.right})
        )
        rows = self._engine.rows(f"""SELECT pair, through, coalesce(same_text, through) AS text
            FROM ({select_linking(asked, self._every.by_node, "co-citation")}) AS behind
            LEFT JOIN {self._every.texts} AS t ON through = node ORDER BY pair, through""")
        return CitingArticles(*(_widen(column) for column in rows.columns))

    def known_links(self, works: np.ndarray) -> pa.Table:
        """Return `left_id, right_id` (left < right) of every link between the works, of any count and domain.

        A link of a text is one of all works with that text, and those are linked with each other: none is a
        negative of another. Ordered by the ids, which is the order of the work numbers.
        """
        among = self._engine.store(pa.table({"work": works, "same_text": self._same_text[works]}))
        members = f"""(SELECT paper_id, same_text AS member, 0 AS domain_number
            FROM {self._every.texts} SEMI JOIN {among} USING (same_text))"""
        # Long lists make no pairs, and no negatives either, but for those that would link too many.
        citations = f"(SELECT * FROM {self._every.by_id} AS every {self._not_very_long} {self._rare})"
        links = select_linked_members(self._settings.relation, citations, members)
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
        """Return a mask of shape (works,) of the works of a domain."""
        mask = np.zeros(len(self._same_text), dtype=bool)
        mask[self._work_of_member[self._domain_of_member == domain]] = True
        return mask

    def pair_table(self, pairs: PairArrays, labels: np.ndarray, rng: np.random.Generator) -> pa.Table:
        """Return the pairs with texts and ids, in random order, and the two ends of a pair in random order.

        Pairs with levels get a column `within`: the closest level, null if they have none; labelled
        pairs get `linked_by`.
        """
        order = rng.permutation(len(pairs))
        ends = np.stack([pairs.left[order], pairs.right[order]])
        ends = np.where(rng.random(len(pairs)) < 0.5, ends[::-1], ends)
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

    def _named(self, works: np.ndarray) -> pa.Table:
        """Return `paper_id` and `text` of works (ascending numbers)."""
        asked = self._engine.store(pa.table({"work": works}))
        return self._engine.rows(f"""SELECT paper_id, text FROM {self._works} SEMI JOIN {asked} USING (work)
            JOIN (SELECT paper_id, text FROM {self._texts}) AS texts USING (paper_id) ORDER BY work""")

    def works_table(self, works: np.ndarray) -> pa.Table:
        """Return facts about works (ascending numbers) beside their text, as in `dataset.WORKS_SCHEMA`."""
        asked = self._engine.store(pa.table({"work": works, "times_cited": self.works.times_cited[works]}))
        known = self._engine.rows(f"""SELECT w.paper_id, times_cited, coalesce(entries, 0), w.year, journal
            FROM {self._works} AS w JOIN {asked} AS r ON w.work = r.work
            LEFT JOIN (SELECT citing, count(*) AS entries FROM {self._references} GROUP BY citing) AS made
                ON w.paper_id = made.citing
            LEFT JOIN {self._papers} AS p ON w.paper_id = p.paper_id ORDER BY w.work""")
        return known.rename_columns(WORKS_SCHEMA.names).cast(WORKS_SCHEMA)

    def _linked_by(self, table: pa.Table) -> pa.Array:
        """Return lists of the ids of the papers through which the works of each pair are linked."""
        rows = np.flatnonzero(table["label"].to_numpy())
        ends = {"one": table["anchor_id"].take(rows), "other": table["positive_id"].take(rows)}
        asked = self._engine.store(pa.table({"pair": rows, **ends}))
        links = select_linking(asked, self._that_link(self._every.by_id), self._settings.relation)
        linked = self._engine.rows(f"SELECT * FROM ({links}) AS links ORDER BY pair, through")
        bounds = np.searchsorted(linked["pair"].to_numpy(), np.arange(table.num_rows + 1))
        through = linked["through"].cast(pa.string()).combine_chunks()
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), through)


def find_links(texts: np.ndarray, citing: np.ndarray, cited: np.ndarray) -> PairTest:
    """Make a test of which pairs of `texts` (ascending numbers) are linked, given all citations of texts.

    Two texts are linked if one cites the other, a third paper cites both or both cite a third work, however
    often that is cited.
    """
    size = int(max(texts.max(initial=0), citing.max(initial=0), cited.max(initial=0))) + 1
    made, received = np.isin(citing, texts), np.isin(cited, texts)
    # Columns: the papers that cite the text, then the works that it cites. A text counts among its citing
    # papers, so that it shares a column with what it cites.
    rows = np.searchsorted(texts, np.concatenate([texts, cited[received], citing[made]]))
    columns = np.concatenate([texts, citing[received], size + cited[made]])
    near = csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(len(texts), 2 * size))
    near.sum_duplicates()
    # Negatives of few texts are sought in many small rounds, for which a look-up is ten times as fast.
    table = (near @ near.T).toarray() > 0 if len(texts) <= MAX_TABLE else None

    def linked(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        one, other = np.searchsorted(texts, left), np.searchsorted(texts, right)
        if table is not None:
            known: np.ndarray = table[one, other]
            return known
        masks = [np.zeros(0, dtype=bool)]
        for start in range(0, len(one), PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            masks.append(np.diff(csr_array(near[one[some]].multiply(near[other[some]])).indptr) > 0)
        return np.concatenate(masks)

    return linked


def _widen(column: pa.ChunkedArray) -> np.ndarray:
    """Return the column as 64-bit integers, so that products do not overflow."""
    numbers: np.ndarray = column.to_numpy().astype(np.int64)
    return numbers
