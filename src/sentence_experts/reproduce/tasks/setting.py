"""Where a recipe on tasks runs: small on the data at hand, full on hub datasets and MTEB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.corpus.tables import PAPERS
from sentence_experts.demo.plan import ARCHIVES, data_folder
from sentence_experts.errors import UsageError
from sentence_experts.reproduce.experiment import FULL, SCALES, SMALL
from sentence_experts.reproduce.tasks.recipe import Protocol, Recipe
from sentence_experts.storage import write_text

# What task files of the small scale call the folders that only a run knows.
DATA, CORPORA = "${SENTENCE_EXPERTS_DATA}", "${CORPORA}"
NAMES = ("elife", "crops")  # of the corpora made of ARCHIVES
SIMULATED = "simulated"


@dataclass(frozen=True)
class Setting:
    """The task file, corpora and folders of a run of a recipe.

    Attributes:
        root: folder of all recipes of the same protocol and scale; they share tasks and trained models.
        tasks_file: what `tasks` compiles.
        template: the shipped file that it is written from; None at full scale, where it is itself shipped.
        corpora: folder of a corpus -> the articles that are imported to it.
        data_folder: of the real data; None where there is none.
        data: the data in words.
    """

    scale: str
    root: Path
    tasks_file: Path
    template: Path | None
    corpora: dict[Path, Path]
    data_folder: Path | None
    data: str

    @property
    def small(self) -> bool:
        """Whether this is the small scale."""
        return self.scale == SMALL

    @property
    def tasks_folder(self) -> Path:
        """Where the compiled tasks go."""
        return self.root / "tasks"

    @property
    def read_by_tasks(self) -> tuple[Path, ...]:
        """The files that compiling reads and that may change."""
        return (self.tasks_file, *(corpus / PAPERS for corpus in self.corpora))

    def prepare(self) -> None:
        """Write what the first command needs: the task file, its folders filled in; simulated articles."""
        if self.template is None:
            return
        text = self.template.read_text(encoding="utf-8")
        folders = {DATA: self.data_folder, CORPORA: _corpora(self.root)}
        for name, folder in folders.items():
            text = text.replace(name, str((folder or Path()).resolve()))
        write_text(self.tasks_file, text)
        if self.data_folder is None:
            (articles,) = self.corpora.values()
            simulate_corpus(articles, seed=0)


def setting_for(recipe: Recipe, scale: str, corpus: Path | None, out: Path) -> Setting:
    """The setting of a recipe.

    Raises:
        UsageError: an unknown scale, or a corpus, which no recipe on tasks takes.
        InputError: SENTENCE_EXPERTS_DATA is set, but the articles are not there.
    """
    if scale not in SCALES:
        raise UsageError(f"--scale {scale!r}: choose one of {', '.join(SCALES)}")
    if corpus is not None:
        raise UsageError(
            "--corpus is for recipes on pairs; this one is on tasks, its task file names the data"
        )
    protocol = recipe.protocol
    root = out / scale / protocol.name
    if scale == SMALL:
        return _small(protocol, root)
    data = "the public hub datasets nearest to those that the paper refers to"
    return Setting(FULL, root, protocol.tasks, None, {}, None, data)


def _small(protocol: Protocol, root: Path) -> Setting:
    data = data_folder()
    if data is None:
        corpora = {_corpora(root) / SIMULATED: root.parent / SIMULATED}
        words = "SIMULATED articles (no real data was found)"
    else:
        corpora = {_corpora(root) / name: data / file for name, file in zip(NAMES, ARCHIVES, strict=True)}
        words = "eLife and PMC articles, Banking77, tweet emotion, 20 Newsgroups, STS-B"
    return Setting(
        scale=SMALL,
        root=root,
        tasks_file=root / "tasks.yaml",
        template=protocol.small_file(data is not None),
        corpora=corpora,
        data_folder=data,
        data=f"{words}, not the paper's datasets",
    )


def _corpora(root: Path) -> Path:
    return root.parent / "corpora"
