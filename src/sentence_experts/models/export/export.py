"""`export`: one route, or the mean of all experts, as a plain dense model; or an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from sentence_experts.config import with_settings
from sentence_experts.errors import UsageError
from sentence_experts.models.dense import average_experts, export_route
from sentence_experts.models.encoder import check_experts
from sentence_experts.models.export.export_config import ExportConfig
from sentence_experts.models.export.onnx import describe_graph, graph_prompts, write_graph
from sentence_experts.models.export.onnx_int8 import check_quantizable, compute_in_int8, select_texts
from sentence_experts.models.files.fingerprint import fingerprint_with_settings
from sentence_experts.models.files.saving import model_output, write_model
from sentence_experts.models.loading import load
from sentence_experts.storage import check_apart
from sentence_experts.tables import Table, is_path
from sentence_experts.text_table import TextTable

if TYPE_CHECKING:
    import pandas as pd
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Exported:
    """The result of `export`: a dense model, or an ONNX graph.

    Attributes:
        out: folder of the result.
        model: dense model; with a graph, the model that it was made of.
        onnx_difference: largest difference of a graph's vectors from torch's; None for a dense model.
        routes: routes of a graph.
        int8: figures that `compute_in_int8` returned for a graph in 8 bits.
    """

    out: Path
    model: SentenceTransformer
    onnx_difference: float | None = None
    routes: tuple[str, ...] = ()
    int8: Mapping[str, Any] | None = None

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def model_type(self) -> str:
        """Family, as transformers calls it, such as "bert"."""
        transformer: Any = self.model[0]
        return str(transformer.config.model_type)

    @property
    def default_prompt(self) -> str | None:
        """Prompt in front of every text, if there is one."""
        name = self.model.default_prompt_name
        return None if name is None else self.model.prompts[name]

    def __repr__(self) -> str:
        return f"Exported({self.out}: {self.model_type}, {self.parameters:,} parameters)"

    def to_pandas(self) -> pd.DataFrame:
        """Return a table of one row: out, model_type, parameters, onnx_difference, the figures of 8 bits."""
        import pandas as pd

        names = ("out", "model_type", "parameters", "onnx_difference")
        return pd.DataFrame([{name: getattr(self, name) for name in names} | dict(self.int8 or {})])


@overload
def export(
    model: SentenceTransformer | Path | str, out: None = None, config: ExportConfig | None = None,
    overwrite: bool = False, **settings: Any,
) -> SentenceTransformer: ...  # fmt: skip
@overload
def export(
    model: SentenceTransformer | Path | str, out: Path | str, config: ExportConfig | None = None,
    overwrite: bool = False, *, int8: Table | None = None, **settings: Any,
) -> Exported: ...  # fmt: skip
@with_settings(ExportConfig)
def export(
    model: SentenceTransformer | Path | str,
    out: Path | str | None = None,
    config: ExportConfig | None = None,
    overwrite: bool = False,
    *,
    int8: Table | None = None,
    **settings: Any,
) -> Exported | SentenceTransformer:
    """Make a dense model of the base's family that loads without this package.

    It has the base's tokenizer and number of parameters, and gives the route's vectors. With `format="onnx"`
    it is a graph instead, of one route or of all, which reads each text's route from its tokens
    (`write_graph`). `load` opens its folder without torch, and all functions that only read a model take it.

    Args:
        model: a model with experts, or for a graph any model: in memory, a folder or a hub id.
        out: the folder to write to; None to keep the model in memory.
        config: the settings; `settings` override its fields, by name.
        overwrite: whether to start over, replacing another model in `out`.
        int8: texts like those to encode, as a list, a file or a table: a graph is calibrated on them, and
            computes in 8 bits; 500 are enough.

    Returns:
        The result that was written; without `out` the dense model itself.

    Raises:
        UsageError: the settings do not fit, too few texts for 8 bits, or `out` holds something else.
        InputError: the texts cannot be read.
        RouteError: the model has no such route.

    Example:
        >>> export("model", "dense", route="genomics").to_pandas()["model_type"].tolist()
        ['bert']
        >>> export("model", route="genomics").encode(["One text."]).shape
        (1, 32)
    """
    config = ExportConfig.of(config, **settings)
    as_graph = config.format == "onnx"
    if int8 is not None and not as_graph:
        raise UsageError("`int8` is for `format=onnx`")
    if int8 is None and config.column is not None:
        raise UsageError("`column` is for the texts of `int8`")
    if out is None:
        if as_graph:
            raise UsageError("`format=onnx` needs `out`, a folder to write to")
        return _dense(load(model, device="cpu"), config)
    out, texts = Path(out), None if int8 is None else TextTable(int8, config.column)
    check_apart(out, overwrite, model, int8 if is_path(int8) else None)
    with model_output(out, overwrite) as place:
        read = [] if texts is None else select_texts(texts.texts())
        encoder = load(model, device="cpu", dtype="float32" if as_graph else None)
        if texts is not None and config.route is None:
            check_quantizable(encoder)
        made_from = {"model": fingerprint_with_settings(encoder), "config": config.model_dump(mode="json")}
        made_from |= {"similarity": encoder.similarity_fn_name}
        made_from |= describe_graph(encoder) if as_graph else {}
        finished = place.begin(made_from, {} if texts is None else {"texts": texts.fingerprint}) == "finished"
        if finished and not as_graph:
            return Exported(out, load(out, device="cpu"))
        made = encoder if config.route is None and not config.average else _dense(encoder, config)
        if not finished:
            with place.replacing() as folder:
                if as_graph:
                    place.result = {"onnx_difference": write_graph(made, folder), "int8": None}
                    if texts is not None:
                        place.result["int8"] = compute_in_int8(folder, made, read)
                else:
                    write_model(made, folder)
        routes = tuple(graph_prompts(made)) if as_graph else ()
        return Exported(out, made, place.result.get("onnx_difference"), routes, place.result.get("int8"))


def _dense(model: SentenceTransformer, config: ExportConfig) -> SentenceTransformer:
    encoder = check_experts(model)
    return average_experts(encoder) if config.route is None else export_route(encoder, config.route)
