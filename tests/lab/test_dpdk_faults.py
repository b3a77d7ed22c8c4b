"""Nodes over DPDK when things go wrong (tests/lab/dpdk-test faults). Needs no hardware; parts that need root say so and are skipped."""
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

os.environ.setdefault("HEARSAY_FABRIC", "dpdk")
os.environ.setdefault("HEARSAY_INSECURE_PEERS", "1")
os.environ.setdefault("HEARSAY_TEST_DPDK", "memif")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import support  # noqa: E402

NULL = ("--backend", "null", "--kv-pages", "512")
NO_HUGE = "--no-huge --no-pci "


def start(*arguments, before=(), bind="10.78.0.1:7070"):
    """Exit status, lines of complaint and all output of a start with --check."""
    command = [*before, support.BINARY, "--model", support.MODEL, *NULL, "--http", "127.0.0.1:0", "--bind", bind, "--check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, [line for line in done.stderr.splitlines() if line], done.stdout


class Starts(unittest.TestCase):
    """What keeps a node from starting is one line, and never a page of help or a hang."""

    def one_line(self, outcome, statuses, pattern):
        status, lines, out = outcome
        self.assertIn(status, statuses, lines)
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], pattern)
        self.assertEqual(out, "")

    def test_good(self):
        status, lines, _ = start("--eal", NO_HUGE + "--vdev=net_ring0")
        self.assertEqual(status, 0, lines)

    def test_nobody_at_the_other_end(self):
        status, lines, _ = start("--eal", NO_HUGE + f"--vdev=net_memif0,role=client,socket=hearsay-nobody-{os.getpid()}")
        self.assertEqual(status, 0, lines)

    def test_eal_arguments(self):
        for text, pattern in (("--bogus", r'--eal: "--bogus" is not an EAL argument'), ("--no-huge --in-memory", "contradict each other"),
                              ("--vdev='net_ring0", "never closed"),
                              (NO_HUGE + "--vdev=net_nosuch0", "DPDK does not start: .*net_nosuch0")):
            self.one_line(start("--eal", text if "huge" in text else "--no-huge " + text), (1, 2, 77), pattern)

    def test_no_hugepages(self):
        with open("/proc/sys/vm/nr_hugepages") as f:
            if int(f.read()) > 0:
                self.skipTest("this machine has hugepages")
        self.one_line(start("--eal", "--no-pci --vdev=net_ring0"), (77,), "no free hugepages: .*nr_hugepages.*--no-huge")

    def test_no_port(self):
        self.one_line(start("--eal", NO_HUGE), (77,), "DPDK has no Ethernet port")

    def test_device_that_cannot_be_made(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.one_line(start("--eal", NO_HUGE + "--vdev=net_af_packet0,iface=lo,framesz=8192,blocksz=4096"), (77,), "cannot make net_af_packet0: .*(af_packet|AF_PACKET)")

    def test_one_of_several_cannot_be_made(self):
        """DPDK would go on without it; and what it says of it is not what it said first."""
        self.one_line(start("--eal", NO_HUGE + f"--vdev=net_ring0 --vdev=net_memif0,role=server,socket=hearsay-wrong-{os.getpid()} --vdev=net_memif1,rsize=99"), (77,),
                      "cannot make net_memif1: .*rsize|cannot make net_memif1: .*ring size")

    def test_device_without_a_port(self):
        """It would bring other devices along, were there any of the kind that it looks for."""
        status, lines, _ = start("--eal", NO_HUGE + "--vdev=net_ring0 --vdev=net_vdev_netvsc0")
        self.assertEqual(status, 0, lines)

    def test_small_buffers(self):
        for device in ("net_memif0,bsize=13", "net_memif0,bsize=1000", "net_af_packet0,iface=lo,framesz=96", "net_af_packet0,iface=lo,framesz=1024"):
            if "iface" not in device or os.geteuid() == 0:
                with self.subTest(device):
                    self.one_line(start("--eal", NO_HUGE + "--vdev=" + device), (1, 2, 77), r"passes packets of only \d{1,3} bytes|cannot make net_")

    def test_socket_in_use(self):
        """Abstract or a file, and a file that nobody listens at is no hindrance."""
        with tempfile.TemporaryDirectory(prefix="hearsay-faults-") as folder:
            for abstract, name in (("yes", f"hearsay-taken-{os.getpid()}"), ("no", os.path.join(folder, "taken"))):
                device = f"--vdev=net_memif0,role=server,socket={name},socket-abstract={abstract}"
                with self.subTest(name), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
                    other.bind("\0" + name if abstract == "yes" else name)
                    other.listen()
                    self.one_line(start("--eal", NO_HUGE + device), (1, 2), f'no memif server can be at "{name}": another one is there')
                    other.close()
                    status, lines, _ = start("--eal", NO_HUGE + device)
                    self.assertEqual(status, 0, lines)

    def test_unknown_port(self):
        self.one_line(start("--eal", NO_HUGE + "--vdev=net_ring0", "--device", "0000:01:00.0"), (1, 2), 'no port "0000:01:00.0", but net_ring0')

    def test_kernel_address(self):
        for address in ("127.0.0.1:7070", "0.0.0.0:7070", "[::1]:7070"):
            self.one_line(start("--eal", NO_HUGE, bind=address), (1, 2), "cannot be a node's address on DPDK")

    def test_no_interface(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.one_line(start("--eal", NO_HUGE + "--vdev=net_af_packet0,iface=nosuch0"), (1, 2), 'no interface "nosuch0"')

    def test_not_root(self):
        if os.geteuid() != 0 or subprocess.run(["sh", "-c", "command -v setpriv"], capture_output=True).returncode:
            self.skipTest("needs root and setpriv")
        drop = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw")
        self.one_line(start("--eal", NO_HUGE + "--vdev=net_af_packet0,iface=lo", before=drop), (77,), "needs root, or the capabilities CAP_NET_RAW")

    def test_too_little_memory(self):
        self.one_line(start("--eal", NO_HUGE + "-m 4 --vdev=net_memif0,bsize=60000"), (1, 77), "no memory for|DPDK does not start")

    def test_no_key(self):
        environment = {k: v for k, v in os.environ.items() if k != "HEARSAY_INSECURE_PEERS"}
        command = [support.BINARY, "--model", support.MODEL, *NULL, "--http", "127.0.0.1:0", "--bind", "10.78.0.1:7070", "--check",
                   "--eal", NO_HUGE + "--vdev=net_ring0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--group-key-file", done.stderr)


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Napper(subprocess.Popen):
    """A program that sleeps for a millisecond again and again, as a node does that has nothing else to sleep on."""

    def __init__(self):
        super().__init__([sys.executable, "-c", "import time\nwhile True: time.sleep(0.001)"])

    def __exit__(self, *rest):
        self.kill()
        super().__exit__(*rest)


def memif_sockets(node):
    """Names of those at which a node listens, as its --eal has them."""
    return re.findall(r"role=server,socket=(\S+)", " ".join(node.command))


class Peers(unittest.TestCase):
    """Peers that die come back; nothing but time is lost."""

    def test_callers_that_hang_up(self):
        """At any time of their call. The driver alone ends the process within a dozen of them."""
        with support.Group(support.BINARY, support.MODEL, count=2, options=NULL) as g:
            name = memif_sockets(g.nodes[0])[0]
            rng = random.Random(5)
            for i in range(1000):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
                    caller.settimeout(20)
                    caller.connect("\0" + name)
                    if i % 10 == 0:
                        self.assertTrue(caller.recv(1000), "not greeted")
                        caller.send(rng.randbytes(rng.choice((1, 128, 500))))
                    else:
                        time.sleep(rng.choice((0, 0, 1e-5, 1e-4, 1e-3)))
            for n in g.nodes:
                self.assertIsNone(n.process.poll(), n.log()[-2000:])
            node = g.nodes[1]
            node.kill(signal.SIGKILL)
            node.process.wait()
            node.start()
            support.wait_until(lambda: all(n.healthy() and n.alive_peers() == 1 for n in g.nodes), what="the server takes calls")

    def test_killed_in_its_call(self):
        """A client that is killed again and again, at any time of its start."""
        with support.Group(support.BINARY, support.MODEL, count=2, options=NULL) as g:
            rng = random.Random(6)
            node = g.nodes[1]
            for _ in range(12):
                node.kill(signal.SIGKILL)
                node.process.wait()
                before = g.nodes[0].log().count("link up")
                node.start()
                if rng.random() < 0.5:  # where its call shows, else anywhere
                    support.wait_until(lambda: g.nodes[0].log().count("link up") > before, what="a link")
                else:
                    time.sleep(rng.random())
            support.wait_until(lambda: all(n.healthy() and n.alive_peers() == 1 for n in g.nodes), what="both know each other")
            support.complete(g.nodes[0], "Once upon a time", 4)

    def test_killed_and_back(self):
        with support.Group(support.BINARY, support.MODEL, count=3, options=NULL) as g:
            for victim in (0, 2):  # a server of all its links, a client of all its links
                node = g.nodes[victim]
                node.kill(signal.SIGKILL)
                node.process.wait()
                node.start()
                support.wait_until(lambda: all(n.healthy() and n.alive_peers() == 2 for n in g.nodes), what="all know each other again")
            for n in g.nodes:
                text, _, _, _, _ = support.complete(n, "Once upon a time", 4)
                self.assertTrue(text)

    def test_hung_peer_holds_up_nobody(self):
        with support.Group(support.BINARY, support.MODEL, count=3, options=NULL) as g:
            g.nodes[2].kill(signal.SIGSTOP)
            try:
                for _ in range(20):  # a loop that waits for the hung one never answers
                    support.complete(g.nodes[0], "Once upon a time", 4)
                support.wait_until(lambda: g.nodes[0].alive_peers() == 1, 30, "the hung peer counts as dead")
            finally:
                g.nodes[2].kill(signal.SIGCONT)
            support.wait_until(lambda: all(n.alive_peers() == 2 for n in g.nodes), 30, "it is back")

    def test_hung_server_holds_up_no_start(self):
        """Its memif socket takes two callers and lets a third wait for ever; a node that was started beside it serves meanwhile."""
        with support.Group(support.BINARY, support.MODEL, count=3, options=NULL) as g:
            g.nodes[0].kill(signal.SIGSTOP)  # a server of all its links
            try:
                node = g.nodes[1]
                node.kill(signal.SIGKILL)
                node.process.wait()
                node.start()
                support.wait_until(lambda: node.healthy() and node.alive_peers() == 1, 30, "it is up beside the hung one")
                ends = time.monotonic() + 8  # the server is called every 2 s
                while time.monotonic() < ends:
                    support.complete(node, "Once upon a time", 4)  # where the loop waits for the server, nothing ends before it goes on
                    time.sleep(0.1)
            finally:
                g.nodes[0].kill(signal.SIGCONT)
            support.wait_until(lambda: all(n.healthy() and n.alive_peers() == 2 for n in g.nodes), 30, "all are back")

    def test_idle(self):
        """Naps instead of a poll loop: three nodes that have nothing to do use little of a core. What a nap costs is the machine's affair, and
        twice as much where it is busy: so they may use 3 %, or twice what a program uses that does nothing but nap, at that time."""
        with support.Group(support.BINARY, support.MODEL, count=3, options=(*NULL, "--poll", "adaptive")) as g, Napper() as napper:
            programs = [n.process.pid for n in g.nodes] + [napper.pid]
            least = 100.0
            for _ in range(6):  # a start takes its time to come to rest
                time.sleep(3)
                before = [cpu_s(pid) for pid in programs]
                began = time.monotonic()
                time.sleep(5)
                passed = time.monotonic() - began
                *shares, naps = [100 * (cpu_s(pid) - b) / passed for pid, b in zip(programs, before)]
                print(f"idle, % of a core: {', '.join(f'{s:.1f}' for s in shares)}; naps alone {naps:.1f}", flush=True)
                least = min(least, max(shares) / max(3, 2 * naps))
                if least < 1 or support.is_sanitized():
                    return
            self.fail("six times")

    def test_traffic_is_counted(self):
        with support.Group(support.BINARY, support.MODEL, count=2, options=NULL) as g:
            support.complete(g.nodes[0], "Once upon a time", 4)
            for n in g.nodes:
                for way in ("received", "sent"):
                    support.wait_until(lambda n=n, way=way: support.metric(n, f"hearsay_dpdk_{way}_frames_total") > 10, 10, f"frames are {way}")
                self.assertEqual(support.metric(n, "hearsay_dpdk_bad_frames_total"), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
