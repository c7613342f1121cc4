"""PubMed's baseline and updates: fetched whole or not at all, and filtered in their last state."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.small_pubmed import deletion, headings, packed_file, record
from sentence_experts.corpus.formats.mesh import Descriptor, MeshTree
from sentence_experts.corpus.sources.http import Client
from sentence_experts.corpus.sources.pubmed_files import download, select_papers
from sentence_experts.errors import InputError, UsageError

TREE = MeshTree([
    Descriptor("D002318", "Cardiovascular Diseases", ("C14",)),
    Descriptor("D006331", "Heart Diseases", ("C14.280",)),
    Descriptor("D001249", "Asthma", ("C08.127.108", "C20.543.480.680.095")),
    Descriptor("D000001", "Calcimycin", ()),
])  # fmt: skip


def checked(path: Path) -> Path:
    digest = hashlib.md5(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.md5").write_text(f"MD5({path.name})= {digest}\n")
    return path


class _Server:
    """Serves a folder with an index page, as NLM does, and counts what is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.cut: dict[str, int] = {}
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                outer.asked.append(name)
                if outer.cut.get(name, 0) > 0:
                    outer.cut[name] -= 1
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write((outer.folder / name).read_bytes()[:-5])
                else:
                    super().do_GET()

            def log_message(self, *_: object) -> None: ...

        handler = functools.partial(Handler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def files_asked(self) -> list[str]:
        return [name for name in self.asked if name.endswith(".gz")]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    remote = tmp_path / "remote"
    for number in (1, 2, 3):
        checked(packed_file(remote / f"pubmed26n000{number}.xml.gz", record(str(number))))
    (remote / "README.txt").write_text("no data")
    (remote / "evil").mkdir()
    server = _Server(remote)
    yield server
    server.close()


@pytest.fixture
def client(server: _Server) -> Iterator[Client]:
    host = server.url.split("/")[2]
    with Client("test@example.org", per_second={host: 1000.0}, first_wait=0.01, attempts=2) as client:
        yield client


def test_files_are_fetched_once(server: _Server, client: Client, tmp_path: Path) -> None:
    local = tmp_path / "local"
    files = download(client, server.url, local)
    names = [f"pubmed26n000{number}.xml.gz" for number in (1, 2, 3)]
    assert files == [local / name for name in names]
    assert all((local / name).read_bytes() == (server.folder / name).read_bytes() for name in names)
    assert {path.suffix for path in local.iterdir()} == {".gz", ".md5"}
    server.asked.clear()
    assert download(client, server.url, local) == files
    assert server.files_asked() == []
    # A file that was cut short, or is gone, is fetched again, and no other.
    (local / names[1]).write_bytes(b"cut")
    (local / names[2]).unlink()
    download(client, server.url, local)
    assert server.files_asked() == names[1:]


def test_broken_download_is_retried(server: _Server, client: Client, tmp_path: Path) -> None:
    name = "pubmed26n0002.xml.gz"
    server.cut[name] = 1
    download(client, server.url, tmp_path / "once")
    assert server.files_asked().count(name) == 2
    server.asked.clear()
    server.cut[name] = 99
    with pytest.raises(InputError, match=r"n0002.*MD5"):
        download(client, server.url, tmp_path / "always")
    assert server.files_asked().count(name) == 2
    assert not (tmp_path / "always" / name).exists()
    # What came before it is kept, and the next run goes on.
    server.cut.clear()
    server.asked.clear()
    download(client, server.url, tmp_path / "always")
    assert server.files_asked() == [name, "pubmed26n0003.xml.gz"]


def test_links_lead_only_to_their_works(client: Client, server: _Server, tmp_path: Path) -> None:
    page = '<a href="../pubmed26n0001.xml.gz">x</a><a href="pubmed26n0001.xml.gz.md5"><a href="z.xml.gz">'
    (server.folder / "index.html").write_text(page)
    assert [path.name for path in download(client, server.url, tmp_path / "local")] == [
        "pubmed26n0001.xml.gz"
    ]
    (server.folder / "index.html").write_text("<p>moved</p>")
    with pytest.raises(InputError, match="lists no PubMed files"):
        download(client, server.url, tmp_path / "local")


# ---- selecting -----------------------------------------------------------------------------------


def test_headings_with_their_subtrees_and_years(tmp_path: Path) -> None:
    old = "<Journal><JournalIssue><PubDate><Year>1999</Year></PubDate></JournalIssue></Journal>"
    packed_file(
        tmp_path / "pubmed26n0001.xml.gz",
        record("1", citation=headings("Humans", "*Heart Diseases")),
        record("2", citation=headings("Asthma")),
        record("3", citation=headings("Cardiovascular Diseases"), issue=old),
        record("4", citation=headings("Calcimycin")),
        record("5", issue="<Journal/>"),
    )

    def pmids(
        *mesh: str, years: tuple[int, int] | None = None, tree: MeshTree | None = TREE
    ) -> set[str | None]:
        return {paper.pmid for paper in select_papers(tmp_path, mesh, years, tree)}

    assert pmids() == {"1", "2", "3", "4", "5"}
    assert pmids("Cardiovascular Diseases") == pmids("D002318") == pmids("C14") == {"1", "3"}
    assert pmids("heart diseases") == {"1"}
    assert pmids("Cardiovascular Diseases", "Asthma", years=(2010, 2010)) == {"1", "2"}
    assert pmids(years=(1999, 2009)) == {"3"}
    assert pmids("Calcimycin") == {"4"}
    assert pmids("Cardiovascular Diseases", tree=None) == {"3"}
    for mesh, tree in (("Cardiac Diseases", TREE), ("C14", None)):
        with pytest.raises(UsageError, match=mesh):
            select_papers(tmp_path, [mesh], None, tree)
    with pytest.raises(UsageError, match="years"):
        select_papers(tmp_path, (), (2010, 2009))


def test_later_files_replace_and_delete(tmp_path: Path) -> None:
    heart, asthma = headings("Heart Diseases"), headings("Asthma")
    packed_file(tmp_path / "baseline" / "pubmed26n0001.xml.gz", *(
        record(str(number), title=f"Old {number}.", citation=heart) for number in range(1, 7)
    ), record("7", citation=heart), record("7", version=2, title="v2", citation=heart))  # fmt: skip
    packed_file(tmp_path / "updates" / "pubmed26n0002.xml.gz", record("1", title="New 1.", citation=heart),
                record("2", citation=asthma), record("8", citation=heart), deletion("3", "4"))  # fmt: skip
    packed_file(tmp_path / "updates" / "pubmed26n0003.xml.gz", record("4", title="Back 4.", citation=heart),
                record("5", title="First.", citation=heart), record("5", title="Last.", citation=heart),
                record("6", citation=heart), deletion("6", "7", "8"))  # fmt: skip
    found = {paper.pmid: paper.title for paper in select_papers(tmp_path, ["C14"], None, TREE)}
    assert found == {"1": "New 1", "4": "Back 4", "5": "Last", "7": "v2"}
    assert [p.pmid for p in select_papers(tmp_path, ["Asthma"], None, TREE)] == ["2"]


def test_broken_and_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="holds no PubMed files"):
        select_papers(tmp_path)
    first = checked(packed_file(tmp_path / "pubmed26n0001.xml.gz", record("1")))
    packed_file(tmp_path / "pubmed26n0004.xml.gz", record("4"))
    assert len(list(select_papers(tmp_path))) == 2
    assert "lacks 2 of" in capsys.readouterr().err
    whole = first.read_bytes()
    first.write_bytes(whole[:-9])
    with pytest.raises(InputError, match="MD5"):
        list(select_papers(tmp_path))
    checked(first)
    with pytest.raises(InputError, match=r"n0001.*fetch it again"):
        list(select_papers(tmp_path))
