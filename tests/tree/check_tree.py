"""What the tree promises about its own shape: who includes whom, how long files and functions are, which calls are banned.

Run from the top of the source tree. Prints one line for each violation and ends with 1 if there is one.
"""
import re
import subprocess
import sys

# folder -> folders that its files may include from (docs/architecture.md draws it)
MAY_INCLUDE = {
    "core/base": set(),
    "core/port": {"core/base"},
    "core/cache": {"core/base", "core/port"},
    "core/model": {"core/base", "core/port"},
    "core/cpu": {"core/base", "core/port"},
    "core/null": {"core/base", "core/port", "core/cpu/sample.h"},
    "core/cluster": {"core/base", "core/port", "core/cache"},
    "core/serve": {"core/base", "core/port", "core/cache", "core/model", "core/cluster"},
    "net": {"core/base", "core/port"},
    "gpu": {"core/base", "core/port"},
    "tools": {"core", "net"},
    "perf": {"core", "net"},
}

MAX_FILE_LINES = 800
MAX_HEADER_LINES = 200
MAX_FUNCTION_LINES = 70

# call -> (where it is banned, why)
CORE_ONLY = "core/(?!base/log\\.c)"
BANNED = [
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof)\s*\(", r"(core|net|tools|perf)/", "unbounded or unchecked"),
    (r"\b(rand|srand|random|drand48|getrandom|arc4random)\s*\(", r"(core|perf)/", "randomness comes from env.h or rng.h"),
    (r"\b(clock_gettime|gettimeofday|time)\s*\(", CORE_ONLY, "time comes from env.h"),
    (r"\b(exit|_exit|abort)\s*\(", r"(core/(?!base/panic\.c)|net/)", "only main ends the process"),
    (r"\b(sleep|usleep)\s*\(", r"(core|net)/", "wait on a descriptor with a deadline"),
    (r"\b(TODO|FIXME|XXX)\b", r".", "finish it or say it in docs"),
]
# The edges of the process own real threads and clocks.
ALLOWED = {
    ("core/serve/node_loop.c", "clock_gettime"), ("core/serve/node_loop.c", "getrandom"),
    ("core/serve/node_env.c", "clock_gettime"), ("core/serve/node_env.c", "getrandom"),
}

problems = []


def problem(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "core" else parts[0]


def check_includes(path, lines):
    home = folder_of(path)
    if home not in MAY_INCLUDE:
        return
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1)
        there = folder_of(target)
        if "/" not in target:
            problem(path, number, f'include "{target}" is not written from the top of the tree')
        elif there != home and not any(there == a or target == a or there.startswith(a + "/") for a in MAY_INCLUDE[home]):
            problem(path, number, f"{home} must not include {target}")
        if target.endswith(".c"):
            problem(path, number, f"includes a source file, {target}")


def check_lengths(path, lines):
    limit = MAX_HEADER_LINES if path.endswith(".h") else MAX_FILE_LINES
    if len(lines) > limit:
        problem(path, len(lines), f"has {len(lines)} lines, more than {limit}")
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start:
            if number - start - 1 > MAX_FUNCTION_LINES:
                problem(path, start, f"function body of {number - start - 1} lines, more than {MAX_FUNCTION_LINES}")
            start = None


def code_only(text):
    """Comments and strings blanked, lines kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_banned(path, text):
    bare = code_only(text)
    for pattern, where, why in BANNED:
        if not re.match(where, path):
            continue
        haystack = text if "TODO" in pattern else bare
        for match in re.finditer(pattern, haystack):
            if (path, match.group(1)) not in ALLOWED:
                problem(path, haystack.count("\n", 0, match.start()) + 1, f"{match.group(1)}: {why}")


def check_header(path, lines):
    if not path.endswith(".h"):
        return
    if not lines or not lines[0].startswith("/*"):
        problem(path, 1, "a header opens with what it is for")
    if not any(re.match(r"#ifndef HEARSAY_\w+_H$", line) for line in lines):
        problem(path, 1, "no include guard HEARSAY_..._H")


def main():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True)
    sources = [f for f in files.stdout.split("\n") if re.search(r"\.(c|h|cu|cuh|cpp)$", f) and f != "tests/tree/check_tree.py"]
    if len(sources) < 20:
        problem(".", 0, f"only {len(sources)} sources found: run from the top of the source tree")
    for path in sources:
        try:
            with open(path, encoding="utf-8") as f:
                text = f.read()
        except FileNotFoundError:
            continue  # deleted, not yet committed
        lines = text.split("\n")
        check_includes(path, lines)
        check_lengths(path, lines)
        check_banned(path, text)
        check_header(path, lines)
    print("\n".join(problems))
    print(f"{len(sources)} files, {len(problems)} problems")
    return 1 if problems else 0


sys.exit(main())
