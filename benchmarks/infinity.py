"""infinity, another embedding server, in a separate environment; `serve.py` measures it beside ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

# With sentence-transformers 5, which its metadata excludes, infinity takes MiniLM for a model of another kind
# and reads twice as many tokens of long texts. Other releases of FastAPI and its metrics do not go together.
PINS = (
    "infinity-emb[server,torch]==0.0.78",
    "transformers==4.57.1",
    "sentence-transformers==3.4.1",
    "fastapi==0.115.14",
    "prometheus-fastapi-instrumentator==7.0.2",
)
VERSIONS = {name.partition("[")[0]: number for name, _, number in (pin.partition("==") for pin in PINS[:3])}
SECONDS = 180


@dataclass
class InfinityServer:
    """A running infinity."""

    process: subprocess.Popen[bytes]
    url: str


def make_environment(folder: Path, torch: str) -> None:
    """Install infinity there, unless it is; with the same torch, of which pip then takes no CUDA build."""
    if (folder / "bin" / "infinity_emb").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = Path(__file__).parent.parent / "scripts" / "install_torch.sh"
    subprocess.run(["sh", str(install), str(folder / "bin" / "python"), f"torch=={torch}"], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"torch=={torch}", *PINS], check=True)


@contextmanager
def running_infinity(folder: Path, model: Path) -> Iterator[InfinityServer]:
    """infinity of this environment, serving a model as "minilm"; one thread per batch, as in our server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(folder / "bin" / "infinity_emb"), "v2", "--model-id", str(model)]
    command += ["--served-model-name", "minilm", "--no-bettertransformer", "--url-prefix", "/v1"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--engine", "torch"]
    own = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1"}
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own
    variables["INFINITY_ANONYMOUS_USAGE_STATS"] = "0"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=variables)
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models", process)
        yield InfinityServer(process, f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + SECONDS
    while True:
        try:
            urlopen(url, timeout=5).close()
            return
        except (URLError, OSError):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("infinity does not start") from None
            time.sleep(0.5)
