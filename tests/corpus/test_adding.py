"""A corpus grows: more sources, merged by identifier."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helpers.openalex_works import work, write_records
from helpers.small_articles import jats, links, papers, ref, rejected
from helpers.small_pubmed import article_ids, deletion, packed_file, record
from sentence_experts.corpus import building
from sentence_experts.corpus.corpus_folder import DOMAINS, DOMAINS_SCHEMA, MANIFEST, CorpusFolder
from sentence_experts.corpus.importing import add_to_corpus, import_corpus
from sentence_experts.corpus.records import RECORDS
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import RECORD, read_json, sha256_file, write_json, write_parquet
from sentence_experts.storage import record as output_record

RIS = """TY  - JOUR
TI  - {0}
AB  - Abstract of {0}.
DO  - 10.1000/{1}
ER  -
"""


@pytest.fixture
def article(tmp_path: Path) -> Path:
    cites = "<sec><p>See <xref ref-type='bibr' rid='r1'>1</xref>.</p></sec>"
    text = jats("10.1000/a", refs=ref(doi="10.1000/b", title="The second") + ref(pmid="7"))
    text = text.replace("<ref>", '<ref id="r1">', 1).replace("<p>Body</p>", cites)
    (tmp_path / "a.xml").write_text(text)
    return tmp_path / "a.xml"


def ris(tmp_path: Path, name: str, *titles: str) -> Path:
    path = tmp_path / name
    path.write_text("".join(RIS.format(f"Title {title}", title) for title in titles))
    return path


def content(corpus: CorpusFolder) -> tuple[list, list, list]:
    return papers(corpus), links(corpus), corpus.to_pandas("mentions").to_dict("records")


def test_adding_in_steps_is_importing_at_once(tmp_path: Path, article: Path) -> None:
    one, two = ris(tmp_path, "one.ris", "b", "c"), ris(tmp_path, "two.ris", "c", "d")
    silent = tmp_path / "silent.xml"  # has a body that cites nothing
    silent.write_text(jats("10.1000/silent", refs=ref(doi="10.1000/b") + ref(title="No identifier")))
    whole = import_corpus([article, silent, one, two], workers=1)
    import_corpus([article, silent], tmp_path / "corpus", workers=1)
    add_to_corpus(tmp_path / "corpus", [one], workers=1)
    grown = add_to_corpus(tmp_path / "corpus", [two], workers=1)
    assert content(grown) == content(whole)
    assert len(papers(grown)) == 5
    names = ("papers_with_body", "mentions", "references_never_mentioned", "unidentified_references")
    counts = [[corpus.manifest["counts"][name] for name in names] for corpus in (whole, grown)]
    assert counts[0] == counts[1] == [2, 1, 2, 1]
    assert len(content(grown)[2]) == 1
    assert grown.fingerprint() == whole.fingerprint()
    names = sorted(source["name"] for source in grown.manifest["sources"])
    assert names == ["a.xml", "one.ris", "silent.xml", "two.ris"]
    assert not (tmp_path / "corpus" / ".new").exists()


def test_added_update_files_replace_and_delete(tmp_path: Path) -> None:
    cites = "<Reference><ArticleIdList><ArticleId IdType='pubmed'>{}</ArticleId></ArticleIdList></Reference>"
    baseline = packed_file(
        tmp_path / "pubmed26n0001.xml.gz",
        record("1", title="The first title.", references=cites.format(8)),
        record("2", title="Withdrawn later."),
        record("3", title="It stays"),
    )
    update = packed_file(
        tmp_path / "pubmed26n0002.xml.gz",
        record("1", title="The second title", abstract="", references=cites.format(9)),
        deletion("2"),
    )
    corpus = tmp_path / "corpus"
    for first, second in ((baseline, update), (update, baseline)):  # the files' names tell which is newer
        import_corpus([first], corpus, overwrite=True, workers=1)
        grown = add_to_corpus(corpus, [second], workers=1)
        assert {row["paper_id"]: row["title"] for row in papers(grown)} == {
            "pmid:1": "The second title", "pmid:3": "It stays",
        }  # fmt: skip
        assert papers(grown)[0]["abstract"] is None
        assert links(grown) == [("pmid:1", "pmid:9")]
        reasons = [(line["record"], line["reason"]) for line in rejected(grown)]
        assert reasons == [("pmid:1", "replaced"), ("pmid:2", "deleted")]
    old = work(1, (7,), title="As it was", updated_date="2026-01-02")
    new = work(1, (8,), title="As it is", updated_date="2026-03-04", abstract_inverted_index=None)
    import_corpus([write_records(tmp_path / "new.jsonl", [new])], corpus, overwrite=True, workers=1)
    grown = add_to_corpus(corpus, [write_records(tmp_path / "old.jsonl", [old])], workers=1)
    assert [(row["title"], row["abstract"]) for row in papers(grown)] == [("As it is", None)]
    assert links(grown) == [("doi:10.1000/w1", "openalex:W8")]


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.integers(0, 2**32).map(Random))
def test_any_order_of_steps_is_one_import(tmp_path_factory: pytest.TempPathFactory, random: Random) -> None:
    """Whatever records of a few works say, and whichever of them each source has."""
    folder = tmp_path_factory.mktemp("steps")
    ids = [{"doi": f"10.1000/{n}", "pubmed": str(n), "pmc": f"PMC{n}"} for n in range(1, 6)]

    def choose(number: int = 3) -> list[int]:
        return random.sample(range(5), number)

    def some_ids(n: int) -> dict[str, str]:  # now and then one of another work
        names = {kind: ids[n if random.random() < 0.9 else random.randrange(5)][kind] for kind in ids[0]}
        return {kind: names[kind] for kind in random.sample(list(names), random.randint(1, 2))}

    def title() -> str:
        return random.choice(["", "A title", "Another title"])

    sources = [write_records(folder / name / "works.jsonl", [
        work(n + 1, (random.randrange(1, 9),), title=title(), updated_date=f"2026-01-0{random.randint(1, 9)}",
             doi=f"https://doi.org/{ids[n]['doi']}", ids={"pmid": ids[n]["pubmed"]})
        for n in choose()]) for name in "ab"]  # fmt: skip
    for number in (1, 2, 3):
        content = [
            record(
                ids[n]["pubmed"], version=random.randint(1, 2), title=title(), ids=article_ids(**some_ids(n))
            )
            for n in choose()
        ]
        gone = deletion(*(ids[n]["pubmed"] for n in choose(number - 1)))
        sources.append(packed_file(folder / f"pubmed26n000{number}.xml.gz", *content, gone))
    for name in "cd":
        (n,), (other, another) = choose(1), choose(2)
        refs = ref(**some_ids(other)) + ref(**some_ids(another), title=title() or "T") + ref(title="Book")
        refs = refs.replace('"pubmed"', '"pmid"').replace('"pmc"', '"pmcid"')
        (folder / f"{name}.xml").write_text(
            jats(random.choice([None, ids[n]["doi"]]), refs=refs, title=title())
        )
        entries = [RIS.format(title() or "T", ids[n]["doi"].split("/")[1]) for n in choose()]
        refs_file = folder / f"of-{name}" / "refs.ris"
        refs_file.parent.mkdir()
        refs_file.write_text("".join(entries))
        sources += [folder / f"{name}.xml", refs_file]
    rows = [
        {"id": ids[n]["doi"], "title": title() or "T", "abstract": "", "keywords": "rice"} for n in choose()
    ]
    cited = [{"citing": ids[n]["doi"], "cited": "", "cited_title": "Book"} for n in choose()]
    tables = {
        "papers": rows,
        "citations": [*cited, {"citing": ids[0]["doi"], "cited": "4", "cited_title": ""}],
    }

    whole = import_corpus(sources, workers=1, **tables)
    random.shuffle(sources)
    cuts = sorted(random.sample(range(1, len(sources)), 3))
    steps = [sources[begin:end] for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]
    with_tables = random.randrange(4)
    grown = import_corpus(steps[0], folder / "corpus", workers=1, **(tables if with_tables == 0 else {}))
    for number, step in enumerate(steps[1:], start=1):
        again = random.sample(steps[number - 1], 1)  # a source that the corpus has
        more = tables if with_tables in (number, number - 1) else {}
        grown = add_to_corpus(grown, [*step, *again], workers=1, **more)
    for table in ("papers", "citations", "mentions"):
        read = (pq.read_table(corpus.path / f"{table}.parquet").to_pylist() for corpus in (grown, whole))
        assert next(read) == next(read)
    assert grown.fingerprint() == whole.fingerprint()


def test_records_that_are_read_again_are_kept_once(tmp_path: Path) -> None:
    folder = tmp_path / "articles"
    folder.mkdir()
    kept = []
    table = {
        "papers": [{"id": "10.1000/0", "title": "T"}],
        "citations": [{"citing": "10.1000/0", "cited": "9"}],
    }
    for number in range(3):
        (folder / f"{number}.xml").write_text(jats(f"10.1000/{number}", refs=ref(title="Book")))
        (folder / "broken.xml").write_text("<article>")
        if number == 0:
            corpus = import_corpus([folder], tmp_path / "corpus", workers=1, **table)
        else:
            corpus = add_to_corpus(corpus, [folder], workers=1, **table)
        kept.append([pq.read_metadata(corpus.path / f"records/{name}.parquet").num_rows
                     for name in ("papers", "references")])  # fmt: skip
        assert [line["member"] for line in rejected(corpus) if line["reason"] != "duplicate"] == [
            "broken.xml"
        ]
        assert len(papers(corpus)) == number + 1
    assert kept == [[2, 2], [3, 3], [4, 4]]


def test_records_of_a_corpus_must_be_whole(tmp_path: Path, article: Path) -> None:
    corpus = import_corpus([article], tmp_path / "corpus", workers=1)
    more = ris(tmp_path, "one.ris", "b")
    kept = corpus.path / "records/references.parquet"
    kept.write_bytes(kept.read_bytes()[:-1] + b"0")
    with pytest.raises(InputError, match=r"references\.parquet has changed since it was written"):
        add_to_corpus(corpus.path, [more], workers=1)
    made_from = json.loads((corpus.path / output_record.RECORD).read_text())
    made_from["files"] = {name: digest for name, digest in made_from["files"].items() if "/" not in name}
    (corpus.path / output_record.RECORD).write_text(json.dumps(made_from))  # as an earlier version wrote it
    with pytest.raises(InputError, match=r"keeps no records .* import its sources again"):
        add_to_corpus(corpus.path, [more], workers=1)


def test_a_corpus_in_memory_that_grows_stays(tmp_path: Path) -> None:
    rows = [{"id": str(n), "title": f"Rice {n}"} for n in range(2)]
    corpus = import_corpus(papers=rows[:1])
    for _ in range(2):  # the second time there is nothing to add
        corpus = add_to_corpus(corpus, papers=rows[1:])
        gc.collect()
        assert len(corpus.to_pandas()) == 2


@pytest.mark.parametrize("turned", [False, True])
def test_bare_digits_are_pmids_whichever_table_has_them(tmp_path: Path, turned: bool) -> None:
    (tmp_path / "a.csv").write_text("id,title\na,Rice\n")
    (tmp_path / "b.csv").write_text("id,title,pmid\nb,Sleep,12345\n")
    tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    corpus = import_corpus(tables[::-1] if turned else tables, citations=[{"citing": "a", "cited": "12345"}])
    assert corpus.to_pandas("citations")["cited"].tolist() == ["pmid:12345"]


@pytest.mark.parametrize(
    "own",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in (("x7", "x12"), ("7", "12"))),
        ("30000001", "30000002"),
    ],
)
def test_bare_digits_are_pmids_of_any_record_in_any_order_of_steps(
    tmp_path: Path, own: tuple[str, str]
) -> None:
    rice, sleep = record("30000011", title="Rice in drought"), record("30000012", title="Sleep of rats")
    records = packed_file(tmp_path / "records.xml.gz", rice, sleep)
    titles = ("Iron", "Bees and flowers")
    table = [{"id": each, "title": title} for each, title in zip(own, titles, strict=True)]
    pairs = [("30000011", own[0]), own, (own[0], "30000011")]
    citations = [{"citing": citing, "cited": cited} for citing, cited in pairs]
    once = import_corpus([records], papers=table, citations=citations, workers=1)
    early = add_to_corpus(import_corpus(papers=table, citations=citations), [records], workers=1)
    late = add_to_corpus(import_corpus([records], workers=1), papers=table, citations=citations)
    for corpus in (once, early, late):
        assert sorted(links(corpus)) == sorted([("pmid:30000011", own[0]), own, (own[0], "pmid:30000011")])


def test_numbers_of_rows_that_are_not_there_are_no_pmids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    records = packed_file(tmp_path / "records.xml.gz", record("103", title="Cardiac output in dogs"))
    table = [{"id": "101", "title": "Rice"}, {"id": "102", "title": "Iron"}, {"id": "103", "title": ""}]
    citations = [{"citing": "102", "cited": "103"}, {"citing": "103", "cited": "101"}]
    corpus = import_corpus([records], papers=table, citations=citations, workers=1)
    assert sorted(links(corpus)) == [("102", "103"), ("103", "101")]
    assert "are by works" not in caplog.text
    import_corpus([records], papers=table, citations=[citations[1]], workers=1)
    assert "1 of 1 citations are by works that the corpus does not have" in caplog.text


def test_tables_that_give_one_id_to_different_papers_are_no_corpus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = [{"id": "1", "title": "Sleep and memory"}, {"id": "2", "title": "Roots of rice"}]
    shared = "TY  - JOUR\nTI  - {0}\nVL  - {1}\nER  - \n"  # without an id, known by a hash of their texts
    for volume in "12":
        (tmp_path / f"{volume}.ris").write_text("".join(shared.format(title, volume) for title in "abc"))
    import_corpus(tmp_path / "1.ris", papers=table, out=tmp_path / "corpus")
    other = [{"id": "1", "title": "Rice and drought"}, {"id": "2", "title": "Memory of cells"}]
    with pytest.raises(InputError, match="the id '1' to different papers, 'Sleep and memory' and 'Rice and"):
        add_to_corpus(tmp_path / "corpus", tmp_path / "2.ris", papers=other)
    many = [{"id": str(n), "title": f"Cells {n} of rats"} for n in range(3, 9)]
    whole = import_corpus(papers=[*table, *many], out=tmp_path / "whole")
    add_to_corpus(whole, papers=[other[0], *many])
    assert "ids (1) name different papers in two tables" in caplog.text, "of seven ids"
    corrected = [{"id": "1", "title": "Sleep and memories", "abstract": "They sleep."}, *other[1:]]
    grown = add_to_corpus(tmp_path / "corpus", papers=corrected)
    assert [row["abstract"] for row in papers(grown)][:2] == ["They sleep.", None]


_OWN = [("1", "Sleep and memory"), ("2", "Roots of rice"), ("3", "Iron at sea")]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_own_id_gains_a_doi_in_another_table(
    tmp_path: Path, at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"doi": "10.1234/a{}", "pmid": "900{}", "pmcid": "PMC800{}"}
    stated = {
        "bees": (None, "doi"), "cats": ("doi", None), "dogs": ("pmid", "doi"), "rats": ("pmcid", "pmid"),
        "bats": (None, "pmid"),
    }  # fmt: skip
    tables: list[list[dict[str, Any]]] = [[], []]
    citations = []
    for number, (animal, kinds) in enumerate(stated.items()):
        for table, kind in zip(tables, kinds, strict=True):
            for own, title in _OWN:
                ids = {
                    each: values[each].format(f"{number}{own}") if each == kind else None for each in values
                }
                table.append({"id": f"{number}{own}", "title": f"{title} of {animal}", **ids})
        tables[1][-3]["title"] = f"Sleep, and memory of {animal}."
        citations.append({"citing": f"{number}1", "cited": f"{number}2"})
    if at_once:
        for name, rows in zip("ab", tables, strict=True):
            pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
        corpus = import_corpus([tmp_path / "a.csv", tmp_path / "b.csv"], citations=citations)
    else:
        corpus = add_to_corpus(import_corpus(papers=tables[0], citations=citations), papers=tables[1])
    found = papers(corpus)
    for animal, kinds in stated.items():
        rows = [row for row in found if animal in row["title"]]
        assert len(rows) == len(_OWN), animal
        for kind in filter(None, kinds):
            assert all(row[kind] for row in rows), animal
        ends = {row["paper_id"] for row in rows if "Iron" not in row["title"]}
        assert any({citing, cited} == ends for citing, cited in links(corpus)), animal
    assert len(links(corpus)) == len(stated)
    assert "name different papers" not in caplog.text


def test_an_own_id_may_be_a_pmid_of_another_record(tmp_path: Path) -> None:
    rows = [record(n, title=f"{title}.") for n, title in (("11", "Rice"), ("12", "Sleep"), ("13", "Stars"))]
    records = packed_file(tmp_path / "records.xml.gz", *rows)
    table = [
        {"id": "11", "title": "RICE"},
        {"id": "12", "title": "Iron in the deep sea"},  # the number of a row
        {"id": "13", "title": "", "abstract": "Who knows."},
    ]
    corpus = import_corpus([records], papers=table, workers=1)
    assert [row["paper_id"] for row in papers(corpus)] == ["12", "13", "pmid:11", "pmid:12", "pmid:13"]


def test_an_own_id_with_two_dois_is_two_papers(caplog: pytest.LogCaptureFixture) -> None:
    first, second = (
        [{"id": own, "title": title, "doi": f"10.1234/{x}{own}"} for own, title in _OWN] for x in "ab"
    )
    corpus = add_to_corpus(import_corpus(papers=first), papers=second)
    assert len(papers(corpus)) == 2 * len(_OWN)
    assert "ids (3) name different papers in two tables, by their titles, DOIs or PMIDs" in caplog.text
    # Row numbers of other papers, most of whose titles are unlike, are refused; a few are other papers.
    bare = [{"id": own, "title": title} for own, title in _OWN]
    other = [bare[0] | {"title": "Wheat, barley and drought in Iran", "doi": "10.1234/c"}, *bare[1:]]
    assert len(papers(add_to_corpus(import_corpus(papers=bare), papers=other))) == len(_OWN) + 1


def test_a_record_that_gains_a_doi_is_the_same_work(tmp_path: Path) -> None:
    """Records of a reference manager without an identifier are known by a hash of their texts."""
    long, short = "Roots of rice in years of drought and heat", "Editorial"
    for name, doi in (("a", ""), ("b", "DO  - 10.1234/x{}\n")):
        entry = "TY  - JOUR\nTI  - {}\nPY  - 2020\n" + doi + "ER  - \n"
        (tmp_path / f"{name}.ris").write_text(entry.format(long, 1) + entry.format(short, 2))
    corpus = add_to_corpus(import_corpus(tmp_path / "a.ris", workers=1), tmp_path / "b.ris", workers=1)
    assert sorted(row["title"] for row in papers(corpus)) == [short, short, long]


def test_tables_in_memory_have_no_records_to_add_to() -> None:
    corpus = CorpusFolder.of(pa.table({"paper_id": ["a"], "title": ["Rice"]}))
    with pytest.raises(InputError, match="keeps no records that more could be added to"):
        add_to_corpus(corpus, papers=[{"id": "b", "title": "Sleep"}])


def test_records_of_an_earlier_version_have_fewer_columns(tmp_path: Path) -> None:
    corpus = import_corpus(papers=[{"id": "a", "title": "Rice"}], out=tmp_path / "corpus")
    file = corpus.path / "records" / "papers.parquet"
    pq.write_table(pq.read_table(file).drop_columns("revised"), file)
    record = json.loads((corpus.path / RECORD).read_text())
    name = f"{RECORDS}/{file.name}"
    (corpus.path / RECORD).write_text(
        json.dumps({**record, "files": {**record["files"], name: sha256_file(file)}})
    )
    assert len(papers(add_to_corpus(corpus.path, papers=[{"id": "b", "title": "Sleep"}]))) == 2


@pytest.mark.parametrize("prefix", [pytest.param("10.1234/", marks=pytest.mark.slow), "own-"])
def test_one_title_of_a_table_is_corrected(tmp_path: Path, prefix: str) -> None:
    """The other rows are the same as before; by a DOI it is the same work, whatever its title."""
    titles = ["Cats purr at night", "Dogs bark by day", "Rice grows", "Stars shine", "Roots in drought"]
    table = [
        {"id": f"{prefix}{letter}", "title": title} for letter, title in zip("abcde", titles, strict=True)
    ]
    corrected = [table[0] | {"title": "Felines vocalise nocturnally in homes", "year": 2001}, *table[1:]]
    corpus = import_corpus(papers=table, out=tmp_path / "corpus")
    grown = add_to_corpus(corpus, papers=corrected)
    assert {paper["title"] for paper in papers(grown)} == {row["title"] for row in corrected}
    again = add_to_corpus(grown, papers=[{"id": f"{prefix}f", "title": "Sleep of rats"}])
    assert len(papers(again)) == len(titles) + 1


def test_another_selection_of_a_source_is_added(tmp_path: Path) -> None:
    works = write_records(tmp_path / "works.jsonl", [work(n, publication_year=2000 + n) for n in (1, 2)])
    import_corpus([works], tmp_path / "corpus", years=(2001, 2001), workers=1)
    assert len(papers(add_to_corpus(tmp_path / "corpus", [works], years=(2002, 2002), workers=1))) == 2


def test_what_a_corpus_has_is_not_added_again(
    tmp_path: Path, article: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    corpus = import_corpus([article], tmp_path / "corpus", workers=1)
    more = ris(tmp_path, "one.ris", "b")
    add_to_corpus(corpus, [more], workers=1)
    assert "2 papers, 1 before" in caplog.text
    written = (tmp_path / "corpus" / "papers.parquet").stat().st_mtime_ns
    add_to_corpus(corpus, [more, article], workers=1)
    assert "has all of these sources already" in caplog.text
    assert (tmp_path / "corpus" / "papers.parquet").stat().st_mtime_ns == written


def test_an_addition_that_was_stopped_continues(
    tmp_path: Path, article: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_corpus([article], tmp_path / "corpus", workers=1)
    more = ris(tmp_path, "one.ris", "b")

    def stopped(*_: object, **more: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((building, "resolving"), (building, "write_json"), (output_record, "sync")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, stopped)
            with pytest.raises(KeyboardInterrupt):
                add_to_corpus(tmp_path / "corpus", [more], workers=1)
    assert len(papers(add_to_corpus(tmp_path / "corpus", [more], workers=1))) == 2


def test_a_wrong_source_leaves_the_corpus_as_it_was(tmp_path: Path, article: Path) -> None:
    corpus = import_corpus([article], tmp_path / "corpus", workers=1)
    with pytest.raises(InputError, match="no such file"):
        add_to_corpus(corpus, [tmp_path / "none.ris"], workers=1)
    assert len(papers(CorpusFolder.open(tmp_path / "corpus"))) == 1


def test_tables_that_were_changed_are_not_made_anew(tmp_path: Path, article: Path) -> None:
    corpus = import_corpus([article], tmp_path / "corpus", workers=1)
    table = pq.read_table(corpus.papers)
    titles = pa.array([f"{title} (mine)" for title in table["title"].to_pylist()])
    write_parquet(corpus.papers, table.set_column(table.column_names.index("title"), "title", titles))
    before = corpus.papers.read_bytes()
    with pytest.raises(InputError, match=r"papers\.parquet has changed since it was written"):
        add_to_corpus(corpus.path, [ris(tmp_path, "one.ris", "b")], workers=1)
    assert corpus.papers.read_bytes() == before


def test_a_fetched_corpus_does_not_lose_its_domains_silently(
    tmp_path: Path, article: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetched = import_corpus([article], tmp_path / "fetched", workers=1)
    manifest = json.loads((fetched.path / MANIFEST).read_text())
    manifest["tables"][DOMAINS] = {}
    (fetched.path / MANIFEST).write_text(json.dumps(manifest))
    record = read_json(fetched.path / RECORD)
    record["files"][MANIFEST] = sha256_file(fetched.path / MANIFEST)
    write_json(fetched.path / RECORD, record)
    write_parquet(fetched.path / DOMAINS, DOMAINS_SCHEMA.empty_table())
    with pytest.raises(UsageError, match="fetched by queries"):
        add_to_corpus(fetched.path, [ris(tmp_path, "one.ris", "b")], workers=1)
    assert (fetched.path / DOMAINS).is_file()
    assert len(papers(import_corpus([fetched.path, tmp_path / "one.ris"], workers=1))) == 2
    assert "fetched: the domains and provenance of fetched papers are not kept" in caplog.text


def test_records_of_papers_that_are_there_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of equally full records the place decides, not the time: a correction may lose."""
    corpus = import_corpus(ris(tmp_path, "a.ris", "one", "two"), out=tmp_path / "corpus")
    (tmp_path / "later").mkdir()
    corpus = add_to_corpus(corpus, ris(tmp_path / "later", "a.ris", "one", "two"))
    assert "another" not in caplog.text, "the same records"
    corrected = ris(tmp_path / "later", "b.ris", "two")
    corrected.write_text(corrected.read_text().replace("Abstract", "Right abstract"))
    add_to_corpus(corpus, corrected)
    assert "1 records more are of papers that have another; the fuller one counts" in caplog.text
