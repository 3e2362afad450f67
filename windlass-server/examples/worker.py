"""A whole worker in Python's standard library: python3 worker.py http://127.0.0.1:7654 QUEUE"""
import json, os, signal, socket, sys, threading, time, urllib.request
BASE, QUEUE, SLOTS, LEASE = sys.argv[1], sys.argv[2], 4, 15
NAME, TOKEN = "%s.%d" % (socket.gethostname(), os.getpid()), os.environ.get("WINDLASS_TOKEN")
HEADERS = {"content-type": "application/json", **({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})}
running, stopping = {}, threading.Event()

class Permanent(Exception):
    """A failure that trying again cannot help; any other exception is tried again."""

def greet(payload, job):
    if not payload.get("name"): raise Permanent("nobody to greet")
    if job["stop"].wait(payload.get("seconds", 0)): raise InterruptedError  # set on a cancel, and when the lease is lost
    return {"hello": payload["name"]}
HANDLERS = {"greet": greet}

def call(path, **body):
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), HEADERS)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or "null")

def run(job):
    try:
        outcome = {"outcome": "completed", "result": HANDLERS[job["type"]](job["payload"], job)}
    except Exception as error:
        category = "permanent" if isinstance(error, Permanent) else "temporary"
        outcome = {"outcome": "failed", "failure": {"category": category, "message": repr(error)}}
    settled = None
    while not settled and time.monotonic() < job["until"]:  # the same settlement twice is harmless: a lost answer is repeated
        try: settled = call("/v1/leases/settle", settlements=[{**job["key"], **outcome}])
        except OSError: time.sleep(0.5)
    del running[job["id"]]

def keep_leases():
    while running or not stopping.wait(LEASE / 3):
        jobs, sent = list(running.values()), time.monotonic()
        try:
            answers = jobs and call("/v1/leases/extend", leases=[job["key"] for job in jobs], lease=f"{LEASE}s")["leases"]
        except OSError:
            answers = [{"held": sent < job["until"]} for job in jobs]  # not confirmed in time is as good as lost
        for job, answer in zip(jobs, answers):
            job["until"] = sent + LEASE if "expires_in" in answer else job["until"]
            if not answer["held"] or answer.get("cancel"): job["stop"].set()
        time.sleep(LEASE / 30 if stopping.is_set() else LEASE / 3)

def claim():
    free, sent = SLOTS - len(running), time.monotonic()
    claimed = free and call("/v1/claims", queues=[QUEUE], types=list(HANDLERS), max=free, worker=NAME, lease=f"{LEASE}s", wait="2s")
    for job in claimed["jobs"] if claimed else []:
        held = {"key": {"id": job["id"], "token": job["lease"]["token"]}, "until": sent + LEASE, "stop": threading.Event()}
        threading.Thread(target=run, args=[running.setdefault(job["id"], {**job, **held})]).start()

for name in (signal.SIGTERM, signal.SIGINT):
    signal.signal(name, lambda *_: stopping.set())
threading.Thread(target=keep_leases).start()
while not stopping.wait(0.05) or running:  # after a signal, what runs may finish
    try: stopping.is_set() or claim()
    except OSError: stopping.wait(1)
call("/v1/workers", id=NAME, host="", queues=[])  # it serves nothing any more
