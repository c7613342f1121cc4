"""Stock loaders and the model types: with the explicit import, with `trust_remote_code`, without either."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.models.encoder import ExpertEncoder, save

NAMES = ["copd", "cvd"]
TEXTS = ["[COPD]the heart", "[CVD]lungs"]
LOAD = """
import sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu"{options})
print(model.encode({texts!r}).tobytes().hex())
"""


@pytest.fixture(scope="module")
def encoder(bases: dict[str, SentenceTransformer]) -> ExpertEncoder:
    return sentence_experts.extend(bases["bert"], NAMES)


@pytest.fixture(scope="module")
def folder(encoder: ExpertEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    save(encoder, tmp_path_factory.mktemp("saved") / "model")
    return tmp_path_factory.getbasetemp() / "saved0" / "model"


def python(code: str, *arguments: object, options: tuple[str, ...] = (), **environment: str):
    command = [sys.executable, *options, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def loading(options: str = "") -> str:
    return LOAD.format(options=options, texts=TEXTS)


def test_trust_remote_code_needs_no_import(encoder: ExpertEncoder, folder: Path, tmp_path: Path) -> None:
    done = python(loading(", trust_remote_code=True"), folder, HF_MODULES_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    vectors = np.frombuffer(bytes.fromhex(done.stdout.strip()), np.float32).reshape(2, -1)
    assert np.allclose(vectors, encoder.encode(TEXTS), atol=1e-6)


def test_without_import_or_flag_the_loader_asks(folder: Path) -> None:
    done = python(loading(), folder)
    assert done.returncode != 0
    assert "trust_remote_code=True" in done.stderr


def test_a_missing_package_is_named(folder: Path, tmp_path: Path) -> None:
    # Without `site`, the path of an editable installation is not added; the other packages are, by hand.
    installed = sysconfig.get_paths()["purelib"]
    code = f"import sys; sys.path.append({installed!r}){loading(', trust_remote_code=True')}"
    done = python(code, folder, options=("-S",), HF_MODULES_CACHE=str(tmp_path), PYTHONPATH="")
    assert done.returncode != 0
    assert "pip install sentence_experts" in done.stderr


@pytest.mark.parametrize("trust", [None, False, True])
def test_registered_types_are_not_asked_for(encoder: ExpertEncoder, folder: Path, trust: bool | None) -> None:
    options = {} if trust is None else {"trust_remote_code": trust}
    stock = SentenceTransformer(str(folder), device="cpu", **options)
    assert type(stock[0].auto_model) is type(encoder[0].auto_model)
    assert np.array_equal(stock.encode(TEXTS), encoder.encode(TEXTS))


def test_a_model_loaded_by_a_stock_loader_is_saved_as_ours(folder: Path, tmp_path: Path) -> None:
    stock = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    stock.save_pretrained(str(tmp_path / "again"), create_model_card=False)
    for name in ("config.json", "modeling_sentence_experts.py"):
        assert (tmp_path / "again" / name).read_text() == (folder / name).read_text()
    assert len(list((tmp_path / "again").rglob("*.py"))) == 1


def test_the_config_names_the_classes(folder: Path) -> None:
    assert json.loads((folder / "config.json").read_text())["auto_map"] == {
        "AutoConfig": "modeling_sentence_experts.BertExpertsConfig",
        "AutoModel": "modeling_sentence_experts.BertExpertsModel",
    }
    assert len((folder / "modeling_sentence_experts.py").read_text().splitlines()) <= 10


def test_import_does_not_load_transformers() -> None:
    done = python("import sys, sentence_experts; sys.exit('transformers' in sys.modules)")
    assert done.returncode == 0
