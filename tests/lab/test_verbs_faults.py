"""Nodes over soft-RoCE when things go wrong, with HEARSAY_FABRIC=verbs or verbs-ud. Runs as root inside the virtual machine of tests/lab/vm
(tests/lab/verbs-test faults ud-nodes)."""
import contextlib
import glob
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import support  # noqa: E402

UD = os.environ.get("HEARSAY_FABRIC") == "verbs-ud"
NULL = ("--backend", "null", "--kv-pages", "512")


def refused(*arguments, before=(), binary=support.BINARY, model=support.MODEL):
    """Exit status and the lines of a start that must fail."""
    command = [*before, binary, "--model", model, *NULL, "--http", "127.0.0.1:0", "--bind", "127.0.0.1:0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("hearsay: ")]


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")


@contextlib.contextmanager
def for_everybody():
    """Copies of the program and the model where every user may read them: the tree and the cache may be root's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield [shutil.copy(path, folder) for path in (support.BINARY, support.MODEL)]


def roce_frames(count, seed):
    """What an outsider may send to a device's UDP port 4791: noise, and headers that name queue pairs which exist."""
    r = random.Random(seed)
    for i in range(count):
        if i % 4 == 0:
            yield r.randbytes(r.randrange(1, 1400))
            continue
        opcode = (4, 0x64, 0, 6, 0x0a, 0x0c)[i % 6]  # RC SEND only, UD SEND only, RC SEND first, RC WRITE first and only, RC READ request
        base = struct.pack(">BBHII", opcode, 0x40, 0xffff, i % 40 + 1, r.getrandbits(24) | 0x80 << 24)
        yield base + r.randbytes(r.choice((8, 16, 24, 256, 1028)))


def sends(device):
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/rdma_sends") as f:
        return int(f.read())


def port_is_active():
    with open("/sys/class/infiniband/rxe0/ports/1/state") as f:
        return "ACTIVE" in f.read()


def carrier(host, up):
    """Plugs or pulls the cable of a host: the switch's side of its wire."""
    subprocess.run(["ip", "link", "set", f"p{host}", "up" if up else "down"], check=True)


def together(nodes):
    return all(node.healthy() and node.alive_peers() == len(nodes) - 1 for node in nodes)


def answers(node):
    text, _, _, _, _ = support.complete(node, "Once upon a time", 4)
    return text


class Starts(unittest.TestCase):
    """What keeps a node from starting is one line, and never a hang."""

    def one_line(self, outcome, status, pattern):
        code, lines = outcome
        self.assertEqual(code, status, lines)
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], pattern)

    def test_wrong_device(self):
        self.one_line(refused("--device", "mlx5_0"), 2, r'no RDMA device "mlx5_0" here: there is rxe0, rxe1')

    def test_wrong_address_index(self):
        self.one_line(refused("--device", "rxe0:1:77"), 2, r"rxe0 port 1 has no RoCE v2 GID with index 77: usable are 0 \(fe80.*\), 1 \(::ffff:10.77.0.1\)")

    def test_wrong_port(self):
        self.one_line(refused("--device", "rxe0:2"), 2, r"rxe0 has no port 2")

    def test_cable_pulled(self):
        carrier(0, False)
        try:
            support.wait_until(lambda: not port_is_active(), 10, "the port being down")
            self.one_line(refused("--device", "rxe0"), 1, r"rxe0 port 1 is \w+: check the cable and `ip link set \.\.\. up`")
        finally:
            carrier(0, True)
        support.wait_until(port_is_active, 10, "the port being up")

    def test_little_locked_memory(self):
        with for_everybody() as (binary, model):
            self.one_line(refused("--device", "rxe0", before=(*NOBODY, "prlimit", "--memlock=65536:65536"), binary=binary, model=model), 1,
                          r"rxe0 cannot register \d+ KiB: the limit of locked memory \(memlock\) is 64 KiB; raise it")

    def test_not_root(self):
        """Nobody in particular may run a node: the limit is all that it takes."""
        with for_everybody() as (binary, model):
            command = [*NOBODY, binary, "--model", model, *NULL, "--http", "127.0.0.1:0", "--bind", "127.0.0.1:0", "--device", "rxe0"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
                try:
                    lines = []
                    while not lines or " serves " not in lines[-1]:
                        lines.append(node.stderr.readline())
                        self.assertTrue(lines[-1], lines)
                finally:
                    node.send_signal(signal.SIGTERM)
                    rest = node.stderr.read()
                    self.assertEqual(node.wait(60), 0, rest)
                self.assertIn("RDMA device rxe0 port 1", "".join(lines))

    def test_device_not_allowed(self):
        """Not root, and the devices are root's: what to allow is said."""
        devices = glob.glob("/dev/infiniband/uverbs*")
        modes = [os.stat(device).st_mode & 0o777 for device in devices]
        try:
            for device in devices:
                os.chmod(device, 0o600)
            with for_everybody() as (binary, model):
                self.one_line(refused("--device", "rxe0", before=NOBODY, binary=binary, model=model), 77,
                              r"RDMA devices are here, but none can be opened: .*allow this user /dev/infiniband/uverbs")
        finally:
            for device, mode in zip(devices, modes):
                os.chmod(device, mode)

    def test_foreign_group(self):
        self.one_line(refused("--device", "rxe0", "--bind", "10.77.0.1:0"), 2, r"give --group-key-file")


class Faults(unittest.TestCase):
    def test_killed_and_back(self):
        with support.Group(support.BINARY, support.MODEL, 4, options=NULL) as group:
            victim, others = group.nodes[3], group.nodes[:3]
            for _ in range(2):
                victim.kill()
                victim.process.wait()
                victim.start()  # at once: the others still believe in the dead one
                support.wait_until(lambda: together(group.nodes), 60, "the group being whole again")
                for node in group.nodes:
                    answers(node)
            self.assertGreater(support.metric(others[0], "hearsay_verbs_ud_doorbells_total" if UD else "hearsay_verbs_posts_total"), 0)

    def test_killed_for_good(self):
        with support.Group(support.BINARY, support.MODEL, 3, options=NULL) as group:
            group.nodes[2].kill()
            support.wait_until(lambda: all(n.alive_peers() == 1 for n in group.nodes[:2]), 30, "the dead one being missed")
            answers(group.nodes[0])

    def test_cable_pulled_and_back(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=NULL) as group:
            a, b = group.nodes
            carrier(0, False)
            try:
                support.wait_until(lambda: "port 1 is down" in a.log(), 10, "the port's end being noticed")
                answers(a)  # alone, if need be
                answers(b)
                support.wait_until(lambda: a.alive_peers() == 0 and b.alive_peers() == 0, 90, "the peers being missed")
            finally:
                carrier(0, True)
            support.wait_until(lambda: "port 1 is up again" in a.log(), 10, "the port's return being noticed")
            support.wait_until(lambda: together(group.nodes), 60, "the peers being back")
            before = sends("rxe0")
            answers(a)
            support.wait_until(lambda: sends("rxe0") > before, 10, "traffic on the device")

    def test_other_rail(self):
        """Two ports each: with one cable pulled, peers find each other over the other port."""
        rails = {0: ["--device", "rxe0,rxe1"], 1: ["--device", "rxe2,rxe3"]}
        with support.Group(support.BINARY, support.MODEL, 2, options=NULL, node_options=rails) as group:
            a, b = group.nodes
            used = [sends("rxe0"), sends("rxe1")]
            answers(a)
            time.sleep(2)
            first = 0 if sends("rxe0") > used[0] else 1
            carrier(first, False)
            try:
                support.wait_until(lambda: "port 1 is down" in a.log(), 10, "the port's end being noticed")
                before = sends(f"rxe{1 - first}")
                support.wait_until(lambda: sends(f"rxe{1 - first}") > before + 50, 90, "traffic on the other port")
                support.wait_until(lambda: together(group.nodes), 60, "the peers being back")
            finally:
                carrier(first, True)
            support.wait_until(port_is_active, 10, "the port being up")

    def test_short_interruption(self):
        """Shorter than the retransmission of the device: nobody goes down."""
        with support.Group(support.BINARY, support.MODEL, 2, options=NULL) as group:
            a, b = group.nodes
            carrier(0, False)
            time.sleep(0.3)
            carrier(0, True)
            support.wait_until(lambda: together(group.nodes), 60, "the group being whole")
            answers(a)
            answers(b)

    def test_foreign_frames(self):
        """An outsider's frames at the device and at the bootstrap's port: dropped, by the device or counted; nobody goes down."""
        with support.Group(support.BINARY, support.MODEL, 2, options=NULL) as group:
            a, b = group.nodes
            rejected = support.metric(a, "hearsay_fabric_rejected")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                out.bind(("10.77.0.4", 0))
                for i, frame in enumerate(roce_frames(3000, 20261130)):
                    out.sendto(frame, ("10.77.0.1", 4791))
                    if i % 100 == 0:
                        time.sleep(0.01)
            r = random.Random(7)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                for i in range(1000):
                    out.sendto((b"HS\x14" if i % 3 == 0 else b"HU\x01\x02" if i % 3 == 1 else b"") + r.randbytes(r.randrange(1, 1200)), ("127.0.0.1", a.fabric_port))
                    if i % 50 == 0:
                        time.sleep(0.01)
            support.wait_until(lambda: support.metric(a, "hearsay_fabric_rejected") >= rejected + 500, 30, "what is foreign being counted")
            self.assertTrue(together(group.nodes))
            answers(a)
            answers(b)
            for node in group.nodes:
                self.assertNotRegex(node.log(), "connection to peer .* lost")

    def test_stopped_and_going_on(self):
        """A node that is stopped for a moment takes no receive; when it goes on, everything that was sent meanwhile is there."""
        with support.Group(support.BINARY, support.MODEL, 3, options=NULL) as group:
            victim, others = group.nodes[2], group.nodes[:2]
            os.kill(victim.process.pid, signal.SIGSTOP)
            try:
                for node in others:
                    answers(node)
                time.sleep(2)
            finally:
                os.kill(victim.process.pid, signal.SIGCONT)
            support.wait_until(lambda: together(group.nodes), 60, "the group being whole")
            for node in group.nodes:
                answers(node)

    def test_idle(self):
        with support.Group(support.BINARY, support.MODEL, 2, options=NULL) as group:
            time.sleep(3)
            ticks = os.sysconf("SC_CLK_TCK")

            def spent(node):
                with open(f"/proc/{node.process.pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / ticks
            before = [spent(n) for n in group.nodes]
            time.sleep(10)
            shares = [(spent(n) - s) / 10 for n, s in zip(group.nodes, before)]
            print(f"share of an (emulated) core of an idle node: {shares[0]:.3f}, {shares[1]:.3f}", file=sys.stderr)
            self.assertLess(max(shares), 0.5)  # it does not spin; the emulated core is some 50 times slower than a real one
            wakeups = re.findall(r"hearsay_verbs_(?:ud_)?wakeups_total (\d+)", group.nodes[0].request("GET", "/metrics")[2].decode())
            self.assertGreater(int(wakeups[0]), 0)


if __name__ == "__main__":
    for path in (support.BINARY, support.MODEL):
        if not os.path.exists(path):
            support.skip(f"no {path}")
            sys.exit(77)
    unittest.main(verbosity=2)
