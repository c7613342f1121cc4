"""Steps call public functions, and are shown as these calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.reproduce.steps import Step, run_steps


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


@pytest.mark.parametrize("can_be_replaced", [True, False])
def test_only_an_output_that_nothing_is_made_from_is_replaced(
    can_be_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = []

    def tune(overwrite: bool = False, **given: object) -> None:
        if not overwrite:
            raise UsageError("made with other settings")
        replaced.append(given)

    monkeypatch.setattr("sentence_experts.tune", tune)
    step = Step("tune", {"model": "m"}, can_be_replaced=can_be_replaced)
    if can_be_replaced:
        step.run()
        assert replaced == [{"model": "m"}]
    else:
        with pytest.raises(UsageError):
            step.run()
