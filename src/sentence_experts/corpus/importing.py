"""Articles and tables of the user's own to a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sentence_experts.corpus.building import build_corpus
from sentence_experts.corpus.formats.archives import find_sources
from sentence_experts.corpus.tables import CorpusFolder
from sentence_experts.corpus.user_tables import UserTables
from sentence_experts.errors import UsageError


def import_corpus(
    sources: Iterable[Path | str] = (),
    out: Path | str = "corpus",
    *,
    papers: Path | str | None = None,
    citations: Path | str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
) -> CorpusFolder:
    """Read JATS articles from folders, XML files and archives, or papers and citations from tables, into
    `out`.

    Args:
        sources: folders, `.xml`/`.nxml` files, `.tar[.gz|.xz|.bz2]` and `.zip` archives, in any mix.
        out: the folder of the corpus (see `tables.CorpusFolder`).
        papers: a table of papers (Parquet, CSV, TSV or JSON lines, optionally gzipped); see `user_tables`.
        citations: a table of citations between them.
        workers: processes that parse; all cores by default. The result does not depend on it.
        overwrite: replace a corpus in `out` that was made of other sources.

    With more than one worker, a script must call this under `if __name__ == "__main__":`.

    Raises:
        InputError: a source is missing or of an unknown kind, or `out` holds another corpus.
        UsageError: nothing to import, or fewer than one worker.
    """
    out = Path(out)
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}; it must be at least 1")
    found = find_sources([Path(source) for source in sources])
    tables = UserTables.open(papers, citations)
    if not found and tables is None:
        raise UsageError("nothing to import: name at least one folder, file or archive, or give --papers")
    return build_corpus(out, found, [tables] if tables else [], workers=workers, overwrite=overwrite)
