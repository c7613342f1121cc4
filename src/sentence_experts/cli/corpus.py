"""`sentence-experts corpus`: articles and citations come in."""

from __future__ import annotations

from pathlib import Path

import typer

from sentence_experts.cli import corpus_fetch
from sentence_experts.cli.corpus_table import print_corpus

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
    corpus.command("fetch", help=corpus_fetch.FETCH_HELP, no_args_is_help=True)(corpus_fetch.fetch)
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

    print_corpus(
        import_corpus(
            sources or [], out, papers=papers, citations=citations, workers=workers, overwrite=overwrite
        )
    )


def show(
    corpus: Path = typer.Argument(..., metavar="CORPUS", help="A folder that `corpus import` wrote."),
) -> None:
    """Run `corpus show`."""
    from sentence_experts.corpus.tables import CorpusFolder

    print_corpus(CorpusFolder.open(corpus))
