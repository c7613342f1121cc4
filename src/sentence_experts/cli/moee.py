"""`sentence-experts moee make|encode|evaluate|analyse`: embeddings from language models with experts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from sentence_experts.cli.console import note, show
from sentence_experts.cli.evaluate import show_evaluation
from sentence_experts.cli.options import Fields, Input, Vectors, add_verb
from sentence_experts.config import Config
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import AnalyseConfig, EvaluateConfig
from sentence_experts.moee.config import MoeeConfig

if TYPE_CHECKING:
    from sentence_experts.moee.embedder import MoeEmbedder

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Mixture-of-experts language model (folder or hub id), or a folder written by `moee make`",
    ),
]


class RatedColumns(Config):
    """The columns of a table of rated pairs."""

    anchor: str = Field("anchor", description="Column of the first text of a pair")
    positive: str = Field("positive", description="Column of the second text")
    score: str = Field("score", description="Column of the score")


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    verb = typer.Typer(
        help="Embeddings from mixture-of-experts language models, without training (MoEE).\n\n"
        "Example: sentence-experts moee encode allenai/OLMoE-1B-7B-0924 --input texts.txt --out vectors.npy",
        no_args_is_help=True,
        add_completion=False,
    )
    for command in (make, encode, evaluate, analyse):
        add_verb(verb, command)
    app.add_typer(verb, name="moee")


def open_embedder(model: str, config: MoeeConfig) -> MoeEmbedder:
    """The embedder of a language model, or of a folder that `make` wrote.

    Raises:
        UsageError: settings for a folder other than `parts`, `alpha` and `device`: it has its own.
    """
    from sentence_experts.models.loading import load
    from sentence_experts.moee.embedder import MoeEmbedder, is_embedder

    if not is_embedder(model):
        return MoeEmbedder(model, config)
    if foreign := sorted(config.model_fields_set - {"parts", "alpha", "device"}):
        raise UsageError(f"`{foreign[0]}` is for a language model; {model} has settings of its own")
    embedder = load(model, device=config.device)
    assert isinstance(embedder, MoeEmbedder)
    given = config.model_dump(include={"parts", "alpha"}, exclude_unset=True)
    return embedder.with_parts(given.get("parts", embedder.parts), given.get("alpha"))


def make(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write the embedder to")],
    config: MoeeConfig,
    columns: RatedColumns,
    develop: Annotated[
        Path | None, typer.Option(help="Rated pairs to choose alpha on; evaluate on other pairs")
    ] = None,
    calibrate: Annotated[Path | None, typer.Option(help="Texts to fit standard scores on")] = None,
    column: Annotated[str | None, typer.Option(help="Column with the texts of --calibrate")] = None,
) -> None:
    """Write a folder that says how a language model is read. evaluate, encode and search take it as MODEL.

    Example: sentence-experts moee make allenai/OLMoE-1B-7B-0924 --develop dev.jsonl --out olmoe-sum
    """
    from sentence_experts.tables import TextTable

    if develop is not None and ("alpha" in config.model_fields_set or config.parts != "sum"):
        raise UsageError("`develop` chooses the alpha of parts sum: leave out `alpha` and `parts`")
    embedder = open_embedder(model, config)
    if calibrate is not None:
        texts = [text for text in TextTable(calibrate, column).texts() if text.strip()]
        embedder.fit_standard(texts)
        show(f"standard scores fitted on {len(texts):,} texts of {calibrate.name}")
    if develop is not None:
        embedder = _with_best_alpha(embedder, develop, columns)
    embedder.save(str(out))
    show(f"{out}: {embedder.parts} of {model}")


def _with_best_alpha(embedder: MoeEmbedder, develop: Path, columns: RatedColumns) -> MoeEmbedder:
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.moee.alpha import choose_alpha

    pairs = RatedPairs.read(develop, columns.anchor, columns.positive, columns.score)
    first, second = (embedder.standard_states(side) for side in (pairs.first, pairs.second))
    choice = choose_alpha(first, second, list(pairs.scores))
    for alpha, value in choice.tried.items():
        chosen = "  chosen" if alpha == choice.alpha else ""
        show(f"alpha {alpha:g}: Spearman {value:.4f}{chosen}")
    return embedder.with_parts("sum", choice.alpha)


def encode(
    model: Model,
    input: Input,
    out: Vectors,
    config: MoeeConfig,
    encoding: Annotated[EncodeConfig, Fields("column", "id_column", "normalize", "precision", "chunk_size")],
) -> None:
    """Encode the texts of a file, in their order.

    An interrupted run continues when the same command is given again.

    Example: sentence-experts moee encode allenai/OLMoE-1B-7B-0924 --input texts.txt --out vectors.npy
    """
    from sentence_experts.encoding.encode import check_out
    from sentence_experts.encoding.encode import encode as encode_file
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.tables import TextTable

    check_out(TextTable(input, encoding.column, encoding.id_column), out, encoding)
    embedder = open_embedder(model, config)
    encoded = encode_file(BatchEncoder(embedder, name=Path(model).name), input, encoding, out)
    show(f"{encoded.path}: {encoded.texts:,} texts, {encoded.dimension} dimensions ({embedder.parts})")


def evaluate(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for tasks.json, tasks.md and mteb's results")],
    config: MoeeConfig,
    evaluation: Annotated[EvaluateConfig, Fields("only", "bootstrap", "seed")],
    parts: Annotated[
        list[str] | None, typer.Option(help="hs, rw, concat or sum. Repeatable. Default: all four")
    ] = None,
    mteb: Annotated[
        list[str] | None, typer.Option(help="Tasks of mteb, or groups (moee has the paper's). Repeatable.")
    ] = None,
    tasks: Annotated[Path | None, typer.Option(help="Tasks folder: its test sets are used")] = None,
) -> None:
    """Measure HS, RW and their combinations on tasks of mteb or of your own. Each text is read once for all.

    Example: sentence-experts moee evaluate allenai/OLMoE-1B-7B-0924 --mteb moee --cache states --out results
    """
    if bool(mteb) == bool(tasks):
        raise UsageError("give one of `mteb` and `tasks`")
    from sentence_experts.evaluation.evaluate import evaluate as measure
    from sentence_experts.moee.vectors import PARTS
    from sentence_experts.report.write import write_report

    embedder = open_embedder(model, config)
    embedder.cache_states(out / "states")
    variants = {f"{Path(model).name}-{part}": embedder.with_parts(part) for part in parts or PARTS}
    names = [name for each in mteb or [] for name in each.split(",")]
    found = measure(variants, names or tasks, evaluation, out)
    show_evaluation(found, write_report(found, out))


def analyse(
    model: Model,
    pairs: Annotated[
        list[Path],
        typer.Option(help="Rated pairs, one dataset per file; the first is clustered. Repeatable."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for analysis.json and analysis.html")],
    config: MoeeConfig,
    analysis: AnalyseConfig,
    columns: RatedColumns,
) -> None:
    """Compare routing weights and hidden states on rated pairs: one page (MoEE, sections 3.2 and 4.4).

    How well each part does under each prompt, how much the prompt matters, how similarly they rank pairs,
    where one part is right and the other is not, and how far their clusters agree.

    Example: sentence-experts moee analyse allenai/OLMoE-1B-7B-0924 --pairs sts12.jsonl --out analysis
    """
    from sentence_experts.errors import require
    from sentence_experts.evaluation.moee.analysis import analyse as analyse_states
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.report.moee_page import moee_page
    from sentence_experts.storage import write_json, write_text

    require("matplotlib", "report")  # before anything is read
    data = [RatedPairs.read(file, columns.anchor, columns.positive, columns.score) for file in pairs]
    embedder = open_embedder(model, config)
    embedder.cache_states(out / "states")
    found = analyse_states(
        data,
        lambda prompt, texts: embedder.with_prompt(prompt).states(texts, f"reading, prompt {prompt}"),
        analysis,
        alpha=embedder.alpha,
    )
    made = {"seed": analysis.seed, "replicates": analysis.bootstrap, **embedder.reader.settings()}
    settings = {"model": Path(model).name, **made}
    write_json(out / "analysis.json", {**found, "settings": settings})
    page = out / "analysis.html"
    write_text(page, moee_page(found, settings))
    _show_correlations(found)
    note("the states are cached: the same command, or another part of it, reads no text again")
    show(f"report: {page}")


def _show_correlations(found: dict[str, Any]) -> None:
    """The first prompt's correlations, one line per part."""
    first: dict[str, list[str]] = {}
    for row in found["correlations"]:
        if row["prompt"] == found["prompts"][0]:
            first.setdefault(row["part"], []).append(f"{row['dataset']} {100 * row['value']:.2f}")
    for part, values in first.items():
        show(f"{part:6} {'  '.join(values)}")
