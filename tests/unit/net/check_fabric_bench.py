"""hearsay-perf fabric end to end: every pattern's rows, what they are compared with, two processes that call each other, exit codes.

    python3 check_fabric_bench.py PATH/hearsay-perf
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

PERF = sys.argv[1]
SHORT = ["--runs", "2", "--duration", "60ms", "--senders", "2"]


def run(*arguments, expect=0):
    done = subprocess.run([PERF, "fabric", *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def rows_of(folder, *arguments):
    path = f"{folder}/fabric.json"
    run(*SHORT, "--json", path, *arguments)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    assert document["bench"] == "fabric" and document["options"]["fabric"] == "sockets", document
    for row in document["rows"]:
        assert row["metric"] == "retransmits" or 0 < row["min"] <= row["median"] <= row["max"], row
        if "peer" in row:
            ratio = row["median"] / row["peer_median"]
            assert abs(row["ratio"] / (ratio if row["unit"] == "MB/s" else 1 / ratio) - 1) < 1e-6, row
    return {(row["case"], row["metric"]): row for row in document["rows"]}


def check_all_patterns(folder):
    rows = rows_of(folder, "--patterns", "all", "--sizes", "64,8192", "--against", "bare")
    for case, metric in (("ping-pong 64 B", "round trip"), ("ping-pong 8192 B", "round trip"), ("stream 64 B", "throughput"),
                         ("stream 8192 B", "throughput")):
        assert rows[case, metric]["peer"] == "bare UDP, spinning"
        for bare in ("UDP, spinning", "UDP, blocking", "TCP, spinning", "TCP, blocking"):
            assert (f"{case}, bare {bare}", metric) in rows, (case, bare)
    for row in (("read 64 B by message", "time"), ("answer 64 B", "own work"), ("2 to one, 64 B", "round trip"),
                ("2 to one, 64 B", "throughput"), ("stream 8192 B, cipher alone, libcrypto", "throughput"), ("stream 64 B", "retransmits")):
        assert row in rows, row
    assert any(case.startswith("stream 8192 B, our seal alone, lib") for case, _ in rows)
    assert ("answer 8192 B", "own work") not in rows  # longer than what is answered in memory


def check_unsealed_and_adaptive(folder):
    rows = rows_of(folder, "--patterns", "ping,stream,answer", "--sizes", "64", "--sealed", "no", "--poll", "adaptive")
    assert ("answer 64 B, unsealed", "own work") in rows and ("stream 64 B, cipher alone, libcrypto", "throughput") not in rows


def check_two_sides():
    with subprocess.Popen([PERF, "fabric", "--serve", "--poll", "adaptive"], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"serving at (\S+)", server.stdout.readline())[1]
            done = run(*SHORT, "--poll", "adaptive", "--connect", address, "--sizes", "1000", "--against", "bare")
            assert "ping-pong 1000 B" in done.stdout and "bare" not in done.stdout, done.stdout
            assert "nobody answers" in run(*SHORT, "--connect", address, "--sealed", "no", expect=1).stderr
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def check_usage():
    for wrong in (["--fabric", "pigeons"], ["--patterns", "dance"], ["--sizes", "none,"], ["--sealed", "perhaps"],
                  ["--against", "perftest"]):
        done = run(*wrong, expect=2)
        assert done.stderr.startswith("hearsay-perf: ") and done.stderr.count("\n") == 1, done.stderr


with tempfile.TemporaryDirectory() as temporary:
    os.chdir(temporary)
    check_usage()
    check_all_patterns(temporary)
    check_unsealed_and_adaptive(temporary)
    check_two_sides()
print("good")
