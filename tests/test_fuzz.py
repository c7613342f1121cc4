"""Some broken inputs of every kind: each is read, or refused in one line.

`benchmarks/fuzz.py` does the same with 20,000, of real articles.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import fuzz
import fuzz_kinds
from fuzz_mutations import CONTAINERS, XML
from helpers.small_articles import jats, ref
from helpers.small_pubmed import article_ids, deletion, heading, headings, record, record_set
from sentence_experts.errors import InputError

COUNTS = {"article": 30, "table": 16, "yaml": 20, "answer": 20, "folder": 2, "index": 2, "model": 1}
_RICH = jats(
    "10.1000/rich", title="<italic>E. coli</italic> and <tex-math>\\frac{1}{2}</tex-math>",
    ids='<article-id pub-id-type="pmid">12</article-id>',
    meta='<permissions><license xlink:href="https://creativecommons.org/licenses/by/4.0/"><p>CC</p></license>'
    '</permissions><kwd-group><kwd>cell</kwd></kwd-group><abstract><sec><title>Aim</title><p>Text <xref '
    'ref-type="bibr">1</xref>.</p></sec></abstract>',
    refs=ref(doi="10.1000/x", pmid="7", title="Cited") * 5
    + "<ref><mixed-citation>Doe J (2001) X. doi: 10.1/m. <uri>https://doi.org/10.1/u</uri></mixed-citation></ref>",
    tail="<sub-article><front-stub/><back><ref-list><ref/></ref-list></back></sub-article>",
)  # fmt: skip
_RECORDS = record_set(
    record("1", ids=article_ids(doi="10.1000/a", pmc="PMC1"), citation=headings("*Asthma", "Humans"),
           references=f"<Reference><Citation>J. 2001;1:2.</Citation>{article_ids(pubmed='3')}</Reference>"),
    record("2", citation=f"<MeshHeadingList>{heading('Lung', '*genetics')}</MeshHeadingList>"),
    deletion("3", "4"),
)  # fmt: skip
ARTICLES = [
    ("jats/rich.xml", _RICH.encode()),
    ("jats/set.xml", f"<pmc-articleset>{jats('10.1000/s') + jats('10.1000/t')}</pmc-articleset>".encode()),
    ("pubmed/set.xml", _RECORDS.encode()),
    ("other/entrez.xml", b"<eSearchResult><Count>1</Count><IdList><Id>1</Id></IdList></eSearchResult>"),
]


@pytest.fixture(autouse=True)
def _articles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_kinds, "_articles", lambda folder: ARTICLES)


@pytest.mark.parametrize("kind", COUNTS)
def test_broken_inputs_are_read_or_refused_in_one_line(kind: str) -> None:
    for number in range(COUNTS[kind]):
        outcome = fuzz.attempt(kind, 7, number)
        assert outcome.verdict != fuzz.FAILED, (kind, number, outcome)


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_whole_articles_in_whole_and_broken_containers(name: str, tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        file, content = CONTAINERS[name](Random(number), ARTICLES[number % 3][1])
        (folder / file).write_bytes(content)
        fuzz_kinds.KINDS["article"].read(folder / file)


def test_a_mutation_is_the_same_every_time(tmp_path: Path) -> None:
    assert len(XML) > 15
    for number in range(20):
        made = [fuzz_kinds.KINDS["article"].make(Random(number), tmp_path) for _ in range(2)]
        assert made[0] == made[1]


@pytest.mark.parametrize(
    ("kind", "reader"),
    [
        ("yaml", "sentence_experts.pairs.domains.DomainRules.of"),
        ("article", "sentence_experts.corpus.formats.jats._read_front"),
    ],
)
def test_a_reader_that_fails_is_noticed(kind: str, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("broken reader")

    monkeypatch.setattr(reader, fail)
    assert any("broken reader" in fuzz.attempt(kind, 7, number).message for number in range(30))


def test_errors_of_the_package_are_one_line() -> None:
    assert str(InputError("a.csv lacks x; it has: two\nlines")) == "a.csv lacks x; it has: two lines"
