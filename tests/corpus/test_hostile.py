"""Hostile and broken input: nothing crashes, nothing outside is read, and everything set aside is named."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.read_sources import ReadSources, read_sources
from helpers.small_articles import jats, papers, ref, rejected
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.formats import archives
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Paper
from sentence_experts.errors import InputError

LAUGHS = "<!DOCTYPE article [<!ENTITY a 'ha ha ha ha ha '>" + "".join(
    f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
QUADRATIC = f"<!DOCTYPE article [<!ENTITY a '{'x' * 60_000}'>]>" + jats(abstract="&a;" * 60_000)


def reasons(corpus: CorpusFolder | ReadSources) -> dict[str, str]:
    return {line["member"]: line["reason"] for line in rejected(corpus)}


def test_entities_reach_nothing_outside(folder: Callable[..., Path], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.5)
        knocked = threading.Event()

        def answer() -> None:
            try:
                server.accept()
                knocked.set()
            except OSError:
                pass

        listener = threading.Thread(target=answer)
        listener.start()
        web = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        articles = folder(
            file=f"<!DOCTYPE article [<!ENTITY x SYSTEM '{secret.as_uri()}'>]>"
            + jats("10.1000/f", title="&x;"),
            unused=f"<!DOCTYPE article [<!ENTITY x SYSTEM '{secret.as_uri()}'>]>" + jats("10.1000/u"),
            web=f"<!DOCTYPE article [<!ENTITY x SYSTEM '{web}'>]>" + jats("10.1000/w", title="&x;"),
            parameter=f"<!DOCTYPE article [<!ENTITY % p SYSTEM '{web}'> %p;]>"
            + jats("10.1000/p", title="&q;"),
            dtd=f"<!DOCTYPE article SYSTEM '{web}'>" + jats("10.1000/d"),
            include=jats(
                "10.1000/i", title=f"<xi:include xmlns:xi='http://www.w3.org/2001/XInclude' href='{secret}'/>"
            ),
        )
        corpus = import_corpus([articles], tmp_path / "out", workers=1)
        listener.join()
    assert not knocked.is_set()
    everything = corpus.papers.read_bytes() + corpus.rejected.read_bytes() + repr(papers(corpus)).encode()
    assert b"SECRET" not in everything
    assert reasons(corpus).keys() == {"file.xml", "unused.xml", "web.xml", "parameter.xml"}
    assert {paper["doi"] for paper in papers(corpus)} == {"10.1000/d", "10.1000/i"}


def test_entity_bombs_are_refused_quickly(folder: Callable[..., Path], tmp_path: Path) -> None:
    documents = folder(laughs=LAUGHS + "]>" + jats(title="&j;"), quadratic=QUADRATIC, good=jats())
    corpus = read_sources([documents], workers=1)
    assert reasons(corpus) == {"laughs.xml": "entity-bomb", "quadratic.xml": "entity-bomb"}


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n",
    "nulls": b"\0" * 5000,
    "html": b"<!DOCTYPE html><html><body><p>Not found<br></body></html>",
    "binary": bytes(range(256)) * 40,
    "cut": jats().encode()[:-60],
    "latin": b'<?xml version="1.0" encoding="utf-8"?>' + jats(title="Caf\u00e9").encode("latin-1"),
    "unknown_encoding": b'<?xml version="1.0" encoding="klingon"?>' + jats().encode(),
    "null_inside": jats(title="A\0B").encode(),
    "deep": jats(abstract="<b>" * 5000 + "x" + "</b>" * 5000).encode(),
    "other_root": b"<PubmedArticleSet/>",
    "no_front": b"<article><body/></article>",
    "huge_name": b"<" + b"a" * 200_000 + b">",
}


def test_broken_documents_are_named_and_good_ones_kept(folder: Callable[..., Path], tmp_path: Path) -> None:
    good = {
        "utf16": jats("10.1000/utf16", title="Żółw").replace("<article", '<?xml version="1.0" encoding="utf-16"?><article', 1)  # noqa: E501
        .encode("utf-16"),
        "latin_declared": b'<?xml version="1.0" encoding="iso-8859-1"?>'
        + jats("10.1000/latin", title="Caf\u00e9").encode("latin-1"),
        "with_bom": b"\xef\xbb\xbf" + jats("10.1000/bom").encode(),
    }  # fmt: skip
    corpus = read_sources([folder(**BROKEN, **good)], workers=1)
    assert reasons(corpus).keys() == {f"{name}.xml" for name in BROKEN}
    assert all(line["reason"] != "error" for line in rejected(corpus)), rejected(corpus)
    assert {paper["title"] for paper in papers(corpus)} == {"Żółw", "Café", "A title"}


def test_folders_with_links_loops_pipes_and_locked_files(folder: Callable[..., Path], tmp_path: Path) -> None:
    articles = folder(good=jats())
    outside = tmp_path / "outside.xml"
    outside.write_text(jats("10.1000/outside"))
    (articles / "link.xml").symlink_to(outside)
    (articles / "loop").symlink_to(articles)
    os.mkfifo(articles / "pipe.xml")
    (articles / "gone.xml").symlink_to(tmp_path / "nowhere")
    (articles / "figure.jpg").write_bytes(b"x")
    corpus = import_corpus([articles], tmp_path / "out", workers=1)
    assert [paper["doi"] for paper in papers(corpus)] == ["10.1000/a"]
    assert reasons(corpus) == {
        "link.xml": "link",
        "loop": "link",
        "gone.xml": "link",
        "pipe.xml": "not-a-file",
    }
    assert corpus.manifest["counts"]["other_files"] == 1


def test_a_file_that_cannot_be_opened_is_named(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    articles = folder(good=jats(), locked=jats("10.1000/locked"))
    (articles / "locked.xml").chmod(0)
    if os.geteuid() == 0:  # root opens everything
        real = Path.open

        def refuse(path: Path, *rest: Any, **more: Any) -> Any:
            if path.name == "locked.xml":
                raise PermissionError(13, "Permission denied")
            return real(path, *rest, **more)

        monkeypatch.setattr(Path, "open", refuse)
    corpus = read_sources([articles], workers=1)
    assert reasons(corpus) == {"locked.xml": "unreadable"}


def _tar(path: Path, mode: str, *extra: tarfile.TarInfo, articles: int = 3) -> Path:
    with tarfile.open(path, mode) as archive:
        for number in range(articles):
            _add(archive, f"a{number}.xml", jats(f"10.1000/{number}").encode())
        for entry in extra:
            archive.addfile(entry, io.BytesIO(jats("10.1000/evil").encode()) if entry.isreg() else None)
        _add(archive, "last.xml", jats("10.1000/last").encode())
    return path


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    entry.size = len(jats("10.1000/evil")) if kind == tarfile.REGTYPE else 0
    return entry


@pytest.mark.parametrize("cut", [0, 200])  # bytes of the next header
def test_a_tar_that_is_cut_between_its_members_is_told(tmp_path: Path, cut: int) -> None:
    whole = _tar(tmp_path / "x.tar", "w").read_bytes()
    with tarfile.open(tmp_path / "x.tar") as archive:
        first = archive.getmembers()[1].offset
    (tmp_path / "x.tar").write_bytes(whole[: first + cut])
    corpus = read_sources([tmp_path / "x.tar"], workers=1)
    assert corpus.manifest["counts"]["papers"] == 1
    assert "no mark of its end" in corpus.rejected.read_text()


def test_joined_zips_are_told(tmp_path: Path) -> None:
    for number in range(2):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            archive.writestr(f"a{number}.xml", jats(f"10.1000/{number}"))
    whole = b"".join((tmp_path / f"{number}.zip").read_bytes() for number in range(2))
    (tmp_path / "x.zip").write_bytes(whole)
    corpus = read_sources([tmp_path / "x.zip"], workers=1)
    assert corpus.manifest["counts"]["papers"] == 1
    assert "joined-archive" in corpus.rejected.read_text()


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.xz", ".tar.bz2", ".tgz"])
def test_tar_members_that_point_outside_are_refused(tmp_path: Path, ending: str) -> None:
    evil = (
        _entry("../../evil.xml"), _entry("/tmp/evil.xml"), _entry("x/../../evil.xml"),
        _entry("soft.xml", tarfile.SYMTYPE, "/etc/passwd"), _entry("hard.xml", tarfile.LNKTYPE, "a0.xml"),
        _entry("device.xml", tarfile.CHRTYPE), _entry("pipe.xml", tarfile.FIFOTYPE),
    )  # fmt: skip
    mode = {"tgz": "w:gz", "tar": "w"}.get(ending.rpartition(".")[2], f"w:{ending.rpartition('.')[2]}")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    corpus = read_sources([_tar(tmp_path / f"x{ending}", mode, *evil)], workers=1)
    assert {paper["doi"] for paper in papers(corpus)} == {
        "10.1000/0",
        "10.1000/1",
        "10.1000/2",
        "10.1000/last",
    }
    assert reasons(corpus) == {
        "../../evil.xml": "unsafe-name", "/tmp/evil.xml": "unsafe-name", "x/../../evil.xml": "unsafe-name",
        "soft.xml": "link", "hard.xml": "link", "device.xml": "not-a-file", "pipe.xml": "not-a-file",
    }  # fmt: skip
    assert not [path for path in tmp_path.rglob("evil.xml") if path.name not in before]


@pytest.mark.parametrize(
    "ending", ["tar", "gz", *(pytest.param(each, marks=pytest.mark.slow) for each in ("xz", "bz2"))]
)
def test_documents_before_a_truncation_are_kept(tmp_path: Path, ending: str) -> None:
    path = tmp_path / ("x.tar" if ending == "tar" else f"x.tar.{ending}")
    with tarfile.open(path, "w" if ending == "tar" else f"w:{ending}") as archive:
        for number in range(40):
            _add(
                archive,
                f"a{number:02}.xml",
                jats(f"10.1000/{number}", abstract=os.urandom(20_000).hex()).encode(),
            )
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    corpus = read_sources([path], workers=1)
    (line,) = rejected(corpus)
    assert (line["reason"], line["source"]) == ("broken-archive", path.name)
    kept = [paper["doi"] for paper in papers(corpus)]
    # bzip2 blocks hold 900 kB before any of it comes out.
    assert {f"10.1000/{number}" for number in range(10 if ending == "bz2" else 20)} <= set(kept)
    assert len(kept) < 40


def test_zip_members_and_broken_zips(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good.xml", jats())
        archive.writestr("../evil.xml", jats("10.1000/evil"))
        archive.writestr("/evil.xml", jats("10.1000/evil"))
        link = zipfile.ZipInfo("link.xml")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    corpus = import_corpus([path], tmp_path / "out", workers=1)
    assert [paper["doi"] for paper in papers(corpus)] == ["10.1000/a"]
    assert reasons(corpus) == {"../evil.xml": "unsafe-name", "/evil.xml": "unsafe-name", "link.xml": "link"}

    for name, content in (
        ("cut.zip", path.read_bytes()[:300]),
        ("text.zip", b"hello"),
        ("none.tar.gz", b"hello"),
    ):
        (tmp_path / name).write_bytes(content)
        out = tmp_path / f"out-{name}"
        with pytest.raises(InputError, match=rf"{name}: no article could be read; 1 were .*broken-archive"):
            import_corpus([tmp_path / name], out, workers=1)
        assert [json.loads(line)["reason"] for line in (out / "rejected.jsonl").open()] == ["broken-archive"]


def test_sources_without_an_article_make_no_corpus(folder: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.png").write_bytes(b"x")
    out = tmp_path / "out"
    with pytest.raises(InputError, match="figures: holds no article"):
        import_corpus([tmp_path / "figures"], out, workers=1)
    with pytest.raises(InputError, match=r"no article could be read; 1 were set aside, the first is a\.xml"):
        import_corpus([folder(a="<broken")], out, workers=1)
    with pytest.raises(InputError, match="holds no corpus"):
        CorpusFolder.open(out)
    # The folder is as good as new.
    assert import_corpus([folder(b=jats())], out, workers=1).manifest["counts"]["papers"] == 1


def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(InputError, match="a pipe or device"):
        import_corpus([tmp_path / "a.tar"], workers=1)


@pytest.mark.parametrize("ending", ["zip", "tar.xz"])
def test_archives_that_expand_too_much_are_stopped(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_FREE_EXPANSION", 1 << 20)
    monkeypatch.setattr(archives, "_MAX_EXPANSION", 20)
    path = tmp_path / f"bomb.{ending}"
    bomb = jats("10.1000/b", abstract=" " * 300_000).encode()
    if ending == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(20):
                archive.writestr(f"{number}.xml", bomb)
    else:
        with tarfile.open(path, "w:xz") as archive:
            for number in range(20):
                _add(archive, f"{number}.xml", bomb)
    corpus = read_sources([path], workers=1)
    assert "expands-too-much" in [line["reason"] for line in rejected(corpus)]


def test_documents_over_the_limit_are_refused(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_DOCUMENT_BYTES", 2000)
    corpus = read_sources([folder(small=jats(), large=jats(abstract="x" * 3000))], workers=1)
    assert reasons(corpus) == {"large.xml": "too-large"}


class _LargeArticle(io.RawIOBase):
    """A valid article of about `megabytes`, made while it is read."""

    def __init__(self, megabytes: int) -> None:
        body = (
            "<sec><p>" + "Some words of a body. " * 20 + "<xref ref-type='bibr'>1</xref></p></sec>"
        ).encode()
        head, tail = jats(refs=ref(doi="10.1000/r") * 1000).encode().split(b"<p>Body</p>")
        self._parts = [head, *[body] * (megabytes * 1_000_000 // len(body)), tail]
        self._parts.reverse()

    def read(self, size: int = -1) -> bytes:
        return self._parts.pop() if self._parts else b""


def _memory_of_a_large_article(megabytes: int) -> float:
    """Measure the growth of peak memory while it is read, in megabytes; for a separate process."""
    import resource

    list(read_articles(_LargeArticle(1)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (paper,) = read_articles(_LargeArticle(megabytes))
    assert isinstance(paper, Paper)
    assert len(paper.citations) == 1000
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000


@pytest.mark.slow
def test_a_large_document_takes_less_memory_than_its_tree() -> None:
    # In a separate process, whose peak other tests have not raised. The tree takes 8 times the text.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_memory_of_a_large_article, (24,)) < 2 * 24
