"""`encode`: many texts to vectors, in memory or to a file that an interrupted run continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.config import with_settings
from sentence_experts.encoding.bulk import check_complete, encode_folder
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.encoding.encoded_folder import EncodedFolder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.shards import VECTOR, ShardJob, ShardWriter
from sentence_experts.encoding.vector_files import (
    NPY,
    PARQUET,
    WITH_RANGES,
    check_form,
    in_precision,
    is_folder,
    ranges_beside,
    read_vectors,
    write_in_precision,
    write_parquet,
)
from sentence_experts.engines import LOCAL
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.models.routes.known_routes import check_route
from sentence_experts.progress import progress
from sentence_experts.storage import Output, SharedFolder, output
from sentence_experts.tables import Table, TextTable, is_path

if TYPE_CHECKING:
    import pandas as pd
    from sentence_transformers import SentenceTransformer

Model: TypeAlias = "str | Path | SentenceTransformer | BatchEncoder"


@dataclass(frozen=True)
class Encoded:
    """A file of vectors, `.npy` or `.parquet`, that `encode` wrote; `empty` is the number of empty texts."""

    path: Path
    texts: int
    empty: int
    dimension: int

    def vectors(self) -> NDArray[Any]:
        """Read the vectors, (texts, dimensions); `.npy` is mapped into memory."""
        return read_vectors(self.path)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per text: `row`, `id` (if wanted), `vector`."""
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
@with_settings(EncodeConfig)
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
        model: a model in memory, or the path or name of one (which workers of Ray need).
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
    if path is None:
        encoder, route = open_encoder(model, config.only_route, config.batch_size, load_config)
        return _encode_in_memory(encoder, source, config, route)
    ranges = [ranges_beside(path).name] if config.precision in WITH_RANGES else []
    with output(path, "file of vectors", is_file=True, names=ranges, overwrite=overwrite) as place:
        encoder, route = open_encoder(model, config.only_route, config.batch_size, load_config)
        return _encode_to_file(encoder, source, config, route, place)


def open_encoder(
    model: Model,
    route: str | None = None,
    batch_size: int | None = None,
    config: LoadConfig | None = None,
) -> tuple[BatchEncoder, str | None]:
    """Return a model ready to encode many texts, and the route that `route` means for it.

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


def _encode_in_memory(
    encoder: BatchEncoder, source: TextTable, config: EncodeConfig, route: str | None
) -> NDArray[Any]:
    parts: list[NDArray[np.float32]] = []
    done = 0
    with progress(f"encoding {Path(source.name).name}") as advance:
        for rows in source.chunks(config.chunk_size):
            texts = [row.text for row in rows]
            encoder.check_empty(source.name, texts, done)
            parts.append(encoder.encode(texts, route, config.normalize, advance))
            done += len(texts)
    encoder.log_low_confidence()
    vectors = np.concatenate(parts) if parts else np.zeros((0, encoder.dimension), np.float32)
    return in_precision(vectors, config.precision)


def _encode_to_file(
    encoder: BatchEncoder, source: TextTable, config: EncodeConfig, route: str | None, place: Output
) -> Encoded:
    """Encode to parts beside the file, from which an interrupted run continues, and join them."""
    settings = encoder.vector_settings(route)
    made_by = {"model": encoder.name, "fingerprint": settings["fingerprint"], "route": route or ""}
    settings |= config.model_dump(include={"normalize", "column", "id_column", "precision"})
    if place.begin(settings, {"input": source.fingerprint}) == "finished":
        return Encoded(place.path, **{name: place.result[name] for name in ("texts", "empty", "dimension")})
    parts = place.parts(PARQUET, rounding=encoder.rounding_settings, chunk_size=config.chunk_size)
    job = ShardJob(
        out=SharedFolder(str(parts.folder)),
        digest=parts.settings_hash,
        routes={VECTOR: route},
        settings={VECTOR: settings},
        has_ids=source.id_column is not None,
        chunk_size=config.chunk_size,
        normalize=config.normalize,
        source=source.name,
    )
    writer = ShardWriter(job, encoder)
    with progress(f"encoding {Path(source.name).name}") as advance:
        chunks = enumerate(source.chunks(config.chunk_size))
        shards = check_complete(
            writer.write(number, number * config.chunk_size, rows, advance) for number, rows in chunks
        )
    encoder.log_low_confidence()
    if not shards:
        parts.remove()
        raise InputError(f"{source.name}: no texts in it")
    files = [parts.folder / job.name(shard.number) for shard in shards]
    counts = {name: sum(getattr(shard, name) for shard in shards) for name in ("texts", "empty")}
    counts["dimension"] = pq.read_schema(files[0]).field(VECTOR).type.list_size
    place.result = {"model": encoder.name, **counts}
    with place.replacing() as temporary:
        if place.path.suffix == NPY:
            write_in_precision(temporary, files, counts["texts"], config.precision)
        else:
            write_parquet(temporary, files, made_by)
    return Encoded(place.path, **counts)
