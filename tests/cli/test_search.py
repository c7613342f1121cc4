from __future__ import annotations

import json

import pytest

from helpers.command_line import run
from helpers.samples import make_tiny_encoder, write_corpus


@pytest.fixture(scope="module")
def experts_model(tmp_path_factory, minilm):
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, ("crops", "neuro"))


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


def test_errors_are_one_line(experts_model, tmp_path, capsys):
    write_corpus(tmp_path)
    for arguments, status, message in (
        (["rice"], 1, "needs a route; its routes: crops, neuro"),
        (["rice", "--route", "x"], 1, "no route 'x'; its routes: crops, neuro"),
        (["rice", "--route", "crops", "--unit", "body"], 2, "--unit: Input should be 'title+abstract'"),
        (["rice", "--route", "crops", "-k", "0"], 2, "-k"),
        ([" ", "--route", "crops"], 2, "a query is empty"),
        ([], 2, "give QUERY or --like"),
        (["rice", "--like", "a", "--route", "crops"], 2, "give QUERY or --like, not both"),
        (["--like", "10.1/zzz", "--route", "crops"], 1, "no paper with the id '10.1/zzz'"),
        (
            ["rice", "--year", "2020..2010", "--route", "crops"],
            2,
            "--year: '2020..2010': the first year must come",
        ),
        (["rice", "--type", "poem", "--route", "crops"], 1, "--type: no paper of"),
        (["rice", "--query-route", "x", "--route", "crops"], 1, "no route 'x'"),
        (
            ["rice", "--route", "crops=1,x=1"],
            2,
            "experts has no route 'x'; its routes: crops, neuro",
        ),
        (["rice", "--route", "crops=0,neuro=0"], 2, "--route: 'crops=0,neuro=0': the weights sum to 0"),
        (["rice", "--ris", "--csv", "--route", "crops"], 2, "give one of --csv and --ris"),
    ):
        found, said, err = run(capsys, "search", experts_model, "--corpus", tmp_path, *arguments)
        assert (found, said) == (status, ""), err
        assert message in err
    assert (
        run(capsys, "search", experts_model, "--corpus", tmp_path / "no", "rice", "--route", "crops")[0] == 1
    )
    assert not (tmp_path / ".vectors").exists()


def test_help_shows_an_example(capsys):
    status, out, _ = run(capsys, "search", "--help")
    assert status == 0
    assert "Example: sentence-experts search" in out


def test_hits_are_exported_and_papers_like_others_found(minilm, tmp_path, capsys):
    write_corpus(tmp_path)
    status, out, _ = run(
        capsys, "search", minilm, "--corpus", tmp_path, "--like", "doi:10.1/a", "-k", "1", "--csv"
    )
    assert status == 0
    assert out.startswith("query,rank,score,percentile,paper_id,title")
    assert "doi:10.1/e,Wheat rust" in out
    status, out, _ = run(
        capsys, "search", minilm, "--corpus", tmp_path, "dreams", "--hybrid", "--year", "2014", "--ris"
    )
    assert (status, out.count("TY  - ")) == (0, 1)
    assert "TI  - Sleep and memory" in out


def test_index_is_built_and_shown(minilm, tmp_path, capsys):
    write_corpus(tmp_path)
    status, out, err = run(capsys, "index", "build", minilm, "--corpus", tmp_path, "--unit", "title")
    assert (status, "whole" in out) == (0, True)
    status, out, err = run(capsys, "index", "build", "--corpus", tmp_path)
    assert (status, out) == (2, "")
    assert "give a model, or --vectors, and not both" in err
