"""What 200 million abstracts would cost, from a snapshot of OpenAlex to a searched index, by measured slopes.

    python benchmarks/scale.py [--abstracts 200000000] [--pairs 10000000] [--core-price 0.05] ...

Nothing is measured here: figures follow from files in `results/` and from the assumptions, each of which is a
flag. A slope is the power of the size that CPU time grows with, by least squares in logarithms. It extends
the largest size. It counts as 1 where it is less, as fixed costs make small sizes look dear, and as 1 where
texts are worked on in pieces of a fixed size.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from measuring import table
from sentence_experts.corpus import resolving
from sentence_experts.retrieval import approximate
from study import HERE, RESULTS

PAGE = HERE.parent / "docs" / "scale.md"
HOUR, GB, VECTOR = 3600, 1e9, 384 * 4  # seconds, bytes, bytes
PIECES = (1.0, 1.0)  # steps and chunks of a fixed size
PARTITIONS = (1.5, 2.0)  # every vector is compared with the centres of as many partitions as the root of all


def assumed(value: float, what: str) -> Any:
    """A field with a default and what it is."""
    return field(default=value, metadata={"help": what})


@dataclass(frozen=True)
class Assumptions:
    """What no benchmark here can tell; the flags of the script."""

    works: float = assumed(510e6, "works in the snapshot, as OpenAlex counts them")
    abstracts: float = assumed(200e6, "papers that are kept, with an abstract as long as those of eLife")
    references: float = assumed(10, "citations per paper that is kept, as in the generated snapshots")
    pairs: float = assumed(10e6, "pairs of abstracts in training, each used once")
    passes: float = assumed(3, "forward passes that a step of training is worth: 1, and 2 for backward")
    routes: float = assumed(1, "routes under which every abstract is encoded and indexed")
    snapshot_gb: float = assumed(330, "gzipped JSON lines of all records, as OpenAlex states")
    cores: float = assumed(16, "cores of a machine; import, pairs and index run on one machine")
    training_cores: float = assumed(64, "processes of `torchrun`, one core each")
    encoding_cores: float = assumed(256, "workers of Ray, one core each")
    memory_gb: float = assumed(64, "`--memory` of import")
    core_price: float = assumed(0.05, "of a core for an hour, in any currency: an example, not a quote")
    disk_price: float = assumed(0.05, "of a GB for a month: an example, not a quote")


@dataclass(frozen=True)
class Slope:
    """CPU seconds at sizes, ascending, and the limits of the power that an extrapolation takes."""

    step: str
    unit: str
    points: Sequence[tuple[float, float]]
    limits: tuple[float, float] = (1.0, 2.0)

    @property
    def power(self) -> float:
        """The power of the size that the seconds grow with."""
        sizes, seconds = np.log(np.array(self.points)).T
        return float(np.polyfit(sizes, seconds, 1)[0])

    @property
    def taken(self) -> float:
        """The power within the limits."""
        return float(np.clip(self.power, *self.limits))

    def at(self, size: float) -> float:
        """CPU seconds at a larger size."""
        return self.points[-1][1] * float((size / self.points[-1][0]) ** self.taken)

    def row(self, size: float) -> list[str]:
        """How far it was measured, and how far it is extended to `size`."""
        low, high = self.points[0][0], self.points[-1][0]
        span = [f"{number(low)} to {number(high)}", number(high / low), f"{self.power:.2f}"]
        return [self.step, self.unit, *span, f"{self.taken:.2f}", number(size), number(size / high)]


def number(value: float) -> str:
    """Two digits of a figure."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def read(name: str) -> dict[str, Any]:
    """A result of a benchmark."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def indexes() -> list[dict[str, Any]]:
    """Those of vectors in LanceDB, by size."""
    return [read(f"index_{size}") for size in (10_000, 100_000, 1_000_000)]


def slopes() -> dict[str, Slope]:
    """Those of all steps, from the results."""
    files = [f"openalex_import{size}" for size in ("_10000", "", "_1000000", "_10000000")]
    imports = sorted((row["works"], row["cpu_seconds"]) for file in files for row in read(file)["rows"])
    graphs = [one for file in ("co_citation", "co_citation_8GB") for one in read(file)["sizes"]]
    joins = [(g["citations"], np.median([run["cpu_seconds"] for run in g["runs"]["ours"]])) for g in graphs]
    builds = [(one["papers"], one["ways"]["lancedb"]["build_cpu_s"] / one["routes"]) for one in indexes()]
    tokens, speed = read("scale_sizes")["tokens"], read("encode")["kinds"]
    # Wall seconds of two threads, which count as busy all the time.
    encode = [
        (tokens[kind], 2 * speed[kind]["seconds"]["sentence-experts encode"])
        for kind in ("titles", "mix", "abstracts")
    ]
    return {
        "import": Slope("import", "works", imports),
        "pairs": Slope("pairs", "citations", sorted(joins)),
        "train": Slope("training", "tokens", encode, PIECES),
        "encode": Slope("encoding", "tokens", encode, PIECES),
        "index": Slope("index", "vectors", builds, PARTITIONS),
    }


@dataclass(frozen=True)
class Step:
    """A step at its size, on how many cores, with the GB that it keeps, and needs besides."""

    slope: Slope
    size: float
    cores: float
    kept: float = 0.0
    besides: float = 0.0
    times: float = 1.0

    @property
    def hours(self) -> float:
        """Core-hours."""
        return self.times * self.slope.at(self.size) / HOUR


def steps(given: Assumptions) -> dict[str, Step]:
    """All steps."""
    found, own = slopes(), read("scale_sizes")
    sizes, tokens = own["bytes"], own["tokens"]["abstract"]
    citations = given.abstracts * given.references
    corpus = (given.abstracts * sizes["paper"] + citations * sizes["citation"]) / GB
    vectors = given.abstracts * VECTOR / GB
    index = given.routes * (vectors + given.abstracts * sizes["lance_vector"] / GB)
    besides = given.snapshot_gb + corpus * (sizes["while_imported"] - 1)
    texts, encoded = 2 * given.pairs, given.abstracts * given.routes
    return {
        "import": Step(found["import"], given.works, given.cores, corpus, besides),
        "pairs": Step(found["pairs"], citations, given.cores, texts * sizes["paper"] / GB),
        "train": Step(found["train"], texts * tokens, given.training_cores, times=given.passes),
        "encode": Step(found["encode"], encoded * tokens, given.encoding_cores, vectors * given.routes),
        "index": Step(found["index"], given.abstracts, given.cores, index, vectors, given.routes),
    }


def costs(given: Assumptions, step: Step) -> list[str]:
    """The row of a step: core-hours, machines, hours, GB, cost."""
    cost = step.hours * given.core_price + (step.kept + step.besides) * given.disk_price
    figures = [number(one) for one in (step.hours / step.cores, step.kept, step.besides, cost)]
    return [step.slope.step, number(step.hours), f"{step.cores:g}", *figures]


def grows(given: Assumptions) -> list[list[str]]:
    """What limits a step: the quantity, at the largest size measured, and at the goal."""
    own, largest = read("scale_sizes"), read("openalex_import_10000000")["rows"][-1]

    def ranges(papers: float, citations: float, gigabytes: float) -> str:
        limit = resolving._SHARE_OF_DATABASE * gigabytes * GB
        texts = papers * own["bytes"]["paper_unpacked"] * resolving._SPACE_OF_PAPERS
        return " + ".join(number(one // limit + 1) for one in (texts, citations * resolving._BYTES_PER_LINK))

    goal = (given.abstracts, given.abstracts * given.references)
    small = (largest["papers"], largest["references"])
    plan = own["plan"][-1]["megabytes"] / 1000
    spent = [one["ways"]["lancedb"]["all"]["cpu_ms"] for one in indexes()]
    rows, goal_rows = [rows_read(one["papers"]) for one in indexes()], rows_read(given.abstracts)
    each, fixed = np.polyfit(rows, spent, 1)
    exact = [indexes()[-1]["ways"]["exact"]["all"]["cpu_ms"] * part for part in (1, given.abstracts / 1e6)]
    return [
        ["import: times that papers + references are read, with 4 GB", ranges(*small, 4), ranges(*goal, 4)],
        [f"the same with {given.memory_gb:g} GB", "", ranges(*goal, given.memory_gb)],
        ["index: memory, GB", number(plan), number(plan * given.abstracts / own["plan"][-1]["papers"])],
        ["search: vectors that LanceDB reads for a query", number(rows[-1]), number(goal_rows)],
        ["search: CPU ms per query", number(spent[-1]), number(fixed + each * goal_rows)],
        ["exact search: CPU ms per query", *map(number, exact)],
    ]


def rows_read(papers: float) -> float:
    """Vectors in the partitions that a query looks into."""
    partitions = approximate._partitions(int(papers))
    probes = max(round(partitions * approximate._PROBED), approximate._MIN_PROBES)
    return papers * probes / partitions


def report(given: Assumptions) -> str:
    """The page."""
    found = steps(given)
    total = sum(each.hours for each in found.values())
    linear = replace(found["index"], slope=replace(found["index"].slope, limits=PIECES)).hours
    basis = [[one.name, f"{getattr(given, one.name):,.10g}", one.metadata["help"]] for one in fields(given)]
    header = ["step", "size", "measured", "range", "power", "power taken", "extended to", "times the largest"]
    costing = ["step", "core-hours", "cores", "hours", "GB kept", "GB besides", "cost"]
    return "\n\n".join(
        [
            "# 200 million abstracts, computed",
            "Nothing here was run at this size. Made by `python benchmarks/scale.py` from other results.",
            table(["assumption", "value", "what it is"], basis),
            "CPU seconds against sizes:",
            table(header, [each.slope.row(each.size) for each in found.values()]),
            "What each step takes:",
            table(costing, [costs(given, each) for each in found.values()]),
            f"In all {number(total)} core-hours; with the power 1, the index would take {number(linear)}. "
            "Hours hold if all cores are always busy. GB are kept, or needed besides, for a month. GPUs were "
            "not measured. What limits a step:",
            table(["", "at the largest size measured", "at the goal"], grows(given)),
        ]
    )


def refreshed(page: str, text: str) -> str:
    """A page with the tables of `text` in the place of those with the same header."""
    for block in text.split("\n\n"):
        if block.startswith("|"):
            page = re.sub(re.escape(block.partition("\n")[0]) + r"(\n\|.*)*", block, page)
    return page


def main() -> None:
    """Compute, write and print; with other assumptions, print alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for each in fields(Assumptions):
        flag = f"--{each.name.replace('_', '-')}"
        parser.add_argument(flag, type=float, default=each.default, help=each.metadata["help"])
    given = Assumptions(**vars(parser.parse_args()))
    text = report(given)
    if given == Assumptions():
        (RESULTS / "scale.md").write_text(f"{text}\n", encoding="utf-8")
        PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
