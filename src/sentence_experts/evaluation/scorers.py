"""Labelled pairs, and functions that score them: an encoder's cosines, TF-IDF (2025 paper), memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError, RouteError
from sentence_experts.evaluation.models import ANY_KEY
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.pairs.dataset import LINKED_BY, describe_domain
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.progress import Advance, announce, progress
from sentence_experts.storage.text_cache import TEXTS_PER_PART, TextCache

logger = logging.getLogger(__name__)

PAIR_COLUMNS = ("anchor", "positive", "label", "domain", "anchor_id", "positive_id")

# Anchors, positives and their domain -> the similarity of each pair, shape (pairs,).
Score = Callable[[Sequence[str], Sequence[str], str], NDArray[np.float64]]
COSINE_DIGITS = 12  # so that pairs of equal texts, whose cosines differ from 1 by rounding, are ties
TFIDF_FEATURES = 4096  # 2025 paper, "Models of choice"
_UNSPACED = (  # from Thai to Chinese
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f"
    r"\U00020000-\U0003ffff"
)
_WORD = rf"[^\W{_UNSPACED}]{{2,}}|(?=\w)[{_UNSPACED}]"
TFIDF_LABEL, MEMORY_LABEL = "TF-IDF", "memory of training"


@dataclass(frozen=True)
class Scorer:
    """A function that scores pairs; `settings` identify its model, after it has scored."""

    label: str
    score: Score
    settings: Callable[[], dict[str, Any]] = dict


def check_table(table: pa.Table, where: str = "the pairs") -> pa.Table:
    """Return the columns of pairs that an evaluation needs.

    Raises:
        InputError: a column is missing, a value is null, a label is not 0 or 1, or there are no pairs.
    """
    if missing := [column for column in PAIR_COLUMNS if column not in table.column_names]:
        raise InputError(f"{where}: no column {missing[0]!r}; columns are {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise InputError(f"{where}: no pairs to evaluate")
    for column in PAIR_COLUMNS:
        if table[column].null_count:
            raise InputError(f"{where}: row {table[column].to_pylist().index(None)} has no {column}")
    if not set(labels := table["label"].unique().to_pylist()) <= {0, 1}:
        raise InputError(f"{where}: labels must be 0 or 1, not {labels[:5]}")
    return table.select([*PAIR_COLUMNS, *({LINKED_BY} & set(table.column_names))])


def domains_of(table: pa.Table) -> list[str]:
    """Return the domains in the table, sorted."""
    return sorted(table["domain"].unique().to_pylist())


def rows_of(table: pa.Table, domain: str) -> NDArray[np.int64]:
    """Return the numbers of a domain's rows."""
    return np.flatnonzero(pc.equal(table["domain"], domain).to_numpy(zero_copy_only=False))


def texts_by_domain(table: pa.Table) -> dict[str, list[str]]:
    """Return domain -> its distinct texts, sorted."""
    texts = {}
    for domain in domains_of(table):
        rows = table.take(pa.array(rows_of(table, domain)))
        texts[domain] = sorted({*rows["anchor"].to_pylist(), *rows["positive"].to_pylist()})
    return texts


def score_pairs(score: Score, table: pa.Table) -> NDArray[np.float64]:
    """Return the similarity of each row of a checked table, shape (pairs,)."""
    scores = np.empty(table.num_rows, dtype=np.float64)
    for domain in domains_of(table):
        rows = rows_of(table, domain)
        part = table.take(pa.array(rows))
        scores[rows] = score(part["anchor"].to_pylist(), part["positive"].to_pylist(), domain)
    return scores


def tfidf_scorer(training_texts: Mapping[str, Sequence[str]], label: str = TFIDF_LABEL) -> Scorer:
    """Return a scorer by the cosine of TF-IDF vectors of 4,096 features, fitted on each domain (2025 paper).

    The paper does not state on which texts. Here it is fitted on the training texts of the domain, as a
    trained model is; without training texts, on the evaluated texts. All other settings are scikit-learn's
    defaults, but each letter of a script without spaces is a word. A pair scores 0 if a text has no known
    word; a domain without any word is an `InputError`.
    """
    fitted: dict[str, str] = {}

    @announce("scoring pairs by TF-IDF")
    def score(anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        training = training_texts.get(domain, ())
        if not training and domain not in fitted:
            where = describe_domain(domain)
            logger.warning(
                f"TF-IDF is fitted on the texts that are evaluated: none is for training in {where}"
            )
        fitted[domain] = "train" if training else "evaluated"
        # Distinct and sorted, so that neither repetition nor order of the pairs matters.
        texts = sorted(set(training or (*anchors, *positives)))
        try:
            vectorizer = TfidfVectorizer(max_features=TFIDF_FEATURES, token_pattern=_WORD).fit(texts)
        except ValueError as error:
            raise InputError(f"TF-IDF cannot be fitted on domain {domain}: {error}") from error
        product = vectorizer.transform(anchors).multiply(vectorizer.transform(positives))
        return np.asarray(product.sum(axis=1), dtype=np.float64).ravel().round(COSINE_DIGITS)

    made = {"model": "tfidf", "max_features": TFIDF_FEATURES}
    return Scorer(label, score, lambda: {**made, "fitted_on": dict(sorted(fitted.items()))})


def memory_score(train: pa.Table) -> Score:
    """Return a function for the cosine of two texts' neighbourhoods in the linked training pairs.

    A neighbourhood includes the text itself. Texts that training pairs link, or link to the same others, are
    similar; texts that are not in training pairs are similar to nothing. If the sets share no text, every
    score is 0 and the ROC-AUC 0.5: anything above can be reached by memory, without understanding.
    """
    from scipy.sparse import coo_array, csr_array, eye_array
    from sklearn.preprocessing import normalize

    linked = train.filter(pc.equal(train["label"], 1))
    ends = [fold_texts(linked[name]).to_pylist() for name in ("anchor", "positive")]
    row_of = {text: row for row, text in enumerate(sorted({*ends[0], *ends[1]}))}
    size = len(row_of)
    rows, columns = ([row_of[text] for text in texts] for texts in ends)
    links = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)).tocsr()
    near = normalize(csr_array(((links + links.T + eye_array(size)) > 0).astype(np.float64)))

    def score(anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        one, other = (
            np.array([row_of.get(text, -1) for text in fold_texts(pa.array(texts)).to_pylist()], dtype=int)
            for texts in (list(anchors), list(positives))
        )
        known = (one >= 0) & (other >= 0)
        scores = np.zeros(len(known))
        scores[known] = np.asarray(near[one[known]].multiply(near[other[known]]).sum(axis=1)).ravel()
        return scores

    return score


def encoder_score(
    encoder: BatchEncoder,
    routes: Mapping[str, str | None],
    label: str | None = None,
    cache: Path | None = None,
) -> Score:
    """Return a function for the cosine of two texts' vectors under their domain's route (`routes_by_domain`).

    `cache` is a folder for the vectors of any number of models, which evaluations may share. Those that
    depend on the other texts of their batch are not cached.
    """

    def vectors(texts: list[str], route: str | None) -> Vectors:
        what = f"{label or encoder.name}{f' [{route}]' if route else ''}: encoding"
        with progress(what, len(texts)) as advance:
            if cache is None or encoder.standard_batch:
                return encode_in_parts(encoder, texts, route, advance)
            name = f"{encoder.name}-{route}" if route else encoder.name
            stored = TextCache(cache, name, encoder.cache_key(route))
            encode = lambda some: {"vector": encoder.encode(some, route)}  # noqa: E731
            return stored.fetch(texts, encode, advance)["vector"]

    return lambda anchors, positives, domain: cosine_by_text(
        anchors, positives, lambda texts: vectors(texts, routes[domain])
    )


def warn_of_no_prompt(
    label: str, encoder: BatchEncoder, routes: Mapping[str, str | None], hint: str = ""
) -> None:
    """Warn of a model with routes that encodes the texts of every domain without one."""
    if encoder.routes and not any(routes.values()):
        known = f"{hint or 'the model has'} {', '.join(encoder.routes)}"
        logger.warning(f"{label}: texts are encoded without a prompt; {known}")


def cosine_by_text(
    anchors: Sequence[str], positives: Sequence[str], encode: Callable[[list[str]], NDArray[np.float32]]
) -> NDArray[np.float64]:
    """Return the cosine of each pair, every distinct text encoded once.

    Texts are encoded in a fixed order (longest first), so a score depends neither on the order of the pairs
    nor on the side of a text.
    """
    texts = sorted({*anchors, *positives}, key=lambda text: (-len(text), text))
    row = {text: index for index, text in enumerate(texts)}
    vectors = encode(texts)
    found = cosines(vectors[[row[text] for text in anchors]], vectors[[row[text] for text in positives]])
    return found.round(COSINE_DIGITS)


def encode_in_parts(
    encoder: BatchEncoder, texts: Sequence[str], route: str | None, advance: Advance
) -> Vectors:
    """Encode many texts, and report to `advance`."""
    size = encoder.cut_between_batches(TEXTS_PER_PART)
    parts = [
        encoder.encode(texts[start : start + size], route, advance=advance)
        for start in range(0, len(texts), size)
    ]
    return np.concatenate(parts) if parts else encoder.encode([])


def routes_by_domain(
    known: KnownRoutes, domains: Sequence[str], route_map: Mapping[str, str] | None = None
) -> dict[str, str | None]:
    """Return the route for the texts of each domain; None for no prompt.

    The route has the domain's name, or is in `route_map` (domain -> route, "*" for all other domains; None
    where users cannot give one). A model without experts that has none of these routes takes its default
    prompt, if it has one. A model with a single route uses it for every domain: a single-domain model is
    evaluated with its own token everywhere (2025 paper, Table 3). Any other model must have all routes.

    Raises:
        RouteError: a route is missing.
    """
    given = route_map or {}
    for route in given.values():
        known.choose(route)
    wanted: dict[str, str | None] = {
        domain: given.get(domain, given.get(ANY_KEY, domain)) for domain in domains
    }
    missing = [domain for domain, route in wanted.items() if route not in known.prompts]
    dense = not (known.experts and known.prompts)
    if dense and (known.default or len(missing) == len(wanted)):
        return {domain: known.default if domain in missing else route for domain, route in wanted.items()}
    if len(known.prompts) == 1:
        return dict.fromkeys(domains, next(iter(known.prompts)))
    if missing:
        hint = "" if route_map is None else f"; name one with `route_map` {missing[0]}=ROUTE"
        raise RouteError(
            f"{known.model} has no route for {describe_domain(missing[0])}; its routes: "
            f"{', '.join(sorted(known.prompts)) or 'none'}{hint}"
        )
    return wanted
