"""`add_to_corpus`: more sources for a finished corpus."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sentence_experts.config import with_settings
from sentence_experts.corpus.building import JOURNAL_FILES, corpus_output
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.corpus_folder import MANIFEST, PAPERS, REJECTED, CorpusFolder
from sentence_experts.corpus.importing import gather_sources, import_corpus
from sentence_experts.errors import UsageError
from sentence_experts.storage import WHOLE, hidden_beside, replacing
from sentence_experts.tables import Table

logger = logging.getLogger(__name__)


@with_settings(ImportConfig)
def add_to_corpus(
    corpus: CorpusFolder | Path | str,
    sources: Iterable[Path | str] | Path | str = (),
    config: ImportConfig | None = None,
    *,
    papers: Table | None = None,
    citations: Table | None = None,
    **settings: Any,
) -> CorpusFolder:
    """Add sources to a corpus: works that it has already are completed, others become new papers.

    Its vectors stay: the next `build_index` encodes only the new papers. Pairs have to be compiled again.

    Args:
        corpus: a finished corpus, or its folder. It is replaced when the new one is whole.
        sources: as for `import_corpus`.
        config: settings of reading; those given by name come before it.
        papers: a table of papers, as for `import_corpus`.
        citations: a table of citations between them.

    Raises:
        InputError: as `import_corpus`, or there is no corpus.
        UsageError: nothing to add or complete, or the corpus was fetched: its tables of domains and
            provenance belong to its queries.

    Example:
        >>> from sentence_experts import import_corpus
        >>> rice = import_corpus(papers=[{"id": "1", "title": "Rice", "abstract": ""}])
        >>> add_to_corpus(rice, papers=[{"id": "2", "title": "Sleep", "abstract": ""}])
        CorpusFolder('...', 2 papers, 0 citations)
    """
    config = ImportConfig.of(config, **settings)
    folder = corpus.path if isinstance(corpus, CorpusFolder) else Path(corpus)
    merged = hidden_beside(folder, ".adding")
    exchanging = (folder / WHOLE).is_dir() or not (folder / MANIFEST).is_file()
    if not (exchanging and (merged / MANIFEST).is_file()):
        before = CorpusFolder.open(folder)
        if before.domains is not None:
            raise UsageError(
                f"{folder}: fetched by queries, whose domains and provenance a merged corpus does not have; "
                "import this folder and the sources into a new corpus, with rules for its domains"
            )
        paths = [sources] if isinstance(sources, str | Path) else list(sources)
        nothing = not paths and papers is None and citations is None
        if not (nothing and config.complete):
            given = gather_sources(paths, config, papers, citations).described
            known = {source["sha256"] for source in given} <= _hashes(before.manifest.get("sources", []))
            if known and not config.complete:
                logger.info(f"{folder}: has all of these sources already")
                return before
        if config.complete and not (merged / JOURNAL_FILES[0]).exists():
            _copy_journal(folder, merged)
        every = [folder, *paths]
        try:
            import_corpus(every, merged, config, papers=papers, citations=citations)
        except UsageError:  # left by an interrupted run with other sources
            import_corpus(every, merged, config, overwrite=True, papers=papers, citations=citations)
        old, new = (pq.read_metadata(each / PAPERS).num_rows for each in (folder, merged))
        logger.info(f"{folder}: {new - old:,} new papers, {new:,} in all")
    else:
        logger.info(f"{folder}: continuing an interrupted addition")
    return _exchanged(folder, CorpusFolder.open(merged))


def _hashes(sources: list[dict[str, Any]]) -> set[str]:
    """Return the hashes of sources, and of those behind a corpus among them."""
    return {source["sha256"] for source in sources}.union(
        *(_hashes(source.get("sources", [])) for source in sources)
    )


def _exchanged(folder: Path, merged: CorpusFolder) -> CorpusFolder:
    """Put the merged corpus in the place of the old one; a run that was stopped here can continue."""
    with corpus_output(folder, overwrite=True) as place:
        place.begin({"sources": merged.manifest["sources"]})
        for name in (*merged.manifest["tables"], REJECTED, MANIFEST):
            try:
                os.link(merged.path / name, place.path / name)
            except OSError:  # a file system without links
                shutil.copy2(merged.path / name, place.path / name)
        place.result = {"request": merged.manifest["request"]}
        place.finish(MANIFEST, *merged.manifest["tables"])
        _copy_journal(merged.path, folder)
    shutil.rmtree(merged.path)
    return CorpusFolder.open(folder)


def _copy_journal(source: Path, target: Path) -> None:
    """Copy the answers of services to a folder that has none, or fewer."""
    if not (source / JOURNAL_FILES[0]).is_file():
        return
    target.mkdir(exist_ok=True)
    for name in JOURNAL_FILES[::-1]:  # the journal itself last, which the others belong to
        (target / name).unlink(missing_ok=True)
        if (source / name).is_file():
            with replacing(target / name) as temporary:
                shutil.copyfile(source / name, temporary)
