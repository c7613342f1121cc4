"""`sentence-experts moee make|encode|evaluate|analyse`: embeddings from language models with experts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sentence_experts.cli.console import note, results
from sentence_experts.cli.evaluate import show_evaluation
from sentence_experts.cli.moee_options import ReadingOptions, open_embedder
from sentence_experts.cli.options import with_settings
from sentence_experts.errors import UsageError
from sentence_experts.moee.vectors import PARTS, SUM

MODEL = typer.Argument(
    metavar="MODEL", help="a mixture-of-experts language model, folder or hub id, or what `moee make` wrote"
)
PARTS_HELP = "hs (hidden state), rw (routing weights), concat (both), sum (cos_HS + alpha * cos_RW)"
ALPHA_HELP = "weight of the routing weights' cosine, for sum; the one that was chosen, or 1, when not given"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb = typer.Typer(
        help="Embeddings from mixture-of-experts language models, without training (MoEE).\n\n"
        "Example: sentence-experts moee encode allenai/OLMoE-1B-7B-0924 --input texts.txt --out vectors.npy",
        no_args_is_help=True,
        add_completion=False,
    )
    for command in (make, encode, evaluate, analyse):
        verb.command(command.__name__)(with_settings(ReadingOptions)(command))
    app.add_typer(verb, name="moee")


def make(
    model: Annotated[str, MODEL],
    out: Annotated[Path, typer.Option(help="folder to write the embedder to")],
    given: dict[str, Any],
    parts: Annotated[str, typer.Option(help=PARTS_HELP)] = SUM,
    alpha: Annotated[float | None, typer.Option(help=ALPHA_HELP)] = None,
    develop: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="scored pairs to choose alpha on; evaluate on others"),
    ] = None,
    anchor: Annotated[str, typer.Option(help="of --develop: column of the first text")] = "anchor",
    positive: Annotated[str, typer.Option(help="of --develop: column of the second text")] = "positive",
    score: Annotated[str, typer.Option(help="of --develop: column of the score")] = "score",
    calibrate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="texts to fit standard scores on; none if not given")
    ] = None,
    column: Annotated[str | None, typer.Option(help="of --calibrate: column of the texts")] = None,
) -> None:
    """Write an embedder's folder: how a language model is read. evaluate, encode and search take it as MODEL.

    Example: sentence-experts moee make allenai/OLMoE-1B-7B-0924 --develop dev.jsonl --out olmoe-sum
    """
    if develop is not None and (alpha is not None or parts != SUM):
        raise UsageError("--develop chooses the alpha of --parts sum: leave out --alpha")
    embedder = open_embedder(model, given, parts, alpha)
    if calibrate is not None:
        from sentence_experts.tables import TextTable

        texts = [row.text for row in TextTable(calibrate, column).rows() if row.text.strip()]
        embedder.fit_standard(texts)
        results.print(f"standard scores fitted on {len(texts):,} texts of {calibrate.name}", markup=False)
    if develop is not None:
        embedder = _with_best_alpha(embedder, develop, anchor, positive, score)
    embedder.save(str(out))
    results.print(f"{out}: {embedder.parts} of {model}", markup=False, highlight=False)


def _with_best_alpha(embedder: Any, develop: Path, anchor: str, positive: str, score: str) -> Any:
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.moee.alpha import choose_alpha

    pairs = RatedPairs.read(develop, anchor, positive, score)
    first, second = (embedder.standard_states(side) for side in (pairs.first, pairs.second))
    choice = choose_alpha(first, second, list(pairs.scores))
    for alpha, value in choice.tried.items():
        chosen = "  chosen" if alpha == choice.alpha else ""
        results.print(f"alpha {alpha:g}: Spearman {value:.4f}{chosen}", markup=False, highlight=False)
    return embedder.with_parts(SUM, choice.alpha)


def encode(
    model: Annotated[str, MODEL],
    input: Annotated[
        Path, typer.Option(help="texts: .txt (one a line), .csv, .tsv, .jsonl, each also .gz, or .parquet")
    ],
    out: Annotated[Path, typer.Option(help="vectors: .parquet (row, id, vector) or .npy (a float32 matrix)")],
    given: dict[str, Any],
    parts: Annotated[str | None, typer.Option(help=f"{PARTS_HELP} [sum]")] = None,
    alpha: Annotated[float | None, typer.Option(help=ALPHA_HELP)] = None,
    column: Annotated[str | None, typer.Option(help="column with the texts; not for .txt")] = None,
    id_column: Annotated[str | None, typer.Option(help="column to carry along as id")] = None,
    normalize: Annotated[bool, typer.Option(help="scale every vector to length 1")] = False,
    chunk_size: Annotated[int, typer.Option(min=1, help="texts read between two saves")] = 256,
) -> None:
    """Turn the texts of a file into vectors, one a text, in the same order.

    An interrupted run goes on where it stopped when the same command is given again.

    Example: sentence-experts moee encode allenai/OLMoE-1B-7B-0924 --input texts.txt --out vectors.npy
    """
    from sentence_experts.encoding.encode import encode as encode_texts
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.tables import TextTable

    TextTable(input, column, id_column).check()
    embedder = open_embedder(model, given, parts, alpha)
    encoder = BatchEncoder(embedder, name=Path(model).name)
    found = encode_texts(
        encoder,
        input,
        out=out,
        column=column,
        id_column=id_column,
        normalize=normalize,
        chunk_size=chunk_size,
    )
    results.print(
        f"{found.path}: {found.texts:,} texts, {found.dimension} dimensions ({embedder.parts})",
        markup=False,
        highlight=False,
    )


def evaluate(
    model: Annotated[str, MODEL],
    out: Annotated[Path, typer.Option(help="folder for tasks.json, tasks.md and mteb's results")],
    given: dict[str, Any],
    parts: Annotated[
        list[str] | None, typer.Option(help=f"{PARTS_HELP}. Repeatable; all four when not given")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help=ALPHA_HELP)] = None,
    mteb: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[,NAME...]", help="tasks of mteb, or groups (moee has the paper's)"),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="folder written by `sentence-experts tasks`: its test sets")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TASK|TYPE", help="only these. Repeatable.")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(help="bootstrap replicates over datasets; 0: no intervals")
    ] = 1000,
) -> None:
    """Measure HS, RW and their combinations on tasks of mteb or of your own. Texts are read once for all.

    Example: sentence-experts moee evaluate allenai/OLMoE-1B-7B-0924 --mteb moee --cache states --out results
    """
    if bool(mteb) == bool(tasks):
        raise UsageError("give one of --mteb NAME and --tasks FOLDER")
    from sentence_experts.evaluation.evaluate import evaluate as measure
    from sentence_experts.report.write import write_report
    from sentence_experts.tasks.dataset import Tasks

    embedder = open_embedder(model, given, alpha=alpha)
    embedder.keep_states(out / "states")  # what is measured several times is read once
    name, wanted = Path(model).name, tuple(dict.fromkeys(parts or PARTS))
    variants = {f"{name}-{part}": embedder.with_parts(part) for part in wanted}
    data = mteb or Tasks.open(tasks or "")
    found = measure(variants, data, out=out, only=only or [], bootstrap=bootstrap)
    show_evaluation(found, write_report(found, out))


def analyse(
    model: Annotated[str, MODEL],
    pairs: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE", help="scored pairs, a dataset a file; the first is clustered. Repeatable."
        ),
    ],
    out: Annotated[Path, typer.Option(help="folder for analysis.json and analysis.html")],
    given: dict[str, Any],
    anchor: Annotated[str, typer.Option(help="column of the first text")] = "anchor",
    positive: Annotated[str, typer.Option(help="column of the second text")] = "positive",
    score: Annotated[str, typer.Option(help="column of the score")] = "score",
    prompts: Annotated[
        str | None, typer.Option(help="names, with commas between; all nine of the paper when not given")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help=ALPHA_HELP)] = None,
    clusters: Annotated[int, typer.Option(min=2, help="of k-means")] = 10,
    bootstrap: Annotated[int, typer.Option(min=0, help="replicates over pairs; 0: no intervals")] = 1000,
    seed: Annotated[int, typer.Option(help="of k-means and bootstrap")] = 0,
) -> None:
    """Compare routing weights and hidden states on scored pairs: one page (MoEE, sections 3.2 and 4.4).

    How well each part does under each prompt, how much the prompt matters, how alike they rank pairs, where
    one part is right and the other is not, and how far their clusters agree.

    Example: sentence-experts moee analyse allenai/OLMoE-1B-7B-0924 --pairs sts12.jsonl --out analysis
    """
    from sentence_experts.errors import require
    from sentence_experts.evaluation.moee.analysis import analyse as analyse_states
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.report.html import write_page
    from sentence_experts.report.moee_page import moee_page
    from sentence_experts.storage import write_json

    require("matplotlib", "report")  # known before anything is read
    data = [RatedPairs.read(file, anchor, positive, score) for file in pairs]
    embedder = open_embedder(model, given, alpha=alpha)
    embedder.keep_states(out / "states")  # what is measured several times is read once
    chosen = [name.strip() for name in (prompts or "").split(",") if name.strip()]
    found = analyse_states(
        data,
        lambda prompt, texts: embedder.with_prompt(prompt).states(texts, f"reading, prompt {prompt}"),
        alpha=embedder.alpha,
        prompts=chosen,
        clusters=clusters,
        bootstrap=bootstrap,
        seed=seed,
    )
    settings = {
        "model": Path(model).name,
        "seed": seed,
        "replicates": bootstrap,
        **embedder.reader.settings(),
    }
    write_json(out / "analysis.json", {**found, "settings": settings})
    page = write_page(out / "analysis.html", moee_page(found, settings))
    _show_means(found)
    note("the states are kept: the same command, or another part of it, reads no text again")
    results.print(f"report: {page}", markup=False, highlight=False)


def _show_means(found: dict[str, Any]) -> None:
    """The first prompt's correlations, a line a part."""
    first = found["prompts"][0]
    for part in PARTS:
        rows = [row for row in found["correlations"] if (row["prompt"], row["part"]) == (first, part)]
        shown = "  ".join(f"{row['dataset']} {100 * row['value']:.2f}" for row in rows)
        results.print(f"{part:6} {shown}", markup=False, highlight=False)
