"""Progress in a log: a line now and then, and the end."""

from __future__ import annotations

import logging
import re
import time

import pytest

from sentence_experts import progress as module
from sentence_experts.cli.console import progress_bar
from sentence_experts.progress import announce, progress, use_bar


def wait_for_line(caplog: pytest.LogCaptureFixture, number: int) -> None:
    while len(caplog.messages) < number:
        time.sleep(0.001)


def test_the_last_line_counts_everything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SECONDS_BEFORE_FIRST_LINE", 0.1)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 3600.0)
    caplog.set_level(logging.INFO, module.logger.name)
    with progress("reading", 3) as advance:
        advance(2)
        wait_for_line(caplog, 1)
        advance()
    assert [message.split()[1] for message in caplog.messages] == ["2/3", "3/3"]


def test_work_shows_that_it_goes_on_before_its_first_unit_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SECONDS_BEFORE_FIRST_LINE", 0.001)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.001)
    caplog.set_level(logging.INFO, module.logger.name)

    def fail() -> None:
        with progress("reading", 3):
            wait_for_line(caplog, 2)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert all(re.fullmatch(r"reading: \d+ s so far", message) for message in caplog.messages)
    count = len(caplog.messages)
    time.sleep(0.02)
    assert len(caplog.messages) == count  # nothing goes on after an error


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "SECONDS_BEFORE_FIRST_LINE", 3600.0)
    caplog.set_level(logging.INFO, module.logger.name)
    with progress("reading", 1) as advance:
        advance()
    assert caplog.messages == []


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


def test_work_without_units_is_announced_also_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SECONDS_BEFORE_FIRST_LINE", 0.001)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    caplog.set_level(logging.INFO, module.logger.name)
    with announce("loading"):
        wait_for_line(caplog, 1)
    assert caplog.messages[0].startswith("loading: ")
    caplog.clear()
    caplog.set_level(logging.WARNING, module.logger.name)
    with announce("loading"):
        time.sleep(0.02)
    assert caplog.messages == []  # a library call is silent
