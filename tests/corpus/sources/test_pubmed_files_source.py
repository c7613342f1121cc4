"""A corpus out of PubMed's baseline and update files: headings with their subtrees, years, the last state."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.replay_server import Replay, serving
from helpers.small_pubmed import deletion, headings, packed_file, record
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.fetching import estimate_fetch, fetch_corpus
from sentence_experts.errors import UsageError

PATIENCE = {"email": "a@b.org", "first_wait": 0.01}
TREE = {"Cardiovascular Diseases": "C14", "Heart Diseases": "C14.280", "Asthma": "C08.127.108"}


@pytest.fixture
def plan(tmp_path: Path) -> FetchConfig:
    folder = tmp_path / "pubmed"
    many = [record(str(n), title=f"Heart {n}.", citation=headings("Heart Diseases")) for n in range(1, 6)]
    both = record("8", title="Both.", citation=headings("Asthma", "Heart Diseases"))
    withdrawn = record("9", citation=headings("Asthma"), kinds=("Journal Article", "Retracted Publication"))
    packed_file(folder / "baseline" / "pubmed26n0001.xml.gz", *many, both, withdrawn)
    packed_file(
        folder / "updatefiles" / "pubmed26n0002.xml.gz",
        record("2", title="Newer 2.", citation=headings("Heart Diseases")),
        deletion("3"),
    )
    descriptors = tmp_path / "desc.xml"
    descriptors.write_text(
        "<DescriptorRecordSet>"
        + "".join(
            f"<DescriptorRecord><DescriptorUI>D{n}</DescriptorUI><DescriptorName><String>{name}</String>"
            f"</DescriptorName><TreeNumberList><TreeNumber>{number}</TreeNumber></TreeNumberList></DescriptorRecord>"
            for n, (name, number) in enumerate(TREE.items())
        )
        + "</DescriptorRecordSet>"
    )
    return FetchConfig(
        domains={"cvd": "Cardiovascular Diseases", "asthma": "Asthma"},
        source="pubmed-files",
        pubmed_files=folder,
        mesh_descriptors=descriptors,
    )


def test_heading_includes_its_subtree(plan: FetchConfig, tmp_path: Path) -> None:
    world = Replay()
    for pmid in ("1", "2", "8"):
        world.links[pmid] = {"cited_by": [501, 502], "references": []}
    with serving(world) as base:
        corpus = fetch_corpus(
            plan.model_copy(update={"services": FetchConfig(
                domains=plan.domains, services=world.services(base)).services}),
            tmp_path / "corpus", **PATIENCE, workers=1,
        )  # fmt: skip
    titles = {row["pmid"]: row["title"] for row in pq.read_table(corpus.papers).to_pylist()}
    assert titles == {"1": "Heart 1", "2": "Newer 2", "4": "Heart 4", "5": "Heart 5", "8": "Both"}
    domains = pq.read_table(corpus.domains).to_pylist()
    assert sorted(row["domain"] for row in domains if row["paper_id"] == "pmid:8") == ["asthma", "cvd"]
    assert {row["paper_id"] for row in domains if row["domain"] == "asthma"} == {"pmid:8"}
    assert '"retracted"' in corpus.rejected.read_text()
    assert pq.read_table(corpus.citations).num_rows == 6


def test_missing_settings_of_pubmed_files_are_named(plan: FetchConfig) -> None:
    with pytest.raises(UsageError, match="mesh_descriptors"):
        estimate_fetch(plan.model_copy(update={"mesh_descriptors": None}), **PATIENCE)
    with pytest.raises(UsageError, match="`dry_run` is not available"):
        estimate_fetch(plan, **PATIENCE)
    with pytest.raises(UsageError, match="has no heading 'Hart'"):
        estimate_fetch(plan.model_copy(update={"domains": {"a": "Hart"}}), **PATIENCE)
    with pytest.raises(UsageError, match="need `source=pubmed-files`"):
        FetchConfig.of(domains={"a": "b"}, years=(2010, 2012))
