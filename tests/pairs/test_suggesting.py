"""Links between the papers of a corpus, and the domains that they fall into."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.compile_pairs import tables_corpus
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.errors import InputError
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.pairs.suggesting import suggest_domains

SUBJECTS = ("Cell biology", "Plants: rice & wheat", "2D materials")


def papers(count: int = 60) -> list[dict]:
    return [
        {
            "paper_id": f"p{n:02d}", "title": f"Title {n}", "abstract": f"Abstract {n}" if n % 2 else None,
            "subjects": ["Research", SUBJECTS[n % 3]], "mesh": ["*Asthma/therapy"] if n < 10 else [],
        }
        for n in range(count)
    ]  # fmt: skip


def test_suggested_domains_are_those_that_sort_most_papers(tmp_path: Path) -> None:
    file = tmp_path / "domains.yaml"
    rules = suggest_domains(tables_corpus(papers()), file, min_papers=5)
    assert set(rules["domains"]) == {
        "cell_biology",
        "plants_rice_wheat",
        "domain_2d_materials",
    }  # not Research
    read = DomainRules.of(file)
    classify = read.classifier()
    assert all(len(classify(paper)) == 1 for paper in papers())
    assert "# 20 papers" in file.read_text()
    with pytest.raises(InputError, match="exists; give another `out`"):
        suggest_domains(tables_corpus(papers()), file, min_papers=5)
    assert suggest_domains(tables_corpus(papers()), file, min_papers=5, most=2, overwrite=True) != rules


def test_spellings_of_one_word_are_one_domain() -> None:
    """Rules are matched without regard to case."""
    words = ["stroke", "Stroke", "Sleep", "Stroke", "Rice", "Rice"]
    rows = [{**paper, "keywords": [words[n % 6]]} for n, paper in enumerate(papers(60))]
    rules = suggest_domains(tables_corpus(rows), by="keywords", min_papers=5)
    assert rules["domains"] == {word.lower(): {"keywords": [word]} for word in ("Stroke", "Rice", "Sleep")}


def test_words_that_yaml_reads_as_values_are_names(tmp_path: Path) -> None:
    rows = [{**paper, "keywords": [("No", "On", "Off")[n % 3]]} for n, paper in enumerate(papers(60))]
    rules = suggest_domains(tables_corpus(rows), tmp_path / "a.yaml", by="keywords", min_papers=5)
    assert set(DomainRules.of(tmp_path / "a.yaml").domains) == set(rules["domains"]) == {"no", "on", "off"}


def test_papers_without_anything_to_sort_them_by() -> None:
    with pytest.raises(InputError, match="no column sorts the papers into two domains of 50 papers"):
        suggest_domains(tables_corpus(papers()))
    with pytest.raises(InputError, match="no mesh sorts"):
        suggest_domains(tables_corpus(papers()), by="mesh", min_papers=5)


def test_suggested_domains_of_an_imported_corpus(tmp_path: Path) -> None:
    rows = [{"id": str(n), "title": f"T {n}", "abstract": "", "topic": f"Topic {n % 2}"} for n in range(8)]
    corpus = import_corpus(papers=rows, workers=1)
    assert suggest_domains(corpus, by="topics", min_papers=4)["domains"]["topic_1"] == {"topics": ["Topic 1"]}
