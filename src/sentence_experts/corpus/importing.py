"""Articles and tables of the user to a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentence_experts.corpus.building import build_corpus
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.formats.archives import find_sources
from sentence_experts.corpus.tables import CorpusFolder
from sentence_experts.corpus.user_tables import UserTables
from sentence_experts.errors import UsageError


def import_corpus(
    sources: Iterable[Path | str] = (),
    out: Path | str = "corpus",
    config: ImportConfig | None = None,
    **settings: Any,
) -> CorpusFolder:
    """Read articles from folders, XML files and archives, or papers and citations from tables, into a corpus.

    With more than one worker, a script must call this under `if __name__ == "__main__":`.

    Args:
        sources: folders, `.xml` and `.nxml` files, `.tar[.gz|.xz|.bz2]` and `.zip` archives.
        out: the folder of the corpus.
        config: the settings; `settings` override its fields, by name.

    Raises:
        InputError: a source is missing or of an unknown kind, or `out` holds another corpus.
        UsageError: nothing to import.

    Example:
        >>> corpus = import_corpus(["articles"], "my-corpus", workers=1)
        >>> corpus.manifest["counts"]["papers"]
        120
    """
    config = ImportConfig.of(config, **settings)
    files = find_sources([Path(source) for source in sources])
    tables = UserTables.open(config.papers, config.citations)
    if not files and tables is None:
        raise UsageError("nothing to import: name at least one folder, file or archive, or give `papers`")
    return build_corpus(
        Path(out), files, [tables] if tables else [], workers=config.workers, overwrite=config.overwrite
    )
