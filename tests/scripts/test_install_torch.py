"""The choice of torch's build, with real pip against real local indexes that hold tiny stand-in wheels."""

from __future__ import annotations

import os
import platform
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,  # an environment with pip
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the CPU build is looked for on Linux x86_64 alone",
    ),
]
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install_torch.sh"


def write_wheel(folder: Path, version: str) -> None:
    """A wheel of a package called torch that says nothing but its version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"torch.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def install(python: Path, wheels: Path, programs: Path) -> tuple[str, str]:
    """Run the script where pip sees only `wheels`; returns what it printed and the version installed."""
    programs.mkdir(exist_ok=True)
    for name in ("sh", "uname", "env"):  # neither uv nor nvidia-smi
        found = next(Path(p) / name for p in os.environ["PATH"].split(":") if (Path(p) / name).exists())
        (programs / name).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    settings = {"PATH": str(programs), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    subprocess.run([python, "-m", "pip", "uninstall", "-qy", "torch"], check=True, env={**kept, **settings})
    done = subprocess.run(
        ["sh", SCRIPT, python, "torch==9.9.9"],
        env={**kept, **settings, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    code = "import torch; print(torch.__version__)"
    version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, version.stdout.strip()


def test_takes_the_cpu_build_where_an_index_has_it(environment: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "9.9.9")
    write_wheel(tmp_path / "wheels", "9.9.9+cpu")
    printed, version = install(environment, tmp_path / "wheels", tmp_path / "programs")
    assert version == "9.9.9+cpu"
    assert "CPU build" in printed


def test_takes_the_default_wheel_where_no_index_has_the_cpu_build(environment: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "9.9.9")
    printed, version = install(environment, tmp_path / "wheels", tmp_path / "programs")
    assert version == "9.9.9"
    assert "GB" in printed
    assert "No matching distribution found for torch==9.9.9+cpu" in printed  # pip's own reason
