from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.small_articles import jats, papers
from sentence_experts.corpus import building, parsing
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.parts import part_key
from sentence_experts.corpus.record_files import RecordFiles
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.corpus.user_tables import UserTable
from sentence_experts.encoding.encode import encode
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.sql_engine import open_engine
from sentence_experts.storage import RECORD
from sentence_experts.storage.record import NEW

FILES = ("papers.parquet", "citations.parquet", "mentions.parquet", "manifest.json", "rejected.jsonl")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 180 simulated articles, and two that cannot be read."""
    base = tmp_path_factory.mktemp("simulated")
    articles = simulate_corpus(base / "articles", seed=3, articles=180)
    (articles / "broken.xml").write_text("<article>")
    (articles / "simulated-00007.xml").write_text("")
    with tarfile.open(base / "simulated.tar.gz", "w:gz") as archive:
        archive.add(articles, arcname="articles")
    return base


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_PART_DOCUMENTS", 16)


def contents(folder: Path) -> dict[str, bytes]:
    kept = (path.relative_to(folder).as_posix() for path in (folder / "records").iterdir())
    return {name: (folder / name).read_bytes() for name in (*FILES, *kept)}


@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_bytes(simulated: Path, tmp_path: Path) -> None:
    sources = [simulated / "simulated.tar.gz", simulated / "articles"]
    one = import_corpus(sources, tmp_path / "one", workers=1)
    two = import_corpus(sources, tmp_path / "two", workers=2)
    assert contents(one.path) == contents(two.path)
    assert one.fingerprint() == two.fingerprint()
    assert {path.name for path in one.path.iterdir()} == {*FILES, "records", RECORD}


SLOW_IMPORT = """
import sys, time
from sentence_experts.corpus import building, parsing
from sentence_experts.corpus.importing import import_corpus
parsing._PART_DOCUMENTS = 16
run = parsing.parse_part
def slow(*task):
    time.sleep(0.15)
    return run(*task)
parsing.parse_part = slow
import_corpus(sys.argv[1:2], sys.argv[2], workers=1)
"""


def test_a_killed_run_continues_and_ends_with_the_same_bytes(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = simulated / "simulated.tar.gz", tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, str(source), str(out)])
    deadline = time.monotonic() + 60
    while len(list(out.glob(".partial/*.papers.parquet"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path.name[:11] for path in out.glob(".partial/*.papers.parquet")}
    assert 3 <= len(done) < 12
    with pytest.raises(InputError, match="no finished corpus"):
        CorpusFolder.open(out)

    parsed = []
    run = parsing.parse_part

    def counted(source: int, name: str, number: int, *more: Any) -> int:
        parsed.append(part_key(source, number))
        return run(source, name, number, *more)

    monkeypatch.setattr(parsing, "parse_part", counted)
    resumed = import_corpus([source], out, workers=1)
    assert parsed
    assert not done & set(parsed), "finished parts are not parsed again"
    assert contents(out) == contents(import_corpus([source], tmp_path / "clean", workers=1).path)
    assert len(papers(resumed)) == 179


def test_workers_end_with_a_killed_parent(simulated: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SLOW_IMPORT.replace("workers=1", "workers=2").replace("import_corpus(sys", "if __name__ == '__main__':\n    import_corpus(sys"))  # fmt: skip  # noqa: E501
    # Two workers wait on their queue when the parent is killed.
    process = subprocess.Popen([sys.executable, script, simulated / "simulated.tar.gz", tmp_path / "out"])
    children: list[int] = []
    deadline = time.monotonic() + 120
    while len(children) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not listing.exists():
            pytest.skip("needs /proc")
        children = [int(child) for child in listing.read_text().split()]
    assert len(children) >= 2
    time.sleep(1.0)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(child) for child in children)


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


def test_a_second_run_does_nothing(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = simulated / "simulated.tar.gz"
    first = import_corpus([source], tmp_path / "out", workers=1)
    before = {name: os.stat(first.path / name).st_mtime_ns for name in FILES}
    import_corpus([source], tmp_path / "out", workers=2)
    assert {name: os.stat(first.path / name).st_mtime_ns for name in FILES} == before
    assert "is finished already" in capsys.readouterr().err


def test_another_corpus_is_replaced_only_with_overwrite(
    simulated: Path, folder: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    old = import_corpus([simulated / "simulated.tar.gz"], out, workers=1).fingerprint()
    articles = folder(a=jats())
    before = contents(out)
    with pytest.raises(UsageError, match=r"other sources; .*`overwrite`"):
        import_corpus([articles], out, workers=1)
    assert contents(out) == before
    new = import_corpus([articles], out, workers=1, overwrite=True)
    assert len(papers(new)) == 1
    assert new.fingerprint() != old


@pytest.mark.slow
def test_damaged_parts_of_an_interrupted_import_are_parsed_again(
    simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*arguments: object) -> None:
        raise KeyboardInterrupt

    source, out = simulated / "simulated.tar.gz", tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(building, "_write_corpus", stops)
        with pytest.raises(KeyboardInterrupt):
            import_corpus([source], out, workers=1)
    parts = sorted((out / ".partial").glob("*.parquet"))
    for number, part in enumerate(parts):
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content if number % 2 else content[:-9])
    next((out / ".partial").glob("0000.rejected.jsonl")).write_text("{")
    import_corpus([source], out, workers=1)
    assert contents(out) == contents(import_corpus([source], tmp_path / "clean", workers=1).path)


def test_source_that_changes_meanwhile_is_noticed(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    articles = folder(a=jats())
    run = parsing.parse_part
    monkeypatch.setattr(parsing, "parse_part", lambda *task: folder(a=jats(title="Another")) and run(*task))
    with pytest.raises(InputError, match="changed while it was read"):
        import_corpus([articles], tmp_path / "out", workers=1)


def test_wrong_calls_are_refused_with_reason(folder: Callable[..., Path], tmp_path: Path) -> None:
    articles = folder(a=jats())
    with pytest.raises(UsageError, match="nothing to import"):
        import_corpus([], tmp_path / "out")
    with pytest.raises(UsageError, match="greater than or equal to 1"):
        import_corpus([articles], tmp_path / "out", workers=0)
    with pytest.raises(UsageError, match=r"is inside .*, which is read"):
        import_corpus([articles], articles / "a" / "corpus")
    assert not (articles / "a").exists()
    with pytest.raises(InputError, match=r"missing.*no such file"):
        import_corpus([tmp_path / "missing"], tmp_path / "out")
    wrong = (("notes.doc", "x", "neither a folder"), ("notes.txt", "x", "do not show their format"))
    for name, text, why in (*wrong, ("none.ris", "", "empty")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=rf"{name}.*{why}"):
            import_corpus([tmp_path / name], tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("x")
    with pytest.raises(UsageError, match=r"thesis\.doc"):
        import_corpus([articles], tmp_path / "mine", workers=1)


def test_archives_inside_a_folder_are_read(simulated: Path, tmp_path: Path) -> None:
    nested = tmp_path / "all"
    nested.mkdir()
    shutil.copy(simulated / "simulated.tar.gz", nested)
    corpus = import_corpus([nested], tmp_path / "out", workers=1)
    assert [source["name"] for source in corpus.manifest["sources"]] == ["all", "all/simulated.tar.gz"]
    assert len(papers(corpus)) == 179


def test_open_explains_what_is_not_a_corpus(simulated: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a list is no corpus"):
        CorpusFolder.open([])  # type: ignore[arg-type]
    (tmp_path / "old" / NEW).mkdir(parents=True)
    corpus = import_corpus([simulated / "simulated.tar.gz"], tmp_path / "whole", workers=1)
    shutil.copy(corpus.path / RECORD, tmp_path / "old" / NEW)
    with pytest.raises(InputError, match="it is being replaced"):
        CorpusFolder.open(tmp_path / "old")
    with pytest.raises(InputError, match="holds no corpus"):
        CorpusFolder.open(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="made by something else"):
        CorpusFolder.open(tmp_path)


def test_simulated_articles_are_marked_and_reproducible(tmp_path: Path) -> None:
    a, b, c = (
        simulate_corpus(tmp_path / name, seed, articles=36) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    same = {path.name: path.read_bytes() for path in a.iterdir()}
    assert same == {path.name: path.read_bytes() for path in b.iterdir()}
    assert same != {path.name: path.read_bytes() for path in c.iterdir()}
    corpus = import_corpus([a], tmp_path / "out", workers=1)
    for paper in papers(corpus):
        assert paper["doi"].startswith(SIMULATED_DOI)
        assert paper["journal"] == "Simulated Journal"
        assert "simulated" in paper["title"].lower()
        assert "simulated" in paper["abstract"]
        assert len(paper["subjects"]) == 1
    assert corpus.manifest["counts"]["simulated"] == corpus.manifest["counts"]["papers"]
    with pytest.raises(UsageError):
        simulate_corpus(tmp_path / "d", articles=3)


@pytest.mark.parametrize(("sources", "message"), [(None, "are paths, not NoneType"), ("", "an empty path")])
def test_what_is_no_path_is_refused(sources: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        import_corpus(sources, tmp_path / "out")


def test_a_folder_with_a_colon_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads such a relative path as an address."""
    monkeypatch.chdir(tmp_path)
    corpus = import_corpus(papers=[{"id": "1", "title": "Rice"}], out="x:y")
    assert corpus.to_pandas()["title"].tolist() == ["Rice"]


@pytest.mark.slow
def test_folders_whose_names_mean_something_to_duckdb(tmp_path: Path) -> None:
    """As a pattern, `a[1]` names its neighbour `a1`; `year=2020` is a column."""
    rows = [
        {"id": f"10.1000/{word}{number}", "title": f"A study {word}", "year": 2000 + number, "subjects": word}
        for word in "bc"
        for number in range(3)
    ]
    import_corpus(papers=rows[:3], out=tmp_path / "a1" / "corpus")
    for name in ("year=2020", "doi=x", "source=1", "a[1]", "a?", "a*"):
        corpus = import_corpus(papers=rows[3:], out=tmp_path / name / "corpus")
        frame = corpus.to_pandas()
        assert frame[["paper_id", "year"]].to_numpy().tolist() == [
            [f"doi:10.1000/c{number}", 2000 + number] for number in range(3)
        ], name
        assert corpus.count_values("subjects") == {"c": 3}, name
        with open_engine(PairsConfig(), tmp_path / "pairs") as engine:
            read = engine.rows(f"SELECT paper_id, year FROM {engine.read(corpus.papers)} ORDER BY paper_id")
        assert read.to_pandas().to_numpy().tolist() == frame[["paper_id", "year"]].to_numpy().tolist(), name


def test_a_file_that_changes_while_it_is_read_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = "TY  - JOUR\nTI  - {0}\nDO  - 10.1000/{0}\nER  - \n"
    texts = {"a.ris": record, "a.csv": "id,title\n{0},{0}\n"}
    for name, kind in (("a.ris", RecordFiles), ("a.csv", UserTable)):
        file, parse = tmp_path / name, kind.parse
        file.write_text(texts[name].format("old"))

        def save(self: Any, parts: Any, first: int, file: Path = file, parse: Any = parse) -> None:
            file.write_text(texts[file.name].format("newer"))
            parse(self, parts, first)

        given: dict[str, Any] = {"papers": file} if name == "a.csv" else {"sources": file}
        with monkeypatch.context() as context:
            context.setattr(kind, "parse", save)
            with pytest.raises(InputError, match=f"{name}: changed while it was read"):
                import_corpus(**given, out=tmp_path / f"out-{name}", workers=1)
        corpus = import_corpus(**given, out=tmp_path / f"out-{name}", workers=1, overwrite=True)
        assert corpus.to_pandas()["title"].tolist() == ["newer"]


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "in" / "closed"
    inner.mkdir(parents=True)
    (tmp_path / "in" / "a.bib").write_text("@misc{a, title = {Rice}}")
    (inner / "b.bib").write_text("@misc{b, title = {Sleep}}")
    assert len(import_corpus([tmp_path / "in"], workers=1).to_pandas()) == 2
    listed = os.scandir

    def scan(path: Any = ".") -> Any:
        if Path(os.fsdecode(path)).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scan)  # root may list everything
    with pytest.raises(InputError, match=r"closed: the folder cannot be read: Permission denied"):
        import_corpus([tmp_path / "in"], workers=1)
    (inner / "c.jsonl").write_text('{"text": "rice"}')
    for source in (tmp_path / "in", tmp_path / "in" / "*" / "*.jsonl", tmp_path / "in" / "**" / "*.jsonl"):
        with pytest.raises(InputError, match="closed: the folder cannot be read"):
            encode("minilm", [source], out=tmp_path / "vectors")
    for source in (tmp_path / "in" / "open*" / "**" / "*.jsonl", tmp_path / "in" / "*.jsonl"):
        with pytest.raises(InputError, match="no such file"):
            encode("minilm", [source], out=tmp_path / "vectors")
