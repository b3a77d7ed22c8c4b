"""What four idle nodes with --poll adaptive do, over verbs and over sockets in the same virtual machine: the share of a core, how often
their loops wake, what the fabric counts. Runs inside the virtual machine of tests/lab/vm (tests/lab/verbs-test idle).

The emulated processor is some 50 times slower than a real one: it is the wake-ups a second that compare.
"""
import os
import re
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
        worst = 0
        for i, node in enumerate(group.nodes):
            after = threads(node), counts(node)
            cpu = sum(t[0] for t in after[0].values()) - sum(t[0] for t in begun[i][0].values())
            worst = max(worst, cpu / seconds)
            loop = {name: (round((t[0] - begun[i][0].get(name, (0, 0))[0]) / seconds, 4), round((t[1] - begun[i][0].get(name, (0, 0))[1]) / seconds, 1))
                    for name, t in after[0].items()}
            rates = {c: round((after[1][c] - begun[i][1][c]) / seconds, 1) for c in COUNTS} if fabric == "verbs" else {}
            gossip = round((support.metric(node, "hearsay_gossip_sent_bytes_total") - sent[i]) / seconds, 1)
            print(f"{fabric} {node.name}: {100 * cpu / seconds:.1f} % of a core; share and sleeps/s by thread {loop}; "
                  f"gossip bytes/s {gossip} {rates}", flush=True)
    return worst


def main():
    for fabric in sys.argv[1:] or ["verbs", "sockets"]:
        print(f"{fabric}: the busiest node uses {100 * measure(fabric):.1f} % of an emulated core", flush=True)


main()
