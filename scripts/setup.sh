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

started=$(date +%s)
step() {
    echo "[$(($(date +%s) - started)) s] $*"
}

step "setting up .venv: about 3 GB and 2 to 10 minutes, most of it downloads"
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
PIP=".venv/bin/python -m pip --disable-pip-version-check --quiet"

if ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    sh scripts/install_torch.sh .venv/bin/python "$(grep '^torch==' constraints.txt)"
fi

step "installing the package and its other dependencies"
$PIP install --constraint constraints.txt --editable '.[dev]'
touch .venv/.installed
step "set up"
