"""`search`: the papers of a corpus that are nearest to a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentence_experts.corpus.tables import Corpus, open_corpus
from sentence_experts.encoding.encode import Model, open_encoder
from sentence_experts.errors import UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.retrieval.config import SearchConfig
from sentence_experts.retrieval.searcher import Hit, Searcher
from sentence_experts.tables import Table, TextTable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SearchResult:
    """The papers found for each query.

    Attributes:
        queries: the texts that were searched for.
        papers: per query, best first: dicts of `rank` (from 1), `score` (cosine), `percentile` (the share of
            the corpus's papers with a lower cosine), `link` and what the corpus knows of the paper.
    """

    queries: list[str]
    papers: list[list[dict[str, Any]]]

    def __iter__(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        return iter(zip(self.queries, self.papers, strict=True))

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        lines = []
        for query, papers in self:
            lines.append(query)
            for paper in papers:
                retracted = "  [retracted]" if paper.get("retracted") else ""
                title = paper.get("title") or paper["paper_id"]
                lines.append(f"{paper['rank']:>3}  {paper['score']:.3f}  {title}{retracted}")
        return "\n".join(lines)

    def to_pandas(self) -> pd.DataFrame:
        """One row per query and paper."""
        import pandas as pd

        return pd.DataFrame([{"query": query, **paper} for query, papers in self for paper in papers])


def search(
    model: Model,
    corpus: Corpus,
    queries: str | Table,
    config: SearchConfig | None = None,
    *,
    load_config: LoadConfig | None = None,
    **settings: Any,
) -> SearchResult:
    """Find the papers of a corpus nearest to each query, by the cosine of their vectors.

    Papers and queries are encoded with the same route. The vectors of a corpus are computed the first time
    and stored beside it, and again when the model or the corpus changes.

    Args:
        model: a model in memory, or the path or name of one.
        corpus: a corpus, its folder, or a table of papers (`paper_id`, and `title` or `abstract`).
        queries: one text, or several: a list, a series, a table.
        config: settings; those given by name come before it.
        load_config: how to open a model that is given by its path or name; see `load`.

    Raises:
        UsageError: a bad setting, or an empty query.
        InputError: the corpus cannot be read, has no paper with the text, or cannot be written to.
        RouteError: the model needs a route, or does not know this one.

    Example:
        >>> found = search("model", "corpus", "memory replay", route="neuroscience", unit="title", top_k=3)
        >>> len(found.to_pandas())
        3
    """
    config = SearchConfig.of(config, **settings)
    queries = TextTable([queries] if isinstance(queries, str) else queries).texts()
    if not all(query.strip() for query in queries):
        raise UsageError("a query is empty")
    with open_corpus(corpus) as folder:  # before the model: a wrong path is known at once
        encoder, _ = open_encoder(model, config.route, config.batch_size, load_config)
        searcher = Searcher(encoder, folder, config.unit)
        hits = searcher.search(queries, config.route, config.top_k)
        papers = [described(searcher, ranking) for ranking in hits]
    encoder.log_low_confidence()
    return SearchResult(queries, papers)


def described(searcher: Searcher, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Hits with the facts of their papers."""
    facts = searcher.facts([hit.row for hit in hits])
    return [
        {"rank": hit.rank, "score": hit.score, "percentile": hit.percentile, **fields}
        for hit, fields in zip(hits, facts, strict=True)
    ]
