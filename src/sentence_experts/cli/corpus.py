"""`sentence-experts corpus import|fetch|show|suggest-domains`: import articles and citations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentence_experts.cli.console import show, show_table
from sentence_experts.cli.options import Corpus, Overwrite, group
from sentence_experts.corpus.config import COUNTED, FetchConfig, ImportConfig
from sentence_experts.errors import UsageError
from sentence_experts.pairs.config import SuggestDomainsConfig

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

Out = Annotated[Path, typer.Option(metavar="CORPUS", help="Folder to write the corpus to")]
_SHOWN_VALUES = 5
_LISTED_VALUES = 50
_ROWS = {
    "papers": "papers",
    "with_title": "  with a title",
    "with_abstract": "  with an abstract",
    "with_doi": "  with a DOI",
    "with_authors": "  with authors",
    "with_topic": "  with a topic",
    "research_articles": "  research articles",
    "retracted": "  retracted",
    "notices": "  corrections, editorials and other notices",
    "references": "references",
    "references_with_doi": "  with a DOI",
    "references_with_pmid": "  with a PMID",
    "references_with_title": "  with a title",
    "references_by_unknown_number": "  by an OpenAlex id of a paper outside the corpus",
    "unidentified_references": "  without any identifier",
    "citations": "citations (one per pair of works)",
    "in_corpus_citations": "  between papers of the corpus",
    "citations_by_others": "  by works outside the corpus",
    "distinct_cited_works": "  distinct cited works",
    "papers_with_body": "papers whose text was read",
    "mentions": "  places in the text that cite an identified work",
    "references_never_mentioned": "  identified references that the text never mentions",
    "other_files": "other files, not read",
}

_SHOWN_IF_NONE = ("papers", "with_abstract", "with_doi", "citations")
_SHOWN_SOURCES = 5


def import_(
    config: ImportConfig,
    out: Out,
    sources: Annotated[
        list[Path] | None, typer.Argument(metavar="SOURCE", help="Folders, archives and files")
    ] = None,
    papers: Annotated[
        Path | None,
        typer.Option(
            help="Table of papers (Parquet, CSV, TSV or JSON lines, also .gz) with the columns id (or doi, "
            "pmid), title and, if known, abstract, year, subjects, mesh, keywords, doi, pmid, pmcid"
        ),
    ] = None,
    citations: Annotated[
        Path | None,
        typer.Option(
            help="Table of citations with the columns citing, cited (paper ids, DOIs, PMIDs or PMCIDs) and, "
            "if known, cited_title, cited_year"
        ),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the sources to the corpus that is there; its vectors stay")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Read articles into a corpus: two Parquet tables, papers and citations.

    Sources are folders, .xml and .nxml files, and .tar, .tar.gz, .tar.xz, .tar.bz2 and .zip archives of JATS
    articles (PMC, PLOS, eLife) or PubMed XML; JSON records of OpenAlex; or exports of reference
    managers and databases: RIS, NBIB, BibTeX, CSV of PubMed and Zotero; or tables of your own, as --papers
    describes them. Citations between the papers of --papers come in with --citations.

    Example: sentence-experts corpus import elife.tar.xz more/ --out corpus

    Example: sentence-experts corpus import library.bib pubmed.csv --out library

    Example: sentence-experts corpus import snapshot/data/works --format openalex --field 17 --out computing

    With --add, works that the corpus has already are completed, and others become new papers, as in one
    import of everything; the next search or `index build` encodes the new papers alone. --add --complete
    openalex fetches the abstracts that are lacking.

    An interrupted run continues when the same command is given again. What could not be read is listed in
    CORPUS/rejected.jsonl, with the reason.
    """
    from sentence_experts.corpus.importing import add_to_corpus, import_corpus

    if add and overwrite:
        raise UsageError("give one of `add` and `overwrite`")
    if add:
        _show_corpus(add_to_corpus(out, sources or [], config, papers=papers, citations=citations))
        return
    corpus = import_corpus(sources or [], out, config, overwrite, papers=papers, citations=citations)
    read = [f"{source['name']} ({source['kind']})" for source in corpus.manifest["sources"]]
    more = [f"{len(read) - _SHOWN_SOURCES:,} more"] if len(read) > _SHOWN_SOURCES else []
    show(f"Read {', '.join(read[:_SHOWN_SOURCES] + more)}")
    _show_corpus(corpus)


def fetch(
    config: FetchConfig,
    out: Out,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the articles that the queries find")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Fetch the articles that queries find, with their references, into a corpus.

    Example: sentence-experts corpus fetch --domains 'asthma="Asthma"[MeSH] AND 2010:2022[PDAT]' --out asthma

    Articles come from PubMed Central's open-access bucket, or from OpenAlex (--source openalex). Several
    domains go into the YAML file that --config reads (or names: hallee2025_domains is shipped):

    \b
    domains:
      copd: '"Pulmonary Disease, Chronic Obstructive"[MeSH] AND 2010:2022[PDAT]'
      cvd: '"Cardiovascular Diseases"[MeSH] AND 2010:2022[PDAT]'

    A fetch can be stopped at any time and continues when the same command is given again. What was left out
    or missing is listed in CORPUS/rejected.jsonl, with the reason.
    """
    from sentence_experts.corpus.fetching import estimate_fetch, fetch_corpus

    if dry_run:
        show(estimate_fetch(config).to_pandas().to_string(index=False))
    else:
        _show_corpus(fetch_corpus(config, out, overwrite))


def show_(
    corpus: Corpus,
    column: Annotated[
        str | None,
        typer.Option("--list", metavar="|".join(COUNTED), help="List the values of this column instead"),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="With --list, number of values listed, the most frequent ones (default 50)"),
    ] = None,
) -> None:
    """Show what a corpus holds: counts, years, frequent subjects and headings, and vectors for search.

    Example: sentence-experts corpus show corpus

    All subjects: sentence-experts corpus show corpus --list subjects
    """
    from sentence_experts.corpus.corpus_folder import CorpusFolder

    if top is not None and column is None:
        raise UsageError("`top`: it is for a list of values: give `column` too")
    opened = CorpusFolder.open(corpus)
    if column is None:
        _show_corpus(opened)
        _show_values(opened)
        from sentence_experts.cli.search import show_index
        from sentence_experts.retrieval.build import CorpusIndex

        show_index(CorpusIndex.open(opened))
        return
    values = list(opened.count_values(column).items())
    for value, papers in values[: top or _LISTED_VALUES]:
        show(f"{papers:>9,}  {value}")
    if (more := len(values) - (top or _LISTED_VALUES)) > 0:
        show(f"and {more:,} more (--top)")


def suggest_domains(
    corpus: Corpus,
    out: Annotated[Path, typer.Option(help="YAML file to write the rules to")],
    config: SuggestDomainsConfig,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file")] = False,
) -> None:
    """Write a first domains.yaml, of the subjects, headings or topics that most papers have.

    Merge, rename and drop domains as your question needs, and give the file to pairs compile.

    Example: sentence-experts corpus suggest-domains corpus --out domains.yaml
    """
    from sentence_experts.pairs.suggesting import suggest_domains as suggested

    suggested(corpus, out, config, overwrite)
    show(out.read_text(encoding="utf-8").rstrip())


def _show_corpus(corpus: CorpusFolder) -> None:
    """Show the counts of a corpus, by domain if it was fetched."""
    counts = corpus.manifest["counts"]
    has_table = any(source["kind"] == "table of citations" for source in corpus.manifest["sources"])
    shown_if_none = (*_SHOWN_IF_NONE, *["in_corpus_citations"] * (has_table and bool(counts["citations"])))
    rows = [
        (
            name + " (not kept: --full-text)" * (key == "papers_with_body" and not corpus.bodies),
            f"{counts[key]:,}",
        )
        for key, name in _ROWS.items()
        if counts.get(key) or (key in counts and key in shown_if_none)
    ]
    rows += [(f"set aside: {reason}", f"{number:,}") for reason, number in sorted(counts["rejected"].items())]
    show_table(f"Corpus {corpus.path}", ("", ""), rows, header=False)
    if completed := corpus.manifest.get("completed"):
        show(
            f"{completed['completed']:,} of {completed['lacking']:,} papers without an abstract have one "
            f"from {completed['from']}"
        )
    if "fetch" in corpus.manifest:
        _show_domains(corpus.manifest["fetch"]["domains"])
    if counts["rejected"]:
        show(f"What was set aside is listed in {corpus.rejected}")


def _show_domains(domains: dict[str, dict[str, Any]]) -> None:
    """Show what each query found, beside the published number if there is one."""
    columns = {"found": "found", "kept": "kept", "with_abstract": "with an abstract"}
    if any(one["published"] for one in domains.values()):
        columns["published"] = "published"
    rows = (
        (name, *("" if one[key] is None else f"{one[key]:,}" for key in columns))
        for name, one in domains.items()
    )
    show_table("By domain", ("domain", *columns.values()), rows)


def _show_values(corpus: CorpusFolder) -> None:
    """Show the most frequent values of each column that has any."""
    rows = []
    for column in COUNTED:
        if values := corpus.count_values(column):
            first = list(values.items())[:_SHOWN_VALUES]
            shown = "; ".join(f"{one} ({count:,})" for one, count in first)
            rows.append((column, shown, f"{len(values):,}"))
    show_table("Most frequent", ("column", "most frequent (papers)", "values"), rows, left=2)
    years = [int(year) for year in corpus.count_values("year")]
    if years:
        show(f"years {min(years)} to {max(years)}; --list COLUMN lists all values of a column")


corpus = group("Import or fetch articles and their citations.", import_, fetch, show_, suggest_domains)
