"""Uses docs/examples/clients/crier.py with a real Crier, and with prepared responses.

    CRIER_URL=http://… CRIER_KEY=svc_live_… PYTHONPATH=docs/examples/clients python3 scenario.py

CRIER_URL is that of cutting_proxy.py.
"""

import json
import os
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from crier import Crier, CrierError, Response, SignatureError, WaitTimeoutError, verify_webhook

URL, KEY = os.environ["CRIER_URL"], os.environ["CRIER_KEY"]
pauses: list[float] = []
crier = Crier(URL, KEY, sleep=pauses.append)
LABEL = f"python {time.time_ns()}"


def error_of(run: Callable[[], object]) -> CrierError:
    """Returns the error of a request that must fail."""
    try:
        run()
    except CrierError as error:
        return error
    raise AssertionError("the request did not fail")


def raises(kind: type[Exception], run: Callable[[], object]) -> bool:
    try:
        run()
    except kind:
        return True
    return False


# --- A real Crier -----------------------------------------------------------------------------------------------------


def a_post_whose_response_is_lost_is_created_once() -> None:
    pauses.clear()
    response = crier.send("POST", "/brands/1/posts", {"content": "Draft", "labels": [LABEL]})
    assert len(pauses) == 1, pauses
    assert response.headers["idempotent-replayed"] == "true", response
    post = response.json()["data"]
    found = crier.get("/brands/1/posts", {"label": LABEL})["data"]
    assert [one["id"] for one in found] == [post["id"]], found
    assert crier.get(response.headers["location"])["data"]["id"] == post["id"]


def all_pages_are_listed_and_no_record_twice() -> None:
    for number in range(1, 5):
        crier.post("/brands/1/posts", {"content": f"Draft {number}", "labels": [LABEL]})
    found: list[str] = []
    for post in crier.list("/brands/1/posts", {"label": LABEL, "per_page": 2, "sort": None}):
        if not found:  # the second page begins with the last record of the first
            crier.post("/brands/1/posts", {"content": "In between", "labels": [LABEL]})
        found.append(post["content"])
    assert found == ["Draft 4", "Draft 3", "Draft 2", "Draft 1", "Draft"], found
    assert list(crier.list("/brands/1/labels")), "a list without pages"


def errors_have_a_code_fields_and_a_request_id() -> None:
    pauses.clear()
    post = {"content": "x", "schedule_type": "now", "accounts": [999_999]}
    rejected = error_of(lambda: crier.post("/brands/1/posts", post))
    assert (rejected.status, rejected.code) == (422, "validation_failed"), rejected.code
    assert "accounts.0" in str(rejected) and len(rejected.fields["accounts.0"]) == 1, rejected.fields
    assert (rejected.request_id or "").startswith("req_"), rejected.request_id
    assert error_of(lambda: crier.get("/brands/1/posts/999999")).code == "not_found"
    assert error_of(lambda: Crier(URL, "svc_live_x").get("/brands")).code == "unauthorized"
    assert len(pauses) == 1, "only the connection that the proxy cuts is retried"


def a_post_and_the_file_of_a_report_are_waited_for() -> None:
    patient = Crier(f"{URL}/", KEY)
    assert KEY not in repr(patient)
    handle = {"platform": "sandbox", "credentials": {"handle": "python"}}
    account = patient.post("/brands/1/social-accounts", handle)["data"][0]
    post = {"content": "Hello from Python", "schedule_type": "now", "accounts": [account["id"]]}
    created = patient.post("/brands/1/posts", post)["data"]
    assert patient.wait_for_post(1, created["id"], pause=0.02)["status"] == "published"
    report = patient.post("/brands/1/reports", {"name": "Posts", "widgets": [{"type": "posts_table"}]})["data"]
    delivery = patient.post(f"/brands/1/reports/{report['id']}/export", {"format": "csv"})["data"]
    ready = patient.wait_for_report(1, delivery["id"], pause=0.02)
    assert ready["status"] == "sent", ready
    file = patient.send("GET", ready["download_url"])
    assert file.headers["content-type"].startswith("text/csv") and file.body, file
    patient.put(f"/brands/1/reports/{report['id']}", {"name": "All posts"})
    assert patient.delete(f"/brands/1/reports/{report['id']}") is None


# --- Prepared responses -----------------------------------------------------------------------------------------------


class Prepared:
    """A client that gets these responses, the requests that it sends, and the seconds that it waits."""

    def __init__(self, responses: list[Response | Exception], **settings: Any) -> None:
        self.responses = responses
        self.requests: list[urllib.request.Request] = []
        self.waited: list[float] = []
        self.time = datetime(2026, 11, 28, 10, tzinfo=timezone.utc).timestamp()
        values: dict[str, Any] = {"random": lambda: 0.0, **settings}
        self.client = Crier(
            "https://crier.example",
            "svc_live_1",
            send_once=self.send_once,
            sleep=self.sleep,
            now=lambda: self.time,
            **values,
        )

    def send_once(self, request: urllib.request.Request, timeout: float) -> Response:
        self.requests.append(request)
        response = self.responses.pop(0) if self.responses else ConnectionResetError("no more responses")
        if isinstance(response, Exception):
            raise response
        return response

    def sleep(self, pause: float) -> None:
        self.waited.append(pause)
        self.time += pause


def of_json(status: int, body: object, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, json.dumps(body).encode())


def failure(status: int, code: str, **headers: str) -> Response:
    error = {"type": "x", "code": code, "message": f"It is {code}.", "request_id": "req_1"}
    return of_json(status, {"error": error}, **headers)


def retries_wait_for_retry_after_and_keep_the_key() -> None:
    prepared = Prepared(
        [
            failure(503, "service_unavailable", retry_after="7"),
            failure(409, "idempotency_in_progress", retry_after="1"),
            failure(429, "rate_limited", retry_after="Sat, 28 Nov 2026 10:00:40 GMT"),
            of_json(201, {"data": {"id": 1}}),
        ]
    )
    assert prepared.client.post("/brands/1/posts", {"content": "x"}) == {"data": {"id": 1}}
    assert prepared.waited == [7, 1, 32], prepared.waited
    keys = {request.get_header("Idempotency-key") for request in prepared.requests}
    assert len(keys) == 1 and len(str(keys.copy().pop())) >= 16, keys
    assert prepared.requests[3].get_header("Authorization") == "Bearer svc_live_1"
    assert prepared.requests[3].data == b'{"content": "x"}'
    error_of(lambda: prepared.client.post("/brands", {}))
    assert prepared.requests[4].get_header("Idempotency-key") not in keys, "another request has another key"


def attempts_are_limited() -> None:
    prepared = Prepared([ConnectionResetError("cut"), TimeoutError(), OSError(), OSError(), OSError()])
    error = error_of(lambda: prepared.client.get("/brands"))
    assert (error.status, error.code) == (0, "no_response"), error.code
    assert len(prepared.requests) == 4 and prepared.waited == [0.25, 0.5, 1], prepared.waited
    assert prepared.requests[0].get_header("Idempotency-key") is None
    page: list[Response | Exception] = [Response(502, {}, b"<html>"), Response(502, {}, b"<html>")]
    proxy = Prepared(page, attempts=2, random=lambda: 1.0)
    assert error_of(lambda: proxy.client.get("/brands")).code == "http_502"
    assert proxy.waited == [0.5], proxy.waited


def other_errors_and_long_pauses_are_not_retried() -> None:
    for response in [
        failure(409, "idempotency_key_reused"),
        failure(422, "validation_failed"),
        failure(402, "limit_reached"),
        failure(429, "rate_limited", retry_after="3600"),
        Response(302, {"location": "https://other.example"}, b""),
    ]:
        prepared = Prepared([response])
        assert error_of(lambda: prepared.client.post("/brands", {})).status == response.status
        assert len(prepared.requests) == 1, response


def redirects_are_not_followed() -> None:
    request = urllib.request.Request("http://127.0.0.1/")
    from crier import _NoRedirects

    handler: Any = _NoRedirects()
    assert handler.redirect_request(request, None, 302, "Found", {}, "https://other.example/") is None


def waiting_ends_with_the_work() -> None:
    def states(*names: str) -> list[Response | Exception]:
        return [of_json(200, {"data": {"status": name}}) for name in names]

    post = Prepared(states("scheduled", "publishing", "partially_published"))
    assert post.client.wait_for_post(1, 2)["status"] == "partially_published"
    assert post.requests[0].full_url == "https://crier.example/api/public/v1/brands/1/posts/2/status"
    report = Prepared(states("pending", "processing", "failed"))
    assert report.client.wait_for_report(1, 3)["status"] == "failed"
    assert report.requests[0].full_url == "https://crier.example/api/public/v1/brands/1/reports/deliveries/3"


def waiting_ends_at_the_deadline() -> None:
    responses: list[Response | Exception] = [of_json(200, {"data": {"status": "processing"}}) for _ in range(50)]
    prepared = Prepared(responses)
    assert raises(WaitTimeoutError, lambda: prepared.client.wait_for("/brands/1/media/jobs/1", timeout=60))
    assert prepared.waited[:3] == [1, 1.5, 2.25] and sum(prepared.waited) <= 60, prepared.waited


# --- Webhooks ---------------------------------------------------------------------------------------------------------


def signatures_are_verified() -> None:
    # The signature in docs/webhooks.md.
    body = b'{"event":"brand.created","data":{"brand_id":17,"name":"Acme Bakery"}}'
    secret = "whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"
    v1 = "11fc7ed425ca79b127a95413f68ee1582fd66f6a45aa2322cee11415ad0423b5"
    now, wrong = 1_700_000_000, "0" * 64
    for header in [f"t={now},v1={v1}", f"t={now},v1={wrong},v1={v1}", f"t={now},v0=x,v1={v1}"]:
        event = verify_webhook(body, header, ["whsec_new", secret], now=now + 299)
        assert event["data"]["brand_id"] == 17, event
    assert verify_webhook(body, f"t={now},v1={v1}", secret, now=now - 299)["event"] == "brand.created"

    def rejects(text: bytes, header: str | None, used: str, at: float) -> None:
        assert raises(SignatureError, lambda: verify_webhook(text, header, used, now=at)), header

    rejects(body + b" ", f"t={now},v1={v1}", secret, now)
    rejects(body, f"t={now},v1={v1}", "whsec_other", now)
    rejects(body, f"t={now},v1={v1}", secret, now + 301)
    rejects(body, f"t={now},v1={v1}", secret, now - 301)
    rejects(body, f"t={now - 1},v1={v1}", secret, now)
    headers = [None, "", "nonsense", "t=", f"t={now}", f"v1={v1}", f"t=x,v1={v1}", f"t={now},v1=", ",=,=", "t=²,v1=ä"]
    for malformed in [*headers, f"t={now},v1={v1[1:]}", f"t={now},t={now},v1={v1}"]:
        rejects(body, malformed, secret, now)


CHECKS: list[Callable[[], None]] = [
    a_post_whose_response_is_lost_is_created_once,
    all_pages_are_listed_and_no_record_twice,
    errors_have_a_code_fields_and_a_request_id,
    a_post_and_the_file_of_a_report_are_waited_for,
    retries_wait_for_retry_after_and_keep_the_key,
    attempts_are_limited,
    other_errors_and_long_pauses_are_not_retried,
    redirects_are_not_followed,
    waiting_ends_with_the_work,
    waiting_ends_at_the_deadline,
    signatures_are_verified,
]
for run in CHECKS:
    run()
    print(f"  ok      Python: {run.__name__.replace('_', ' ')}")
print(f"Python: {len(CHECKS)} checks passed.")
