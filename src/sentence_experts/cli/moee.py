"""`sentence-experts moee make|encode|evaluate|analyse`: embeddings from language models with experts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from sentence_experts.cli.console import note, show, show_report
from sentence_experts.cli.evaluation import show_evaluation
from sentence_experts.cli.options import (
    Fields,
    Input,
    MtebNames,
    Overwrite,
    TasksFolder,
    check_there,
    group,
    one_of,
)
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.evaluation.config import AnalyseConfig, EvaluateConfig, RatedColumns
from sentence_experts.models.sources import check_source
from sentence_experts.moee.moee_config import MoeeConfig

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Mixture-of-experts language model (folder or hub id), or a folder written by `moee make`",
    ),
]

# An evaluation measures several parts; an analysis compares all of them, under its own prompts.
MEASURES = Fields(*(name for name in MoeeConfig.model_fields if name != "parts"))
COMPARES = Fields(*(name for name in MEASURES.names if name != "prompt"))


def make(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write the embedder to")],
    config: MoeeConfig,
    columns: RatedColumns,
    texts: Annotated[EncodeConfig, Fields("column")],
    develop: Annotated[
        Path | None, typer.Option(help="Rated pairs to choose alpha on; evaluate on other pairs")
    ] = None,
    calibrate: Annotated[Path | None, typer.Option(help="Texts to fit standard scores on")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a folder with the settings of an embedder; evaluate, encode and search take it as MODEL.

    Example: sentence-experts moee make allenai/OLMoE-1B-7B-0924 --develop dev.jsonl --out olmoe-sum
    """
    check_source(model)
    check_there(develop, calibrate)
    from sentence_experts.evaluation.moee.make_and_evaluate import make_embedder

    embedder = make_embedder(
        model,
        out,
        config,
        develop=develop,
        columns=columns,
        calibrate=calibrate,
        column=texts.column,
        overwrite=overwrite,
    )
    show(f"{out}: {embedder.parts} of {model}")


def encode(
    model: Model,
    input: Input,
    out: Annotated[Path, typer.Option(help="Vectors: .parquet (row, id, vector) or .npy (one array)")],
    config: MoeeConfig,
    encoding: Annotated[EncodeConfig, Fields("column", "id_column", "normalize", "precision", "chunk_size")],
    overwrite: Overwrite = False,
) -> None:
    """Encode the texts of a file, in their order.

    An interrupted run continues when the same command is given again.

    Example: sentence-experts moee encode allenai/OLMoE-1B-7B-0924 --input texts.txt --out vectors.npy
    """
    from sentence_experts.encoding.encode import check_out
    from sentence_experts.encoding.encode import encode as encode_file
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.text_table import TextTable

    check_out(TextTable(input, encoding.column, encoding.id_column), out, encoding)
    check_source(model)
    from sentence_experts.moee.saved import load_embedder

    embedder = load_embedder(model, config)
    encoded = encode_file(
        BatchEncoder(embedder, name=Path(model).name), input, encoding, out=out, overwrite=overwrite
    )
    show(f"{encoded.path}: {encoded.texts:,} texts, {encoded.dimension} dimensions ({embedder.parts})")


def evaluate(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for tasks.json, tasks.md and mteb's results")],
    config: Annotated[MoeeConfig, MEASURES],
    evaluation: Annotated[EvaluateConfig, Fields("only", "margin")],
    parts: Annotated[
        list[Literal["hs", "rw", "concat", "sum"]] | None,
        Field(description="Parts to measure. Default: all four"),
    ] = None,
    mteb: MtebNames = None,
    tasks: TasksFolder = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure HS, RW and their combinations on tasks of mteb or of your own. Each text is read once for all.

    Example: sentence-experts moee evaluate allenai/OLMoE-1B-7B-0924 --mteb moee --out results
    """
    data = one_of(mteb=mteb, tasks=tasks)
    check_source(model)
    check_there(tasks)
    from sentence_experts.evaluation.moee.make_and_evaluate import evaluate_parts
    from sentence_experts.moee.vectors import PARTS

    result = evaluate_parts(model, data, evaluation, out, overwrite, parts=parts or PARTS, load_config=config)
    show_evaluation(result, out)


def analyse(
    model: Model,
    pairs: Annotated[
        list[Path],
        typer.Option(help="Rated pairs, one dataset per file; the first is clustered. Repeatable."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for analysis.json and analysis.html")],
    config: Annotated[MoeeConfig, COMPARES],
    analysis: AnalyseConfig,
    overwrite: Overwrite = False,
) -> None:
    """Compare routing weights and hidden states on rated pairs: one page (MoEE, sections 3.2, 4.4 and 4.5).

    Shows how well each part does under each prompt, how much the prompt matters, how similarly they rank
    pairs, which pairs one part is right about and the other is not, and how far their clusters agree.

    Example: sentence-experts moee analyse allenai/OLMoE-1B-7B-0924 --pairs sts12.jsonl --out analysis
    """
    from sentence_experts.errors import require
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs

    data = [RatedPairs.read(file, analysis) for file in pairs]
    check_source(model)
    from sentence_experts.evaluation.moee.analysis import analyse as analyse_parts
    from sentence_experts.moee.saved import load_embedder

    require("matplotlib", "report")  # before anything is encoded
    compared = analyse_parts(load_embedder(model, config), data, analysis, out, overwrite)
    show_report(compared, out)
    note("the states are cached: the same command, or another part of it, reads no text again")


moee = group(
    "Embeddings from mixture-of-experts language models, without training (MoEE).\n\n"
    "Example: sentence-experts moee encode allenai/OLMoE-1B-7B-0924 --input texts.txt --out vectors.npy",
    make,
    encode,
    evaluate,
    analyse,
)
