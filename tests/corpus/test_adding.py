"""A corpus grows: more sources, merged by identifier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.small_articles import jats, links, papers, ref
from sentence_experts.corpus import building
from sentence_experts.corpus.corpus_folder import DOMAINS, DOMAINS_SCHEMA, MANIFEST, CorpusFolder
from sentence_experts.corpus.importing import add_to_corpus, import_corpus
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import record, write_parquet

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
    kinds = [source["kind"] for source in grown.manifest["sources"]]
    assert kinds == ["corpus", "records of ris"]
    assert not (tmp_path / "corpus" / ".new").exists()


def test_what_a_corpus_has_is_not_added_again(
    tmp_path: Path, article: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    corpus = import_corpus([article], tmp_path / "corpus", workers=1)
    more = ris(tmp_path, "one.ris", "b")
    add_to_corpus(corpus, [more], workers=1)
    assert "1 new papers, 2 in all" in caplog.text
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

    for module, name in ((building, "resolving"), (building, "write_json"), (record, "sync")):
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


def test_a_fetched_corpus_does_not_lose_its_domains_silently(tmp_path: Path, article: Path) -> None:
    fetched = import_corpus([article], tmp_path / "fetched", workers=1)
    manifest = json.loads((fetched.path / MANIFEST).read_text())
    manifest["tables"][DOMAINS] = {}
    (fetched.path / MANIFEST).write_text(json.dumps(manifest))
    write_parquet(fetched.path / DOMAINS, DOMAINS_SCHEMA.empty_table())
    with pytest.raises(UsageError, match="fetched by queries"):
        add_to_corpus(fetched.path, [ris(tmp_path, "one.ris", "b")], workers=1)
    assert (fetched.path / DOMAINS).is_file()
    assert len(papers(import_corpus([fetched.path, tmp_path / "one.ris"], workers=1))) == 2
