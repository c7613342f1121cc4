from __future__ import annotations

import shutil
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.fresh_process import fresh
from helpers.text_tables import TEXTS, write_texts
from sentence_experts.cli.main import main
from sentence_experts.encoding.encode import encode
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.vector_files import Encoded
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load


def test_output_has_one_vector_per_text_in_order(tmp_path, plain):
    source = write_texts(tmp_path, "a.jsonl")
    found = encode(plain, source, out=tmp_path / "v.parquet", column="abstract", id_column="id", chunk_size=4)
    assert (found.texts, found.empty, found.dimension) == (6, 1, 32)
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["id"].to_pylist() == [f"p{number}" for number in range(6)]
    assert table["row"].to_pylist() == list(range(6))
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 32)
    assert np.abs(np.array(table["vector"].to_pylist()) - plain.encode(list(TEXTS))).max() < 1e-6
    encode(plain, source, out=tmp_path / "v.npy", column="abstract", chunk_size=4)
    assert np.array_equal(np.load(tmp_path / "v.npy"), np.array(table["vector"].to_pylist(), np.float32))
    assert {file.name for file in tmp_path.iterdir()} == {
        "a.jsonl", "v.parquet", "v.parquet.json", "v.npy", "v.npy.json",
    }  # fmt: skip


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_a_damaged_file_of_vectors_is_refused(tmp_path, plain, ending):
    out = tmp_path / f"v.{ending}"
    encoded = encode(plain, write_texts(tmp_path, "a.txt"), out=out)
    whole = out.read_bytes()
    assert encoded.vectors().shape == (encoded.texts, encoded.dimension)
    middle = len(whole) // 2
    for damaged in (whole[:middle] + bytes([whole[middle] ^ 64]) + whole[middle + 1 :], whole[:-4]):
        out.write_bytes(damaged)
        for reader in (encoded, Encoded.open(out)):
            with pytest.raises(InputError, match=rf"v\.{ending} has changed since it was written"):
                reader.vectors()


def test_the_same_bytes_are_other_texts_under_another_ending(tmp_path, plain):
    (tmp_path / "a.txt").write_text("text\nOne text.\nAnother.\n")
    assert encode(plain, tmp_path / "a.txt", out=tmp_path / "v.npy").texts == 3
    (tmp_path / "a.txt").rename(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="another input"):
        encode(plain, tmp_path / "a.csv", out=tmp_path / "v.npy")
    assert encode(plain, tmp_path / "a.csv", out=tmp_path / "v.npy", overwrite=True).texts == 2


def stop_at_the_third(plain, monkeypatch):
    """Make an encoder stop at its third call; return its method, and the texts of the calls."""
    real, seen = plain.encode, []

    def stops_at_the_third(texts, *rest):
        if len(seen) == 2:
            raise StoppedError
        seen.append(texts)
        return real(texts, *rest)

    monkeypatch.setattr(plain, "encode", stops_at_the_third)
    return real, seen


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_an_interrupted_run_continues_to_the_same_bytes(tmp_path, plain, monkeypatch, ending):
    source = write_texts(tmp_path, "a.txt", [f"text number {n} " * (n % 5) for n in range(23)])
    encode(plain, source, out=tmp_path / f"whole.{ending}", chunk_size=4)
    real, seen = stop_at_the_third(plain, monkeypatch)
    with pytest.raises(StoppedError):
        encode(plain, source, out=tmp_path / f"part.{ending}", chunk_size=4)
    assert not (tmp_path / f"part.{ending}").exists()
    monkeypatch.setattr(plain, "encode", lambda texts, *rest: seen.append(texts) or real(texts, *rest))
    encode(plain, source, out=tmp_path / f"part.{ending}", chunk_size=4)
    assert len(seen) == 6
    assert (tmp_path / f"part.{ending}").read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()


def test_file_of_other_vectors_is_refused_and_one_of_these_is_kept(tmp_path, experts):
    source, out = write_texts(tmp_path, "a.txt"), tmp_path / "v.npy"
    first = encode(experts, source, out=out, route="crops", precision="float16")
    written = out.stat().st_mtime_ns
    assert encode(experts, source, out=out, route="crops", precision="float16", chunk_size=3) == first
    assert out.stat().st_mtime_ns == written
    with pytest.raises(UsageError, match="another precision"):
        encode(experts, source, out=out, route="crops")
    write_texts(tmp_path, "a.txt", ["other", "texts"])
    with pytest.raises(UsageError, match="another input"):
        encode(experts, source, out=out, route="crops", precision="float16")
    assert encode(experts, source, out=out, route="crops", overwrite=True).texts == 2
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", "v.npy", "v.npy.json"}


def test_a_killed_process_continues_to_the_same_bytes(tmp_path, plain_model, capsys):
    source = write_texts(tmp_path, "a.txt", [f"text number {n} " * (1 + n % 7) for n in range(160)])
    part = tmp_path / "part.npy"
    command = ["encode", str(plain_model), "--input", str(source), "--out", str(part), "--chunk-size", "2"]
    process = fresh().Process(target=main, args=([*command, "--device", "cpu"],))
    process.start()
    deadline = time.monotonic() + 120
    while not list((tmp_path / ".part.npy.parts").glob("000003.parquet")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.join()
    assert not part.exists()
    encoder = BatchEncoder(load(plain_model, device="cpu"))
    encode(encoder, source, out=part, chunk_size=2)
    assert "already encoded" in capsys.readouterr().err
    encode(encoder, source, out=tmp_path / "whole.npy", chunk_size=2)
    assert part.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_wrong_use_is_refused_before_anything_is_written(tmp_path, plain, experts):
    source = write_texts(tmp_path, "a.txt")
    with pytest.raises(UsageError, match=r"must end in \.parquet or \.npy"):
        encode(plain, source, out=tmp_path / "v.txt")
    table = write_texts(tmp_path, "a.parquet")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("rice\n")
    with pytest.raises(UsageError, match="would overwrite the input"):
        encode(plain, tmp_path / "texts", out=tmp_path / "texts", overwrite=True)
    shutil.rmtree(tmp_path / "texts")
    with pytest.raises(UsageError, match="would overwrite the input"):
        encode(plain, table, out=tmp_path / "a.parquet", column="abstract")
    with pytest.raises(RouteError, match="needs a route"):
        encode(experts, source, out=tmp_path / "v.npy")
    (tmp_path / "none.txt").touch()
    with pytest.raises(InputError, match="no texts"):
        encode(plain, tmp_path / "none.txt", out=tmp_path / "v.npy")
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", "a.parquet", "none.txt"}


@pytest.mark.parametrize(("name", "target"), [("v.npy", "a.txt"), ("v.npy", "blob"), ("v", "v.npy")])
def test_link_to_another_kind_of_file_is_refused(tmp_path, plain, name, target):
    source = write_texts(tmp_path, "a.txt")
    before = source.read_bytes()
    (tmp_path / name).symlink_to(target)
    with pytest.raises(UsageError, match=rf"{name} is a link to .*{target}: give"):
        encode(plain, ["one", "two"], out=tmp_path / name, overwrite=True)
    assert source.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", name}


def test_texts_in_memory_give_an_array(tmp_path, plain):
    vectors = encode(plain, TEXTS, chunk_size=4)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - plain.encode(list(TEXTS))).max() < 1e-6
    frame = pd.DataFrame({"id": range(6), "text": TEXTS})
    assert np.array_equal(encode(plain, frame, column="text", chunk_size=4), vectors)
    assert np.array_equal(encode(plain.model, TEXTS, chunk_size=4, batch_size=4), vectors)
    assert np.array_equal(encode(plain, TEXTS, precision="float16"), vectors.astype(np.float16))
    assert encode(plain, []).shape == (0, 32)


def test_numbers_and_streams_are_no_texts(plain):
    for frame in (
        pd.DataFrame({"n": [2, 1]}, index=pd.Index(["a", "b"], name="t")),
        pd.DataFrame({"n": [True]}),
    ):
        with pytest.raises(InputError, match="the column 'n' holds no texts"):
            encode(plain, frame)
    assert encode(plain, pd.DataFrame({"text": []})).shape == (0, 32)
    with pytest.raises(InputError, match="read once only: give its table"):
        encode(plain, pa.table({"text": ["a", "b"]}).to_reader())


def test_empty_texts_in_memory_are_told(plain, caplog):
    encode(plain, pd.Series(["a text", None, " "]))
    assert "2 of 3 texts are empty" in caplog.text


def test_result_gives_its_vectors_back(tmp_path, plain):
    for name in ("v.npy", "v.parquet"):
        found = encode(plain, {"n": range(6), "text": TEXTS}, out=tmp_path / name, column="text")
        assert found.vectors().shape == (6, 32)
        frame = found.to_pandas()
        assert frame["row"].tolist() == list(range(6))
        assert np.array_equal(np.stack(frame["vector"]), found.vectors())


def test_one_text_is_given_as_a_list(plain):
    for text in ("Rice in drought", "rice " * 100):
        with pytest.raises(InputError, match=r"no such file \(texts in memory are given as a list"):
            encode(plain, text)
    with pytest.raises(InputError, match="no such file"):
        encode(plain, "texts.csv")
    assert encode(plain, pd.Series(["Rice in drought"])).shape == (1, 32)


def test_parts_of_other_batches_are_made_again_which_is_told(tmp_path, plain, monkeypatch, caplog):
    source = write_texts(tmp_path, "a.txt", [f"text {n}" for n in range(9)])
    real, _ = stop_at_the_third(plain, monkeypatch)
    with pytest.raises(StoppedError):
        encode(plain, source, out=tmp_path / "v.npy", chunk_size=2)
    monkeypatch.setattr(plain, "encode", real)
    assert encode(plain, source, out=tmp_path / "v.npy", chunk_size=3).texts == 9
    assert (
        "2 parts of an interrupted run are made again: they were made with another chunk_size" in caplog.text
    )


@pytest.mark.parametrize(
    ("name", "out", "settings", "message"),
    [
        ("a.jsonl", "v.npy", {"id_column": "id"}, "`id_column`: only Parquet holds ids"),
        ("a.jsonl", None, {"id_column": "id"}, "`id_column`: only Parquet holds ids"),
        ("a.jsonl", "v.parquet", {"shard_size": 8}, "`shard_size`: only a folder"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path, plain, name, out, settings, message):
    source = write_texts(tmp_path, name)
    with pytest.raises(UsageError, match=message):
        encode(plain, source, out=out and tmp_path / out, column="abstract", **settings)


def test_ids_that_are_missing_or_stand_twice_are_told(tmp_path, plain, caplog):
    frame = pd.DataFrame({"id": ["a", "a", "b", None, ""], "text": list(TEXTS[:5])})
    encode(plain, frame[1:3], out=tmp_path / "w.parquet", column="text", id_column="id")
    assert "id" not in caplog.text
    encode(plain, frame, out=tmp_path / "v.parquet", column="text", id_column="id", chunk_size=2)
    assert "texts without an id: 2; texts with the id of an earlier one: 1" in caplog.text


@pytest.mark.parametrize(
    ("heading", "is_told"),
    [
        ("text", False),
        ("Paper title", False),
        ("frase", False),
        ("Review_text", False),
        ("ReviewText", False),
        ("Search terms", False),
        ("Title of the paper", False),
        ("A comment on rice", True),
        ("Comment on asthma", True),
        ("Asthma", True),
        ("Rice grows in water.", True),
        ("rats sleep", True),
    ],
)
def test_a_first_text_that_is_taken_for_a_heading_is_told(tmp_path, plain, caplog, heading, is_told):
    (tmp_path / "a.csv").write_text(f"{heading}\nOne text.\nAnother.\n")
    encode(plain, tmp_path / "a.csv")
    encode(plain, tmp_path / "a.csv", out=tmp_path / "v.npy", column=heading)
    assert caplog.text.count("is taken for the name of the column") == is_told
