"""A stand-in for the Hub: the part of its HTTP interface that push and load use, served by a thread."""

import base64
import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

TOKEN = "hf_stand_in"
OWNER = "owner"


class StandIn:
    """The state of the server: models with the files of the newest commit; all commits are kept."""

    def __init__(self) -> None:
        self.address = ""
        self.models: dict[str, list[dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.calls: list[str] = []

    def files(self, name: str) -> dict[str, bytes]:
        """Return the newest files."""
        return self.models[name][-1]

    def shas(self, name: str) -> list[str]:
        """Return the commits of a model, oldest first."""
        return [hashlib.sha1(f"{name} {k}".encode()).hexdigest() for k in range(len(self.models[name]))]

    def at(self, name: str, sha: str) -> dict[str, bytes]:
        """Return the files of a commit."""
        return self.models[name][self.shas(name).index(sha)]


class Handler(BaseHTTPRequestHandler):
    """Answers as the Hub does."""

    protocol_version = "HTTP/1.1"
    hub: ClassVar[StandIn]

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self._path()
        if path[:2] == ["api", "models"] and len(path) >= 4:
            name, rest = "/".join(path[2:4]), path[4:]
            revision = unquote(rest[1]) if len(rest) > 1 else "main"
            if (sha := self._find(name, revision)) is None:
                return
            if rest[:1] == ["tree"]:
                files = self.hub.at(name, sha)
                return self._answer([_entry(path, content) for path, content in files.items()])
            return self._answer({"id": name, "sha": sha, "siblings": [], "private": name in self.hub.private})
        if len(path) >= 5 and path[2] == "resolve":
            name, revision, file = "/".join(path[:2]), unquote(path[3]), "/".join(path[4:])
            if (sha := self._find(name, revision)) is None:
                return
            content = self.hub.at(name, sha).get(file)
            if content is None:
                return self._fail(404, "EntryNotFound", "Entry not found")
            return self._send(200, content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": sha})
        self._fail(404, "", f"no such page: {self.path}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self._path()
        if path == ["api", "validate-yaml"]:
            return self._answer({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._fail(401, "", "Invalid credentials in Authorization header")
        if path == ["api", "repos", "create"]:
            return self._create(json.loads(body))
        name = "/".join(path[2:4])
        if self._find(name, "main") is None:
            return None
        if path[4] == "preupload":
            modes = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self._answer({"files": modes})
        return self._commit(name, body)

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        if wanted["organization"] != OWNER:
            return self._fail(403, "", "You don't have the rights to create a model under this namespace")
        url = {"url": f"{self.hub.address}/{name}"}
        if name in self.hub.models:
            return self._send(409, json.dumps(url).encode(), {"Content-Type": "application/json"})
        self.hub.models[name] = [{}]
        if wanted.get("visibility") == "private" or wanted.get("private"):
            self.hub.private.add(name)
        return self._answer(url)

    def _commit(self, name: str, body: bytes) -> None:
        files = dict(self.hub.files(name))
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]
        self.hub.models[name].append(files)
        sha = self.hub.shas(name)[-1]
        self._answer({"commitUrl": f"{self.hub.address}/{name}/commit/{sha}", "commitOid": sha})

    def _path(self) -> list[str]:
        self.hub.calls.append(f"{self.command} {self.path}")
        return urlsplit(self.path).path.strip("/").split("/")

    def _find(self, name: str, revision: str) -> str | None:
        """Return the commit; answer requests for missing or private models."""
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if name not in self.hub.models or (name in self.hub.private and not known):
            self._fail(404 if known else 401, "RepoNotFound", "Repository not found")
            return None
        shas = self.hub.shas(name)
        if revision == "main":
            return shas[-1]
        if revision in shas:
            return revision
        self._fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def _answer(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _fail(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self._send(status, json.dumps({"error": message}).encode(), {"Content-Type": "application/json", **headers})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """A server that ignores closed connections, instead of printing a traceback."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Serve an empty Hub on this machine until the context ends."""
    hub = StandIn()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
