"""iCite, the NIH Open Citation Collection: who cites whom in PubMed, by PMID.

Source: Hutchins et al. 2019, "The NIH Open Citation Collection: A public access, broad coverage resource".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sentence_experts.corpus.sources.http import is_json
from sentence_experts.corpus.sources.requests import Requests, batches_of
from sentence_experts.errors import InputError

_PMIDS_PER_REQUEST = 1_000
Links = tuple[str, str]
"""(citing PMID, cited PMID)"""


def fetch_links(requests: Requests, pmids: list[str]) -> Iterator[None]:
    """Fetch into the journal, under `icite/PMID`, who cites each paper and whom it cites; yields after each
    request."""
    journal = requests.journal
    missing = [pmid for pmid in pmids if journal.get(f"icite/{pmid}") is None]

    def ask(batch: list[str]) -> None:
        params = {"pmids": ",".join(batch), "fl": "pmid,cited_by,references", "format": "json"}
        body = requests.client.get(f"{requests.services.icite.url}/pubs", params, is_json)
        left = set(batch)
        for paper in json.loads(body).get("data") or []:
            pmid = str(paper.get("pmid"))
            if pmid in left:
                left.discard(pmid)
                kept = {name: _pmids(paper.get(name)) for name in ("cited_by", "references")}
                journal.put(f"icite/{pmid}", json.dumps(kept).encode())
        for pmid in left:
            journal.put(f"icite/{pmid}", None, "iCite does not know it")

    yield from requests.in_turn("icite", batches_of(missing, _PMIDS_PER_REQUEST), ask)


def fetched_links(requests: Requests, pmids: list[str]) -> Iterator[Links]:
    """The links that `fetch_links` stored: every citation of the papers or by them, each once."""
    answers = {pmid: requests.journal.get(f"icite/{pmid}") for pmid in pmids}
    known = {pmid: json.loads(answer.body) for pmid, answer in answers.items() if answer and answer.body}
    for pmid, links in known.items():
        yield from ((citing, pmid) for citing in links["cited_by"])
        # A reference to another of these papers is among the citations of that one.
        yield from ((pmid, cited) for cited in links["references"] if cited not in known)


def _pmids(value: Any) -> list[str]:
    """A list of numbers, or the older form, one text with spaces between them."""
    return [str(one) for one in (value.split() if isinstance(value, str) else value or [])]


def bulk_links(table: Path, pmids: list[str], threads: int, memory: str = "2GB") -> pa.RecordBatchReader:
    """The links of some papers from the whole collection (`open_citation_collection.csv`, about 870 million
    rows), in one pass over the file and bounded memory: columns `citing`, `cited` (`pmid:...`), in order and
    each pair once. `table` is CSV (also .gz or .zst) or Parquet with the columns `citing` and `referenced`.

    Raises:
        InputError: the file is missing, or has other columns.
    """
    if not table.is_file():
        raise InputError(f"{table}: no such file; unpack open_citation_collection.zip of an iCite snapshot")
    reader = "read_csv(?, header = true, columns = {citing: 'BIGINT', referenced: 'BIGINT'})"
    if table.suffix == ".parquet":
        reader = "read_parquet(?)"
    database = duckdb.connect(config={"threads": threads, "memory_limit": memory})
    wanted = pa.table({"pmid": pa.array([int(pmid) for pmid in pmids], pa.int64())})
    database.register("wanted", wanted)
    try:
        return database.sql(
            f"""SELECT DISTINCT 'pmid:' || citing AS citing, 'pmid:' || referenced AS cited
            FROM {reader}
            WHERE citing IN (SELECT pmid FROM wanted) OR referenced IN (SELECT pmid FROM wanted)
            ORDER BY ALL""",
            params=[str(table)],
        ).to_arrow_reader(1 << 16)
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{table}: not a table of citing,referenced PMIDs: {first}") from error
