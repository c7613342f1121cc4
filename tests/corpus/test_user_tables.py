from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.read_sources import read_sources
from helpers.small_articles import links, papers, rejected
from sentence_experts.cells import BadRowError
from sentence_experts.corpus.importing import add_to_corpus, import_corpus
from sentence_experts.corpus.user_tables import _list
from sentence_experts.errors import InputError, UsageError

PAPERS: list[dict[str, Any]] = [
    {
        "id": "a",
        "title": "One, two",
        "abstract": "First",
        "year": 2001,
        "subjects": ["X", "Y"],
        "doi": "10.1000/AAA",
    },
    {"id": "b", "title": "Two", "abstract": None, "year": None, "subjects": ["Z"], "doi": None},
    {"id": "PMC9", "title": "Three", "abstract": "Third\nline", "year": 2003, "subjects": [], "doi": ""},
]
CITATIONS: list[dict[str, Any]] = [
    {"citing": "b", "cited": "a"},
    {"citing": "b", "cited": "https://doi.org/10.1000/aaa"},
    {"citing": "PMC9", "cited": "doi:10.1000/aaa"},
    {"citing": "a", "cited": "pmc:9"},
    {"citing": "a", "cited": "somewhere else"},
    {"citing": "a", "cited": "a"},
]
LINKS = [
    ("b", "doi:10.1000/aaa"),
    ("doi:10.1000/aaa", "pmc:PMC9"),
    ("doi:10.1000/aaa", "somewhere else"),
    ("pmc:PMC9", "doi:10.1000/aaa"),
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    name = path.name.removesuffix(".gz")
    names = list(dict.fromkeys(key for row in rows for key in row))
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    packed = path.name.endswith(".gz")
    with (
        gzip.open(path, "wt", encoding="utf-8", newline="") if packed else path.open("w", newline="") as file
    ):
        if name.endswith("jsonl"):
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            table = csv.DictWriter(file, names, delimiter="\t" if name.endswith("tsv") else ",")
            table.writeheader()
            for row in rows:
                table.writerow(
                    {
                        key: "; ".join(value) if isinstance(value, list) else value
                        for key, value in row.items()
                    }
                )
    return path


@pytest.mark.parametrize(
    "ending",
    [
        "csv",
        "jsonl",
        "parquet",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("tsv", "csv.gz", "jsonl.gz")),
    ],
)
def test_every_kind_of_table_gives_the_same_corpus(tmp_path: Path, ending: str) -> None:
    corpus = import_corpus(
        out=tmp_path / "out",
        papers=write(tmp_path / f"papers.{ending}", PAPERS),
        citations=write(tmp_path / f"citations.{ending}", CITATIONS),
    )
    found = {paper["paper_id"]: paper for paper in papers(corpus)}
    assert found.keys() == {"doi:10.1000/aaa", "b", "pmc:PMC9"}
    assert found["doi:10.1000/aaa"]["subjects"] == ["X", "Y"]
    assert found["pmc:PMC9"]["abstract"] == "Third line"
    assert found["b"]["abstract"] is None
    assert sorted(links(corpus)) == LINKS
    assert rejected(corpus) == []
    assert corpus.manifest["counts"]["self_citations"] == 1


def test_bad_rows_are_named_by_number(tmp_path: Path) -> None:
    table = tmp_path / "papers.csv"
    rows = ["a,A,x,2001,", ",B,x,,", "c,,,,", "d,D", "e,E,x,soon,", "f,F,x,,no", "g,G,x,,maybe"]
    table.write_text("\n".join(["id,title,abstract,year,retracted", *rows]))
    lines = tmp_path / "citations.jsonl"
    lines.write_text('{"citing": "a", "cited": "f"}\nnot json\n[1]\n{"citing": "", "cited": "a"}\n')
    corpus = import_corpus(out=tmp_path / "out", papers=table, citations=lines)
    assert {paper["paper_id"] for paper in papers(corpus)} == {"a", "e", "f"}
    assert links(corpus) == [("a", "f")]
    assert [(line["source"], line["record"]) for line in rejected(corpus)] == [
        *(("citations.jsonl", f"row {row}") for row in (2, 3, 4)),
        *(("papers.csv", f"row {row}") for row in (2, 3, 4, 5, 7)),
    ]
    assert rejected(corpus)[-1]["detail"] == "retracted is 'maybe'; write yes or no"
    broken = ["citations.jsonl row 2", "citations.jsonl row 3", "papers.csv row 4"]
    assert {f"{each['source']} {each['record']}": each["reason"] for each in rejected(corpus)} == {
        "citations.jsonl row 4": "bad-row", **{f"papers.csv row {row}": "bad-row" for row in (2, 3, 7)},
        "papers.csv row 5": "unreadable-year",
        **dict.fromkeys(broken, "broken-row"),
    }  # fmt: skip


def test_papers_without_a_doi_are_known_by_their_texts(tmp_path: Path) -> None:
    table = tmp_path / "papers.csv"
    dois = ["n/a", "", "10.1000/a", "0", "in press 2020", "n/a"]
    rows = [f"{doi},Title {n % 5},x,200{n % 5}" for n, doi in enumerate(dois)]
    table.write_text("\n".join(["doi,title,abstract,year", *rows, "n/a,,,2001"]))
    corpus = import_corpus(papers=table)
    assert sorted(paper["title"] for paper in papers(corpus)) == [f"Title {n}" for n in range(5)]
    set_aside = [(each["record"], each["reason"]) for each in rejected(corpus)]
    assert [each for each in set_aside if each[1] == "bad-row"] == [("row 7", "bad-row")]
    assert sum(reason == "duplicate" for _, reason in set_aside) == 1
    assert sum(paper["paper_id"].startswith("text:") for paper in papers(corpus)) == 4


@pytest.mark.parametrize("empty", ["NaN", "NA", "#N/A", "null", ""])
def test_words_for_empty_cells_are_no_values(tmp_path: Path, empty: str) -> None:
    table = tmp_path / "papers.csv"
    table.write_text(f"id,title,abstract,year\na,Na,{empty},{empty}\n")
    [paper] = papers(read_sources(papers=table))
    assert (paper["title"], paper["abstract"], paper["year"]) == ("Na", None, None)


def test_digits_are_pmids_where_papers_have_pmids(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "title": "T", "abstract": "A", "pmid": n} for n in (11, 12)]
    papers_file = write(tmp_path / "p.jsonl", rows)
    citations = write(tmp_path / "c.jsonl", [{"citing": 11, "cited": 12}, {"citing": "p12", "cited": 99}])
    corpus = import_corpus(out=tmp_path / "out", papers=papers_file, citations=citations)
    assert links(corpus) == [("pmid:11", "pmid:12"), ("pmid:12", "pmid:99")]


def test_titles_alone_are_papers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rows = [{"id": "a", "title": "Rice", "abstrct": "?", "shelf": "3"}, {"id": "b", "title": "Sleep"}]
    assert [paper["abstract"] for paper in papers(import_corpus(papers=rows))] == [None, None]
    assert "columns that are not used: abstrct (did you mean abstract?), shelf;" in caplog.text
    assert "a title: titles suffice to search" in caplog.text, "without citations there are no pairs"


def test_identifiers_may_be_addresses_and_unreadable_ones_are_listed(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "title": "Rice", "pmid": "https://pubmed.ncbi.nlm.nih.gov/11111111/"},
        {"id": "b", "title": "Oak", "pmcid": "https://www.ncbi.nlm.nih.gov/pmc/articles/PMC123/"},
        {"id": "c", "title": "Ash", "pmid": "1;2", "openalex": "W12"},
        {"id": "d", "title": "Elm", "pmid": "none", "pmcid": "asked for"},
    ]
    corpus = read_sources(papers=pd.DataFrame(rows))
    found = {paper["title"]: paper for paper in papers(corpus)}
    assert (found["Rice"]["pmid"], found["Oak"]["pmcid"], found["Ash"]["pmid"]) == (
        "11111111",
        "PMC123",
        None,
    )
    assert [(each["reason"], each["detail"]) for each in rejected(corpus)] == [
        ("unreadable-pmid", "of the paper c: 1;2"),
        ("unreadable-pmcid", "of the paper d: asked for"),
    ]


def test_kinds_are_read_as_programs_name_them(tmp_path: Path) -> None:
    kinds = {
        "review": "review",
        "Review": "review",
        "Erratum": "correction",
        "NEWS": "news",
        "Letter": "letter",
    }
    kinds |= {
        "Journal Article": "article",
        "article": "article",
        "Journal Article; Review": "review",
        "Letter; Published Erratum": "correction",
        "Expression of Concern": "expression-of-concern",
    }
    rows = [{"id": f"p{number}", "title": "Rice", "kind": kind} for number, kind in enumerate(kinds)]
    found = papers(read_sources(papers=pd.DataFrame(rows)))
    assert [paper["kind"] for paper in found] == [*kinds.values()]


def test_missing_columns_files_and_kinds(tmp_path: Path) -> None:
    table = tmp_path / "papers.csv"
    table.write_text("key,title\n1,x\n")
    with pytest.raises(InputError, match=r"papers\.csv lacks the column id; it has: key, title"):
        import_corpus(out=tmp_path / "out", papers=table)
    with pytest.raises(InputError, match="no such file"):
        import_corpus(out=tmp_path / "out", papers=tmp_path / "none.csv")
    (tmp_path / "papers.xlsx").write_text("no")
    with pytest.raises(InputError, match="cannot tell its format"):
        import_corpus(out=tmp_path / "out", papers=tmp_path / "papers.xlsx")
    (tmp_path / "papers.parquet").write_text("no")
    with pytest.raises(InputError, match="not a Parquet file"):
        import_corpus(out=tmp_path / "out", papers=tmp_path / "papers.parquet")
    with pytest.raises(UsageError, match="`citations` needs `papers`"):
        import_corpus(out=tmp_path / "out", citations=write(tmp_path / "c.csv", CITATIONS))
    assert not (tmp_path / "out").exists()


def test_data_frames_give_the_same_corpus_as_files(tmp_path: Path) -> None:
    corpus = import_corpus(papers=pd.DataFrame(PAPERS), citations=pa.Table.from_pylist(CITATIONS))
    files = import_corpus(
        out=tmp_path / "out",
        papers=write(tmp_path / "p.parquet", PAPERS),
        citations=write(tmp_path / "c.parquet", CITATIONS),
    )
    assert corpus.fingerprint() == files.fingerprint()
    assert corpus.to_pandas()["paper_id"].tolist() == ["b", "doi:10.1000/aaa", "pmc:PMC9"]
    assert len(corpus.to_pandas("citations")) == 4
    assert repr(corpus).endswith("3 papers, 4 citations)")
    folder = corpus.path
    del corpus
    assert not folder.exists()


def test_ids_that_pandas_made_floats_still_link(tmp_path: Path) -> None:
    rows = [{"id": n, "title": f"T{n}", "abstract": "A"} for n in (11, 12)]
    cited = pd.DataFrame({"citing": [11, 12, 12], "cited": [12, None, 11], "cited_title": [None, "x", None]})
    assert cited["cited"].dtype == float
    wanted = [("11", "12"), ("12", "11"), ("12", None)]
    assert sorted(links(import_corpus(papers=pd.DataFrame(rows), citations=cited)), key=str) == wanted
    cited.to_csv(tmp_path / "c.csv", index=False)
    assert "12.0" in (tmp_path / "c.csv").read_text()
    assert sorted(links(import_corpus(papers=rows, citations=tmp_path / "c.csv")), key=str) == wanted
    corpus = import_corpus(papers=[{**rows[0], "id": 11.5}, rows[1]])
    assert [line["detail"] for line in rejected(corpus)] == ["11.5 is not an identifier"]


def test_two_rows_of_one_id_are_counted_and_named(tmp_path: Path) -> None:
    rows = [{"id": "a", "title": title, "abstract": "A"} for title in ("One", "Two")]
    corpus = import_corpus(papers=rows)
    assert corpus.manifest["counts"]["rejected"] == {"duplicate": 1}
    (line,) = rejected(corpus)
    assert (line["member"], line["record"], line["detail"]) == ("row 2", "a", "the same work as papers/row 1")


def test_of_rows_with_one_id_the_first_that_can_be_used_counts(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    rows = ["7,,", "7,43,First", "8,,Other", "7,,Second", "7,44,Third", "PMC9,,Fourth", "pmc:9,,Fifth"]
    table.write_text("\n".join(["id,pmid,title", *rows]))
    corpus = import_corpus(papers=table, out=tmp_path / "out")
    assert {paper["title"] for paper in papers(corpus)} == {"First", "Other", "Fourth"}
    assert [
        (line["member"], line["record"]) for line in rejected(corpus) if line["reason"] == "duplicate"
    ] == [
        ("row 4", "7"),
        ("row 5", "7"),
        ("row 7", "pmc:9"),
    ]


def test_citations_between_papers_are_those_of_papers_alone() -> None:
    rows = [{"id": name, "title": name, "abstract": "A"} for name in "ab"]
    citations = [{"citing": citing, "cited": "b"} for citing in ("a", "no paper", "another")]
    counts = import_corpus(papers=rows, citations=citations).manifest["counts"]
    assert (counts["citations"], counts["in_corpus_citations"], counts["citations_by_others"]) == (3, 1, 2)


def test_dois_of_papers_that_cannot_be_read_are_counted_and_named(tmp_path: Path) -> None:
    stated = ["not a doi", "10.1038/nature 12345 Smith", "10.1000/good", None]
    rows = [
        {"id": f"p{n}", "title": f"Title {n}", "abstract": "Text", "doi": doi} for n, doi in enumerate(stated)
    ]
    corpus = read_sources(papers=write(tmp_path / "papers.csv", rows))
    assert corpus.manifest["counts"]["papers"] == 4
    assert corpus.manifest["counts"]["rejected"] == {"unreadable-doi": 2}
    assert [(line["source"], line["record"], line["detail"]) for line in rejected(corpus)] == [
        ("papers.csv", f"row {n + 1}", f"of the paper p{n}: {stated[n]}") for n in (0, 1)
    ]


@pytest.mark.parametrize(
    ("ending", "values"),
    [("csv", ["yes", "no", None]), ("parquet", [1.0, 0.0, None]), ("jsonl", ["Retracted", "False", ""])],
)
def test_a_retraction_is_read_from_every_kind_of_file(tmp_path: Path, ending: str, values: list[Any]) -> None:
    rows = [{**paper, "retracted": value} for paper, value in zip(PAPERS, values, strict=True)]
    read = read_sources(papers=write(tmp_path / f"papers.{ending}", rows))
    by_title = {paper["title"]: paper["retracted"] for paper in papers(read)}
    assert [int(by_title[paper["title"]]) for paper in PAPERS] == [1, 0, 0]


def test_tags_are_keywords_where_there_are_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": "a", "title": "A viewer", "abstract": "", "Tags": "use::viewing; works-with::image"}]
    corpus = import_corpus(papers=write(tmp_path / "papers.csv", rows), out=tmp_path / "corpus")
    assert [each.tolist() for each in corpus.to_pandas()["keywords"]] == [
        ["use::viewing", "works-with::image"]
    ]
    assert "not used" not in caplog.text
    both = import_corpus(papers=[{**rows[0], "keywords": "eye"}], out=tmp_path / "both")
    assert [each.tolist() for each in both.to_pandas()["keywords"]] == [["eye"]]


@pytest.mark.parametrize("name", ["papers.csv", "papers.tsv", "papers.jsonl", "papers.parquet"])
def test_a_table_of_papers_may_be_one_of_the_sources(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"DOI": ["10.5/1", "10.5/2"], "Title": ["Rice", "Sleep"], "year": [2001, 2002]})
    file = tmp_path / name
    match file.suffix:
        case ".parquet":
            frame.to_parquet(file)
        case ".jsonl":
            frame.to_json(file, orient="records", lines=True)
        case suffix:
            frame.to_csv(file, index=False, sep="," if suffix == ".csv" else "\t")
    (tmp_path / "more.ris").write_text("TY  - JOUR\nTI  - Wheat\nDO  - 10.5/3\nER  - \n")
    citations = [{"citing": "10.5/1", "cited": "10.5/2"}]
    given = read_sources([tmp_path / "more.ris"], papers=file)
    found = import_corpus([file, tmp_path / "more.ris"], citations=citations)
    assert papers(found) == papers(given)
    assert links(found) == [("doi:10.5/1", "doi:10.5/2")]
    assert [each["doi"] for each in papers(found)] == ["10.5/1", "10.5/2", "10.5/3"]


def test_a_table_without_ids_or_titles_is_no_source(tmp_path: Path) -> None:
    for header in ("name,title", "id,name"):
        (tmp_path / "a.csv").write_text(f"{header}\na,b\n")
        with pytest.raises(InputError, match="do not show their format"):
            import_corpus(tmp_path / "a.csv")


def test_references_without_ids_are_not_doubled_by_adding_their_table_again(tmp_path: Path) -> None:
    rows = [{"citing": "a", "cited": "b"}, *({"citing": "a", "cited_title": f"Work {n}"} for n in range(5))]
    works = [{"id": "a", "title": "A"}, {"id": "b", "title": "B"}, {"id": "c", "title": "C"}]
    corpus = import_corpus(papers=works, citations=pd.DataFrame(rows), out=tmp_path / "c")
    assert corpus.manifest["counts"]["citations"] == 6
    more = pd.DataFrame([{"citing": "a", "cited": "c"}, *rows])
    assert add_to_corpus(corpus, papers=works, citations=more).manifest["counts"]["citations"] == 7


def test_years_and_brackets_in_words_lose_no_paper(caplog: pytest.LogCaptureFixture) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "title": "Rice", "year": "in press", "authors": "[No author name available]"},
        {"id": "b", "title": "Wheat", "year": "n.d.", "keywords": "[18F]FDG; [i]"},
        {"id": "c", "title": "Oats", "year": "2019?", "keywords": '["x", "y"]'},
    ]
    corpus = import_corpus(papers=rows)
    papers = corpus.to_pandas().set_index("title")
    assert papers["year"].to_dict() == pytest.approx(
        {"Rice": np.nan, "Wheat": np.nan, "Oats": 2019}, nan_ok=True
    )
    assert [*papers.loc["Rice", "authors"]] == []
    assert [[*papers.loc[title, "keywords"]] for title in ("Wheat", "Oats")] == [
        ["[18F]FDG", "[i]"],
        ["x", "y"],
    ]
    assert corpus.manifest["counts"]["rejected"] == {"unreadable-year": 2}
    assert "set aside" not in caplog.text


def test_a_citation_stays_without_a_year_that_cannot_be_read() -> None:
    papers = [{"id": name, "title": name} for name in "ab"]
    citations = [{"citing": "a", "cited": "b", "cited_year": "in press"}]
    corpus = import_corpus(papers=papers, citations=citations)
    assert (links(corpus), corpus.manifest["counts"]["rejected"]) == ([("a", "b")], {"unreadable-year": 1})


def test_values_that_cannot_be_read_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"pmid": "12,345,678", "title": "Rice", "year": "20150301x"}, {"pmid": "12", "title": "Sleep"}]
    import_corpus(papers=rows)
    assert "in all: unreadable-pmid 1, unreadable-year 1 (rejected.jsonl names" in caplog.text
    caplog.clear()
    column = pa.array([Decimal("11111111.00"), Decimal("12.00")], pa.decimal128(12, 2))
    corpus = import_corpus(papers=pa.table({"pmid": column, "title": ["Rice", "Sleep"]}))
    assert [paper["pmid"] for paper in papers(corpus)] == ["11111111", "12"]
    assert "in all" not in caplog.text


def test_kinds_that_are_unknown_and_ids_that_contradict_are_listed() -> None:
    kinds = ("Editoral", "Commentry", "article", "Clinical Trial", "RCT", "JOUR", "bookSection")
    rows = [{"id": f"p{n}", "title": f"Rice {n}", "kind": kind} for n, kind in enumerate(kinds)]
    rows.append({"id": "10.1234/a", "title": "Rye", "doi": "https://doi.org/10.1234/B", "pmid": None})
    rows.append({"id": "pmid:12", "title": "Oats", "doi": None, "pmid": "13"})
    rows.append({"id": "10.1234/C", "title": "Millet", "doi": "doi:10.1234/c", "pmid": "7"})
    rows.append({"id": "PMC12", "title": "Teff", "pmcid": "PMC13"})
    corpus = read_sources(papers=rows)
    assert len(papers(corpus)) == 11
    assert [(each["record"], each["reason"]) for each in rejected(corpus)] == [
        ("row 1", "unreadable-kind"),
        ("row 2", "unreadable-kind"),
        ("row 8", "contradicting-doi"),
        ("row 9", "contradicting-pmid"),
        ("row 11", "contradicting-pmcid"),
    ]


def test_a_table_of_citations_that_links_no_papers_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": name, "title": f"Rice {name}"} for name in "ab"]
    import_corpus(papers=rows, citations=[{"citing": "a", "cited": "b"}])
    assert "no citation is" not in caplog.text
    import_corpus(papers=rows, citations=[{"citing": "a", "cited": "paper-b"}])
    assert "no citation is of a paper of the corpus: a cited work is" in caplog.text
    caplog.clear()
    import_corpus(
        papers=rows,
        citations=[
            {"citing": "a", "cited": "paper-b"},
            *[{"citing": f"paper-{n}", "cited": "x"} for n in range(3)],
        ],
    )
    assert "3 of 4 citations are by works that the corpus does not have" in caplog.text
    caplog.clear()
    import_corpus(papers=rows, citations=[{"citing": "review", "cited": name} for name in "ab"])
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_several_ids_in_a_cell_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    doi = "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O"
    rows = [
        {"id": "1", "title": "Rice"},
        {"id": "2", "title": "Iron"},
        {"id": "3", "doi": doi, "title": "Tin"},
    ]
    cells = ["2", doi, "10.1234/b; 10.1234/c", "2;3", "https://openalex.org/W1|https://openalex.org/W2"]
    corpus = import_corpus(papers=rows, citations=[{"citing": "1", "cited": each} for each in cells])
    assert sorted(cited or "" for _, cited in links(corpus)) == ["2", f"doi:{doi.lower()}"]
    assert "set aside are 3 rows, the first row 3: several works in one cell (10.1234/b;" in caplog.text


LISTS = [
    "10.1234/2, 10.1234/3", "10.1234/2,10.1234/3", "10.1234/2 10.1234/3", "['2', '3']", "[2, 3]", "2, 3",
    "2 3", "35,227,408", "PMID:1, PMID:2", "smith2001, jones2002", "2, 2", "PMID:5;PMID:5",
    "10.1234/2\n10.1234/3", "10.1234/2 https://doi.org/10.1234/3",
]  # fmt: skip


def test_a_list_in_a_cell_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": str(n), "title": f"Rice {n}", "doi": f"10.1234/{n}"} for n in range(4)]
    ends = [{"citing": "0", "cited": cell} for cell in LISTS] + [
        {"citing": each, "cited": "0"} for each in LISTS
    ]
    corpus = import_corpus(papers=rows, citations=[*ends, {"citing": "0", "cited": "1"}])
    assert links(corpus) == [("doi:10.1234/0", "doi:10.1234/1")]
    assert f"set aside are {len(ends)} rows, the first row 1: several works in one cell" in caplog.text
    details = {each["record"]: each["detail"] for each in rejected(corpus)}
    for number, row in enumerate(ends, start=1):
        assert details[f"row {number}"].startswith("several works in one cell"), row


NAMES_OF_ONE = [
    "10.1234/{} PMID:3522740{}", "10.1234/{} https://doi.org/10.1234/{}", "10.1234/{}, 10.1234/{}",
    "['10.1234/{}']", "['{}']", "10.1234/{}; PMID: 3522740{}", "10.1234/{}; 3522740{}",
]  # fmt: skip


def test_names_of_one_work_in_a_cell_are_one(caplog: pytest.LogCaptureFixture) -> None:
    cells = {number: cell.replace("{}", str(number)) for number, cell in enumerate(NAMES_OF_ONE, start=1)}
    rows = [{"id": str(n), "title": f"Rice {n}", "doi": f"10.1234/{n}"} for n in (0, *cells)]
    corpus = import_corpus(papers=rows, citations=[{"citing": "0", "cited": cell} for cell in cells.values()])
    found = set(links(corpus))
    for number, cell in cells.items():
        assert ("doi:10.1234/0", f"doi:10.1234/{number}") in found, cell
    assert len(found) == len(cells)
    stated = {number: cell for number, cell in cells.items() if cell.startswith("10.")}
    rows = [{"id": f"own-{number}", "title": "Rice", "doi": cell} for number, cell in stated.items()]
    read = {paper["doi"] for paper in papers(import_corpus(papers=rows))}
    for number, cell in stated.items():
        assert f"10.1234/{number}" in read, cell
    assert "unreadable" not in caplog.text


def test_an_id_may_hold_separators() -> None:
    owns = ["Smith, 2001", "[12]", "a b", "Müller 2001", "vol. 1", "x(1,2)"]
    rows = [{"id": own, "title": f"Rice {n}"} for n, own in enumerate(owns)] + [
        {"id": "other", "title": "Iron"}
    ]
    corpus = import_corpus(papers=rows, citations=[{"citing": "other", "cited": own} for own in owns])
    assert sorted(links(corpus)) == sorted(("other", own) for own in owns)


def test_words_for_no_work_are_none() -> None:
    rows = [{"id": str(n), "title": f"Rice {n}"} for n in range(4)]
    words = ["None", "-", ".", "?", "n.a.", "unknown", "N/A."]
    citations = [{"citing": word, "cited": "1"} for word in words] + [{"citing": "2", "cited": "3"}]
    citations += [{"citing": "1", "cited": word} for word in words]
    assert links(import_corpus(papers=rows, citations=citations)) == [("2", "3")]


def test_numbers_of_volumes_are_whole(tmp_path: Path) -> None:
    rows = {
        "id": ["a", "b"],
        "title": ["Rice", "Iron"],
        "volume": [12, None],
        "issue": [3, None],
        "pages": [101, None],
    }
    pd.DataFrame(rows).to_csv(tmp_path / "papers.csv", index=False)
    paper, _ = papers(read_sources(papers=tmp_path / "papers.csv"))
    assert (paper["volume"], paper["issue"], paper["pages"]) == ("12", "3", "101")


def test_a_doi_of_several_is_named(caplog: pytest.LogCaptureFixture) -> None:
    (paper,) = papers(import_corpus(papers=[{"id": "a", "title": "Rice", "doi": "10.1234/a, 10.1234/b"}]))
    assert paper["doi"] == "10.1234/a"
    assert "unreadable-doi 1" in caplog.text


def test_a_paper_id_beside_an_id_is_read_for_identifiers(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": str(n), "paper_id": f"doi:10.1234/{n}", "title": f"Rice {n}"} for n in (1, 2)]
    corpus = import_corpus(papers=rows, citations=[{"citing": "1", "cited": "10.1234/2"}])
    assert links(corpus) == [("doi:10.1234/1", "doi:10.1234/2")]
    assert "papers are known by `id`; `paper_id` beside it" in caplog.text


def test_rows_that_repeat_an_id_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": each, "title": f"Rice {n}"} for n, each in enumerate("abab")]
    import_corpus(papers=rows)
    assert "papers: 2 rows, the first row 3, have the id of an earlier row, which counts" in caplog.text


def test_citations_by_the_bare_numbers_of_openalex() -> None:
    rows = [{"doi": f"10.1234/{n}", "openalex": f"W{n}", "title": f"Rice {n}"} for n in (1, 2)]
    links = [{"citing": "W1", "cited": "W2"}, {"citing": "W2", "cited": "W77"}]
    found = import_corpus(papers=rows, citations=links).to_pandas("citations")
    assert found[["citing", "cited"]].to_numpy().tolist() == [
        ["doi:10.1234/1", "doi:10.1234/2"],
        ["doi:10.1234/2", "openalex:W77"],
    ]


def test_rows_that_are_set_aside_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"id": "a", "title": "Rice", "keywords": '["x", y]'},
        {"id": "b", "title": "Wheat", "keywords": "x"},
    ]
    for cell in ("[Smith, J.; Doe, A.]", "[10.1000/a, 10.1000/b]", "[“a”, “b”]"):
        rows[0]["keywords"] = cell
        assert read_sources(papers=rows).manifest["counts"]["papers"] == 1
    assert "set aside are 1 rows, the first row 1: not a JSON array" in caplog.text


SPELLED = [("002", "2"), ("P2", "p2"), ("2", "02"), ("2", "2.0")]


@pytest.mark.parametrize(("own", "cited"), SPELLED)
def test_ids_in_another_spelling_are_told(own: str, cited: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"id": "a", "title": "Rice"}, {"id": own, "title": "Iron"}]
    corpus = import_corpus(papers=rows, citations=[{"citing": "a", "cited": cited}])
    told = f"are no paper's, such as {cited!r}, where a paper has {own!r}" in caplog.text
    assert told == (links(corpus) != [("a", own)])


def test_ids_in_their_own_spelling_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    owns = dict.fromkeys(own for own, _ in SPELLED)
    rows = [{"id": "a", "title": "Rice"}, *({"id": own, "title": f"Iron {own}"} for own in owns)]
    citations = [{"citing": "a", "cited": own} for own in owns] + [{"citing": "review", "cited": "x"}]
    import_corpus(papers=rows, citations=citations)
    assert "are no paper's" not in caplog.text


def test_an_abstract_that_quotes_a_record_leaves_its_table_a_table(tmp_path: Path) -> None:
    quoted = "It began:\nTY  - JOUR\nTI  - Quoted\nER  - \nand ended."
    pd.DataFrame({"id": ["a", "b"], "title": ["Rice", "Oak"], "abstract": [quoted, "Roots."]}).to_csv(
        tmp_path / "a.csv", index=False
    )
    assert {paper["title"] for paper in papers(read_sources(tmp_path / "a.csv"))} == {"Rice", "Oak"}


def test_lists_as_databases_and_spreadsheets_write_them() -> None:
    cells = {
        "[asthma, lung disease]": ("asthma", "lung disease"),
        '{asthma,"lung, disease",NULL}': ("asthma", "lung, disease"),
        'c("asthma", "copd")': ("asthma", "copd"),
        "asthma\n copd": ("asthma", "copd"),
        "a long\nword; copd": ("a long word", "copd"),
        "<i>E. coli</i>; M&uuml;ll": ("E. coli", "Müll"),
        "[No author name available]": ("[No author name available]",),
        "[Ca2+] in cells": ("[Ca2+] in cells",),
        '["the &quot;x&quot; effect", "b"]': ('the "x" effect', "b"),
        " " * 50_000 + "x": ("x",),
    }
    assert [_list(cell) for cell in cells] == list(cells.values())
    assert _list('{"Smith, J.","Doe, A."}', distinct=False) == ("Smith, J.", "Doe, A.")
    with pytest.raises(BadRowError, match="not a JSON array"):
        _list("[Smith, J., Doe, A.]", distinct=False)


def test_marks_errors_and_kinds_in_tables(caplog: pytest.LogCaptureFixture) -> None:
    texts = (
        "<jats:p><i>E. coli</i> &amp; rice</jats:p>",
        "x" * 32_767,
        "#NAME?",
        "At p<0.05 and n>3, a<b>c.",
    )
    kinds = ("Letter to the Editor", "Editorial comment", "Erratum in", "Corrected article")
    rows = {
        "doi": [f"10.1000/{each}" for each in "abcd"],
        "title": [*"abcd"],
        "abstract": texts,
        "kind": kinds,
    }
    corpus = import_corpus(papers=pd.DataFrame(rows, index=[*"wxyz"]))
    found = papers(corpus)
    assert [each["abstract"] for each in found] == ["E. coli & rice", texts[1], None, texts[3]]
    assert [each["kind"] for each in found] == ["letter", "editorial", "correction", "article"]
    assert not rejected(corpus)
    assert "texts end at 32,767 characters in 1 rows, the first row 2" in caplog.text
    assert "its index, as 'w', is not read" in caplog.text
