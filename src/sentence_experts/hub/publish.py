"""`publish`: a model as a repository of the Hugging Face hub, assembled in a folder and then uploaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, UsageError, brief
from sentence_experts.evaluation.models import label_of
from sentence_experts.evaluation.results import ModelResult, PairEvaluation
from sentence_experts.hub.card import hub_card
from sentence_experts.hub.config import PublishConfig
from sentence_experts.models.dense import export_route
from sentence_experts.models.encoder import check_experts
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.files.saving import write_model
from sentence_experts.models.layers.weight_files import DENSE_MODELS, EXPERT_FILES, INDEX, WEIGHTS
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import (
    RECORD,
    check_apart,
    output,
    sha256_file,
    sha256_text,
    temporary_folder,
    write_text,
)
from sentence_experts.tasks.dataset import Tasks, open_dataset

if TYPE_CHECKING:
    import pandas as pd
    from sentence_transformers import SentenceTransformer

ALL, CARD = "all", "README.md"
_REPO = re.compile(r"[\w.-]+/[\w.-]+", flags=re.ASCII)


class PublishedFile(NamedTuple):
    """A file of the repository: path, bytes and SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, repr=False)
class Publication:
    """A repository as it was assembled, and uploaded if `upload` was given.

    Attributes:
        repo: its id.
        card: the text of README.md.
        files: the files, by path.
        folder: where they are, if a folder was given.
        commit: address of the commit; None if nothing was uploaded.
    """

    repo: str
    card: str
    files: tuple[PublishedFile, ...]
    folder: Path | None = None
    commit: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def __repr__(self) -> str:
        done = f"uploaded: {self.commit}" if self.commit else "not uploaded"
        return f"Publication({self.repo}: {len(self.files)} files, {self.size:,} bytes; {done})"

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per file: path, size, sha256."""
        import pandas as pd

        return pd.DataFrame(self.files)


@with_settings(PublishConfig)
def publish(
    model: SentenceTransformer | Path | str,
    repo: str,
    config: PublishConfig | None = None,
    *,
    evaluation: PairEvaluation | Path | str | None = None,
    data: Any = (),
    out: Path | str | None = None,
    upload: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Publication:
    """Assemble a model as a repository of the Hugging Face hub, and upload it only if `upload` is given.

    The repository holds one file per expert, the file that lets stock loaders find this package, the dense
    models of chosen routes, and a card with routes, base, data and their licences, results and limits. The
    hub's own access token is used (`hf auth login`, or HF_TOKEN).

    Args:
        model: a model with experts: in memory, a folder or a hub id.
        repo: the repository's id, such as "me/name".
        config: the settings; `settings` override its fields, by name.
        evaluation: results on pairs that name the model, or their folder.
        data: pairs or tasks that the model was trained on, or their folders.
        out: folder to assemble the repository in; by default a temporary one, which is removed.
        upload: whether to create the repository, if it is not there, and upload the files.
        overwrite: whether to replace another repository in `out`.

    Raises:
        UsageError: `repo` is no id, or `out` holds something else.
        RouteError: the model has no such route.
        InputError: the model, the evaluation or data cannot be read, or the hub refuses the upload.

    Example:
        >>> publish("model", "me/name", dense=["genomics"])
        Publication(me/name: ... files, ... bytes; not uploaded)
    """
    config = PublishConfig.of(config, **settings)
    if not _REPO.fullmatch(repo):
        raise UsageError(f"`repo` is {repo!r}; the id of a repository is OWNER/NAME, such as me/name")
    check_apart(out, overwrite, model, data, evaluation)
    given = data if isinstance(data, list | tuple) else [data]
    sources = [open_dataset(each, None) for each in given]
    results = None if evaluation is None else _results(model, evaluation, config)
    encoder = load(model, device="cpu")
    check_experts(encoder)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(temporary_folder())) / "model"
        names = (CARD, "modules.json")
        place = stack.enter_context(output(folder, "repository of a model", names=names, overwrite=overwrite))
        made_from = {
            "model": fingerprint_of(encoder),
            "repo": repo,
            "config": config.model_dump(),
            "evaluation": None if results is None else sha256_text(repr(results[1])),
            "data": [each.fingerprint() for each in sources],
        }
        if place.begin(made_from) != "finished":
            with place.replacing() as new:
                _assemble(encoder, model, repo, new, config, sources, results)
        commit = _upload(place.path, repo, config) if upload else None
        card = (place.path / CARD).read_text(encoding="utf-8")
        return Publication(repo, card, _files(place.path), None if out is None else folder, commit)


def _results(
    model: Any, evaluation: PairEvaluation | Path | str, config: PublishConfig
) -> tuple[PairEvaluation, ModelResult]:
    where = "the evaluation" if isinstance(evaluation, PairEvaluation) else str(evaluation)
    if not isinstance(evaluation, PairEvaluation):
        if not (Path(where) / "evaluation.json").is_file():
            raise InputError(f"{where}: no evaluation.json; give the folder that `evaluate` wrote for pairs")
        evaluation = PairEvaluation.read(Path(where))
    label = config.label or label_of(model)
    results = {result.label: result for result in evaluation.models}
    if label not in results:
        known = ", ".join(results)
        raise InputError(f"{where}: no model is called {label!r}; give one of these as `label`: {known}")
    return evaluation, results[label]


def _assemble(
    encoder: SentenceTransformer,
    source: Any,
    repo: str,
    folder: Path,
    config: PublishConfig,
    data: Sequence[Pairs | Tasks],
    results: tuple[PairEvaluation, ModelResult] | None,
) -> None:
    experts = check_experts(encoder)
    routes = [route.name for route in experts.routes]
    write_model(encoder, folder)
    dense = {name: f"{DENSE_MODELS}/{name}" for name in (routes if ALL in config.dense else config.dense)}
    for route, place in dense.items():
        write_model(export_route(experts, route), folder / place)
    saved = Path(source) / CARD if isinstance(source, str | Path) else folder / CARD
    own = saved if saved.is_file() else folder / CARD
    text = hub_card(
        own.read_text(encoding="utf-8"),
        repo,
        length=int(encoder.max_seq_length or 0),
        base=config.base,
        licence=config.licence,
        dense=dense,
        data=data,
        results=results,
        routes=routes,
    )
    write_text(folder / CARD, text)


def _files(folder: Path) -> tuple[PublishedFile, ...]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RECORD)
    return tuple(
        PublishedFile(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_file(path))
        for path in paths
    )


def _upload(folder: Path, repo: str, config: PublishConfig) -> str:
    """Upload the folder in one commit, creating the repository if needed; return the commit's address."""
    from huggingface_hub import HfApi, constants

    hub = HfApi(endpoint=constants.ENDPOINT)
    try:
        hub.create_repo(repo, private=config.private, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=repo,
            folder_path=folder,
            revision=config.revision,
            commit_message="Model with experts",
            ignore_patterns=[RECORD],
            # Files of an earlier upload that this one lacks, such as that of a dropped expert.
            delete_patterns=[WEIGHTS, INDEX, EXPERT_FILES, f"{DENSE_MODELS}/*"],
        )
    except Exception as error:  # no network, no token, no right to write there
        raise InputError(f"{repo}: the hub refused it: {brief(error)}") from error
    return str(commit.commit_url)
