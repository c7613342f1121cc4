from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.files import encode_file
from sentence_experts.encoding.inputs import TextFile
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load

TEXTS = ["Rice in drought", "", 'A "quoted", text', "Zürich", "two\fpages", "last"]


def write(folder, name: str, texts=TEXTS):
    path = folder / name
    records = [{"id": f"p{number}", "abstract": text} for number, text in enumerate(texts)]
    kind = name.removesuffix(".gz").rsplit(".", 1)[1]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
        return path
    opener = gzip.open if name.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        if kind == "txt":
            file.writelines(f"{text}\n" for text in texts)
        elif kind == "jsonl":
            file.writelines(json.dumps(record) + "\n" for record in records)
        else:
            writer = csv.DictWriter(file, ["id", "abstract"], delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(records)
    return path


@pytest.mark.parametrize(
    "name", ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.txt.gz", "a.jsonl.gz"]
)
def test_every_format_gives_the_same_texts(tmp_path, name):
    column = None if ".txt" in name else "abstract"
    assert [row.text for row in TextFile(write(tmp_path, name), column).rows()] == TEXTS


def test_line_breaks_inside_csv_cells_and_windows_line_ends(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfabstract,n\r\n"two\nlines",1\r\nplain,2\r\n')
    assert [row.text for row in TextFile(tmp_path / "a.csv", "abstract").rows()] == ["two\nlines", "plain"]
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    assert [row.text for row in TextFile(tmp_path / "a.txt").rows()] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.csv", b"id,title\n1,x\n", "abstract", "no column 'abstract'; columns are id, title"),
        ("a.csv", b"id,title\n1,x\n", None, "name the column .*columns are id, title"),
        ("a.jsonl", b'{"id": 1, "title": "x"}\n', "abstract", "no column 'abstract'; columns are id, title"),
        ("a.jsonl", b'{"abstract": "x"}\nnot json\n', "abstract", "line 2 is not JSON"),
        ("a.jsonl", b"[1]\n", "abstract", "line 1 is not a JSON object"),
        ("a.docx", b"x", None, "cannot tell its format"),
        ("a.txt", b"\xff\xfe\x00", None, "cannot be read as .txt"),
        ("a.txt.gz", b"not gzip", None, "cannot be read as .txt"),
        ("a.parquet", b"not parquet", "x", "cannot be read as .parquet"),
        ("a.txt", None, None, "no such file"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, name, content, column, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(TextFile(tmp_path / name, column).rows())


def test_output_has_a_vector_a_text_in_order(tmp_path, plain):
    source = TextFile(write(tmp_path, "a.jsonl"), "abstract", "id")
    found = encode_file(plain, source, tmp_path / "v.parquet", chunk=4)
    assert (found.texts, found.empty, found.dimension) == (6, 1, 32)
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["id"].to_pylist() == [f"p{number}" for number in range(6)]
    assert table["row"].to_pylist() == list(range(6))
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 32)
    assert np.abs(np.array(table["vector"].to_pylist()) - plain.encode(TEXTS)).max() < 1e-6
    encode_file(plain, source, tmp_path / "v.npy", chunk=4)
    assert np.array_equal(np.load(tmp_path / "v.npy"), np.array(table["vector"].to_pylist(), np.float32))
    assert {file.name for file in tmp_path.iterdir()} == {"a.jsonl", "v.parquet", "v.npy"}


def test_chunk_size_does_not_change_vectors(tmp_path, plain):
    source = TextFile(write(tmp_path, "a.txt"))
    for chunk in (1, 4, 100):
        encode_file(plain, source, tmp_path / f"{chunk}.npy", chunk=chunk)
    assert np.abs(np.load(tmp_path / "1.npy") - np.load(tmp_path / "100.npy")).max() < 1e-6
    assert np.abs(np.load(tmp_path / "4.npy") - np.load(tmp_path / "100.npy")).max() < 1e-6


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_an_interrupted_run_continues_to_the_same_bytes(tmp_path, plain, monkeypatch, ending):
    source = TextFile(write(tmp_path, "a.txt", [f"text number {n} " * (n % 5) for n in range(23)]))
    encode_file(plain, source, tmp_path / f"whole.{ending}", chunk=4)
    real, seen = plain.encode, []

    def stops_at_the_third(texts, *rest):
        if len(seen) == 2:
            raise StoppedError
        seen.append(texts)
        return real(texts, *rest)

    monkeypatch.setattr(plain, "encode", stops_at_the_third)
    with pytest.raises(StoppedError):
        encode_file(plain, source, tmp_path / f"part.{ending}", chunk=4)
    assert not (tmp_path / f"part.{ending}").exists()
    monkeypatch.setattr(plain, "encode", lambda texts, *rest: seen.append(texts) or real(texts, *rest))
    encode_file(plain, source, tmp_path / f"part.{ending}", chunk=4)
    assert len(seen) == 6
    assert (tmp_path / f"part.{ending}").read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()


def test_other_settings_or_texts_do_not_reuse_parts(tmp_path, experts):
    source = TextFile(write(tmp_path, "a.txt"))
    out = tmp_path / "v.npy"
    encode_file(experts, source, out, route="crops", chunk=4)
    before = np.load(out)
    folder = tmp_path / ".v.npy.chunks"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    np.save(folder / "000000.npy", np.zeros((4, 32), np.float32))
    encode_file(experts, source, out, route="crops", chunk=4)
    assert np.array_equal(np.load(out), before)


def test_a_killed_process_continues_to_the_same_bytes(tmp_path, plain_model, capsys):
    source = write(tmp_path, "a.txt", [f"text number {n} " * (1 + n % 7) for n in range(160)])
    part = tmp_path / "part.npy"
    command = ["encode", str(plain_model), "--input", str(source), "--out", str(part), "--chunk-size", "2"]
    program = "from sentence_experts.cli.main import main; main()"
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as in this process (conftest)
    process = subprocess.Popen([sys.executable, "-c", program, *command, "--device", "cpu"], env=one_thread)
    deadline = time.monotonic() + 120
    while not (tmp_path / ".part.npy.chunks" / "000003.npy").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not part.exists()
    encoder = BatchEncoder(load(plain_model, device="cpu"))
    encode_file(encoder, TextFile(source), part, chunk=2)
    assert "already encoded" in capsys.readouterr().err
    encode_file(encoder, TextFile(source), tmp_path / "whole.npy", chunk=2)
    assert part.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_wrong_use_is_refused_before_anything_is_written(tmp_path, plain, experts):
    source = TextFile(write(tmp_path, "a.txt"))
    with pytest.raises(UsageError, match=r"must end in .parquet or .npy"):
        encode_file(plain, source, tmp_path / "v.txt")
    table = TextFile(write(tmp_path, "a.parquet"), "abstract")
    with pytest.raises(UsageError, match="would overwrite the input"):
        encode_file(plain, table, tmp_path / "a.parquet")
    with pytest.raises(RouteError, match="needs a route"):
        encode_file(experts, source, tmp_path / "v.npy")
    (tmp_path / "none.txt").touch()
    with pytest.raises(InputError, match="no texts"):
        encode_file(plain, TextFile(tmp_path / "none.txt"), tmp_path / "v.npy")
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", "a.parquet", "none.txt"}
