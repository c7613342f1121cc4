"""`encode` into a folder: many files of texts, on one machine or on a cluster of Ray or Spark.

The folder holds the shards, `begun.json` (what they are made from, so that a run goes on only with the same)
and at the end `made_from.json`, which is written once, on the condition that there is none. A result that is
to replace another one is first made in `.new` inside the folder.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection, Sequence
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
from sentence_experts.encoding.shards import ID, ROW, ShardJob, ShardStamp
from sentence_experts.encoding.text_files import Source, TextFiles, find_files, fingerprint_of_file
from sentence_experts.encoding.workers import write_shards
from sentence_experts.engines import LOCAL, Engine
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.models.routes.known_routes import AUTO, KnownRoutes
from sentence_experts.progress import progress
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
    """Encode the texts of files into a folder of shards; see `encode`."""
    engine = Engine.parse(config.engine)
    paths = _checked_input(sources, config)
    folder = SharedFolder(str(out) if is_url(out) else str(Path(out).absolute()))
    with nullcontext() if folder.local is None else locked(folder.local, "encode"):
        _take_place(folder)  # where a run was interrupted
        check_apart(folder.local, overwrite, model, paths)
        _check_vacant(folder, overwrite)
        known = KnownRoutes.read(model)
        if known is not None:
            _columns(known, config.route)
        if engine.kind != LOCAL:
            load_config = load_config.model_copy(update={"device": load_config.device or "cpu"})
        encoder = _opened(model, engine, config, load_config)
        routes = _columns(encoder.known_routes, config.route)
        settings = _settings(encoder, routes, config, load_config, engine)
        settings["input"] = [fingerprint_of_file(path) for path in paths]
        target = _target(folder, settings, overwrite)
        if target == folder and (finished := _compared(folder, settings, RECORD)) is not None:
            check_files(folder, finished["files"])
            logger.info(f"{folder.path}: finished already, with the same settings and inputs")
            return EncodedFolder.open(folder.path)
        files = _planned(target, settings, paths, config)
        job = ShardJob(
            model=_place_of(model),
            load_config=load_config,
            batch_size=config.batch_size,
            files=files,
            out=target,
            routes=routes,
            settings=settings["columns"],
            digest=sha256_settings(settings)[:8],
            chunk_size=config.chunk_size,
            normalize=config.normalize,
        )
        name, dimension = encoder.name, encoder.dimension
        if engine.kind != LOCAL:
            encoder = None  # type: ignore[assignment]  # its memory belongs to the workers
        stamps = _written(engine, job, encoder)
        if [fingerprint_of_file(path) for path in paths] != settings["input"]:
            raise InputError(f"{folder.path}: not finished: its input changed while it was read")
        _finish(target, settings, job, stamps, {"model": name, "dimension": dimension})
        _take_place(folder)
        return EncodedFolder.open(folder.path)


def _checked_input(sources: Source | Sequence[Source], config: EncodeConfig) -> list[str]:
    paths = find_files(sources)
    TextTable(paths[0], config.column, config.id_column).check()
    return paths


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


def _opened(model: Any, engine: Engine, config: EncodeConfig, load_config: LoadConfig) -> BatchEncoder:
    if isinstance(model, BatchEncoder) and engine.kind == LOCAL:
        return model
    if engine.kind == LOCAL:
        return BatchEncoder(load(model, load_config), config.batch_size, cores=engine.cores)
    if not isinstance(model, str | Path):
        raise UsageError(
            f"`engine={engine.name}`: workers open the model themselves: give its folder or name"
        )
    # Only what it is called and its hashes are wanted here, and this machine may have no GPU.
    return BatchEncoder(load(model, load_config.model_copy(update={"device": "cpu"})), config.batch_size)


def _place_of(model: Any) -> str:
    if not isinstance(model, str | Path):
        return ""
    return str(Path(model).absolute()) if Path(model).exists() else str(model)


def _columns(known: KnownRoutes, names: Sequence[str] | None) -> dict[str, str | None]:
    """Column -> route of its vectors.

    Raises:
        RouteError: the model needs a route, or does not know one.
    """
    if names == [ALL_ROUTES] and ALL_ROUTES not in known.prompts and known.prompts:
        routes: list[str | None] = [name for name in known.prompts if name != AUTO]
    else:
        routes = [known.choose(name) for name in dict.fromkeys(names)] if names else [known.choose(None)]
    return {f"vector_{route}" if route in (ROW, ID) else route or "vector": route for route in routes}


def _settings(
    encoder: BatchEncoder,
    routes: dict[str, str | None],
    config: EncodeConfig,
    load_config: LoadConfig,
    engine: Engine,
) -> dict[str, Any]:
    """Everything that decides the bytes of the shards, but for the input."""
    device = encoder.model.device.type if engine.kind == LOCAL else str(load_config.device).partition(":")[0]
    return {
        "columns": {column: encoder.vector_settings(route) for column, route in routes.items()},
        **config.model_dump(include={"column", "id_column", "normalize", "chunk_size", "shard_size"}),
        "batches": config.batch_size or BATCHING,
        "device": device,
        "packed": load_config.packed,
    }


def _compared(folder: SharedFolder, settings: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The record of an earlier run with the same settings; None without one.

    Raises:
        UsageError: it had other settings.
    """
    record = read_record_of(folder, name)
    given = orjson.loads(orjson.dumps(settings))
    if record is not None and (other := different_setting(record["settings"], given)) is not None:
        raise UsageError(
            f"{folder.path}: these vectors were begun with {described(other, record['settings'])}; give "
            "another `out`, or `overwrite` to start over"
        )
    return record


def _planned(
    folder: SharedFolder, settings: dict[str, Any], paths: list[str], config: EncodeConfig
) -> TextFiles:
    """The ranges of the texts, as the first run found them, whose record keeps out other settings."""
    if (begun := _compared(folder, settings, BEGUN)) is None:
        folder.remove_leftovers()
        logger.info(f"looking through {len(paths)} files")
        files = TextFiles.scan(paths, config.shard_size, config.column, config.id_column)
        if not files.rows:
            raise InputError(f"{paths[0]}: no texts in it")
        record = record_of(WHAT, settings, {"texts": files.to_json()}, None)
        if folder.create(BEGUN, orjson.dumps(record)):
            return files
        begun = _compared(folder, settings, BEGUN)  # another run was faster
        assert begun is not None
    folder.remove_leftovers()
    return TextFiles.of_json(begun["result"]["texts"], paths)


def _written(engine: Engine, job: ShardJob, encoder: BatchEncoder | None) -> list[ShardStamp]:
    """Write all shards; their stamps in order."""
    stamps: dict[int, ShardStamp] = {}
    with progress(f"encoding {job.files.rows:,} texts", job.files.rows) as advance:
        for stamp in write_shards(engine, job, encoder, range(job.files.ranges)):
            stamps[stamp.shard] = stamp.checked()
            advance(stamp.texts)
    if encoder is not None:
        encoder.log_low_confidence()
    if reused := sum(stamp.reused for stamp in stamps.values()):
        logger.info(f"{reused} of {len(stamps)} shards were written by an earlier, interrupted run")
    texts = sum(stamp.texts for stamp in stamps.values())
    if (len(stamps), texts) != (job.files.ranges, job.files.rows):
        raise InputError(
            f"{job.out.path}: not finished: {texts:,} vectors of {job.files.rows:,} texts; give the same "
            "command again"
        )
    return [stamps[number] for number in range(job.files.ranges)]


def _finish(
    folder: SharedFolder,
    settings: dict[str, Any],
    job: ShardJob,
    stamps: Sequence[ShardStamp],
    result: dict[str, Any],
) -> None:
    """Write the record of the whole, unless another run that did the same was faster."""
    result |= {
        "texts": sum(stamp.texts for stamp in stamps),
        "empty": sum(stamp.empty for stamp in stamps),
        "routes": dict(job.routes),
    }
    files = {job.name(stamp.shard): stamp.sha256 for stamp in stamps}
    record = record_of(WHAT, settings, result, files)
    if (local := folder.local) is not None:
        for name in files:
            sync(local / name)
    if not folder.create(RECORD, orjson.dumps(record, option=orjson.OPT_INDENT_2)):
        there = _compared(folder, settings, RECORD)
        if there is None or there["files"] != files:
            raise InputError(f"{folder.path}: another run finished it with other bytes: give `overwrite`")
    if folder.local is not None:
        sync(folder.local / RECORD)
        sync(folder.local, inner=False)


def _remove(folder: SharedFolder, but: Collection[str] = ()) -> None:
    """Remove what an earlier run wrote, the records first, but for some shards."""
    names = folder.names()
    for name in (RECORD, BEGUN, *sorted(name for name in names if _SHARD_NAME.fullmatch(name))):
        if name in names and name not in but:
            folder.remove(name)


def _inside(folder: SharedFolder) -> SharedFolder:
    """Where the result grows that will replace the one in a folder."""
    return SharedFolder(folder.file(NEW))


def _target(folder: SharedFolder, settings: dict[str, Any], overwrite: bool) -> SharedFolder:
    """Where to write: in the folder, or in `_inside` if a result there is to be replaced."""
    new = _inside(folder)
    if overwrite:
        _remove(new)
        return new if folder.names() & {BEGUN, RECORD} else folder
    begun = read_record_of(new, BEGUN, damaged_is_none=True)
    given = orjson.loads(orjson.dumps(settings))
    return folder if begun is None or different_setting(begun["settings"], given) else new


def _take_place(folder: SharedFolder) -> None:
    """Put the finished result in `_inside`, if there is one, in the place of the old one."""
    new = _inside(folder)
    if (record := read_record_of(new, RECORD, damaged_is_none=True)) is None:
        return
    _remove(folder, but=record["files"])
    for name in (*sorted(new.names() - {RECORD}), RECORD):
        new.move(name, folder)
    if new.local is not None and folder.local is not None:
        shutil.rmtree(new.local, ignore_errors=True)
        sync(folder.local, inner=False)
