from __future__ import annotations

import json

import numpy as np
import pytest

from sentence_experts.errors import InputError
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs

NAMES = ("anchor", "positive", "score")


def rows(count: int) -> list[dict]:
    return [{"a": f"text {n}", "b": f"other {n % 3}", "s": str(n / 2)} for n in range(count)]


def written(tmp_path, records):
    path = tmp_path / "sts.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_bad_rows_are_logged_and_left_out(tmp_path, capsys):
    bad = [{"a": "", "b": "x", "s": 1}, {"a": "x", "b": "y", "s": "high"}, {"a": "x", "b": "y", "s": None}]
    found = RatedPairs.read(written(tmp_path, [*rows(12), *bad]), anchor="a", positive="b", score="s")
    assert (found.name, len(found.first), found.first[0]) == ("sts", 12, "text 0")
    assert np.array_equal(found.scores, np.arange(12) / 2)
    assert len(found.texts) == 15
    logged = " ".join(capsys.readouterr().err.split())
    assert "3 of 15 rows are left out; the first: sts.jsonl row 13: a: empty text" in logged


def test_a_pair_with_several_scores_is_told(tmp_path, caplog):
    RatedPairs.read(
        written(tmp_path, [*rows(12), {**rows(1)[0], "s": 3}]), anchor="a", positive="b", score="s"
    )
    assert "pairs of texts with several scores (1), such as 'text 0'" in caplog.text


@pytest.mark.parametrize(
    ("records", "columns", "message"),
    [
        (rows(12), ("a", "b", "score"), "lacks the column score; it has: a, b, s"),
        (rows(4), ("a", "b", "s"), "4 scored pairs; at least 10 are needed"),
    ],
)
def test_unusable_table_is_an_error(tmp_path, records, columns, message):
    with pytest.raises(InputError, match=message):
        RatedPairs.read(written(tmp_path, records), **dict(zip(NAMES, columns, strict=True)))


@pytest.mark.parametrize("names", [("anchor", "positive"), ("sentence1", "sentence2")])
def test_columns_of_sts_files_have_the_same_meaning(tmp_path, names):
    records = [{names[0]: f"text {n}", names[1]: "other", "score": n} for n in range(12)]
    found = RatedPairs.read(written(tmp_path, records))
    assert (found.first[3], found.second[3], found.scores[3]) == ("text 3", "other", 3)
