"""iCite: links of its API and of its whole table are the same."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from helpers.replay_server import Replay
from sentence_experts.corpus.sources.icite import bulk_links, fetch_links, fetched_links
from sentence_experts.errors import InputError


def a_graph(papers: int = 1_200, citations: int = 6_000) -> list[tuple[int, int]]:
    rng = random.Random(0)
    drawn = {(rng.randrange(1, 2 * papers), rng.randrange(1, papers)) for _ in range(citations)}
    return sorted((citing, cited) for citing, cited in drawn if citing != cited)


def serve(world: Replay, graph: list[tuple[int, int]]) -> None:
    for citing, cited in graph:
        world.links.setdefault(str(cited), {"cited_by": [], "references": []})["cited_by"].append(citing)
        world.links.setdefault(str(citing), {"cited_by": [], "references": []})["references"].append(cited)


def test_each_link_comes_once_in_requests_of_1000_papers(world: Replay, connect) -> None:
    graph = a_graph()
    serve(world, graph)
    pmids = [str(n) for n in range(1, 1_151)]
    requests = connect()
    list(fetch_links(requests, [*pmids, "5000000"]))
    assert [len(params["pmids"][0].split(",")) for _, params in world.asked] == [1000, 151]
    inside = set(pmids)
    wanted = sorted((str(a), str(b)) for a, b in graph if str(a) in inside or str(b) in inside)
    assert sorted(fetched_links(requests, [*pmids, "5000000"])) == wanted
    list(fetch_links(requests, [*pmids, "5000000"]))
    assert len(world.asked) == 2, "nothing is fetched twice, not even what iCite does not know"


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_the_whole_table_gives_the_same_links(world: Replay, connect, tmp_path: Path, kind: str) -> None:
    import duckdb

    graph = a_graph()
    serve(world, graph)
    plain = tmp_path / "open_citation_collection.csv"
    plain.write_text("citing,referenced\n" + "".join(f"{a},{b}\n" for a, b in graph))
    table = tmp_path / f"links.{kind}"
    duckdb.sql(f"COPY (FROM read_csv('{plain}')) TO '{table}'")
    pmids = [str(n) for n in range(1, 400)]
    requests = connect()
    list(fetch_links(requests, pmids))
    of_api = sorted((f"pmid:{a}", f"pmid:{b}") for a, b in fetched_links(requests, pmids))
    found = bulk_links(table, pmids, threads=1).read_all()
    assert list(zip(*(found[name].to_pylist() for name in ("citing", "cited")), strict=True)) == of_api


def test_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        bulk_links(tmp_path / "none.csv", ["1"], 1)
    (tmp_path / "bad.csv").write_text("a,b\nx,y\n")
    with pytest.raises(InputError, match=r"bad\.csv: not a table of citing,referenced"):
        bulk_links(tmp_path / "bad.csv", ["1"], 1).read_all()


@pytest.mark.realdata
def test_recorded_answers_are_understood(world: Replay, connect, real_data: Path) -> None:
    for name, pmid in (("pub_with_references.json", "32162448"), ("pubs_two_pmids.json", "27599104")):
        body = (real_data / "formats" / "icite" / name).read_bytes()
        world._icite = lambda rest, params, body=body: body  # type: ignore[method-assign]
        requests = connect()
        list(fetch_links(requests, [pmid]))
        record = next(one for one in json.loads(body)["data"] if one["pmid"] == int(pmid))
        wanted = {(str(one), pmid) for one in record["cited_by"]}
        wanted |= {(pmid, str(one)) for one in record["references"]}
        assert set(fetched_links(requests, [pmid])) == wanted


def test_older_answers_of_icite_are_read(world: Replay, connect) -> None:
    world.links["7"] = {"cited_by": "8 9", "references": ""}  # type: ignore[dict-item]
    requests = connect()
    list(fetch_links(requests, ["7"]))
    assert list(fetched_links(requests, ["7"])) == [("8", "7"), ("9", "7")]
