"""Messages of errors: one line, which can be read."""

from __future__ import annotations

import pytest

from sentence_experts.cli.main import main
from sentence_experts.errors import MAX_NAME, InputError

LONG = 40 * MAX_NAME


@pytest.mark.parametrize("name", ["x" * LONG, "'" + "a name " * LONG + "'", "a/" * LONG])
def test_the_middle_of_a_long_name_is_left_out(name: str) -> None:
    message = str(InputError(f"table.csv: column {name} is missing"))
    assert message.startswith(f"table.csv: column {name[:20]}")
    assert message.endswith(" is missing")
    assert f"{len(name):,} characters" in message
    assert len(message) < 2 * MAX_NAME


def test_text_between_quotes_is_no_name() -> None:
    message = f"the base's {'words ' * MAX_NAME}of 'a' and 'b', {'words ' * MAX_NAME}the models' own"
    assert str(InputError(message)) == message


@pytest.mark.parametrize("arguments", [["corpus", "show"], ["search", "minilm"], []])
def test_the_command_line_leaves_it_out_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "x" * LONG])
    assert 0 < len(capsys.readouterr().err) < 4 * MAX_NAME
