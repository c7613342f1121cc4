"""A CSV from PubMed and a .bib become a searched corpus in two commands, which then grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.cli.main import main

CSV = """PMID,Title,Authors,Citation,Journal/Book,Publication Year,PMCID,DOI
31,Sleep of rats,Doe J.,J. 2001,Made-up Sleep,2001,,10.1000/sleep
"""
BIB = "@article{rice, title = {Drought in rice}, doi = {10.1000/rice}, year = 2019}\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert not stop.value.code, captured.err
    return captured.out, captured.err


def test_two_commands(tmp_path: Path, minilm: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pubmed.csv").write_text(CSV)
    (tmp_path / "library.bib").write_text(BIB)
    corpus = tmp_path / "library"
    sources = (tmp_path / "pubmed.csv", tmp_path / "library.bib")
    _, said = run(capsys, "corpus", "import", *sources, "--out", corpus, "--workers", 1)
    assert "titles suffice" in said
    out, _ = run(capsys, "search", minilm, "--corpus", corpus, "plants without water", "-k", 2)
    assert out.index("Drought in rice") < out.index("Sleep of rats")
    (tmp_path / "more.bib").write_text(BIB + BIB.replace("rice", "maize"))
    run(capsys, "corpus", "import", tmp_path / "more.bib", "--out", corpus, "--add", "--workers", 1)
    out, said = run(capsys, "search", minilm, "--corpus", corpus, "plants without water", "-k", 3)
    assert "Drought in maize" in out
    assert "2 of 3 texts were encoded before" in said
