"""Two nodes over each kind of virtual device (tests/lab/dpdk-test devices): frames pass, are counted, and a killed node comes back.

Devices on interfaces need root and make a pair of virtual interfaces and a bridge of their own.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

os.environ.setdefault("HEARSAY_FABRIC", "dpdk")
os.environ.setdefault("HEARSAY_INSECURE_PEERS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import support  # noqa: E402

OPTIONS = ("--backend", "null", "--kv-pages", "512")
NO_HUGE = "--no-huge --no-pci "
HOSTS = ["10.78.0.1", "10.78.0.2"]


class Pair(support.Group):
    """Two nodes, each with its own --eal and other options."""

    def __init__(self, eal, *options):
        node_options = {i: ["--eal", eal[i]] for i in range(2)}
        super(support.Group, self).__init__(support.BINARY, support.MODEL, 2, (*OPTIONS, *options), node_options, None, HOSTS)

    def know_each_other(self):
        return all(n.healthy() and n.alive_peers() == 1 for n in self.nodes)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Wire:
    """Two interfaces on a bridge, by which they are joined and parted. The kernel has no part in what they carry."""

    def __init__(self, mtu=1500):
        self.bridge = f"hsw{os.getpid() % 100000}"
        self.near = [f"hsn{os.getpid() % 100000}{i}" for i in "ab"]
        self.far = [f"hsf{os.getpid() % 100000}{i}" for i in "ab"]
        ip("link", "add", self.bridge, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        ip("link", "set", self.bridge, "mtu", str(mtu), "up")
        for number, (near, far) in enumerate(zip(self.near, self.far), 9):
            # DPDK's driver names its group of sockets by process number xor index; neighbouring numbers of both would meet.
            ip("link", "add", near, "index", str(4096 * number + os.getpid() % 4096), "mtu", str(mtu), "type", "veth", "peer", "name", far, "mtu", str(mtu))
            for name in (near, far):
                with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as f:
                    f.write("1")
            ip("link", "set", far, "master", self.bridge, "up")
            ip("link", "set", near, "up")

    def cut(self):
        ip("link", "set", self.far[0], "nomaster")

    def mend(self):
        ip("link", "set", self.far[0], "master", self.bridge)

    def set_port(self, state):
        """The first node's own interface, up or down, as its administrator or a cable would."""
        ip("link", "set", self.near[0], state)

    def frames(self):
        """Sent by each end, as the kernel counts them."""
        counts = []
        for name in self.near:
            with open(f"/sys/class/net/{name}/statistics/tx_packets") as f:
                counts.append(int(f.read()))
        return counts

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        for name in (*self.near, self.bridge):
            subprocess.run(["ip", "link", "del", name], capture_output=True)


class Devices(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearsay-devices-")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def memif(self, more="", eal=NO_HUGE):
        name = f"hearsay-devices-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"
        return [f"{eal}--vdev=net_memif0,role={role},socket={name}{more}" for role in ("server", "client")]

    def datagram_bytes(self, node):
        return int(re.search(r"datagrams of (\d+) bytes", node.log())[1])

    def check(self, pair, comes_back=True):
        """Answers come, frames are counted at both ends and none was broken; the second is killed and is back soon."""
        a, b = pair.nodes
        for n in pair.nodes:
            support.complete(n, "Once upon a time", 4)
            for way in ("received", "sent"):
                support.wait_until(lambda n=n, way=way: support.metric(n, f"hearsay_dpdk_{way}_frames_total") > 10, 10, f"frames are {way}")
            self.assertEqual(support.metric(n, "hearsay_dpdk_bad_frames_total"), 0)
        if comes_back:
            print(f"back after {self.back_after(pair, b):.2f} s", flush=True)
            support.complete(a, "Once upon a time", 4)

    def back_after(self, pair, node):
        """Seconds from the first answer over HTTP of a node that was killed and started at once until both know each other again."""
        node.kill(signal.SIGKILL)
        node.process.wait()
        node.start()
        support.wait_until(node.healthy, what="it answers again")
        began = time.monotonic()
        support.wait_until(pair.know_each_other, what="they know each other again")
        return time.monotonic() - began

    def needs_root(self):
        if os.geteuid() != 0 or shutil.which("ip") is None:
            self.skipTest("needs root and ip")

    def start(self, eal, *options):
        """A started pair; skipped where a driver is not installed or the kernel lacks what it needs."""
        pair = Pair(eal, *options)
        try:
            pair.__enter__()
        except RuntimeError as error:
            if re.search(r"status 77|cannot find device|no driver", str(error)):
                self.skipTest(str(error)[-400:])
            raise
        self.addCleanup(pair.__exit__, None)
        return pair

    def test_memif(self):
        self.check(self.start(self.memif()))

    def test_memif_jumbo(self):
        pair = self.start(self.memif(",bsize=10240"))
        for n in pair.nodes:
            self.assertGreater(self.datagram_bytes(n), 9000)
        self.check(pair)

    def test_memif_mtu_given(self):
        pair = self.start(self.memif(",bsize=10240"), "--device", "mtu=5000")
        for n in pair.nodes:
            self.assertEqual(self.datagram_bytes(n), 5000 - 28)
        self.check(pair)

    def test_memif_several_queues(self):
        pair = self.start(self.memif(), "--device", "queues=4")
        for n in pair.nodes:
            self.assertNotIn("queues, not 4", n.log())
        self.check(pair)

    def test_memif_zero_copy(self):
        """Frames lie in memory of the client's, which its server shares."""
        self.check(self.start(self.memif(",zero-copy=yes", NO_HUGE + "--single-file-segments ")))

    def test_vhost_and_virtio_user(self):
        socket = os.path.join(self.folder, "vhost")
        self.check(self.start([f"{NO_HUGE}--vdev=net_vhost0,iface={socket},client=1", f"{NO_HUGE}--vdev=net_virtio_user0,path={socket},server=1,queue_size=1024"]))

    def test_ring(self):
        """A ring leads back to its own node, whose frames must not count as another's with the same address."""
        with support.group.Group(support.BINARY, support.MODEL, 1, OPTIONS, {0: ["--eal", NO_HUGE + "--vdev=net_ring0"]}, None, HOSTS[:1]) as g:
            support.complete(g.nodes[0], "Once upon a time", 4)
            self.assertNotIn("uses our address", g.nodes[0].log())

    def packet(self, wire, more=""):
        return [f"{NO_HUGE}--vdev=net_af_packet0,iface={name}{more}" for name in wire.near]

    def xdp(self, wire):
        return [f"{NO_HUGE}--vdev=net_af_xdp0,iface={name}" for name in wire.near]

    def counted_by_the_kernel(self, wire, pair):
        before = wire.frames()
        self.check(pair)
        for sent, earlier in zip(wire.frames(), before):
            self.assertGreater(sent, earlier + 10)

    def test_af_packet(self):
        self.needs_root()
        wire = self.entered(Wire())
        self.counted_by_the_kernel(wire, self.start(self.packet(wire)))

    def test_af_packet_jumbo(self):
        self.needs_root()
        wire = self.entered(Wire(9000))
        pair = self.start(self.packet(wire, ",framesz=9216,blocksz=36864,framecnt=512"))
        for n in pair.nodes:
            self.assertGreater(self.datagram_bytes(n), 8900)
        self.counted_by_the_kernel(wire, pair)

    def test_af_xdp(self):
        self.needs_root()
        wire = self.entered(Wire())
        pair = self.start(self.xdp(wire))
        self.check(pair)

    def test_partition(self):
        """The path is cut until each gives the other up, and mended: they find each other and serve on."""
        self.needs_root()
        wire = self.entered(Wire())
        pair = self.start(self.packet(wire))
        wire.cut()
        support.wait_until(lambda: all(n.alive_peers() == 0 for n in pair.nodes), what="they give each other up")
        for n in pair.nodes:
            support.complete(n, "Once upon a time", 4)
        wire.mend()
        support.wait_until(pair.know_each_other, what="they find each other")
        self.check(pair, comes_back=False)

    def test_port_down_and_up(self):
        """For a moment, and until each gives the other up."""
        self.needs_root()
        for packets in (self.packet, self.xdp):
            with self.subTest(packets.__name__), Wire() as wire:
                pair = self.start(packets(wire))
                for is_short in (True, False):
                    wire.set_port("down")
                    if is_short:
                        time.sleep(0.5)
                    else:
                        support.wait_until(lambda: all(n.alive_peers() == 0 for n in pair.nodes), what="they give each other up")
                    wire.set_port("up")
                    support.wait_until(pair.know_each_other, what="they find each other")
                    self.check(pair, comes_back=False)
                pair.__exit__(None)

    def entered(self, context):
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered


if __name__ == "__main__":
    unittest.main(verbosity=2)
