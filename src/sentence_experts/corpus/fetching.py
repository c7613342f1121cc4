"""`fetch_corpus`: queries to a corpus; articles are fetched into a journal, then imported.

The journal (`journal.sqlite` in the corpus's folder) holds every answer. So a fetch that was interrupted goes
on where it stopped, another domain costs only what is new, and the corpus depends only on the journal.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.config import with_settings
from sentence_experts.corpus.building import JOURNAL, Sources, TableSource, build_corpus, corpus_output
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import CorpusFolder, corpus_in_memory
from sentence_experts.corpus.fetched_tables import CitationTable, Fetched, FetchedPapers
from sentence_experts.corpus.formats.archives import Document, Source
from sentence_experts.corpus.sources.client import Client
from sentence_experts.corpus.sources.journal import MEMORY, open_journal
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.corpus.sources.pmc import PmcSource
from sentence_experts.corpus.sources.services import RecordSource
from sentence_experts.corpus.workers import number_of_workers
from sentence_experts.errors import InputError, UsageError
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FetchEstimate:
    """The size and duration of a fetch.

    Attributes:
        articles: domain -> number of articles that its query finds.
        examples: domain -> the titles of a few of them.
        to_fetch: domain -> number of articles that would be fetched.
        requests: maximum number of requests.
        minutes: duration at the rates that the services allow.
    """

    articles: dict[str, int]
    examples: dict[str, list[str]]
    to_fetch: dict[str, int]
    requests: int
    minutes: float

    def to_pandas(self) -> pd.DataFrame:
        """One row per domain."""
        import pandas as pd

        table = pd.DataFrame({"found": self.articles, "to_fetch": self.to_fetch})
        return table.rename_axis("domain").reset_index()


@with_settings(FetchConfig)
def estimate_fetch(config: FetchConfig | None = None, **settings: Any) -> FetchEstimate:
    """Count what a fetch would find; only counts are requested, and nothing is stored.

    Args:
        config: settings; those given by name come before it.

    Raises:
        UsageError: a query that the service does not understand or that finds nothing, or a bad setting.
        UnreachableError: no connection.

    Example:
        >>> estimate_fetch(domains={"copd": "copd[title]"}).articles  # doctest: +SKIP
        {'copd': 2345}
    """
    config = _with_client(FetchConfig.of(config, **settings))
    with open_client(config, MEMORY) as client:
        source = _record_source(client, config)
        articles = {name: source.count(query) for name, query in config.domains.items()}
        examples = {name: source.examples(query) for name, query in config.domains.items()}
        limited = {name: min(count, config.max_articles or count) for name, count in articles.items()}
        count, seconds = source.cost(sum(limited.values()))
        return FetchEstimate(articles, examples, limited, count, seconds / 60)


@with_settings(FetchConfig)
def fetch_corpus(
    config: FetchConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> CorpusFolder:
    """Fetch the articles that queries find, with their references, into a corpus.

    What could not be fetched after every attempt is set aside by name; the same call requests it again.

    Args:
        config: settings; those given by name come before it.
        out: the folder of the corpus; without it the corpus lasts as long as the returned object.
        overwrite: make the corpus in `out` again; what both have in common is not fetched again.

    Raises:
        UsageError: a query that the service does not understand, a bad setting, or `out` was made with other
            settings.
        UnreachableError: no connection; what was fetched is kept.
        InputError: `out` is in use or holds other files.

    Example:
        >>> fetch_corpus(out="fetched", domains={"copd": "copd[title]"}, max_articles=100)  # doctest: +SKIP
    """
    config = _with_client(FetchConfig.of(config, **settings))
    if config.citation_table is not None and not config.citation_table.is_file():
        raise InputError(
            f"{config.citation_table}: no such file; unpack open_citation_collection.zip of an iCite snapshot"
        )
    if out is None:
        return corpus_in_memory(lambda folder: _fetch_to(folder, config, False))
    check_apart(out, overwrite, config.citation_table)
    return _fetch_to(Path(out), config, overwrite)


def _with_client(config: FetchConfig) -> FetchConfig:
    """Return the settings, with the address and key of the environment if they have none."""
    if not config.domains:
        raise UsageError("`domains`: give at least one NAME=QUERY")
    email = config.email or os.environ.get("NCBI_EMAIL")
    if config.source == "openalex":
        return FetchConfig.of(config, email=email, api_key=openalex_key(config.api_key))
    if not email:
        raise UsageError(
            "no email: NCBI requires the address of its users; give `email=you@example.org` or set NCBI_EMAIL"
        )
    return FetchConfig.of(config, email=email, api_key=config.api_key or os.environ.get("NCBI_API_KEY"))


def openalex_key(given: str | None) -> str:
    """Return the key that OpenAlex requires: the given one, or that of the environment.

    Raises:
        UsageError: there is none.
    """
    if key := given or os.environ.get("OPENALEX_API_KEY"):
        return key
    raise UsageError(
        "no key: OpenAlex requires one, free at openalex.org/settings/api; give `api_key` or set "
        "OPENALEX_API_KEY"
    )


def _fetch_to(out: Path, config: FetchConfig, overwrite: bool) -> CorpusFolder:
    with corpus_output(out, overwrite) as place:
        state = place.begin({"fetch": config.identity()})
        with open_client(config, out / JOURNAL) as client:
            source = _record_source(client, config)
            sampled = _find(config, source)
            ids = sorted({one for found in sampled.values() for one in found})
            with progress("articles", len(ids)) as advance:
                source.fetch(ids, advance)
            if client.set_aside:
                logger.info(
                    f"{len(client.set_aside)} answers or records were missing or unusable, after "
                    f"{config.attempts} attempts each; they are listed in rejected.jsonl, and the next "
                    "call requests them again"
                )
            fetched = Fetched.of(config, sampled, source.records(ids), client.set_aside)
            read = _sources(config, source, ids, fetched)
            if state == "finished":
                if place.result["request"] == read.request():
                    return CorpusFolder.open(out)
                place.reopen()  # what failed before was there this time
            return build_corpus(place, read, config.workers, fetched)


def _record_source(client: Client, config: FetchConfig) -> RecordSource:
    if config.source == "openalex":
        return OpenAlexSource(client, config.keep_retracted)
    return PmcSource(client, config.licences, config.keep_retracted)


def _find(config: FetchConfig, source: RecordSource) -> dict[str, list[str]]:
    """Return the ids that the query of each domain finds, or the sample of them."""
    sampled = {}
    for name, query in config.domains.items():
        ids = source.find(query)
        sampled[name] = sample(ids, config.max_articles)
        of_all = f" of {len(ids):,}" if len(ids) > len(sampled[name]) else ""
        logger.info(f"{name}: {len(sampled[name]):,}{of_all} articles")
    return sampled


def _sources(config: FetchConfig, source: RecordSource, ids: list[str], fetched: Fetched) -> Sources:
    """Return the articles in the journal, and the citations of a table, as sources of a corpus."""
    if isinstance(source, OpenAlexSource):
        return Sources.of([], [FetchedPapers(source, ids)])

    def documents() -> Iterator[Document]:
        for record in source.records(ids):
            if record.body is not None:
                name = f"{record.id}.{record.version}.xml"
                yield Document(name, len(record.body), data=record.body)

    extras: list[TableSource] = []
    if config.citation_table is not None:
        pmids = sorted({names["pmid"] for names in fetched.names.values() if "pmid" in names}, key=int)
        extras.append(CitationTable(config.citation_table, pmids, number_of_workers(config.workers)))
    return Sources.of([Source(config.source, "fetched", Path(), documents)], extras, config.full_text)


def sample(ids: list[str], maximum: int | None) -> list[str]:
    """Return at most `maximum` of the ids, in their order: always the same ones; a larger sample contains
    a smaller one."""
    if maximum is None or len(ids) <= maximum:
        return ids
    by_hash = sorted(ids, key=lambda one: hashlib.sha256(one.encode()).digest())
    return sorted(by_hash[:maximum])


@contextmanager
def open_client(config: FetchConfig, journal: Path) -> Iterator[Client]:
    """Open the services of some settings, answered from a journal where possible."""
    patience: dict[str, Any] = {name: getattr(config, name) for name in ("attempts", "first_wait", "timeout")}
    with (
        open_journal(journal) as answers,
        Client(config.services, answers, config.email or "", config.api_key, **patience) as client,
    ):
        yield client
