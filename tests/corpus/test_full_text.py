"""Full texts: which part of an article they are, and that they come with its paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.small_articles import jats, ref
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.importing import add_to_corpus, import_corpus
from sentence_experts.errors import UsageError

BODY = """<p>Before all sections <xref ref-type="bibr" rid="r1">[1]</xref>.</p>
<sec><title>Methods</title><p>We <italic>grew</italic> rice.</p><p>It rained.</p>
<sec><title>Plants</title><p>Of two kinds.<list><list-item><p>Tall.</p></list-item></list></p></sec>
<p>After the plants.</p>
<fig><label>1</label><caption><title>Roots.</title><p>Long ones.</p></caption></fig>
<table-wrap><table><tr><td><p>17</p></td><td>18</td></tr></table></table-wrap></sec>"""
SECTIONS = [
    (None, "Before all sections."),
    ("Methods", "We grew rice.\nIt rained."),
    ("Plants", "Of two kinds. Tall."),
    ("Methods", "After the plants.\nRoots.\nLong ones."),
]
LETTER = "<sub-article><body><p>Dear editor.</p></body></sub-article>"


def article(doi: str = "10.1000/a", body: str = BODY) -> str:
    whole = jats(doi=doi, tail=LETTER)
    return whole.replace("<body><p>Body</p></body>", f"<body>{body}</body>")


def stored(corpus: CorpusFolder) -> list[tuple[str, str | None, str]]:
    rows = pq.read_table(corpus.path / "bodies.parquet").to_pylist()
    return [(row["paper_id"], row["section"], row["text"]) for row in rows]


def test_the_body_section_by_section_without_tables_and_letters() -> None:
    data = article().encode()
    (paper,) = read_articles(data, True)
    assert list(paper.body) == SECTIONS
    (without,) = read_articles(data)
    assert without.body == ()


def test_mentions_do_not_depend_on_full_texts() -> None:
    data = article().encode()
    (with_text,), (without,) = read_articles(data, True), read_articles(data)
    assert with_text.mentions == without.mentions
    assert with_text.has_body


@pytest.mark.parametrize("workers", [1, 2])
def test_full_texts_come_in_the_order_of_papers(
    folder: Callable[..., Path], tmp_path: Path, workers: int
) -> None:
    articles = folder(a=article("10.1000/z"), b=article("10.1000/b"), c=article("10.1000/c", body=""))
    corpus = import_corpus(articles, tmp_path / "corpus", full_text=True, workers=workers)
    expected = [(f"doi:10.1000/{name}", *section) for name in "bz" for section in SECTIONS]
    assert stored(corpus) == expected
    assert corpus.bodies is not None
    assert "bodies.parquet" in corpus.manifest["tables"]
    assert import_corpus(articles, tmp_path / "corpus", full_text=True).bodies is not None
    with pytest.raises(UsageError, match="overwrite"):
        import_corpus(articles, tmp_path / "corpus", workers=workers)
    without = import_corpus(articles, tmp_path / "corpus", overwrite=True, workers=1)
    assert without.bodies is None
    assert not (without.path / "bodies.parquet").exists()


def test_of_two_records_of_a_work_the_one_with_text_gives_it(folder: Callable[..., Path]) -> None:
    rows = [{"id": "10.1000/a", "title": "From a table", "abstract": "Longer.", "year": 2001}]
    corpus = import_corpus(folder(a=article()), papers=rows, full_text=True, workers=1)
    assert len(corpus.to_pandas()) == 1
    assert [text for _, _, text in stored(corpus)] == [text for _, text in SECTIONS]


def test_of_two_records_of_a_work_the_one_with_text_gives_its_citations(folder: Callable[..., Path]) -> None:
    cites = '<p>See <xref ref-type="bibr" rid="r1">1</xref>.</p>'
    cited = ref(doi="10.1000/b").replace("<ref>", '<ref id="r1">')
    whole = jats(refs=cited, abstract=None).replace("<p>Body</p>", cites)
    fuller = jats(refs=cited, meta="<permissions><license/></permissions>").replace(
        "<body><p>Body</p></body>", ""
    )
    for first, second in ((whole, fuller), (fuller, whole)):
        corpus = import_corpus(folder(a=first, b=second), workers=1)
        assert corpus.manifest["counts"]["mentions"] == 1
        assert corpus.to_pandas()["abstract"].tolist() == ["An abstract."]


def test_a_column_of_full_texts_in_a_user_table(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"id": "1", "title": "Rice", "abstract": "", "full_text": "All  of\nit."},
        {"id": "2", "title": "Wheat", "abstract": "", "full_text": None},
    ]
    assert stored(import_corpus(papers=rows)) == [("1", None, "All of it.")]
    import_corpus(papers=rows, full_text=True)
    assert "no text is kept" not in caplog.text
    import_corpus(papers=rows[1:], full_text=True)
    assert "no text is kept, as no source holds" in caplog.text


def test_full_texts_stay_when_a_corpus_grows(folder: Callable[..., Path], tmp_path: Path) -> None:
    import_corpus(folder(b=article("10.1000/b")), tmp_path / "corpus", full_text=True, workers=1)
    rows = [{"id": "10.1000/a", "title": "Rice", "abstract": "", "full_text": "All of it."}]
    grown = add_to_corpus(tmp_path / "corpus", papers=rows, workers=1)
    assert stored(grown) == [
        ("doi:10.1000/a", None, "All of it."),
        *(("doi:10.1000/b", *section) for section in SECTIONS),
    ]
    grown = add_to_corpus(tmp_path / "corpus", folder(c=article("10.1000/c")), workers=1)
    assert [text for name, _, text in stored(grown) if name == "doi:10.1000/c"] == [
        each for _, each in SECTIONS
    ]
