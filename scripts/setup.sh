#!/bin/sh
# Puts the package with all it needs for demo and tests into .venv, at the versions of constraints.txt.
set -eu

PYTHON="${PYTHON:-python3}"
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found=$("$PYTHON" --version 2>/dev/null) || found="not there"
    echo "error: sentence-experts needs Python 3.11 or newer; '$PYTHON' is $found." >&2
    echo "Install one and run: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi

[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
PIP=".venv/bin/python -m pip --disable-pip-version-check"

# On Linux without a GPU the default torch wheel brings gigabytes of CUDA libraries: ask for the CPU build.
if ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    torch=$(grep '^torch==' constraints.txt)
    if [ "$(uname -sm)" = "Linux x86_64" ] && ! command -v nvidia-smi >/dev/null 2>&1; then
        if ! $PIP install --quiet "$torch+cpu" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}; then
            echo "error: no CPU build of $torch was found. Give the index of PyTorch's CPU wheels (named on" >&2
            echo "pytorch.org under 'Get started'): make setup TORCH_INDEX=...  or, to accept the CUDA build" >&2
            echo "of several GB: .venv/bin/python -m pip install $torch" >&2
            exit 1
        fi
    else
        $PIP install --quiet "$torch"
    fi
fi

$PIP install --quiet --constraint constraints.txt --editable '.[dev]'
touch .venv/.installed
