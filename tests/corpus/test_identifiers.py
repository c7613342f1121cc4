from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_experts.corpus.identifiers import (
    Identifiers,
    find_doi,
    identifiers_in_url,
    normalise_doi,
    normalise_pmcid,
    normalise_pmid,
    parse_identifier,
)


@pytest.mark.parametrize(
    "written",
    ["10.1000/AbC.1", "doi:10.1000/abc.1", "DOI: 10.1000/abc.1.", "https://doi.org/10.1000/abc.1",
     "http://dx.doi.org/10.1000%2Fabc.1", " 10.1000/abc.1 ", "10.1000/abc.1,", "(10.1000/abc.1)",
     "10.1000/abc\u200b.1"],
)  # fmt: skip
def test_one_doi_in_every_spelling(written: str) -> None:
    assert normalise_doi(written) == "10.1000/abc.1"


def test_old_dois_keep_their_brackets_and_signs() -> None:
    for doi in ("10.1002/(sici)1097-0061(199807)14:10<953::aid-yea293>3.0.co;2-u", "10.1021/bi001509+",
                "10.1016/0022-2836(81)90010-3", "10.1016/s0070-2153(04)63006-7"):  # fmt: skip
        assert normalise_doi(doi.upper()) == doi


@pytest.mark.parametrize(
    "value", [None, "", "11200322", "0162-0886/91/1302-0044$02.00", "10.1000/", "10.1000"]
)
def test_other_texts_are_no_doi(value: str | None) -> None:
    assert normalise_doi(value) is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10.1021/ bi992105o", "10.1021/bi992105o"),
        ("10.1021 / bi992105o.", "10.1021/bi992105o"),
        ("10. 1371/journal.1", "10.1371/journal.1"),
        ("e14910.1371/journal.pone.0014910", "10.1371/journal.pone.0014910"),
        ("10.1186/1471\u20132164-14\u2013610", "10.1186/1471-2164-14-610"),
        ("10.1126/science.1245200\u2212", "10.1126/science.1245200"),
        ("10.1111/2041-210\u00d7.12974", "10.1111/2041-210x.12974"),
        ("10.1017.S1355838201011074", "10.1017/s1355838201011074"),
        ("10.1371/journal.pone.", None),
        ("10.1371/journal.pone", None),
        ("10.1016/s0140-6736(00)80112-4)", "10.1016/s0140-6736(00)80112-4"),
        ("10.1371/journal.", None),
        ("10.1000/journal.", "10.1000/journal"),
        ("10.1211.jpp/62.02.0013", None),
        ("doi 10.1000/x1", "10.1000/x1"),
        ("http://dx.doi.org/doi:10.1000/x1", "10.1000/x1"),
    ],
)
def test_dois_are_repaired_where_that_is_safe(written: str, meant: str | None) -> None:
    assert normalise_doi(written) == meant
    if meant is not None and not written.startswith("10.1017"):
        assert parse_identifier(written) == Identifiers(doi=meant)


@pytest.mark.parametrize(
    "written",
    [
        "10.1038/nature 12345 Smith et al",
        "10.1016/S0140 6736(05)17",
        "10.1016/j.cell. Smith",
        "10.1038/a%20b",
    ],
)
def test_a_doi_cut_by_a_space_is_unreadable(written: str) -> None:
    assert normalise_doi(written) is None


@pytest.mark.parametrize(
    "written",
    ["10.1000/x1 [doi]", "10.1000/x1 PMID: 7", "10.1000/x1; 2010", "(10.1000/x1) and others", "10.1000/x1 ."],
)
def test_text_after_a_whole_doi_is_left_out(written: str) -> None:
    assert normalise_doi(written) == "10.1000/x1"


def test_ids_of_users_that_show_no_doi_are_none() -> None:
    for own in ("paper 10.1000/x1", "e12", "10.5", "doing", "see doi.org/10.1000/x1"):
        assert parse_identifier(own) == Identifiers()


def test_doi_broken_over_two_lines_is_joined() -> None:
    assert normalise_doi("10.1126/science. 1068094") == "10.1126/science.1068094"


@settings(max_examples=40)
@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    for value in (text, f"10.1000/{text}"):
        once = normalise_doi(value)
        assert once is None or normalise_doi(once) is not None
    (
        normalise_pmid(text),
        normalise_pmcid(text),
        parse_identifier(text),
        find_doi(text),
        identifiers_in_url(text),
    )


def test_pmid_and_pmcid() -> None:
    assert normalise_pmid(" 00123 ") == normalise_pmid("PMID: 123") == "123"
    assert normalise_pmid("123abc") is None
    assert normalise_pmid("0") is None
    assert normalise_pmcid("PMC12") == normalise_pmcid("12") == normalise_pmcid("pmc12.2") == "PMC12"
    assert parse_identifier("123") == Identifiers()
    assert parse_identifier("pmid:123") == Identifiers(pmid="123")
    assert identifiers_in_url("https://pubmed.ncbi.nlm.nih.gov/123/") == (None, "123", None)
    assert identifiers_in_url("http://www.ncbi.nlm.nih.gov/pmc/articles/PMC77/") == (None, None, "PMC77")


def test_doi_in_text_needs_a_prefix() -> None:
    assert find_doi("Nature 10.5/6 pp. doi: 10.1000/x.") == "10.1000/x"
    assert find_doi("between 10.1234/5 and more") is None


@pytest.mark.parametrize(
    ("address", "doi"),
    [
        ("https://www.frontiersin.org/articles/10.3389/fnins.2019.00001/full", "10.3389/fnins.2019.00001"),
        (
            "journals.plos.org/plosone/article?id=10.1371/journal.pone.0012345&type=printable",
            "10.1371/journal.pone.0012345",
        ),
        ("https://link.springer.com/article/10.1007/s00125-019-1234-5#Sec1", "10.1007/s00125-019-1234-5"),
        ("https://link.springer.com/content/pdf/10.1007/s00125-019-1234-5.pdf", "10.1007/s00125-019-1234-5"),
        ("https://onlinelibrary.wiley.com/doi/10.1002/hbm.24567/abstract", "10.1002/hbm.24567"),
        ("https://academic.oup.com/brain/article/doi/10.1093/brain/awz123/5490293", "10.1093/brain/awz123"),
        ("https://www.biorxiv.org/content/10.1101/2020.01.01.123456v1.full", "10.1101/2020.01.01.123456"),
        (
            "https://onlinelibrary.wiley.com/doi/10.1002/(SICI)1097-0258(19980815/30)17:15/16<1661::AID-SIM968>3.0.CO;2-2",
            "10.1002/(sici)1097-0258(19980815/30)17:15/16<1661::aid-sim968>3.0.co;2-2",
        ),
        ("https://doi.org/10.21203/rs.3.rs-123/v1", "10.21203/rs.3.rs-123/v1"),
        ("https://www.medrxiv.org/content/10.1101/2020.03.01.20123456v2.full", "10.1101/2020.03.01.20123456"),
        ("https://www.biorxiv.org/content/10.1101/123456v2.full", "10.1101/123456"),
        ("https://site10.com/article?doi=10.1000/abc", "10.1000/abc"),
        ("http://x.org/10.1000/Summary/12", "10.1000/summary/12"),
        (
            "https://www.degruyter.com/document/doi/10.1515/cclm-2019-0001/html?lang=en",
            "10.1515/cclm-2019-0001",
        ),
        (
            "https://direct.mit.edu/neco/article/doi/10.1162/neco_a_01234/95678/Some-words",
            "10.1162/neco_a_01234",
        ),
        (
            "https://academic.oup.com/bib/article-pdf/doi/10.1093/bib/bbaa1/33487/bbaa1.pdf",
            "10.1093/bib/bbaa1",
        ),
        ("https://academic.oup.com/nar/article-lookup/doi/10.1093/nar/123", "10.1093/nar/123"),
        (
            "https://academic.oup.com/cid/advance-article/doi/10.1093/cid/ciaa344/5811871",
            "10.1093/cid/ciaa344",
        ),
        ("https://iopscience.iop.org/article/10.1088/0004-637X/700/2/1097", "10.1088/0004-637x/700/2/1097"),
        (
            "https://bmjopen.bmj.com/lookup/doi/10.1136/bmjopen-2019-000001/-/DC1",
            "10.1136/bmjopen-2019-000001",
        ),
        ("https://onlinelibrary.wiley.com/doi/10.1111/j.1/abstract;jsessionid=A.f01", "10.1111/j.1"),
        (
            "https://www.pnas.org/doi/10.1073/pnas.1234567890#supplementary-materials",
            "10.1073/pnas.1234567890",
        ),
        ("https://x.org/doi/10.1000/full/12", "10.1000/full/12"),
        ("https://link.springer.com/10.1007/s00125-019-1234-5/fulltext.html", "10.1007/s00125-019-1234-5"),
        ("https://www.bmj.com/content/10.1136/bmj.l1234.full", "10.1136/bmj.l1234"),
        ("https://academic.oup.com/ije/article/doi/10.1093/ije/31/1/123/655000", "10.1093/ije/31/1/123"),
        ("https://login.proxy.edu/login?url=https://doi.org/10.1000/abc", "10.1000/abc"),
        ("https://google.com/url?q=https://doi.org/10.1000/abc&sa=D", "10.1000/abc"),
        ("https://x.org/doi/10.1000/abc/", "10.1000/abc"),
        (
            "https://onlinelibrary.wiley.com/doi/10.1002/0471142905.hg0401s45/otherversions",
            "10.1002/0471142905.hg0401s45",
        ),
        ("https://x.org/doi/10.1000%2Fabc%2Ffull", "10.1000/abc"),
        ("https://dv.org/x?persistentId=doi:10.7910/DVN/MAY4YN&version=3.0", "10.7910/dvn/may4yn"),
        ("https://datadryad.org/resource/doi:10.5061/dryad.sn878g4?show=full", "10.5061/dryad.sn878g4"),
    ],
)
def test_the_doi_in_a_publisher_s_address(address: str, doi: str) -> None:
    assert identifiers_in_url(address)[0] == doi
    assert not address.startswith("http") or normalise_doi(address) == doi
    assert find_doi(f"Available from: {address}.") == (doi if "doi" in address else None)


def test_parameters_of_an_address_are_no_part_of_a_doi() -> None:
    assert find_doi("https://doi.org/10.1000/abc?x=1&y=2") == "10.1000/abc"
    assert (
        find_doi("https://r.example/?id=doi:10.1000%2Fj.abc.2018.01&issn=0140-6736")
        == "10.1000/j.abc.2018.01"
    )
    assert identifiers_in_url("https://europepmc.org/article/MED/12345678") == (None, "12345678", None)
    assert identifiers_in_url("https://europepmc.org/article/PMC/PMC12345") == (None, None, "PMC12345")
    assert identifiers_in_url("https://www.niehs.nih.gov/news/article/2019") == (None, None, None)
    for address in ("www.ncbi.nlm.nih.gov/pmc/article/PMC12345", "europepmc.org/articles/PMC/PMC12345"):
        assert identifiers_in_url(f"https://{address}") == (None, None, "PMC12345")
    two = "https://doi.org/10.1000/abc?utm_source=x; https://doi.org/10.2000/def"
    assert normalise_doi(two) == "10.1000/abc"


@pytest.mark.parametrize("address", ["", "https://doi.org/", "https://www.biorxiv.org/content/"])
def test_versions_of_a_preprint_are_one_work(address: str) -> None:
    assert normalise_doi(f"{address}10.1101/2020.01.01.123456v2") == "10.1101/2020.01.01.123456"


@pytest.mark.parametrize("between", [";", "; ", "|", ",", "; https://doi.org/"])
def test_of_several_dois_the_first_counts(between: str) -> None:
    assert normalise_doi(f"10.1234/abc{between}10.1234/def") == "10.1234/abc"
    assert normalise_doi("https://doi.org/10.1234/abc#sec1") == "10.1234/abc"


@pytest.mark.parametrize(
    ("written", "doi"),
    [
        ("10.1016/j.cell. 2019.01.001", "10.1016/j.cell.2019.01.001"),
        ("10.1126/science. 1068094", "10.1126/science.1068094"),
        ("10.1136/bmjopen- 2019-034567", "10.1136/bmjopen-2019-034567"),
        ("10.1234/abc. 2019", None),
        ("10.1234/abc. 2019-03-01", None),
    ],
)
def test_a_year_behind_a_doi_is_none_of_it(written: str, doi: str | None) -> None:
    assert normalise_doi(written) == doi
