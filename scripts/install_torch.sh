#!/bin/sh
# Installs torch: install_torch.sh PYTHON torch==VERSION
#
# On Linux without a GPU the default wheel brings gigabytes of CUDA libraries, so the CPU build is taken where
# one is found: by uv, which knows PyTorch's own index, or on the indexes that pip is configured with.
# Otherwise the default wheel, which works as well.
set -eu

python="$1"
torch="$2"
PIP="$python -m pip --disable-pip-version-check --quiet"

if [ "$(uname -sm)" != "Linux x86_64" ] || command -v nvidia-smi >/dev/null 2>&1; then
    echo "installing $torch"
    exec $PIP install "$torch"
fi
if command -v uv >/dev/null 2>&1; then
    if errors=$(uv pip install --quiet --python "$python" --torch-backend cpu "$torch" 2>&1); then
        echo "installed the CPU build of $torch with uv"
        exit 0
    fi
    echo "uv could not install the CPU build of $torch: $errors"
fi
# TORCH_INDEX names one more index, such as that of PyTorch's CPU wheels.
if errors=$($PIP install "$torch+cpu" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} 2>&1); then
    echo "installed the CPU build of $torch"
    exit 0
fi
echo "pip could not install the CPU build of $torch: $errors"
echo "Installing the default wheel instead (with CUDA, 3 to 6 GB);"
echo "to avoid that, interrupt and run: make setup TORCH_INDEX=<index of PyTorch's CPU wheels, see pytorch.org>"
exec $PIP install "$torch"
