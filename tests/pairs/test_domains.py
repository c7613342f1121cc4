"""Rules put papers where they say, and say what is wrong with themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.compile_pairs import tables_corpus
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules, domains_of_works
from sentence_experts.pairs.links import select_folded_texts
from sentence_experts.pairs.sql_engine import open_engine

DESCRIPTORS = """<?xml version="1.0"?><DescriptorRecordSet>
<DescriptorRecord><DescriptorUI>D1</DescriptorUI><DescriptorName><String>Cardiovascular Diseases</String>
</DescriptorName><TreeNumberList><TreeNumber>C14</TreeNumber></TreeNumberList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D2</DescriptorUI><DescriptorName><String>Heart Failure</String>
</DescriptorName><TreeNumberList><TreeNumber>C14.280.434</TreeNumber></TreeNumberList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D3</DescriptorUI><DescriptorName><String>Asthma</String>
</DescriptorName><TreeNumberList><TreeNumber>C08.127.108</TreeNumber></TreeNumberList></DescriptorRecord>
</DescriptorRecordSet>"""


def rules(folder: Path, content: dict) -> DomainRules:
    (folder / "desc.xml").write_text(DESCRIPTORS)
    (folder / "rules.yaml").write_text(yaml.safe_dump(content))
    return DomainRules.of(folder / "rules.yaml")


def paper(**fields: object) -> dict:
    return {"title": None, "subjects": [], "mesh": [], "keywords": [], "journal": None, **fields}


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        (
            {"subjects": ["Cell biology"]},
            paper(subjects=["CELL BIOLOGY"]),
            paper(subjects=["Cell biology II"]),
        ),
        ({"subjects": ["Cell*"]}, paper(subjects=["Cell biology II"]), paper(subjects=["Stem cell"])),
        ({"keywords": ["*millet"]}, paper(keywords=["x", "Pearl millet"]), paper(keywords=["millets of x"])),
        ({"topics": ["rice*"]}, paper(topic="Rice Genetics"), paper(field="Rice Genetics")),
        ({"subfields": ["Plant Science"]}, paper(subfield="plant science"), paper(topic="Plant Science")),
        ({"fields": ["Physics*"]}, paper(field="Physics and Astronomy"), paper(subfield="Physics")),
        ({"journals": ["eLife"]}, paper(journal="elife"), paper(journal="eLife Sciences")),
        ({"title": ["rice"]}, paper(title="On Rice, again"), paper(title="The price of ricers")),
        ({"title": ["C++"]}, paper(title="Parsing C++ quickly"), paper(title="Parsing C quickly")),
        ({"subjects": ["Cancer [all]?"]}, paper(subjects=["Cancer [all]?"]), paper(subjects=["Cancer a1"])),
        ({"title": ["oryz*"]}, paper(title="Oryza sativa"), paper(title="An oreo")),
        ({"mesh": ["Asthma"]}, paper(mesh=["*Asthma/drug therapy"]), paper(mesh=["Asthma, Cardiac"])),
    ],
)
def test_a_rule_matches(tmp_path: Path, rule: dict, matching: dict, other: dict) -> None:
    domains_of = rules(tmp_path, {"domains": {"a": rule}}).classifier()
    assert domains_of(matching) == ("a",)
    assert domains_of(other) == ()


@pytest.mark.parametrize(
    ("year", "expected"), [(2009, ()), (2010, ("a",)), (2022, ("a",)), (2023, ()), (None, ())]
)
def test_a_domain_may_be_of_some_years(tmp_path: Path, year: int | None, expected: tuple[str, ...]) -> None:
    domains_of = rules(
        tmp_path, {"domains": {"a": {"mesh": ["Asthma"], "title": ["rice"], "years": [2010, 2022]}}}
    ).classifier()
    assert domains_of(paper(mesh=["Asthma"], year=year)) == expected
    assert domains_of(paper(title="Rice", year=year)) == expected
    assert domains_of(paper(year=year)) == ()


def test_a_paper_of_other_years_goes_to_the_next_domain(tmp_path: Path) -> None:
    content = "domains: {old: {keywords: [x], years: [1990, 2000]}, new: {keywords: [x]}}\nseveral: first"
    (tmp_path / "rules.yaml").write_text(content)
    domains_of = DomainRules.of(tmp_path / "rules.yaml").classifier()
    assert domains_of(paper(keywords=["x"], year=1995)) == ("old",)
    assert domains_of(paper(keywords=["x"], year=2005)) == ("new",)


@pytest.mark.parametrize("heading", ["C14", "Cardiovascular Diseases", "Cardiovascular*", "D1"])
def test_a_mesh_heading_stands_for_its_subtree(tmp_path: Path, heading: str) -> None:
    content = {"mesh_descriptors": "desc.xml", "domains": {"cvd": {"mesh": [heading]}}}
    domains_of = rules(tmp_path, content).classifier()
    assert domains_of(paper(mesh=["Heart Failure"])) == ("cvd",)
    assert domains_of(paper(mesh=["D2"])) == ("cvd",)
    assert domains_of(paper(mesh=["Asthma"])) == ()


@pytest.mark.parametrize(("several", "expected"), [("first", ("b",)), ("drop", ()), ("each", ("b", "a"))])
def test_a_paper_in_several_domains(tmp_path: Path, several: str, expected: tuple[str, ...]) -> None:
    content = "domains: {b: {keywords: [x]}, a: {keywords: [y]}}\nseveral: " + several
    (tmp_path / "rules.yaml").write_text(content)
    domains_of = DomainRules.of(tmp_path / "rules.yaml").classifier()
    assert domains_of(paper(keywords=["x", "y"])) == expected


def test_a_paper_in_no_domain_goes_where_none_says(tmp_path: Path) -> None:
    domains_of = rules(tmp_path, {"none": "rest", "domains": {"a": {"keywords": ["x"]}}}).classifier()
    assert domains_of(paper()) == ("rest",)
    assert DomainRules.of({"none": "Drop", "domains": {"a": {"keywords": ["x"]}}}).classifier()(paper()) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("domains: {a: {subject: [x]}}", "domains.a.subject"),
        ("several: maybe\ndomains: {a: {}}", "several"),
        ("domains: {a b: {subjects: [x]}}", "domain name 'a b'"),
        ("just text", "domain rules need"),
        ("domains: {}", "domains"),
        ("domains: {a: {years: [2022, 2010]}}", "first year must come before the last"),
        ("domains: {a: {years: [2022]}}", "domains.a.years"),
        ("domains: {no: {subjects: [x]}}", "put it in quotes"),
        ("a: [", "cannot be read"),
        ("domains: {a: {mesh: [C14]}}", "mesh_descriptors"),
        ("mesh_descriptors: nowhere.xml\ndomains: {a: {mesh: [x]}}", "nowhere.xml"),
    ],
)
def test_faulty_rules_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        DomainRules.of(file).classifier()
    assert message in str(caught.value)


@pytest.mark.realdata
def test_real_descriptors_are_read(real_data: Path, tmp_path: Path) -> None:
    descriptors = real_data / "formats" / "mesh" / "desc-samples.xml"
    (tmp_path / "rules.yaml").write_text(f"mesh_descriptors: {descriptors}\ndomains: {{a: {{mesh: [D03]}}}}")
    domains_of = DomainRules.of(tmp_path / "rules.yaml").classifier()
    # Calcimycin, the first descriptor of every MeSH file, stands under D03 (heterocyclic compounds).
    assert domains_of(paper(mesh=["Calcimycin"])) == ("a",)


PAPERS = [
    {"paper_id": str(n), "title": f"Paper {n}", "abstract": f"Text {n}", "subjects": subjects, "mesh": mesh}
    for n, (subjects, mesh) in enumerate(
        [(["Neuroscience"], ["*Brain/physiology"])] * 4 + [(["Cell Biology"], [])] * 3 + [([], ["Brain"])]
    )
]
CITING = [{"citing": f"c{n}", "cited": str(cited)} for n in range(3) for cited in range(8)]
SETTINGS = {"split": "random", "fractions": "0.5,0.25,0.25"}


def counts_of(domains: dict, **more: object) -> dict[str, Any]:
    corpus = tables_corpus(PAPERS, CITING)
    config = PairsConfig.of(SETTINGS, unit="abstract", domains={"domains": domains, **more})
    with open_engine(config, beside=corpus.path) as engine:
        papers, citations = engine.read(corpus.papers), engine.read(corpus.citations)
        texts = engine.compute(select_folded_texts("abstract", papers, citations))
        return domains_of_works(engine, config, texts, papers, citations, None)[1] or {}


def test_papers_are_counted_per_domain_in_several_and_in_none() -> None:
    counts = counts_of({"n": {"subjects": ["Neuro*"]}, "b": {"mesh": ["Brain"]}, "t": {"title": ["paper"]}})
    assert counts["per_domain"] == {"n": 4, "b": 1, "t": 3}
    assert (counts["in_several"], counts["in_none"]) == (5, 0)
    counts = counts_of({"n": {"subjects": ["Neuroscience"]}}, none="rest")
    assert counts["per_domain"] == {"n": 4, "rest": 4}
    assert (counts["in_several"], counts["in_none"]) == (0, 4)


@pytest.mark.parametrize(("several", "a", "z"), [("first", "n", ""), ("drop", "", ""), ("each", "gn", "gn")])
def test_works_outside_the_corpus_that_two_domains_cite_as_often(several: str, a: str, z: str) -> None:
    papers = [
        {"paper_id": "both", "title": "Both", "subjects": ["Neuroscience", "Genomics"]},
        {"paper_id": "one", "title": "One", "subjects": ["Genomics"]},
        {"paper_id": "other", "title": "Other", "subjects": ["Neuroscience"]},
    ]
    citing = [
        {"citing": paper, "cited": f"10.1234/{work}", "cited_title": f"The work {work}"}
        for paper, works in (("both", "a"), ("one", "dz"), ("other", "gz"))
        for work in works
    ]
    corpus = tables_corpus(papers, citing)
    rules = {"n": {"subjects": ["Neuroscience"]}, "g": {"subjects": ["Genomics"]}}
    config = PairsConfig.of(SETTINGS, unit="title", domains={"domains": rules, "several": several})
    with open_engine(config, beside=corpus.path) as engine:
        papers_read, citations = engine.read(corpus.papers), engine.read(corpus.citations)
        texts = engine.compute(select_folded_texts("title", papers_read, citations))
        table, _ = domains_of_works(engine, config, texts, papers_read, citations, None)
        rows = engine.rows(f"SELECT paper_id, domain FROM {table} ORDER BY paper_id, domain").to_pylist()
    found = {
        work: "".join(row["domain"] for row in rows if row["paper_id"].endswith(f"/{work}"))
        for work in "adgz"
    }
    assert found == {"a": a, "d": "g", "g": "n", "z": z}


def test_rules_without_a_match_are_named_with_what_is_close(capsys: pytest.CaptureFixture[str]) -> None:
    rules = {
        "n": {"subjects": ["Neuroscience", "Neurosience"], "mesh": ["brian", "Brain"], "title": ["zebra"]},
        "c": {"subjects": ["Cell*"]},
    }
    counts = counts_of(rules)
    assert counts["rules_without_a_match"] == [
        "n.subjects: 'Neurosience' matches no paper (did you mean 'Neuroscience', 4 papers?)",
        "n.mesh: 'brian' matches no paper (did you mean 'Brain', 5 papers?)",
        "n.title: 'zebra' matches no paper",
    ]
    assert capsys.readouterr().err.count("warning: `domains`: n.") == 3


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"n": {"subjects": ["Neurosience"]}, "c": {"subjects": ["Cell Biology"]}},
            r"the domain n gets no paper .*did you mean 'Neuroscience'.*"
            r"`count_values` lists",
        ),
        ({"n": {"subjects": ["Neuro*"]}, "again": {"mesh": ["*"], "years": [1, 2]}}, "of other years"),
        (
            {"n": {"subjects": ["*"]}, "again": {"subjects": ["Neuro*"]}},
            "again .*belong to another domain",
        ),
        ({"n": {"subjects": ["Neuro*"]}, "a": {}}, "it has no rule"),
    ],
)
def test_a_domain_without_a_paper_is_an_error_that_says_why(rules: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compile_pairs(tables_corpus(PAPERS, CITING), SETTINGS, domains=rules)


def test_values_of_a_corpus_are_listed() -> None:
    corpus = tables_corpus(PAPERS, CITING)
    assert corpus.count_values("subjects") == {"Neuroscience": 4, "Cell Biology": 3}
    assert corpus.count_values("mesh") == {"Brain": 5}
    words = ["Mouse", "mouse", "mouse", "Fly", "mouse; MOUSE"]
    rows = [{"id": n, "title": "T", "keywords": word} for n, word in enumerate(words)]
    assert tables_corpus(rows).count_values("keywords") == {"mouse": 4, "Fly": 1}
    assert corpus.count_values("subjects", limit=1) == {"Neuroscience": 4}
    with pytest.raises(UsageError, match="there are subjects, mesh"):
        corpus.count_values("colour")


def test_descriptors_that_changed_are_other_rules(tmp_path: Path) -> None:
    rules(tmp_path, {"mesh_descriptors": "desc.xml", "domains": {"cvd": {"mesh": ["C14"]}}})
    rows = [
        {"id": str(n), "title": f"A {n}", "abstract": f"Text {n}.", "mesh": "Heart Failure"}
        for n in range(60)
    ]
    citations = [{"citing": str(n), "cited": str((n + step) % 60)} for n in range(60) for step in (1, 2)]
    corpus = tables_corpus(rows, citations)
    given = {"domains": tmp_path / "rules.yaml", "out": tmp_path / "pairs", "split": "random"}
    given["fractions"] = [0.6, 0.2, 0.2]
    first = compile_pairs(corpus, **given)
    assert compile_pairs(corpus, **given).fingerprint() == first.fingerprint()
    (tmp_path / "desc.xml").write_text(DESCRIPTORS.replace("C14", "C15"))
    with pytest.raises(UsageError, match="other domains"):
        compile_pairs(corpus, **given)
    (tmp_path / "desc.xml").unlink()
    with pytest.raises(InputError, match=r"desc\.xml: no such file"):
        compile_pairs(corpus, **given)
