"""Real PMC articles behind the local server; what the bucket and esearch say of them is made."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

from helpers.replay_server import Article, Replay

_PMID = re.compile(rb'<article-id pub-id-type="pmid">(\d+)</article-id>')
_TITLE = re.compile(rb"<article-title>(.*?)</article-title>", re.DOTALL)
_YEAR = re.compile(rb"<pub-date[^>]*>.*?<year>(\d{4})</year>", re.DOTALL)


def serve_articles(world: Replay, archive: Path, queries: dict[str, str], most: int = 10_000) -> None:
    """Put the articles whose titles have a word into the bucket, and make the word's query find them.

    Args:
        world: takes the articles.
        archive: of JATS files named after their PMCIDs.
        queries: a query -> the word.
        most: how many articles a query finds at most.
    """
    found: dict[str, list[tuple[str, str]]] = {query: [] for query in queries}
    with tarfile.open(archive) as files:
        for member in files:
            if not member.name.endswith(".xml"):
                continue
            text = files.extractfile(member).read()  # type: ignore[union-attr]
            title, year, pmid = _TITLE.search(text), _YEAR.search(text), _PMID.search(text)
            pmcid = Path(member.name).stem
            for query, word in queries.items():
                if title and word.encode() in title[1].lower() and len(found[query]) < most:
                    world.articles[pmcid] = Article(pmcid, pmid[1].decode() if pmid else None, [text])
                    found[query].append((pmcid[3:], f"{year[1].decode() if year else 2015}/01/01"))
    world.queries |= {f"({query}) AND open access[filter]": ids for query, ids in found.items()}
