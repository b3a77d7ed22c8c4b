"""Bad usage gets one clear line and exit 2; --check and --help end with 0."""
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import support


def run(*args, env=None, binary=support.BINARY):
    done = subprocess.run([binary, *args], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


CONTAINED = ("unshare", "--pid", "--fork", "--kill-child")  # as the first process of a container
ANYWHERE = ("--http", "127.0.0.1:0", "--bind", "127.0.0.1:0")
PERF = os.path.join(support.BUILD, "perf", "hearsay-perf")
QUANTIZE = os.path.join(support.BUILD, "tools", "hearsay-quantize")


class CommandLine(unittest.TestCase):
    def refused(self, *args, names, env=None, status=2, binary=support.BINARY):
        code, out, err = run(*args, env=env, binary=binary)
        self.assertEqual(code, status, err)
        self.assertEqual(len(err.strip().splitlines()), 1, err)
        for name in names:
            self.assertIn(name, err)

    def test_bad_options(self):
        m = ("--model", support.MODEL)
        self.refused(names=["--model"])
        self.refused("--frobnicate", names=["--frobnicate"])
        self.refused(*m, "--push-back", "many", names=["--push-back", "many"])
        self.refused(*m, "--kv-memory", "12parsecs", names=["--kv-memory", "12parsecs"])
        self.refused(*m, "--route", "scenic", names=["--route", "scenic", "cost, longest, none"])
        self.refused(*m, "--gossip-interval", "10", names=["--gossip-interval", "10"])
        self.refused(*m, "--kv-pages", "100", "--kv-memory", "1GiB", names=["--kv-pages", "--kv-memory"])
        self.refused(*m, "--page-tokens", "17", names=["--page-tokens", "17"])
        self.refused(*m, "--pin", "loop=0,http=0,sidecar=0", names=["--pin", "sidecar"])
        self.refused(*m, "surplus", names=["surplus"])
        self.refused(*m, "--join", "node[1-", names=["join", "node[1-"])
        self.refused(*m, names=["HEARSAY_PUSH_BACK", "x"], env={"HEARSAY_PUSH_BACK": "x"})
        self.refused(*m, "--group-key-file", "/nonexistent", names=["/nonexistent"])
        self.refused(*m, "--bind", "0.0.0.0:0", names=["0.0.0.0", "--group-key-file"])
        self.refused(*m, "--chat-template", "pigeon", names=["pigeon", "chatml"])
        self.refused(*m, "--cpus", "4095", names=["--cpus", "4095"])
        self.refused(*m, "--kv-memory", "0", names=["--kv-memory"])
        self.refused(*m, "--pin", "", names=["--pin", "empty"])
        self.refused(*m, "--max-waiting", "40000", names=["--max-waiting", "40000", "32767"])
        self.refused(*m, "--tenant-weight", "a=0", names=["--tenant-weight", "0"])
        self.refused(*m, "--tenant-weight", "a", names=["--tenant-weight", "\"a\"", "team-a=2"])
        self.refused(*m, "--tenant-weight", "a=1,b=2,a=3", names=["--tenant-weight", "\"a\"", "twice"])
        self.refused(*m, "--tenant-weight", "x" * 64 + "=1", names=["--tenant-weight", "63"])
        self.refused(*m, "--datagram-bytes", "9k", names=["--datagram-bytes", "9k", "1200 to 65000", "link"])
        self.refused(*m, "--datagram-bytes", "100", names=["--datagram-bytes", "100", "1200 to 65000"])
        self.refused(*m, "--fabric", "verbs", "--datagram-bytes", "link", names=["--datagram-bytes", "--fabric sockets"])
        self.refused(*m, "--drain-timeout", "2h", names=["--drain-timeout", "2h"])
        self.refused("--check", "-model", support.MODEL, names=["-model: no such option"])

    def test_the_command_line_wins_over_the_environment(self):
        m = ("--model", support.MODEL, "--check", *ANYWHERE)
        code, out, err = run(*m, "--kv-memory", "64MiB", env={"HEARSAY_KV_PAGES": "3"})
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("KV cache   3 pages", out)
        code, out, err = run(*m, env={"HEARSAY_KV_PAGES": "3"})
        self.assertEqual((code, err), (0, ""))
        self.assertIn("KV cache   3 pages", out)
        self.refused(*m, env={"HEARSAY_KV_PAGES": "3", "HEARSAY_KV_MEMORY": "64MiB"}, names=["HEARSAY_KV_PAGES", "HEARSAY_KV_MEMORY"])
        code, out, err = run(*m, "--fabric", "sockets", env={"HEARSAY_DEVICE": "mlx5_0"})
        self.assertEqual(code, 0)
        self.assertIn("HEARSAY_DEVICE is for --fabric verbs", err)
        self.refused(*m, env={"HEARSAY_DEVICE": "mlx5_0"}, names=["HEARSAY_DEVICE", "--fabric verbs"])
        with tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, "key")
            with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write("0123456789abcdef" * 4 + "\n")
            self.assertEqual(run(*m, "--group-key-file", key, env={"HEARSAY_INSECURE_PEERS": "yes"})[0], 0)
            self.assertEqual(run(*m, "--insecure-peers", env={"HEARSAY_GROUP_KEY_FILE": "/nonexistent"})[0], 0)
            self.refused(*m, "--insecure-peers", "--group-key-file", key, names=["--insecure-peers", "--group-key-file"])

    def test_deploy_files_name_real_options(self):
        """What deploy/ starts, as far as it goes without systemd, Slurm or Kubernetes: the options are there and their values are taken."""
        named = set()
        for place, _, names in os.walk(os.path.join(support.TOP, "deploy")):
            for name in names:
                with open(os.path.join(place, name), encoding="utf-8") as f:
                    lines = [line for line in f if not line.lstrip().startswith("#")]
                for line in lines:
                    named.update(re.findall(r"--([a-z][a-z-]+)", line.partition(" #")[0]))
                    named.update(option.lower().replace("_", "-") for option in re.findall(r"^HEARSAY_(\w+)=", line))
        named -= {"kill-on-bad-exit", "cpu-bind"}  # srun's
        self.assertLessEqual({"model", "http", "bind", "join", "group-key-file"}, named)
        offered = set(re.findall(r"--([a-z][a-z-]+)", run("--help")[1]))
        self.assertLessEqual(named, offered)
        with tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, "group.key")
            with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write("0123456789abcdef" * 4 + "\n")
            for join in ("node[01-04]:7070", "hearsay-[0-3].hearsay-peers:7070", "node[01-04]"):
                code, out, err = run("--model", support.MODEL, "--backend", "null", "--check", "--http", "0.0.0.0:0", "--bind", "0.0.0.0:0",
                                     "--name", "hearsay-0", "--join", join, "--group-key-file", key)
                self.assertEqual((code, err), (0, ""), out)

    def test_datagrams_of_unlike_length(self):
        """Two nodes, one with short datagrams, one with what loopback passes best: they find each other, and long prompts travel."""
        lengths = {0: ["--datagram-bytes", "1300"], 1: ["--datagram-bytes", "link"]}
        group = support.Group(support.BINARY, support.MODEL, count=2, options=("--backend", "null"), node_options=lengths)
        self.addCleanup(group.stop)
        for node in group.nodes:
            node.start()
        for node, length in zip(group.nodes, (1300, 16640)):
            support.wait_until(node.healthy, 60, "health")
            support.wait_until(lambda n=node: n.alive_peers() == 1, 60, "a peer")
            self.assertIn(f"datagrams of {length} bytes", node.log())
        for number in range(6):
            answer, _ = support.post(group.nodes[number % 2], "/v1/completions", {"prompt": "x " * 3000 + str(number % 3), "max_tokens": 4})
            self.assertEqual(answer["usage"]["completion_tokens"], 4)
        self.assertEqual(group.stop(), [0, 0])

    def test_a_key_that_others_can_read(self):
        """A credential of systemd shows a right of the group: it is the mask of an access list that names the service's user."""
        for mode, credential, warned in ((0o600, False, False), (0o400, False, False), (0o640, False, True), (0o604, False, True),
                                         (0o440, True, False), (0o444, True, True)):
            with tempfile.TemporaryDirectory() as folder:
                key = os.path.join(folder, "key")
                with open(key, "w") as f:
                    f.write("0123456789abcdef" * 4 + "\n")
                os.chmod(key, mode)
                http, = support.free_ports(1, socket.SOCK_STREAM)
                fabric, = support.free_ports(1, socket.SOCK_DGRAM)
                command = [support.BINARY, "--model", support.MODEL, "--backend", "null", "--http", f"127.0.0.1:{http}",
                           "--bind", f"127.0.0.1:{fabric}", "--group-key-file", key]
                node = support.Node("keyed", command, http, fabric, os.path.join(folder, "log"))
                with unittest.mock.patch.dict(os.environ, {"CREDENTIALS_DIRECTORY": folder} if credential else {}):
                    node.start()
                support.wait_until(node.healthy, 20, "health")
                self.assertEqual(node.stop(), 0)
                self.assertEqual(node.log().count(f"(mode {mode:04o}): chmod 600 {key}"), int(warned), node.log())

    def test_a_name_without_an_address_is_tried_again(self):
        http, = support.free_ports(1, socket.SOCK_STREAM)
        fabric, = support.free_ports(1, socket.SOCK_DGRAM)
        with tempfile.TemporaryDirectory() as folder:
            command = [support.BINARY, "--model", support.MODEL, "--backend", "null", "--http", f"127.0.0.1:{http}",
                       "--bind", f"127.0.0.1:{fabric}", "--join", "nohost.invalid:7070"]
            node = support.Node("lonely", command, http, fabric, os.path.join(folder, "log"))
            node.start()
            support.wait_until(node.healthy, 20, "health")
            support.wait_until(lambda: "nohost.invalid:7070" in node.log(), 20, "a line that names the host")
            self.assertEqual(node.stop(), 0)
            self.assertEqual(node.log().count("nohost.invalid"), 1)

    def test_bad_models(self):
        self.refused("--model", "/nonexistent.gguf", names=["/nonexistent.gguf"])
        with tempfile.TemporaryDirectory() as folder:
            self.refused("--model", folder, names=[folder])
            path = os.path.join(folder, "cut.gguf")
            with open(support.MODEL, "rb") as src, open(path, "wb") as dst:
                dst.write(src.read(5_000_000))
            self.refused("--model", path, names=[path])
            with open(path, "wb") as dst:
                dst.write(b"not a model at all")
            self.refused("--model", path, names=[path])
            for head, name in ((struct.pack("<IQQ", 99, 1, 1), "version 99"), (struct.pack("<IQQ", 3, 1 << 63, 1), "9223372036854775808"),
                               (struct.pack("<IQQ", 3, 1, 1 << 60), "1152921504606846976")):
                with open(path, "wb") as dst:
                    dst.write(b"GGUF" + head)
                self.refused("--model", path, names=[path, name])
            fifo = os.path.join(folder, "fifo.gguf")
            os.mkfifo(fifo)
            self.refused("--model", fifo, names=[fifo, "regular file"])

    def test_a_full_disk_is_a_failure(self):
        group = support.Group(support.BINARY, support.MODEL, count=1, options=("--backend", "null"))
        self.addCleanup(group.stop)
        group.start()
        for command in ([support.BINARY, "--help"], [support.BINARY, "--model", support.MODEL, "--check", *ANYWHERE],
                        [support.CTL, "--help"], [support.CTL, f"127.0.0.1:{group.nodes[0].http_port}", "status"],
                        [QUANTIZE, "--help"], [PERF, "--help"], [PERF, "list"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn(f"{os.path.basename(command[0])}: the output cannot be written: No space", done.stderr)

    def end_while_loading(self, *, first_process=False):
        """Status and words of a node that is told to end while it loads; stopped for it, so that it cannot be done before."""
        command = [support.BINARY, "--model", support.MODEL, "--kv-pages", "64", *ANYWHERE]
        for _ in range(20):
            node = subprocess.Popen([*(CONTAINED if first_process else ()), *command], stderr=subprocess.PIPE)
            pid = None if first_process else node.pid
            while node.poll() is None:
                if pid is None:
                    with open(f"/proc/{node.pid}/task/{node.pid}/children") as children:
                        pid = next(map(int, children.read().split()), None)
                    continue
                with open(f"/proc/{pid}/maps") as maps:
                    if support.MODEL in maps.read():  # being loaded, and not served yet
                        break
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
                os.kill(pid, number)
            _, said = node.communicate(timeout=120)
            if b"ended before" in said:  # else it was quicker than we
                break
        return node.returncode, said.decode().splitlines()

    def test_a_signal_ends_the_loading(self):
        status, said = self.end_while_loading()
        self.assertEqual((status, len(said)), (-signal.SIGTERM, 1), said)

    @unittest.skipIf(subprocess.run([*CONTAINED, "true"], stderr=subprocess.DEVNULL).returncode, "no process namespace can be made here")
    def test_a_signal_ends_the_loading_in_a_container(self):
        """The first process of a process namespace, for which the kernel has no default actions."""
        status, said = self.end_while_loading(first_process=True)
        self.assertEqual((status, len(said)), (128 + signal.SIGTERM, 1), said)

    def test_a_signal_at_any_time_of_the_start(self):
        """The node says in one line what ended it, at whatever point of the start; only before main there is nobody who could."""
        command = [support.BINARY, "--model", support.MODEL, "--backend", "null", "--kv-pages", "64", *ANYWHERE]
        started = time.monotonic()
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
            while " serves " not in node.stderr.readline():
                self.assertIsNone(node.poll())
            whole_s = time.monotonic() - started
            node.terminate()
            self.assertEqual(node.wait(60), 0)
        for step in range(24):
            node = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            time.sleep(whole_s * step / 20)
            node.terminate()
            _, said = node.communicate(timeout=60)
            if node.returncode:
                self.assertEqual(node.returncode, -signal.SIGTERM, said)
                self.assertNotIn(" serves ", said)
                self.assertLessEqual(said.count("ended before"), 1, said)
            else:
                self.assertEqual((said.count(" serves "), said.count("finishing what runs")), (1, 1), said)

    def test_whoever_was_answered_may_end_it(self):
        for _ in range(5):
            http, = support.free_ports(1, socket.SOCK_STREAM)
            fabric, = support.free_ports(1, socket.SOCK_DGRAM)
            with tempfile.TemporaryDirectory() as folder:
                command = [support.BINARY, "--model", support.MODEL, "--backend", "null", "--http", f"127.0.0.1:{http}",
                           "--bind", f"127.0.0.1:{fabric}"]
                node = support.Node("answering", command, http, fabric, os.path.join(folder, "log"))
                node.start()
                while not node.healthy():
                    self.assertIsNone(node.process.poll(), node.log())
                self.assertEqual(node.stop(), 0, node.log())

    def test_ports_in_use(self):
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            udp.bind(("127.0.0.1", 0))
            m = ("--model", support.MODEL, "--kv-pages", "64", "--log-level", "error")
            tcp_address = f"127.0.0.1:{tcp.getsockname()[1]}"
            udp_address = f"127.0.0.1:{udp.getsockname()[1]}"
            self.refused(*m, "--http", tcp_address, "--bind", "127.0.0.1:0", names=[tcp_address, "in use"])
            self.refused(*m, "--http", "127.0.0.1:0", "--bind", udp_address, names=[udp_address, "in use"])

    def test_check_and_help(self):
        code, out, err = run("--model", support.MODEL, "--check", "--http", "127.0.0.1:0", "--bind", "127.0.0.1:0")
        self.assertEqual(code, 0, err)
        self.assertIn("chat       smollm2", out)
        self.assertIn("vocabulary 49152", out)
        self.assertRegex(out, r"KV cache .* MiB: .* MiB that the weights leave free (on this|under /)")
        for binary in (support.BINARY, support.CTL):
            code, out, err = run("--help", binary=binary)
            self.assertEqual((code, err), (0, ""))
            self.assertIn("Examples", out)

    def test_manual_pages_know_every_option(self):
        for binary in (support.BINARY, support.CTL, QUANTIZE, PERF):
            with open(os.path.join(support.TOP, "docs", "man", os.path.basename(binary) + ".1")) as f:
                page = f.read().replace("\\-", "-")
            options = set(re.findall(r"^ +(--[a-z0-9-]+)", run("--help", binary=binary)[1], re.M))
            self.assertGreater(len(options), 2)
            for option in options:
                self.assertRegex(page, re.escape(option) + r"\b", f"{os.path.basename(binary)}.1")

    def test_a_list_has_no_results_to_write(self):
        self.refused("list", "--json", "x.json", names=["--json", "list"], binary=PERF)
        self.assertEqual(run("list", binary=PERF)[0], 0)

    def test_ctl(self):
        self.refused(names=["hearsay-ctl"], binary=support.CTL)
        self.refused("127.0.0.1:1", "dance", names=["dance"], binary=support.CTL)
        self.refused("127.0.0.1:1", "status", names=["127.0.0.1:1"], status=1, binary=support.CTL)


if __name__ == "__main__":
    support.main()
