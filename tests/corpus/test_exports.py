"""Exports of reference managers and databases; the samples are of our own making."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.read_sources import ReadSources, read_sources
from helpers.small_articles import jats, papers, rejected
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.formats.bibtex import read_bibtex
from sentence_experts.corpus.formats.exports import EXPORTS, read_listed_papers
from sentence_experts.corpus.formats.latex import GROUP, latex_to_text, read_grouped, tex_to_text
from sentence_experts.corpus.formats.markup import without_tags
from sentence_experts.corpus.importing import gather_sources, import_corpus
from sentence_experts.corpus.paper import Paper, RecordError
from sentence_experts.errors import InputError
from sentence_experts.retrieval.citation_export import export_papers

RIS = """1.
TY  - JOUR
T1  - Rice in drought
N2  - Roots grow
deeper.
KW  - rice
drought; roots
DO  - https://doi.org/10.1000/RICE
Y1  - 2019/05/01/
JF  - Made-up Crops
LA  - eng
ER  -
"""
NBIB = """PMID- 31
OWN - NLM
TI  - [Sleep of
      rats].
AB  - Rats sleep.
MH  - *Sleep/physiology
LID - S0 [pii]
AID - 10.1000/sleep [doi]
DP  - 2001 Mar
LA  - ger
PT  - Journal Article

PMID- 32
TI  - Withdrawn
PT  - Retracted Publication
"""
BIBTEX = r"""@comment{no @article{entry}}
@string{crops = "Made-up " # {Crops}}
@article{rice, title = {{Rice} in dr{\"o}ught}, journal = crops # { A}, year = 2019,
  doi = {10.1000/ri{[}c{]}e},
  % note = {not read},
  abstract = "Roots grow 5\% ``deeper''", month = jan, keywords = {rice; roots}, groups = {To read, Thesis} }
@inproceedings{part, crossref = "whole", title = {A part}}
@proceedings{whole, title = {The Whole}, year = {2001}}
@misc{, doi = {10/abc}, title={Keyless}}
%@article{gone, title = {Commented out}}
@article{broken, title = {Never closed
@book(last, title = "In round (brackets)")
"""
PUBMED_CSV = """\ufeffPMID,Title,Authors,Citation,Journal/Book,Publication Year,PMCID,DOI
31,"[Sleep of rats].",Doe J.,"J. 2001",J Made-up Sleep,2001,PMC7,10.1000/sleep
"""
OLD_PUBMED_CSV = """Title,URL,Details,ShortDetails,Identifiers,Db,EntrezUID,Properties
"Sleep","/pubmed/31","J. 2001 doi: 10.1000/sleep.","J.  2001","PMID:31 | PMCID:PMC7","pubmed","31","x",
"""
ZOTERO = """Key,Item Type,Publication Year,Title,DOI,Abstract Note,Extra,Manual Tags,Automatic Tags
A,journalArticle,2019,Rice in drought,,Roots grow.,"PMID: 31
DOI: 10.1000/rice",rice,roots; drought
B,note,,A note,,,,,
"""


def imported(tmp_path: Path, name: str, text: str, **settings) -> CorpusFolder:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return import_corpus([path], tmp_path / f"{name}-corpus", workers=1, **settings)


def read_text(tmp_path: Path, name: str, text: str) -> ReadSources:
    (tmp_path / name).write_bytes(text.encode())
    return read_sources([tmp_path / name])


def one(corpus: CorpusFolder | ReadSources) -> dict:
    [paper] = papers(corpus)
    return paper


def test_ris(tmp_path: Path) -> None:
    paper = one(imported(tmp_path, "x.ris", RIS))
    assert (paper["paper_id"], paper["title"], paper["abstract"], paper["year"]) == (
        "doi:10.1000/rice", "Rice in drought", "Roots grow deeper.", 2019,
    )  # fmt: skip
    assert (paper["keywords"], paper["language"]) == (["rice", "drought", "roots"], "en")


def test_ris_with_one_space_in_its_tags(tmp_path: Path) -> None:
    narrow = "TY - JOUR\nTI - Narrow\nAB - Tumours were\nER - negative.\nER - \n"
    corpus = read_text(tmp_path, "x.ris", f"{RIS}{narrow}{RIS.replace('RICE', 'rye')}")
    assert [(paper["title"], paper["abstract"]) for paper in papers(corpus)] == [
        ("Rice in drought", "Roots grow deeper."),
        ("Rice in drought", "Roots grow deeper."),
        ("Narrow", "Tumours were ER - negative."),
    ]
    assert one(read_text(tmp_path, "narrow.ris", narrow))["title"] == "Narrow"


def test_authors_of_both_tags_of_ris(tmp_path: Path) -> None:
    names = "A1  - Roe, R.\nA1  - Wu, Y.\nA1  - Wu, Y.\nAU  - Doe, J.\nAU  - Roe, R.\nER  -"
    paper = one(read_text(tmp_path, "x.ris", RIS.replace("ER  -", names)))
    assert paper["authors"] == ["Roe, R.", "Wu, Y.", "Wu, Y.", "Doe, J."]


def test_medline(tmp_path: Path) -> None:
    sleep, gone = papers(read_text(tmp_path, "x.txt", NBIB.replace("\n", "\r\n")))
    assert (sleep["title"], sleep["doi"], sleep["pmid"], sleep["mesh"], sleep["language"]) == (
        "Sleep of rats", "10.1000/sleep", "31", ["*Sleep/physiology"], "de",
    )  # fmt: skip
    assert gone["retracted"]
    assert not sleep["retracted"]


def test_bibtex(tmp_path: Path) -> None:
    corpus = read_text(tmp_path, "x.bib", BIBTEX)
    found = {paper["title"]: paper for paper in papers(corpus)}
    assert set(found) == {"Rice in dröught", "A part", "The Whole", "Keyless", "In round (brackets)"}
    rice = found["Rice in dröught"]
    assert (rice["doi"], rice["journal"], rice["abstract"]) == (
        "10.1000/ri[c]e", "Made-up Crops A", "Roots grow 5% “deeper”",
    )  # fmt: skip
    assert rice["keywords"] == ["rice", "roots", "To read", "Thesis"]
    assert (found["A part"]["year"], found["A part"]["journal"]) == (2001, "The Whole")
    reasons = {each["reason"]: each["detail"] for each in rejected(corpus)}
    assert set(reasons) == {"broken-entry", "unreadable-doi"}
    assert reasons["broken-entry"].startswith("line 11:")
    assert "a short DOI" in reasons["unreadable-doi"]


@pytest.mark.slow
def test_hostile_exports_are_read_in_time(tmp_path: Path) -> None:
    """Parsing does not start over at the end of the file for each of 100,000 entries or lines."""
    contents = {
        "wide.bib": BIBTEX.encode("utf-16"), "deep.bib": b"@article{a, title = " + b"{" * 100_000,
        "open.bib": BIBTEX.encode() + b"@comment(\n" * 100_000,
        "long.ris": b"TY  - JOUR\nTI  - Long\n" + b"more words\n" * 300_000 + b"ER  - \n",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    corpus = import_corpus([tmp_path / name for name in contents], workers=1)
    assert len(papers(corpus)) == 6
    assert "broken-file" in corpus.manifest["counts"]["rejected"]


WHOLE_RIS = "TY  - JOUR\nTI  - Rice\nAB  - Long words of an abstract\nER  - \n"
WHOLE_NBIB = "PMID- {}\nTI  - Rice {}\nAB  - Words.\nAID - 10.1/{} [doi]\nSO  - J. 2001.\n"
WHOLE_ZOTERO = (
    '"Key","Item Type","Title","Abstract Note"\n"K1","article","Rice","Words\nof two"\n'
    '"K2","article","Oats","More"\n'
)


@pytest.mark.parametrize(
    ("name", "text", "end"),
    [
        ("x.ris", 2 * WHOLE_RIS, len(WHOLE_RIS) + 45),
        ("x.ris", WHOLE_RIS, 25),
        ("x.nbib", WHOLE_NBIB.format(*"111") + "\n" + WHOLE_NBIB.format(*"222"), -20),
        ("x.csv", WHOLE_ZOTERO, -4),
        ("x.csv", WHOLE_ZOTERO, -9),
        ("x.csv", WHOLE_ZOTERO.replace('"K2","article","Oats","More"\n', ""), -8),
    ],
)
def test_a_record_in_which_the_file_ends_is_none(tmp_path: Path, name: str, text: str, end: int) -> None:
    whole = read_all(tmp_path, name, text)
    cut = read_all(tmp_path, name, text[:end])
    assert not [each for each in whole if isinstance(each, RecordError)]
    assert cut[:-1] == whole[:-1]
    assert isinstance(cut[-1], RecordError)


def read_all(folder: Path, name: str, text: str) -> list[Any]:
    (folder / name).write_text(text)
    found = {"x.ris": "ris", "x.nbib": "nbib", "x.csv": "zotero-csv"}[name]
    return list(EXPORTS[found].records(folder / name))


def test_records_of_joined_files_are_read_and_records_that_are_none_are_named(tmp_path: Path) -> None:
    ends = "TY  - JOUR\nTI  - {}\nER  - "
    text = (
        "Provider: made up\n" + ends.format("One") + ends.format("Two") + "\nty  - JOUR\nti  - Low\n\nnote\n"
    )
    corpus = read_text(tmp_path, "x.ris", text + ends.format("Three"))
    assert {paper["title"] for paper in papers(corpus)} == {"One", "Two", "Three"}
    assert [each["detail"] for each in rejected(corpus)] == ["line 8: a record that does not begin with TY"]


def test_bibtex_as_other_programs_write_it(tmp_path: Path) -> None:
    names = (
        "family=Berg, given=Jan, prefix=van den, useprefix=true and family=King, suffix=Jr., given=Martin "
        "and Doe, J"
    )
    doi = r"10.1002/(SICI)1097-4571(199806)49:8{\textless}693::AID-ASI4$>$3.0.CO;2-O"
    text = (
        f"@article{{a, title={{One}}, author={{{names}}}, doi={{{doi}}}, keywords={{alpha\n beta, gamma}}}}\n"
        "@inproceedings{b, title={Two}, keywords={alpha\nbeta}, crossref=p}\n"
        "@proceedings{p, title={Proceedings of it}, booktitle={Proc. It}, volume=7, year=2001}\n"
    )
    found = {paper["title"]: paper for paper in papers(read_text(tmp_path, "x.bib", text))}
    assert found["One"]["authors"] == ["van den Berg, Jan", "King, Martin, Jr.", "Doe, J"]
    assert found["One"]["doi"] == "10.1002/(sici)1097-4571(199806)49:8<693::aid-asi4>3.0.co;2-o"
    assert found["One"]["keywords"] == ["alpha beta", "gamma"]
    assert found["Two"]["keywords"] == ["alpha", "beta"]
    assert [found["Two"][name] for name in ("journal", "volume", "year")] == ["Proc. It", "7", 2001]


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("Doe.pdf:/home/me/Doe.pdf:application/pdf", "/home/me/Doe.pdf"),
        (
            "A.pdf:files/1/Doe.pdf:application/pdf;D.html:files/2/D.html:text/html",
            "files/1/Doe.pdf",
        ),
        (r":C\:\\lib\\Doe.pdf:PDF", r"C:\lib\Doe.pdf"),
        ("/home/me/Doe.pdf", "/home/me/Doe.pdf"),
        ("a.pdf; b.pdf", "a.pdf"),
    ],
)
def test_the_path_of_an_attachment(field: str, path: str, tmp_path: Path) -> None:
    (paper,) = papers(read_text(tmp_path, "x.bib", f"@article{{x, title={{One}}, file={{{field}}}}}"))
    assert paper["file"] == path


def test_numbers_of_dblp_are_no_names(tmp_path: Path) -> None:
    text = "@article{x, title={One}, author={Wei Wang 0001 and Aidan N. Gomez 0002 and Li 0003}}"
    (paper,) = papers(read_text(tmp_path, "x.bib", text))
    assert paper["authors"][:2] == ["Wang, Wei", "Gomez, Aidan N."]


def test_a_notice_in_medline_marks_its_paper(tmp_path: Path) -> None:
    text = (
        "PMID- 403\nTI  - Rice.\nAID - 10.1/r3 [doi]\nSO  - J. 2001.\n\nPMID- 499\nTI  - Retraction: Rice.\n"
        "PT  - Retraction of Publication\nROF - J Rice. 2001. doi: 10.1/r3. PMID: 403\nSO  - J. 2002.\n"
    )
    found = {paper["pmid"]: paper["retracted"] for paper in papers(imported(tmp_path, "x.nbib", text))}
    assert found == {"403": True, "499": False}


@pytest.mark.parametrize("text", [PUBMED_CSV.removeprefix("\ufeff"), ZOTERO])
def test_a_table_of_which_the_first_line_names_the_separator_for_excel(text: str, tmp_path: Path) -> None:
    expected = papers(read_text(tmp_path, "x.csv", text))
    assert expected[0]["year"]
    for number, end in enumerate(["\r\n", "\n", "\r", "\r\r\n", "\n \n"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert papers(read_text(folder, "x.csv", f"\ufeffsep=,{end}{text}")) == expected


def test_authors_of_pubmeds_table_beside_a_group(tmp_path: Path) -> None:
    text = 'PMID,Title,Authors,Citation,Journal/Book\n1,Rice,"Beigel JH, Lane HC; ACTT-1 Study Group.",J.,J\n'
    (paper,) = papers(read_text(tmp_path, "x.csv", text))
    assert paper["authors"] == ["Beigel, JH", "Lane, HC", "ACTT-1 Study Group"]


def test_text_is_taken_where_a_publisher_writes_formula_and_text(tmp_path: Path) -> None:
    text = r"""@article{aps, author = {A. Ne\ifmmode \check{c}\else \v{c}\fi{}as and \ifmmode \check{S}\else
      \v{S}\fi{}trba, Jan}, title = {5 \ifmmode\mu\else\textmu\fi{}m of $\ifmmode\mu\else\textmu\fi$},
      doi = {10.1000/\{P\}{Q}}}"""
    (paper,) = papers(read_text(tmp_path, "x.bib", text))
    assert paper["authors"] == ["Nečas, A.", "Štrba, Jan"]
    assert paper["title"] == "5 μm of μ"
    assert paper["doi"] == "10.1000/{p}q"


def test_fields_as_other_programs_write_them(tmp_path: Path) -> None:
    text = r"""@article{x, title = {A}, author = {Arnol\cprime d, V. I.}, journal = {{\apj}},
      year = {{\noopsort{1973a}}1980}, author_keywords = {Rice; Roots}, doi = {https://doi.org/10.1/a?nosfx=y},
      file = {:D$\backslash$:/Library/N{\'{u}}{\~{n}}ez - 2001.pdf:pdf}}"""
    (paper,) = papers(read_text(tmp_path, "x.bib", text))
    assert {name: paper[name] for name in ("authors", "journal", "year", "keywords", "file", "doi")} == {
        "authors": ["Arnol'd, V. I."], "journal": "Astrophysical Journal", "year": 1980,
        "keywords": ["Rice", "Roots"], "file": "D:/Library/Núñez - 2001.pdf", "doi": "10.1/a",
    }  # fmt: skip


def test_characters_that_nobody_sees_change_no_id(tmp_path: Path) -> None:
    ids = [
        papers(
            read_text(tmp_path, f"{number}.ris", f"TY  - JOUR\nTI  - Rice{sign} roots\nPY  - 2001\nER  - \n")
        )
        for number, sign in enumerate(("", "\u200e", "\u202e", "&#8206;"))
    ]
    assert {each[0]["paper_id"] for each in ids} == {ids[0][0]["paper_id"]}


def test_the_year_of_pubmeds_table_is_the_first_of_paper_and_online(tmp_path: Path) -> None:
    text = PUBMED_CSV.replace('"J. 2001"', '"J. 2001 Mar;3(1):2. doi: 10.1000/sleep. Epub 2000 Oct 12."')
    assert [paper["year"] for paper in papers(read_text(tmp_path, "x.csv", text))] == [2000]


def test_the_mark_of_retracted_papers_comes_back(tmp_path: Path) -> None:
    paper = {"paper_id": "doi:10.5/1", "doi": "10.5/1", "title": "Rice", "retracted": True}
    for name, form in (("ris", "ris"), ("bib", "bibtex")):
        for retracted in (True, False):
            text = export_papers([paper | {"retracted": retracted}], form)  # type: ignore[arg-type]
            (found,) = papers(read_text(tmp_path, f"{retracted}.{name}", text))
            assert found["retracted"] is retracted


def test_ris_as_other_programs_write_it(tmp_path: Path) -> None:
    text = "TY  - CHAP\nTI  - One\nAU  - M&uuml;ller, J\nBT  - Whole\nDB  - PubMed\nAN  - PMID: 321\nER  - \n"
    (paper,) = papers(
        read_text(tmp_path, "x.ris", text.replace("ER", "C7  - e12\nUR  - doi.org/10.1234%2Fa\nER"))
    )
    assert (paper["authors"], paper["journal"], paper["pmid"]) == (["Müller, J"], "Whole", "321")
    assert (paper["pages"], paper["doi"]) == ("e12", "10.1234/a")


def read_one(format: str, text: str) -> Paper:
    export = EXPORTS[format]
    paper = export.to_paper(next(each for each in export.read(text) if not isinstance(each, RecordError)))
    assert isinstance(paper, Paper)
    return paper


def test_rare_fields_and_values_are_read() -> None:
    paper = read_one("nbib", "PMID- 31\nTI  - Sleep.\nLA  - cze\nRRI - Sleep. 2020;1:2. PMID: 5\n")
    assert (paper.language, paper.retracted) == ("cze", True)
    paper = read_one("ris", "TY  - JOUR\nTI  - Sleep\nJ2  - J Sleep\nAN  - 104567890\n"
                     "DB  - CINAHL with MEDLINE exclusion\nER  - \n")  # fmt: skip
    assert (paper.journal, paper.pmid) == ("J Sleep", None)


def test_names_of_bibtex_without_a_meaning_are_told() -> None:
    text = """@string{crops = "Made-up Crops"}
    @article{a, title = {Sleep of ~50 rats in Fig.~2}, journal = crops, month = jan, year = 2019, xdata = {x}}
    @xdata{x, volume = {7}}
    @article{b, title = {Oaks}, journal = {A } # trees, crossref = {gone}}"""
    first, second, told = read_bibtex(text)
    assert isinstance(first, dict)
    assert (first["title"], first["volume"]) == (["Sleep of ~50 rats in Fig. 2"], ["7"])
    assert isinstance(second, dict)
    assert second["journal"] == ["A trees"]
    assert str(told).endswith("file: trees (journal of b), gone (crossref of b)")
    assert len(read_listed_papers(text)) == 2


def test_files_that_are_not_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "library").mkdir()
    for name in ("a.ris", "b", "c.pdf", "d.pdf", ".hidden"):
        (tmp_path / "library" / name).write_text(RIS)
    assert len(papers(import_corpus([tmp_path / "library"], workers=1))) == 1
    assert "that are not read: 2 .pdf, 1 without ending" in caplog.text
    (tmp_path / "library" / "table.csv").write_text("id,title\n1,Rice\n")
    (tmp_path / "library" / "article.xml").write_text(jats(title="Rice"))
    assert len(papers(import_corpus([tmp_path / "library"], workers=1))) == 2
    assert "not read: tables of papers 1 (table.csv); name as sources" in caplog.text
    (tmp_path / "records" / "works").mkdir(parents=True)
    (tmp_path / "records" / "link.ris").symlink_to(tmp_path / "library" / "a.ris")
    for name, text in {"a.ris": RIS, "own.tsv": "id\ttitle\n1\tRice\n", "no.ris": "", "b.ciw": "FN"}.items():
        (tmp_path / "records" / name).write_text(text)
    gather_sources([tmp_path / "records"], ImportConfig(), None, None)
    told = (
        "exports that can be read as RIS or BibTeX alone 1 (b.ciw), links 1 (link.ris), "
        "empty files 1 (no.ris), tables of papers 1 (own.tsv)"
    )
    assert f"not read: {told}; name" in caplog.text
    (tmp_path / "records" / "works" / "part_000.jsonl").write_text('{"id": "https://openalex.org/W1"}\n')
    gather_sources([tmp_path / "records"], ImportConfig(), None, None)
    assert (
        "not read: exports 1 (a.ris), exports that can be read as RIS or BibTeX alone 1 (b.ciw), links 1"
        in caplog.text
    )
    gather_sources([tmp_path / "library"], ImportConfig(format="ris"), None, None)
    assert "not read: articles 1 (article.xml); name" in caplog.text


def test_an_entry_without_a_key_is_nobodys_parent(tmp_path: Path) -> None:
    text = "@book{, title={Whole}, year={1950}}\n@article{k, title={Sleep}}\n"
    found = {paper["title"]: paper for paper in papers(read_text(tmp_path, "x.bib", text))}
    assert (found["Sleep"]["year"], found["Sleep"]["journal"]) == (None, None)


def test_symbols_outside_formulas() -> None:
    symbols = r"TNF-\alpha signalling in {\beta} cells, \textgamma{}, \(\kappa\) 5 \pm 2 \emph{in} vivo"
    assert latex_to_text(symbols) == "TNF-α signalling in β cells, γ, κ 5 ± 2 in vivo"


def test_latex() -> None:
    assert latex_to_text(r"\'{e} \v{c} \c c {\ss} \O re \^{\i} 3--4 $x_{1}$ \{a\} \url{a~b}") == (
        "é č ç ß Øre î 3–4 x1 {a} a~b"
    )


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (
            r"Fran\c{c}ois on Erd\H{o}s, Ko\v{c}evar, {\c c}, Fran\c cois",
            "François on Erdős, Kočevar, ç, François",
        ),
        (r"\v{\i}n, \'{\i}n, \'\i n", "ǐn, ín, ín"),
        (
            r"Nguy\~{\^e}n, Nguy\~\^en, Tr{\`{\^a}}n, \d{\u a}, \={\"u}, Sm\'{\ae}r, \textcommabelow{s}",
            "Nguyễn, Nguyễn, Trần, ặ, ǖ, Smǽr, ș",
        ),
        (r"P{\a'e}rez, (11\=20), a\vphantom{X}b, \d{1}, Aks{\i}n", "Pérez, (112̄0), ab, 1̣, Aksın"),
        (
            r"costs $5 and US$6 or US$10, $n$ of 2 x, hy\-phen",
            "costs $5 and US$6 or US$10, n of 2 x, hyphen",
        ),
        (r"\LaTeX{} for \pounds 5, x\^{}2, a\~{}b", "LaTeX for £5, x^2, a~b"),
        (r"\href{https://a.b/c}{a page}, one\par two \\ three\;four", "a page, one two three four"),
        (r"\frac{1}{2} of it", "1/2 of it"),
        (
            r"Alzheimer{\textquotesingle}s, $\upkappa${B}, \textbeta, 10{\textasciicircum}6",
            "Alzheimer's, κB, β, 10^6",
        ),
        (r"$a \leqslant b$, $\less$, \texteuro5\hspace{0.1em}x", "a ≤b, <, €5 x"),
        (r"{\em in vivo}, \emph{in} \textsc{vitro}, \unknown", "in vivo, in vitro, unknown"),
        (
            r"$\ensuremath{\beta}$-decay, \foreignlanguage{german}{f\"ur} \textcolor{red}{x} {\color{blue}y}",
            "β-decay, für x y",
        ),
        (
            r"\noopsort{a}T, $\operatorname{Tr} \rho$, $\bm{k}\cdot\bm{p}$, \raisebox{2pt}{z}",
            "T, Tr ρ, k·p, z",
        ),
        (
            r"$p\bar{p}$, $\bar\nu_e$, $(1\bar{1}00)$, $\overline{\mathrm{MS}}$, \ensuremath{\vec{x}}",
            "pp̄, ν̄e, (11̄00), M̄S̄, x⃗",
        ),
        (
            r"${\cal N}=4$, ${\Bbb R}^n$, {\boldmath $CP$}, $p$\nobreakdash-adic, 3\farcs5, \sfrac{1}{2}",
            "N=4, Rn, CP, p-adic, 3″.5, 1/2",
        ),
        (r"one\\check this\\hat", "one check this hat"),
        (r"\begin{itemize} \item one \item two\end{itemize}", "one two"),
        (r"\textohm, {\cyra}\cyrb, {\textperthousand}, $\varsigma$, \copyright 2020", "Ω, аб, ‰, ς, © 2020"),
        (
            r"10$^6$, $10^{-6}$ in CD4$^+$ of 3\,m\textsuperscript{2}, 2$^{nd}$, 10\textsuperscript{6}",
            "10^6, 10^-6 in CD4+ of 3 m2, 2nd, 10^6",
        ),
        (
            r"${1\over 2}$, $\alpha*\beta$, $2\sp{m}\pm 1$, $a \not= b$, $f_{\text{a--b}}$, $\sqrt[3]{x}$",
            "1/2, α*β, 2m±1, a ≠ b, fa–b, 3√x",
        ),
        (
            r"?`Qu\'e?, A{\kern-.1em}B, \footnote{no} $\binom{n}{k}$, $\left. x\right|_0$, $10\sp{9}$",
            "¿Qué?, AB, n choose k, x|0, 10^9",
        ),
        (
            r"\begin{equation*}\begin{array}{cc} a & b \\[2pt] c \end{array}\end{equation*} $\ket{\psi}$",
            "a b c |ψ⟩",
        ),
        (
            r"\og mot \fg{}, \glqq Wort\grqq{}, B\polhk ak, \isotope[13]{C}, $\dddot{x}\xrightarrow{f}y$",
            "« mot », „Wort“, Bąk, 13C, x\u20db→fy",
        ),
        (r"$\hat{\imath}$, $\vec\jmath$, \numrange{1}{5}, \ion{C}{iv}", "î, j⃗, 1–5, C iv"),
        (r"a & b 50% x_1 \$5 \mbox{d'' $\|x\|$} {$\rm CP$} \ce{H_2O}", "a & b 50% x_1 $5 d” ‖x‖ CP H2O"),
    ],
)
def test_latex_before_letters_and_without_arguments(tex: str, text: str) -> None:
    assert " ".join(latex_to_text(tex).split()) == text


TOKENS = [
    *"{}$^_~&a1é ", "$$", "--", "``", "[x]", *(rf"\{sign}" for sign in "'\"^()[]\\$%,"),
    *(rf"\{name} " for name in ("alpha", "frac", "bar", "sqrt", "c", "not", "emph", "begin", "end")),
    *(rf"\{name} " for name in ("ifmmode", "else", "fi", "left", "url", "kern1pt")),
]  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=40).map("".join))
def test_any_latex_is_read_and_its_words_stay(tex: str) -> None:
    text = latex_to_text(tex)
    grouped = read_grouped(tex)
    assert "".join(sign for sign in grouped if sign not in GROUP) == text
    assert not set("{}") & set(text)
    assert latex_to_text(f"before {{{tex.replace('{', '').replace('}', '')}}} after").startswith("before ")
    tex_to_text(tex)


@pytest.mark.parametrize(
    "unit", ["{", r"\'", r"\frac", "$^", r"\ifmmode ", r"\begin{a}", r"\text{$", r"\(", r"\url{"]
)
def test_deep_and_unclosed_latex_is_read(unit: str) -> None:
    for read in (latex_to_text, tex_to_text, read_grouped):
        assert len(read(unit * 5_000)) <= len(unit) * 5_000


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("10<sup>6</sup> CD4<sup>+</sup> of 3 m<sup>2</sup>", "10^6 CD4+ of 3 m2"),
        ("IL-6<TNF and IFN>IL-2", "IL-6<TNF and IFN>IL-2"),
        ("Ca<Mg at all depths. In wet soils K>Na", "Ca<Mg at all depths. In wet soils K>Na"),
        ("i<j and j>k; a<p and q>b; a<b>c; a<b=1>c", "i<j and j>k; a<p and q>b; a<b>c; a<b=1>c"),
        ('<i>E. coli</i>, <span class="x">H<sub>2</sub>O</span>', "E. coli, H2O"),
        ("<jats:p>one<br/>two</jats:p><mml:mi>x</mml:mi>", "one two x"),
        ("&lt;i&gt;E. coli&lt;/i&gt; at p &lt; 0.05", "E. coli at p < 0.05"),
    ],
)
def test_only_tags_are_removed(written: str, read: str) -> None:
    assert without_tags(written) == read


def test_ris_with_a_tag_for_each_paragraph_and_a_year_in_words(tmp_path: Path) -> None:
    record = "TY  - JOUR\nTI  - Rice\nAB  - One.\nAB  - Two.\nPY  - in press\nDA  - 2020/05/01\nER  - \n"
    paper = one(read_text(tmp_path, "x.ris", record))
    assert (paper["abstract"], paper["year"]) == ("One. Two.", 2020)


def test_nbib_has_the_year_of_paper_or_online_as_the_xml_of_pubmed(tmp_path: Path) -> None:
    record = "PMID- 11\nTI  - Rice\nDP  - 2020 Jan\nDEP - 20191130\n"
    assert one(read_text(tmp_path, "x.nbib", record))["year"] == 2019


@pytest.mark.parametrize("text", [PUBMED_CSV, OLD_PUBMED_CSV])
def test_csv_of_pubmed(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    paper = one(imported(tmp_path, "x.csv", text))
    found = [paper[name] for name in ("doi", "pmid", "pmcid", "year", "abstract")]
    assert found == ["10.1000/sleep", "31", "PMC7", 2001, None]
    assert paper["title"] in ("Sleep of rats", "Sleep")
    assert "titles suffice" in caplog.text  # it has no abstracts


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_that_a_spreadsheet_saved_again(tmp_path: Path, separator: str) -> None:
    header = ["pmid", "title", "authors", "citation", "journal/book", "publication year", "doi"]
    row = ["31", '"Sleep, and rats; both"', "A", "Sleep. 2001", "Sleep", "2001", "10.1000/sleep"]
    text = "\n" + "\n".join([separator.join(header), separator.join(row)])
    paper = one(read_text(tmp_path, "x.csv", text))
    assert (paper["doi"], paper["pmid"], paper["title"]) == ("10.1000/sleep", "31", "Sleep, and rats; both")


def test_csv_of_zotero(tmp_path: Path) -> None:
    corpus = read_text(tmp_path, "x.csv", ZOTERO)
    assert (one(corpus)["doi"], one(corpus)["pmid"], one(corpus)["keywords"]) == (
        "10.1000/rice", "31", ["rice", "roots", "drought"],
    )  # fmt: skip
    assert corpus.manifest["counts"]["rejected"] == {"not-a-paper": 1}


def test_of_two_entries_of_one_work_the_one_that_says_more_counts(tmp_path: Path) -> None:
    entries = [
        "@article{one, title={Rice}, doi={10.1000/rice}, year={2019}}",
        "@article{two, title={Rice in drought}, doi={10.1000/RICE}, abstract={Roots grow.}}",
    ]
    corpus = imported(tmp_path, "x.bib", "\n".join(entries))
    paper = one(corpus)
    assert (paper["title"], paper["year"], paper["abstract"]) == ("Rice in drought", 2019, "Roots grow.")
    [left_out] = rejected(corpus)
    assert (left_out["reason"], left_out["member"]) == ("duplicate", "record 1")
    assert left_out["detail"] == "the same work as x.bib/record 2"


def test_several_formats_are_one_corpus_merged_by_identifier(tmp_path: Path) -> None:
    for name, text in (("a.ris", RIS), ("b.csv", ZOTERO), ("c.nbib", NBIB)):
        (tmp_path / name).write_text(text)
    corpus = import_corpus(sorted(tmp_path.iterdir()), workers=1)
    assert [paper["paper_id"] for paper in papers(corpus)] == [
        "doi:10.1000/rice",
        "doi:10.1000/sleep",
        "pmid:32",
    ]


def test_unlike_titles_of_one_doi_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    titles = [
        "Rice roots in drought",
        "Sleep apnoea and caffeine",
        "Volcano ash",
        "Rice roots in drought: a review of the fields",
    ]
    text = "".join(f"TY  - JOUR\nTI  - {title}\nDO  - 10.1183/congress-2019\nER  - \n" for title in titles)
    corpus = imported(tmp_path, "x.ris", text)
    one(corpus)
    assert (
        "records (2) have the identifier of a record with another title, such as doi:10.1183/congress"
        in caplog.text
    )
    caplog.clear()
    imported(tmp_path, "y.ris", "".join(text.split("ER  - \n")[0] + "ER  - \n" for _ in range(2)))
    assert "another title" not in caplog.text


def test_unreadable_exports_are_reported(tmp_path: Path) -> None:
    (tmp_path / "latin.ris").write_bytes(RIS.replace("Roots", "Würzeln").encode("latin-1"))
    with pytest.raises(InputError, match=r"encoding: not UTF-8.*save it as UTF-8"):
        import_corpus([tmp_path / "latin.ris"], workers=1)
    (tmp_path / "mine.csv").write_text("name,text\na,b\n")
    with pytest.raises(InputError, match="a table of your own, with columns"):
        import_corpus([tmp_path / "mine.csv"], workers=1)


def test_user_tables_have_columns_in_any_case(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("Title,Abstract,DOI,PMID\nRice,Roots grow.,10.1000/RICE,\nSleep,Rats.,,31\n")
    corpus = import_corpus(papers=table, workers=1)
    assert [paper["paper_id"] for paper in papers(corpus)] == ["doi:10.1000/rice", "pmid:31"]
    table.write_text("Title,title,Abstract,DOI\nRice,Rice,Roots grow.,10.1000/RICE\n")
    with pytest.raises(InputError, match="but for their case"):
        import_corpus(papers=table, workers=1)


def test_a_notice_marks_its_paper_whichever_of_its_records_is_the_best(tmp_path: Path) -> None:
    notice = "PMID- 222\nTI  - Notice about sleep.\nLID - 10.1000/notice [doi]\n" + (
        "PT  - Retraction of Publication\nROF - J Sleep. 2001. doi: 10.1000/bad. PMID: 111\nSO  - J. 2012.\n"
    )
    fuller = (
        "TY  - JOUR\nTI  - Notice about sleep\nDO  - 10.1000/notice\nAB  - Withdrawn.\nPY  - 2012\nER  - \n"
    )
    (tmp_path / "n.nbib").write_text(notice)
    (tmp_path / "l.ris").write_text(fuller + fuller.replace("notice", "bad").replace("Notice", "A study"))
    corpus = import_corpus([tmp_path / "n.nbib", tmp_path / "l.ris"], workers=1)
    assert {paper["doi"]: paper["retracted"] for paper in papers(corpus)} == {
        "10.1000/notice": False, "10.1000/bad": True,
    }  # fmt: skip


@pytest.mark.parametrize("sign", ["\u2028", "\u0085", "\v", "\f"])
def test_only_line_breaks_end_lines(tmp_path: Path, sign: str) -> None:
    text = (
        f"PMID- 1\nTI  - Sleep.\nAB  - First.{sign}MRI-guided{sign}{sign}care.\n"
        "FAU - Roe, Ann\nSO  - J. 2001.\n"
    )
    for end in ("\n", "\r\n", "\r\r\n", "\r"):
        (tmp_path / "x.nbib").write_bytes(text.replace("\n", end).encode())
        [paper] = papers(read_sources(tmp_path / "x.nbib", workers=1))
        assert paper["abstract"].startswith("First.")
        assert "MRI-guided" in paper["abstract"]
        assert paper["abstract"].endswith("care.")
        assert paper["authors"] == ["Roe, Ann"]


@pytest.mark.parametrize(
    "note",
    [
        "Comment on: J Sleep. 2001;3:5. doi: 10.1000/other. PMID: 999",
        "Erratum: PMID: 999",
        "Reply to https://doi.org/10.1000/other",
        "Retraction of: doi: 10.1000/other",
        "Update in: PMID: 999",
        "Expression of concern in: PMID: 999",
        "Comment in\nJ Sleep. 2001. PMID: 999",
        "CommentIn: PMID: 999",
        "UpdateOf: PMID: 999",
        "Data available at https://doi.org/10.1000/other",
        "Response to doi: 10.1000/other",
        "A letter. See also PMID: 999",
        "Preprint: https://doi.org/10.1000/other",
        "Companion paper: J Sleep. 2001. doi: 10.1000/other",
        "Addendum in: J Sleep. PMID: 999",
        "Addendum: J Sleep. 2001;1:2. doi: 10.1000/other",
        "Response to Smith J. J Sleep. 2001;1:2. doi: 10.1000/other",
        "Translated from J Sleep. 2001;1:2. PMID: 999",
        "Supplement to J Sleep. 2001;1:2. PMID: 999",
        "Related: doi:10.1000/other",
        "Translated from the German: PMID: 999",
        "Review of: Smith A. Dreams. doi: 10.1000/other",
        "Code: https://doi.org/10.1000/other",
        "Dataset: doi:10.1000/other",
        "Extended version in J Sleep. 2001. doi: 10.1000/other",
        "Thesis version: https://doi.org/10.1000/other",
        "Contradicted by https://doi.org/10.1000/other",
        "Compare PMID: 999",
        "We used their data (https://doi.org/10.1000/other)",
        "Preprint DOI: 10.1000/other",
        "Related PMID: 999",
        "Response to Smith et al. (2019), https://doi.org/10.1000/other",
        "Data available from the Dryad Digital Repository: https://doi.org/10.1000/other",
        "<p>See also https://pubmed.ncbi.nlm.nih.gov/999/</p>",
        "Commentary on: PMID: 999",
        "Comment on:\nPMID: 999",
        "Reply to\n\ndoi: 10.1000/other",
        "Fails to replicate <b>PMID: 999</b>",
        '<p>Extends <a href="https://doi.org/10.1000/other">doi:10.1000/other</a> to children.</p>',
        "<p>Related:</p><ul><li>PMID: 5</li><li>PMID: 999</li></ul>",
        "Data available at\nhttps://doi.org/10.1000/other",
        "Preprint\nhttps://doi.org/10.1000/other",
        "Comment in: Lancet. 2003;361:1\nPMID: 999",
        "Comment on:\nN1  - PMID: 999",
        "DOI (preprint): https://doi.org/10.1000/other",
        "<Comment on> PMID: 999",
    ],
)
def test_the_ids_of_another_work_in_a_note_are_not_the_record_s(tmp_path: Path, note: str) -> None:
    other = "TY  - JOUR\nTI  - Sleep in rats\nDO  - 10.1000/other\nER  - \n"
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep again\nN1  - {note}\nER  - \n{other}")
    (tmp_path / "b.bib").write_text(f"@article{{k, title = {{Sleep once more}}, note = {{{note}}}}}")
    found = papers(read_sources([tmp_path / "a.ris", tmp_path / "b.bib"], workers=1))
    assert sorted((each["title"], each["doi"], each["pmid"]) for each in found) == [
        ("Sleep again", None, None),
        ("Sleep in rats", "10.1000/other", None),
        ("Sleep once more", None, None),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.bib", "@article{k, title={Sleep}, pmid={12 345 678}, pmcid={PMC 1 2}, year={n.d.}}"),
        ("a.csv", 'Key,Item Type,Publication Year,Title,DOI,Abstract Note,Extra,Manual Tags,Automatic Tags\n'
                  'A,journalArticle,n.d.,Sleep,,Dreams.,"PMID: 12,345,678\nPMCID: 1,2",,\n'),
    ],
)  # fmt: skip
def test_numbers_and_years_that_cannot_be_read_are_named(
    tmp_path: Path, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_text(text)
    corpus = import_corpus(tmp_path / name, workers=1)
    assert {each["reason"] for each in rejected(corpus)} == {
        f"unreadable-{x}" for x in ("pmid", "pmcid", "year")
    }
    assert "not read, in all: unreadable-" in caplog.text


@pytest.mark.parametrize("name", ["pmc", "pmcid"])
def test_bibtex_has_two_names_for_a_pmcid(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.bib").write_text(f"@article{{k, title = {{Sleep}}, {name} = {{PMC4573485}}}}")
    assert papers(read_sources(tmp_path / "a.bib", workers=1))[0]["pmcid"] == "PMC4573485"


@pytest.mark.parametrize("kind", ["review", "letter", "editorial"])
def test_the_kind_that_a_record_states(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\nM3  - {kind.title()}\nDO  - 10.5/1\nER  - \n")
    (tmp_path / "b.bib").write_text(
        f"@article{{k, title = {{Sleep}}, type = {{{kind.title()}}}, doi = {{10.5/2}}}}"
    )
    found = papers(read_sources([tmp_path / "a.ris", tmp_path / "b.bib"], workers=1))
    assert [each["kind"] for each in found] == [kind] * 2


@pytest.mark.parametrize(
    ("kind", "read", "retracted"),
    [
        ("Retracted", "article", True), ("Article; Retracted Publication", "article", True),
        ("Retracted Publication, Article", "article", True),
        ("Editorial Material; Early Access", "editorial", False),
        ("Article; Early Access", "article", False), ("Correction, Early Access", "correction", False),
        ("['Published Erratum', 'Journal Article']", "correction", False),
        ('["Editorial"]', "editorial", False),
    ],
)  # fmt: skip
def test_types_of_web_of_science_and_scopus(tmp_path: Path, kind: str, read: str, retracted: bool) -> None:
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\nM3  - {kind}\nDO  - 10.5/1\nER  - \n")
    for number, field in enumerate(("type", "document_type"), start=2):
        entry = f"@article{{k, title = {{Sleep}}, {field} = {{{kind}}}, doi = {{10.5/{number}}}}}"
        (tmp_path / f"{number}.bib").write_text(entry)
    columns = {4: "kind", 5: "article_type"}
    table = [{"doi": f"10.5/{number}", "title": "Sleep", name: kind} for number, name in columns.items()]
    files = [tmp_path / name for name in ("a.ris", "2.bib", "3.bib")]
    found = papers(read_sources(files, papers=table, workers=1))
    assert [(each["kind"], each["retracted"]) for each in found] == [(read, retracted)] * 5


@pytest.mark.parametrize(
    "note",
    [
        "PMID: 999",
        "PubMed PMID: 999; PubMed Central PMCID: none",
        "https://pubmed.ncbi.nlm.nih.gov/999/",
        "www.ncbi.nlm.nih.gov/pubmed/999",
        "PMCID: PMC5\nPMID: 999.",
        "PMID:999,PMCID:PMC5",
        "PMID 999",
        "<p>PMID: 999</p>",
        '<p><a href="https://pubmed.ncbi.nlm.nih.gov/999/">https://pubmed.ncbi.nlm.nih.gov/999/</a></p>',
    ],
)
def test_the_ids_of_the_paper_in_a_note_are_its_own(tmp_path: Path, note: str) -> None:
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\nN1  - {note}\nER  - \n")
    assert papers(read_sources(tmp_path / "a.ris", workers=1))[0]["pmid"] == "999"


def test_fields_in_zotero_s_extra_come_before_the_address(tmp_path: Path) -> None:
    header = "Key,Item Type,Title,Abstract Note,DOI,Url,Extra\n"
    rows = [
        f"K{n},bookSection,Part {n},,,https://link.springer.com/book/10.1007/978-3-030,"
        f'"12 citations (Crossref) [2023-05-01]\nDOI: 10.1007/978-3-030_{n}\nComment on PMID: 7"\n'
        for n in (5, 6)
    ]
    (tmp_path / "z.csv").write_bytes((header + "".join(rows)).replace("\n", "\r\n").encode())
    found = papers(read_sources(tmp_path / "z.csv", workers=1))
    assert sorted((each["doi"], each["pmid"]) for each in found) == [
        ("10.1007/978-3-030_5", None),
        ("10.1007/978-3-030_6", None),
    ]


@pytest.mark.parametrize(
    "path",
    ["C:/Scans/05.10.2020/a.pdf", "file:///Scans/05.10.2020/a.pdf", "/2010.12345/a.pdf", "/PMID 5 a.pdf"],
)
def test_the_path_of_a_file_is_no_identifier(tmp_path: Path, path: str) -> None:
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\nL1  - {path}\nER  - \n")
    [paper] = papers(read_sources(tmp_path / "a.ris", workers=1))
    assert (paper["doi"], paper["pmid"]) == (None, None)


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///C:/My%20Papers/a;b.pdf", "C:/My Papers/a;b.pdf"),
        ("file:///C:/a.docx;file:///C:/b.pdf", "C:/b.pdf"),
        ("file:///C:/a.html; /home/b.pdf", "/home/b.pdf"),
        ("file:///a.PDF;x.html", "/a.PDF"),
        ("file:///a.html;~/b.pdf", "~/b.pdf"),
        ("file://D:/a.PDF;file://D:/b.pdf", "D:/a.PDF"),
        ("file:///home/me/a.pdf", "/home/me/a.pdf"),
        ("https://x.org/a.pdf", None),
    ],
)
def test_the_address_of_a_pdf_is_its_path(tmp_path: Path, address: str, path: str | None) -> None:
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\nL1  - {address}\nKW  - *Mice\nER  - \n")
    [paper] = papers(read_sources(tmp_path / "a.ris", workers=1))
    assert (paper["file"], paper["keywords"]) == (path, ["Mice"])


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("Smith, John (Jack); Doe, Jane", ["Smith, John (Jack)", "Doe, Jane"]),
        ("{Team (x)} and Smith, J.; Doe, A.", ["Team (x)", "Smith, J.", "Doe, A."]),
        ("M&uuml;ller, J.; Doe & Co", ["Müller, J.", "Co, Doe &"]),
    ],
)
def test_semicolons_among_authors_of_bibtex(tmp_path: Path, written: str, names: list[str]) -> None:
    (tmp_path / "a.bib").write_text(f"@article{{a, title={{Sleep}}, author={{{written}}}}}")
    assert papers(read_sources(tmp_path / "a.bib", workers=1))[0]["authors"] == names


@pytest.mark.parametrize("end", ["@", "@article", " @ art\n"])
def test_a_file_cut_where_an_entry_begins_is_broken(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.bib").write_text("@article{a, title={Sleep @ night}}\n" + end)
    corpus = read_sources(tmp_path / "a.bib", workers=1)
    assert [each["title"] for each in papers(corpus)] == ["Sleep @ night"]
    assert corpus.manifest["counts"]["rejected"] == {"broken-entry": 1}


def test_a_semicolon_parts_the_authors_of_bibtex(tmp_path: Path) -> None:
    (tmp_path / "a.bib").write_text(
        "@article{a, title={Sleep}, author={Smith, John; Doe, Jane; M&uuml;ller, J}}"
    )
    [paper] = papers(read_sources(tmp_path / "a.bib", workers=1))
    assert paper["authors"] == ["Smith, John", "Doe, Jane", "Müller, J"]


def test_a_publisher_s_address_is_a_doi(tmp_path: Path) -> None:
    address = "https://www.frontiersin.org/articles/10.3389/fnins.2019.00001/full"
    for line in (f"UR  - {address}", f"DO  - {address}", f"UR  - URL: {address} https://x.org/my file.pdf"):
        (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\n{line}\nER  - \n")
        assert papers(read_sources(tmp_path / "a.ris", workers=1))[0]["doi"] == "10.3389/fnins.2019.00001"


def test_an_address_comes_before_a_note(tmp_path: Path) -> None:
    entries = [
        f"@misc{{k{n}, title = {{Part {n}}}, url = {{https://doi.org/10.1000/own{n}}}, "
        "note = {https://doi.org/10.5281/zenodo.1}}\n"
        for n in (1, 2)
    ]
    (tmp_path / "a.bib").write_text("".join(entries))
    found = papers(read_sources(tmp_path / "a.bib", workers=1))
    assert sorted(each["doi"] for each in found) == ["10.1000/own1", "10.1000/own2"]


@pytest.mark.parametrize(
    "address",
    [
        "https://doi.org/%2010.1000/own",
        "//doi.org/10.1000/own",
        "URL:https://doi.org/10.1000/own;doi:10.1000/b",
        "https://x.org/stable/doi.10.1000/own",
        "https://x.org/?q=%2210.1000/own%22",
    ],
)
def test_addresses_in_odd_forms(tmp_path: Path, address: str) -> None:
    (tmp_path / "a.ris").write_text(f"TY  - JOUR\nTI  - Sleep\nUR  - {address}\nER  - \n")
    assert papers(read_sources(tmp_path / "a.ris", workers=1))[0]["doi"] == "10.1000/own"


def test_a_command_of_latex_around_an_address(tmp_path: Path) -> None:
    for field in ("url", "note"):
        (tmp_path / "a.bib").write_text(
            f"@misc{{k, title = {{Sleep}}, {field} = {{\\url{{https://doi.org/10.1000/own}}}}}}"
        )
        assert papers(read_sources(tmp_path / "a.bib", workers=1))[0]["doi"] == "10.1000/own"


@pytest.mark.parametrize(
    "first", ["", "TY-JOUR\n", "TY  -JOUR\n", "TY: JOUR\n", "TY  – JOUR\n", "ty  - JOUR\n"]
)
def test_a_record_of_ris_without_its_first_line_is_named(tmp_path: Path, first: str) -> None:
    whole, part = "TY  - JOUR\nTI  - Rice\nER  - \n\n", "TI  - Oats\nPY  - 2017\nER  - \n\n"
    corpus = read_text(
        tmp_path, "x.ris", f"{first}{part}{whole}{first}{part}{part}{whole.replace('Rice', 'Rye')}"
    )
    assert {paper["title"] for paper in papers(corpus)} == {"Rice", "Rye"}
    assert [each["reason"] for each in rejected(corpus)].count("broken-entry") == 3


@pytest.mark.parametrize("space", ["\xa0", "\t", " ", "   "])
def test_tags_of_ris_behind_other_spaces(tmp_path: Path, space: str) -> None:
    text = RIS.replace("  - ", f"{space}-{space[0]}")
    assert one(read_text(tmp_path, "x.ris", text))["abstract"] == "Roots grow deeper."


@pytest.mark.parametrize("behind", ["", "\t", "\xa0", " \t", " 1"])
def test_what_stands_behind_the_end_of_a_record_of_ris(tmp_path: Path, behind: str) -> None:
    text = f"TY  - JOUR\nTI  - Rice\nAB  - Long\nER  - negative cells\nER  -{behind}\n"
    corpus = read_text(tmp_path, "x.ris", text + text.replace("Rice", "Rye"))
    assert {paper["title"] for paper in papers(corpus)} == {"Rice", "Rye"}
    assert {paper["abstract"] for paper in papers(corpus)} == {"Long ER - negative cells"}


def test_files_of_nbib_that_were_joined_without_a_line_break(tmp_path: Path) -> None:
    record = "PMID- {0}\nOWN - NLM\nTI  - Title {0}\nSO  - J Foo. 2015"
    corpus = read_text(
        tmp_path, "x.nbib", "".join(record.format(number) for number in (111, 112, 113)) + "\n"
    )
    assert [paper["pmid"] for paper in papers(corpus)] == ["111", "112", "113"]


def test_two_records_of_ris_in_one_are_none(tmp_path: Path) -> None:
    first = "TY  - JOUR\nTI  - Roots of rice\nAB  - Abs one\nDO  - 10.1234/a\n"
    second = "TI  - Sleep in mice\nAB  - Abs two\nDO  - 10.1234/b\nER  - \n"
    corpus = read_text(tmp_path, "x.ris", first + second + RIS)
    assert one(corpus)["abstract"] == "Roots grow deeper."
    assert [each["reason"] for each in rejected(corpus)] == ["broken-entry"]
    translated = "TY  - JOUR\nTI  - Roots\nTI  - Wurzeln\nAB  - One\nAB  - Eins\nDO  - 10.1234/c\nER  - \n"
    assert one(read_text(tmp_path, "y.ris", translated))["title"] == "Roots"


PUBMED = (
    "PMID,Title,Authors,Citation,First Author,Journal/Book,Publication Year,Create Date,PMCID,NIHMS ID,DOI"
)


def test_rows_of_csv_that_are_shifted_or_swallowed_are_named(tmp_path: Path) -> None:
    row = '{0},Title {0},"A B, C D",J. 2001,A B,J,2001,2001/01/01,,,10.1234/{0}'
    rows = [row.format(number) for number in (1, 2, 3, 4, 5, 6)]
    rows[1] = rows[1].replace("Title 2", "Rice, wheat 2")
    rows[3] = rows[3].replace("Title 4", '"Title 4').replace('"A B, C D"', "A B")
    rows[4] = rows[4].replace("Title 5", 'Title 5"').replace('"A B, C D"', "A B")
    corpus = read_text(tmp_path, "x.csv", "\n".join([PUBMED, *rows, ""]))
    assert {paper["pmid"] for paper in papers(corpus)} == {"1", "3", "6"}
    assert [(each["reason"], each["detail"][:5]) for each in rejected(corpus)] == [
        ("broken-entry", "row 2"),
        ("broken-entry", "row 4"),
    ]


@pytest.mark.parametrize(
    "header", [f"{PUBMED},Keywords,My Notes", "Key,Item Type,Title,Abstract Note,Keywords,Extra"]
)
def test_columns_of_one_s_own_in_exports_are_named(tmp_path: Path, header: str) -> None:
    cells = {"PMID": "1", "Title": "Rice", "Item Type": "journalArticle"}
    row = ",".join(cells.get(name, "") for name in header.split(","))
    corpus = read_text(tmp_path, "x.csv", f"{header}\n{row}\n")
    [each] = rejected(corpus)
    assert each["reason"] == "unread-columns"
    assert each["detail"].startswith("keywords")


def test_an_entry_of_bibtex_without_its_sign_is_named(tmp_path: Path) -> None:
    text = "@article{a, title={Rice}}\narticle{b, title={Rye}}\n@misc{c, title={Oats},\nnote={article{x}}}\n"
    corpus = read_text(tmp_path, "x.bib", text)
    assert {paper["title"] for paper in papers(corpus)} == {"Rice", "Oats"}
    [each] = rejected(corpus)
    assert (each["reason"], each["detail"]) == ("broken-entry", "line 2: entries without an @ before them: 1")


def test_a_file_of_nbib_need_not_end_in_a_line_break(tmp_path: Path) -> None:
    record = "PMID- {0}\nTI  - Title {0}\nAB  - Abstract\nSO  - J Foo. 2015\n\n"
    text = "".join(record.format(number) for number in (111, 112))
    corpus = read_text(tmp_path, "x.nbib", text + "PMID- 113\nTI  - No abstract\nSO  - J Foo. 2015")
    assert len(papers(corpus)) == 3


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ("TI  - A\nTI  - B\nDO  - 10.1234/a\nDO  - https://doi.org/10.1234/A", []),
        ("TI  - A\nTI  - B\nAB  - One\nAB  - Two\nPY  - 2001\nY1  - 2001/03/01", []),
        ("T1  - Rice\nTI  - Rice in drought\nAB  - One\nAB  - Two\nPY  - 2001\nPY  - 2002", []),
        ("TI  - Rice\nTI  - Rice: a study\nDO  - 10.1234/a\nDO  - 10.1234/a.s001", []),
        ("TI  - Rice\nDO  - 10.1234/a\nTI  - Sleep\nDO  - 10.1234/b", ["broken-entry"]),
        ("TI  - A\nTI  - B\nAB  - One\nAB  - Two\nPY  - 2001\nPY  - 2002", ["broken-entry"]),
    ],
)
def test_one_record_of_ris_with_two_titles_is_told_from_two(
    tmp_path: Path, fields: str, reasons: list[str]
) -> None:
    corpus = read_text(tmp_path, "x.ris", f"TY  - JOUR\n{fields}\nER  - \n{RIS}")
    assert [each["reason"] for each in rejected(corpus)] == reasons


@pytest.mark.parametrize(
    "text",
    [
        "TY  - JOUR\nDO  - 10.1234/a\nER  - \n",
        "@article{a, doi={10.1234/a}}",
        "PMID- 31\nLID - 10.1234/a [doi]\nSO  - J\n",
        "PMID,Title,DOI,Journal/Book\n31,,10.1234/a,J\n",
        "Key,Item Type,Title,Abstract Note,DOI\nK,journalArticle,,,10.1234/a\n",
    ],
)
def test_a_listed_record_without_a_title_is_known_by_its_doi(text: str) -> None:
    [paper] = read_listed_papers(text)
    assert (paper.doi, paper.title, paper.other) == ("10.1234/a", None, "a record without a title")


def test_records_of_another_format_in_a_file_are_named(tmp_path: Path) -> None:
    ris = "TY  - JOUR\nTI  - Rye\nER  - \n"
    nbib = "PMID- 111\nTI  - Oats\nSO  - J Foo. 2015\n\n"
    bib = "@article{a, title={Rice}}\n"
    for name, text, title in (
        ("x.bib", f"{bib}\n{ris}", "Rice"),
        ("v.bib", bib + nbib.replace("TI", "OWN - NLM\nTI"), "Rice"),
        ("y.ris", ris + bib, "Rye"),
        ("z.nbib", nbib + bib, "Oats"),
    ):
        corpus = read_text(tmp_path, name, text)
        assert one(corpus)["title"] == title
        assert [each["reason"] for each in rejected(corpus)] == ["other-format"]
    for name, text in (
        ("w.bib", bib.replace("Rice", "Rice\nTY  - JOUR\nTI  - x\nER  -\n")),
        ("u.bib", bib.replace("Rice}", "Rice}, annote={\nPMID- 12345\nTY  - JOUR}")),
        ("t.ris", ris.replace("ER", "AB  - Use\n@article{x,\nN1  - In\nPMID-12345678\nER")),
    ):
        corpus = read_text(tmp_path, name, text)
        assert one(corpus)["title"].startswith("R")
        assert not rejected(corpus)


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        ("2,Rye\nroots,Doe A,C,Doe,J,2002,2002/01/01,,,10.1234/b\n", ["broken-entry"] * 2),
        ("2,Rye, roots,Doe A,C,Doe,J,2002,2002/01/01,,,10.1234/b\n", ["broken-entry"]),
        ("2,Rye,Doe A,C,Doe,J,2002,2002/01/01,,,10.1234/b,\n3,Oats,Doe A,C\n", []),
    ],
)
def test_rows_of_pubmeds_table_that_are_divided_or_too_long_are_named(
    tmp_path: Path, rows: str, reasons: list[str]
) -> None:
    header = "PMID,Title,Authors,Citation,First Author,Journal/Book,Publication Year,Create Date,PMCID,N,DOI"
    first, last = (
        "1,Rice,Doe A,C,Doe,J,2001,2001/01/01,,,10.1234/a\n",
        "4,Teff,Doe A,C,Doe,J,2001,,,,10.1234/d\n",
    )
    corpus = read_text(tmp_path, "x.csv", f"{header}\n{first}{rows}{last}")
    assert {"Rice", "Teff"} <= {paper["title"] for paper in papers(corpus)}
    assert [each["reason"] for each in rejected(corpus)] == reasons
