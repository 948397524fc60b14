"""A Hugging Face hub in memory: the few endpoints that a push and a fetch of a model use."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Hub:
    """Repositories as dicts of files; every commit has a number."""

    def __init__(self):
        self.repos = {}  # name -> list of commits, each a dict of file name -> bytes
        self.requests = []
        self.address = ""

    def sha(self, name, revision="main"):
        return f"{len(self.repos[name]):040x}" if revision == "main" else revision

    def files(self, name, revision="main"):
        return self.repos[name][int(self.sha(name, revision), 16) - 1]

    def commit(self, name, lines):
        new = dict(self.files(name))
        for line in lines:
            entry = json.loads(line)
            if entry["key"] == "file":
                new[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "deletedFile":
                del new[entry["value"]["path"]]
        self.repos[name].append(new)


class Handler(BaseHTTPRequestHandler):
    def answer(self, body, status=200, **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def missing(self):
        self.answer({"error": "not found"}, 404, X_Error_Code="RepoNotFound")

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.hub.requests.append((self.command, path, self.headers.get("Authorization")))
        api = path.startswith("/api/models/")
        owner, repo, *rest = path.removeprefix("/api/models").split("/")[1:]
        name = f"{owner}/{repo}"
        if name not in self.server.hub.repos:
            self.missing()
        elif api:
            self.tell(name, *(rest or ["revision", "main"]))
        else:  # .../resolve/revision/file
            raw = self.server.hub.files(name, rest[1])["/".join(rest[2:])]
            self.answer(raw, ETag=f'"{digest(raw)}"', X_Repo_Commit=self.server.hub.sha(name, rest[1]))

    def tell(self, name, what, revision):
        files = self.server.hub.files(name, revision)
        if what == "revision":
            siblings = [{"rfilename": file} for file in files]
            self.answer({"id": name, "sha": self.server.hub.sha(name, revision), "siblings": siblings})
        else:  # tree
            listed = [{"type": "file", "path": f, "size": len(b), "oid": digest(b)} for f, b in files.items()]
            self.answer(listed)

    do_HEAD = do_GET

    def do_POST(self):
        path = unquote(urlsplit(self.path).path)
        self.server.hub.requests.append((self.command, path, self.headers.get("Authorization")))
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if path == "/api/repos/create":
            given = json.loads(raw)
            name = f"{given.get('organization', 'me')}/{given['name']}"
            status = 409 if name in self.server.hub.repos else 200
            self.server.hub.repos.setdefault(name, [{".gitattributes": b""}])
            self.answer({"url": f"{self.server.hub.address}/{name}", "id": name}, status)
        elif path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer({"files": [{"path": file["path"], **mode} for file in json.loads(raw)["files"]]})
        else:  # commit
            name = "/".join(path.split("/")[3:5])
            self.server.hub.commit(name, raw.splitlines())
            url = f"{self.server.hub.address}/{name}/commit/{self.server.hub.sha(name)}"
            self.answer({"success": True, "commitOid": self.server.hub.sha(name), "commitUrl": url})

    def log_message(self, *_):
        pass


def digest(raw):
    """How git names a file."""
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()


@contextmanager
def serving():
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub = hub
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
