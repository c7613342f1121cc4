"""Small PubMed records made for one test each."""

from __future__ import annotations

import gzip
from pathlib import Path

DATE = "<JournalIssue><PubDate><Year>2010</Year></PubDate></JournalIssue>"
ISSUE = f"<Journal>{DATE}<Title>Journal</Title></Journal>"


def article_ids(**ids: str) -> str:
    listed = "".join(f'<ArticleId IdType="{kind}">{value}</ArticleId>' for kind, value in ids.items())
    return f"<ArticleIdList>{listed}</ArticleIdList>"


def record(
    pmid: str | None = "1", *, version: int = 1, title: str = "A title.", ids: str = "", issue: str = ISSUE,
    article: str = "", abstract: str = "<AbstractText>An abstract.</AbstractText>", citation: str = "",
    kinds: tuple[str, ...] = ("Journal Article",), references: str = "",
) -> str:  # fmt: skip
    """One `PubmedArticle`; `article` and `citation` stand inside `Article` and `MedlineCitation`."""
    number = f'<PMID Version="{version}">{pmid}</PMID>' if pmid else ""
    types = "".join(f"<PublicationType>{kind}</PublicationType>" for kind in kinds)
    return (
        f"<PubmedArticle><MedlineCitation>{number}<Article>{issue}<ArticleTitle>{title}</ArticleTitle>{article}"
        f"<Abstract>{abstract}</Abstract><PublicationTypeList>{types}</PublicationTypeList></Article>{citation}"
        f"</MedlineCitation><PubmedData>{ids}<ReferenceList>{references}</ReferenceList></PubmedData></PubmedArticle>"
    )


def heading(name: str, *qualifiers: str) -> str:
    """A MeSH heading; a star before a part marks the major topic."""
    tags = ["DescriptorName", *["QualifierName"] * len(qualifiers)]
    parts = (
        f'<{tag} MajorTopicYN="{"Y" if part.startswith("*") else "N"}">{part.lstrip("*")}</{tag}>'
        for tag, part in zip(tags, (name, *qualifiers), strict=True)
    )
    return f"<MeshHeading>{''.join(parts)}</MeshHeading>"


def headings(*names: str) -> str:
    return f"<MeshHeadingList>{''.join(heading(name) for name in names)}</MeshHeadingList>"


def deletion(*pmids: str) -> str:
    listed = "".join(f'<PMID Version="1">{pmid}</PMID>' for pmid in pmids)
    return f"<DeleteCitation>{listed}</DeleteCitation>"


def record_set(*content: str) -> str:
    return f'<?xml version="1.0"?><PubmedArticleSet>{"".join(content)}</PubmedArticleSet>'


def packed_file(path: Path, *content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(record_set(*content).encode()))
    return path
