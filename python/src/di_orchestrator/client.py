# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Calls of di-server: authentication, TLS, timeouts and retries."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from .errors import OrchestratorError, RefusedError, UnansweredError

#: The file with the pod's token for di-server. The kubelet renews it, so each call reads it.
TOKEN_FILE = "/var/run/secrets/diengine.opendilab.org/token"

_MAX_ANSWER = 8 << 20
#: Backoff without a Retry-After header, and the most that is waited for one retry.
_FIRST_BACKOFF, _MAX_BACKOFF = 0.1, 15.0
#: Answers of gateways and overloaded servers. di-server itself says "later" with status 200.
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_UNAUTHENTICATED = 401


def new_key() -> str:
    """Return a new idempotency key."""
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Answer:
    """A successful answer of di-server."""

    #: What was done, and what not.
    message: str
    #: The requested data; None for calls without data.
    data: Any


class _Later(Exception):
    """An attempt failed in a way that may pass. `wait` is the Retry-After in seconds, if there was one."""

    def __init__(self, reason: str, wait: Optional[float] = None) -> None:
        super().__init__(reason)
        self.wait = wait


class Client:
    """A client of di-server that several threads may share.

    Each call uses its own connection, and no proxy of the environment. A call is repeated after a broken connection, after
    the answer "later" (status 200 with `success` false) and after the statuses 429, 500, 502, 503 and 504, until the
    deadline. It waits as long as `Retry-After` says. All attempts of one call have the same idempotency key, so di-server
    executes it once.

    `url` may lack `http://`. `token_file` may be missing: di-server then knows the pod by its address. `ca_file` has the
    authorities to trust for `https://`: the key `ca.crt` of ConfigMap `di-orchestrator-server-ca`. `deadline` bounds a call
    with its retries, in seconds, and `timeout` each attempt.
    """

    _program = "di-server"
    _max_answer = _MAX_ANSWER

    def __init__(
        self,
        url: str,
        *,
        token_file: Optional[str] = TOKEN_FILE,
        ca_file: Optional[str] = None,
        deadline: float = 300.0,
        timeout: float = 45.0,  # di-server works on a request for up to 30 seconds
    ) -> None:
        parsed = urllib.parse.urlsplit(url if "://" in url else "http://" + url)
        if parsed.scheme not in ("http", "https") or not parsed.hostname:
            raise ValueError(f"url is {url!r}: must be host:port, with or without http:// or https://")
        self._url = parsed
        self._token_file = token_file
        self._ca_file = ca_file
        self._deadline = deadline
        self._timeout = timeout

    def call(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Optional[Mapping[str, Any]] = None,
        *,
        key: Optional[str] = None,
        deadline: Optional[float] = None,
    ) -> Answer:
        """Make a call and return its answer.

        Raises RefusedError if di-server refuses the request, and UnansweredError if there is no final answer within
        `deadline` seconds (by default that of the client).
        """
        limit = self._deadline if deadline is None else deadline
        end = time.monotonic() + limit
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        backoff, is_repeated = _FIRST_BACKOFF, False
        while True:
            try:
                left = max(end - time.monotonic(), 0.1)
                return self._once(method, target, content, key, min(self._timeout, left))
            except RefusedError as error:
                # The kubelet may have renewed the token after it was read.
                if error.status != _UNAUTHENTICATED or is_repeated:
                    raise
                is_repeated, reason, wait = True, str(error), backoff
            except _Later as error:
                # Clients that failed together do not retry together.
                reason, wait = str(error), backoff * random.uniform(0.75, 1.25) if error.wait is None else error.wait
                backoff = min(2 * backoff, _MAX_BACKOFF)
            if time.monotonic() + wait >= end:
                raise UnansweredError(f"{method} {path} has no answer of {self._program} after {limit:g} seconds: {reason}")
            time.sleep(wait)

    def _once(self, method: str, target: str, content: Optional[bytes], key: Optional[str], timeout: float) -> Answer:
        headers = {"Connection": "close", "User-Agent": "di-orchestrator-python"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        token = self._token()
        if token:
            headers["Authorization"] = "Bearer " + token
        connection = self._connect(timeout)
        try:
            connection.request(method, self._url.path.rstrip("/") + target, content, headers)
            response = connection.getresponse()
            return self._read(response.status, response.getheader("Retry-After"), response.read(self._max_answer))
        except ssl.SSLCertVerificationError as error:
            raise OrchestratorError(f"the certificate of {self._url.netloc} is not trusted: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Later(f"{self._url.netloc}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        # The file is read for each call, because the authority may be replaced.
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

    def _token(self) -> str:
        if not self._token_file:
            return ""
        try:
            with open(self._token_file, encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def _read(self, status: int, retry_after: Optional[str], content: bytes) -> Answer:
        """Return the answer that a response has."""
        wait = _seconds(retry_after)
        try:
            envelope = json.loads(content)
            message, success = str(envelope["message"]), bool(envelope["success"])
        except (ValueError, KeyError, TypeError):
            if status in _TRANSIENT:
                raise _Later(f"status {status}", wait) from None
            raise OrchestratorError(f"status {status} with an answer that is not di-server's: {content[:200]!r}") from None
        # Without Retry-After the cluster refuses the request for good. Status 200 is for clients without a token.
        if status in _TRANSIENT or (status == http.client.OK and not success and wait is not None):
            raise _Later(message, wait)
        if status != http.client.OK or not success:
            raise RefusedError(status, message)
        return Answer(message, envelope.get("data"))


def _seconds(retry_after: Optional[str]) -> Optional[float]:
    """Return how long the server asks to wait; None if it does not say."""
    if retry_after is not None and retry_after.strip().isdigit():
        return min(float(retry_after), 4 * _MAX_BACKOFF)
    return None
