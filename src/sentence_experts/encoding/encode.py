"""`encode`: many texts to vectors, in memory or or to a file that an interrupted run continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.bulk import encode_folder
from sentence_experts.encoding.chunks import encode_chunks
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.encoding.encoded_folder import EncodedFolder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.vector_files import (
    NPY,
    WITH_RANGES,
    check_form,
    in_precision,
    is_folder,
    ranges_beside,
    read_vectors,
    shape_of,
    write_vectors,
)
from sentence_experts.engines import LOCAL
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.models.routes.known_routes import check_route
from sentence_experts.progress import progress
from sentence_experts.storage import Output, output
from sentence_experts.tables import Table, TextRow, TextTable, is_path

if TYPE_CHECKING:
    import pandas as pd
    from sentence_transformers import SentenceTransformer

Model: TypeAlias = "str | Path | SentenceTransformer | BatchEncoder"
COUNTS = ("texts", "empty", "dimension")


@dataclass(frozen=True)
class Encoded:
    """A file of vectors, `.npy` or `.parquet`, that `encode` wrote; `empty` is the number of empty texts."""

    path: Path
    texts: int
    empty: int
    dimension: int

    def vectors(self) -> NDArray[Any]:
        """The vectors, (texts, dimensions); `.npy` is mapped into memory, not read."""
        return read_vectors(self.path)

    def to_pandas(self) -> pd.DataFrame:
        """One row per text: `row`, `id` (if wanted), `vector`."""
        import pandas as pd

        if self.path.suffix == NPY:
            return pd.DataFrame({"row": range(self.texts), "vector": list(self.vectors())})
        frame: pd.DataFrame = pq.read_table(self.path).to_pandas()
        return frame


@overload
def encode(
    model: Model, texts: Table, config: EncodeConfig | None = None,
    out: None = None, overwrite: bool = False, *, load_config: LoadConfig | None = None, **settings: Any,
) -> NDArray[Any]: ...  # fmt: skip
@overload
def encode(
    model: Model, texts: Table, config: EncodeConfig | None, out: str | Path,
    overwrite: bool = False, *, load_config: LoadConfig | None = None, **settings: Any,
) -> Encoded | EncodedFolder: ...  # fmt: skip
@overload
def encode(
    model: Model, texts: Table, config: EncodeConfig | None = None,
    *, out: str | Path, overwrite: bool = False, load_config: LoadConfig | None = None, **settings: Any,
) -> Encoded | EncodedFolder: ...  # fmt: skip
def encode(
    model: Model,
    texts: Table,
    config: EncodeConfig | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    *,
    load_config: LoadConfig | None = None,
    **settings: Any,
) -> NDArray[Any] | Encoded | EncodedFolder:
    """Encode texts, in their order: in memory, to a file, or to a folder, also on a cluster.

    With `out`, vectors are written to a file, and what they were made from to `OUT.json` beside it. Until it
    is whole, chunks are kept in a hidden folder beside it; the same call after an interruption continues
    from there, to the same bytes. `.npy` holds an array of shape (texts, dimensions). `.parquet` holds `row`
    (int64, from 0), `id` (if there is an `id_column`) and `vector` (fixed-size list of float32).

    If `out` is a folder, the texts are Parquet or JSON-lines files, and `engine` says where they are encoded.
    The folder holds Parquet files of `shard_size` texts each with `row`, `id` and a column for each route
    (`vector` without routes), the same bytes on every engine. A run that was interrupted continues with the
    shards that are missing, also on another engine.

    Args:
        model: a model in memory, or the path or name of one (which workers of Ray and Spark need).
        texts: a list of texts, the path of a table (Parquet, CSV, TSV, JSON lines, or plain text with one
            text per line; optionally gzipped), or a table or series in memory (pandas, polars, Arrow,
            `datasets.Dataset`). Into a folder: a file, folder, pattern (`papers/*.parquet`) or URL
            (`s3://...`), or several.
        config: settings; those given by name come before it.
        out: a file that ends in .npy or .parquet, or a folder or its URL.
        overwrite: start over, replacing other vectors.
        load_config: how to open a model that is given by its path or name; see `load`.

    Returns:
        Without `out`, an array of shape (texts, dimensions), float32 unless `precision` says otherwise.

    Raises:
        UsageError: a bad setting, `out` is also the input, or it holds something else.
        InputError: the texts cannot be read, there are none, they changed meanwhile, one is empty and the
            model cannot encode it, two have one id in a folder, or another process is writing `out`.
        RouteError: the model needs a route, or does not know this one.
        SentenceExpertsError: an engine is not installed, does not start or gives up.

    Example:
        >>> encode("model", ["One text.", "Another."], route="genomics").shape
        (2, 32)
    """
    config = EncodeConfig.of(config, **settings)
    if out is not None and is_folder(out):
        check_form(None, config.precision, of_folder=True)
        return encode_folder(model, texts, config, out, overwrite, LoadConfig.of(load_config))
    source = TextTable(texts, config.column, config.id_column)
    path = None if out is None else Path(out)
    check_out(source, path, config)
    with nullcontext() if path is None else _vector_file(path, config, overwrite) as place:
        encoder, route = open_encoder(model, config.only_route, config.batch_size, load_config)
        return _encode(encoder, source, config, route, place)


def open_encoder(
    model: Model,
    route: str | None = None,
    batch_size: int | None = None,
    config: LoadConfig | None = None,
) -> tuple[BatchEncoder, str | None]:
    """A model ready to encode many texts, and the route that `route` means for it.

    A path or name is opened as `load` does, once the route is known to be one of the model's.

    Raises:
        RouteError: the model has routes and none is named or set as default, or it does not know `route`.
        UsageError, InputError: as `load`.
    """
    if not isinstance(model, BatchEncoder):
        check_route(model, route)
        model = BatchEncoder(load(model, config), batch_size)
    return model, model.chosen_route(route)


def check_out(source: TextTable, out: Path | None, config: EncodeConfig) -> None:
    """Check, before a model is loaded, that the texts can be read and the vectors written."""
    source.check()
    check_form(out, config.precision)
    if config.engine != LOCAL or len(config.route or ()) > 1:
        name = "engine" if config.engine != LOCAL else "route"
        given = config.engine if config.engine != LOCAL else ",".join(config.route or ())
        raise UsageError(f"`{name}={given}`: only a folder holds what this gives: give one as `out`")
    if out is not None and is_path(source.source) and out.resolve() == Path(source.source).resolve():
        raise UsageError(f"{out}: the output would overwrite the input")


def _vector_file(out: Path, config: EncodeConfig, overwrite: bool) -> AbstractContextManager[Output]:
    ranges = [ranges_beside(out).name] if config.precision in WITH_RANGES else []
    return output(out, "file of vectors", is_file=True, names=ranges, overwrite=overwrite)


def _encode(
    encoder: BatchEncoder, source: TextTable, config: EncodeConfig, route: str | None, place: Output | None
) -> NDArray[Any] | Encoded:
    """Encode chunk by chunk, to a file if there is a place for one."""
    parts, made_by = None, {}
    counter = _Counter(source.name, encoder.takes_empty)
    chunks = counter.count(source.chunks(config.chunk_size))
    if place is not None:
        settings = encoder.vector_settings(route)
        made_by = {"model": encoder.name, "fingerprint": settings["fingerprint"], "route": route or ""}
        settings |= config.model_dump(include={"normalize", "column", "id_column", "precision"})
        if place.begin(settings, {"input": source.fingerprint}) == "finished":
            return Encoded(place.path, *(place.result[name] for name in COUNTS))
        parts = place.parts(NPY, rounding=encoder.rounding_settings, chunk_size=config.chunk_size)
    with progress(f"encoding {Path(source.name).name}") as advance:
        encode_part = lambda texts, advance: encoder.encode(texts, route, config.normalize, advance)  # noqa: E731
        encoded = encode_chunks(encode_part, chunks, parts, advance)
    encoder.log_low_confidence()
    if place is None or parts is None:
        vectors = np.concatenate(encoded) if encoded else np.zeros((0, encoder.dimension), np.float32)
        return in_precision(vectors, config.precision)
    if not encoded:
        parts.remove()
        raise InputError(f"{source.name}: no texts in it")
    rows, dimension = shape_of(encoded)
    if rows != counter.texts:
        raise InputError(
            f"{place.path}: not written: {rows:,} vectors of {counter.texts:,} texts; give the same command "
            "again"
        )
    counts = counter.texts, counter.empty, dimension
    place.result = {"model": encoder.name, **dict(zip(COUNTS, counts, strict=True))}
    with place.replacing() as temporary:
        ranges = place.beside(ranges_beside(place.path).name)
        write_vectors(temporary, ranges, place.path, encoded, source, config, made_by)
    return Encoded(place.path, *counts)


class _Counter:
    """Counts texts and empty texts, and stops at an empty one that the model cannot encode."""

    def __init__(self, name: str, takes_empty: bool) -> None:
        self.name = name
        self.takes_empty = takes_empty
        self.texts = self.empty = 0

    def count(self, chunks: Iterator[list[TextRow]]) -> Iterator[list[str]]:
        for rows in chunks:
            empty = [number for number, row in enumerate(rows, start=1) if not row.text.strip()]
            if empty and not self.takes_empty:
                raise InputError(
                    f"{self.name}: text {self.texts + empty[0]} is empty, and this model cannot encode empty "
                    f"texts: remove it (the {self.texts:,} texts of the chunks before it are encoded)"
                )
            self.texts += len(rows)
            self.empty += len(empty)
            yield [row.text for row in rows]
