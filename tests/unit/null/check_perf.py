"""hearsay-perf end to end: exit codes, the one shape of its JSON, and numbers that a known server makes known.

    python3 check_perf.py PATH/hearsay-perf PATH/a-small-model.gguf
"""
import collections
import csv
import glob
import http.server
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

PERF, MODEL = sys.argv[1:3]
ROW_ALWAYS = {"case": str, "metric": str, "unit": str, "n": int, "median": float, "min": float, "max": float}
ROW_SOMETIMES = {"p50": float, "p99": float, "limit": float, "share_of_limit": float, "peer": str, "peer_median": float, "ratio": float}
N_REQUESTS, N_OUTPUT, N_CACHED, N_PROMPT, N_SHARED = 9, 5, 48, 64, 40


def run(*arguments, expect=0, **environment):
    done = subprocess.run([PERF, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def check_shape(document, bench):
    assert set(document) == {"bench", "version", "machine", "options", "rows"}, document.keys()
    assert document["bench"] == bench and document["version"]
    assert set(document["machine"]) == {"cpu", "cores", "memory", "kernel"}
    assert document["machine"]["cores"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert isinstance(document["options"], dict) and document["rows"]
    for row in document["rows"]:
        for name, kind in ROW_ALWAYS.items():
            assert isinstance(row[name], kind), (name, row)
        for name in set(row) - set(ROW_ALWAYS):
            assert isinstance(row[name], ROW_SOMETIMES[name]), (name, row)
        assert row["min"] <= row["median"] <= row["max"], row
        if "limit" in row:
            assert abs(row["share_of_limit"] / (row["median"] / row["limit"]) - 1) < 1e-6
        if "ratio" in row:  # not where a median is 0
            assert row["peer"]
            higher_is_better = row["unit"] in ("tokens/s", "requests/s")
            ratio = row["median"] / row["peer_median"] if higher_is_better else row["peer_median"] / row["median"]
            assert abs(row["ratio"] / ratio - 1) < 1e-6


def rows_of(document, unit="tokens/s"):
    return {row["case"]: row for row in document["rows"] if row["unit"] == unit}


def check_exit_codes(folder):
    listed = run("list").stdout
    assert all(name in listed for name in ("accuracy", "engine", "gossip", "kernels", "route", "serve"))
    assert "--shared-prefix" in run("--help").stdout
    for wrong in ([], ["nonsense"], ["engine"], ["engine", "--backend", "gpu"], ["engine", "--runs", "0"], ["serve", "--nope"],
                  ["serve", "--url", "localhost:1"], ["serve", "--shared-prefix", "9", "--prompt-tokens", "8"]):
        done = run(*wrong, expect=2)
        assert done.stderr.startswith("hearsay-perf: ") and done.stderr.count("\n") == 1, done.stderr
    assert "leave it out" in run("list", "--csv", "-", expect=2).stderr
    for peer, bench in (("llama-bench=/x", "serve"), ("engine", "engine"), ("http://127.0.0.1:9", "route"), ("bare", "serve")):
        assert "that is a peer of" in run(bench, "--backend", "null", "--against", peer, expect=2).stderr
    assert "not a peer" in run("serve", "--against", "somebody", expect=2).stderr
    assert "--overhead" in run("serve", "--overhead", "--clients", "2", expect=2).stderr
    assert "does a server run there" in run("serve", "--url", "http://127.0.0.1:9", expect=1).stderr
    assert "gnuplot" in run("engine", "--backend", "null", "--plot", f"{folder}/x.svg", expect=77, PATH=folder).stderr


def check_engine_null(folder):
    path = f"{folder}/engine.json"
    run("engine", "--backend", "null", "--runs", "3", "--prefill", "16,400", "--decode", "32", "--batch", "2", "--decode-tokens", "3",
        "--json", path)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    check_shape(document, "engine")
    rows = rows_of(document)
    assert list(rows) == ["prefill 16", "prefill 400", "decode behind 32", "decode 2 at once behind 64"], list(rows)
    assert all(row["n"] == 3 for row in rows.values())
    # About three where nothing else runs; on a busy machine the waiting counts more than either.
    steps = [row for row in document["rows"] if row["metric"] == "time in decode steps"]
    assert len(steps) == 1 and steps[0]["unit"] == "steps" and steps[0]["median"] > 0, steps
    # A prefill takes at least 0.2 ms and 0.02 ms a token there; nothing is faster than what it computes.
    assert rows["prefill 400"]["max"] < 400 / 0.0082 and rows["decode behind 32"]["max"] < 1 / 0.00022
    assert document["options"]["backend"] == "null" and document["options"]["prefill"] == [16, 400]


def check_engine_cpu_against(folder):
    fake = f"{folder}/llama-bench"
    with open(fake, "w", encoding="utf-8") as f:
        f.write(f"#!{sys.executable}\nimport json, sys\n"
                "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
                "assert given['-o'] == 'json' and given['-t'] == '1' and given['-r'] == '2', given\n"
                "print(json.dumps([{'samples_ts': [int(given['-p']) + 0.5, int(given['-n']) * 1000.0 + int(given['-d'])] * 2}]))\n")
    os.chmod(fake, stat.S_IRWXU)
    path = f"{folder}/cpu.json"
    run("engine", "--model", MODEL, "--threads", "1", "--runs", "2", "--prefill", "20", "--decode", "24", "--batch", "none",
        "--extend", "none", "--decode-tokens", "4", "--against", f"llama-bench={fake}", "--json", path)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    check_shape(document, "engine")
    rows = rows_of(document)
    assert rows["prefill 20"]["peer_median"] == 10.25 and rows["decode behind 24"]["peer_median"] == 2012.25
    assert rows["prefill 20"]["limit"] > rows["prefill 20"]["median"] > 0
    machine = {row["metric"]: row["median"] for row in document["rows"] if row["case"] == "machine"}
    assert rows_of(document, "us")["worker pool"]["median"] > 0
    assert machine["streaming read"] > 0 and machine["float32 multiply-add"] > 0
    assert "give the path of llama-bench" in run("engine", "--model", MODEL, "--against", "llama-bench=/nowhere", "--prefill", "4",
                                                 "--decode", "none", "--batch", "none", expect=77).stderr


class FakeServer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = []
    fail_every = 0

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_in_chunks(self, body):
        """In chunks that end anywhere in an event."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 37):
            piece = body[at:at + 37]
            self.wfile.write(b"%x;name=value\r\n" % len(piece))
            self.wfile.write(piece + b"\r\n")
        self.wfile.write(b"0\r\nTrailer: yes\r\n\r\n")

    def do_GET(self):
        if self.path != "/v1/models":
            self.answer(404, "text/plain", b"")
            return
        self.answer(200, "application/json", b'{"object":"list","data":[{"id":"a-model"}]}')

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        FakeServer.requests.append(request)
        if FakeServer.fail_every and len(FakeServer.requests) % FakeServer.fail_every == 0:
            self.answer(429, "application/json", b'{"error":{"message":"all full"}}')
            return
        events = [{"choices": [{"text": " w", "finish_reason": None}], "usage": None} for _ in range(N_OUTPUT)]
        events.append({"choices": [{"text": "", "finish_reason": "length"}], "usage": None})
        events.append({"choices": [], "usage": {"prompt_tokens": len(request["prompt"]), "completion_tokens": N_OUTPUT,
                                                "prompt_tokens_details": {"cached_tokens": N_CACHED}}})
        body = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
        if len(FakeServer.requests) % 2:
            self.answer(200, "text/event-stream", body.encode())
        else:
            self.answer_in_chunks(body.encode())


def check_serve(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path, url = f"{folder}/serve.json", f"http://127.0.0.1:{server.server_port}"
    arguments = ["serve", "--url", url, "--url", url, "--clients", "3", "--requests", str(N_REQUESTS), "--prompt-tokens", str(N_PROMPT),
                 "--shared-prefix", str(N_SHARED), "--output-tokens", str(N_OUTPUT), "--json", path]
    run(*arguments)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    check_shape(document, "serve")
    rows = {row["metric"]: row for row in document["rows"]}
    assert rows["time to first token"]["n"] == N_REQUESTS and "p99" in rows["time to first token"]
    assert rows["inter-token latency"]["n"] == N_REQUESTS * (N_OUTPUT - 1)
    assert rows["end to end"]["n"] == N_REQUESTS
    assert rows["cached tokens"]["median"] == N_CACHED and rows["errors"]["median"] == 0
    tokens_per_request = rows["output throughput"]["median"] / rows["request throughput"]["median"]
    assert abs(tokens_per_request - N_OUTPUT) < 1e-6
    assert document["options"]["model"] == "a-model" and document["options"]["url"] == [url, url]
    prompts = [request["prompt"] for request in FakeServer.requests]
    assert len(prompts) == N_REQUESTS and all(len(p) == N_PROMPT and min(p) >= 512 for p in prompts)
    assert len({tuple(p[:N_SHARED]) for p in prompts}) == 1 and len({tuple(p[N_SHARED:]) for p in prompts}) == N_REQUESTS
    assert all(r["stream"] and r["stream_options"]["include_usage"] and r["max_tokens"] == N_OUTPUT for r in FakeServer.requests)

    FakeServer.requests.clear()
    FakeServer.fail_every = 3
    done = run(*arguments)
    with open(path, encoding="utf-8") as f:
        rows = {row["metric"]: row for row in json.load(f)["rows"]}
    assert rows["errors"]["median"] == N_REQUESTS // 3 and "status 429" in done.stderr and "all full" in done.stderr
    FakeServer.fail_every = 1
    assert "no request succeeded" in run(*arguments, expect=1).stderr
    server.shutdown()


class SlowServer(FakeServer):
    """Answers as the other, 200 ms later, and says what its steps took: 15 ms a request."""
    steps = 0.0

    def do_GET(self):
        if self.path == "/metrics":
            self.answer(200, "text/plain", f'# TYPE hearsay_step_seconds histogram\nhearsay_step_seconds_sum{{model="a b"}} '
                        f'{SlowServer.steps}\n'.encode())
        else:
            super().do_GET()

    def do_POST(self):
        time.sleep(0.2)
        SlowServer.steps += 0.015
        super().do_POST()


def check_serve_against(folder):
    """Rounds in turn against a server whose delay is known, against the engine, and what a request takes beyond the steps."""
    FakeServer.fail_every = 0
    FakeServer.requests.clear()
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (FakeServer, SlowServer)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    fast, slow = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    path = f"{folder}/against.json"
    common = ["--prompt-tokens", "20", "--json", path]

    def rows_after(*arguments):
        run("serve", *arguments, *common)
        with open(path, encoding="utf-8") as f:
            document = json.load(f)
        check_shape(document, "serve")
        return {row["metric"]: row for row in document["rows"]}

    rows = rows_after("--url", fast, "--against", slow, "--clients", "2", "--requests", "4", "--rounds", "3", "--output-tokens", "5")
    assert rows["time to first token"]["n"] == 12 and rows["time to first token"]["peer"] == slow
    assert rows["time to first token"]["peer_median"] >= 200 and rows["time to first token"]["ratio"] > 1
    assert rows["output throughput"]["n"] == 3 and rows["output throughput"]["ratio"] > 1
    assert rows["inter-token, p99"]["n"] == 3
    prompts = collections.Counter(tuple(request["prompt"]) for request in FakeServer.requests)
    assert len(prompts) == 12 and set(prompts.values()) == {2}, "both sides get the same prompts, each round new ones"

    rows = rows_after("--url", fast, "--against", "engine", "--backend", "null", "--clients", "3", "--requests", "6",
                      "--output-tokens", "5")
    first, gap = (rows[metric]["peer_median"] for metric in ("time to first token", "inter-token latency"))
    # The modelled backend: 0.2 ms a step and 0.02 ms a row; the second of three prompts of 20 tokens is the median.
    assert 2 * 0.6 <= first and 0.26 <= gap, (first, gap)  # nothing is faster than what it computes; how much slower is the machine's matter

    rows = rows_after("--url", slow, "--overhead", "--clients", "1", "--requests", "5", "--output-tokens", "1")
    beyond, rounding = rows["beyond the steps"], 1 + 1e-6
    least, most = (1e3 * ms - 15e3 for ms in (rows["time to first token"]["median"], rows["end to end"]["max"]))
    assert beyond["n"] == 5 and least <= beyond["median"] * rounding and beyond["median"] <= most * rounding, rows
    assert "hearsay_step_seconds_sum" in run("serve", "--url", fast, "--overhead", "--clients", "1", "--output-tokens", "1", "--requests",
                                             "1", expect=1).stderr
    for server in servers:
        server.shutdown()


def check_compare(folder):
    """Results against a baseline of themselves, then against one that asks for more, and for a row that is not there."""
    fake, csv_path, json_path = (f"{folder}/{name}" for name in ("llama-bench", "baseline.csv", "results.json"))
    run("engine", "--model", MODEL, "--threads", "1", "--runs", "2", "--prefill", "20", "--decode", "none", "--batch", "none",
        "--extend", "none", "--against", f"llama-bench={fake}", "--json", json_path, "--csv", csv_path)
    with open(csv_path, encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    with open(json_path, encoding="utf-8") as f:
        document = json.load(f)
    assert [row["case"] for row in rows] == [row["case"] for row in document["rows"]] and {row["bench"] for row in rows} == {"engine"}
    prefill = next(row for row in rows if row["case"] == "prefill 20")
    exact = rows_of(document)["prefill 20"]
    for column in ("median", "limit", "share_of_limit", "peer_median", "ratio"):
        assert abs(float(prefill[column]) / exact[column] - 1) < 1e-3, (column, prefill, exact)
    assert prefill["peer"] == "llama-bench"
    done = run("compare", csv_path, json_path)
    assert done.stdout.count("prefill 20") == 2 and "worse" not in done.stdout

    def write(**changes):
        with open(csv_path, "w", encoding="utf-8", newline="") as f:
            writer = csv.DictWriter(f, prefill.keys())
            writer.writeheader()
            writer.writerows([{**prefill, **changes}, {**prefill, "bench": "kernels", "case": "of another, \"unknown\" benchmark"}])

    write(share_of_limit=1.2 * exact["share_of_limit"])
    done = run("compare", csv_path, json_path, expect=1)
    assert done.stdout.count("worse") == 1 and "1 of 2 figures" in done.stderr
    run("compare", csv_path, json_path, "--tolerance", "20%")
    write(case='prefill "21", of all')
    assert 'prefill "21", of all' in run("compare", csv_path, json_path, expect=1).stdout
    write(share_of_limit="", ratio="")
    assert "no share or ratio" in run("compare", csv_path, json_path, expect=1).stderr
    for wrong in ("much", "0", "-1", "0.5 x", "nan"):
        write(share_of_limit=wrong)
        assert "line 2 is damaged" in run("compare", csv_path, json_path, expect=1).stderr
    write()
    with open(csv_path, encoding="utf-8") as f:
        whole = f.read()
    with open(csv_path, "w", encoding="utf-8") as f:
        f.write(whole + "engine,prefill")
    assert "line 4 is damaged" in run("compare", csv_path, json_path, expect=1).stderr
    for wrong in ([], [csv_path], [csv_path, json_path, "third"], [csv_path, json_path, "--tolerance", "much"],
                  [csv_path, json_path, "--json", "-"]):
        run("compare", *wrong, expect=2)
    assert "--json wrote" in run("compare", csv_path, csv_path, expect=1).stderr
    assert "no baseline" in run("compare", json_path, json_path, expect=1).stderr


def check_route(folder):
    path = f"{folder}/route.json"
    run("route", "--tokens", "512", "--peers", "5", "--blocks", "2048", "--calls", "12", "--json", path)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    check_shape(document, "route")
    rows = {(row["case"], row["metric"]): row for row in document["rows"]}
    cases = [name + caches for name in ("random depths", "cold", "all equal") for caches in ("", ", caches flushed")]
    with open(PERF, "rb") as f:
        counts_memory = b"__asan_init" not in f.read()  # the sanitizer's allocator does not tell what it holds
    memory = {("memory", "per replicated block")} if counts_memory else set()
    assert set(rows) == memory | {(c, m) for c in cases for m in ("hashing", "deciding", "both")}
    for case in cases:
        both = rows[case, "both"]
        # Up to the ninth digit, at which each figure was rounded on its way here.
        parts = rows[case, "hashing"]["min"] + rows[case, "deciding"]["min"]
        assert both["n"] == 12 and both["min"] >= parts * (1 - 1e-8) > 0, (case, both, parts)
    assert all(rows[key]["median"] > 8 for key in memory), "a name alone has eight bytes"
    assert document["options"]["peers"] == 5 and document["options"]["blocks"] == 2048
    assert "--blocks" in run("route", "--tokens", "4096", "--blocks", "100", expect=2).stderr


def check_kernels(folder):
    path = f"{folder}/kernels.json"
    run("kernels", "--runs", "1", "--json", path)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    check_shape(document, "kernels")
    rows = {row["case"]: row for row in document["rows"] if row["case"] != "machine"}
    assert {"product, one row", "W4 group 128, one row", "Q8_0, one row", "attention, decode", "norm"} <= set(rows), rows
    assert all(row["median"] > 0 and row["share_of_limit"] > 0 for row in rows.values()), rows
    assert sum(row["case"] == "machine" for row in document["rows"]) == 2
    assert "no such kernels" in run("kernels", "--kernels", "avx2", "--compute", "bf16", expect=77).stderr


def check_gossip(folder):
    path = f"{folder}/gossip.json"
    run("gossip", "--insertions", "40", "--run", "3", "--gossip-interval", "2ms", "--json", path)
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    check_shape(document, "gossip")
    rows = {row["metric"]: row for row in document["rows"]}
    assert rows["insertion to visibility"]["n"] == 40 and rows["bare UDP round trip"]["n"] == 40
    assert rows["insertion to visibility"]["peer_median"] == rows["bare UDP round trip"]["median"]
    assert rows["sent when idle"]["median"] > 0 and "sent per block" in rows
    assert document["options"]["gossip_interval_us"] == 2000 and document["options"]["run"] == 3
    assert "--gossip-interval" in run("gossip", "--gossip-interval", "soon", expect=2).stderr


def tiny_model(name, begins, folder):
    """A tiny model's file; or, with a begin token in front of its texts, a folder that says so."""
    tiny = os.path.dirname(MODEL)
    if not begins:
        return f"{tiny}/{name}.gguf"
    copy = shutil.copytree(f"{tiny}/{name}", f"{folder}/{name}")
    with open(f"{copy}/tokenizer_config.json", encoding="utf-8") as f:
        settings = json.load(f)
    with open(f"{copy}/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump({**settings, "add_bos_token": True}, f)
    return copy


def altered_model(change, folder):
    """A copy of tiny llama3 with a begin token, whose tokenizer.json and tokenizer_config.json went through change."""
    copy = shutil.copytree(f"{os.path.dirname(MODEL)}/llama3", tempfile.mkdtemp(dir=folder), dirs_exist_ok=True)
    files = [f"{copy}/tokenizer.json", f"{copy}/tokenizer_config.json"]
    contents = []
    for path in files:
        with open(path, encoding="utf-8") as f:
            contents.append(json.load(f))
    contents[1]["add_bos_token"] = True
    change(*contents)
    for path, content in zip(files, contents):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(content, f)
    return copy


def padded_model(folder):
    """altered_model's, with eight embeddings that no token has."""
    copy = altered_model(lambda *_: None, folder)
    for path in glob.glob(f"{copy}/*.safetensors"):
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            data = f.read()
        header.pop("__metadata__", None)
        whole = b""
        for name, entry in header.items():
            part = data[slice(*entry["data_offsets"])]
            if name in ("model.embed_tokens.weight", "lm_head.weight"):
                part += bytes(8 * len(part) // entry["shape"][0])
                entry["shape"][0] += 8
            entry["data_offsets"] = [len(whole), len(whole) + len(part)]
            whole += part
        head = json.dumps(header).encode()
        with open(path, "wb") as f:
            f.write(len(head).to_bytes(8, "little") + head + whole)
    return copy


def check_other_tokens(text, folder):
    """Models of one shape with other tokens are told apart in one line."""
    def swap(tokenizer, _):
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["!"], vocabulary["#"] = vocabulary["#"], vocabulary["!"]

    model = altered_model(lambda *_: None, folder)
    others = [(altered_model(change, folder), difference) for change, difference in (
        (swap, "token 0 is another one"),
        (lambda tokenizer, config: config.update(bos_token="<|im_start|>"), "another begin token"),
        (lambda tokenizer, config: config.update(add_bos_token=False), "another begin token"),
        (lambda tokenizer, _: tokenizer["model"]["merges"].clear(), "the text is made into others"),
        (lambda *_: None, None))]
    for other, difference in (*others, (padded_model(folder), "272 of them, not 264")):
        done = run("accuracy", "--model", model, "--text", text, "--context", "8", "--sequences", "1", "--threads", "1",
                   "--against", other, expect=2 if difference else 0)
        if difference:
            assert len(done.stderr.splitlines()) == 1 and f"({difference}" in done.stderr and "other tokens" in done.stderr, done.stderr


def check_accuracy(folder):
    """Against numpy (tests/vectors/make_accuracy.py). FP16 keys and values move single logits of these small models by up to a percent."""
    with open(os.path.join(os.path.dirname(MODEL), "..", "accuracy.json"), encoding="utf-8") as f:
        expected = json.load(f)
    text, path = f"{folder}/text", f"{folder}/accuracy.json"
    with open(text, "w", encoding="utf-8") as f:
        f.write(expected["text"])
    for case in expected["cases"]:
        model, against = (tiny_model(case[side], case["begin"], folder) for side in ("model", "against"))
        common = ["accuracy", "--model", model, "--text", text, "--context", str(case["context"]), "--sequences", str(case["sequences"]),
                  "--threads", "1", "--json", path]
        run(*common, "--against", against)
        with open(path, encoding="utf-8") as f:
            document = json.load(f)
        check_shape(document, "accuracy")
        rows = {row["metric"]: row for row in document["rows"]}
        assert {row["n"] for row in rows.values()} == {case["n"]}, rows
        assert document["options"]["sequences"] == case["n_sequences"] and document["options"]["begin_token"] == case["begin"]
        for metric, column, name in (("perplexity", "median", "perplexity"), ("perplexity", "min", "least_perplexity"),
                                     ("perplexity", "max", "most_perplexity"), ("perplexity", "peer_median", "reference_perplexity"),
                                     ("loss of a token", "max", "most_loss"), ("mean KL divergence", "median", "divergence"),
                                     ("KL divergence", "max", "most_divergence"), ("cosine of logits", "min", "least_cosine")):
            assert abs(rows[metric][column] / case[name] - 1) < 0.01, (metric, column, rows[metric], case)
        assert abs(rows["same top token"]["median"] - case["same_percent"]) <= 2 * 100 / case["n"], rows

        run(*common)
        with open(path, encoding="utf-8") as f:
            alone = json.load(f)["rows"]
        assert [row["metric"] for row in alone] == ["perplexity", "loss of a token"] and "peer" not in alone[0]
        assert all(alone[0][column] == rows["perplexity"][column] for column in ("median", "min", "max"))

        run(*common, "--against", model)
        with open(path, encoding="utf-8") as f:
            rows = {row["metric"]: row for row in json.load(f)["rows"]}
        assert rows["perplexity"]["ratio"] == 1 and rows["KL divergence"]["max"] == 0 and rows["same top token"]["min"] == 100, rows

    assert "--text" in run("accuracy", "--model", MODEL, expect=2).stderr
    assert "No such file" in run("accuracy", "--model", MODEL, "--text", f"{folder}/nothing", "--context", "8", expect=1).stderr
    assert "--context: 512" in run("accuracy", "--model", MODEL, "--text", text, expect=2).stderr
    assert "too few" in run("accuracy", "--model", MODEL, "--text", "/dev/null", "--context", "8", expect=2).stderr
    check_other_tokens(text, folder)
    assert "not a peer" in run("route", "--against", MODEL, expect=2).stderr


def check_silent_server(folder):
    with socket.create_server(("127.0.0.1", 0)) as server:  # connects, and says nothing
        done = run("serve", "--url", f"http://127.0.0.1:{server.getsockname()[1]}", "--timeout", "200ms", expect=1)
    assert "nothing came for 0.2 s (--timeout)" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_exit_codes(folder)
        check_engine_null(folder)
        check_engine_cpu_against(folder)
        check_serve(folder)
        check_serve_against(folder)
        check_silent_server(folder)
        check_compare(folder)
        check_route(folder)
        check_kernels(folder)
        check_accuracy(folder)
        check_gossip(folder)
    print("hearsay-perf: all good")


main()
