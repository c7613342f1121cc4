"""Teaching by a few examples: `teach` beside MiniLM, Rocchio's method and a logistic regression.

    python benchmarks/few_shot.py --cache FOLDER [--draws 20] [--choose] [--times]

A draw takes queries among the labelled texts, and for each of them up to ten marks: texts that share a label
with it (similar) and texts that do not, half of each, from the 25 of either kind nearest to it by MiniLM, as
on a page of results. With 5 or 10 marks there is one query, with 30 three, with 100 ten. nDCG@10 is that of
all other labelled texts, for the marked queries ("same") and for 60 queries that nobody marked ("other"),
averaged in each draw. The interval is that of Student's t over the draws. Texts without a label of a facet
are left out.

- MiniLM: the cosine.
- Rocchio: the query is moved by the mean of similar texts and away from that of the others.
- regression: logistic regression on the marked vectors, similar or not; it knows no query.
- map: what `teach` fits.

The stored figures have one more way, `chosen`: the map, or Rocchio where that was clearly better in
cross-validation, as `teach` had it until the map alone proved as good or better.

`--choose` measures settings (the penalty of the map, the factors of Rocchio, C of the regression) on other
data than what is reported: emotions of tweets, intents of Banking77 and 20 Newsgroups. `--times` measures the
time from marks to a searched column in made-up libraries, and the memory of fifty taught routes. Vectors are
kept in the cache.
"""

from __future__ import annotations

import gzip
import json
import lzma
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

from measuring import DATA, ELIFE, options, table, write
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.teaching import Examples, fit_head

MARKS, PER_QUERY, NEAR, OTHERS, TOP, FEWEST = (5, 10, 30, 100), 10, 25, 60, 10, 12
FACETS = ("use", "works-with", "uitoolkit", "implemented-in")
OTHER_DATA = {"tweet_emotion_test": 1421, "banking77_test": 1500, "twentynewsgroups_test": 1200}
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3)
FACTORS = ((0.75, 0.15), (1.0, 0.5), (1.0, 1.0), (2.0, 1.0))
REGRESSIONS, REGRESSION = (1.0, 10.0, 100.0), 1.0  # the last was chosen, as the settings of `teaching`
DISCOUNTS = 1 / np.log2(np.arange(2, TOP + 2))

Rank = Callable[[NDArray[Any]], NDArray[Any]]  # queries' vectors -> scores (queries, texts)
Labels = NDArray[np.bool_]  # (texts, labels)


# ---- data ----------------------------------------------------------------------------------------


def encoded(cache: Path, name: str, texts: Callable[[], list[str]]) -> NDArray[np.float32]:
    """MiniLM's vectors of texts, from the cache if they are there."""
    file = cache / f"{name}.npy"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(file, BatchEncoder.open("minilm").encode(texts(), normalize=True))
    return np.asarray(np.load(file), np.float32)


def labelled(vectors: NDArray[Any], labels: list[set[str]]) -> tuple[NDArray[Any], Labels]:
    """The texts with labels, as a table of booleans."""
    names = sorted(set().union(*labels))
    members = np.array([[name in each for name in names] for each in labels])
    kept = members.any(axis=1)
    return unit(vectors[kept]), members[kept]


def other_data(cache: Path) -> dict[str, tuple[NDArray[Any], Labels]]:
    """The sets that settings are chosen on."""
    sets = {}
    for name, count in OTHER_DATA.items():
        with gzip.open(DATA / "eval" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        rows = [rows[each] for each in np.random.default_rng(0).permutation(len(rows))[:count]]
        texts = [(each.get("text") or f"{each['subject']} {each['body']}")[:1500] for each in rows]
        vectors = encoded(cache, name, lambda texts=texts: texts)  # type: ignore[misc]
        sets[name] = labelled(vectors, [{str(each.get("label_name", each["label"]))} for each in rows])
    return sets


def read_programs() -> list[dict[str, Any]]:
    """One program of each source package of Debian."""
    programs: dict[str, dict[str, Any]] = {}
    with lzma.open(DATA / "facets" / "debian_packages_tagged.jsonl.xz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if "role::program" in row["tags"]:
                programs.setdefault(row["source"], row)
    return list(programs.values())


def values_of(program: Mapping[str, Any], facet: str) -> set[str]:
    """The values of a facet that a program has, without their parts."""
    return {tag.split("::")[1].split(":")[0] for tag in program["tags"] if tag.startswith(f"{facet}::")}


def read_articles(cache: Path) -> tuple[list[str], list[set[str]]]:
    """Texts of eLife's articles, and their research organisms."""
    import sentence_experts

    corpus = sentence_experts.import_corpus([DATA / ELIFE], out=cache / "elife")
    rows = [row for row in corpus.to_pandas().to_dict("records") if row["abstract"] and len(row["organisms"])]
    texts = [f"{row['title']}\n{row['abstract']}" for row in rows]
    return texts, [{each.lower() for each in row["organisms"]} - {"other", "none"} for row in rows]


def reported_data(cache: Path) -> dict[str, tuple[NDArray[Any], Labels]]:
    """Debian programs by facet, and eLife articles by research organism."""
    programs = read_programs()
    vectors = encoded(cache, "debian", lambda: [row["description"] for row in programs])
    sets = {
        f"Debian, {facet}": labelled(vectors, [values_of(row, facet) for row in programs]) for facet in FACETS
    }
    texts, organisms = read_articles(cache)
    sets["eLife, organism"] = labelled(encoded(cache, "elife_organisms", lambda: texts), organisms)
    return sets


# ---- draws ---------------------------------------------------------------------------------------


def draw(
    vectors: NDArray[Any], labels: Labels, count: int, dice: Any
) -> tuple[Examples, NDArray[Any], NDArray[Any]]:
    """Marks of some queries, the queries, and all texts that were used."""
    frequent = labels.sum(axis=0) >= FEWEST
    queries = dice.choice(
        np.flatnonzero(labels[:, frequent].any(axis=1)), max(count // PER_QUERY, 1), replace=False
    )
    rows, similar, groups = [], [], []
    for group, query in enumerate(queries):
        order = np.argsort(-(vectors @ vectors[query]), kind="stable")
        order = order[order != query]
        alike = (labels[order] & labels[query]).any(axis=1)
        marks = min(count, PER_QUERY)
        for kind, number in ((True, (marks + 1) // 2), (False, marks // 2)):
            near = order[alike == kind][:NEAR]
            chosen = dice.choice(near, min(number, len(near)), replace=False)
            rows += chosen.tolist()
            similar += [kind] * len(chosen)
            groups += [group] * len(chosen)
    examples = Examples(
        vectors[rows], np.array(similar), np.array(groups), vectors[queries], papers=np.array(rows)
    )
    return examples, queries, np.union1d(rows, queries)


def ndcg(
    rank: Rank, vectors: NDArray[Any], labels: Labels, queries: NDArray[Any], used: NDArray[Any]
) -> float:
    """The mean nDCG@10 of queries among the texts that were not used; NaN if none has a relevant one."""
    figures = []
    for query, scores in zip(queries, rank(vectors[queries]), strict=True):
        relevant = (labels & labels[query]).any(axis=1)
        relevant[used] = relevant[query] = False
        scores = scores.copy()
        scores[used] = scores[query] = -np.inf
        if best := min(int(relevant.sum()), TOP):
            top = np.argsort(-scores, kind="stable")[:TOP]
            figures.append(float(relevant[top] @ DISCOUNTS / DISCOUNTS[:best].sum()))
    return float(np.mean(figures)) if figures else float("nan")


def cosines(vectors: NDArray[Any], move: Any = 0.0) -> Rank:
    """The cosines, of queries that are moved."""
    return lambda queries: unit(queries + move) @ vectors.T


def taught(examples: Examples, vectors: NDArray[Any], *penalty: float) -> Rank:
    """The cosines under a taught route."""
    change = fit_head(examples, *penalty)
    papers = change.apply(vectors)
    return lambda queries: change.apply(queries) @ papers.T


def regression(examples: Examples, vectors: NDArray[Any], strength: float) -> Rank:
    """The scores of a logistic regression, the same for every query."""
    model = LogisticRegression(C=strength, class_weight="balanced", max_iter=1000)
    scores = vectors @ model.fit(examples.vectors, examples.similar).coef_[0]
    return lambda queries: np.tile(scores, (len(queries), 1))


def rocchio(examples: Examples, vectors: NDArray[Any], added: float = 1.0, taken: float = 1.0) -> Rank:
    """Rocchio's method (1971; Manning, Raghavan and Schütze 2008, section 9.1.1)."""
    means = [examples.vectors[each].mean(axis=0) for each in (examples.similar, ~examples.similar)]
    return cosines(vectors, added * means[0] - taken * means[1])


def reported_ways(examples: Examples, vectors: NDArray[Any]) -> dict[str, Rank]:
    """The ways of the table."""
    return {
        "MiniLM": cosines(vectors),
        "Rocchio": rocchio(examples, vectors),
        "regression": regression(examples, vectors, REGRESSION),
        "map": taught(examples, vectors),
    }


def ways_to_choose_from(examples: Examples, vectors: NDArray[Any]) -> dict[str, Rank]:
    """The settings that `--choose` compares."""
    ways = {"MiniLM": cosines(vectors)}
    ways |= {f"map, penalty {each:g}": taught(examples, vectors, each) for each in PENALTIES}
    ways |= {f"Rocchio {a:g}, {b:g}": rocchio(examples, vectors, a, b) for a, b in FACTORS}
    return ways | {f"regression, C {each:g}": regression(examples, vectors, each) for each in REGRESSIONS}


def measure(
    sets: Mapping[str, tuple[NDArray[Any], Labels]],
    ways: Callable[[Examples, NDArray[Any]], Mapping[str, Rank]],
    draws: int,
) -> list[dict[str, Any]]:
    """Measure each way on each set: one row per set, number of marks, queries and way, with all draws."""
    rows = []
    for name, (vectors, labels) in sets.items():
        for count in MARKS:
            values: dict[tuple[str, str], list[float]] = {}
            for seed in range(draws):
                dice = np.random.default_rng(seed)
                examples, queries, used = draw(vectors, labels, count, dice)
                free = np.setdiff1d(np.arange(len(vectors)), used)
                others = dice.choice(free, OTHERS, replace=False)
                for way, rank in ways(examples, vectors).items():
                    for which, asked in (("same", queries), ("other", others)):
                        values.setdefault((which, way), []).append(ndcg(rank, vectors, labels, asked, used))
            rows += [
                {"set": name, "marks": count, "queries": which, "way": way, "values": each}
                for (which, way), each in values.items()
            ]
            print(
                name,
                count,
                {key: round(float(np.nanmean(each)), 3) for key, each in values.items()},
                flush=True,
            )
    return rows


def with_half(values: Any, form: str = ".3f") -> str:
    """A mean with half of its 95% interval."""
    values = np.asarray(values)[np.isfinite(values)]
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():{form}} ±{half:.3f}"


# ---- times ---------------------------------------------------------------------------------------


def measure_times(cache: Path) -> list[dict[str, Any]]:
    """Seconds from marks to a searched column, and bytes of fifty taught routes, by the number of papers."""
    import sentence_experts
    from sentence_experts.retrieval.search_routes import Blend
    from sentence_experts.retrieval.searcher import Searcher
    from sentence_experts.retrieval.taught import Mark, ProfileState
    from sentence_experts.retrieval.taught_routes import TaughtRoutes
    from sentence_experts.retrieval.teach import learn

    class MadeUp(BatchEncoder):
        """Random vectors: the time to encode a library is not measured here."""

        def encode(self, texts: Any, *given: Any, **options: Any) -> NDArray[np.float32]:
            vectors = np.random.default_rng(len(texts)).normal(size=(len(texts), 384))
            return unit(vectors.astype(np.float32))

    encoder, rows = MadeUp(BatchEncoder.open("minilm").model, name="minilm"), []
    for size in (1_000, 20_000, 200_000):
        papers = ({"id": f"p{n}", "title": f"Paper {n} of {n % 997}", "abstract": f"words {n % 1009} " * 60}
                  for n in range(size))  # fmt: skip
        corpus = sentence_experts.import_corpus(papers=list(papers), out=cache / f"made_up_{size}")
        searcher = Searcher(encoder, corpus)
        on = searcher.blend().main
        searcher.vectors(on)
        searcher.scale(Blend((on,)))
        for marks in (8, 100, 400):
            given = [Mark(paper=f"p{n}", similar=n % 2 == 0, query=f"query {n // 10}") for n in range(marks)]
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                result = learn(searcher, on, given, "mine")
                taught_at = time.perf_counter()
                entry = result.entry(searcher, on, given).model_copy(update={"kind": "head"})
                route = TaughtRoutes(searcher, ProfileState(routes={"mine": entry}))["mine"]
                blend = Blend((route,))
                (compared,) = searcher.compare(searcher.encode(["a text"], blend), blend)
                searcher.find(compared, 10)
                seconds.append((taught_at - start, time.perf_counter() - taught_at))
            teach, column = np.median(seconds, axis=0)
            rows.append({"papers": size, "marks": marks, "teach": float(teach), "column": float(column)})
            print(rows[-1], flush=True)
        routes = TaughtRoutes(searcher, ProfileState(routes={f"r{n}": entry for n in range(50)}))
        tracemalloc.start()
        for name in routes:
            searcher.vectors(routes[name])
        rows[-1]["fifty"] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return rows


def main() -> None:
    """Measure and write the results."""
    args = options(__doc__, cache=Path("few_shot_cache"), draws=20, choose=False, times=False)
    if args.choose:
        rows = measure(other_data(args.cache), ways_to_choose_from, args.draws)
        ways = list(dict.fromkeys(row["way"] for row in rows))
        means = {
            (way, which): float(np.nanmean([
                np.nanmean(row["values"]) for row in rows if row["way"] == way and row["queries"] == which
            ]))
            for way in ways for which in ("same", "other")
        }  # fmt: skip
        lines = [[way, *(f"{means[way, which]:.3f}" for which in ("same", "other"))] for way in ways]
        text = table(["setting", "same queries", "other queries"], lines)
        write(
            "few_shot_settings",
            {"draws": args.draws, "rows": rows},
            f"# Settings of `teach`: mean nDCG@10\n\n{text}",
        )
        return
    if args.times:
        rows = measure_times(args.cache)
        lines = [
            [f"{row['papers']:,}", str(row["marks"]), f"{row['teach']:.2f}", f"{row['column']:.2f}",
             f"{row['fifty'] / 1e6:.0f}" if "fifty" in row else ""]
            for row in rows
        ]  # fmt: skip
        text = table(["papers", "marks", "seconds to teach", "to the new column", "MB of 50 routes"], lines)
        write("few_shot_times", {"rows": rows}, f"# Time to teach, and memory of taught routes\n\n{text}")
        return
    rows = measure(reported_data(args.cache), reported_ways, args.draws)
    found = {(row["set"], row["marks"], row["queries"], row["way"]): np.array(row["values"]) for row in rows}
    parts = []
    for which in ("same", "other"):
        lines = [
            [name, str(count), *(with_half(found[name, count, which, way])
                            for way in ("MiniLM", "Rocchio", "regression", "map")),
             with_half(found[name, count, which, "map"] - found[name, count, which, "Rocchio"], "+.3f")]
            for name in dict.fromkeys(row["set"] for row in rows) for count in MARKS
        ]  # fmt: skip
        heading = ["labels", "marks", "MiniLM", "Rocchio", "regression", "map", "map - Rocchio"]
        parts.append(f"nDCG@10 of {which} queries:\n\n{table(heading, lines)}")
    told = f"{args.draws} draws of the marks; ± is half of a 95% interval over the draws (Student's t)."
    write("few_shot", {"draws": args.draws, "rows": rows}, "\n\n".join(["# A few examples", told, *parts]))


if __name__ == "__main__":
    main()
