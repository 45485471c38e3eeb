# WEBHOOK_SECRET=whsec_… python3 receiver.py
import hashlib, hmac, json, os, queue, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["WEBHOOK_SECRET"].encode()
TOLERANCE = 5 * 60  # seconds


def verify(header, body):
    fields = [field.split("=", 1) for field in header.split(",") if "=" in field]
    times = [value for name, value in fields if name == "t"]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdigit():
        return False
    expected = hmac.new(SECRET, times[0].encode() + b"." + body, hashlib.sha256).hexdigest().encode()
    signatures = [value.encode() for name, value in fields if name == "v1"]
    matches = any([hmac.compare_digest(expected, one) for one in signatures])
    return matches and abs(time.time() - int(times[0])) <= TOLERANCE


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > 1 << 20:
            return self.respond(413)
        body = self.rfile.read(int(length))  # the unmodified bytes: verify them before parsing
        if not verify(self.headers.get("X-Webhook-Signature", ""), body):
            return self.respond(400)
        work.put((self.headers["X-Webhook-Delivery-Id"], body))
        self.respond(204)  # immediately; another thread does the work

    def respond(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


# In your service, both are tables: data in memory is lost if the process ends after its 204.
work, seen = queue.Queue(), set()


def run():
    while True:
        delivery, body = work.get()
        if delivery not in seen:  # INSERT … ON CONFLICT DO NOTHING
            seen.add(delivery)
            event = json.loads(body)
            print(event["event"], event["data"], flush=True)


threading.Thread(target=run, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9999"))), Receiver).serve_forever()
