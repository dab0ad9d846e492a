"""An agent that is a function behind a URL, written as anybody would with Flask. It says on
its first line where it is; POST /setup tells it the hub's URL, its token, and the secret of
the signatures."""

import threading

import requests
from flask import Flask, request
from standardwebhooks.webhooks import Webhook
from werkzeug.serving import make_server

app = Flask(__name__)
told = {}


def report(task, body):
    requests.post(
        f"{told['hub']}/v1/agents/me/tasks/{task['task_id']}/result",
        json=body,
        headers={"Authorization": "Bearer " + told["token"], "X-Claim": task["claim_id"]},
        timeout=30,
    ).raise_for_status()


@app.post("/setup")
def setup():
    told.update(request.get_json())
    return ""


@app.post("/tasks")
def work():
    if request.headers.get("Authorization") != "Bearer the credential":
        return "who are you?", 401
    task = Webhook(told["secret"]).verify(request.get_data(as_text=True), dict(request.headers))
    said = "".join(p.get("text", "") for p in task["message"]["parts"])
    if len(task["history"]) > 1:
        return "you want " + said
    if said == "fail":
        return {"state": "failed", "error": "no such file"}
    if said == "ask":
        return {"state": "input_required", "message": {"role": "agent", "parts": [{"text": "which?"}]}}
    if said == "data":
        return {"answer": 42}
    if said == "later":
        done = {"state": "completed", "artifacts": [{"name": "result", "parts": [{"text": "at last"}]}]}
        threading.Timer(0.2, report, (task, done)).start()
        return {"state": "working"}, 202
    if said == "hold":
        return {"state": "working"}
    return "ANSWER " + said


server = make_server("127.0.0.1", 0, app, threaded=True)
print(f"http://127.0.0.1:{server.port}/tasks", flush=True)
server.serve_forever()
