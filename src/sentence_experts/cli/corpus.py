"""`sentence-experts corpus`: articles and citations come in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sentence_experts.cli import corpus_fetch

if TYPE_CHECKING:
    from rich.table import Table

    from sentence_experts.corpus.tables import CorpusFolder

IMPORT_HELP = """Read articles into a corpus: two Parquet tables, papers and citations.

SOURCE is any mix of folders, .xml or .nxml files, and .tar, .tar.gz, .tar.xz, .tar.bz2 or .zip archives of
JATS articles (PMC, PLOS, eLife). Or bring tables of your own with --papers and --citations.

Example: sentence-experts corpus import elife.tar.xz more/ --out corpus

An interrupted run goes on where it stopped when the same command is given again. What could not be read is
named in CORPUS/rejected.jsonl, with the reason.
"""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    corpus = typer.Typer(no_args_is_help=True, help="Bring articles and their citations into a corpus.")
    corpus.command("import", help=IMPORT_HELP, no_args_is_help=True)(import_)
    corpus_fetch.register(corpus, _print)
    corpus.command("show", help="Say what a corpus holds. Example: sentence-experts corpus show corpus")(show)
    app.add_typer(corpus, name="corpus")


def import_(
    sources: list[Path] = typer.Argument(None, metavar="SOURCE...", help="Folders, XML files and archives."),
    out: Path = typer.Option(..., "--out", metavar="CORPUS", help="The folder to write the corpus to."),
    papers: Path | None = typer.Option(
        None, metavar="FILE", help="A table of papers (Parquet, CSV, TSV, JSON lines, also .gz): id, "
        "title, abstract, and if you have them year, subjects, mesh, keywords, doi, pmid, pmcid."),
    citations: Path | None = typer.Option(
        None, metavar="FILE", help="A table of citations: citing, cited (paper ids, DOIs, PMIDs, PMCIDs), "
        "and if you have them cited_title, cited_year."),
    workers: int | None = typer.Option(None, metavar="N", help="Processes that parse. [default: all cores]"),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a corpus made of other sources."),
) -> None:  # fmt: skip
    """Run `corpus import`."""
    from sentence_experts.corpus.importing import import_corpus

    _print(
        import_corpus(
            sources or [], out, papers=papers, citations=citations, workers=workers, overwrite=overwrite
        )
    )


def show(
    corpus: Path = typer.Argument(..., metavar="CORPUS", help="A folder that `corpus import` wrote."),
) -> None:
    """Run `corpus show`."""
    from sentence_experts.corpus.tables import CorpusFolder

    _print(CorpusFolder.open(corpus))


_ROWS = {
    "papers": "papers",
    "with_abstract": "  with an abstract",
    "research_articles": "  research articles",
    "retracted": "  retracted",
    "references": "references",
    "references_with_doi": "  with a DOI",
    "references_with_pmid": "  with a PMID",
    "references_with_title": "  with a title",
    "unidentified_references": "  without any identifier",
    "citations": "citations (one a pair of works)",
    "in_corpus_citations": "  between papers of the corpus",
    "distinct_cited_works": "  distinct cited works",
}


def _print(corpus: CorpusFolder) -> None:
    from rich.table import Table

    from sentence_experts.console import results

    counts = corpus.manifest["counts"]
    table = Table(title=f"Corpus {corpus.path}", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("how many", justify="right")
    for key, name in _ROWS.items():
        table.add_row(name, f"{counts[key]:,}")
    for reason, number in sorted(counts["rejected"].items()):
        table.add_row(f"set aside: {reason}", f"{number:,}")
    results.print(table)
    if "fetch" in corpus.manifest:
        results.print(_by_domain(corpus.manifest["fetch"]["domains"]))
    if counts["rejected"]:
        results.print(f"What was set aside is named in {corpus.rejected}", markup=False)


def _by_domain(domains: dict[str, dict[str, Any]]) -> Table:
    """What each query found, beside what a paper counts where the plan says it."""
    from rich.table import Table

    table = Table(title="By domain", title_justify="left")
    columns = {"found": "found", "kept": "kept", "with_abstract": "with an abstract"}
    if any(one["published"] for one in domains.values()):
        columns["published"] = "published"
    table.add_column("domain")
    for title in columns.values():
        table.add_column(title, justify="right")
    for name, one in domains.items():
        table.add_row(name, *("" if one[key] is None else f"{one[key]:,}" for key in columns))
    return table
