"""Progress in a log: a line now and then, and the end."""

from __future__ import annotations

import logging

import pytest

from sentence_experts import progress as module
from sentence_experts.cli.console import progress_bar
from sentence_experts.progress import progress, use_bar


@pytest.mark.parametrize(("seconds", "written"), [(0.0, ["2/3", "3/3"]), (3600.0, [])])
def test_the_last_line_counts_everything(
    seconds: float, written: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", seconds)
    caplog.set_level(logging.INFO, module.logger.name)
    with progress("reading", 3) as advance:
        advance(2)
        monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 3600.0)
        advance()
    assert [message.split()[1] for message in caplog.messages] == written


def test_at_a_terminal_the_bar_of_the_command_line_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, module.logger.name)
    monkeypatch.setattr(module, "_bars", [])
    use_bar(progress_bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress("reading [all]", 3) as advance:
        advance(3, "loss 0.5")
    assert "reading [all]" in capsys.readouterr().err
    assert caplog.messages == []
