"""`encode`: many texts to vectors, in memory, or on a disk where an interrupted run continues."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from sentence_experts.config import with_settings
from sentence_experts.encoding.chunks import Vectors, missing_parts
from sentence_experts.encoding.config import ALL_ROUTES, EncodeConfig
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.part_writer import PartJob, write_on_ray
from sentence_experts.encoding.text_files import chunks_of, count_rows, find_tables
from sentence_experts.encoding.vector_files import (
    ID,
    NPY,
    PARQUET,
    ROW,
    VECTOR,
    WHAT,
    Encoded,
    check_form,
    is_folder,
    write_parquet,
    write_vectors,
)
from sentence_experts.engines import LOCAL, Engine
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.progress import progress
from sentence_experts.storage import Output, check_apart, output
from sentence_experts.tables import Table, TextRow, TextTable, is_path

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Model: TypeAlias = "str | Path | SentenceTransformer | BatchEncoder"
Routes: TypeAlias = dict[str, str | None]  # column -> route of its vectors


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
    """Encode texts, in their order: in memory, to a file, or to a folder, also on a cluster.

    `.npy` holds an array of shape (texts, dimensions), `.parquet` holds `row` (int64, from 0), `id` (if there
    is an `id_column`) and `vector` (fixed-size list of float32). A folder holds Parquet files of `shard_size`
    texts each, with a column for each route. Until the output is whole, parts are kept in a hidden folder
    beside it; the same call after an interruption continues from there, to the same bytes.

    Args:
        model: a model in memory, or the path or name of one (which workers of Ray need).
        texts: a list of texts, the path of a table (Parquet, CSV, TSV, JSON lines, or plain text with one
            text per line; optionally gzipped), or a table or series in memory. Into a folder: a file, folder
            or pattern (`papers/*.parquet`), or several; of folders and patterns, the Parquet and JSON-lines
            files.
        config: settings; those given by name come before it.
        out: a file that ends in .npy or .parquet, or a folder.
        overwrite: start over, replacing other vectors.
        load_config: settings for opening a model that is given by its path or name; see `load`.

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
    load_config = LoadConfig.of(load_config)
    if out is None:
        source = TextTable(texts, config.column, config.id_column)
        check_out(source, None, config)
        encoder, routes = _open_encoder(model, config, load_config)
        vectors = _encode_in_memory(encoder, source, routes[VECTOR], config)
        return vectors.astype(config.precision, copy=False)
    path = Path(out)
    if is_folder(path):
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
    if config.engine != LOCAL or len(config.route or ()) > 1:
        name = "engine" if config.engine != LOCAL else "route"
        given = config.engine if config.engine != LOCAL else ",".join(config.route or ())
        raise UsageError(f"`{name}={given}`: only a folder holds what this gives: give one as `out`")
    if out is not None and is_path(source.source) and out.resolve() == Path(source.source).resolve():
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
        cores = Engine.parse(config.engine).cores
        model = BatchEncoder.open(model, load_config, config.batch_size, cores=cores)
    return model, _choose_columns(model.known_routes, config.route, in_folder)


def _choose_columns(known: KnownRoutes, names: Sequence[str] | None, in_folder: bool) -> Routes:
    """Return column -> route of its vectors; a file has one column."""
    if not in_folder:
        return {VECTOR: known.choose(names[0] if names else None)}
    if names == [ALL_ROUTES] and ALL_ROUTES not in known.prompts and known.prompts:
        routes: list[str | None] = list(known.prompts)
    else:
        routes = [known.choose(name) for name in dict.fromkeys(names or (None,))]
    return {f"{VECTOR}_{route}" if route in (ROW, ID) else route or VECTOR: route for route in routes}


def _encode_in_memory(
    encoder: BatchEncoder, source: TextTable, route: str | None, config: EncodeConfig
) -> Vectors:
    parts = [np.zeros((0, encoder.dimension), np.float32)]
    done = 0
    with progress(f"encoding {Path(source.name).name}") as advance:
        for rows in chunks_of([source], config.chunk_size):
            texts = [row.text for row in rows]
            encoder.check_empty(source.name, texts, done)
            parts.append(encoder.encode(texts, route, config.normalize, advance))
            done += len(texts)
    return np.concatenate(parts)


def _encode_to_disk(
    model: Model, tables: Sequence[TextTable], config: EncodeConfig, load_config: LoadConfig, place: Output
) -> Encoded:
    """Encode to parts beside the output, from which an interrupted run continues, and join or link them."""
    in_folder, engine = is_folder(place.path), Engine.parse(config.engine)
    here = load_config
    if engine.kind != LOCAL:
        if not isinstance(model, str | Path):
            raise UsageError(
                f"`engine={engine.name}`: workers open the model themselves: give its folder or name"
            )
        load_config = load_config.model_copy(update={"device": load_config.device or "cpu"})
        # This process needs the model's name and hashes, and may have no GPU.
        here = load_config.model_copy(update={"device": "cpu"})
    encoder, routes = _open_encoder(model, config, here, in_folder)
    columns = {column: encoder.vector_settings(route) for column, route in routes.items()}
    settings = {
        "columns": columns,
        **config.model_dump(include={"column", "id_column", "normalize", "precision"}),
        **({"shard_size": config.shard_size} if in_folder else {}),
    }
    if place.begin(settings, {"input": lambda: [table.fingerprint() for table in tables]}) == "finished":
        return Encoded.open(place.path)
    counts = {"texts": 0, "empty": 0}
    place.result = {"model": encoder.name, "dimension": encoder.dimension, "routes": routes}
    source = tables[0].name if len(tables) == 1 else f"{len(tables)} files"
    rounding = encoder.rounding_settings
    if engine.kind != LOCAL:
        rounding["device"] = str(load_config.device).partition(":")[0]
    parts = place.parts(PARQUET, rounding=rounding, chunk_size=config.chunk_size)
    has_ids = config.id_column is not None
    job = PartJob(parts, routes, columns, has_ids, config.chunk_size, config.normalize, source)
    with progress(f"encoding {Path(source).name}", count_rows(tables) if in_folder else None) as advance:
        chunks = chunks_of(tables, config.shard_size if in_folder else config.chunk_size)
        missing = missing_parts(_counted(chunks, counts), parts, advance)
        if engine.kind == LOCAL:
            for number, first, rows in missing:
                job.write(encoder, number, first, rows, advance)
        else:
            del encoder  # its memory belongs to the workers
            where = str(Path(str(model)).absolute() if Path(str(model)).exists() else model)
            write_on_ray(missing, engine, advance, job, where, load_config, config.batch_size)
    if not counts["texts"]:
        parts.remove()
        raise InputError(f"{source}: no texts in it")
    place.result |= counts
    with place.replacing() as temporary:
        if in_folder:
            for number, part in enumerate(parts.paths()):
                _link(part, temporary / f"part-{number:06d}{PARQUET}")
        elif temporary.suffix == NPY:
            write_vectors(temporary, parts.paths(), counts["texts"], config.precision)
        else:
            made_by = {"model": place.result["model"], "fingerprint": columns[VECTOR]["fingerprint"]}
            write_parquet(temporary, parts.paths(), {**made_by, "route": routes[VECTOR] or ""})
    return Encoded.open(place.path)


def _counted(chunks: Iterable[list[TextRow]], counts: dict[str, int]) -> Iterator[list[TextRow]]:
    """Yield the chunks; count the texts, and the empty ones."""
    for rows in chunks:
        counts["texts"] += len(rows)
        counts["empty"] += sum(not row.text.strip() for row in rows)
        yield rows


def _link(part: Path, name: Path) -> None:
    """Give a part its name in the folder; it keeps the other one until the folder is whole."""
    try:
        os.link(part, name)
    except OSError:  # a file system without links
        shutil.copyfile(part, name)
