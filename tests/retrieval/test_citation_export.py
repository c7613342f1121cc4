"""Papers as RIS, BibTeX and CSV: what is written comes back, whatever the texts hold."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.retrieval.citation_export import export_papers, paper_url

RICE = {
    "paper_id": "doi:10.1/a",
    "doi": "10.1/a",
    "title": "Rice & drought: 50% of {yield}",
    "abstract": "One.\nTwo.",
    "year": 2012,
    "journal": "Crops",
    "keywords": ["rice", "drought"],
    "retracted": True,
}
BARE = {"paper_id": "file:1", "title": None, "year": None}
HOSTILE = "x\r\nER  - \r\nTY  - JOUR\nTI  - planted\u2028}\n@article{evil, \\input{/etc/passwd}"


def ris_records(text: str) -> list[list[tuple[str, str]]]:
    records: list[list[tuple[str, str]]] = []
    for line in text.split("\r\n"):
        if line.startswith("TY  - "):
            records.append([])
        if line:
            records[-1].append((line[:2], line[6:]))
    return records


def bibtex_fields(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^  (\w+) = \{(.*)\},?$", text, flags=re.MULTILINE)


def test_ris_has_a_record_per_paper() -> None:
    first, second = ris_records(export_papers([RICE, BARE], "ris"))
    assert first == [
        ("TY", "JOUR"), ("TI", RICE["title"]), ("PY", "2012"), ("JO", "Crops"), ("AB", "One. Two."),
        ("DO", "10.1/a"), ("KW", "rice"), ("KW", "drought"), ("UR", "https://doi.org/10.1/a"),
        ("N1", "Retracted"), ("ID", "doi:10.1/a"), ("ER", ""),
    ]  # fmt: skip
    assert second == [("TY", "JOUR"), ("ID", "file:1"), ("ER", "")]


@pytest.mark.parametrize(
    ("papers", "expected"),
    [
        ([("Rice", None), ("Wheat", "@rice2012")], ["rice2012-2", "rice2012"]),
        (
            [("Other", "@rice2012-2"), ("Rice", None), ("Rice again", None)],
            ["rice2012-2", "rice2012", "rice2012-3"],
        ),
        ([("Other", "@Rice2012"), ("Rice", None)], ["Rice2012", "rice2012-2"]),
        ([("Rice", "@smith"), ("Wheat", "@Smith"), ("Wheat", "@x y")], ["smith", "wheat2012", "wheat2012-2"]),
    ],
)
def test_bibtex_keys_are_distinct_and_a_paper_keeps_its_own(
    papers: list[tuple[str, str | None]], expected: list[str]
) -> None:
    rows = [
        {"paper_id": f"p{number}", "title": title, "year": 2012, "entry": entry}
        for number, (title, entry) in enumerate(papers)
    ]
    assert re.findall(r"@article\{(.*),", export_papers(rows, "bibtex")) == expected


def test_bibtex_escapes_what_tex_reads() -> None:
    text = export_papers([RICE, RICE | {"paper_id": "doi:10.1/b"}], "bibtex")
    assert re.findall(r"@article\{(.*),", text) == ["rice2012", "rice2012-2"]
    fields = dict(bibtex_fields(text))
    assert fields["title"] == (r"{Rice \& drought: 50\% of \textbraceleft{}yield\textbraceright{}}")
    assert (fields["doi"], fields["note"], fields["keywords"]) == ("10.1/a", "Retracted", "rice, drought")


def test_bibtex_keeps_the_keys_of_the_library() -> None:
    keys = ["@ito:2012", "@ito:2012", "@a b", "ABCD2345", None]
    rows = [{"paper_id": str(n), "title": "Rice roots", "entry": key} for n, key in enumerate(keys)]
    found = re.findall(r"@article\{(.*),", export_papers(rows, "bibtex"))
    assert found == ["ito:2012", "rice", "rice-2", "rice-3", "rice-4"]


def test_csv_has_the_columns_that_some_paper_has() -> None:
    rows = list(csv.DictReader(io.StringIO(export_papers([RICE, BARE | {"score": -0.25}], "csv"))))
    assert list(rows[0]) == [
        "score", "paper_id", "title", "year", "journal", "doi", "abstract", "keywords", "retracted",
    ]  # fmt: skip
    assert rows[0]["keywords"] == "rice; drought"
    assert rows[1]["score"] == "-0.25"


def test_a_paper_that_several_queries_found_is_one_record() -> None:
    found = [RICE | {"query": "one"}, BARE, RICE | {"query": "two"}]
    assert len(ris_records(export_papers(found, "ris"))) == 2
    assert export_papers(found, "bibtex").count("@article") == 2
    assert [row["query"] for row in csv.DictReader(io.StringIO(export_papers(found, "csv")))] == [
        "one", "", "two",
    ]  # fmt: skip


@pytest.mark.parametrize("start", ["=cmd()", "+1+cmd", "-2+3", "@sum(a1)", " =cmd()"])
def test_no_cell_begins_a_formula(start: str) -> None:
    row = next(csv.DictReader(io.StringIO(export_papers([RICE | {"title": start}], "csv"))))
    assert row["title"] == f"'{start.strip()}"


@given(
    st.fixed_dictionaries(
        {"paper_id": st.text(min_size=1)},
        optional={"title": st.text(), "doi": st.text(), "year": st.integers()},
    )
)
def test_any_text_stays_in_its_field(paper: dict[str, Any]) -> None:
    (record,) = ris_records(export_papers([paper], "ris"))
    assert [tag for tag, _ in record].count("ID") == 1
    (row,) = csv.DictReader(io.StringIO(export_papers([paper], "csv")))
    assert None not in row
    text = export_papers([paper], "bibtex")
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")


def test_links_lead_to_the_best_known_record() -> None:
    assert paper_url({"doi": "10.1/<a b>?"}) == "https://doi.org/10.1/%3Ca%20b%3E%3F"
    assert paper_url({"pmcid": "PMC1", "pmid": "2"}) == "https://pmc.ncbi.nlm.nih.gov/articles/PMC1/"
    assert paper_url({"pmid": "2"}) == "https://pubmed.ncbi.nlm.nih.gov/2/"
    assert paper_url({"paper_id": "file:1", "doi": None}) is None
