"""Some hundreds of broken articles and archives: each ends in papers or in rejections with a name.

`benchmarks/fuzz_articles.py` does the same with ten thousand of real articles.
"""

from __future__ import annotations

import pytest

import fuzz_articles
from fuzz_containers import CONTAINERS
from fuzz_mutations import MUTATIONS, Input
from helpers.small_articles import jats, ref
from helpers.small_pubmed import article_ids, deletion, heading, headings, record, record_set

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
DATA = [
    ("jats/rich.xml", _RICH.encode()),
    ("jats/set.xml", f"<pmc-articleset>{jats('10.1000/s') + jats('10.1000/t')}</pmc-articleset>".encode()),
    ("pubmed/set.xml", _RECORDS.encode()),
    ("other/entrez.xml", b"<eSearchResult><Count>1</Count><IdList><Id>1</Id></IdList></eSearchResult>"),
]


@pytest.mark.parametrize("begin", range(0, 300, 50))
def test_broken_articles_are_read_or_named(begin: int) -> None:
    for number in range(begin, begin + 50):
        mutated = fuzz_articles.mutation(DATA, 7, number)
        outcome = fuzz_articles.attempt(mutated)
        assert not outcome["problems"], (number, mutated.names, mutated.container, outcome)


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_whole_articles_in_whole_and_broken_containers(name: str) -> None:
    from random import Random

    for number in range(6):
        file, content = CONTAINERS[name](Random(number), DATA[number % 3][1])
        outcome = fuzz_articles.attempt(Input("none", name, "", file, content))
        assert not outcome["problems"], (name, number, outcome)


def test_a_mutation_is_the_same_every_time() -> None:
    assert len(MUTATIONS) > 20
    for number in range(20):
        first, second = (fuzz_articles.mutation(DATA, 7, number) for _ in range(2))
        assert (first.names, first.container) == (second.names, second.container)
        # What gzip and zip write holds the time.
        assert first.content == second.content or first.container != "bare"


def test_a_reader_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("broken reader")

    good = Input("none", "bare", "", "a.xml", DATA[0][1])
    assert fuzz_articles.attempt(good)["papers"] == 1
    monkeypatch.setattr("sentence_experts.corpus.formats.jats._read_front", fail)
    (problem,) = fuzz_articles.attempt(good)["problems"]
    assert problem.startswith("error: KeyError")
