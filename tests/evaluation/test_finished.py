"""A finished output of the same settings is read back: nothing is computed again, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers.samples import make_tiny_encoder
from sentence_experts.errors import InputError
from sentence_experts.evaluation.audit import Audit, audit
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.report.write import write_report

Measure = Callable[[], Any]


def plain(found: Any) -> Any:
    return json.loads(json.dumps(found.to_json()))


def measured_twice(measure: Measure, computes: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    first = measure()

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(computes, fail)
        again = measure()
    assert type(again) is type(first)
    assert plain(again) == plain(first)
    assert repr(again) == repr(first)
    assert again.rows() == first.rows()
    return first, again


OPEN = "sentence_experts.evaluation.models.load"


def test_pairs(
    pairs_folder: Path,
    experts_model: Path,
    plain_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    minilm: str,
) -> None:
    other = make_tiny_encoder(tmp_path / "other", minilm, seed=3)
    models = {"experts": experts_model, "plain": [plain_model, other]}
    out = tmp_path / "out"
    measure: Measure = lambda: evaluate(models, pairs_folder, out=out, baseline="tfidf", bootstrap=20)  # noqa: E731
    first, again = measured_twice(measure, OPEN, monkeypatch)
    assert again.scores.equals(first.scores)
    assert [each.runs for each in again.models] == [each.runs for each in first.models]
    assert (again.differences, again.routers) == (first.differences, first.routers)
    assert write_report(first, tmp_path).read_bytes() == write_report(again, out).read_bytes()


def test_audit(pairs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two test pairs leak: one is a training pair.
    def row(split: str, first: int, second: int, label: int) -> dict[str, Any]:
        ids = {"anchor_id": f"p{first}", "positive_id": f"p{second}"}
        texts = {"anchor": f"{first * 7919 % 997:03}" * 9, "positive": f"{second * 7919 % 997:03}" * 9}
        return {"split": split, **ids, **texts, "label": label, "domain": "rice"}

    rows = [row("train", n, n + 1, n // 2 % 2) for n in range(0, 12, 2)]
    rows += [row("test", n, n + 1, n % 2) for n in range(40, 49)] + [
        row("test", 2, 3, 0),
        row("test", 4, 90, 1),
    ]
    table = pa.Table.from_pylist(rows)
    measure: Measure = lambda: audit((), table, out=tmp_path / "out", bootstrap=0)  # noqa: E731
    first, again = measured_twice(measure, "sentence_experts.evaluation.audit._audit", monkeypatch)
    assert isinstance(again, Audit)
    assert 0 < first.leaked_pairs.num_rows < 11
    assert again.leaked_pairs.equals(first.leaked_pairs)
    assert again.figures == first.figures
    (tmp_path / "out" / "audit.json").write_text("{}")
    with pytest.raises(InputError, match="not written by this version"):
        Audit.read(tmp_path / "out")
