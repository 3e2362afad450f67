"""A worker and a producer in nothing but Python's standard library, against the URL in the first argument.

Prints one line for each thing that it did; `http_python.rs` compares them.
"""

import json
import sys
import urllib.error
import urllib.request

BASE = sys.argv[1]


def call(method, path, body=None):
    """Sends JSON; gives the status and the JSON that was answered."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data=data, method=method)
    if data is not None:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    return status, json.loads(text) if text else None


def claim(wait="5s"):
    status, answer = call(
        "POST", "/v1/claims", {"queues": ["default"], "max": 1, "lease": "30s", "wait": wait, "worker": "python-1"}
    )
    assert status == 200, answer
    return answer["jobs"][0]


def settle(job, outcome, **more):
    entry = {"id": job["id"], "token": job["lease"]["token"], "outcome": outcome, **more}
    status, answer = call("POST", "/v1/leases/settle", {"settlements": [entry]})
    assert status == 200, answer
    return answer["settled"][0]


# Enqueue, and again with the same key.
order = {"type": "order", "payload": {"order": 42, "price": 12345678901234567890}, "idempotency_key": "order-42"}
status, first = call("POST", "/v1/jobs", order)
print("enqueued", status, first["state"], first["existing"])
status, again = call("POST", "/v1/jobs", order)
print("repeated", status, again["existing"], again["id"] == first["id"])

# Why does it not run? Nobody is there.
status, answer = call("GET", "/v1/jobs/%s/explain" % first["id"])
print("explained", [reason["why"]["reason"] for reason in answer["reasons"]])

# Claim it, keep the lease, leave a checkpoint.
job = claim()
print("claimed", job["attempt"], job["payload"]["price"])
status, answer = call(
    "POST", "/v1/leases/extend", {"leases": [{"id": job["id"], "token": job["lease"]["token"]}], "lease": "1m"}
)
print("extended", status, answer["leases"][0]["held"], answer["leases"][0]["expires_in"])
status, _ = call(
    "POST",
    "/v1/leases/save",
    {
        "id": job["id"],
        "token": job["lease"]["token"],
        "checkpoint": {"done": 1},
        "progress": {"fraction": 0.5, "message": "half"},
        "log": ["charged"],
    },
)
print("saved", status)

# It fails and comes back at once, with the checkpoint; the first token is worth nothing any more.
settled = settle(job, "failed", failure={"message": "the bank is closed", "code": "bank", "retry_after": "0s"})
print("failed", settled["status"], settled["state"])
second = claim()
print("claimed", second["attempt"], second["checkpoint"], second["lease"]["version"] > job["lease"]["version"])
stale = settle(job, "completed")
print("stale", stale["status"], stale["stale"])
status, problem = call("POST", "/v1/leases/save", {"id": job["id"], "token": job["lease"]["token"], "log": ["late"]})
print("refused", status, problem["type"], problem["stale"])

# Complete it and spawn two children in the same transaction, one after the other.
children = [
    {"type": "pack", "ref": "pack"},
    {"type": "ship", "depends_on": [{"ref": "pack"}], "priority": "high"},
]
settled = settle(second, "completed", result={"paid": True}, spawn=children)
print("completed", settled["status"], settled["state"])
print("repeated", settle(second, "completed", result={"paid": True}, spawn=children)["status"])

# Work through the children and wait for the last.
pack = claim()
print("child", pack["type"], pack["spawned_by"] == first["id"])
status, page = call("GET", "/v1/jobs?type=ship")
ship_id = page["items"][0]["id"]
print("waits", page["items"][0]["state"])
settle(pack, "completed")
ship = claim()
settle(ship, "completed", result=[1, 2])
status, ended = call("GET", "/v1/jobs/%s/wait?timeout=10s" % ship_id)
print("waited", status, ended["type"], ended["state"], ended["result"])

status, stats = call("GET", "/v1/stats")
print("stats", stats["accepted"], stats["states"]["completed"])
status, problem = call("POST", "/v1/jobs", {"type": "no good"})
print("problem", status, problem["title"], problem["field"])
