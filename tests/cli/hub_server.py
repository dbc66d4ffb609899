# SPDX-License-Identifier: Apache-2.0
"""A hub on this machine, as much of one as downloads need: GET /api/models/OWNER/REPO?blobs=true and /OWNER/REPO/resolve/COMMIT/FILE, which redirects to
a second server, as hubs do. For tests and for tools/first_day."""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def lfs(content):
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 134}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub, path = self.server.hub, urllib.parse.unquote(self.path.split("?")[0])
        hub.asked.append((self.server.role, self.path, self.headers.get("Authorization")))
        if self.server.role == "files":
            self.file(hub.contents.get(path.lstrip("/")))
        elif hub.token and self.headers.get("Authorization") != "Bearer " + hub.token:
            self.reply(401, b'{"error":"Invalid username or password."}')
        elif path.startswith("/api/models/"):
            self.list(path[len("/api/models/"):])
        else:
            self.resolve(path)

    def list(self, name):
        hub = self.server.hub
        if name not in hub.repos:
            self.reply(404, b'{"error":"Repository not found"}')
            return
        siblings = [{"rfilename": file, "size": len(content), "blobId": hashlib.sha1(content).hexdigest(), "lfs": lfs(content)}
                    for file, content in hub.repos[name].items()]
        answer = {"id": name, "sha": hub.commit, "siblings": siblings}
        hub.edit(answer)
        self.reply(200, json.dumps(answer).encode(), Content_Type="application/json")

    def resolve(self, path):
        hub = self.server.hub
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([0-9a-f]+)/(.+)", path)
        if not found or found[2] != hub.commit or found[3] not in hub.repos.get(found[1], {}):
            self.reply(404, b"Entry not found")
            return
        content = hub.repos[found[1]][found[3]]
        digest = hashlib.sha256(content).hexdigest()
        hub.contents[digest] = content
        self.reply(302, Location=hub.redirect or f"http://127.0.0.1:{hub.files.server_address[1]}/{digest}", X_Repo_Commit=hub.commit,
                   X_Linked_Etag=f'"{digest}"', X_Linked_Size=str(len(content)))

    def file(self, content):
        if content is None:
            self.reply(404)
            return
        hub, start = self.server.hub, 0
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and self.headers.get("If-Range") == etag:
            start = int(asked[1])
            hub.ranges.append(start)
        rest = content[start:]
        sent = hub.spoil(rest)
        self.send_response(206 if start else 200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(rest)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection |= len(sent) < len(rest)


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):  # clients close connections early
        pass


class Hub:
    """repos: {"OWNER/REPO": {file: bytes}}. edit: changes the list of files before it is sent; spoil: the bytes of a file that are sent, once."""

    def __init__(self, repos, token=None):
        self.repos, self.token, self.commit, self.redirect = repos, token, COMMIT, None
        self.asked, self.ranges, self.contents, self.plan = [], [], {}, []
        self.edit = lambda answer: None
        self.api, self.files = self.start("api"), self.start("files")
        self.url = f"http://127.0.0.1:{self.api.server_address[1]}"

    def start(self, role):
        server = QuietServer(("127.0.0.1", 0), Handler)
        server.hub, server.role = self, role
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def spoil(self, rest):
        return self.plan.pop(0)(rest) if self.plan else rest

    def paths(self, role):
        return [path for at, path, _ in self.asked if at == role]

    def close(self):
        for server in (self.api, self.files):
            server.shutdown()
            server.server_close()
