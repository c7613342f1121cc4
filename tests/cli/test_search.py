from __future__ import annotations

import json

from helpers.command_line import run
from helpers.samples import write_corpus


def test_search_finds_related_papers(minilm, tmp_path, capsys):
    write_corpus(tmp_path)
    questions = ("How do plants cope with lack of water?", "dreams")
    status, out, err = run(capsys, "search", minilm, "--corpus", tmp_path, "-k", "2", *questions)
    assert status == 0
    lines = [line for line in out.splitlines() if line]
    assert lines[0] == questions[0]
    assert lines[1].split()[0] == "1"
    assert lines[1].endswith("2012  Rice in drought  doi:10.1/a")
    assert lines[2].strip() == "Yields fell."
    second = lines[lines.index(questions[1]) + 1]
    assert second.endswith("2014  Sleep and memory [retracted]  doi:10.1/b")
    status, out, err = run(capsys, "search", minilm, "--corpus", tmp_path, "--json", "-k", "9", "dreams")
    found = json.loads(out)
    assert [paper["rank"] for paper in found[0]["papers"]] == [1, 2, 3, 4]
    assert found[0]["papers"][0]["paper_id"] == "doi:10.1/b"
    assert "encoding" not in err


def test_hits_are_exported_and_papers_like_others_found(minilm, tmp_path, capsys):
    write_corpus(tmp_path)
    status, out, _ = run(
        capsys, "search", minilm, "--corpus", tmp_path, "--like", "doi:10.1/a", "-k", "1", "--csv"
    )
    assert status == 0
    assert out.startswith("query,rank,score,percentile,closeness,paper_id,title")
    assert "doi:10.1/e,Wheat rust" in out
    status, out, _ = run(
        capsys, "search", minilm, "--corpus", tmp_path, "dreams", "--hybrid", "--year", "2014", "--ris"
    )
    assert (status, out.count("TY  - ")) == (0, 1)
    assert "TI  - Sleep and memory" in out
    status, out, err = run(capsys, "search", minilm, "--corpus", tmp_path, "稻米", "--hybrid", "--json")
    assert {each["closeness"] for each in json.loads(out)[0]["papers"]} == {"weak"}
    assert "no paper found is close to '稻米'" in err
    assert "no paper has a word of 1 of 1 queries, such as '稻米'" in " ".join(err.split())


def test_a_file_is_no_query(minilm, tmp_path, capsys):
    write_corpus(tmp_path)
    table = tmp_path / "queries.csv"
    table.write_text("text\nrice\n")
    status, _, err = run(capsys, "search", minilm, "--corpus", tmp_path, table)
    assert (status, "is a file; give texts here" in err) == (2, True)


def test_index_is_built_and_shown(minilm, tmp_path, capsys):
    write_corpus(tmp_path)
    status, out, _ = run(capsys, "index", "build", minilm, "--corpus", tmp_path, "--unit", "title")
    assert (status, "whole" in out) == (0, True)
