"""Some broken inputs of every kind: each is read, or refused in one line.

`benchmarks/fuzz_inputs.py` does the same with ten thousand.
"""

from __future__ import annotations

import pytest

import fuzz_inputs
from fuzz_kinds import KINDS
from sentence_experts.errors import InputError

COUNTS = {"table": 60, "yaml": 60, "answer": 60, "folder": 16, "index": 8, "model": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_broken_inputs_are_read_or_refused_in_one_line(kind: str) -> None:
    for number in range(COUNTS[kind]):
        outcome = fuzz_inputs.attempt(kind, 7, number)
        assert outcome.verdict != "not foreseen", (kind, number, outcome.message)


def test_a_reader_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("broken reader")

    monkeypatch.setattr("sentence_experts.pairs.domains.DomainRules.read", fail)
    monkeypatch.setattr("sentence_experts.tasks.task_file.TaskFile.read", fail)
    verdicts = {fuzz_inputs.attempt("yaml", 7, number).verdict for number in range(20)}
    assert "not foreseen" in verdicts


def test_errors_of_the_package_are_one_line() -> None:
    assert str(InputError("a.csv lacks x; it has: two\nlines")) == "a.csv lacks x; it has: two lines"
