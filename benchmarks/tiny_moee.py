"""Routing weights and hidden states of the small trained language model, on STS12-16 under all nine prompts.

    python benchmarks/tiny_moee.py --out FOLDER

The model is the fixture of the tests (scripts/train_tiny_olmoe.py): 2 million parameters, trained for minutes
on one journal's articles. It shows that everything runs and what the figures look like; what large models do
it cannot show. Beside it stand the ways of standardizing its parts (none, fitted once, as published), and the
same architecture with weights as drawn, which says how much of a figure is training and how much is words in
common. Writes the pages to FOLDER, their figures to benchmarks/results/.
"""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, set_seed

from measuring import DATA, HERE, RESULTS, cli, options, table

MODEL = HERE.parent / "tests" / "moee" / "tiny-olmoe"
DATASETS = tuple(f"sts{year}" for year in range(12, 17))
CONTROL_PROMPTS = "none,prompteol"
PARTS = {"hs": "HS", "rw": "RW", "concat": "MoEE (concat)", "sum": "MoEE (sum)"}


def correlation_tables(found: dict) -> list[str]:
    """Markdown: Spearman's correlation of each part, dataset and prompt."""
    lines = []
    for prompt in found["prompts"]:
        own = {(row["part"], row["dataset"]): row for row in found["correlations"] if row["prompt"] == prompt}
        cells = []
        for part, name in PARTS.items():
            rows = [own[part, dataset] for dataset in DATASETS]
            figures = [
                f"{100 * row['value']:.1f} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"
                for row in rows
            ]
            cells.append([name, *figures, f"{100 * sum(row['value'] for row in rows) / len(rows):.1f}"])
        lines += [f"## Prompt {prompt}", "", table(["", *DATASETS, "mean"], cells), ""]
    return lines


def analysis_lines(found: dict) -> list[str]:
    """Markdown: how the two parts differ."""
    clusters, between = found["clusters"], found["between_prompts"]
    agreement, means = (
        {name: f"{value:.2f}" for name, value in values.items()}
        for values in (clusters["agreement"], between["means"])
    )
    variance = {
        part: [row["variance"] for row in found["stability"] if row["part"] == part] for part in ("hs", "rw")
    }
    alone = {name: shares["one_alone"] for name, shares in found["complementarity"]["datasets"].items()}
    return [
        "## How the two parts differ",
        "",
        f"- {clusters['clusters']} clusters of {clusters['texts']:,} texts by HS and by RW: AMI "
        f"{agreement['ami']}, NMI {agreement['nmi']}, Jaccard {agreement['jaccard']}, exact matching "
        f"{agreement['exact_match']}. Published for DeepSeekMoE-16B: 0.29, 0.29, 0.06, 0.46.",
        f"- Correlation between prompts on {between['dataset']}: HS with HS {means['hs_hs']}, RW with RW "
        f"{means['rw_rw']}, HS with RW {means['hs_rw']}. Published: 0.52, 0.63, 0.51.",
        "- Variance over prompts, mean of the datasets: "
        + ", ".join(f"{PARTS[part]} {sum(rows) / len(rows):.5f}" for part, rows in variance.items()),
        "- One part alone is right: " + ", ".join(f"{name} {share:.0%}" for name, share in alone.items()),
    ]


def way_tables(ways: dict[str, dict]) -> list[str]:
    """Markdown: the mean correlation of each part, for each way of standardizing."""
    lines = []
    for prompt in CONTROL_PROMPTS.split(","):
        cells = []
        for name, found in ways.items():
            rows = [row for row in found["correlations"] if row["prompt"] == prompt]
            if rows:  # the default was analysed with the nine prompts alone
                sums = [sum(row["value"] for row in rows if row["part"] == part) for part in PARTS]
                cells.append([name, *(f"{100 * each / len(DATASETS):.2f}" for each in sums)])
        lines += [f"## Prompt {prompt}, mean of {len(DATASETS)}", "", table(["", *PARTS.values()], cells), ""]
    return lines


def example_lines(found: dict) -> list[str]:
    """Markdown: the pairs of the first dataset that one part alone is right about (MoEE, section 4.5)."""
    lines = []
    for key, title in (("only_rw", "HS is wrong, RW is right"), ("only_hs", "RW is wrong, HS is right")):
        cells = [
            [
                *(one[side].replace("|", "/") for side in ("first", "second")),
                *(
                    f"{one[name]:.{digits}f} ({one['ranks'][name]:.0%})"
                    for name, digits in (("score", 2), ("hs", 4), ("rw", 4))
                ),
            ]
            for one in found["cases"][DATASETS[0]][key]
        ]
        lines += [f"## {title} ({DATASETS[0]}, prompt {found['prompts'][0]})", ""]
        lines += [table(["sentence 1", "sentence 2", "score", "HS", "RW"], cells), ""]
    return lines


def untrained(folder: Path) -> Path:
    """The fixture's architecture and tokenizer with weights as drawn (seed 0)."""
    config = AutoConfig.from_pretrained(MODEL)
    set_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder)
    return folder


def analyse(model: Path, out: Path, *more: str) -> dict:
    """What `moee analyse` finds for a model."""
    pairs = [part for name in DATASETS for part in ("--pairs", str(DATA / "eval" / f"{name}.jsonl.gz"))]
    columns = ("--anchor", "sentence1", "--positive", "sentence2", "--device", "cpu")
    cli(out.with_suffix(".log"), "moee", "analyse", str(model), *pairs, *columns, "--out", str(out), *more)
    found: dict = json.loads((out / "analysis.json").read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Analyse, and write the tables."""
    given = options(__doc__, out=Path("tiny-moee"))
    cache = ("--cache", str(given.out / "states"))
    two = ("--prompts", CONTROL_PROMPTS)
    found = analyse(MODEL, given.out / "trained", *cache)
    fitted = given.out / "fitted"
    texts = ("--calibrate", str(DATA / "eval" / "stsb_train.jsonl.gz"), "--column", "sentence1")
    cli(
        given.out / "fitted.log",
        "moee",
        "make",
        str(MODEL),
        *texts,
        *cache,
        "--out",
        str(fitted),
        "--overwrite",
    )
    ways = {
        "default": found,
        "standard scores fitted on STS-B": analyse(fitted, given.out / "standard", *two),
        "as published (`--standard faithful`)": analyse(
            MODEL, given.out / "faithful", *two, *cache, "--standard", "faithful"
        ),
    }
    # The published choices but for standard scores; then these for every part, hidden states alone included.
    published = (*two, *cache, "--wording", "code", "--weights", "logits")
    batch = ("--standard", "batch")
    ways |= {
        "published wording and logits, no standard scores": analyse(MODEL, given.out / "code", *published),
        "the same, standard scores of each batch": analyse(MODEL, given.out / "batch", *published, *batch),
        "the same, standard scores of each dataset": analyse(
            MODEL, given.out / "whole", *published, *batch, "--standard-batch", "100000"
        ),
    }
    control = untrained(given.out / "untrained-model")
    drawn = analyse(control, given.out / "untrained", *two)
    text = [
        "# The small trained model on STS12-16",
        "",
        f"Made by `benchmarks/tiny_moee.py`; {sum(found['datasets'].values()):,} pairs. Spearman "
        "× 100, with 95% bootstrap intervals over pairs.",
        "",
        *correlation_tables(found),
        *analysis_lines(found),
        "",
        *example_lines(found),
        "# Ways of standardizing the parts",
        "",
        *way_tables(ways),
        "# The same architecture, weights as drawn",
        "",
        *correlation_tables(drawn),
    ]
    (RESULTS / "tiny_moee.md").write_text("\n".join(text), encoding="utf-8")
    of_ways = {name: each["correlations"] for name, each in ways.items() if each is not found}
    (RESULTS / "tiny_moee.json").write_text(
        json.dumps({"trained": found, "untrained": drawn, "ways": of_ways}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
