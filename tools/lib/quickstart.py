"""Starts a group of nodes, asks questions that share a long system prompt through different nodes, shows the answers as they
stream. Called by tools/quickstart. Standard library only."""
import argparse
import http.client
import json
import os
import shutil
import signal
import sys
import time

from group import Group

SYSTEM_PROMPT = """You are the help desk of a public library in a small town. People of every age come to you, in person and in
writing, and you answer them in plain English, in one short and friendly sentence. The library opens at nine in the
morning and closes at six in the evening, on Saturdays at one in the afternoon, and it is closed on Sundays and public holidays.
A library card is free for everyone who lives in the town; visitors pay five dollars a year. A reader may borrow up to ten books
for four weeks, and films and music for one week. Loans can be extended twice, in person, by telephone or on the web page, unless
somebody else is waiting for the item. Reading rooms on the first floor are quiet rooms; groups may use the three study rooms on
the second floor, which are reserved at the front desk. There are twelve computers with internet access, free for one hour a day,
and printing costs ten cents a page. On Wednesday afternoons there is a story hour for children, on Thursday evenings a reading
circle for adults, and on the first Friday of the month an author reads from a new book. The library keeps the town's newspapers
since 1891, and the local history collection may be read in the building but not borrowed. Gifts of books in good condition are
welcome. When you do not know something, say so and name the telephone number of the front desk, which is 555 0142. Never invent
opening hours, prices or rules that are not written here. Stay polite even when the reader is not."""

# What the help desk said before. A model this small needs to be shown how to answer, and when to stop.
EXAMPLES = [
    ("Is the library open on Sundays?", "No, the library is closed on Sundays and public holidays."),
    ("What does a library card cost?", "A library card is free for everyone who lives in the town."),
    ("Where are the quiet rooms?", "The quiet rooms are on the first floor."),
    ("When does an author read from a new book?", "An author reads from a new book on the first Friday of the month."),
]

QUESTIONS = [
    "When is the story hour for children?",
    "How much does printing cost?",
    "Where are the study rooms?",
    "How long may I borrow a film?",
]

BOLD, DIM, RESET = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def say(text):
    """A step of the script; not part of what it shows."""
    print(f"==> {text}", file=sys.stderr, flush=True)


def conversation(question):
    """The messages of one request: all requests share everything but the question."""
    messages = [{"role": "system", "content": SYSTEM_PROMPT}]
    for asked, answered in EXAMPLES:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return messages + [{"role": "user", "content": question}]


def stream_answer(node, question):
    """Prints the answer as it comes; returns (node that computed it, prompt tokens, cached tokens, seconds to first token)."""
    body = {
        "messages": conversation(question), "max_tokens": 80, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=300)
    began = time.monotonic()
    first = None
    usage = {}
    finished = False
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{node.name} answered {response.status}: {response.read().decode(errors='replace')}")
    computed_by = response.getheader("x-hearsay-node")
    for line in response:
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            finished = True
            break
        event = json.loads(data)
        if "error" in event:
            raise RuntimeError(event["error"]["message"])
        for choice in event["choices"]:
            text = choice["delta"].get("content")
            if text:
                first = first if first is not None else time.monotonic() - began
                print(text, end="", flush=True)
        usage = event.get("usage") or usage
    connection.close()
    print()
    if not finished:
        raise RuntimeError(f"{node.name} ended the stream early")
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return computed_by, usage["prompt_tokens"], cached, first


def ask_all(group):
    for i, question in enumerate(QUESTIONS):
        node = group.nodes[i % len(group.nodes)]
        print(f"\n{BOLD}{question}{RESET}")
        computed_by, prompt, cached, first = stream_answer(node, question)
        after = f"first token after {first * 1000:>4.0f} ms" if first is not None else "no text"
        print(f"{DIM}  asked at {node.name}, computed by {computed_by}; {cached:>3} of {prompt} prompt tokens from cache; {after}{RESET}",
              flush=True)
        time.sleep(0.5)  # a person reads the answer; meanwhile the peers hear of the new prefix
    print()


def show_group(group, ctl):
    first = group.nodes[0]
    print(f"{BOLD}The group is up.{RESET} Ctrl-C ends it. Logs are in {group.folder} while it runs.\n")
    for node in group.nodes:
        print(f"  {node.name:<8}{node.url}/v1")
    print(f"""
Try, in another terminal:

  curl {first.url}/v1/chat/completions -d '{{"messages": [{{"role": "user", "content": "Why is the sky blue?"}}], "max_tokens": 60}}'
  curl {first.url}/metrics
  {ctl} 127.0.0.1:{first.http_port} peers
""", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearsay", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    group = Group(args.hearsay, args.model, args.nodes)
    say(f"starting {args.nodes} node{'s' if args.nodes > 1 else ''} on loopback (logs in {group.folder})")
    with group:
        say("asking questions that share one long prompt, each at the next node; see who computes, and how much comes from cache")
        ask_all(group)
        if args.keep:
            show_group(group, os.path.join(os.path.dirname(os.path.relpath(args.hearsay)), "hearsay-ctl"))
            try:
                signal.pause()
            except KeyboardInterrupt:
                print(file=sys.stderr)
    say("the group has ended")
    shutil.rmtree(group.folder, ignore_errors=True)  # after a failure the logs stay
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (RuntimeError, OSError) as problem:
        print(f"quickstart: {problem}", file=sys.stderr)
        sys.exit(1)
