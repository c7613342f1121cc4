"""A corpus as a graph of works: who cites whom, which works are linked, what domain each is in."""

from __future__ import annotations

from pathlib import Path

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts.corpus.tables import CorpusFolder
from sentence_experts.errors import InputError
from sentence_experts.pairs import sampling
from sentence_experts.pairs.article_split import CitingArticles
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.pairs.links import RELATIONS, citing_both, linked_by_any
from sentence_experts.pairs.settings import PairSettings
from sentence_experts.pairs.splits import UNKNOWN_YEAR, PairArrays, WorkArrays
from sentence_experts.pairs.works import (
    citations_of_texts,
    domains_of_cited,
    number_nodes,
    numbered_citations,
    numbered_works,
    within_years,
)

ONE_DOMAIN = "all"
LINK_COUNTS = (1, 2, 3, 5)


class LinkGraph:
    """A corpus under node numbers: its works, citations and linked pairs, joined by an SQL engine."""

    def __init__(
        self, corpus: CorpusFolder, settings: PairSettings, rules_file: Path | None, scratch: Path
    ) -> None:
        self._engine = ibis.duckdb.connect()
        self._engine.raw_sql("SET enable_progress_bar = false")
        self._scratch = scratch
        self._rounds = 0
        papers = self._engine.read_parquet(str(corpus.papers), table_name="papers")
        citations = self._engine.read_parquet(str(corpus.citations), table_name="citations")
        nodes = self._kept("nodes", number_nodes(papers, citations))
        self._texts = self._kept("works", numbered_works(settings.unit, papers, citations, nodes))
        self._citations = self._kept("edges", numbered_citations(citations, nodes))
        self._citations_of_texts = self._kept("texts", citations_of_texts(self._citations, self._texts))
        self.works = self._work_arrays()
        links = RELATIONS[settings.relation](self._citations, self._texts.select("work"), settings.rare)
        self._every_link = self._kept("every_link", links)
        self.link_counts = _at_least(self._every_link)
        self._links = self._kept("links", self._of_two_texts(self._every_link))
        self.same_text_pairs = self.link_counts["1"] - self._links.count().to_pyarrow().as_py()
        memberships = self._memberships(papers, nodes, rules_file)
        self.pairs = self._pairs_of_one_domain(memberships, settings.min_count)
        if len(self.pairs) == 0:
            raise InputError(self._nothing_linked(settings))
        self.memberships = memberships.select("work", "domain").to_pyarrow()

    def _kept(self, name: str, expression: ir.Table) -> ir.Table:
        """The expression's rows, computed once and put on disk."""
        path = self._scratch / f"{name}.parquet"
        expression.to_parquet(path)
        return self._engine.read_parquet(str(path), table_name=name)

    def _stored(self, name: str, table: pa.Table) -> ir.Table:
        path = self._scratch / f"{name}.parquet"
        pq.write_table(table, path)
        return self._engine.read_parquet(str(path), table_name=name)

    def _asked(self, **columns: np.ndarray) -> ir.Table:
        """A table of node numbers that is joined once."""
        self._rounds += 1
        return self._stored(f"asked_{self._rounds}", pa.table(columns))

    def _work_arrays(self) -> WorkArrays:
        times = self._citations.group_by("cited").aggregate(times=self._citations.citing.count())
        works = self._texts.left_join(times, self._texts.work == times.cited)
        columns = works.select("work", "same_text", "year", "times").order_by("work").to_pyarrow()
        return WorkArrays(
            work=columns["work"].to_numpy(),
            same_text=columns["same_text"].to_numpy(),
            year=columns["year"].fill_null(UNKNOWN_YEAR).to_numpy(),
            times_cited=columns["times"].fill_null(0).to_numpy(),
        )

    def _of_two_texts(self, links: ir.Table) -> ir.Table:
        """Links between different texts: a work and its reprint are no pair to learn from."""
        left, right = (self._texts.select("work", "same_text").view() for _ in range(2))
        joined = links.join(left, links.left == left.work).select(*links.columns, left_text="same_text")
        joined = joined.join(right, joined.right == right.work).filter(
            lambda both: both.left_text != both.same_text
        )
        return joined.select("left", "right", "count")

    def _memberships(self, papers: ir.Table, nodes: ir.Table, rules_file: Path | None) -> ir.Table:
        """`work, domain`: one row for each domain of each work; works of no domain have none."""
        if rules_file is None:
            return self._stored(
                "memberships",
                pa.table({"work": self.works.work, "domain": [ONE_DOMAIN] * len(self.works.work)}),
            )
        rules = DomainRules.read(rules_file)
        domains_of = rules.classifier()
        fields = papers.select("paper_id", "title", "subjects", "mesh", "keywords", "journal", "year")
        inside_nodes = self._kept("fields", fields.join(nodes, "paper_id").order_by("node"))
        found: list[tuple[int, str]] = []
        for batch in pq.ParquetFile(self._scratch / "fields.parquet").iter_batches():
            for paper in batch.to_pylist():
                found.extend((paper["node"], domain) for domain in domains_of(paper))
        if not found:
            raise InputError(f"{rules_file}: no paper of the corpus falls into any of its domains")
        work, domain = zip(*found, strict=True)
        inside = self._stored("inside", pa.table({"work": work, "domain": domain}))
        outside = domains_of_cited(self._texts, inside_nodes, self._citations, inside)
        years = {name: rule.years for name, rule in rules.domains.items() if rule.years is not None}
        outside = within_years(outside, self._texts, years)
        return self._kept("memberships", inside.union(outside.select("work", "domain")))

    def _pairs_of_one_domain(self, memberships: ir.Table, min_count: int) -> PairArrays:
        left, right = memberships.view(), memberships.view()
        links = self._links.filter(self._links["count"] >= min_count)
        joined = links.join(left, links.left == left.work).select(*links.columns, "domain")
        same = joined.semi_join(right, [joined.right == right.work, joined.domain == right.domain])
        columns = same.order_by("left", "right", "domain").to_pyarrow()
        # One string a domain, not one a pair.
        domains = columns["domain"].combine_chunks().dictionary_encode()
        names = np.array(domains.dictionary.to_pylist(), dtype=object)
        return PairArrays(
            left=columns["left"].to_numpy(),
            right=columns["right"].to_numpy(),
            count=columns["count"].to_numpy(),
            domain=names[domains.indices.to_numpy()],
        )

    def _nothing_linked(self, settings: PairSettings) -> str:
        if self.link_counts["1"] == 0:
            return (
                f"no two works with a {settings.unit} are linked by {settings.relation}; "
                "try another --relation or --unit"
            )
        return (
            f"{self.link_counts['1']} pairs are linked by {settings.relation}, but none has both works in "
            f"one domain and a count of at least {settings.min_count}; look at --domains and --min-count"
        )

    def linked(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Which of the pairs (node numbers) any relation links: a mask of shape (pairs,).

        A link of one of two works with the same text is a link of the other.
        """
        left, right = (self.works.same_text[self.works.rows(ends)] for ends in (left, right))
        candidates = self._asked(left=left, right=right)
        hits = linked_by_any(candidates, self._citations_of_texts).to_pyarrow()
        size = int(self.works.work.max()) + 1
        return np.isin(left * size + right, hits["left"].to_numpy() * size + hits["right"].to_numpy())

    def citing_articles(self, pairs: PairArrays) -> CitingArticles:
        """The articles that cite both works of each pair, ordered by pair and article."""
        asked = self._asked(pair=np.arange(len(pairs)), left=pairs.left, right=pairs.right)
        found = citing_both(asked, self._citations).order_by("pair", "article").to_pyarrow()
        return CitingArticles(found["pair"].to_numpy(), found["article"].to_numpy())

    def known_links(self, works: np.ndarray) -> pa.Table:
        """`left_id, right_id` (left < right) of every link between the works, whatever its count and domain.

        What links a text links all works with that text, and those are links of each other: none of them is
        a negative of another. Ordered by the ids, which is the order of the node numbers.
        """
        among = self._asked(work=works, same_text=self.works.same_text[self.works.rows(works)])
        first, second = among.view(), among.view()
        links = self._text_links_among(among)
        linked = links.join(first, links.left_text == first.same_text).select("right_text", one="work")
        linked = linked.join(second, linked.right_text == second.same_text).select("one", other="work")
        twins = first.join(second, first.same_text == second.same_text).select(
            one=first.work, other=second.work
        )
        both = linked.union(twins).filter(lambda ends: ends.one != ends.other)
        ends = both.select(left=ibis.least(both.one, both.other), right=ibis.greatest(both.one, both.other))
        ends = ends.distinct().order_by("left", "right").to_pyarrow()
        named = self._texts.semi_join(among, "work").select("work", "paper_id").order_by("work").to_pyarrow()
        numbers, ids = named["work"].to_numpy(), named["paper_id"]
        columns = {f"{end}_id": ids.take(np.searchsorted(numbers, ends[end])) for end in ("left", "right")}
        return pa.table(columns).combine_chunks()

    def _text_links_among(self, among: ir.Table) -> ir.Table:
        """`left_text, right_text` of every link between works that have a text of `among(same_text)`."""
        wanted = self._texts.semi_join(among, "same_text").select("work", "same_text")
        left, right = wanted.view(), wanted.view()
        links = self._every_link
        links = links.join(left, links.left == left.work).select("right", left_text="same_text")
        links = links.join(right, links.right == right.work).select("left_text", right_text="same_text")
        return links.distinct()

    def in_domain(self, domain: str) -> np.ndarray:
        """Which of `works` are of a domain: a mask of shape (works,)."""
        nodes = self.memberships.filter(pc.equal(self.memberships["domain"], domain))["work"].to_numpy()
        return np.isin(self.works.work, nodes)

    def pair_table(self, pairs: PairArrays, labels: np.ndarray, rng: np.random.Generator) -> pa.Table:
        """The pairs with texts and ids, in random order, each with its two ends in random order."""
        order = PairArrays(pairs.left, pairs.right, pairs.count, np.arange(len(pairs)))
        order = sampling.shuffled(order, rng)
        needed = np.unique(np.concatenate([order.left, order.right]))
        texts = self._texts.semi_join(self._asked(work=needed), "work").order_by("work").to_pyarrow()
        left, right = np.searchsorted(needed, order.left), np.searchsorted(needed, order.right)
        columns = {
            "anchor": texts["text"].take(left),
            "positive": texts["text"].take(right),
            "label": pa.array(labels[order.domain], pa.int64()),
            "domain": pa.array(pairs.domain[order.domain].tolist(), pa.string()),
            "count": pa.array(order.count, pa.int64()),
            "anchor_id": texts["paper_id"].take(left),
            "positive_id": texts["paper_id"].take(right),
        }
        return pa.table({name: columns[name] for name in PAIR_COLUMNS}).combine_chunks()


def _at_least(links: ir.Table) -> dict[str, int]:
    """How many pairs are linked at least 1, 2, 3, 5 times."""
    counts = links.aggregate(
        **{f"at_least_{least}": (links["count"] >= least).sum() for least in LINK_COUNTS}
    ).to_pyarrow()
    return {str(least): counts[f"at_least_{least}"][0].as_py() or 0 for least in LINK_COUNTS}
