from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.cli.main import main
from sentence_experts.corpus.simulate import simulate_corpus


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_import_then_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    articles = simulate_corpus(tmp_path / "articles", articles=18)
    (articles / "broken.xml").write_text("<article>")
    out = tmp_path / "corpus"
    assert run("corpus", "import", articles, "--out", out, "--workers", 1) == 0
    printed = capsys.readouterr().out
    assert "papers" in printed
    assert "malformed-xml" in printed
    assert "rejected.jsonl" in printed
    assert "references that the text never mentions" in printed
    assert run("corpus", "show", out) == 0
    shown = capsys.readouterr().out
    assert printed.startswith("Read articles (folder)\n")
    assert shown.startswith(printed.partition("\n")[2])
    assert "subjects" in shown
    assert "years 20" in shown
    assert "no vectors" in shown
    assert run("corpus", "show", out, "--list", "subjects", "--top", 2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.split(None, 1)[0].isdigit() for line in lines)
    assert run("corpus", "show", out, "--list", "colour") == 2
