from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.small_articles import jats, ref, rejected
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Citation, Paper, RecordError


def one(document: str | bytes) -> Paper:
    data = document if isinstance(document, bytes) else document.encode()
    (paper,) = read_articles(data)
    assert isinstance(paper, Paper), paper
    return paper


ABSTRACTS = """<abstract abstract-type="executive-summary"><title>eLife digest</title><p>Digest.
</p></abstract>
<abstract abstract-type="graphical"><p>Picture.</p></abstract><abstract abstract-type="teaser">
<p>Buy.</p></abstract>
<abstract><title>Author Summary</title><p>Simple.</p></abstract>
<trans-abstract xml:lang="fr"><p>Français.</p></trans-abstract>"""


def test_the_main_abstract_with_its_sections_labelled() -> None:
    main = """<abstract><title>Abstract</title><sec><title>Background:</title><p>One
<italic>E. coli</italic>.</p></sec>
    <sec><title>Results</title><p>Two<xref ref-type="bibr">1</xref>.</p><p>Three [
<xref ref-type="bibr">2</xref>].</p>
    </sec><p><bold>DOI:</bold> <ext-link>http://dx.doi.org/10.7554/eLife.1.001</ext-link></p></abstract>"""
    paper = one(jats(abstract=None, meta=ABSTRACTS + main))
    assert paper.abstract == "Background: One E. coli. Results: Two. Three."


def test_no_main_abstract_is_no_abstract() -> None:
    assert one(jats(abstract=None, meta=ABSTRACTS)).abstract is None
    assert one(jats(abstract=" ")).abstract is None


def test_the_abstract_in_the_articles_own_language() -> None:
    both = '<abstract xml:lang="es"><p>Hola.</p></abstract><abstract xml:lang="en"><p>Hello.</p></abstract>'
    assert one(jats(abstract=None, meta=both)).abstract == "Hello."


FORMULA = r"""<inline-formula><alternatives>
<tex-math>\documentclass{m}\usepackage{a}\begin{document}$$\alpha^{2}$$
\end{document}</tex-math><mml:math><mml:mfrac><mml:mi>α</mml:mi><mml:mn>2</mml:mn></mml:mfrac></mml:math>
<inline-graphic xlink:href="x.gif"/></alternatives></inline-formula>"""


def test_a_power_of_a_number_is_no_longer_number() -> None:
    power = (
        "<mml:msup><mml:mn>10</mml:mn><mml:mrow><mml:mo>−</mml:mo><mml:mn>6</mml:mn></mml:mrow></mml:msup>"
    )
    cited = "2012<sup><xref ref-type='bibr'>3</xref></sup>"
    marked = f"10<sup>6</sup> CD4<sup>+</sup> cells of {cited}, Ca<sup>2+</sup>"
    text = f"{marked} at <mml:math>{power}</mml:math> and <tex-math>10^{{-6}} x^2</tex-math>"
    assert one(jats(abstract=text)).abstract == "10^6 CD4+ cells of 2012, Ca2+ at 10^−6 and 10^-6 x2"


def test_accents_of_formulas_stay() -> None:
    tex = r"<tex-math>$p\bar{p} \to \hat{H}$</tex-math>"
    over = "<mml:mover><mml:mi>p</mml:mi><mml:mo>¯</mml:mo></mml:mover>"
    title = f"In {tex} and <mml:math><mml:mi>p</mml:mi>{over}</mml:math>"
    assert one(jats(title=title)).title == "In pp̄ →Ĥ and pp̄"


def test_math_is_read_once_and_without_a_preamble() -> None:
    assert one(jats(abstract=f"Take {FORMULA} now")).abstract == "Take α/2 now"
    tex = r"<tex-math>\documentclass{m}\begin{document}$\alpha \leq \frac{1}{2}$\end{document}</tex-math>"
    assert one(jats(abstract=f"Take <inline-formula>{tex}</inline-formula>")).abstract == "Take α≤1/2"


def test_titles_lose_note_marks_and_white_space() -> None:
    title = (
        'The <italic>lac</italic>\n  operon<xref ref-type="fn" rid="f1">*</xref><fn id="f1"><p>Note</p></fn>'
    )
    assert one(jats(title=title)).title == "The lac operon"


def test_internal_entities_become_text() -> None:
    assert one('<!DOCTYPE article [<!ENTITY me "Émile">]>' + jats(title="By &me;")).title == "By Émile"


def test_the_earliest_publication_year() -> None:
    dates = (
        '<pub-date pub-type="ppub"><year>2009</year></pub-date><pub-date pub-type="epub"><year>2008</year>'
    )
    dates += '</pub-date><pub-date pub-type="epub"/><history><date><year>2001</year></date></history>'
    assert one(jats(meta=dates)).year == 2008


def test_subjects_leave_out_display_channels_and_kinds_of_article() -> None:
    channel = '<subj-group subj-group-type="display-channel"><subject>Research article</subject></subj-group>'
    heading = '<subj-group subj-group-type="heading"><subject>{}</subject></subj-group>'
    groups = channel + heading.format("Research Article") + heading.format("Neuroscience") * 2
    assert one(jats(meta=f"<article-categories>{groups}</article-categories>")).subjects == ("Neuroscience",)
    assert one(jats(meta=f"<article-categories>{channel}</article-categories>")).subjects == (
        "Research article",
    )


def test_keywords_and_mesh_apart() -> None:
    meta = (
        '<kwd-group kwd-group-type="MeSH"><kwd>Lung</kwd></kwd-group><kwd-group><kwd>COPD</kwd></kwd-group>'
    )
    paper = one(jats(meta=meta))
    assert (paper.mesh, paper.keywords) == (("Lung",), ("COPD",))


def test_organisms_are_keywords_with_a_column_of_their_own(tmp_path: Path) -> None:
    meta = (
        '<kwd-group kwd-group-type="research-organism"><title>Research organism</title><kwd>Mouse</kwd>'
        "<kwd>Human</kwd></kwd-group><kwd-group><kwd>memory</kwd></kwd-group>"
    )
    paper = one(jats(meta=meta))
    assert (paper.organisms, paper.keywords) == (("Mouse", "Human"), ("Mouse", "Human", "memory"))
    rows = [{"id": "1", "title": "Rice", "abstract": "", "organisms": "Rice; Mouse"}]
    corpus = import_corpus(papers=rows, out=tmp_path / "corpus")
    (row,) = pq.read_table(corpus.papers).to_pylist()
    assert (row["organisms"], row["keywords"]) == (["Rice", "Mouse"], [])


@pytest.mark.parametrize(
    ("permissions", "name"),
    [
        ('<license xlink:href="https://creativecommons.org/licenses/by-nc-nd/4.0/legalcode"/>', "CC-BY-NC-ND-4.0"),  # noqa: E501
        ('<license><license-p>See <ext-link xlink:href="http://creativecommons.org/publicdomain/zero/1.0/">data</ext-link>'
         ' <ext-link xlink:href="http://creativecommons.org/licenses/by/4.0/">L</ext-link></license-p></license>', "CC-BY-4.0"),  # noqa: E501
        ('<license xlink:href="http://creativecommons.org/publicdomain/zero/1.0/"/>', "CC0-1.0"),
        ("<license><license-p>Creative Commons Attribution Non-Commercial License 3.0</license-p></license>", "CC-BY-NC-3.0"),  # noqa: E501
        ('<license xlink:href="http://example.org/terms"/>', "http://example.org/terms"),
        ("<copyright-year>2010</copyright-year>", None),
    ],
)  # fmt: skip
def test_licences(permissions: str, name: str | None) -> None:
    assert one(jats(meta=f"<permissions>{permissions}</permissions>")).licence == name


def test_references_of_every_kind_are_read() -> None:
    two = "<ref><label>1</label><mixed-citation>A. <article-title>One</article-title> doi:10.1/a</mixed-citation>"  # noqa: E501
    two += "<mixed-citation>B. <pub-id pub-id-type='pmid'>7</pub-id></mixed-citation></ref>"
    alternatives = "<ref><citation-alternatives><element-citation><article-title>Three</article-title>"
    alternatives += "</element-citation><mixed-citation>Three. <pub-id pub-id-type='doi'>10.1000/C</pub-id>"
    alternatives += "</mixed-citation></citation-alternatives></ref>"
    note = "<ref><note><p>No work at all.</p></note></ref>"
    old = "<ref><citation><year>1999a</year><ext-link xlink:href='https://doi.org/10.1000/d'>x</ext-link></citation></ref>"
    reply = f"<sub-article><back><ref-list>{ref(doi='10.1000/z')}</ref-list></back></sub-article>"
    paper = one(jats(refs=two + alternatives + note + old, tail=reply))
    assert paper.citations == (
        Citation(title="One"),
        Citation(pmid="7"),
        Citation(title="Three", doi="10.1000/c"),
        Citation(doi="10.1000/d", year=1999),
    )


def test_retraction_notices_name_what_they_withdraw() -> None:
    link = '<related-article related-article-type="retracted-article" ext-link-type="doi" xlink:href="10.1000/BAD"/>'  # noqa: E501
    notice = one(jats(kind="retraction", meta=link))
    assert notice.retracts == (Citation(doi="10.1000/bad"),)
    assert not notice.retracted


def test_several_articles_in_one_file_and_in_a_namespace() -> None:
    both = (
        f"<pmc-articleset>{jats('10.1000/a', refs=ref(doi='10.1000/r'))}{jats('10.1000/b')}</pmc-articleset>"
    )
    found = [
        (paper.doi, len(paper.citations))
        for paper in read_articles(both.encode())
        if isinstance(paper, Paper)
    ]
    assert found == [("10.1000/a", 1), ("10.1000/b", 0)]
    spaced = jats(refs=ref(doi="10.1000/r")).replace(
        "<article ", '<article xmlns="http://jats.nlm.nih.gov" ', 1
    )
    paper = one(f"<OAI-PMH xmlns='http://www.openarchives.org/OAI/2.0/'><record>{spaced}</record></OAI-PMH>")
    assert paper.title == "A title"
    assert len(paper.citations) == 1


def test_article_without_ids_is_identified_by_content() -> None:
    first, again, other = one(jats(None)), one(jats(None)), one(jats(None, title="Other"))
    assert first.other == again.other != other.other


def test_unreadable_doi_of_a_paper_is_named(folder: Callable[..., Path], tmp_path: Path) -> None:
    damaged = jats().replace("10.1000/a<", "S0378-1119(94)<")
    assert damaged != jats()
    corpus = import_corpus([folder(a=damaged, b=jats(doi="10.1000/b"))], tmp_path / "out", workers=1)
    assert corpus.manifest["counts"]["papers"] == 2
    (line,) = rejected(corpus)
    assert (line["member"], line["detail"]) == ("a.xml", "of the paper: S0378-1119(94)")
    assert line["reason"] == "unreadable-doi"


def test_articles_before_an_error_are_kept() -> None:
    cut = f"<set>{jats()}<article><front>"
    *kept, error = read_articles(cut.encode())
    assert [paper.doi for paper in kept if isinstance(paper, Paper)] == ["10.1000/a"]
    assert isinstance(error, RecordError)


def test_unreadable_dois_of_references_are_counted_and_named(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    refs = ref(doi="10.1000/good1") + ref(doi="S0378-1119(94)") + ref(doi="10.1021/ bi992105o", pmid="7")
    linked = (
        '<ref><mixed-citation><pub-id pub-id-type="doi">none</pub-id>, doi: 10.1000/m1</mixed-citation></ref>'
    )
    corpus = import_corpus([folder(a=jats(refs=refs + linked))], tmp_path / "out", workers=1)
    assert corpus.manifest["counts"]["references_with_doi"] == 3
    assert corpus.manifest["counts"]["rejected"] == {"unreadable-doi": 1}
    (line,) = rejected(corpus)
    assert (line["member"], line["detail"]) == ("a.xml", "of a reference: S0378-1119(94)")


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("Creative Commons Attribution\u2010NonCommercial\u2010NoDerivs License", "CC-BY-NC-ND"),
        (
            "Creative Commons Attribution\u2011NonCommercial 4.0",
            "CC-BY-NC-4.0",
        ),
        ("Creative Commons Attribution License (CC BY-NC-ND 4.0)", "CC-BY-NC-ND-4.0"),
        ("Creative Commons Attribution, NonCommercial License", "CC-BY-NC"),
        ("Creative Commons Attribution, Non-Commercial, No-Derivatives 4.0", "CC-BY-NC-ND-4.0"),
        ("Creative Commons Attribution, Non-Commercial, Share Alike 3.0", "CC-BY-NC-SA-3.0"),
        ("Creative Commons Attribution, no other rights are given", "CC-BY"),
        ("CC\u2010BY\u2010NC 4.0", "CC-BY-NC-4.0"),
        ("under the CC BY 4.0 licence. The CC0 waiver applies to the data.", "CC-BY-4.0"),
        ("Creative Commons Attribution 4.0 License, with attribution to the authors", "CC-BY-4.0"),
        ("The CC0 waiver applies.", "CC0-1.0"),
        ("CC-BY, no derivative works were made of the data", "CC-BY"),
        ("All rights reserved.", None),
    ],
)
def test_licences_in_words(text: str, licence: str | None) -> None:
    assert licence_from_text(text) == licence
