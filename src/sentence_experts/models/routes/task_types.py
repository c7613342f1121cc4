"""The routes of mteb's task types, and prompts under their names in saved models, for a stock mteb."""

from __future__ import annotations

import re
from collections.abc import Mapping

QUERY, DOCUMENT = ROLES = ("query", "document")
# Routes of queries and of documents, as models name them whose task file is not known.
QUERY_ROUTES = (
    (QUERY, DOCUMENT),
    (QUERY, "passage"),
    (QUERY, "corpus"),
    ("search_query", "search_document"),
    ("retrieval_query", "retrieval_document"),
    ("retrieval_query", "retrieval_passage"),
    ("retrieval.query", "retrieval.passage"),
    ("Retrieval-query", "Retrieval-document"),
    ("s2p_query", DOCUMENT),
    ("s2s_query", DOCUMENT),
)
SIDES = frozenset(side for pair in QUERY_ROUTES for side in pair)


def fold_name(name: str) -> str:
    """Return a name in small letters with one "_" for other signs, as protocols spell it in several ways.

    >>> fold_name("Retrieval.Query"), fold_name("search document"), fold_name("C++")
    ('retrieval_query', 'search_document', 'c++')
    """
    return re.sub(r"(?:[^\w+#]|_)+", "_", name.lower()).strip("_")  # "C++" is not "C"


# Where a model has one of these, none of its queries goes with documents that have no prompt.
DOCUMENT_ROUTES = (DOCUMENT, "passage", "corpus", "search_document", "retrieval_document")
# Types with a query and a document side; the other types have one.
TWO_SIDED = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
# (type, role) -> route. MoTE, 4 (trained tasks) and 5.3 (re-ranking as search; pair classification, STS and
# summarization as classification). Ours: retrieval and re-ranking with instructions, and several labels.
ROUTE_OF_TYPE: Mapping[tuple[str, str | None], str] = {
    **{(kind, role): role for kind in TWO_SIDED for role in ROLES},
    ("Classification", None): "classification",
    ("MultilabelClassification", None): "classification",
    ("Clustering", None): "clustering",
    ("PairClassification", None): "classification",
    ("STS", None): "classification",
    ("Summarization", None): "classification",
}


def _key(kind: str, role: str | None) -> str:
    """Return mteb's name of the prompt for a task type: "STS", "Retrieval-query"."""
    return f"{kind}-{role}" if role else kind


def with_task_types(prompts: Mapping[str, str | None], default: str | None) -> dict[str, str | None]:
    """Add mteb's task types to a model's prompts: each has its route's prompt, or else the default prompt."""
    extended = dict(prompts)
    for (kind, role), route in ROUTE_OF_TYPE.items():
        name = route if prompts.get(route) else default
        if name is not None and prompts.get(name):
            extended.setdefault(_key(kind, role), prompts[name])
    return extended


def without_task_types(prompts: Mapping[str, str | None], default: str | None) -> dict[str, str | None]:
    """Return a model's prompts without those that only repeat another one under the name of a task type."""
    types = {_key(*kind) for kind in ROUTE_OF_TYPE} - {default}
    others = {prompt for name, prompt in prompts.items() if name not in types}
    return {name: prompt for name, prompt in prompts.items() if name not in types or prompt not in others}
