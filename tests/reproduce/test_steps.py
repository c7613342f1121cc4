"""Steps call public functions, and are shown as these calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.reproduce.steps import CALLS, Step, run_steps


def test_steps_call_public_functions_and_are_shown_as_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = Step("import_corpus", {"sources": [tmp_path], "out": tmp_path / "corpus"}, {"workers": 1})
    seen: list[dict] = []
    monkeypatch.setattr("sentence_experts.import_corpus", lambda **given: seen.append(given))
    caplog.set_level("INFO", logger="sentence_experts")
    run_steps([step])
    assert seen == [{**step.arguments, "workers": 1}]
    assert f"import_corpus(sources=['{tmp_path}'], out='{tmp_path}/corpus', workers=1)" in caplog.text


@pytest.mark.parametrize("call", ["evaluate", "tune"])
def test_only_an_evaluation_is_replaced(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = []

    def function(overwrite: bool = False, **given: object) -> None:
        if not overwrite:
            raise UsageError("made with other settings")
        replaced.append(given)

    monkeypatch.setitem(CALLS, call, function)
    if call == "evaluate":
        Step(call, {"out": "o"}).run()
        assert replaced == [{"out": "o"}]
    else:
        with pytest.raises(UsageError):
            Step(call, {"out": "o"}).run()
