"""A library that stays open: new papers are found and encoded, a broken file changes nothing."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import sentence_experts
from helpers.searched_corpus import ask, ids
from helpers.small_articles import jats
from sentence_experts.corpus import building
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.serve import followed
from sentence_experts.storage import RECORD, InUseError, locked

SECONDS = 60  # for a busy machine


def entry(number: int) -> str:
    fields = f"title={{Rice in drought {number}}}, abstract={{Rice {number}.}}, doi={{10.5/{number}}}"
    return f"@article{{k{number}, {fields}}}\n"


def renewed(source: followed.FollowedSource) -> CorpusFolder | None:
    return source.renew_if_changed(lambda corpus: None)


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert reached()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "WATCH_SECONDS", 0.1)


def test_a_library_is_followed_while_it_is_served(
    experts: ExpertEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    library = tmp_path / "library.bib"
    library.write_text("".join(map(entry, range(5))))
    app = sentence_experts.create_app({"m": experts}, corpus=library)
    with TestClient(app, base_url="http://localhost") as client:
        count = lambda: client.get("/search/corpus").json()["papers"]  # noqa: E731
        client.post("/search/taught/marks", json={"marks": [{"paper": "10.5/1", "similar": True}]})
        assert count() == 5
        assert client.get("/search/corpus").json()["corpus"] == "library.bib"

        whole = "".join(map(entry, range(6)))
        library.write_text(whole)
        wait_for(lambda: count() == 6)
        assert "doi:10.5/5" in ids(ask(client, query="rice", top_k=10))
        assert "5 of 6 texts were encoded before" in caplog.text
        assert len(client.get("/search/taught").json()["marks"]) == 1

        for broken in (whole[:-20], ""):
            caplog.clear()
            library.write_text(broken)
            wait_for(lambda: "searches continue with the papers from before" in caplog.text)
            time.sleep(0.5)
            assert caplog.text.count("searches continue") == 1
            assert count() == 6

        library.write_text(entry(7) + entry(8))
        wait_for(lambda: count() == 2)
        assert sorted(ids(ask(client, query="rice"))) == ["doi:10.5/7", "doi:10.5/8"]


def test_an_unchanged_library_is_imported_once(tmp_path: Path) -> None:
    library = tmp_path / "library.ris"
    library.write_text("TY  - JOUR\nTI  - Rice\nDO  - 10.5/1\nER  - \n")
    first = followed.FollowedSource(library).corpus()
    assert first.path == tmp_path / "library.ris.corpus"
    written = (first.path / "manifest.json").stat().st_mtime_ns
    assert (followed.FollowedSource(library).corpus().path / "manifest.json").stat().st_mtime_ns == written
    with pytest.raises(
        InputError, match=r"library\.ris is no corpus: give .*library\.ris\.corpus, into which"
    ):
        CorpusFolder.open(library)
    library.write_text(library.read_text().replace("Rice", "Wheat"))
    assert followed.FollowedSource(library).corpus().to_pandas()["title"].tolist() == ["Wheat"]


def test_a_table_of_papers_is_followed(tmp_path: Path) -> None:
    library = tmp_path / "library.csv"
    library.write_text("id,title\na,Rice\n")
    source = followed.FollowedSource(library)
    assert source.corpus().to_pandas()["title"].tolist() == ["Rice"]
    library.write_text("id,title\na,Rice\nb,Sleep\nc")
    assert renewed(source) is None, "it may still be written to"
    with pytest.raises(InputError, match="1 broken records, and 0 before"):
        renewed(source)
    library.write_text("id,title\na,Rice\nb,Sleep\nc,Wheat\n")
    assert renewed(source) is None
    assert renewed(source).manifest["counts"]["papers"] == 3  # type: ignore[union-attr]


def test_a_change_that_leaves_size_and_time_is_seen(tmp_path: Path) -> None:
    """As synchronised in place by a program that sets the file's time."""
    library = tmp_path / "library.ris"
    library.write_text("TY  - JOUR\nTI  - Rice\nDO  - 10.5/1\nER  - \n")
    source = followed.FollowedSource(library)
    source.corpus()
    before = library.stat()
    library.write_text(library.read_text().replace("Rice", "Oats"))
    os.utime(library, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert renewed(source) is None, "it may still be written to"
    changed = renewed(source)
    assert changed is not None
    assert changed.to_pandas()["title"].tolist() == ["Oats"]


def test_a_corpus_that_was_added_to_is_not_replaced(tmp_path: Path) -> None:
    library = tmp_path / "library.bib"
    library.write_text(entry(1))
    source = followed.FollowedSource(library)
    added = sentence_experts.add_to_corpus(
        source.corpus(), papers=[{"id": "2", "title": "Sleep", "abstract": ""}]
    )
    library.write_text(entry(1) + entry(3))
    with pytest.raises(InputError, match=r"library\.bib\.corpus was not imported from .*library\.bib alone"):
        source.corpus()
    assert CorpusFolder.open(added.path).manifest == added.manifest
    sentence_experts.import_corpus(library, added.path, overwrite=True)
    assert source.corpus().manifest["counts"]["papers"] == 2
    library.write_text(entry(1))
    assert source.corpus().manifest["counts"]["papers"] == 1


@pytest.mark.parametrize(
    "kind",
    [
        "other source",
        "full text",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("two sources", "table", "chosen years")),
    ],
)
def test_a_corpus_that_was_made_otherwise_is_not_replaced(tmp_path: Path, kind: str) -> None:
    library = tmp_path / "library"
    library.mkdir()
    other = tmp_path / "other" / "b.bib"
    other.parent.mkdir()
    if kind in ("full text", "two sources"):
        (library / "a.xml").write_text(jats())
    else:
        (library / "a.bib").write_text(entry(1).replace("doi=", "year={1990}, doi="))
    other.write_text(entry(2))
    sources, settings = {
        "other source": ([other.parent], {}),
        "two sources": ([library, other], {}),
        "full text": ([library], {"full_text": True}),
        "table": ([library], {"papers": [{"id": "2", "title": "Sleep", "abstract": ""}]}),
        "chosen years": ([library], {"years": (1900, 2000)}),
    }[kind]
    made = sentence_experts.import_corpus(sources, tmp_path / "library.corpus", **settings)
    with pytest.raises(InputError, match=r"library\.corpus was not imported from .*library alone"):
        followed.FollowedSource(library).corpus()
    assert CorpusFolder.open(made.path).manifest == made.manifest


def test_a_corpus_of_a_folder_follows_it_when_files_come_and_go(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "a.bib").write_text(entry(1))
    sentence_experts.import_corpus([library], tmp_path / "library.corpus")
    (library / "a.bib").rename(library / "b.bib")
    (library / "b.bib").write_text(entry(2))
    assert followed.FollowedSource(library).corpus().to_pandas()["doi"].tolist() == ["10.5/2"]


def test_a_corpus_of_an_earlier_version_is_followed_if_it_is_of_the_file_alone(tmp_path: Path) -> None:
    library = tmp_path / "library.bib"
    library.write_text(entry(1))
    source = followed.FollowedSource(library)
    corpus = source.corpus()
    record = json.loads((corpus.path / RECORD).read_text())
    del record["settings"]["followed"]
    (corpus.path / RECORD).write_text(json.dumps(record))
    assert source.corpus().manifest == corpus.manifest
    library.write_text(entry(2))
    assert source.corpus().to_pandas()["doi"].tolist() == ["10.5/2"]
    record = json.loads((corpus.path / RECORD).read_text())
    record["settings"] = {"sources": [*record["settings"]["sources"], {"name": "other.bib"}]}
    (corpus.path / RECORD).write_text(json.dumps(record))
    library.write_text(entry(3))
    with pytest.raises(InputError, match="was not imported from"):
        source.corpus()


def test_an_import_that_was_interrupted_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, other = tmp_path / "library.bib", tmp_path / "other.bib"
    for number, file in enumerate((library, other)):
        file.write_text(entry(number))
    source = followed.FollowedSource(library)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for file in (other, library):
        with monkeypatch.context() as context:
            context.setattr(building, "_write_corpus", stop)
            with pytest.raises(KeyboardInterrupt):
                sentence_experts.import_corpus(file, source.folder)
        if file == other:
            with pytest.raises(InputError, match="was not imported from"):
                source.corpus()
            assert sentence_experts.import_corpus(other, source.folder).to_pandas()["doi"].tolist() == [
                "10.5/1"
            ]
            shutil.rmtree(source.folder)
    library.write_text(entry(2))
    assert source.corpus().to_pandas()["doi"].tolist() == ["10.5/2"], "as far as a server had come"


def test_a_file_that_still_grows_is_left_alone(tmp_path: Path) -> None:
    library = tmp_path / "library.bib"
    library.write_text(entry(1))
    source = followed.FollowedSource(library)
    assert renewed(source) is None
    for number in (2, 3):
        library.write_text(library.read_text() + entry(number))
        assert renewed(source) is None
    assert renewed(source).manifest["counts"]["papers"] == 3  # type: ignore[union-attr]
    assert renewed(source) is None
    library.write_text(library.read_text()[:-20])
    assert renewed(source) is None
    with pytest.raises(InputError, match="1 broken records, and 0 before"):
        renewed(source)
    assert renewed(source) is None


def test_what_another_process_was_importing_is_read_afterwards(tmp_path: Path) -> None:
    library = tmp_path / "library.bib"
    library.write_text(entry(1))
    source = followed.FollowedSource(library)
    source.corpus()
    library.write_text(entry(1) + entry(2))
    assert renewed(source) is None, "it may still be written to"
    with locked(source.folder, "corpus"), pytest.raises(InUseError):
        renewed(source)
    found: list[CorpusFolder] = []
    wait_for(lambda: bool(source.renew_if_changed(found.append) or found))
    assert found.pop().manifest["counts"]["papers"] == 2

    library.write_text(entry(1))
    assert renewed(source) is None

    def fails(corpus: CorpusFolder) -> None:
        raise InputError("the index is in use")

    with pytest.raises(InputError, match="in use"):
        source.renew_if_changed(fails)
    wait_for(lambda: bool(source.renew_if_changed(found.append) or found))
    assert found.pop().manifest["counts"]["papers"] == 1
    assert renewed(source) is None


def test_a_server_that_starts_waits_for_what_another_process_imports(tmp_path: Path) -> None:
    library = tmp_path / "library.bib"
    library.write_text(entry(1))
    source = followed.FollowedSource(library)
    with ThreadPoolExecutor(1) as pool:
        with locked(source.folder, "corpus"):
            first = pool.submit(source.first_corpus)
            with pytest.raises(FutureTimeoutError):
                first.result(timeout=0.5)
        assert first.result(timeout=60).manifest["counts"]["papers"] == 1


def test_an_entry_that_was_always_broken_does_not_hold_others_up(tmp_path: Path) -> None:
    library = tmp_path / "library.bib"
    broken = "@article{broken, title={unclosed, author={X, Y}\n}\n\n"
    library.write_text(broken + entry(1))
    source = followed.FollowedSource(library)
    source.corpus()
    library.write_text(broken + entry(1) + entry(2))  # before the first look
    assert renewed(source) is None, "it may still be written to"
    assert renewed(source).manifest["counts"]["papers"] == 2  # type: ignore[union-attr]
    library.write_text(broken + entry(1) + entry(2) + broken)
    assert renewed(source) is None
    with pytest.raises(InputError, match="2 broken records, and 1 before"):
        renewed(source)


def test_corpora_and_what_is_imported_are_told_apart(tmp_path: Path) -> None:
    assert not followed.is_source(tmp_path)
    assert not followed.is_source(tmp_path / "missing")
    (tmp_path / "manifest.json").touch()
    assert not followed.is_source(tmp_path)
    assert followed.is_source(tmp_path / "manifest.json")
