"""`encode`: many texts to vectors, in memory, or on a disk where an interrupted run continues."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.config import with_settings
from sentence_experts.encoding.chunks import find_missing_parts
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.text_files import count_rows, find_tables, read_chunks
from sentence_experts.encoding.vector_files import (
    ID,
    NPY,
    PARQUET,
    ROW,
    VECTOR,
    WHAT,
    Encoded,
    as_precision,
    check_form,
    is_folder,
    part_name,
    write_parquet,
    write_vectors,
)
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.progress import Advance, progress, unseen
from sentence_experts.storage import Output, check_apart, explained, output
from sentence_experts.table_files import format_of
from sentence_experts.tables import Table, is_path
from sentence_experts.text_table import TextRow, TextTable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

Model: TypeAlias = "str | Path | SentenceTransformer | BatchEncoder"
Routes: TypeAlias = dict[str, str | None]  # column -> route of its vectors
_PART = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}


@overload
def encode(
    model: Model, texts: Table, config: EncodeConfig | None = None,
    out: None = None, overwrite: bool = False, *, load_config: LoadConfig | None = None, **settings: Any,
) -> NDArray[Any]: ...  # fmt: skip
@overload
def encode(
    model: Model, texts: Table, config: EncodeConfig | None = None,
    *, out: str | Path, overwrite: bool = False, load_config: LoadConfig | None = None, **settings: Any,
) -> Encoded: ...  # fmt: skip
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
) -> NDArray[Any] | Encoded:
    """Encode texts, in their order: in memory, to a file, or to a folder.

    `.npy` holds an array of shape (texts, dimensions), `.parquet` holds `row` (int64, from 0), `id` (if there
    is an `id_column`) and `vector` (fixed-size list of float32). A folder holds Parquet files of `shard_size`
    texts each, with a column for each route. Until the output is whole, parts are kept in a hidden folder
    beside it; the same call after an interruption continues from there, to the same bytes.

    Args:
        model: a model in memory, or the path or name of one.
        texts: a list of texts, the path of a table (Parquet, CSV, TSV, JSON lines, or plain text with one
            text per line; optionally gzipped), or a table or series in memory. Into a folder: a file, folder
            or pattern (`papers/*.parquet`), or several; of folders and patterns, the Parquet and JSON-lines
            files in which no part of the name begins with a dot or an underscore.
        config: settings; those given by name come before it.
        out: a file that ends in .npy or .parquet, or a folder.
        overwrite: start over, replacing other vectors.
        load_config: settings for opening a model that is given by its path or name; see `load`.

    Returns:
        Without `out`, an array of shape (texts, dimensions), float32 unless `precision` says otherwise.

    Raises:
        UsageError: a bad setting, `out` is also the input, or it holds something else.
        InputError: the texts cannot be read, there are none for `out`, they changed meanwhile, one is empty
            and the model cannot encode it, two have one id in a folder, or another process is writing `out`.
        RouteError: the model needs a route, or does not know this one.

    Example:
        >>> encode("model", ["One text.", "Another."], route="genomics").shape
        (2, 32)
    """
    config = EncodeConfig.of(config, **settings)
    load_config = LoadConfig.of(load_config)
    if isinstance(texts, list | tuple) and not (out is not None and is_folder(Path(out))):
        _check_texts(texts)
    if out is None:
        source = TextTable(texts, config.column, config.id_column)
        check_out(source, None, config)
        encoder, routes = _open_encoder(model, config, load_config)
        parts, empty = [np.zeros((0, encoder.dimension), np.float32)], 0
        with progress(f"encoding {Path(source.name).name}") as advance:
            for rows in read_chunks([source], encoder.cut_between_batches(config.chunk_size)):
                texts_of_part = [row.text for row in rows]
                encoder.check_empty(source.name, texts_of_part, sum(map(len, parts)))
                empty += sum(not text.strip() for text in texts_of_part)
                parts.append(encoder.encode(texts_of_part, routes[VECTOR], config.normalize, advance))
        if empty:
            logger.warning(f"{source.name}: {empty:,} of {sum(map(len, parts)):,} texts are empty")
        return as_precision(np.concatenate(parts), config.precision)
    path = Path(out)
    if is_folder(path):
        _check_not_input(path, texts)
        check_form(path, config.precision)
        tables = find_tables(texts, config.column, config.id_column)
        tables[0].check()
        check_apart(path, overwrite, model, [table.source for table in tables])
    else:
        tables = [TextTable(texts, config.column, config.id_column)]
        check_out(tables[0], path, config)
    in_folder = is_folder(path)
    with output(path, WHAT[in_folder], is_file=not in_folder, overwrite=overwrite) as place:
        return _encode_to_disk(model, tables, config, load_config, place)


def check_out(source: TextTable, out: Path | None, config: EncodeConfig) -> None:
    """Check, before a model is loaded, that the texts can be read and the vectors written to a file."""
    source.check()
    if out is not None:
        check_form(out, config.precision)
    if config.id_column is not None and (out is None or out.suffix == NPY):
        raise UsageError(
            "`id_column`: only Parquet holds ids: give an `out` that ends in .parquet, or a folder"
        )
    if config.shard_size != EncodeConfig.model_fields["shard_size"].default:
        raise UsageError("`shard_size`: only a folder is written in shards; leave it out")
    if len(config.route or ()) > 1:
        raise UsageError(
            f"`route={','.join(config.route or ())}`: only a folder holds what this gives: give one as `out`"
        )
    if out is not None:
        _check_not_input(out, source.source)


def _check_texts(texts: Sequence[Any]) -> None:
    """Refuse a list of files, which would be encoded as texts."""
    if texts and all(is_path(each) and format_of(str(each)) and _is_file(each) for each in texts):
        raise UsageError(
            f"`texts`: {texts[0]} is a file; several files give a folder of vectors (`out='vectors/'`), and "
            "one is given without a list around it"
        )


def _is_file(text: str | Path) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a text that no path can be
        return False


def _check_not_input(out: Path, texts: Any) -> None:
    if is_path(texts) and out.resolve() == Path(texts).resolve():
        raise UsageError(f"{out}: the output would overwrite the input")


def _open_encoder(
    model: Model, config: EncodeConfig, load_config: LoadConfig, in_folder: bool = False
) -> tuple[BatchEncoder, Routes]:
    """Return a model ready to encode many texts, and the routes that the settings mean for it.

    A path or name is opened as `load` does, once the routes are known to be the model's.

    Raises:
        RouteError: the model needs a route, or does not know one.
        UsageError, InputError: as `load`.
    """
    if not isinstance(model, BatchEncoder):
        if (known := KnownRoutes.read(model)) is not None:
            _choose_columns(known, config.route, in_folder)
        model = BatchEncoder.open(model, load_config, config.batch_size)
    return model, _choose_columns(model.known_routes, config.route, in_folder)


def _choose_columns(known: KnownRoutes, names: Sequence[str] | None, in_folder: bool) -> Routes:
    """Return column -> route of its vectors; a file has one column.

    Raises:
        RouteError: the model needs a route, or does not know one.
        UsageError: two routes would have one column.
    """
    if not in_folder:
        return {VECTOR: known.choose(names[0] if names else None)}
    if known.prompts and known.means_all(names):
        routes: list[str | None] = list(known.prompts)
    else:
        routes = [known.choose(name) for name in dict.fromkeys(names or (None,))]
    columns = [f"{VECTOR}_{route}" if route in (ROW, ID) else route or VECTOR for route in routes]
    if twice := next((name for place, name in enumerate(columns) if name in columns[:place]), None):
        raise UsageError(f"two routes would have the column {twice}: give each its own folder, with `route`")
    return dict(zip(columns, routes, strict=True))


def _encode_to_disk(
    model: Model, tables: Sequence[TextTable], config: EncodeConfig, load_config: LoadConfig, place: Output
) -> Encoded:
    """Encode to parts beside the output, from which an interrupted run continues, and join or link them."""
    in_folder = is_folder(place.path)
    encoder, routes = _open_encoder(model, config, load_config, in_folder)
    columns = {column: encoder.cache_key(route) for column, route in routes.items()}
    settings = {
        "columns": columns,
        **config.model_dump(include={"column", "id_column", "normalize", "precision"}),
        **({"shard_size": encoder.cut_between_batches(config.shard_size)} if in_folder else {}),
    }
    if place.begin(settings, {"input": lambda: [table.fingerprint() for table in tables]}) == "finished":
        return Encoded.open(place.path)
    source = tables[0].name if len(tables) == 1 else f"{len(tables)} files"
    size = encoder.cut_between_batches(config.chunk_size)
    order = {"order": [*routes]} if len(routes) > 1 else {}
    parts = place.parts(PARQUET, rounding=encoder.rounding_settings, chunk_size=size, **order)
    counts = {"texts": 0, "empty": 0}
    fields = [pa.field(ROW, pa.int64()), *([pa.field(ID, pa.string())] if config.id_column else [])]
    for column, route in routes.items():
        about = {"route": route or "", "fingerprint": str(columns[column]["fingerprint"])}
        fields.append(pa.field(column, pa.list_(pa.float32(), encoder.dimension), metadata=about))
    schema = pa.schema(fields)
    with progress(f"encoding {Path(source).name}", count_rows(tables) if in_folder else None) as advance:
        chunks = read_chunks(tables, settings["shard_size"] if in_folder else size, counts)
        for number, first, rows in find_missing_parts(chunks, parts, advance):
            with (
                explained(parts.folder),
                parts.writing(number) as temporary,
                pq.ParquetWriter(temporary, schema, **_PART) as writer,
            ):
                for start in range(0, len(rows), size):
                    some = rows[start : start + size]
                    encoder.check_empty(source, [row.text for row in some], first + start)
                    table = _encode_rows(encoder, some, first + start, routes, config.normalize, advance)
                    writer.write_table(table.select(schema.names).cast(schema), row_group_size=len(some))
                writer.close()
    if not counts["texts"]:
        parts.remove()
        raise InputError(f"{source}: no texts in it")
    if config.id_column is not None and not in_folder:
        _warn_of_ids(source, parts.paths())
    place.result = {"model": encoder.name, "dimension": encoder.dimension, "routes": routes, **counts}
    with place.replacing() as temporary:
        if in_folder:
            for number, part in enumerate(parts.paths()):
                _link(part, temporary / part_name(number))
        elif temporary.suffix == NPY:
            write_vectors(temporary, parts.paths(), counts["texts"], config.precision)
        else:
            made_by = {"model": encoder.name, "fingerprint": columns[VECTOR]["fingerprint"]}
            write_parquet(temporary, parts.paths(), {**made_by, "route": routes[VECTOR] or ""})
    return Encoded.open(place.path)


def _warn_of_ids(source: str, parts: Sequence[Path]) -> None:
    """Warn of texts without an id, and of ids of several texts."""
    ids = pa.chunked_array([pq.read_table(part, columns=[ID])[ID].combine_chunks() for part in parts])
    given = ids.filter(pc.fill_null(pc.not_equal(ids, ""), False))
    missing, repeated = len(ids) - len(given), len(given) - pc.count_distinct(given).as_py()
    if missing or repeated:
        logger.warning(
            f"{source}: texts without an id: {missing:,}; texts with the id of an earlier one: {repeated:,}"
        )


def _encode_rows(
    encoder: BatchEncoder,
    rows: Sequence[TextRow],
    first: int,
    routes: Routes,
    normalize: bool,
    advance: Advance,
) -> pa.Table:
    """Return the vectors of some texts under every route, with their numbers and identifiers."""
    numbers = np.arange(first, first + len(rows))
    columns: dict[str, Any] = {
        ROW: _make_array(numbers, pa.int64()),
        ID: pa.array([row.id for row in rows], pa.string()),
    }
    *_, last = routes
    for column, route in routes.items():  # texts are done when they have the last vector
        done = advance if column == last else unseen
        vectors = encoder.encode([row.text for row in rows], route, normalize, done)
        flat = _make_array(np.ascontiguousarray(vectors, np.float32), pa.float32())
        columns[column] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table(columns)


def _make_array(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return the numbers as an array of Arrow, without pandas, which `pa.array` would import."""
    return pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(numbers)])


def _link(part: Path, name: Path) -> None:
    """Give a part its name in the folder; it keeps the other one until the folder is whole."""
    try:
        os.link(part, name)
    except OSError:  # a file system without links
        shutil.copyfile(part, name)
