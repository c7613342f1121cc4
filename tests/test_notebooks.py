"""The notebooks run, in a short form: a few steps of training on a tiny base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.samples import make_tiny_encoder

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "docs" / "notebooks").glob("*.ipynb"))
STEPS = "STEPS = 30"


# The first one runs at every change.
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if number else (), id=path.stem)
        for number, path in enumerate(NOTEBOOKS)
    ],
)
def test_notebook_runs(path: Path, minilm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_tiny_encoder(tmp_path / "minilm", minilm)  # a folder of this name stands in for the base
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells)
    assert "SIMULATED" in text
    assert text.count(STEPS) == 1
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).replace(STEPS, "STEPS = 4")
            exec(compile(code, f"{path.name}, cell {number}", "exec"), namespace)
