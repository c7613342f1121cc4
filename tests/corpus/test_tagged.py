"""Records and rows as the formats of exports write them, from tag or column to values."""

from __future__ import annotations

from sentence_experts.corpus.formats.exports import EXPORTS
from sentence_experts.corpus.formats.tagged import NBIB_LINE, read_csv, read_tagged
from sentence_experts.corpus.paper import Paper, RecordError

PUBMED = "PMID,Title,Authors,Citation,First Author,Journal/Book,Publication Year,Create Date,PMCID,N,DOI\n"
REST = "Doe A,C,Doe,J,2002,2002/01/01,,,10.1234/b\n"


def _read(rows: str) -> list[str]:
    """Return the titles of the rows, and "-" for a row that is set aside."""
    return ["-" if isinstance(row, RecordError) else row["title"][0] for row in read_csv(PUBMED + rows)]


def test_pieces_of_a_row_are_set_aside_wherever_its_lines_break() -> None:
    whole = f"1,Rice,{REST}"
    assert _read(whole + f"2,Rye\nroots,{REST}" + whole) == ["Rice", "-", "-", "Rice"]
    assert _read(whole + f"2,Rye\nroots\nmore,{REST}" + whole) == ["Rice", "-", "-", "-", "Rice"]
    assert _read(whole + f"2,Rye, red\nroots,{REST}" + whole) == ["Rice", "-", "-", "Rice"]
    assert _read(whole + f"2,Rye\n\nroots,{REST}") == ["Rice", "-", "-"]


def test_rows_of_a_table_without_keys_are_read() -> None:
    (row,) = read_csv('Authors,Title,Year\n"A\nB",Rice\n')
    assert row == {"authors": ["A\nB"], "title": ["Rice"]}


def test_rows_without_their_last_empty_cells_are_whole() -> None:
    rows = ["1,Rice,Doe A,C,Doe,J", "2,Rye,Doe A,C,Doe,J", "3,Oats", f"4,Teff,{REST}"]
    assert _read("\n".join(rows)) == ["Rice", "Rye", "Oats", "Teff"]


def test_a_row_that_lacks_a_cell_is_set_aside() -> None:
    assert _read(f"1,Rice,{REST}2,Rye,{REST.removeprefix('Doe A,')}") == ["Rice", "-"]


def test_records_of_nbib_that_were_joined_without_a_line_break_are_two() -> None:
    record = "PMID- {}\nTI  - Rice\nSO  - J. 2001"
    joined = read_tagged(record.format(1) + record.format(2) + "\n", NBIB_LINE)
    assert [each["PMID"] for each in joined if not isinstance(each, RecordError)] == [["1"], ["2"]]


def test_years_that_cannot_be_read_are_kept_to_be_told() -> None:
    for name, record in (
        ("pubmed-csv", {"pmid": ["1"], "title": ["Rice"], "publication year": ["in press"]}),
        ("nbib", {"PMID": ["1"], "TI": ["Rice"], "DP": ["in press"]}),
    ):
        paper = EXPORTS[name].to_paper(record)
        assert isinstance(paper, Paper)
        assert paper.unreadable == (("year", "in press"),)
