"""Authors, places, kinds and keywords of papers, from the formats that state them; nothing that is unsafe."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from helpers.read_sources import ReadSources, read_sources
from helpers.small_articles import papers, rejected
from sentence_experts.cli import console
from sentence_experts.corpus.formats.authors import clean_authors, invert_initials, invert_name, invert_shown
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Paper, is_retracted, kind_of
from sentence_experts.errors import InputError

FILES = {
    "x.ris": "TY  - JOUR\nAU  - van den Brink, G\nAU  - King ML Jr\nAU  - WHO Study Group\nTI  - {title}\n"
    "VL  - 12\nIS  - 3\nSP  - 1\nEP  - 9\nER  - \n",
    "x.bib": r"@article{a, author = {van den Brink, G and King, Jr, ML and {WHO Study Group}}, "
    "title = {{title}}, volume = 12, number = {3}, pages = {1--9}}",
    "x.nbib": "PMID- 1\nFAU - van den Brink, G\nFAU - King, ML Jr\nCN  - WHO Study Group\nTI  - {title}\n"
    "VI  - 12\nIP  - 3\nPG  - 1-9\n",
    "x.csv": "PMID,Title,Authors,Citation,Journal/Book\n"
    '1,{title},"van den Brink G, King ML Jr, WHO Study Group.","J X. 2001 Mar;12(3):1-9. doi: 10.1/a.",J X\n',
    "zotero.csv": "Key,Item Type,Title,Abstract Note,Author,Volume,Issue,Pages\n"
    'A,journalArticle,{title},,"van den Brink, G; King, ML, Jr; WHO Study Group",12,3,1–9\n',
    "article.xml": "<article article-type='research-article'><front><article-meta>"
    "<article-id pub-id-type='pmid'>1</article-id><title-group><article-title>{title}</article-title>"
    "</title-group><contrib-group><contrib contrib-type='author'><name><surname>van den Brink</surname>"
    "<given-names>G</given-names></name></contrib><contrib><name><surname>King</surname>"
    "<given-names>ML</given-names><suffix>Jr</suffix></name></contrib><contrib contrib-type='author'><collab>"
    "WHO Study Group<contrib-group><contrib><name><surname>Member</surname></name></contrib></contrib-group>"
    "</collab></contrib><contrib contrib-type='editor'><name><surname>Editor</surname></name></contrib>"
    "</contrib-group><volume>12</volume><issue>3</issue><fpage>1</fpage><lpage>9</lpage></article-meta>"
    "</front></article>",
    "pubmed.xml": "<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article><Journal>"
    "<JournalIssue><Volume>12</Volume><Issue>3</Issue></JournalIssue></Journal><ArticleTitle>{title}"
    "</ArticleTitle><Pagination><StartPage>1</StartPage><EndPage>9</EndPage></Pagination><AuthorList>"
    "<Author><LastName>van den Brink</LastName><Initials>G</Initials></Author><Author><LastName>King"
    "</LastName><Initials>ML</Initials><Suffix>Jr</Suffix></Author><Author><CollectiveName>WHO Study Group"
    "</CollectiveName></Author></AuthorList></Article></MedlineCitation></PubmedArticle></PubmedArticleSet>",
}


def imported(folder: Path, name: str, title: str) -> ReadSources:
    path = folder / name
    path.write_text(FILES[name].replace("{title}", title))
    return read_sources([path], workers=1)


@pytest.mark.parametrize("name", FILES)
def test_each_format_has_authors_places_and_kinds(tmp_path: Path, name: str) -> None:
    [paper] = papers(imported(tmp_path, name, "Correction: Rice in drought"))
    assert paper["authors"] == ["van den Brink, G", "King, ML, Jr", "WHO Study Group"]
    assert [paper[column] for column in ("volume", "issue", "pages")] == ["12", "3", "1-9"]
    assert paper["kind"] == "correction"
    assert [each["kind"] for each in papers(imported(tmp_path, name, "Rice in drought"))] == ["article"]


@pytest.mark.parametrize(
    ("file", "path"),
    [
        (
            "Full Text PDF:/home/a/Zotero/storage/AB/x y.pdf:application/pdf",
            "/home/a/Zotero/storage/AB/x y.pdf",
        ),
        (r"Snapshot:C\:\\a\\s.html:text/html;PDF:C\:\\a\\b\;c.PDF:application/pdf", r"C:\a\b;c.PDF"),
        (r":http\://arxiv.org/pdf/1.pdf:PDF;:JabRef\\x.pdf:PDF", r"JabRef\x.pdf"),
        ("files/3/x_1.pdf", "files/3/x_1.pdf"),
        (r"C:\Users\x.pdf", r"C:\Users\x.pdf"),
        ("https://example.org/x.pdf", None),
        ("notes.txt", None),
    ],
)
def test_keys_and_paths_of_reference_managers_are_kept(tmp_path: Path, file: str, path: str | None) -> None:
    (tmp_path / "x.bib").write_text(f"@article{{ito:2012, title={{T}}, file={{{file}}}}}")
    [paper] = papers(read_sources(tmp_path / "x.bib", workers=1))
    assert (paper["entry"], paper["file"]) == ("@ito:2012", path)
    header = "Key,Item Type,Title,Abstract Note,File Attachments"
    (tmp_path / "x.csv").write_text(f'{header}\nAB12CD34,book,T,,"/s.html; /a/b.pdf"\n')
    [paper] = papers(read_sources(tmp_path / "x.csv", workers=1))
    assert (paper["entry"], paper["file"]) == ("AB12CD34", "/a/b.pdf")


def test_names_of_bibtex(tmp_path: Path) -> None:
    names = r"Ludwig van Beethoven and {\'E}mile~Zola and de la Cruz, Juana AND {Barnes and Noble} and Plato"
    (tmp_path / "x.bib").write_text(f"@article{{a, title={{T}}, author = {{{names} and others}}}}")
    [paper] = papers(read_sources(tmp_path / "x.bib", workers=1))
    assert paper["authors"] == [
        "van Beethoven, Ludwig", "Zola, Émile", "de la Cruz, Juana", "Barnes and Noble", "Plato", "et al.",
    ]  # fmt: skip


def test_names_whose_order_is_not_known_stay() -> None:
    assert [invert_name(name.split()) for name in ("王 小明", "Max Planck Institute", "Jane Q. Doe Jr.")] == [
        "王 小明", "Max Planck Institute", "Doe, Jane Q., Jr.",
    ]  # fmt: skip
    shown = ("Smith JA", "van der Berg J", "Doe Jane A.", "Jane A. Doe", "John Smith II", "Jane KING", "X")
    assert list(map(invert_shown, shown)) == [
        "Smith JA", "van der Berg J", "Doe Jane A.", "Doe, Jane A.", "Smith, John, II", "KING, Jane", "X",
    ]  # fmt: skip
    assert list(map(invert_initials, ("R. van Dam", "Liu R.", "Gerd Gigerenzer", "Doe, J"))) == [
        "van Dam, R.", "Liu, R.", "Gerd Gigerenzer", "Doe, J",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["[No author name available]", "author name available], [No", "N/A"])
def test_a_note_that_there_are_no_authors_is_none(name: str) -> None:
    assert clean_authors([name, "Doe, J"]) == ("Doe, J",)


@pytest.mark.parametrize(
    ("title", "article_type", "kind"),
    [
        ("Rice", "correction", "correction"), ("Rice", "Published Erratum", "correction"),
        ("Author Correction: Rice", None, "correction"), ("Sleep: Erratum", None, "correction"),
        ("Correction of scoliosis", "research-article", "article"),
        ("Correction for multiple tests", None, "article"), ("Retraction of the eyelid", None, "article"),
        ("Correction for attenuation after Doe et al. reconsidered", None, "article"),
        ("Correction for population stratification in Doe et al.", None, "article"),
        ("Correction for van der Berg et al., Rice", None, "correction"),
        ("Correction for García-López et al., Rice", None, "correction"),
        ("CORRECTION FOR MULTICOMPONENT CHARACTERIZATION SPECTROPHOTOMETRIC DETERMINATION", None, "article"),
        ("Correction for d'Errico et al., Rice", None, "correction"),
        ("Correction for van 't Veer and i5K Consortium et al., Rice", None, "correction"),
        ("Retraction for Doe et al., Rice", None, "retraction"),
        ("Correction for Doe et al., Rice", None, "correction"),
        ("Author Correction for Doe et al.", None, "correction"),
        ("Correction to Supporting Information for Doe et al., Rice", None, "correction"),
        ('Retraction of Doe et al., "Rice"', None, "retraction"),
        ("Withdrawal notice to: Rice", None, "retraction"),
        ("Notice of Duplicate Publication: Rice", None, "retraction"),
        ("Retraction: Rice", "research-article", "retraction"), ("RETRACTED: Rice", None, "article"),
        ("Statement of Retraction: Rice", None, "retraction"), ("Retraction.", None, "retraction"),
        ("Statement of withdrawal symptoms", None, "article"),
        ("Notice of removal to court", None, "article"), ("Notice of Removal: Rice", None, "retraction"),
        ("Retraction of: Rice", None, "retraction"),
        ("Rice", "expression_of_concern", "expression-of-concern"),
        ("Rice", "Editorial Material", "editorial"),
        ("Rice", "article-commentary", "commentary"), ("Rice", "Systematic Review", "review"),
    ],
)  # fmt: skip
def test_kinds(title: str, article_type: str | None, kind: str) -> None:
    assert kind_of(Paper(title=title, article_type=article_type)) == kind


@pytest.mark.parametrize(
    ("title", "retracted"),
    [
        ("RETRACTED: Rice", True), ("Retracted Article: Rice", True), ("[Retracted] Rice", True),
        ("<b>RETRACTED:</b> Rice", True), ("<b>RETRACTED</b>: Rice", True),
        ("WITHDRAWN: Rice", True), ("RETRACTED - Rice", True), ("RETRACTED CHAPTER – Rice", True),
        ("Rice (Retracted article. See vol. 3, pg. 7, 2012)", True), ("Rice (RETRACTED)", True),
        ("Rice [Retracted Article]", True), ("REMOVED: Rice", True), ("Removed teeth: a survey", False),
        ("Removed: stories of families", False), ("Needles [retracted versus extended]", False),
        ("Rice (Retracted by the authors)", True), ("Rice (Retracted 2012)", True),
        ("Rice (Retracted on 3 May 2012)", True), ("Rice (retracted: see vol. 3)", True),
        ("Rice [Retracted article. See vol. 3, 2012]", True), ("Rice (Retracted Publication)", True),
        ("Rice (Retracted October 3, 2012)", True), ("Rice (Retracted by the editors)", True),
        ("Vowels of Arabic (Retracted Tongue Root)", False), ("Impact (Retracted Papers)", False),
        ("Rice (Retracted Conference Paper)", True), ("Rice (Retracted on the 12th of May, 2010)", True),
        ("Rice (Retracted article. See vol. 3 (2), pg. 7, 2012)", True), ("[Rice] (Retracted.)", True),
        ("Rice (retracted article see vol. 3, p. 7)", True),
        ("Citations of articles (retracted due to fraud)", False), ("Bone (retracted paper types)", False),
        ("Rice (Retracted  Article. See vol 3 [2012])", True),
        ("Lungs, foot position (retracted in flexion)", False), ("Gear (retracted, extended)", False),
        ("Citations (Retracted vs Non-Retracted Papers)", False), ("Feet (retracted for climbing)", False),
        ("Retracted tongues in frogs", False), ("Withdrawn-avoidant children", False),
        ("Retraction: Rice", False), ("Rice (a retracted word)", False), (None, False),
    ],
)  # fmt: skip
def test_titles_of_retracted_papers(title: str | None, retracted: bool) -> None:
    assert is_retracted(Paper(title=title)) is retracted


def test_a_type_marks_retracted_papers() -> None:
    for name, retracted in (("Retracted Publication", True), ("Retraction of Publication", False)):
        assert is_retracted(Paper(title="Rice", article_type=f"Journal Article; {name}")) is retracted


def test_titles_mark_retracted_papers_in_every_format(tmp_path: Path) -> None:
    ris = "TY  - JOUR\nTI  - RETRACTED: Roots of rice\nDO  - 10.1000/a\nER  - \n"
    (tmp_path / "library.ris").write_text(ris)
    made = import_corpus([tmp_path / "library.ris"], out=tmp_path / "ris")
    assert [paper["retracted"] for paper in papers(made)] == [True]
    rows = [{"doi": "10.1000/b", "title": "[Retracted] Rice"}, {"doi": "10.1000/c", "title": "Rice"}]
    made = import_corpus(papers=rows, out=tmp_path / "rows")
    assert {paper["doi"]: paper["retracted"] for paper in papers(made)} == {
        "10.1000/b": True, "10.1000/c": False,
    }  # fmt: skip


def test_a_kind_that_one_of_several_records_states_counts(tmp_path: Path) -> None:
    rows = [{"doi": "10.1000/a", "title": "Rice", "article_type": kind} for kind in ("other", "editorial")]
    made = import_corpus(papers=rows, out=tmp_path / "corpus")
    assert [paper["kind"] for paper in papers(made)] == ["editorial"]
    assert made.manifest["counts"]["notices"] == 1
    again = import_corpus([tmp_path / "corpus"])
    assert [paper["kind"] for paper in papers(again)] == ["editorial"]


def test_words_for_nothing_are_no_keywords_or_subjects() -> None:
    words = ["None", "rice", "other", "N/A", "null", " ", "roots; rice"]
    made = import_corpus(papers=[{"id": "1", "title": "Rice", "keywords": words, "subjects": words}])
    assert made.count_values("keywords") == made.count_values("subjects") == {"rice": 1, "roots": 1}


UNSAFE = "\x00\x1b\x07\x9b\u202e\u2066\u200f"


def test_characters_that_could_change_a_terminal_end_at_the_import() -> None:
    text = f"Rice{UNSAFE} is"
    row = {"id": f"a{UNSAFE}", "title": text, "abstract": text, "journal": text, "authors": [text],
           "keywords": [text], "subjects": [text], "full_text": text, "article_type": text}  # fmt: skip
    cited = {"citing": f"a{UNSAFE}", "cited": f"a{UNSAFE}", "cited_title": text}
    made = import_corpus(papers=[row], citations=[cited])
    for table in ("papers", "citations", "bodies"):
        found = made.to_pandas(table).to_string()
        assert not set(UNSAFE) & set(found), table
        assert table == "citations" or "Rice is" in found


def test_unsafe_characters_do_not_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a corpus that an earlier version made, or of a table in memory."""
    for name in ("results", "notes"):
        assert type(getattr(console, name)) is not Console
    written = io.StringIO()
    monkeypatch.setattr(console, "results", type(console.results)(file=written, soft_wrap=True))
    console.show(f"rice{UNSAFE}\tis\nhere")
    assert written.getvalue().split() == ["rice", "is", "here"]


NO_ABSTRACTS = [
    *(
        "[No abstract available]",
        "No abstract available.",
        "Abstract not available",
        "Abstract is unavailable.",
    ),
    "No abstract is available.",
    *("N/A", "n/a", "-", ".", "Not available", "null"),
]


def test_a_note_that_there_is_no_abstract_is_none(tmp_path: Path) -> None:
    (tmp_path / "c.bib").write_text("@article{c, doi = {10.1000/c}, abstract = {[No abstract available]}}\n")
    with pytest.raises(InputError, match="neither title nor abstract"):
        import_corpus([tmp_path / "c.bib"], workers=1)
    entry = "@article{{{key}, title = {{Rice {doi}}}, doi = {{10.1000/{doi}}}, abstract = {{{abstract}}}}}\n"
    noted, alone = tmp_path / "a.bib", tmp_path / "c.bib"
    noted.write_text("".join(entry.format(key="a", doi=n, abstract=t) for n, t in enumerate(NO_ABSTRACTS)))
    untitled = (
        f"@article{{c, doi = {{10.1/{n}}}, abstract = {{{t}}}}}\n" for n, t in enumerate(NO_ABSTRACTS)
    )
    alone.write_text("".join([*untitled, entry.format(key="b", doi="b", abstract="Roots grow.")]))
    told = "No abstract is available to them."
    (tmp_path / "b.bib").write_text(
        "".join(entry.format(key="b", doi=n, abstract=told) for n in range(len(NO_ABSTRACTS)))
    )
    reasons = [each["detail"] for each in rejected(read_sources([alone]))]
    assert reasons == ["neither title nor abstract"] * len(NO_ABSTRACTS)
    for files, expected in (([noted], None), ([noted, tmp_path / "b.bib"], told)):
        found = {paper["doi"]: paper["abstract"] for paper in papers(import_corpus(files, workers=1))}
        for number, text in enumerate(NO_ABSTRACTS):
            assert found[f"10.1000/{number}"] == expected, text
