# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from types import SimpleNamespace
from typing import Any, Iterator, Mapping, Optional


class ApiException(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class Connection:
    server = ""
    context = ssl.create_default_context()


def _call(method: str, path: str, body: Any = None, query: Optional[str] = None, kind: str = "application/json") -> Any:
    request = urllib.request.Request(
        Connection.server + path + (f"?{query}" if query else ""),
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={"Content-Type": kind, "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, context=Connection.context, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ApiException(error.code, error.read().decode(errors="replace")) from None


def _open(path: str, query: Mapping[str, Any]) -> Any:
    """Return the response itself, as the package does without _preload_content."""
    address = f"{Connection.server}{path}?{urllib.parse.urlencode(query)}"
    try:
        response = urllib.request.urlopen(address, context=Connection.context, timeout=60)
    except urllib.error.HTTPError as error:
        raise ApiException(error.code, error.read().decode(errors="replace")) from None
    return Response(response)


class Response:
    def __init__(self, response: Any) -> None:
        self._response = response

    @property
    def data(self) -> bytes:
        with self._response:
            content: bytes = self._response.read()
        return content

    def stream(self) -> Iterator[bytes]:
        with self._response:
            yield from self._response


def _path(group: str, version: str, namespace: str, plural: str, *rest: str) -> str:
    return "/".join((f"/apis/{group}/{version}/namespaces/{namespace}/{plural}", *rest))


class ApiClient:
    def call_api(self, path: str, method: str, header_params: Any, body: Any, **others: Any) -> None:
        _call(method, path, body, kind=header_params["Content-Type"])


class _Api:
    def __init__(self, api_client: ApiClient) -> None:
        pass


class CustomObjectsApi(_Api):
    def create_namespaced_custom_object(self, group: str, version: str, namespace: str, plural: str, body: Any) -> Any:
        return _call("POST", _path(group, version, namespace, plural), body)

    def get_namespaced_custom_object(self, group: str, version: str, namespace: str, plural: str, name: str) -> Any:
        return _call("GET", _path(group, version, namespace, plural, name))

    def list_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, field_selector: str = "", resource_version: str = "",
        watch: bool = False, timeout_seconds: int = 0, _preload_content: bool = True,
    ) -> Any:  # fmt: skip
        if _preload_content:
            return _call("GET", _path(group, version, namespace, plural))
        query = {
            "fieldSelector": field_selector, "resourceVersion": resource_version, "watch": str(watch).lower(),
            "timeoutSeconds": timeout_seconds,
        }  # fmt: skip
        return _open(_path(group, version, namespace, plural), query)

    def delete_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, name: str, propagation_policy: str
    ) -> Any:
        query = urllib.parse.urlencode({"propagationPolicy": propagation_policy})
        return _call("DELETE", _path(group, version, namespace, plural, name), query=query)


class CoreV1Api(_Api):
    def list_namespaced_pod(self, namespace: str, label_selector: str) -> Any:
        query = urllib.parse.urlencode({"labelSelector": label_selector})
        found = _call("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)
        return SimpleNamespace(items=[SimpleNamespace(metadata=SimpleNamespace(**pod["metadata"])) for pod in found["items"]])

    def list_namespaced_event(self, namespace: str, field_selector: str, _preload_content: bool) -> Any:
        return _open(f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": field_selector})

    def create_namespaced_config_map(self, namespace: str, body: Any) -> Any:
        return _call("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)

    def patch_namespaced_config_map(self, name: str, namespace: str, body: Any) -> Any:
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        return _call("PATCH", path, body, kind="application/strategic-merge-patch+json")

    def read_namespaced_config_map(self, name: str, namespace: str) -> Any:
        found = _call("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        return SimpleNamespace(data=found.get("data"), metadata=SimpleNamespace(owner_references=found["metadata"].get("ownerReferences")))
