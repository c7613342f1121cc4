"""What a corpus holds, as tables at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from sentence_experts.corpus.tables import CorpusFolder

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


def print_corpus(corpus: CorpusFolder) -> None:
    """Print the counts of a corpus, by domain where it was fetched."""
    from rich.table import Table

    from sentence_experts.cli.console import results

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
