"""`import_corpus`: articles and tables of the user's own to a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentence_experts.corpus.building import Sources, build_corpus, corpus_output
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.formats.archives import Source, find_sources
from sentence_experts.corpus.tables import CorpusFolder, corpus_in_memory
from sentence_experts.corpus.user_tables import UserTables
from sentence_experts.errors import UsageError
from sentence_experts.tables import Table


def import_corpus(
    sources: Iterable[Path | str] | Path | str = (),
    out: Path | str | None = None,
    config: ImportConfig | None = None,
    overwrite: bool = False,
    *,
    papers: Table | None = None,
    citations: Table | None = None,
    **settings: Any,
) -> CorpusFolder:
    """Read articles and tables into a corpus.

    With more than one worker, a script must call this under `if __name__ == "__main__":`.

    Args:
        sources: folders, `.xml`/`.nxml` files, `.tar[.gz|.xz|.bz2]` and `.zip` archives of JATS or PubMed
            articles, in any mix.
        out: the folder of the corpus; without it the corpus lasts as long as the returned object.
        config: settings; those given by name come before it.
        overwrite: begin anew, in place of another corpus in `out`.
        papers: a table of papers (a file or data frame): `id`, `title`, `abstract`, and if known `year`,
            `subjects`, `mesh`, `keywords`, `doi`, `pmid`, `pmcid`, ... (`user_tables`).
        citations: a table of citations between them: `citing`, `cited`.

    Raises:
        InputError: a source is missing, of an unknown kind, or changed meanwhile, or another process is
            writing `out`.
        UsageError: nothing to import, a bad setting, or `out` holds something else.

    >>> corpus = import_corpus(papers=[{"id": "1", "title": "Drought in rice", "abstract": "Roots grow."}])
    >>> corpus.to_pandas()["title"].tolist()
    ['Drought in rice']
    """
    config = ImportConfig.of(config, **settings)
    paths = [sources] if isinstance(sources, str | Path) else sources
    files = find_sources([Path(path) for path in paths])
    tables = UserTables.of(papers, citations)
    if not files and tables is None:
        raise UsageError("nothing to import: name at least one folder, file or archive, or give `papers`")
    extras = [tables] if tables else []
    if out is None:
        return corpus_in_memory(lambda folder: _import(folder, files, extras, config, False))
    return _import(Path(out), files, extras, config, overwrite)


def _import(
    out: Path, sources: list[Source], extras: list[UserTables], config: ImportConfig, overwrite: bool
) -> CorpusFolder:
    with corpus_output(out, overwrite) as place:
        read = Sources.of(sources, extras)
        if place.begin({"sources": read.described}) == "finished":
            return CorpusFolder.open(place.path)
        return build_corpus(place, read, config.workers)
