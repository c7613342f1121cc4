"""The records that a corpus was made of, kept in its folder as their sources state them, so that it can grow.

Papers and citations are resolved anew from all records, old and new. So adding in steps gives what one import
gives: later versions replace earlier ones, deletions delete, and identifiers are learned from everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import PAPERS, REFERENCES, REJECTED, STATED, part_key, write_rejections
from sentence_experts.corpus.resolving import Resolved, spots_of
from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, sha256_file, sha256_text, write_stream

_ROWS_AT_ONCE = 8192
RECORDS = "records"
"""The name of their folder in that of the corpus; it holds one file for each kind of a part's files."""
_FILES = {suffix: f"{RECORDS}/{suffix[1:]}" for suffix in (*STATED, REJECTED)}


def write_records(folder: Path, parts: PartStore, resolved: Resolved, rejections: list[Rejection]) -> None:
    """Write the records of all parts, identical ones once, and what was set aside when they were read."""
    copies = resolved.copies()
    for suffix, schema in STATED.items():
        kept = (_keep_first(batch, copies) for path in parts.paths(suffix) for batch in _read(path))
        more = resolved.citations_of_tables() if suffix == REFERENCES else ()
        if parts.keys(suffix):
            write_stream(folder / _FILES[suffix], chain(kept, more), schema)
    write_rejections(folder / _FILES[REJECTED], rejections)


def _keep_first(batch: pa.RecordBatch, copies: NDArray[np.int64]) -> pa.RecordBatch:
    """Leave out the rows of records that another one equals, and those that belong to no record."""
    if not len(copies) and not batch["record"].null_count:
        return batch
    of_a_record = batch["record"].is_valid().to_numpy(zero_copy_only=False)
    return batch.filter(pa.array(of_a_record & ~np.isin(spots_of(batch), copies)))


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(_ROWS_AT_ONCE)


@dataclass(frozen=True)
class CorpusRecords:
    """The records of a finished corpus as a source of another one (a `building.TableSource`)."""

    corpus: CorpusFolder

    def __post_init__(self) -> None:
        if _FILES[PAPERS] not in self.corpus.hashes:
            raise InputError(
                f"{self.corpus.path} keeps no records that more could be added to, as those of earlier "
                "versions and of tables in memory: import its sources again"
            )

    @property
    def fingerprint(self) -> str:
        """A hash of all records."""
        return sha256_text(*(f"{name}={self.corpus.hashes.get(name)}" for name in _FILES.values()))

    def described(self) -> list[dict[str, Any]]:
        """Describe the sources that the corpus was made from."""
        return list(self.corpus.manifest["sources"])

    def paths(self) -> list[Path]:
        """Return no files: `parse` compares those of the corpus with their hashes."""
        return []

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the records as one part, with the numbers that their sources have now.

        Raises:
            InputError: they have changed since they were written.
        """
        key = part_key(first_source, 0)
        if parts.is_done(key):
            return
        files = {suffix: self.corpus.path / name for suffix, name in _FILES.items()}
        for suffix, file in files.items():
            if (sha256_file(file) if file.is_file() else None) != self.corpus.hashes.get(_FILES[suffix]):
                raise self.corpus.describe_change(_FILES[suffix])
        with parts.writing(key, REJECTED) as temporary:
            temporary.write_bytes(files[REJECTED].read_bytes())
        # The papers make the part whole, so they come last.
        for suffix, schema in reversed(STATED.items()):
            if files[suffix].is_file():
                rows = pq.read_metadata(files[suffix]).num_rows
                with parts.writing(key, suffix) as temporary, progress("rows of the corpus", rows) as advance:
                    write_stream(temporary, _renumber(files[suffix], first_source, advance, schema), schema)


def _renumber(path: Path, first_source: int, advance: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in _read(path):
        for field in (
            each for each in schema if each.name not in batch.schema.names
        ):  # of an earlier version
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        numbers = pc.add(batch["source"], pa.scalar(first_source, pa.int32()))
        yield batch.set_column(0, batch.schema.field(0), numbers)
        advance(batch.num_rows)
