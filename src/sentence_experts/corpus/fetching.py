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
from urllib.parse import urlsplit

from sentence_experts.config import with_settings
from sentence_experts.corpus.building import JOURNAL, Sources, build_corpus, corpus_output
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import CorpusFolder, corpus_in_memory
from sentence_experts.corpus.fetched_tables import CitationTable, Fetched, FetchedPapers
from sentence_experts.corpus.sources.http import Client
from sentence_experts.corpus.sources.journal import MEMORY, Journal, open_journal
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.corpus.sources.pmc import PmcSource
from sentence_experts.corpus.sources.record_source import RecordSource
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.corpus.sources.services import ENTREZ_WITH_KEY
from sentence_experts.corpus.workers import cores
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
    with open_journal(MEMORY) as journal, open_requests(config, journal) as requests:
        source = _record_source(requests, config)
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
        with open_journal(out / JOURNAL) as journal, open_requests(config, journal) as requests:
            fetched = _fetch(config, requests)
            if requests.set_aside:
                logger.info(
                    f"{len(requests.set_aside)} answers or records were missing or unusable, after "
                    f"{config.attempts} attempts each; they are listed in rejected.jsonl, and the next "
                    "call requests them again"
                )
            read = Sources.of(fetched.sources(), fetched.extras, config.full_text)
            if state == "finished":
                if place.result["request"] == read.request():
                    return CorpusFolder.open(out)
                place.reopen()  # what failed before was there this time
            return build_corpus(place, read, config.workers, fetched)


def _record_source(requests: Requests, config: FetchConfig) -> RecordSource:
    if config.source == "openalex":
        return OpenAlexSource(requests, config.keep_retracted)
    return PmcSource(requests, config.licences, config.keep_retracted)


def _fetch(config: FetchConfig, requests: Requests) -> Fetched:
    source = _record_source(requests, config)
    sampled = {}
    for name, query in config.domains.items():
        ids = source.find(query)
        sampled[name] = sample(ids, config.max_articles)
        of_all = f" of {len(ids):,}" if len(ids) > len(sampled[name]) else ""
        logger.info(f"{name}: {len(sampled[name]):,}{of_all} articles")
    all_ids = sorted({one for ids in sampled.values() for one in ids})
    with progress("articles", len(all_ids)) as advance:
        source.fetch(all_ids, advance)
    names = dict(source.names(all_ids))
    fetched = Fetched(config, source, sampled, all_ids, names, requests.set_aside)
    fetched.extras.append(FetchedPapers(source, all_ids))
    if config.citation_table is not None:
        pmids = sorted({entry["pmid"] for entry in names.values() if "pmid" in entry}, key=int)
        fetched.extras.append(CitationTable(config.citation_table, pmids, config.workers or cores()))
    return fetched


def sample(ids: list[str], maximum: int | None) -> list[str]:
    """Return at most `maximum` of the ids, in their order: always the same ones; a larger sample contains
    a smaller one."""
    if maximum is None or len(ids) <= maximum:
        return ids
    by_hash = sorted(ids, key=lambda one: hashlib.sha256(one.encode()).digest())
    return sorted(by_hash[:maximum])


@contextmanager
def open_requests(config: FetchConfig, journal: Journal) -> Iterator[Requests]:
    """Return the services of some settings, answered from a journal where possible."""
    rates, email = config.services.rates(), config.email or ""
    if config.api_key and config.source == "pmc":
        host = urlsplit(config.services.entrez.url).netloc
        rates[host] = max(rates[host], ENTREZ_WITH_KEY)
    with Client(
        email,
        per_second=rates,
        attempts=config.attempts,
        first_wait=config.first_wait,
        timeout=config.timeout,
    ) as client:
        yield Requests(client, journal, config.services, email, config.api_key)
