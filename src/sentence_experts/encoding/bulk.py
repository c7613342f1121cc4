"""`encode` into a folder: many files of texts, on one machine or on a cluster of Ray.

The folder holds the parts, `begun.json` (what they are made from, so that a run goes on only with the same)
and at the end `made_from.json`, which is written once, on the condition that there is none. A result that is
to replace another one is first made in `.new` inside the folder.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson

from sentence_experts.encoding.config import ALL_ROUTES, EncodeConfig
from sentence_experts.encoding.encoded_folder import (
    BEGUN,
    WHAT,
    EncodedFolder,
    check_files,
    read_record_of,
)
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.parallel_cpu import BATCHING
from sentence_experts.encoding.shards import (
    ID,
    ROW,
    VECTOR,
    RayWorker,
    Shard,
    ShardJob,
    ShardWriter,
    write_on_ray,
)
from sentence_experts.encoding.text_files import Source, TextFiles, find_files, fingerprint_of_file
from sentence_experts.engines import LOCAL, Engine
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.models.routes.known_routes import AUTO, KnownRoutes
from sentence_experts.progress import Advance, progress
from sentence_experts.storage import (
    NEW,
    RECORD,
    SharedFolder,
    check_apart,
    described,
    different_setting,
    is_url,
    locked,
    record_of,
    sha256_settings,
    sync,
)
from sentence_experts.tables import TextTable

logger = logging.getLogger(__name__)

_SHARD_NAME = re.compile(r"part-\d{6,}\.[0-9a-f]{8}\.parquet")


def encode_folder(
    model: Any,
    sources: Source | Sequence[Source],
    config: EncodeConfig,
    out: Source,
    overwrite: bool,
    load_config: LoadConfig,
) -> EncodedFolder:
    """Encode the texts of files into a folder of parts; see `encode`."""
    engine = Engine.parse(config.engine)
    paths = find_files(sources)
    TextTable(paths[0], config.column, config.id_column).check()
    folder = SharedFolder(str(out) if is_url(out) else str(Path(out).absolute()))
    with nullcontext() if folder.local is None else locked(folder.local, "encode"):
        _take_place(folder)  # where a run was interrupted
        check_apart(folder.local, overwrite, model, paths)
        _check_vacant(folder, overwrite)
        if (known := KnownRoutes.read(model)) is not None:
            _choose_columns(known, config.route)
        if engine.kind != LOCAL:
            load_config = load_config.model_copy(update={"device": load_config.device or "cpu"})
        encoder = _open_model(model, engine, config, load_config)
        routes = _choose_columns(encoder.known_routes, config.route)
        settings = _settings(encoder, routes, config, load_config, engine)
        settings["input"] = [fingerprint_of_file(path) for path in paths]
        settings = orjson.loads(orjson.dumps(settings))
        target = _choose_target(folder, settings, overwrite)
        if target == folder and (finished := _read_same(folder, settings, RECORD)) is not None:
            check_files(folder, finished["files"])
            logger.info(f"{folder.path}: finished already, with the same settings and inputs")
            return EncodedFolder.open(folder.path)
        files = _plan(target, settings, paths, config)
        job = ShardJob(
            out=target,
            digest=sha256_settings(settings)[:8],
            routes=routes,
            settings=settings["columns"],
            has_ids=config.id_column is not None,
            chunk_size=config.chunk_size,
            normalize=config.normalize,
            source=str(sources) if isinstance(sources, Source) else ", ".join(map(str, sources)),
        )
        result = {"model": encoder.name, "dimension": encoder.dimension, "routes": routes}
        with progress(f"encoding {files.rows:,} texts", files.rows) as advance:
            if engine.kind == LOCAL:
                shards = check_complete(write_here(ShardWriter(job, encoder), files, advance), files.rows)
            else:
                del encoder  # its memory belongs to the workers
                place = str(Path(model).absolute()) if Path(model).exists() else str(model)
                worker = RayWorker(job, files, place, load_config, config.batch_size)
                shards = check_complete(write_on_ray(engine, worker, advance), files.rows)
        if [fingerprint_of_file(path) for path in paths] != settings["input"]:
            raise InputError(f"{folder.path}: not finished: its input changed while it was read")
        result |= {name: sum(getattr(shard, name) for shard in shards) for name in ("texts", "empty")}
        _finish(target, settings, result, {job.name(shard.number): shard.sha256 for shard in shards})
        _take_place(folder)
        return EncodedFolder.open(folder.path)


def write_here(writer: ShardWriter, files: TextFiles, advance: Advance) -> Iterator[Shard]:
    """Write all parts in this process."""
    for number in range(files.ranges):
        yield writer.write(number, number * files.size, files.read(number), advance)
    writer.encoder.log_low_confidence()


def check_complete(written: Iterable[Shard], texts: int | None = None) -> list[Shard]:
    """Return all parts in order, which hold the vectors of as many texts, if that is known.

    Raises:
        InputError: there are fewer or more.
    """
    shards = sorted(written, key=lambda shard: shard.number)
    if reused := sum(shard.reused for shard in shards):
        logger.info(f"{reused} of {len(shards)} parts were already encoded by an earlier, interrupted run")
    found = sum(shard.texts for shard in shards)
    if texts is not None and found != texts:
        raise InputError(f"not finished: {found:,} vectors of {texts:,} texts; give the same command again")
    return shards


def _check_vacant(folder: SharedFolder, overwrite: bool) -> None:
    """Refuse a file, the output of something else, or a folder with other files."""
    if folder.local is not None and folder.local.exists() and not folder.local.is_dir():
        raise UsageError(f"{folder.path} is a file; `out` must be a folder")
    names = folder.names()
    others = sorted(name for name in names - {BEGUN, RECORD} if not _SHARD_NAME.fullmatch(name))
    for name in sorted(names & {BEGUN, RECORD}):
        record = read_record_of(folder, name, damaged_is_none=overwrite)
        if record is not None and record["what"] != WHAT:
            raise UsageError(f"{folder.path} holds a {record['what']}: give another `out`")
    if others and not overwrite and not names & {BEGUN, RECORD}:
        raise UsageError(
            f"{folder.path} holds other files ({', '.join(others[:3])}): give another `out`, or `overwrite` "
            "to write beside them"
        )


def _open_model(model: Any, engine: Engine, config: EncodeConfig, load_config: LoadConfig) -> BatchEncoder:
    if engine.kind == LOCAL:
        if isinstance(model, BatchEncoder):
            return model
        return BatchEncoder(load(model, load_config), config.batch_size, cores=engine.cores)
    if not isinstance(model, str | Path):
        raise UsageError(
            f"`engine={engine.name}`: workers open the model themselves: give its folder or name"
        )
    # This process needs its name and its hashes, and may have no GPU.
    return BatchEncoder(load(model, load_config.model_copy(update={"device": "cpu"})), config.batch_size)


def _choose_columns(known: KnownRoutes, names: Sequence[str] | None) -> dict[str, str | None]:
    """Return column -> route of its vectors.

    Raises:
        RouteError: the model needs a route, or does not know one.
    """
    if names == [ALL_ROUTES] and ALL_ROUTES not in known.prompts and known.prompts:
        routes: list[str | None] = [name for name in known.prompts if name != AUTO]
    else:
        routes = [known.choose(name) for name in dict.fromkeys(names)] if names else [known.choose(None)]
    return {f"{VECTOR}_{route}" if route in (ROW, ID) else route or VECTOR: route for route in routes}


def _settings(
    encoder: BatchEncoder,
    routes: dict[str, str | None],
    config: EncodeConfig,
    load_config: LoadConfig,
    engine: Engine,
) -> dict[str, Any]:
    """Return everything that decides the bytes of the parts, but for the input."""
    device = encoder.model.device.type if engine.kind == LOCAL else str(load_config.device).partition(":")[0]
    return {
        "columns": {column: encoder.vector_settings(route) for column, route in routes.items()},
        **config.model_dump(include={"column", "id_column", "normalize", "chunk_size", "shard_size"}),
        "batches": config.batch_size or BATCHING,
        "device": device,
        "packed": load_config.packed,
    }


def _read_same(folder: SharedFolder, settings: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the record of an earlier run with the same settings; None without one.

    Raises:
        UsageError: it had other settings.
    """
    record = read_record_of(folder, name)
    if record is not None and (other := different_setting(record["settings"], settings)) is not None:
        raise UsageError(
            f"{folder.path}: these vectors were begun with {described(other, record['settings'])}; give "
            "another `out`, or `overwrite` to start over"
        )
    return record


def _plan(
    folder: SharedFolder, settings: dict[str, Any], paths: list[str], config: EncodeConfig
) -> TextFiles:
    """Return the ranges of the texts, as the first run found them, whose record keeps out other settings."""
    begun = _read_same(folder, settings, BEGUN)
    folder.remove_leftovers()
    if begun is None:
        logger.info(f"looking through {len(paths)} files")
        files = TextFiles.scan(paths, config.shard_size, config.column, config.id_column)
        if not files.rows:
            raise InputError(f"{paths[0]}: no texts in it")
        record = record_of(WHAT, settings, {"texts": files.to_json()}, None)
        if folder.create(BEGUN, orjson.dumps(record)):
            return files
        begun = _read_same(folder, settings, BEGUN)  # another run was faster
        assert begun is not None
    return TextFiles.of_json(begun["result"]["texts"], paths)


def _finish(
    folder: SharedFolder, settings: dict[str, Any], result: dict[str, Any], files: dict[str, str]
) -> None:
    """Write the record of the whole, unless another run that did the same was faster."""
    record = record_of(WHAT, settings, result, files)
    for name in files if folder.local else ():
        sync(Path(folder.file(name)))
    if not folder.create(RECORD, orjson.dumps(record, option=orjson.OPT_INDENT_2)):
        there = _read_same(folder, settings, RECORD)
        if there is None or there["files"] != files:
            raise InputError(f"{folder.path}: another run finished it with other bytes: give `overwrite`")
    if folder.local is not None:
        sync(folder.local / RECORD)
        sync(folder.local, inner=False)


def _remove(folder: SharedFolder, but: Collection[str] = ()) -> None:
    """Remove what an earlier run wrote, the records first, but for some parts."""
    names = folder.names()
    for name in (RECORD, BEGUN, *sorted(name for name in names if _SHARD_NAME.fullmatch(name))):
        if name in names and name not in but:
            folder.remove(name)


def _choose_target(folder: SharedFolder, settings: dict[str, Any], overwrite: bool) -> SharedFolder:
    """Return where to write: the folder, or `.new` inside if a result there is to be replaced."""
    new = SharedFolder(folder.file(NEW))
    if overwrite:
        _remove(new)
        return new if folder.names() & {BEGUN, RECORD} else folder
    begun = read_record_of(new, BEGUN, damaged_is_none=True)
    return folder if begun is None or different_setting(begun["settings"], settings) else new


def _take_place(folder: SharedFolder) -> None:
    """Put the finished result in `.new`, if there is one, in the place of the old one."""
    new = SharedFolder(folder.file(NEW))
    if (record := read_record_of(new, RECORD, damaged_is_none=True)) is None:
        return
    _remove(folder, but=record["files"])
    for name in (*sorted(new.names() - {RECORD}), RECORD):
        new.move(name, folder)
    if new.local is not None and folder.local is not None:
        shutil.rmtree(new.local, ignore_errors=True)
        sync(folder.local, inner=False)
