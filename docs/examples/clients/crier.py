"""A client of Crier: idempotency keys, retries, pages, waiting, errors and webhook signatures.

It needs Python 3.10 and no packages, and works with or without generated models. docs/clients.md explains it.

    crier = Crier("https://crier.example", key)
    post = crier.post("/brands/1/posts", {"content": "Hello", "schedule_type": "now", "accounts": [1]})["data"]
    crier.wait_for_post(1, post["id"])
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

PREFIX = "/api/public/v1"
Query = Mapping[str, object]


@dataclass
class Response:
    """The response to one attempt. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The JSON of the body; None if the response has no body."""
        return json.loads(self.body) if self.body else None


class CrierError(Exception):
    """An error response, or a request that got no response (`status` is 0 and `code` is `no_response`)."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        fields: Mapping[str, list[str]] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        #: The stable code, as in docs/errors.md. `http_502` or similar if the response is not from Crier.
        self.code = code
        self.message = message
        #: The problems of each field, by field path.
        self.fields = dict(fields or {})
        #: Include it when you report a problem.
        self.request_id = request_id

    @classmethod
    def of(cls, response: Response) -> CrierError:
        """Returns the error of an error response."""
        request_id = response.headers.get("x-request-id")
        try:
            error = response.json()["error"]
            code, message, fields = error["code"], error["message"], error.get("fields")
        except (ValueError, KeyError, TypeError):
            return cls(response.status, f"http_{response.status}", f"HTTP {response.status}", None, request_id)
        return cls(response.status, code, message, fields, error.get("request_id", request_id))


class WaitTimeoutError(Exception):
    """The post, report or import did not finish in time. It may still finish later."""


class SignatureError(Exception):
    """The signature of a webhook delivery is missing, wrong or too old. Respond with 400."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib sends the API key to the target of a redirect, so redirects are errors."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def send_with_urllib(request: urllib.request.Request, timeout: float) -> Response:
    """Sends one request. Raises an OSError or an http.client.HTTPException if there is no complete response."""
    try:
        response = _opener.open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status, headers, response.read())


@dataclass
class Crier:
    """A client of one installation. Threads can share it."""

    #: The public URL of Crier, for example `https://crier.example`.
    url: str
    #: The API key.
    key: str = field(repr=False)
    #: The maximum number of attempts per request.
    attempts: int = 4
    #: The time limit of each network operation, in seconds.
    timeout: float = 60
    #: The longest pause, in seconds. If `Retry-After` is longer, there is no retry.
    longest_pause: float = 60
    #: Sends one request.
    send_once: Callable[[urllib.request.Request, float], Response] = send_with_urllib
    #: Waits for this number of seconds.
    sleep: Callable[[float], None] = time.sleep
    #: Returns the current time, as a Unix time in seconds.
    now: Callable[[], float] = time.time
    #: Returns a number from 0 to 1, for the length of pauses.
    random: Callable[[], float] = random.random

    def get(self, path: str, query: Query | None = None) -> Any:
        return self.request("GET", path, query=query)

    def post(self, path: str, body: object = None, *, idempotency_key: str | None = None) -> Any:
        return self.request("POST", path, body, idempotency_key=idempotency_key)

    def put(self, path: str, body: object = None, *, idempotency_key: str | None = None) -> Any:
        return self.request("PUT", path, body, idempotency_key=idempotency_key)

    def delete(self, path: str, *, idempotency_key: str | None = None) -> Any:
        return self.request("DELETE", path, idempotency_key=idempotency_key)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Query | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """Returns the JSON of the response; None if it has no body. Raises a CrierError for an error response."""
        return self.send(method, path, body, query=query, idempotency_key=idempotency_key).json()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Query | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Returns the response, for its headers or to download a file. Raises a CrierError for an error response.

        Bytes are sent unchanged and need a `Content-Type` in `headers`. Any other body is sent as JSON. Each write has
        an idempotency key, which is the same for all attempts.
        """
        all_headers = {"Authorization": f"Bearer {self.key}", "Accept-Encoding": "identity", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        if method not in ("GET", "HEAD"):
            all_headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
        request = urllib.request.Request(self._url(path, query), body, all_headers, method=method)
        attempt = 0
        while True:
            attempt += 1
            pause = min(self.longest_pause, 0.5 * 2 ** (attempt - 1)) * (0.5 + self.random() / 2)
            try:
                response = self.send_once(request, self.timeout)
            except (OSError, http.client.HTTPException) as error:
                if attempt >= self.attempts:
                    message = f"{method} {request.full_url} got no response in {attempt} attempts: {error}"
                    raise CrierError(0, "no_response", message) from error
            else:
                if 200 <= response.status < 300:
                    return response
                after = self._retry_after(response)
                # A conflict is temporary only if it has a `Retry-After`: `idempotency_in_progress`.
                is_temporary = after is not None or response.status == 429 or response.status >= 500
                if not is_temporary or attempt >= self.attempts or (after or 0) > self.longest_pause:
                    raise CrierError.of(response)
                if after is not None:
                    pause = after + self.random() / 4
            self.sleep(pause)

    def list(self, path: str, query: Query | None = None) -> Iterator[Any]:
        """Iterates over the records of a list, page by page.

        A record that moves to the next page meanwhile comes once.
        """
        seen = set()
        following: Query | None = query or {}
        while following is not None:
            page = self.get(path, following)
            for record in page["data"]:
                identifier = record.get("id")
                if identifier is None or identifier not in seen:
                    seen.add(identifier)
                    yield record
            # Only the query is used: the URL contains Crier's public name, which may differ from the one used here.
            link = page.get("links", {}).get("next")
            following = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(link).query)) if link else None

    def wait_for_post(self, brand: int, post: int, timeout: float = 300, pause: float = 1) -> Any:
        """Returns the status of a post when it is neither scheduled nor being published.

        Check its `status`, because it may be `failed` or `partially_published`.
        """
        return self.wait_for(f"/brands/{brand}/posts/{post}/status", ("scheduled", "publishing"), timeout, pause)

    def wait_for_report(self, brand: int, delivery: int, timeout: float = 300, pause: float = 1) -> Any:
        """Returns the delivery of a report when its file is ready (`sent`) or could not be created (`failed`)."""
        return self.wait_for(f"/brands/{brand}/reports/deliveries/{delivery}", timeout=timeout, pause=pause)

    def wait_for(
        self,
        path: str,
        unfinished: Sequence[str] = ("pending", "processing"),
        timeout: float = 300,
        pause: float = 1,
    ) -> Any:
        """Returns the record of this path, for example a `poll_url`, when its `status` is none of these.

        Times are in seconds. The pauses between the requests become longer, up to 10 seconds.
        """
        deadline = self.now() + timeout
        while True:
            record = self.get(path)["data"]
            if record["status"] not in unfinished:
                return record
            if self.now() + pause > deadline:
                raise WaitTimeoutError(f"{path} is still {record['status']}")
            self.sleep(pause)
            pause = min(10, pause * 1.5)

    @property
    def base_url(self) -> str:
        """The URL of the API."""
        return self.url.rstrip("/") + PREFIX

    def _url(self, path: str, query: Query | None) -> str:
        # `Location`, `poll_url` and `download_url` begin with the prefix of the API. Paths in the reference do not.
        url = self.base_url + path.removeprefix(PREFIX)
        values = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in (query or {}).items()
            if value is not None
        }
        return f"{url}?{urllib.parse.urlencode(values)}" if values else url

    def _retry_after(self, response: Response) -> float | None:
        """Returns the time of `Retry-After`, in seconds from now. A proxy may send a date."""
        value = response.headers.get("retry-after", "")
        if value.isascii() and value.isdigit():
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - self.now())
        except ValueError:
            return None


def verify_webhook(
    body: bytes,
    signature: str | None,
    secrets: str | Sequence[str],
    tolerance: float = 300,
    now: float | None = None,
) -> Any:
    """Returns the event of a webhook delivery if its signature is valid, and raises a SignatureError otherwise.

    `body` must be the unmodified bytes of the request. `secrets` may have several values while a secret is rotated.
    """
    fields = [part.partition("=") for part in (signature or "").split(",")]
    times = [value for name, _, value in fields if name == "t"]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdigit() or len(times[0]) > 12:
        raise SignatureError("The signature header is missing or malformed.")
    if abs((time.time() if now is None else now) - int(times[0])) > tolerance:
        raise SignatureError("The time of the signature is too far from the current time. Check the clock.")
    signatures = [value.encode() for name, _, value in fields if name == "v1"]
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        expected = hmac.new(secret.encode(), times[0].encode() + b"." + body, hashlib.sha256).hexdigest().encode()
        if any([hmac.compare_digest(expected, one) for one in signatures]):
            return json.loads(body)
    raise SignatureError("The signature does not match.")
