"""What four idle nodes with --poll adaptive do, over verbs and over sockets in the same virtual machine: the share of a core, how often
their loops wake, what the fabric counts. Runs inside the virtual machine of tests/lab/vm (tests/lab/verbs-test idle).

The emulated processor is some 50 times slower than a real one: it is the wake-ups a second that compare.
"""
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import support  # noqa: E402

SECONDS = 10
NULL = ("--backend", "null", "--kv-pages", "512")
COUNTS = ("wakeups", "completions", "posts", "doorbells", "credit_packets")


def threads(node):
    """Thread name -> (CPU seconds, voluntary switches: times that it went to sleep)."""
    found, folder = {}, f"/proc/{node.process.pid}/task"
    for task in os.listdir(folder):
        with open(f"{folder}/{task}/stat") as f:
            name, rest = re.search(r"\((.*)\) (.*)", f.read()).groups()
        with open(f"{folder}/{task}/status") as f:
            switches = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", f.read(), re.M)[1])
        fields = rest.split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = found.get(name, (0, 0))
        found[name] = (before[0] + cpu, before[1] + switches)
    return found


def counts(node):
    return {c: support.metric(node, f"hearsay_verbs_{c}_total") for c in COUNTS}


def measure(fabric):
    os.environ["HEARSAY_FABRIC"] = fabric
    if fabric == "sockets":
        support.DEVICES.clear()
    with support.Group(support.BINARY, support.MODEL, 4, options=NULL) as group:
        time.sleep(3)
        begun, before = [(threads(n), counts(n)) for n in group.nodes], time.monotonic()
        sent = [support.metric(n, "hearsay_gossip_sent_bytes_total") for n in group.nodes]
        time.sleep(SECONDS)
        seconds = time.monotonic() - before
        cpu, sleeps = [], []
        for i, node in enumerate(group.nodes):
            after = threads(node), counts(node)
            spent = {name: ((t[0] - begun[i][0].get(name, (0, 0))[0]) / seconds, (t[1] - begun[i][0].get(name, (0, 0))[1]) / seconds)
                     for name, t in after[0].items()}
            cpu.append(sum(share for share, _ in spent.values()))
            sleeps.append(spent["node-loop"][1])
            rates = {c: round((after[1][c] - begun[i][1][c]) / seconds, 1) for c in COUNTS} if fabric == "verbs" else {}
            gossip = round((support.metric(node, "hearsay_gossip_sent_bytes_total") - sent[i]) / seconds, 1)
            print(f"{fabric} {node.name}: {100 * cpu[-1]:.1f} % of a core, the loop sleeps {sleeps[-1]:.1f} times/s; "
                  f"gossip bytes/s {gossip} {rates}", flush=True)
    return statistics.mean(cpu), statistics.mean(sleeps)


def main():
    """Over sockets an idle node takes 0.2 % of a real core at most, and the bar is 3 %: with three times that verbs are well below it. What peers
    send and the ends of the reads of their digests wake a node, and its own rounds."""
    (cpu, sleeps), (sockets_cpu, sockets_sleeps) = measure("verbs"), measure("sockets")
    print(f"verbs: {100 * cpu:.1f} % of an emulated core and {sleeps:.1f} sleeps/s, sockets: {100 * sockets_cpu:.1f} % and {sockets_sleeps:.1f}")
    good = cpu <= 3 * sockets_cpu and sleeps <= 1.2 * sockets_sleeps
    sys.exit(0 if good else "an idle node over verbs does much more than over sockets")


main()
