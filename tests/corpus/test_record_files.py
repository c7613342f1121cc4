"""Files of records: OpenAlex works of our own making in the snapshot's schema, and merging across sources."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from helpers.openalex_works import work, write_records
from helpers.read_sources import ReadSources, read_sources
from helpers.small_articles import jats, links, papers, rejected
from sentence_experts.corpus import record_files
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.formats.openalex import RecordFilter
from sentence_experts.corpus.importing import gather_sources, import_corpus
from sentence_experts.corpus.parts import open_parts
from sentence_experts.corpus.record_files import RecordFile, read_records, record_to_paper
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import sha256_file


def one_file(tmp_path: Path, *works: dict[str, Any], **settings: Any) -> CorpusFolder:
    return import_corpus([write_records(tmp_path / "works.jsonl", list(works))], workers=1, **settings)


def numbers(corpus: CorpusFolder | ReadSources) -> set[int]:
    return {int(paper["openalex"][1:]) for paper in papers(corpus)}


def test_a_work_known_by_several_ids_is_one_paper(tmp_path: Path) -> None:
    """OpenAlex, an export and a table meet."""
    openalex = write_records(tmp_path / "o.jsonl", [
        work(7, (8, 9), doi=None, ids={"pmid": "https://pubmed.ncbi.nlm.nih.gov/5"}),
        work(8, (), doi=None, ids={"pmid": "6"}),
    ])  # fmt: skip
    (tmp_path / "e.ris").write_text("TY  - JOUR\nTI  - Work 8\nDO  - 10.1000/EIGHT\nAN  - 6\nER  - \n")
    table = [
        {"id": "mine", "title": "Seven", "abstract": "Of my own.", "doi": "10.1000/seven", "pmid": "5"},
        {"id": "pmid:6", "title": "Eight", "abstract": "", "doi": "10.1000/eight"},
        {"id": "other", "title": "Another", "abstract": ""},
    ]
    cites = [{"citing": "other", "cited": "openalex:W8"}, {"citing": "other", "cited": "pmid:5"}]
    corpus = import_corpus([openalex, tmp_path / "e.ris"], papers=table, citations=cites, workers=1)
    found = {paper["paper_id"]: paper for paper in papers(corpus)}
    assert set(found) == {"doi:10.1000/seven", "doi:10.1000/eight", "other"}
    seven = found["doi:10.1000/seven"]
    assert (seven["openalex"], seven["pmid"], seven["topic"]) == ("W7", "5", "Rice genetics")
    assert set(links(corpus)) == {
        ("doi:10.1000/seven", "doi:10.1000/eight"),
        ("doi:10.1000/seven", "openalex:W9"),
        ("other", "doi:10.1000/eight"),
        ("other", "doi:10.1000/seven"),
    }
    assert corpus.manifest["counts"]["references_by_unknown_number"] == 1


def test_a_wrong_number_joins_no_two_works(tmp_path: Path) -> None:
    rows = [{"id": name, "title": name, "doi": f"10.1000/{name}", "openalex": "W7"} for name in "xy"]
    corpus = import_corpus(papers=rows)
    assert [paper["openalex"] for paper in papers(corpus)] == ["W7", None]


def test_of_a_snapshot_the_works_are_read(tmp_path: Path) -> None:
    names = [f"updated_date=2026-01-0{day}/part_000" for day in (1, 2)]
    for first, name in zip((1, 5), names, strict=True):
        records = [work(n, (n + 1, 99)) for n in range(first, first + 4)]
        records[0]["abstract_inverted_index"] = json.dumps(records[0]["abstract_inverted_index"])
        write_records(tmp_path / "works" / f"{name}.gz", records)
    write_records(tmp_path / "authors" / "part_000.gz", [{"id": "https://openalex.org/A1"}])
    corpus = import_corpus([tmp_path], format="openalex", workers=1)
    assert [paper["abstract"] for paper in papers(corpus)] == ["Roots grow"] * 8
    assert [source["name"] for source in corpus.manifest["sources"]] == [f"works/{name}.gz" for name in names]


def test_the_latest_record_of_a_work_counts(tmp_path: Path) -> None:
    folder = tmp_path / "works"
    write_records(folder / "updated_date=2026-01-09" / "part_000.gz", [
        work(1, (2,), title="New", updated_date="2026-01-09"), work(3), work(4, is_xpac=True),
    ])  # fmt: skip
    write_records(folder / "updated_date=2025-12-31" / "part_000.gz", [
        work(1, (3,), title="Old", updated_date="2025-12-31"), work(2),
    ])  # fmt: skip
    (folder / "deleted_ids.csv.gz").write_bytes(gzip.compress(b"work_id,deleted_date\nW2,2026-01-01\n"))
    corpus = import_corpus([folder], workers=1, format="openalex")
    assert {paper["title"] for paper in papers(corpus)} == {"New", "Work 2", "Work 3"}
    assert links(corpus) == [("doi:10.1000/w1", "doi:10.1000/w2")]
    assert corpus.manifest["counts"]["rejected"] == {"replaced": 1, "xpac": 1}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"field": "11"}, {1, 2, 3, 5}),
        ({"field": ["plant science"]}, {1, 2, 3, 5}),
        ({"years": (1999, 2001)}, {3}),
        ({"field": "11", "years": (2010, 2022)}, {1, 2, 5}),
    ],
)
def test_filters_leave_out_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], kept: set[int]
) -> None:
    other = {"id": "https://openalex.org/T2", "display_name": "Logic"}
    works = [
        work(1), work(2, type="preprint"), work(3, publication_year=2000), work(4, primary_topic=other),
        work(5, language="de"),
    ]  # fmt: skip
    corpus = read_sources([write_records(tmp_path / "works.jsonl", works)], **settings)
    assert numbers(corpus) == kept
    assert corpus.manifest["counts"]["rejected"] == {"filtered": 5 - len(kept)}


def test_bad_records_are_named_and_the_others_kept(tmp_path: Path) -> None:
    path = tmp_path / "works.jsonl"
    lines = [json.dumps(work(1)), "{broken", json.dumps({"id": "x"}), "[]", json.dumps(work(2, mesh=7))]
    path.write_text("\n".join(lines))
    corpus = read_sources([path], workers=1)
    assert numbers(corpus) == {1, 2}
    assert [(one["record"], one["reason"]) for one in rejected(corpus)] == [
        ("record 2", "not-json"), ("record 3", "no-openalex-id"), ("record 4", "not-a-record"),
    ]  # fmt: skip
    packed = gzip.compress("\n".join(json.dumps(work(n)) for n in range(1, 400)).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) * 2 // 3])
    cut = read_sources([tmp_path / "cut.jsonl.gz"], workers=1)
    assert len(papers(cut)) > 50
    assert {"broken-file"} <= {one["reason"] for one in rejected(cut)}


ODD: list[Any] = [
    None, 1, -1, 10**30, 2.5, True, "", "x", "W1", "\u00e9\u0301", [], {}, [None], [[1]], [{}], {"a": 1},
]  # fmt: skip
RECORD = work(1, (2, 3), ids={"pmid": "5"}, mesh=[{"descriptor_name": "Rice"}], keywords=[{}])


def test_identifiers_of_openalex_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    odd = work(1, doi="none", ids={"pmid": "12,345", "pmcid": "PMC 1 2"})
    corpus = read_sources([write_records(tmp_path / "works.jsonl", [odd])], workers=1)
    assert {each["reason"] for each in rejected(corpus)} == {
        f"unreadable-{x}" for x in ("doi", "pmid", "pmcid")
    }


def test_no_value_of_a_field_stops_the_import(tmp_path: Path) -> None:
    """Every field, and every field inside it, with values of any type: a paper, or a named rejection."""
    odd = []
    for name, value in RECORD.items():
        odd += [RECORD | {name: other} for other in ODD]
        inside = value[0] if isinstance(value, list) and value else value
        for key in inside if isinstance(inside, dict) else ():
            changed = [inside | {key: other} for other in ODD]
            odd += [RECORD | {name: [one] if isinstance(value, list) else one} for one in changed]
    part = record_files._make_part(0, 0, RecordFile("odd", tmp_path, "openalex"), 0, odd, RecordFilter())
    kept = part.write(open_parts(tmp_path / "parts"))
    assert kept + sum(
        one.records for one in part.rejections if not one.reason.startswith("unreadable-")
    ) == len(odd)
    assert kept > len(odd) / 2


def test_sources_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    strange = write_records(tmp_path / "strange.jsonl", [{"a": 1}])
    with pytest.raises(InputError, match=r"strange\.jsonl.*give `format`"):
        import_corpus([strange], workers=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file of records"):
        import_corpus([tmp_path / "empty"], format="ris", workers=1)
    (tmp_path / "a.xml").write_text("<article/>")
    with pytest.raises(InputError, match="none of the 1 records matches"):
        one_file(tmp_path, work(1), years=(1900, 1901))
    with pytest.raises(UsageError, match="`field` chooses among records"):
        import_corpus([tmp_path / "a.xml"], field="Rice", workers=1)
    write_records(tmp_path / "mixed" / "a.jsonl", [work(1)])
    (tmp_path / "mixed" / "b.txt").write_text("no record")
    with pytest.raises(InputError, match=r"none of the 1 records matches the settings; 1 more"):
        import_corpus([tmp_path / "mixed"], years=(1900, 1901), workers=1)


def test_a_field_that_no_kept_paper_has_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    field = {"id": "https://openalex.org/fields/17", "display_name": "Medicine"}
    topic = {"display_name": "Rice", "field": field}
    one_file(tmp_path, work(1, primary_topic=topic), field="17,Medic*,Computer Sciences")
    assert "`field`: 'Computer Sciences' matches no paper that was kept" in caplog.text
    assert caplog.text.count("`field`") == 1


def test_what_a_choice_of_records_leaves_whole_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    works = write_records(tmp_path / "x.jsonl", [work(1), work(2) | {"publication_year": 1990}])
    table = [{"id": "1", "title": "Rice", "abstract": "", "year": 1990}]
    corpus = import_corpus([works], papers=table, years=(2000, 2025), workers=1)
    assert len(papers(corpus)) == 2
    assert "articles and tables are kept whole" in caplog.text


def test_an_interruption_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "_RECORDS_PER_PART", 5)
    folder = tmp_path / "works"
    for part in range(3):
        write_records(folder / f"part_{part}.gz", [work(20 * part + n, (n, n + 1)) for n in range(1, 18)])
    clean = import_corpus([folder], tmp_path / "clean", workers=1)
    done = []

    def dies(source: int, number: int, *arguments: Any) -> Any:
        if len(done) == 6:
            raise KeyboardInterrupt
        done.append((source, number))
        return make(source, number, *arguments)

    make = record_files._make_part
    monkeypatch.setattr(record_files, "_make_part", dies)
    with pytest.raises(KeyboardInterrupt):
        import_corpus([folder], tmp_path / "out", workers=1)
    again = []
    monkeypatch.setattr(record_files, "_make_part", lambda *given: again.append(given[:2]) or make(*given))
    import_corpus([folder], tmp_path / "out", workers=1)
    assert sorted(done + again) == [(source, number) for source in range(3) for number in range(4)]
    for name in ("papers.parquet", "citations.parquet", "manifest.json", "rejected.jsonl"):
        assert sha256_file(tmp_path / "out" / name) == sha256_file(clean.path / name)


@pytest.mark.slow
def test_workers_change_no_byte(tmp_path: Path) -> None:
    for part in range(3):
        write_records(
            tmp_path / "works" / f"part_{part}.gz", [work(20 * part + n, (n, n + 1)) for n in range(1, 18)]
        )
    one, three = (
        import_corpus([tmp_path / "works"], tmp_path / f"{workers}", workers=workers) for workers in (1, 3)
    )
    assert three.fingerprint() == one.fingerprint()


def test_a_field_keeps_exports_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "b.ris"
    path.write_text("TY  - JOUR\nTI  - Oats\nPY  - 2001\nER  - \n")
    (record,) = read_records("ris", path)
    assert record_to_paper("ris", record, RecordFilter(("Medicine",), (2001, 2002))) != "filtered"
    assert record_to_paper("ris", record, RecordFilter(("Medicine",), (2005, 2006))) == "filtered"
    gather_sources([path], ImportConfig(field=("Medicine",)), None, None)
    assert "`field`: exports have no fields, and are kept whole: 1 (b.ris)" in caplog.text


def test_exports_among_articles_are_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    (folder / "more").mkdir(parents=True)
    (folder / "a.xml").write_text(jats())
    (folder / "more" / "b.ris").write_text("TY  - JOUR\nTI  - Oats\nDO  - 10.5/2\nER  - \n")
    (folder / "c.bib").write_text("@article{c, title={Rye}, doi={10.5/3}}\n")
    (folder / "licence.txt").write_text("Free.")
    with zipfile.ZipFile(folder / "d.zip", "w") as archive:
        archive.writestr("d.ris", "TY  - JOUR\nTI  - Packed\nER  - \n")
        archive.writestr("d.xml", jats(doi="10.5/4"))
        for name in ("pubmed-rice-set.txt", "a/works.jsonl", "a/supplement.csv", "readme.txt"):
            archive.writestr(name, "x")
    corpus = import_corpus([folder], workers=1)
    assert {"doi:10.5/2", "doi:10.5/3", "doi:10.5/4"} < set(corpus.to_pandas()["paper_id"])
    assert len(corpus.to_pandas()) == 4
    assert corpus.manifest["counts"]["other_files"] == 3
    assert [(each["member"], each["reason"]) for each in rejected(corpus)] == [
        (name, "records-in-archive") for name in ("a/works.jsonl", "d.ris", "pubmed-rice-set.txt")
    ]


def test_a_source_of_another_format_than_was_given_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.bib").write_text("@article{c, title={Rye}, doi={10.5/3}}\n")
    (tmp_path / "b.ris").write_text("TY  - JOUR\nTI  - Oats\nDO  - 10.5/2\nER  - \n")
    corpus = import_corpus([tmp_path / "a.bib", tmp_path / "b.ris"], format="bibtex", workers=1)
    (named,) = rejected(corpus)
    assert (named["source"], named["reason"]) == ("b.ris", "no-records")


def test_a_folder_of_exports_may_be_called_works(tmp_path: Path) -> None:
    (tmp_path / "works").mkdir()
    for place, number in (("works/a.ris", 1), ("b.ris", 2)):
        (tmp_path / place).write_text(f"TY  - JOUR\nTI  - A study\nDO  - 10.5/{number}\nER  - \n")
    assert [each["doi"] for each in papers(import_corpus(tmp_path, workers=1))] == ["10.5/1", "10.5/2"]


def test_authors_whom_openalex_does_not_know_have_the_names_of_the_work(tmp_path: Path) -> None:
    names: list[dict[str, Any]] = [
        {"author": {"display_name": "Jane Roe"}, "raw_author_name": "J. Roe"},
        {"author": {"id": None, "display_name": None}, "raw_author_name": "Yi Xu"},
        {"author": {}},
    ]
    [paper] = papers(one_file(tmp_path, work(1, authorships=names)))
    assert paper["authors"] == ["Roe, Jane", "Xu, Yi"]
