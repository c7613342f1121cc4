"""PubMed's records become papers, and nothing of them is lost or guessed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from helpers.small_articles import jats, links, papers, ref, rejected
from helpers.small_pubmed import article_ids, deletion, heading, packed_file, record, record_set
from sentence_experts.corpus.formats import articles
from sentence_experts.corpus.formats.articles import Outcome, read_articles
from sentence_experts.corpus.importing import add_to_corpus, import_corpus
from sentence_experts.corpus.paper import Citation, Deletion, Paper, RecordError


def outcomes(document: str) -> list[Outcome]:
    return list(read_articles(document.encode()))


def one(document: str) -> Paper:
    (paper,) = outcomes(record_set(document))
    assert isinstance(paper, Paper), paper
    return paper


def test_the_identifiers_are_the_articles_own() -> None:
    cited = f"<Reference><Citation>X</Citation>{article_ids(pubmed='9', doi='10.1/cited')}</Reference>"
    paper = one(record("0123", ids=article_ids(pubmed="123", doi="10.1000/A", pmc="PMC5"), references=cited))
    assert (paper.pmid, paper.doi, paper.pmcid, paper.other) == ("123", "10.1000/a", "PMC5", None)
    assert one(record(references=cited)).doi is None
    located = '<ELocationID EIdType="doi" ValidYN="N">10.1000/n</ELocationID>' \
              '<ELocationID EIdType="doi" ValidYN="Y">10.1000/y</ELocationID>'  # fmt: skip
    assert one(record(article=located)).doi == "10.1000/y"


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ("Genes of <i>E. coli</i>.", "Genes of E. coli"),
        ("[On the heart].", "On the heart"),
        ("[On the heart (author's transl)].", "On the heart"),
        ("[Genes] and [more].", "[Genes] and [more]"),
        ("Made in the U.S.A.", "Made in the U.S.A."),
        ("And so on...", "And so on..."),
        ("Why?", "Why?"),
        ("[Not Available].", None),
    ],
)
def test_titles_lose_marks_of_nlm(stated: str, read: str | None) -> None:
    assert one(record(title=stated)).title == read


def test_abstracts_keep_their_labels_and_other_abstracts_stay_out() -> None:
    parts = (
        '<AbstractText Label="AIMS:">H<sub>2</sub>O is wet.</AbstractText>'
        '<AbstractText Label="UNLABELLED">More.</AbstractText><AbstractText Label="EMPTY"/>'
        "<AbstractText>End (ABSTRACT TRUNCATED AT 250 WORDS)</AbstractText>"
        "<CopyrightInformation>Copyright</CopyrightInformation>"
    )
    other = "<OtherAbstract><AbstractText>Plain words.</AbstractText></OtherAbstract>"
    assert one(record(abstract=parts, citation=other)).abstract == "AIMS: H2O is wet. More. End"
    assert one(record(abstract="", citation=other)).abstract is None


def _date(content: str) -> str:
    return f"<Journal><JournalIssue><PubDate>{content}</PubDate></JournalIssue></Journal>"


def test_year_is_that_of_first_publication() -> None:
    online = "<ArticleDate><Year>2009</Year></ArticleDate>"
    assert one(record(article=online)).year == 2009
    assert one(record(issue=_date("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"))).year == 1998
    assert one(record(issue=_date("<Season>Winter</Season>"))).year is None


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("Journal Article",), "research-article"),
        (("Journal Article", "Review"), "review-article"),
        (("Comment", "Letter"), "letter"),
        (("Journal Article", "Randomized Controlled Trial"), "research-article"),
        (("Retraction of Publication",), "retraction"),
        (("Portrait",), None),
    ],
)
def test_kinds_of_article_have_the_names_of_jats(kinds: tuple[str, ...], expected: str | None) -> None:
    assert one(record(kinds=kinds)).article_type == expected


def test_headings_keywords_and_journal() -> None:
    mesh = heading("Asthma", "*drug therapy", "genetics") + heading("*Lung") + heading("Humans")
    words = "<KeywordList><Keyword>COPD;</Keyword><Keyword> lung  disease </Keyword></KeywordList>"
    language = "<Language>eng</Language>"
    paper = one(record(citation=f"<MeshHeadingList>{mesh}</MeshHeadingList>{words}", article=language))
    assert paper.language == "en"
    assert paper.mesh == ("Asthma/*drug therapy/genetics", "*Lung", "Humans")
    assert (paper.keywords, paper.journal) == (("COPD", "lung disease"), "Journal")


def _related(kind: str, content: str) -> str:
    inner = f'<CommentsCorrections RefType="{kind}">{content}</CommentsCorrections>'
    return f"<CommentsCorrectionsList>{inner}</CommentsCorrectionsList>"


def test_retractions() -> None:
    assert one(record(kinds=("Journal Article", "Retracted Publication"))).retracted
    assert one(record(citation=_related("RetractionIn", "<PMID>7</PMID>"))).retracted
    assert not one(record(citation=_related("ErratumIn", "<PMID>7</PMID>"))).retracted
    source = "<RefSource>J. 2001;1:2. doi: 10.1000/bad</RefSource><PMID>7</PMID>"
    notice = one(record(citation=_related("RetractionOf", source)))
    assert notice.retracts == (Citation(doi="10.1000/bad", pmid="7", year=2001),)
    assert not notice.retracted


def test_references_have_identifiers_and_years_and_no_titles() -> None:
    line = "<Citation>Baron R. A 1500 word title. J. 1986 Mar 15;51(6):1173-1182. doi: 10.1000/X.</Citation>"
    bare = "<Citation>Plein LM (2018) Opioids. Br J 175: 1999</Citation>"
    listed = article_ids(pubmed="3806354", pmc="PMC9")
    references = (
        f"<Reference>{line}{listed}</Reference><ReferenceList><Reference>{bare}</Reference></ReferenceList>"
    )
    older = _related("Cites", "<PMID>3806354</PMID>") + _related("Cites", "<PMID>44</PMID>")
    assert one(record(references=references, citation=older)).citations == (
        Citation(doi="10.1000/x", pmid="3806354", pmcid="PMC9", year=1986),
        Citation(year=2018),
        Citation(pmid="44"),
    )


def test_books_and_chapters() -> None:
    book = (
        '<PubmedBookArticle><BookDocument><PMID Version="1">5</PMID><ArticleIdList><ArticleId IdType="doi">'
        "10.1000/book</ArticleId></ArticleIdList><Book><BookTitle>GeneReviews</BookTitle><PubDate><Year>1993</Year>"
        '</PubDate><AuthorList Type="authors"><Author><LastName>Nussey</LastName><Initials>S</Initials>'
        '</Author></AuthorList><AuthorList Type="editors"><Author><LastName>Ed</LastName></Author>'
        "</AuthorList>"
        "</Book>{}<Abstract><AbstractText>Text.</AbstractText></Abstract></BookDocument></PubmedBookArticle>"
    )
    writer = "<AuthorList><Author><LastName>Lee</LastName></Author></AuthorList>"
    chapter = one(book.format(f"<ArticleTitle>Ataxia</ArticleTitle>{writer}"))
    assert (chapter.title, chapter.journal, chapter.year, chapter.abstract, chapter.doi) == (
        "Ataxia", "GeneReviews", 1993, "Text.", "10.1000/book"
    )  # fmt: skip
    assert chapter.article_type == "chapter-article"
    assert chapter.authors == ("Lee",)
    whole = one(book.format(""))
    assert (whole.title, whole.authors) == ("GeneReviews", ("Nussey, S",))


def test_other_elements_are_named_and_records_are_read() -> None:
    found = outcomes(
        record_set(record("1"), record(None), deletion("8", "x", "9"), "<Strange/>", record("2"))
    )
    assert [type(each) for each in found] == [Paper, RecordError, Deletion, Deletion, Paper]
    assert found[2:4] == [Deletion("8"), Deletion("9")]
    (empty,) = outcomes(record_set())
    assert isinstance(empty, RecordError)
    assert empty.reason == "no-records"


def test_a_record_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    long = record("2", references="<Reference><Citation/></Reference>" * 10_000)
    records = record_set(*(record(str(number)) for number in range(3, 1000)), long, record("1"))
    monkeypatch.setattr(articles, "MAX_RECORD_BYTES", 200_000)
    *read, refused = outcomes(records)
    assert len(read) == 997
    assert isinstance(refused, RecordError)
    assert refused.reason == "too-large"


# ---- files and their revisions -------------------------------------------------------------------


def test_packed_files_beside_articles(tmp_path: Path) -> None:
    source = tmp_path / "source"
    packed_file(source / "pubmed26n0001.xml.gz", record("1", ids=article_ids(doi="10.1000/p")), record("2"))
    (source / "article.xml").write_text(jats("10.1000/j", refs=ref(pmid="1") + ref(pmid="2")))
    (source / "broken.xml.gz").write_bytes(packed_file(tmp_path / "x.gz", record("3")).read_bytes()[:-20])
    (source / "text.xml.gz").write_bytes(b"plain text")
    (source / "table.csv.gz").write_bytes(b"no document")
    corpus = import_corpus([source], tmp_path / "out", workers=1)
    assert {paper["paper_id"] for paper in papers(corpus)} == {"doi:10.1000/p", "pmid:2", "doi:10.1000/j"}
    assert links(corpus) == [("doi:10.1000/j", "doi:10.1000/p"), ("doi:10.1000/j", "pmid:2")]
    reasons = {line["member"]: line["reason"] for line in rejected(corpus)}
    assert reasons == {"broken.xml.gz": "broken-packing", "text.xml.gz": "broken-packing"}
    alone = import_corpus([source / "pubmed26n0001.xml.gz"], tmp_path / "alone", workers=1)
    assert len(papers(alone)) == 2


def test_records_before_a_cut_are_kept(tmp_path: Path) -> None:
    long = "".join(random.Random(0).choices("abcdefghij ", k=3000))
    abstract = f"<AbstractText>{long}</AbstractText>"
    path = packed_file(tmp_path / "x.xml.gz", *(record(str(n), abstract=abstract) for n in range(1, 200)))
    path.write_bytes(path.read_bytes()[:-20])
    corpus = import_corpus([path], tmp_path / "out", workers=1)
    assert [line["reason"] for line in rejected(corpus)] == ["broken-packing"]
    assert len(papers(corpus)) > 150


def test_files_revise_each_other_in_the_order_of_their_names(tmp_path: Path) -> None:
    updates, baseline = tmp_path / "a-updates", tmp_path / "b-baseline"
    packed_file(baseline / "pubmed26n0001.xml.gz", record("1", title="Old."), record("2"), record("3"),
                record("4", title="First."), record("4", title="Second.", version=2))  # fmt: skip
    packed_file(updates / "pubmed26n0002.xml.gz", deletion("2", "3", "4", "99"), record("5", title="Five."))
    packed_file(updates / "pubmed26n0003.xml.gz", record("1", title="New.", abstract=""),
                record("3", title="Back."), deletion("5"))  # fmt: skip
    one_way = import_corpus([updates, baseline], tmp_path / "one", workers=1)
    other_way = import_corpus([baseline, updates], tmp_path / "other", workers=1)
    assert one_way.fingerprint() == other_way.fingerprint()
    # The new record has no abstract: it stands all the same, and nothing of the old one is left in it.
    assert [(paper["pmid"], paper["title"], paper["abstract"]) for paper in papers(one_way)] == [
        ("1", "New", None), ("3", "Back", "An abstract."), ("4", "Second", "An abstract."),
    ]  # fmt: skip
    named = {(line["record"], line["reason"], line["detail"].split("/")[-1]) for line in rejected(one_way)}
    assert named == {
        ("pmid:1", "replaced", "pubmed26n0003.xml.gz"), ("pmid:2", "deleted", "pubmed26n0002.xml.gz"),
        ("pmid:3", "replaced", "pubmed26n0003.xml.gz"), ("pmid:4", "deleted", "pubmed26n0002.xml.gz"),
        ("pmid:5", "deleted", "pubmed26n0003.xml.gz"),
    }  # fmt: skip


def revised(day: str, **more: Any) -> str:
    year, month, number = day.split("-")
    date = f"<DateRevised><Year>{year}</Year><Month>{month}</Month><Day>{number}</Day></DateRevised>"
    return record(citation=date, **more)


@pytest.mark.parametrize("turned", [False, True])
def test_the_record_that_was_revised_last_counts(tmp_path: Path, turned: bool) -> None:
    old, new = ("Journal Article",), ("Journal Article", "Retracted Publication")
    days = ["2024-03-09", "2024-11-02"]
    names = [("week2", "week10"), ("march", "april"), ("a/pubmed", "b/pubmed")]
    files: list[list[Path]] = [[], []]
    for number, pair in enumerate(names, start=1):
        for step, (name, day, kinds) in enumerate(zip(pair, days, (old, new), strict=True)):
            text = revised(day, pmid=str(number), title=f"{day}.", kinds=kinds)
            files[step].append(packed_file(tmp_path / f"{name}.xml.gz", text))
    corpus = import_corpus(files[turned], out=tmp_path / "corpus", workers=1)
    found = {paper["pmid"]: paper for paper in papers(add_to_corpus(corpus, files[not turned], workers=1))}
    for number, pair in enumerate(names, start=1):
        paper = found[str(number)]
        assert (paper["title"], paper["retracted"]) == (days[1], True), pair


def test_numbers_in_names_of_files_count_as_numbers(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        packed_file(tmp_path / f"pubmed({number}).xml.gz", record(title=f"Week {number}."))
    (paper,) = papers(import_corpus(tmp_path, workers=1))
    assert paper["title"] == "Week 10"


def test_a_deletion_has_no_day(tmp_path: Path) -> None:
    packed_file(tmp_path / "pubmed26n0001.xml.gz", revised("2026-05-01"), revised("2026-05-01", pmid="2"))
    packed_file(tmp_path / "pubmed26n0002.xml.gz", deletion("1"), revised("2026-04-01", pmid="3"))
    assert [paper["pmid"] for paper in papers(import_corpus(tmp_path, workers=1))] == ["2", "3"]
    packed_file(tmp_path / "pubmed26n0003.xml.gz", revised("2026-03-01", title="Again."))
    again = papers(import_corpus(tmp_path, workers=1))
    assert [paper["title"] for paper in again if paper["pmid"] == "1"] == ["Again"]


def test_a_record_without_a_day_is_in_the_order_of_names(tmp_path: Path) -> None:
    packed_file(tmp_path / "a.xml.gz", record(title="Undated."))
    packed_file(tmp_path / "q.xml.gz", revised("2026-01-01", title="Newest."))
    packed_file(tmp_path / "z.xml.gz", revised("2025-01-01", title="Older."))
    assert [paper["title"] for paper in papers(import_corpus(tmp_path, workers=1))] == ["Newest"]


def test_references_of_replaced_records_are_ignored(tmp_path: Path) -> None:
    def cites(doi: str) -> str:
        return f"<Reference>{article_ids(pubmed='7', doi=doi)}</Reference>"

    source = tmp_path / "source"
    for number in (1, 2, 3):
        packed_file(source / f"pubmed26n000{number}.xml.gz", record("1", references=cites("10.1000/wrong")))
    packed_file(source / "pubmed26n0004.xml.gz", record("1", references=cites("10.1000/right")))
    (source / "other.xml").write_text(jats("10.1000/j", refs=ref(pmid="7")))
    corpus = import_corpus([source], tmp_path / "out", workers=1)
    assert {cited for _, cited in links(corpus)} == {"doi:10.1000/right"}


def test_deleted_record_does_not_delete_article(tmp_path: Path) -> None:
    source = tmp_path / "source"
    packed_file(source / "pubmed26n0001.xml.gz", record("1"))
    packed_file(source / "pubmed26n0002.xml.gz", deletion("1"))
    pmid = '<article-id pub-id-type="pmid">1</article-id>'
    (source / "a.xml").write_text(jats("10.1000/j", ids=pmid))
    (paper,) = papers(import_corpus([source], tmp_path / "out", workers=1))
    assert (paper["doi"], paper["pmid"]) == ("10.1000/j", "1")


def test_article_and_pubmed_record_are_merged(tmp_path: Path) -> None:
    source = tmp_path / "source"
    mesh = f"<MeshHeadingList>{heading('Asthma')}</MeshHeadingList>"
    packed_file(
        source / "pubmed26n0001.xml.gz",
        record("1", title="PubMed's.", citation=mesh, ids=article_ids(doi="10.1000/j"),
               kinds=("Journal Article", "Retracted Publication")),
    )  # fmt: skip
    (source / "a.xml").write_text(jats("10.1000/j", title="Its own", refs=ref(pmid="9"), abstract=None))
    corpus = import_corpus([source], tmp_path / "out", workers=1)
    (paper,) = papers(corpus)
    assert (paper["title"], paper["pmid"], paper["mesh"]) == ("Its own", "1", ["Asthma"])
    assert (paper["abstract"], paper["journal"], paper["retracted"]) == ("An abstract.", "Journal", True)
    assert links(corpus) == [("doi:10.1000/j", "pmid:9")]
    assert corpus.manifest["counts"]["with_abstract"] == 1


@pytest.mark.realdata
def test_real_records_are_described(real_data: Path) -> None:
    found: list[Paper] = []
    files = [*(real_data / "formats" / "pubmed_efetch").glob("*.xml"),
             *(real_data / "formats" / "entrez").glob("pubmed*.xml")]  # fmt: skip
    assert len(files) == 150
    for path in files:
        for each in read_articles(path.read_bytes()):
            # One answer is an empty set.
            assert isinstance(each, Paper) or path.name == "37909814.xml", (path, each)
            found += [each] if isinstance(each, Paper) else []
    # Counted with grep: titles, main abstracts, mesh lists, keyword lists, references.
    assert len(found) == sum(bool(paper.title and paper.year and paper.journal) for paper in found)
    assert len(found) == 152 - 1
    assert sum(paper.abstract is not None for paper in found) == 132
    assert sum(bool(paper.mesh) for paper in found) == 98
    assert sum(len(paper.citations) for paper in found) == 4337 + 141
    assert sum(bool(paper.article_type) for paper in found) == len(found)
