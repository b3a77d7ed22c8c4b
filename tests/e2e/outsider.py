"""Somebody on the path between nodes who is not one of them: records what passes, sends datagrams of his own, and cuts the path.

Over sockets he is a forwarder whom a node takes for its peer. On interfaces (DPDK's packet groups, tests/lab/dpdk-test) he listens at a port of the bridge
and sends from the sixth interface: real frames with any content.
"""
import os
import select
import socket
import struct
import subprocess
import threading

import support

EXTRA = 4     # the interface, from 0 on, of a node that is recorded
OUTSIDER = 5  # and his own
STRANGE_IP = socket.inet_aton("10.78.0.66")
STRANGE_MAC = bytes.fromhex("020000000066")


class Listener:
    """Runs self.run() in a thread of its own while self.running, and closes self.sockets when all is over."""

    def start(self):
        self.running = True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def stop_recording(self):
        self.running = False
        self.thread.join()

    def close(self):
        if self.running:
            self.stop_recording()
        for s in self.sockets:
            s.close()


class OnSockets(Listener):
    """Forwards between whoever joins him and a node."""

    def __init__(self, target):
        self.target, self.seen = target, []
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        self.front, self.out = self.sockets
        self.front.bind(("127.0.0.1", 0))
        self.join = f"127.0.0.1:{self.front.getsockname()[1]}"
        self.first = 0
        self.start()

    def run(self):
        back = None
        while self.running:
            for source in select.select([self.front, self.out], [], [], 0.05)[0]:
                data, address = source.recvfrom(65536)
                self.seen.append(data)
                if source is self.front:
                    back = address
                    self.out.sendto(data, ("127.0.0.1", self.target.fabric_port))
                elif back:
                    self.front.sendto(data, back)

    def send(self, node, data):
        self.out.sendto(data, ("127.0.0.1", node.fabric_port))


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def frame(mac, ip, port, data):
    """A datagram as the nodes' own, from a stranger."""
    udp = struct.pack("!4H", 7070, port, 8 + len(data), 0) + data
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0, STRANGE_IP, socket.inet_aton(ip))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return mac + STRANGE_MAC + b"\x08\x00" + header + udp


class OnInterfaces(Listener):
    """Listens at the bridge's port of a node that joins by itself, and sends frames to any node; every eighth of them of a kind that no node knows."""

    def __init__(self, target):
        prefix = support.DPDK[1]
        self.join, self.first, self.seen, self.sent = support.fabric_address(target), EXTRA, [], 0
        self.sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2)]
        self.tap, self.port = self.sockets
        self.tap.bind((f"{prefix}b{EXTRA + 1}", 3))
        self.port.bind((f"{prefix}{OUTSIDER + 1}", 0))
        self.start()

    def run(self):
        while self.running:
            if select.select([self.tap], [], [], 0.05)[0]:
                data = self.tap.recv(65536)
                if data[12:14] == b"\x08\x00" and data[23] == 17:
                    self.seen.append(data[42:34 + struct.unpack("!H", data[38:40])[0]])

    def send(self, node, data):
        ip, port = support.fabric_address(node).split(":")
        with open(f"/sys/class/net/{support.DPDK[1]}{int(ip.rsplit('.', 1)[1])}/address") as f:
            mac = bytes.fromhex(f.read().strip().replace(":", ""))
        self.sent += 1
        data = frame(mac, ip, int(port), data)
        if self.sent % 8 == 0:
            data = data[:12] + b"\x88\xb5" + data[14:]
        self.port.send(data[:1514])


def outsider(target):
    """None: nobody can be between these nodes."""
    if support.DPDK:
        return OnInterfaces(target) if support.DPDK[0] == "packet" else None
    return OnSockets(target)


class RelayedPath(Listener):
    """Between two nodes on sockets: what reaches one of two sockets leaves by the other, to the peer behind it."""

    def __init__(self):
        self.sides = self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for s in self.sides:
            s.bind(("127.0.0.1", 0))
        self.options = ("--join", f"127.0.0.1:{self.port(0)}")
        self.peers = [None, None]
        self.lost = set()
        self.start()

    def port(self, side):
        return self.sides[side].getsockname()[1]

    def join(self, nodes):
        """Of all addresses that lead to the other node only ours is told, and that to the first."""
        a, b = nodes
        for node in nodes:
            at = node.command.index("--join")
            del node.command[at:at + 2]
        at = b.command.index("--join")
        del b.command[at:at + 2]
        self.peers[1] = ("127.0.0.1", b.fabric_port)

    def lose(self, directions):
        """All that comes from these of the two nodes."""
        self.lost = directions

    def run(self):
        while self.running:
            for s in select.select(self.sides, [], [], 0.2)[0]:
                side = self.sides.index(s)
                data, self.peers[side] = s.recvfrom(65536)
                if side not in self.lost and self.peers[1 - side]:
                    self.sides[1 - side].sendto(data, self.peers[1 - side])


class BridgedPath:
    """Between two nodes on interfaces: the bridge's port of the first is taken out, or what is for its MAC led to nowhere."""

    options = ()

    def __init__(self):
        prefix = support.DPDK[1]
        self.port, self.nowhere = f"{prefix}b1", f"{prefix}b{OUTSIDER + 1}"
        with open(f"/sys/class/net/{prefix}1/address") as f:
            self.mac = f.read().strip()
        self.bridge = os.path.basename(os.readlink(f"/sys/class/net/{self.port}/master"))
        self.lost = set()

    def join(self, nodes):
        pass

    def lose(self, directions):
        for arguments, wanted in ((("ip", "link", "set", self.port, "nomaster"), 0 in directions and 0 not in self.lost),
                                  (("ip", "link", "set", self.port, "master", self.bridge), 0 not in directions and 0 in self.lost),
                                  (("bridge", "fdb", "replace", self.mac, "dev", self.nowhere, "master", "static", "sticky"), directions == {1}),
                                  (("bridge", "fdb", "del", self.mac, "dev", self.nowhere, "master"), self.lost == {1} != directions)):
            if wanted:
                subprocess.run(arguments, check=True, capture_output=True)
        self.lost = set(directions)

    def close(self):
        self.lose(set())


def path():
    """None: it cannot be cut."""
    if support.DPDK:
        return BridgedPath() if support.DPDK[0] == "packet" else None
    return RelayedPath()
