"""The whole path outside biomedicine: computer science by OpenAlex, from records to search, offline."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.openalex_works import work, write_records
from sentence_experts.cli.main import main

WORDS = {
    "Computer Vision and Pattern Recognition": "image pixel object scene camera depth segment detect",
    "Computer Networks and Communications": "packet route wireless queue latency protocol link spectrum",
}
EACH = 40


def works() -> list[dict[str, Any]]:
    """Works of two subfields, each third with an abstract; each cites four of its own."""
    dice = random.Random(0)
    made = []
    for place, (subfield, words) in enumerate(WORDS.items()):
        topic = {
            "id": f"https://openalex.org/T{place}", "display_name": f"{subfield} topic",
            "subfield": {"id": f"https://openalex.org/subfields/170{place}", "display_name": subfield},
            "field": {"id": "https://openalex.org/fields/17", "display_name": "Computer Science"},
        }  # fmt: skip
        for number in range(EACH):
            title = " ".join(dice.sample(words.split(), 4))
            cited = tuple(1000 * place + 1 + (number + step) % EACH for step in (1, 2, 3, 4))
            abstract = {word: [at] for at, word in enumerate(dice.sample(words.split(), 6))}
            made.append(work(
                1000 * place + 1 + number, cited, title=f"{title} {number}", primary_topic=topic,
                abstract_inverted_index=abstract if number % 3 == 0 else None,
            ))  # fmt: skip
    outside = work(9999, (1, 2), primary_topic={"field": {"display_name": "Medicine"}})
    return [*made, outside]


def test_records_to_search(tmp_path: Path, minilm: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert not stop.value.code, captured.err
        return captured.out

    records = write_records(tmp_path / "works" / "updated_date=2026-01-02" / "part_000.gz", works())
    corpus, pairs, out = tmp_path / "corpus", tmp_path / "pairs", tmp_path / "run"
    run(
        "corpus", "import", records.parents[1], "--field", "Computer Science", "--out", corpus, "--workers", 1
    )
    listed = run("corpus", "show", corpus, "--list", "subfield")
    assert [line.split(maxsplit=1) for line in listed.splitlines()] == [
        ["40", name] for name in sorted(WORDS)
    ]
    rules = tmp_path / "domains.yaml"
    run("corpus", "suggest-domains", corpus, "--min-papers", 20, "--by", "subfields", "--out", rules)
    domains = sorted(yaml.safe_load(rules.read_text())["domains"])
    assert [name[:12] for name in domains] == ["computer_net", "computer_vis"]
    run("pairs", "compile", corpus, "--domains", rules, "--unit", "title", "--out", pairs)
    run("extend", minilm, "--domains", pairs, "--out", tmp_path / "untrained")
    few = ("--pairs", pairs, "--max-length", 16)
    run("train", tmp_path / "untrained", *few, "--max-steps", 1, "--batch-size", 4, "--out", out)
    run("evaluate", out / "model", *few, "--bootstrap", 0, "--out", tmp_path / "results")
    measured = (tmp_path / "results" / "evaluation.json").read_text()
    assert all(f'"{domain}"' in measured for domain in domains)
    found = run(
        "search", out / "model", "--corpus", corpus, "camera image depth", "--unit", "title",
        "--route", domains[1], "-k", 3, "--json",
    )  # fmt: skip
    papers = json.loads(found)[0]["papers"]
    assert len(papers) == 3
    assert all(set(paper["title"].split()) & {"camera", "image", "depth"} for paper in papers)
