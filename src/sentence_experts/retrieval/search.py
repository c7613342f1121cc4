"""`search`: the papers of a corpus that are nearest to a text."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sentence_experts.config import PHRASES, BatchSize, with_settings
from sentence_experts.corpus.corpus_folder import Corpus, CorpusFolder
from sentence_experts.encoding.encode import Model
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.retrieval.citation_export import short_authors, short_source
from sentence_experts.retrieval.closeness import is_nothing_close
from sentence_experts.retrieval.papers import FACTS, Filters, Papers
from sentence_experts.retrieval.search_routes import SearchRoute, find_blend
from sentence_experts.retrieval.searcher import Comparison, Hit, Searcher
from sentence_experts.retrieval.taught import DEFAULT, Profile, ProfileName
from sentence_experts.retrieval.taught_routes import TaughtRoutes
from sentence_experts.retrieval.texts import PaperTexts
from sentence_experts.table_files import format_of
from sentence_experts.tables import Table
from sentence_experts.text_table import TextTable

if TYPE_CHECKING:
    import pandas as pd


logger = logging.getLogger(__name__)

Phrases = Annotated[list[str] | None, PHRASES]
Notices = Annotated[
    bool, Field(description="Find corrections, retractions, editorials and other notices too")
]


class SearchConfig(PaperTexts):
    """Settings of `search`."""

    route: str | dict[str, float] | None = Field(
        None,
        description="Route for papers and queries, taught ones too, or several with their weights: "
        "use=0.7,works-with=0.3. "
        "Default: the model's default route, or its routes for queries and documents if it has them",
    )
    top_k: int = Field(10, ge=1, description="Maximum number of papers per query")
    like: list[str] | None = Field(
        None, description="Papers of the corpus, by DOI, PMID, PMCID or id: find papers like them"
    )
    hybrid: bool = Field(
        False, description="Order by the ranks of both the cosine and the words of the query (BM25)"
    )
    year: str | None = Field(None, description="Only papers of 2015, 2015..2020, 2015.. or ..2020")
    type: list[str] | None = Field(None, description="Only papers of these types; `*` stands for any text")
    journal: Phrases = Field(None, description="Only papers of these journals, in the same way")
    domain: Phrases = Field(
        None, description="Only papers of these domains: those of `domains`, or that the corpus was fetched "
        "by, or else its subjects"
    )  # fmt: skip
    keyword: Phrases = Field(None, description="Only papers with one of these keywords")
    mesh: Phrases = Field(None, description="Only papers with one of these MeSH headings")
    notices: Notices = False
    profile: ProfileName = DEFAULT
    domains: Path | dict[str, Any] | None = Field(
        None, description="YAML rules that sort papers into domains, like those that pairs are compiled by"
    )
    sentences: bool = Field(
        True, description="Find the sentence of each abstract, or passage, that is nearest to the query"
    )
    batch_size: BatchSize = None

    @property
    def filters(self) -> Filters:
        """The papers to look at."""
        names = ("year", "notices", "type", "journal", "domain", "keyword", "mesh")
        return Filters.of(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class SearchResult:
    """The papers found for each query.

    Attributes:
        queries: the texts that were searched for.
        papers: hits per query, best first: dicts of `rank` (from 1), `score` (cosine), `closeness` ("close",
            "fair" or "weak") and the `nearness` behind it (standard deviations above the cosine of unrelated
            texts), `percentile` (the share of the corpus's papers with a lower cosine), `link`, what the
            corpus knows of the paper, with passages the best `passage`, and `sentence`, the one of the
            abstract or passage that is nearest to the query.
        hidden: the number of corrections, editorials and other notices that were left out.
    """

    queries: list[str]
    papers: list[list[dict[str, Any]]]
    hidden: int = 0

    def __iter__(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        return iter(zip(self.queries, self.papers, strict=True))

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        return "\n".join(
            line
            for query, papers in self
            for line in (query, *(row for each in papers for row in lines_of(each)))
        )

    def is_nothing_close(self, number: int = 0) -> bool:
        """Return whether all papers found for a query are weak."""
        return is_nothing_close(self.papers[number])

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per query and paper."""
        import pandas as pd

        rows = [{"query": query, **paper} for query, papers in self for paper in papers]
        empty = ["query", *Hit(1, 0.0, 0, 0.0, 0.0).to_json(), *FACTS, "link", "sentence"]
        return pd.DataFrame(rows, columns=None if rows else empty)


def is_table(text: str) -> bool:
    """Return whether a text that may be searched for is the path of a table."""
    return format_of(text) is not None and isfile(text)


def lines_of(paper: Mapping[str, Any]) -> list[str]:
    """Describe a paper found, in lines to print."""
    retracted = " [retracted]" if paper.get("retracted") else ""
    near = f"{paper.get('closeness') or '':<5}  {paper['score']:.3f}  {paper.get('year') or '    '}"
    title = f"{paper.get('title') or '(no title)'}{retracted}"
    source = (short_authors(paper.get("authors")), short_source(paper), paper.get("link"))
    text, length = (paper["passage"], 600) if paper.get("passage") else (paper.get("sentence") or "", 300)
    more = (
        "  ".join(filter(None, source)),
        "; ".join((paper.get("keywords") or [])[:8]),
        textwrap.shorten(text, length, placeholder=" ..."),
    )
    mostly = f"  (mostly by {paper['route']})" if paper.get("route") else ""  # a route of a blend
    first = f"{paper['rank']:>3}  {near}  {title}  {paper['paper_id']}{mostly}"
    return [first, *(f"{'':12}{line}" for line in more if line)]


@with_settings(SearchConfig)
def search(
    model: Model,
    corpus: Corpus,
    queries: str | Table | None = None,
    config: SearchConfig | None = None,
    *,
    load_config: LoadConfig | None = None,
    **settings: Any,
) -> SearchResult:
    """Find the papers of a corpus nearest to each query, by the cosine of their vectors.

    A model that was trained with routes for queries and documents encodes queries with the one and papers
    with the other; any other model encodes both with the same route. The papers' vectors are computed the
    first time (`build_index`) and kept beside the corpus; when it changes, only new texts are encoded.

    Args:
        model: a model in memory, or the path or name of one.
        corpus: a corpus, its folder, or a table of papers (`paper_id`, and `title` or `abstract`).
        queries: one text, or several: a list, a series, a table. None with `like`.
        config: settings; those given by name come before it.
        load_config: settings for opening a model that is given by its path or name; see `load`.

    Raises:
        UsageError: a bad setting, an empty query, or both or neither of `queries` and `like`.
        InputError: the corpus cannot be read, has no paper with the text, or cannot be written to; a filter
            or `like` names what no paper has.
        RouteError: the model needs a route, or does not know this one.

    Example:
        >>> result = search("model", "corpus", "memory replay", route="neuroscience", unit="title", top_k=3)
        >>> len(result.to_pandas())
        3
    """
    config = SearchConfig.of(config, **settings)
    if isinstance(queries, str) and is_table(queries):
        raise UsageError(f"`queries`: {queries!r} is a file: give Path({queries!r}) to search for its texts")
    texts = [] if queries is None else TextTable([queries] if isinstance(queries, str) else queries).texts()
    if bool(texts) == bool(config.like):
        raise UsageError("give `queries` or `like`" + (", not both" if texts else ""))
    if not all(query.strip() for query in texts):
        raise UsageError("a query is empty")
    if config.like and config.hybrid:
        raise UsageError("`hybrid` needs the words of a query, which `like` does not have")
    filters = config.filters
    folder = CorpusFolder.of(corpus)  # before the model: what is wrong is known at once
    papers = Papers(folder, config.domains)
    papers.places(filters)
    liked = papers.find(config.like or ())
    profile = Profile(folder, config.profile)
    profile.warn_if_new()
    state = profile.read()
    if (known := KnownRoutes.read(model)) is not None:
        find_blend(known, config.route, dict.fromkeys(state.routes, SearchRoute("", None, None)))
    encoder = BatchEncoder.open(model, load_config, config.batch_size)
    searcher = Searcher.open(encoder, folder, config, papers=papers)
    taught = TaughtRoutes(searcher, state)
    taught.check(config.route)
    blend = searcher.blend(config.route, taught)
    taught.warn_of_changes(blend)
    if config.like:
        texts, vectors = [f"like {', '.join(config.like)}"], searcher.mean_vectors(liked, blend)
    else:
        vectors = searcher.encode(texts, blend)
    if config.hybrid and (lost := [each for each in texts if not searcher.keywords.scores(each).any()]):
        logger.warning(
            f"`hybrid`: no paper has a word of {len(lost):,} of {len(texts):,} queries, such as {lost[0]!r}: "
            "their papers are in the order of the cosine alone"
        )
    passing, results = searcher.passing(filters, liked), []
    for text, compared in zip(texts, searcher.compare(vectors, blend, bool(config.like)), strict=True):
        hits = searcher.find(compared, config.top_k, passing, text if config.hybrid else None)
        results.append(_described(searcher, hits, compared, config.sentences))
    return SearchResult(texts, results, papers.hidden(filters))


def _described(
    searcher: Searcher, hits: Sequence[Hit], compared: Comparison, sentences: bool
) -> list[dict[str, Any]]:
    """Return hits with the facts of their papers, and the sentence of each abstract nearest to the query."""
    rows = [hit.row for hit in hits]
    described = searcher.papers.facts(rows)
    passages = searcher.passages(compared, rows)
    texts = passages or [facts.get("abstract") or "" for facts in described]
    spans = searcher.best_sentences(compared, texts) if sentences else [None] * len(texts)
    results = []
    for hit, facts, text, span in zip(hits, described, texts, spans, strict=True):
        passage = {"passage": text} if passages else {}
        sentence = {"sentence": text[slice(*span)]} if span else {}
        results.append(hit.to_json() | facts | passage | sentence)
    return results
