"""Queries to a corpus: articles and citations are fetched into a journal, then built like any other corpus.

The journal (`journal.sqlite` in the corpus's folder) has every answer, so a fetch that ends at whatever
moment goes on where it stopped, another domain costs only what is new, and the corpus is a function of the
journal alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.corpus.building import JOURNAL, PLAN, build_corpus, cores
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.fetched import BulkLinks, Fetched, FetchedLinks, FetchedPapers
from sentence_experts.corpus.sources.citations import CITATIONS
from sentence_experts.corpus.sources.http import Client
from sentence_experts.corpus.sources.journal import MEMORY, open_journal
from sentence_experts.corpus.sources.origins import EuropePmcOrigin, Origin, PmcOrigin, PubmedOrigin, pmids_of
from sentence_experts.corpus.sources.pubmed_origin import PubmedFilesOrigin
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.corpus.sources.services import ENTREZ_WITH_KEY
from sentence_experts.corpus.tables import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.progress import progress
from sentence_experts.storage import read_json, write_json

logger = logging.getLogger(__name__)

ORIGINS: dict[str, Callable[[Requests, FetchConfig], Origin]] = {
    "pmc": PmcOrigin,
    "pubmed": PubmedOrigin,
    "pubmed-files": PubmedFilesOrigin,
    "europepmc": EuropePmcOrigin,
}


@dataclass(frozen=True)
class Estimate:
    """What a fetch would take.

    Attributes:
        articles: a domain's name -> how many articles its query finds.
        examples: a domain's name -> the titles of a few of them.
        taken: how many of them would be fetched, papers of several domains counted in each.
        requests: how many requests, at most.
        minutes: how long, at the rates that the services allow.
    """

    articles: dict[str, int]
    examples: dict[str, list[str]]
    taken: dict[str, int]
    requests: int
    minutes: float


def estimate_fetch(config: FetchConfig | None = None, **settings: Any) -> Estimate:
    """Ask the services how much a fetch would take; nothing is kept.

    Args:
        config: the settings; `settings` override its fields, by name.

    Raises:
        UsageError: a query that the service does not understand, or that finds nothing.
        UnreachableError: no connection.
    """
    plan = _checked(FetchConfig.of(config, **settings))
    with open_journal(MEMORY) as journal, _client(plan) as client:
        requests = Requests(client, journal, plan.services, str(plan.email), plan.api_key)
        origin = ORIGINS[plan.source](requests, plan)
        articles = {name: origin.count(query) for name, query in plan.domains.items()}
        examples = {name: origin.examples(query) for name, query in plan.domains.items()}
        taken = {name: min(count, plan.max_articles or count) for name, count in articles.items()}
        whole = sum(taken.values())
        asking = [name for name in plan.citations if not (name == "icite" and plan.citation_table)]
        costs = [origin.cost(whole), *(CITATIONS[name](requests).cost(whole) for name in asking)]
        asked, seconds = (sum(part) for part in zip(*costs, strict=True))
        return Estimate(articles, examples, taken, int(asked), seconds / 60)


def fetch_corpus(
    config: FetchConfig | None = None, out: Path | str = "corpus", **settings: Any
) -> CorpusFolder:
    """Fetch the articles that queries find, and their citations, into a corpus.

    An interrupted fetch continues when it is called again. What could not be fetched after every attempt is
    listed in the corpus's `rejected.jsonl`, and requested again by the next call.

    Args:
        config: the settings; `settings` override its fields, by name.
        out: the folder of the corpus.

    Raises:
        UsageError: a query that the service does not understand, or `out` was made by another plan.
        UnreachableError: no connection; what was fetched is kept.
        InputError: a day with more records than a query may give, or `out` is in use or holds other things.
    """
    plan, out = _checked(FetchConfig.of(config, **settings)), Path(out)
    if plan.citation_table is not None and not plan.citation_table.is_file():
        raise InputError(
            f"{plan.citation_table}: no such file; unpack an iCite snapshot's table of citations"
        )
    _begin(out, plan, plan.overwrite)
    with open_journal(out / JOURNAL) as journal, _client(plan) as client:
        requests = Requests(client, journal, plan.services, str(plan.email), plan.api_key)
        fetched = _fetch(plan, requests, plan.workers or cores())
        if requests.set_aside:
            logger.info(
                f"{len(requests.set_aside)} requests failed, {plan.attempts} times each; what they were for "
                "is listed in rejected.jsonl, and requested again next time"
            )
        # The journal remakes whatever this replaces.
        return build_corpus(
            out, fetched.sources(), fetched.extras, workers=plan.workers, overwrite=True, fetch=fetched
        )


def _fetch(plan: FetchConfig, requests: Requests, threads: int) -> Fetched:
    origin = ORIGINS[plan.source](requests, plan)
    found = {}
    for name, query in plan.domains.items():
        ids = origin.find(query)
        found[name] = drawn(ids, plan.max_articles)
        of_all = f" of {len(ids):,}" if len(ids) > len(found[name]) else ""
        logger.info(f"{name}: {len(found[name]):,}{of_all} articles")
    every = sorted({one for ids in found.values() for one in ids})
    with progress("articles", len(every)) as advance:
        origin.fetch(every, advance)
    names = dict(origin.names(every))
    fetched = Fetched(plan, origin, found, every, names, requests.set_aside)
    fetched.extras.append(FetchedPapers(origin, every))
    pmids = pmids_of(names.items())
    for name in plan.citations:
        if name == "icite" and plan.citation_table is not None:
            fetched.extras.append(BulkLinks(plan.citation_table, pmids, threads))
            continue
        source = CITATIONS[name](requests)
        with progress(f"citations from {name}", len(pmids)) as advance:
            source.fetch(pmids, advance)
        fetched.extras.append(FetchedLinks(name, source, pmids))
    # What failed is asked for by the next run, not while this one writes what it has.
    requests.asking = False
    return fetched


def drawn(ids: list[str], most: int | None) -> list[str]:
    """At most so many of the ids, by chance but always the same; a larger draw holds a smaller one."""
    if most is None or len(ids) <= most:
        return ids
    by_hash = sorted(ids, key=lambda one: hashlib.sha256(one.encode()).digest())
    return sorted(by_hash[:most])


def _begin(out: Path, plan: FetchConfig, overwrite: bool) -> None:
    """Keep the plan in `out`; another plan, or another's files, are not written over unasked."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; `out` names a folder")
    begun = out / PLAN
    if begun.is_file():
        before, now = read_json(begun), plan.identity()
        if before != now and not overwrite:
            changed = ", ".join(name for name, value in now.items() if before.get(name) != value)
            raise UsageError(
                f"{out} was fetched with another {changed}: choose another `out`, or `overwrite=True` to "
                "make it again (what both have in common is not fetched again)"
            )
    elif out.is_dir() and not overwrite and (strangers := sorted(one.name for one in out.iterdir())):
        raise InputError(
            f"{out} holds other files ({', '.join(strangers[:3])}): choose an empty or new folder, or "
            "`overwrite=True` to write the corpus beside them"
        )
    try:
        write_json(begun, plan.identity())
    except OSError as error:
        raise InputError(f"{out} cannot be written to ({error.strerror}); choose another `out`") from error


def _checked(plan: FetchConfig) -> FetchConfig:
    """The settings with the address and key of the environment where they give none."""
    if not plan.domains:
        raise UsageError("`domains`: give at least one NAME=QUERY")
    email = plan.email or os.environ.get("NCBI_EMAIL")
    if not email:
        raise UsageError(
            "no email: NCBI requires the address of its users; give `email=you@example.org` or set NCBI_EMAIL"
        )
    return FetchConfig.of(plan, email=email, api_key=plan.api_key or os.environ.get("NCBI_API_KEY"))


def _client(plan: FetchConfig) -> Client:
    services = plan.services
    if plan.api_key:
        faster = max(services.entrez.per_second, ENTREZ_WITH_KEY)
        entrez = services.entrez.model_copy(update={"per_second": faster})
        services = services.model_copy(update={"entrez": entrez})
    return services.client(
        str(plan.email), attempts=plan.attempts, first_wait=plan.first_wait, timeout=plan.timeout
    )
