"""The same few texts as a file of each kind of table."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = ("Rice in drought", "", 'A "quoted", text', "Zürich", "two\fpages", "last")


def write_texts(folder: Path, name: str, texts: Sequence[str] = TEXTS) -> Path:
    """A file with the columns id (p0, p1, ...) and abstract, of the kind that its name says."""
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


def text_partitions(folder: Path) -> list[str]:
    """Files of several kinds in a folder, with the columns id (p0, p1, ...) and text; the texts in order."""
    texts = [f"rice in drought {number} " + "axon " * (number % 9) for number in range(83)]
    texts[20] = ""
    rows = [{"id": f"p{number}", "text": text} for number, text in enumerate(texts)]
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows[:50]), folder / "a.parquet", row_group_size=7)
    (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[50:]), encoding="utf-8")
    (folder / "_SUCCESS").write_text("")
    return texts
