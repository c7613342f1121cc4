"""Encoding into a folder: shards, what is refused, what an interrupted run leaves, object storage."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.text_tables import text_partitions
from sentence_experts.encoding import bulk
from sentence_experts.encoding.encode import encode
from sentence_experts.encoding.encoded_folder import BEGUN, EncodedFolder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.shards import ShardWriter
from sentence_experts.encoding.text_files import TextFiles, find_files
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.storage import RECORD, SharedFolder

SETTINGS = {"column": "text", "id_column": "id", "chunk_size": 8, "shard_size": 16}


@pytest.fixture(scope="module")
def model(experts_model) -> BatchEncoder:
    return BatchEncoder(load(experts_model, device="cpu"))


@pytest.fixture(scope="module")
def partitions(tmp_path_factory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("bulk") / "texts"
    return folder, text_partitions(folder)


@pytest.fixture(scope="module")
def encoded(model, partitions, tmp_path_factory) -> EncodedFolder:
    """The undisturbed result."""
    out = tmp_path_factory.mktemp("encoded") / "vectors"
    return encode(model, partitions[0], out=out, route="all", **SETTINGS)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_folder_has_the_vectors_of_encode_with_their_ids_and_a_column_per_route(encoded, model, partitions):
    texts = partitions[1]
    assert (encoded.texts, encoded.empty, encoded.dimension) == (len(texts), 1, 32)
    assert len(encoded.files) == -(-len(texts) // 16)
    table = pa.Table.from_batches(encoded.batches())
    assert table["row"].to_pylist() == list(range(len(texts)))
    assert table["id"].to_pylist() == [f"p{number}" for number in range(len(texts))]
    for column, route in encoded.routes.items():
        assert pq.read_schema(Path(encoded.path) / encoded.files[0]).field(column).type == pa.list_(
            pa.float32(), 32
        )
        alone = encode(model, texts, route=route, chunk_size=8)
        assert np.array_equal(encoded.vectors(column), alone)  # to the bit: the same chunks
    assert set(encoded.routes) == {"crops", "neuro"}
    assert not np.array_equal(encoded.vectors("crops"), encoded.vectors("neuro"))
    with pytest.raises(UsageError, match="name one of the columns crops, neuro"):
        encoded.vectors()
    assert list(encoded.to_pandas().columns) == ["row", "id", "crops", "neuro"]


class StoppedError(Exception):
    pass


def test_an_interrupted_run_writes_only_what_is_missing_or_damaged(
    encoded, model, partitions, tmp_path, monkeypatch
):
    out, real, written = tmp_path / "vectors", ShardWriter._write, []

    def stops_at_the_third(self, number, *given):
        if len(written) == 2:
            raise StoppedError
        written.append(number)
        return real(self, number, *given)

    monkeypatch.setattr(ShardWriter, "_write", stops_at_the_third)
    with pytest.raises(StoppedError):
        encode(model, partitions[0], out=out, route="all", **SETTINGS)
    with pytest.raises(InputError, match="not finished; give the command"):
        EncodedFolder.open(out)
    (out / f".part-000007.{0:032x}.tmp").write_bytes(b"of a killed worker")
    first = next(file for file in sorted(out.iterdir()) if file.name.startswith("part-000000"))
    damaged = bytearray(first.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    first.write_bytes(damaged)
    monkeypatch.setattr(
        ShardWriter, "_write", lambda self, *given: written.append(given[0]) or real(self, *given)
    )
    monkeypatch.setattr(TextFiles, "scan", None)  # the first run looked through the input
    encode(model, partitions[0], out=out, route="all", **SETTINGS)
    assert written == [0, 1, 0, 2, 3, 4, 5]
    assert bytes_of(out) == bytes_of(Path(encoded.path))
    encode(model, partitions[0], out=out, route="all", **SETTINGS)
    assert len(written) == 7
    first.write_bytes(damaged)
    with pytest.raises(InputError, match=r"part-000000.* has changed since it was written"):
        encode(model, partitions[0], out=out, route="all", **SETTINGS)
    with pytest.raises(InputError, match=r"part-000000.*damaged"):
        list(EncodedFolder.open(out).batches())
    first.unlink()
    with pytest.raises(InputError, match=r"part-000000.* is missing"):
        EncodedFolder.open(out)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"route": "crops"}, "another columns"),
        ({"normalize": True}, "another normalize"),
        ({"shard_size": 8}, r"another shard_size \(16\)"),
    ],
)
def test_other_settings_are_refused(encoded, model, partitions, change, named):
    before = bytes_of(Path(encoded.path))
    with pytest.raises(UsageError, match=f"begun with {named}.*; give another `out`, or `overwrite`"):
        encode(model, partitions[0], out=encoded.path, **{"route": "all", **SETTINGS, **change})
    assert bytes_of(Path(encoded.path)) == before


def test_other_input_is_refused_until_told_to_start_over(encoded, model, partitions, tmp_path):
    copy, out = tmp_path / "texts", tmp_path / "vectors"
    shutil.copytree(partitions[0], copy)
    shutil.copytree(encoded.path, out)
    same = {"route": "all", **SETTINGS}
    assert encode(model, copy, out=out, **same).texts == encoded.texts  # moved, and the same
    (copy / "b.jsonl").unlink()
    with pytest.raises(UsageError, match="another input"):
        encode(model, copy, out=out, **same)
    assert encode(model, copy, out=out, overwrite=True, **same).texts < encoded.texts
    assert not set(encoded.files) & {file.name for file in out.iterdir()}


def test_input_that_changes_meanwhile_is_noticed(model, partitions, tmp_path, monkeypatch):
    copy = tmp_path / "texts"
    shutil.copytree(partitions[0], copy)
    real = bulk.write_here

    def and_changes(*given):
        yield from real(*given)
        with open(copy / "b.jsonl", "a") as file:
            file.write('{"id": "new", "text": "new"}\n')

    monkeypatch.setattr(bulk, "write_here", and_changes)
    with pytest.raises(InputError, match="its input changed while it was read"):
        encode(model, copy, out=tmp_path / "vectors", route="crops", **SETTINGS)
    assert not (tmp_path / "vectors" / "made_from.json").exists()


def test_two_texts_of_one_id_are_refused_before_anything_is_encoded(model, tmp_path):
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": ["one", "two", "three"]}), tmp_path / "1.parquet")
    (tmp_path / "2.jsonl").write_text('{"id": "d", "text": "x"}\n\n{"id": "b", "text": "y"}\n')
    with pytest.raises(InputError, match=r"1\.parquet, row 2 and .*2\.jsonl, row 2 have one id, 'b'"):
        encode(model, tmp_path, out=tmp_path / "vectors", route="crops", **SETTINGS)
    assert not (tmp_path / "vectors").exists()
    (tmp_path / "2.jsonl").write_text('{"id": "", "text": "x"}\n')
    with pytest.raises(InputError, match=r"2\.jsonl: row 1 has no id"):
        encode(model, tmp_path, out=tmp_path / "vectors", route="crops", **SETTINGS)
    (tmp_path / "2.jsonl").write_text("{nothing\n")
    with pytest.raises(InputError, match=r"2\.jsonl: row 1: not JSON"):
        encode(model, tmp_path, out=tmp_path / "vectors", route="crops", **SETTINGS)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "jsonl.gz"])
def test_ranges_hold_every_row_once(tmp_path, ending):
    rows = [{"id": str(number), "text": f"zürich {number}"} for number in range(23)]
    for name, part in (("a", rows[:5]), ("b", rows[5:6]), ("c", rows[6:])):
        file = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            pq.write_table(pa.Table.from_pylist(part), file, row_group_size=3)
        else:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in part)
            content = f"\ufeff{lines}".encode()
            file.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    for size in (1, 4, 7, 100):
        files = TextFiles.scan(find_files(tmp_path), size, "text", "id")
        ranges = [list(files.read(number)) for number in range(files.ranges)]
        assert [len(part) for part in ranges] == [size] * (23 // size) + [23 % size] * (23 % size > 0)
        assert [(row.id, row.text) for part in ranges for row in part] == [
            tuple(row.values()) for row in rows
        ]


def test_what_cannot_go_into_a_folder_is_refused(model, partitions, tmp_path):
    folder = partitions[0]
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files \(mine\.txt\)"):
        encode(model, folder, out=tmp_path, route="crops", **SETTINGS)
    with pytest.raises(InputError, match="are Parquet or JSON lines"):
        encode(model, tmp_path / "mine.txt", out=tmp_path / "vectors", route="crops")
    with pytest.raises(InputError, match="no such file"):
        encode(model, str(tmp_path / "*.parquet"), out=tmp_path / "vectors", route="crops")
    with pytest.raises(UsageError, match="given twice"):
        encode(model, [folder, folder / "b.jsonl"], out=tmp_path / "vectors", route="crops")
    with pytest.raises(InputError, match="no column 'abstract'"):
        encode(model, folder, out=tmp_path / "vectors", route="crops", column="abstract")
    with pytest.raises(RouteError, match="no route 'x'"):
        encode(model, folder, out=tmp_path / "vectors", route=["crops", "x"], **SETTINGS)
    with pytest.raises(UsageError, match="`precision=int8`: a folder holds float32"):
        encode(model, folder, out=tmp_path / "vectors", precision="int8", **SETTINGS)
    with pytest.raises(UsageError, match="workers open the model themselves"):
        encode(model, folder, out=tmp_path / "vectors", engine="ray[1]", route="crops", **SETTINGS)
    with pytest.raises(UsageError, match=r"`engine`: give local\[CORES\]"):
        encode(model, folder, out=tmp_path / "vectors", engine="dask")
    for settings, name in (
        ({"engine": "local[2]"}, "engine=local"),
        ({"route": "crops,neuro"}, "route=crops,"),
    ):
        with pytest.raises(UsageError, match=f"`{name}.*: only a folder holds"):
            encode(model, ["a text"], **settings)
    assert {file.name for file in tmp_path.iterdir()} == {"mine.txt"}


def test_object_storage_gets_the_same_bytes_and_one_manifest(encoded, model, partitions):
    fsspec = pytest.importorskip("fsspec")
    storage = fsspec.filesystem("memory")
    for file in partitions[0].iterdir():
        storage.pipe_file(f"/bucket/texts/{file.name}", file.read_bytes())
    texts, out = "memory://bucket/texts/*.*", "memory://bucket/vectors"
    found = encode(model, texts, out=out, route="all", **SETTINGS)
    assert np.array_equal(found.vectors("neuro"), encoded.vectors("neuro"))
    assert found.settings["input"] != encoded.settings["input"]  # what the storage knows of a file
    written = {name: storage.cat_file(name) for name in storage.find("/bucket/vectors")}
    # A second run that finishes later finds the manifest there, and what it holds.
    assert not SharedFolder(out).create("made_from.json", b"{}")
    assert {name: storage.cat_file(name) for name in storage.find("/bucket/vectors")} == written
    storage.rm_file("/bucket/vectors/made_from.json")
    storage.rm_file(sorted(name for name in written if "part-" in name)[1])
    encode(model, texts, out=out, route="all", **SETTINGS)
    assert {name: storage.cat_file(name) for name in storage.find("/bucket/vectors")} == written
    storage.rm("/bucket", recursive=True)


@pytest.mark.parametrize("on", ["a disk", "object storage"])
def test_old_vectors_stay_until_the_new_ones_are_whole(model, partitions, tmp_path, monkeypatch, on):
    if on == "object storage":
        pytest.importorskip("fsspec").filesystem("memory")
    out = f"{tmp_path}/vectors" if on == "a disk" else f"memory://{tmp_path.name}/vectors"
    more = {"route": "neuro", **SETTINGS}
    old = encode(model, partitions[0], out=out, **more).vectors()
    real, written = bulk.write_here, 0

    def fails(*given):
        nonlocal written
        for stamp in real(*given):
            written += not stamp.reused
            yield stamp
            if written == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(bulk, "write_here", fails)
    with pytest.raises(KeyboardInterrupt):
        encode(model, partitions[0], out=out, overwrite=True, normalize=True, **more)
    assert np.array_equal(EncodedFolder.open(out).vectors(), old)
    assert np.array_equal(encode(model, partitions[0], out=out, **more).vectors(), old)
    written = -100
    new = encode(model, partitions[0], out=out, normalize=True, **more)  # continues
    assert written < 0
    assert written - -100 == len(new.files) - 1
    assert not np.array_equal(new.vectors(), old)
    assert {RECORD, BEGUN, *new.files} == SharedFolder(out).names()
    assert not SharedFolder(f"{out}/.new").names()
