from __future__ import annotations

import re
import zipfile
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
    assert "papers whose text was read (not kept: --full-text)" in printed
    assert "references that the text never mentions" in printed
    assert run("corpus", "show", out) == 0
    shown = capsys.readouterr().out
    assert printed.startswith("Read articles (folder)\n")
    assert shown.startswith(printed.partition("\n")[2])
    assert "subjects" in shown
    assert "years 20" in shown
    assert "no vectors" in shown
    assert run("corpus", "show", out, "--list", "subjects", "--top", 2) == 0
    *lines, more = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"and \d+ more \(--top\)", more)
    assert run("corpus", "show", out, "--top", 2) == 2
    capsys.readouterr()
    assert all(line.split(None, 1)[0].isdigit() for line in lines)
    assert run("corpus", "show", out, "--list", "colour") == 2


def test_what_was_not_read_or_linked_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "papers.csv").write_text("id,title\na,Rice\nb,Rye\n")
    (tmp_path / "cites.csv").write_text("citing,cited\na,10.1234/x\n")
    tables = ("--papers", tmp_path / "papers.csv", "--citations", tmp_path / "cites.csv")
    articles = simulate_corpus(tmp_path / "articles", articles=18)
    (articles / "notes.docx").write_text("x")
    with zipfile.ZipFile(tmp_path / "articles.zip", "w") as archive:
        for file in articles.iterdir():
            archive.write(file, file.name)
    assert run("corpus", "import", *tables, "--out", tmp_path / "tables", "--workers", 1) == 0
    assert re.search(r"between papers of the corpus +0", capsys.readouterr().out)
    assert run("corpus", "import", tmp_path / "articles.zip", "--out", tmp_path / "zip", "--workers", 1) == 0
    assert re.search(r"other files, not read +1", capsys.readouterr().out)
