"""iCite, the NIH Open Citation Collection: who cites whom in PubMed, by PMID.

Source: Hutchins et al. 2019, "The NIH Open Citation Collection: A public access, broad coverage resource".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from sentence_experts.corpus.sources.answers import (
    CitationAnswer,
    CitationRecord,
    StoredCitations,
    fits,
    name_in,
    shaped,
)
from sentence_experts.corpus.sources.requests import IMPLAUSIBLE, Requests, batches_of
from sentence_experts.errors import InputError

_PMIDS_PER_REQUEST = 1_000
Links = tuple[str, str]
"""(citing PMID, cited PMID)"""


def fetch_links(requests: Requests, pmids: list[str]) -> Iterator[None]:
    """Fetch into the journal, under `icite/PMID`, who cites each paper and whom it cites; yields after each
    request."""
    journal = requests.journal
    missing = [pmid for pmid in pmids if not requests.has(f"icite/{pmid}", fits(StoredCitations))]

    def ask(batch: list[str]) -> None:
        params = {"pmids": ",".join(batch), "fl": "pmid,cited_by,references", "format": "json"}

        def check(body: bytes) -> None:
            if not shaped(CitationAnswer, body).data and len(batch) >= IMPLAUSIBLE:
                raise ValueError(f"empty for all {len(batch)} papers")

        body = requests.client.get(f"{requests.services.icite.url}/pubs", params, check)
        left, nameless = set(batch), False
        for item in shaped(CitationAnswer, body).data:
            try:
                record = shaped(CitationRecord, item)
            except ValueError as error:
                pmid = name_in(item, "pmid")
                requests.set_odd_aside("icite", pmid, error)
                left.discard(pmid or "")
                nameless = nameless or pmid not in batch
                continue
            if record.pmid in left:
                left.discard(record.pmid)
                links = record.model_dump(include={"cited_by", "references"})
                journal.put(f"icite/{record.pmid}", json.dumps(links).encode())
        # A bad record without a name may be that of any paper that is left.
        for pmid in () if nameless else left:
            journal.put(f"icite/{pmid}", None, "not in iCite")

    yield from requests.in_turn("icite", batches_of(missing, _PMIDS_PER_REQUEST), ask)


def fetched_links(requests: Requests, pmids: list[str]) -> Iterator[Links]:
    """The links that `fetch_links` stored: every citation of the papers or by them, each once."""
    usable = fits(StoredCitations)
    answers = {pmid: requests.stored(f"icite/{pmid}", usable) for pmid in pmids}
    known = {pmid: json.loads(answer.body) for pmid, answer in answers.items() if answer and answer.body}
    for pmid, links in known.items():
        yield from ((citing, pmid) for citing in links["cited_by"])
        # A reference to another of these papers is among the citations of that one.
        yield from ((pmid, cited) for cited in links["references"] if cited not in known)


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
