# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Read jobs that are gone, with the curves of what they reported, from the history of an installation."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from .client import _TRANSIENT, Answer, Client, _Later, _seconds
from .errors import NotFoundError, OrchestratorError, RefusedError

_ROOT = "/v1alpha1/history/jobs"
_NOT_FOUND = 404
_PAGE = 500
#: Points of a curve: times in seconds since 1970, and values.
Curve = List[Tuple[float, float]]


@dataclass(frozen=True)
class PastJob:
    """A job as the history recorded it. Times are in UTC, or None."""

    name: str
    namespace: str
    uid: str
    phase: str
    #: Why it ended so, in one word and in a sentence.
    reason: str
    message: str
    group: str
    creator: str
    created: Optional[datetime]
    started: Optional[datetime]
    ended: Optional[datetime]
    #: The whole answer. Those of `show` have the manifest, replicas, restarts and more. It is not printed.
    object: Mapping[str, Any] = field(repr=False)


class History:
    """The history of the jobs of a namespace.

    `url` is that of Service `di-history`, such as https://di-history.di-system.svc. `token_file` has a token of the cluster,
    whose owner needs the rights to list and get `dijobs` in the namespace: by default that of the pod's service account.
    `ca_file` has the authorities to trust: the key `ca.crt` of ConfigMap `di-orchestrator-server-ca`.

    All calls raise NotFoundError for a job that the history does not have, or that the caller may not read, RefusedError for
    other refusals, and UnansweredError after `deadline` seconds.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token",
        ca_file: Optional[str] = None,
        deadline: float = 60.0,
    ) -> None:
        if not url.startswith("https://"):
            raise ValueError(f"url is {url!r}: must start with https://")
        self.namespace = namespace
        self._client = _Reader(url, token_file=token_file, ca_file=ca_file, deadline=deadline)

    def list(
        self,
        *,
        since: Optional[datetime] = None,
        phase: str = "",
        group: str = "",
        creator: str = "",
        reason: str = "",
        text: str = "",
    ) -> Iterator[PastJob]:
        """Yield the jobs that fit, the newest first. They are read page by page."""
        query: Dict[str, Any] = {
            "namespace": self.namespace, "phase": phase, "group": group, "creator": creator, "reason": reason, "text": text,
            "limit": _PAGE, "since": "" if since is None else since.astimezone(timezone.utc).isoformat(),
        }
        while True:
            page = self._get("", query)
            yield from (_job(each) for each in page["jobs"])
            if not page.get("next"):
                return
            query["from"] = page["next"]

    def show(self, name: str, uid: str = "") -> PastJob:
        """Return all that is recorded of a job: without `uid` of the newest one with this name."""
        return _job(self._get(self._path(name), {"uid": uid}))

    def curves(self, name: str, uid: str = "") -> Dict[str, Curve]:
        """Return the curves of a job by the names of their series."""
        curves: Dict[str, Curve] = {}
        query = {"uid": uid}
        while True:
            page = self._get(self._path(name) + "/series", query)
            for series in page["series"]:
                points = curves.setdefault(series["name"], [])
                points += [(_time(each["at"]).timestamp(), each["value"]) for each in series["points"]]
            if not page.get("next"):
                return curves
            # The next page is of the same job, even if a newer one has its name meanwhile.
            query = {"uid": page["uid"], "after": page["next"]}

    def _path(self, name: str) -> str:
        return "/" + urllib.parse.quote(self.namespace, safe="") + "/" + urllib.parse.quote(name, safe="")

    def _get(self, path: str, query: Mapping[str, Any]) -> Any:
        given = {key: value for key, value in query.items() if value}
        try:
            return self._client.call("GET", _ROOT + path, given).data
        except RefusedError as error:
            if error.status == _NOT_FOUND:
                raise NotFoundError(f"the history: {error.message}") from error
            raise


class _Reader(Client):
    """A client whose answers are data without an envelope, or a Status of Kubernetes."""

    _program = "the history"
    _max_answer = 256 << 20

    def _read(self, status: int, retry_after: Optional[str], content: bytes) -> Answer:
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if status == http.client.OK and isinstance(answer, dict):
            return Answer("", answer)
        message = str(answer.get("message", "")) if isinstance(answer, dict) else ""
        if status in _TRANSIENT:
            raise _Later(message or f"status {status}", _seconds(retry_after))
        if not message:
            raise OrchestratorError(f"status {status} with an answer that is not the history's: {content[:200]!r}")
        raise RefusedError(status, message, what="the history refused the request")


def _job(found: Mapping[str, Any]) -> PastJob:
    return PastJob(
        found["name"],
        found["namespace"],
        found["uid"],
        found.get("phase", ""),
        found.get("reason", ""),
        found.get("message", ""),
        found.get("group", ""),
        found.get("creator", ""),
        _moment(found, "created"),
        _moment(found, "started"),
        _moment(found, "ended"),
        found,
    )


def _moment(found: Mapping[str, Any], key: str) -> Optional[datetime]:
    return _time(found[key]) if found.get(key) else None


def _time(text: str) -> datetime:
    """Return a time of RFC 3339 in UTC, such as 2026-01-31T15:04:05.123456789Z. Python 3.9 does not parse all of them."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    at = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return at.replace(microsecond=int(fraction[:6].ljust(6, "0"))) if fraction else at
