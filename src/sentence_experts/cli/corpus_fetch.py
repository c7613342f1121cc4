"""`sentence-experts corpus fetch`: queries to a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sentence_experts.cli.corpus_table import print_corpus
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.corpus.fetch_plan import FetchPlan
    from sentence_experts.corpus.fetching import Estimate

FETCH_HELP = """Fetch the articles that a query finds, and who cites them, into a corpus.

Example: sentence-experts corpus fetch '"Pulmonary Disease, Chronic Obstructive"[MeSH] AND 2010:2022[PDAT]'
--domain copd --email you@example.org --out copd --dry-run

Articles come from PubMed Central's open-access bucket, citations from the NIH Open Citation Collection.
Without --dry-run they are fetched. Several domains go into a YAML file:

    domains:
      copd: '"Pulmonary Disease, Chronic Obstructive"[MeSH] AND 2010:2022[PDAT]'
      cvd: '"Cardiovascular Diseases"[MeSH] AND 2010:2022[PDAT]'

Stop it at any moment and give the same command again: nothing is fetched twice. What was left out, or not
there, is named in CORPUS/rejected.jsonl, with the reason.
"""


def fetch(
    query: str | None = typer.Argument(None, metavar="[QUERY]", help="A query as the website takes it."),
    out: Path = typer.Option(..., "--out", metavar="CORPUS", help="The folder to write the corpus to."),
    domain: str | None = typer.Option(None, metavar="NAME", help="The name of QUERY's domain."),
    plan: Path | None = typer.Option(
        None, metavar="FILE", help="A YAML file with several domains, instead of QUERY and --domain; it "
        "may also have: source (pubmed-files too, with pubmed_files, mesh_descriptors, years), "
        "citations, citation_table, licences, retracted, max_articles, services."),
    source: str | None = typer.Option(
        None, help="Where articles come from: pmc (whole open-access articles), pubmed (all abstracts), "
        "europepmc. [default: pmc]"),
    citations: str | None = typer.Option(
        None, help="Where citations come from besides the articles' own lists: icite, elink, europepmc, "
        "several with commas, or none. [default: icite]"),
    citation_table: Path | None = typer.Option(
        None, metavar="FILE", help="iCite's unpacked open_citation_collection.csv, read instead of "
        "asking its API."),
    licences: str | None = typer.Option(
        None, help="Keep articles whose PMC licence allows this use: any, commercial, noncommercial. "
        "[default: any]"),
    retracted: str | None = typer.Option(None, help="leave-out or keep. [default: leave-out]"),
    max_articles: int | None = typer.Option(
        None, metavar="N", help="Fetch at most so many articles a domain, drawn by chance, the same "
        "every time."),
    email: str | None = typer.Option(
        None, envvar="NCBI_EMAIL", help="Your address, which NCBI wants with every request."),
    api_key: str | None = typer.Option(
        None, envvar="NCBI_API_KEY", help="A key of NCBI: 10 requests a second instead of 3."),
    attempts: int = typer.Option(6, min=1, max=20, help="How often a request is tried."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Say how many articles, requests and minutes it takes, and stop."),
    workers: int | None = typer.Option(
        None, min=1, metavar="N", help="Processes that parse. [default: all cores]"),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a corpus of another plan."),
) -> None:  # fmt: skip
    """Run `corpus fetch`."""
    from sentence_experts.corpus.fetch_plan import check_email
    from sentence_experts.corpus.fetching import Asker, estimate, fetch_corpus

    given = {
        "source": source, "citations": citations, "citation_table": citation_table,
        "licences": licences, "retracted": retracted, "max_articles": max_articles,
    }  # fmt: skip
    wanted = _plan(query, domain, plan, {name: value for name, value in given.items() if value is not None})
    asker = Asker(check_email(email), api_key, attempts)
    if dry_run:
        _show_estimate(estimate(wanted, asker))
    else:
        print_corpus(fetch_corpus(wanted, out, asker, workers=workers, overwrite=overwrite))


def _plan(query: str | None, domain: str | None, plan: Path | None, changes: dict[str, Any]) -> FetchPlan:
    from sentence_experts.corpus.fetch_plan import FetchPlan

    if plan is not None:
        if query or domain:
            raise UsageError("give either QUERY with --domain, or --plan, not both")
        return FetchPlan.read(plan, **changes)
    if query and domain:
        return FetchPlan.make(domains={domain: query}, **changes)
    raise UsageError("give QUERY with --domain NAME, or --plan FILE with several domains")


def _show_estimate(estimate: Estimate) -> None:
    from rich.table import Table

    from sentence_experts.cli.console import results

    table = Table(title="A fetch would take", title_justify="left")
    table.add_column("domain")
    table.add_column("found", justify="right")
    table.add_column("to fetch", justify="right")
    for name, found in estimate.articles.items():
        table.add_row(name, f"{found:,}", f"{estimate.taken[name]:,}")
    results.print(table)
    for name, titles in estimate.examples.items():
        for title in titles:
            results.print(f"{name}: {title}", markup=False)
    results.print(f"about {estimate.requests:,} requests, {max(estimate.minutes, 1):,.0f} minutes")
