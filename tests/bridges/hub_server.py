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

    def sha(self, name):
        return f"{len(self.repos[name]):040x}"

    def files(self, name, revision="main"):
        number = len(self.repos[name]) if revision == "main" else int(revision, 16)
        return self.repos[name][number - 1]

    def commit(self, name, lines):
        new = dict(self.files(name))
        for line in lines:
            entry = json.loads(line)
            if entry["key"] == "file":
                new[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "deletedFile":
                del new[entry["value"]["path"]]
        self.repos[name].append(new)


def handler(hub):
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
            hub.requests.append((self.command, path, self.headers.get("Authorization")))
            api, _, rest = path.partition("/api/models/")
            owner, repo, *rest = (rest if not api else api[1:]).split("/")
            name = f"{owner}/{repo}"
            if name not in hub.repos:
                self.missing()
            elif not api and (not rest or rest[0] == "revision"):
                siblings = [{"rfilename": file} for file in hub.files(name)]
                self.answer({"id": name, "sha": hub.sha(name), "siblings": siblings})
            elif not api and rest[0] == "tree":
                files = hub.files(name, rest[1]).items()
                self.answer([{"type": "file", "path": f, "size": len(b), "oid": digest(b)} for f, b in files])
            elif api and rest[0] == "resolve":
                raw = hub.files(name, rest[1])["/".join(rest[2:])]
                self.answer(raw, ETag=f'"{digest(raw)}"', X_Repo_Commit=hub.sha(name))
            else:
                self.missing()

        do_HEAD = do_GET

        def do_POST(self):
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path, self.headers.get("Authorization")))
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            if path == "/api/repos/create":
                given = json.loads(raw)
                name = f"{given.get('organization', 'me')}/{given['name']}"
                status = 409 if name in hub.repos else 200
                hub.repos.setdefault(name, [{".gitattributes": b""}])
                self.answer({"url": f"{hub.address}/{name}", "id": name}, status)
            elif path == "/api/validate-yaml":
                self.answer({"errors": [], "warnings": []})
            elif "/preupload/" in path:
                files = [file["path"] for file in json.loads(raw)["files"]]
                mode = {"uploadMode": "regular", "shouldIgnore": False}
                self.answer({"files": [{"path": file, **mode} for file in files]})
            elif "/commit/" in path:
                name = "/".join(path.split("/")[3:5])
                hub.commit(name, raw.splitlines())
                sha = hub.sha(name)
                self.answer({"success": True, "commitOid": sha, "commitUrl": f"{hub.address}/{name}/commit/{sha}"})
            else:
                self.missing()

        def log_message(self, *_):
            pass

    return Handler


def digest(raw):
    """How git names a file."""
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()


@contextmanager
def serving():
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
