"""Small JATS articles made for one test each."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq

from helpers.read_sources import ReadSources
from sentence_experts.corpus.corpus_folder import CorpusFolder


def jats(
    doi: str | None = "10.1000/a", *, ids: str = "", title: str = "A title", meta: str = "", refs: str = "",
    kind: str = "research-article", abstract: str | None = "An abstract.", tail: str = "",
) -> str:  # fmt: skip
    """One article; `refs` are `<ref>` elements, `meta` stands after the dates, `tail` after `back`."""
    own = f'<article-id pub-id-type="doi">{doi}</article-id>' if doi else ""
    main = f"<abstract><p>{abstract}</p></abstract>" if abstract else ""
    return (
        '<article xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:mml="http://www.w3.org/1998/Math/MathML" '
        f'article-type="{kind}"><front><article-meta>{own}{ids}<title-group><article-title>{title}</article-title>'
        f"</title-group><pub-date><year>2010</year></pub-date>{meta}{main}</article-meta></front>"
        f"<body><p>Body</p></body><back><ref-list>{refs}</ref-list></back>{tail}</article>"
    )


def ref(**ids: str) -> str:
    """A reference by its ids (doi, pmid, pmcid), with a title if `title` is given."""
    title = f"<article-title>{ids.pop('title')}</article-title>" if "title" in ids else ""
    listed = "".join(f'<pub-id pub-id-type="{kind}">{value}</pub-id>' for kind, value in ids.items())
    return f"<ref><element-citation>{title}{listed}</element-citation></ref>"


def rejected(corpus: CorpusFolder | ReadSources) -> list[dict[str, Any]]:
    return [json.loads(line) for line in corpus.rejected.read_text("utf-8").splitlines()]


def papers(corpus: CorpusFolder | ReadSources) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(corpus.papers).to_pylist()
    return rows


def links(corpus: CorpusFolder) -> list[tuple[str, str | None]]:
    return [(row["citing"], row["cited"]) for row in pq.read_table(corpus.citations).to_pylist()]
