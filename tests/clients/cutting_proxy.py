"""Forwards requests to Crier, but cuts the connection instead of forwarding the first response to each new post.

    python3 cutting_proxy.py URL

Prints its own URL. The client cannot know whether its post was created, and must retry with the same Idempotency-Key.
"""

import http.client
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

crier = urllib.parse.urlsplit(sys.argv[1])
keys = set()


class Proxy(BaseHTTPRequestHandler):
    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        connection = http.client.HTTPConnection(crier.netloc, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        key = self.headers.get("Idempotency-Key")
        self.close_connection = True
        if self.command == "POST" and self.path.endswith("/posts") and key not in keys:
            keys.add(key)
            return
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        if response.status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = forward

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
