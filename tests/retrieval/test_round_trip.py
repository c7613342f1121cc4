"""A library that is imported, exported and imported again has the same authors, places and keywords."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.bibliographic import unpack_samples
from helpers.read_sources import read_sources
from helpers.small_articles import papers
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.formats.bibtex import read_bibtex
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.retrieval.citation_export import Format, export_papers

SUFFIX = {"ris": ".ris", "bibtex": ".bib", "csv": ".csv"}
NAMES = (
    *("Doe, Jane", "van Beethoven, Ludwig", "King, Martin Luther, Jr.", "de la Vallée Poussin, C. J."),
    *("World Health Organization", "Department of Health, Education, and Welfare", "Plato", "IARC WG"),
    *("Smith and Sons", "Ünal-Öz, Ç.", "王小明", "Иванов, Пётр", "محمد, علي", "O'Neill, K", "A {brace} & co"),
    *("Doe, J_{2}", "$money$, \\LaTeX", "Made-up Group -- 100%", "Doe, Jane", "bell hooks", "D’Arcy, `x''"),
)
KEYWORDS = ("rice", "Models, Animal", "a|b", "p < 0.05", "#1 {x} 50% ~ y_z", "α-helix", "IL-2 -- a", "[x]")
# Of papers that are no articles; reference managers have no word for others, such as reviews.
TYPES = ("proceedings-article", "book-chapter", "book", "dissertation", "report", "dataset", "patent")
PLACES = ("1-10", "e1001", "S12-S18", "1-1-1-10", "S0140-6736(20)30183-5", "12", "123-8, 140", None)


def made_up(number: int) -> dict[str, Any]:
    dice = random.Random(number)
    return {
        "id": f"10.1000/x{number}", "title": f"Rice {number}", "abstract": "Roots grow.", "year": 2019,
        "authors": [*dice.choices(NAMES, k=dice.randrange(5)), *["et al."] * dice.randrange(2)],
        "keywords": dice.sample(KEYWORDS, dice.randrange(4)), "pages": dice.choice(PLACES),
        "volume": dice.choice(["12", "XII", "12 Suppl. 1", None]), "issue": dice.choice(["3", "3-4", None]),
        "article_type": dice.choice([*TYPES, None]),
    }  # fmt: skip


def by_text(corpus: CorpusFolder) -> dict[Any, Any]:
    return {
        (row["doi"] or row["pmid"] or row["title"] or row["abstract"]): (
            [[*(row[name] if row[name] is not None else ())] for name in ("authors", "keywords")],
            [row[name] for name in ("volume", "issue", "pages")],
            row["article_type"] if row["article_type"] in TYPES else None,
        )
        for row in corpus.to_pandas().replace({float("nan"): None}).to_dict("records")
        if row["title"] or row["abstract"]  # others are set aside
    }


@given(st.text("ab1 -`'?!~^\\{}$&%#_<>[]()\"=.,éα@").filter(str.strip))
@example("a ?`b !`c --- `` '' \\alpha $x$ {y}")
def test_any_text_goes_into_bibtex_and_comes_back(text: str) -> None:
    title = " ".join(text.split())
    papers = [{"paper_id": "doi:10.1/a", "doi": "10.1/a", "title": title, "abstract": title}]
    [entry] = read_bibtex(export_papers(papers, "bibtex"))
    assert isinstance(entry, dict)
    assert (entry["title"], entry["abstract"]) == ([title], [title])


@pytest.mark.parametrize("doi", ["10.1234/a}{b", "10.1234/{a}", "10.1234/a{b", "10.1002/(sici)1<2::aid>3.0"])
def test_the_braces_of_a_doi_come_back(doi: str, tmp_path: Path) -> None:
    (tmp_path / "x.bib").write_text(
        export_papers([{"paper_id": f"doi:{doi}", "doi": doi, "title": "R"}], "bibtex")
    )
    assert import_corpus(tmp_path / "x.bib", workers=1).to_pandas()["doi"].tolist() == [doi]


def again(corpus: CorpusFolder, form: Format, folder: Path) -> CorpusFolder:
    file = folder / f"{corpus.path.name}{SUFFIX[form]}"
    rows = corpus.to_pandas().replace({float("nan"): None}).to_dict("records")
    papers = [{name: list(v) if hasattr(v, "tolist") else v for name, v in row.items()} for row in rows]
    file.write_text(export_papers(papers, form), newline="")
    return import_corpus(papers=file, workers=1) if form == "csv" else import_corpus(file, workers=1)


@pytest.fixture(scope="module")
def made() -> CorpusFolder:
    return import_corpus(papers=[made_up(number) for number in range(200)])


@pytest.mark.parametrize("form", ["ris", "bibtex", "csv"])
def test_awkward_names_and_keywords_come_back(tmp_path: Path, form: Format, made: CorpusFolder) -> None:
    first = by_text(made)
    assert first["10.1000/x7"][0][0] == made_up(7)["authors"] != []
    assert first["10.1000/x7"][2] == made_up(7)["article_type"]
    assert by_text(again(made, form, tmp_path)) == first


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.parametrize("form", ["ris", "bibtex", "csv"])
@pytest.mark.parametrize(
    "name", ["ris", "nbib", "pubmed_csv", "zotero_csv", "bibtex", "openalex", "jats", "pubmed"]
)
def test_real_libraries_come_back(real_data: Path, tmp_path: Path, name: str, form: Format) -> None:
    own = {"jats": real_data / "formats" / "pmc_nxml", "pubmed": real_data / "formats" / "pubmed_efetch"}
    folder = own[name] if name in own else unpack_samples(real_data, name, tmp_path).folder
    corpus = import_corpus([folder], workers=1)
    first, second = by_text(corpus), by_text(again(corpus, form, tmp_path))
    assert sum(bool(each[0][0]) for each in first.values()) > 0
    assert {key: second.get(key) for key in first} == first


def test_retracted_papers_stay_so(tmp_path: Path) -> None:
    ids = {"own": {"id": "x9"}, "OpenAlex": {"openalex": "W12345"}, "DOI": {"doi": "10.1000/x"}}
    rows = [{**each, "title": f"Study with {name}", "retracted": True} for name, each in ids.items()]
    rows.append({"id": "x10", "title": "A sound study", "retracted": False})
    kept = import_corpus(papers=rows).to_pandas().replace({float("nan"): None}).to_dict("records")
    forms: tuple[Format, ...] = ("ris", "bibtex", "csv")
    for form in forms:
        (tmp_path / f"library{SUFFIX[form]}").write_text(export_papers(kept, form))
        back = papers(read_sources(tmp_path / f"library{SUFFIX[form]}"))
        assert {each["title"]: each["retracted"] for each in back} == {
            row["title"]: row["retracted"] for row in rows
        }, form
