"""Encoding into a folder: parts, what is refused, what an interrupted run leaves."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from helpers.text_tables import text_partitions
from sentence_experts.encoding.encode import encode
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.text_files import count_rows, find_tables, read_chunks
from sentence_experts.encoding.vector_files import Encoded
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.extend import extend
from sentence_experts.storage import PartStore

SETTINGS = {"column": "text", "id_column": "id", "chunk_size": 8, "shard_size": 16}


@pytest.fixture(scope="module")
def model(experts_model) -> BatchEncoder:
    return BatchEncoder(load(experts_model, device="cpu"))


@pytest.fixture(scope="module")
def partitions(tmp_path_factory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("bulk") / "texts"
    return folder, text_partitions(folder)


@pytest.fixture(scope="module")
def encoded(model, partitions, tmp_path_factory) -> Encoded:
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
        assert pq.read_schema(encoded.files[0]).field(column).type == pa.list_(pa.float32(), 32)
        alone = encode(model, texts, route=route, chunk_size=8)
        assert np.array_equal(encoded.vectors(column), alone)  # to the bit: the same chunks
    assert set(encoded.routes) == {"crops", "neuro"}
    assert not np.array_equal(encoded.vectors("crops"), encoded.vectors("neuro"))
    with pytest.raises(UsageError, match="name one of the columns crops, neuro"):
        encoded.vectors()
    assert list(encoded.to_pandas().columns) == ["row", "id", "crops", "neuro"]


def test_a_folder_with_a_part_missing_or_changed_is_refused(encoded, tmp_path):
    for change in (Path.unlink, lambda part: shutil.copyfile(encoded.files[0], part)):
        copied = Encoded.open(shutil.copytree(encoded.path, tmp_path / "vectors", dirs_exist_ok=True))
        assert np.array_equal(copied.vectors("crops"), encoded.vectors("crops"))
        change(copied.files[1])
        for read in (copied.vectors, lambda _, copied=copied: copied.to_pandas()):
            with pytest.raises(InputError, match=r"part-000001\.parquet (is missing|has changed)"):
                read("crops")


class StoppedError(Exception):
    pass


def stop_at(monkeypatch, third: int) -> list[int]:
    """Stop before the part `third`; return the numbers of the parts that are written."""
    numbers: list[int] = []
    real = PartStore.writing

    def writing(self, number, *given):
        if number == third:
            raise StoppedError
        numbers.append(number)
        return real(self, number, *given)

    monkeypatch.setattr(PartStore, "writing", writing)
    return numbers


def test_an_interrupted_run_writes_only_what_is_missing_or_damaged(
    encoded, model, partitions, tmp_path, monkeypatch
):
    out, parts = tmp_path / "vectors", tmp_path / ".vectors.parts"
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(StoppedError):
            encode(model, partitions[0], out=out, route="all", **SETTINGS)
    with pytest.raises(InputError, match="vectors: no such file or folder"):
        Encoded.open(out)
    first = parts / "000000.parquet"
    damaged = bytearray(first.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    first.write_bytes(damaged)
    written = stop_at(monkeypatch, -1)
    encode(model, partitions[0], out=out, route="all", **SETTINGS)
    assert written == [0, 2, 3, 4, 5]
    assert bytes_of(out) == bytes_of(encoded.path)
    assert not parts.exists()
    encode(model, partitions[0], out=out, route="all", **SETTINGS)
    assert len(written) == 5
    first = out / "part-000000.parquet"
    first.write_bytes(damaged)
    with pytest.raises(InputError, match=r"part-000000.* has changed since it was written"):
        encode(model, partitions[0], out=out, route="all", **SETTINGS)
    with pytest.raises(InputError, match=r"part-000000.* has changed since it was written"):
        list(Encoded.open(out).batches())


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


def test_input_that_changes_meanwhile_is_noticed(model, partitions, tmp_path, monkeypatch):
    copy = tmp_path / "texts"
    shutil.copytree(partitions[0], copy)
    real = PartStore.writing

    def and_changes(*given):
        with open(copy / "c.jsonl", "w") as file:
            file.write('{"id": "new", "text": "new"}\n')
        (copy / "b.jsonl").write_text((copy / "b.jsonl").read_text().replace("drought", "a flood"))
        return real(*given)

    monkeypatch.setattr(PartStore, "writing", and_changes)
    with pytest.raises(InputError, match="its input changed while it was read"):
        encode(model, copy, out=tmp_path / "vectors", route="crops", **SETTINGS)
    assert not (tmp_path / "vectors").exists()


def test_two_texts_of_one_id_are_refused_before_anything_is_encoded(model, tmp_path):
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": ["one", "two", "three"]}), tmp_path / "1.parquet")
    (tmp_path / "2.jsonl").write_text('{"id": "d", "text": "x"}\n\n{"id": "b", "text": "y"}\n')
    with pytest.raises(InputError, match=r"2\.jsonl, row 2: an earlier row has the id 'b' too"):
        encode(model, tmp_path, out=tmp_path / "vectors", route="crops", **SETTINGS)
    assert not (tmp_path / "vectors").exists()
    (tmp_path / "2.jsonl").write_text('{"id": "", "text": "x"}\n')
    with pytest.raises(InputError, match=r"2\.jsonl: row 1 has no id"):
        encode(model, tmp_path, out=tmp_path / "vectors", route="crops", **SETTINGS)
    (tmp_path / "2.jsonl").write_text("{nothing\n")
    with pytest.raises(InputError, match=r"2\.jsonl: row 1: not JSON"):
        encode(model, tmp_path, out=tmp_path / "vectors", route="crops", **SETTINGS)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "jsonl.gz"])
def test_chunks_hold_every_row_once(tmp_path, ending):
    rows = [{"id": str(number), "text": f"zürich {number}"} for number in range(23)]
    for name, part in (("a", rows[:5]), ("b", rows[5:6]), ("c", rows[6:])):
        file = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            pq.write_table(pa.Table.from_pylist(part), file, row_group_size=3)
        else:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in part)
            content = f"\ufeff{lines}".encode()
            file.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    tables = find_tables(tmp_path, "text", "id")
    assert count_rows(tables) == 23
    for size in (1, 4, 7, 100):
        chunks = list(read_chunks(tables, size))
        assert [len(part) for part in chunks] == [size] * (23 // size) + [23 % size] * (23 % size > 0)
        assert [{"id": row.id, "text": row.text} for part in chunks for row in part] == rows


def test_files_of_a_folder_that_are_left_out_are_named(model, partitions, tmp_path, caplog):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "a text"}\n')
    (folder / "b.csv").write_text("text\nb\n")
    assert encode(model, folder, out=tmp_path / "vectors", route="crops").texts == 1
    assert "1 files that are neither Parquet nor JSON lines are left out, such as b.csv" in caplog.text
    (folder / "a.jsonl").unlink()
    with pytest.raises(InputError, match=r"no Parquet or JSON-lines files in it; .* such as b\.csv"):
        encode(model, folder, out=tmp_path / "others", route="crops")


def test_what_cannot_go_into_a_folder_is_refused(model, partitions, tmp_path):
    folder = partitions[0]
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files \(mine\.txt\)"):
        encode(model, folder, out=tmp_path, route="crops", **SETTINGS)
    with pytest.raises(UsageError, match="is made of files"):
        encode(model, pa.table({"text": ["a text"]}), out=tmp_path / "vectors", route="crops")
    with pytest.raises(UsageError, match="written to a disk"):
        encode(model, folder, out="s3://bucket/vectors", route="crops", **SETTINGS)
    with pytest.raises(InputError, match="no such file"):
        encode(model, str(tmp_path / "*.parquet"), out=tmp_path / "vectors", route="crops")
    with pytest.raises(UsageError, match="given twice"):
        encode(model, [folder, folder / "b.jsonl"], out=tmp_path / "vectors", route="crops")
    with pytest.raises(InputError, match="no column 'abstract'"):
        encode(model, folder, out=tmp_path / "vectors", route="crops", column="abstract")
    with pytest.raises(RouteError, match="no route 'x'"):
        encode(model, folder, out=tmp_path / "vectors", route=["crops", "x"], **SETTINGS)
    with pytest.raises(UsageError, match=r"vectors of float16 are written to \.npy"):
        encode(model, folder, out=tmp_path / "vectors", precision="float16", **SETTINGS)
    with pytest.raises(UsageError, match=r"`route=crops,.*: only a folder holds"):
        encode(model, ["a text"], route="crops,neuro")
    assert {file.name for file in tmp_path.iterdir()} == {"mine.txt"}


def test_hidden_folders_are_left_out_unless_they_are_named(tmp_path):
    for name in ("a.jsonl", ".ipynb_checkpoints/a.jsonl", "_temporary/0/a.jsonl", "b/a.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}\n')

    def found(given):
        return [
            table.source.relative_to(tmp_path).as_posix() for table in find_tables(str(given), None, None)
        ]

    assert found(tmp_path) == found(tmp_path / "**" / "*.jsonl") == ["a.jsonl", "b/a.jsonl"]
    assert found(tmp_path / "_temporary") == found(tmp_path / "_temporary" / "*" / "*.jsonl")
    assert found(tmp_path / "_temporary") == ["_temporary/0/a.jsonl"]


def test_a_file_under_two_names_is_given_twice(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for other in ("a/../a/a.jsonl", "link/a.jsonl", "a/a.jsonl"):
        with pytest.raises(UsageError, match="given twice"):
            find_tables([str(tmp_path / "a" / "a.jsonl"), str(tmp_path / other)], None, None)


def test_a_folder_that_exists_is_no_pattern(tmp_path):
    for name in ("x[1]", "x1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text('{"text": "x"}\n')
    (table,) = find_tables(str(tmp_path / "x[1]" / "*.jsonl"), None, None)
    assert table.source.parent.name == "x[1]"


def test_two_routes_of_one_column_are_refused(plain_model, tmp_path):
    model = extend(load(plain_model, device="cpu"), ["row", "vector_row"])
    write = lambda route: encode(model, [str(tmp_path / "a.jsonl")], out=tmp_path / route, route=route)  # noqa: E731
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(UsageError, match="two routes would have the column vector_row"):
        write("all")
    assert [write(route).routes for route in ("row", "vector_row")] == [
        {"vector_row": "row"},
        {"vector_row": "vector_row"},
    ]


def test_folders_that_are_links_are_read(tmp_path):
    for name in ("texts/a.jsonl", "elsewhere/b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}\n')
    (tmp_path / "texts" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "texts" / "linked" / "back").symlink_to(tmp_path / "texts")
    for given in ("texts", "texts/**/*.jsonl"):
        names = [table.source.name for table in find_tables(str(tmp_path / given), None, None)]
        assert sorted(names) == ["a.jsonl", "b.jsonl"]


def test_a_list_of_files_is_no_list_of_texts(model, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    for out in (None, tmp_path / "vectors.npy"):
        with pytest.raises(UsageError, match=r"`texts`: .*a\.jsonl is a file"):
            encode(model, [str(tmp_path / "a.jsonl")], out=out, route="crops")
    assert encode(model, ["missing.jsonl"], route="crops").shape[0] == 1


def test_numbers_that_float16_cannot_hold_are_refused(plain_model, tmp_path):
    large = load(plain_model, device="cpu")
    with torch.no_grad():
        large[0].auto_model.encoder.layer[-1].output.LayerNorm.weight.mul_(1e6)
    for out in (None, tmp_path / "vectors.npy"):
        with pytest.raises(InputError, match="numbers that float16 cannot hold"):
            encode(large, ["rice"], out=out, precision="float16")
    assert not (tmp_path / "vectors.npy").exists()


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("data/part-*/**/*.jsonl", ["c", "b"]),
        ("data", ["c", "b", "a"]),
        ("data/curr*/**/*.jsonl", ["a"]),
        ("arch", ["d"]),
    ],
)
def test_links_to_hidden_folders_and_to_others_of_a_pattern_are_read(tmp_path, given, names):
    places = ["data/part-1/c.jsonl", "data/.store/2/b.jsonl", "data/v2/a.jsonl", "arch/_old/d.jsonl"]
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text('{"text": "x"}\n')
    for link, target in (
        ("data/part-2", ".store/2"),
        ("data/current", "v2"),
        ("arch/new", "_old"),
        ("data/up", ".."),
    ):
        (tmp_path / link).symlink_to(target)
    found = find_tables(str(tmp_path / given), None, None)
    if given == "data":  # the link that leads upwards holds the others, too
        assert {*names} <= {table.source.stem for table in found}
    else:
        assert sorted(table.source.stem for table in found) == sorted(names)
