# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Submit and follow jobs from outside of them. Needs the package `kubernetes`: `pip install 'di-orchestrator[kubernetes]'`."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from .errors import FieldError, JobFailedError, NotFoundError, OrchestratorError, RefusedError
from .launch import Launch, Program, manifests, pack

_GROUP, _PLURAL, _VERSION = "diengine.opendilab.org", "dijobs", "v2alpha1"
_NOT_FOUND, _CONFLICT, _UNPROCESSABLE, _TOO_MANY, _SERVER_ERRORS = 404, 409, 422, 429, 500
#: How long a watch of the API server lasts, in seconds, and how long a broken one waits.
_WATCH_SECONDS, _RECONNECT_SECONDS = 300, 1.0
# The API server has no log of a container that has not started.
_NOT_STARTED = 400
_log = logging.getLogger(__name__)

#: The labels of pods, by lifecycle.
_JOB_LABELS = {"CoordinatorLed": "dijob-name", "WorkerLed": "diengine/job"}
_TASK_LABELS = {"CoordinatorLed": "replica-type", "WorkerLed": "diengine/task-name"}


@dataclass(frozen=True)
class Job:
    """A job as it was read."""

    name: str
    namespace: str
    phase: str
    replicas: int
    ready_replicas: int
    #: The whole DIJob, in version v2alpha1. It is not printed.
    object: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Event:
    """An Event of a job or of one of its pods."""

    #: When it was last seen, as Kubernetes writes times.
    at: str
    #: Normal or Warning.
    type: str
    reason: str
    message: str
    #: The pod; empty for the job.
    pod: str
    count: int


class Jobs:
    """The jobs of a namespace.

    The kubeconfig is used with `context`, or its current one. Inside of a cluster, without `context` and the variable
    KUBECONFIG, it is the pod's service account. `namespace` is by default that of the context, or of the pod.

    All calls raise NotFoundError for a job that does not exist, and RefusedError for what the API server refuses. An API server
    that is unavailable or overloaded raises the exception of the package `kubernetes`.
    """

    def __init__(self, namespace: Optional[str] = None, *, context: Optional[str] = None) -> None:
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise OrchestratorError(
                "the package kubernetes is missing: pip install 'di-orchestrator[kubernetes]', or on Debian apt install python3-kubernetes"
            ) from error
        configured = _configure(config, context)
        self.namespace = namespace or configured or "default"
        self._api: Any = client.ApiClient()
        self._objects: Any = client.CustomObjectsApi(self._api)
        self._core: Any = client.CoreV1Api(self._api)

    def submit(self, job: Union[Mapping[str, Any], str, Path]) -> Job:
        """Create a job: a DIJob of either version as a mapping, or the file that has it."""
        if not isinstance(job, Mapping):
            job = _read_manifest(Path(job))
        api_version = str(job.get("apiVersion", ""))
        group, _, version = api_version.partition("/")
        if group != _GROUP or job.get("kind") != "DIJob":
            raise ValueError(f"apiVersion and kind are {api_version!r} and {job.get('kind')!r}: must be {_GROUP}/{_VERSION} and DIJob")
        namespace = job.get("metadata", {}).get("namespace", self.namespace)
        if namespace != self.namespace:
            raise ValueError(f"metadata.namespace is {namespace!r}: must be {self.namespace!r}, the namespace of these jobs")
        with self._explained(job.get("metadata", {}).get("name", "")):
            created = self._objects.create_namespaced_custom_object(_GROUP, version, namespace, _PLURAL, dict(job))
        return self.get(created["metadata"]["name"])

    def run(
        self, name: str, program: Optional[Program] = None, *, arguments: Optional[Mapping[str, Any]] = None, **options: Any
    ) -> Job:
        """Run a job without a manifest, as `kubectl di run` does. The options are the fields of Launch, such as `image`.

        `program` is a function, a script or a folder with a program. It is sent in a ConfigMap of at most 900 KiB, which is
        deleted with the job; without it the image has the program. A function is sent alone: it imports what it uses itself.
        It is called with `arguments`, which must be what JSON has. Raises ValueError for what is wrong, before anything is sent.
        """
        code = None if program is None else pack(program, arguments)
        job, packed = manifests(name, Launch(**options), code)
        if packed is None:
            return self.submit(job)
        self._create_code(name, packed)
        created = self.submit(job)
        self._own(created, packed)
        return created

    def get(self, name: str) -> Job:
        """Return a job."""
        with self._explained(name):
            return _job(self._objects.get_namespaced_custom_object(_GROUP, _VERSION, self.namespace, _PLURAL, name))

    def list(self) -> "List[Job]":
        """Return all jobs of the namespace."""
        with self._explained():
            found = self._objects.list_namespaced_custom_object(_GROUP, _VERSION, self.namespace, _PLURAL)
        return [_job(each) for each in found["items"]]

    def watch(self, name: str, *, timeout: Optional[float] = None) -> Iterator[Job]:
        """Yield a job now and after each change, until it has finished.

        Raises NotFoundError if it is deleted meanwhile, and TimeoutError after `timeout` seconds. A broken connection is
        restored.
        """
        end = None if timeout is None else time.monotonic() + timeout
        uid, seen = "", ""
        while True:
            try:
                for job in self._changes(name, end):
                    metadata = job.object["metadata"]
                    uid = uid or metadata["uid"]
                    if metadata["uid"] != uid:
                        raise NotFoundError(f"job {self.namespace}/{name} is gone: another has its name now")
                    if metadata["resourceVersion"] == seen:
                        continue
                    seen = metadata["resourceVersion"]
                    yield job
                    if job.phase in ("Succeeded", "Failed"):
                        return
            except Exception as error:
                if not _is_transient(error):
                    raise
                _log.warning("Job %s/%s cannot be watched now: %s", self.namespace, name, error)
                time.sleep(_RECONNECT_SECONDS)
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"job {self.namespace}/{name} has not finished after {timeout:g} seconds")

    def _changes(self, name: str, end: Optional[float]) -> Iterator[Job]:
        """Yield a job and its changes, until the API server ends the watch."""
        job = self.get(name)
        yield job
        left = _WATCH_SECONDS if end is None else max(1, min(_WATCH_SECONDS, int(end - time.monotonic())))
        with self._explained(name):
            response = self._objects.list_namespaced_custom_object(
                _GROUP, _VERSION, self.namespace, _PLURAL, field_selector=f"metadata.name={name}",
                resource_version=job.object["metadata"]["resourceVersion"], watch=True, timeout_seconds=left, _preload_content=False,
            )  # fmt: skip
        for line in _lines(response):
            event = json.loads(line)
            if event["type"] == "DELETED":
                raise NotFoundError(f"job {self.namespace}/{name} was deleted")
            # An error is that the version is too old: the job is read again.
            if event["type"] == "ERROR":
                return
            if event["type"] != "BOOKMARK":
                yield _job(event["object"])

    def events(self, name: str) -> "List[Event]":
        """Return the Events of a job and its pods that the API server still keeps, the oldest first."""
        uid, pods = self.get(name).object["metadata"]["uid"], set(self.pods(name))
        found: List[Mapping[str, Any]] = []
        with self._explained(name):
            for selector in (f"involvedObject.uid={uid}", "involvedObject.kind=Pod"):
                response = self._core.list_namespaced_event(self.namespace, field_selector=selector, _preload_content=False)
                found += json.loads(response.data)["items"]
        events = [_event(each) for each in found]
        return sorted((each for each in events if not each.pod or each.pod in pods), key=lambda event: event.at)

    def wait(self, name: str, *, timeout: Optional[float] = None, interval: float = 2.0) -> Job:
        """Wait until a job has succeeded, and return it.

        Raises JobFailedError if it has failed, and TimeoutError after `timeout` seconds. An API server that is unavailable
        or overloaded meanwhile is asked again.
        """
        end = None if timeout is None else time.monotonic() + timeout
        observed = "unknown"
        while True:
            try:
                job = self.get(name)
            except Exception as error:
                if not _is_transient(error):
                    raise
                _log.warning("Job %s/%s cannot be read now: %s", self.namespace, name, error)
            else:
                observed = job.phase or "new"
                if job.phase == "Failed":
                    raise JobFailedError(f"job {self.namespace}/{name} has failed: {_reason(job.object)}", job.object)
                if job.phase == "Succeeded":
                    return job
            if end is not None and time.monotonic() + interval > end:
                raise TimeoutError(f"job {self.namespace}/{name} is {observed} after {timeout:g} seconds")
            time.sleep(interval)

    def scale(self, name: str, replicas: int) -> None:
        """Set the number of replicas of the elastic task of a worker-led job.

        Raises RefusedError, as `kubectl di scale` does, if another decides about the replicas: the coordinator of a
        coordinator-led job, the allocator of a preemptible one. A job that has finished is refused, too, and a number that
        the spec has already, while a newer total overrules it.
        """
        job = self.get(name)
        why = _not_scalable(job) or _overruled(job, replicas)
        if why:
            raise RefusedError(_UNPROCESSABLE, why, what=f"job {self.namespace}/{name} cannot be scaled")
        self._patch(name, {"spec": {"replicas": replicas}}, "/scale")

    def suspend(self, name: str, suspended: bool = True) -> None:
        """Delete the pods of a job until it is resumed: suspend(name, False)."""
        self._patch(name, {"spec": {"suspend": suspended}})

    def delete(self, name: str) -> None:
        """Delete a job with its pods. A job that does not exist is no error."""
        try:
            with self._explained(name):
                self._objects.delete_namespaced_custom_object(
                    _GROUP, _VERSION, self.namespace, _PLURAL, name, propagation_policy="Background"
                )
        except NotFoundError:
            pass

    def pods(self, name: str, *, task: Optional[str] = None) -> "List[str]":
        """Return the names of a job's pods, or of one task or role."""
        lifecycle = self.get(name).object["spec"].get("lifecycle") or "WorkerLed"
        selector = f"{_JOB_LABELS[lifecycle]}={name}" + (f",{_TASK_LABELS[lifecycle]}={task}" if task else "")
        with self._explained(name):
            found = self._core.list_namespaced_pod(self.namespace, label_selector=selector)
        return sorted(pod.metadata.name for pod in found.items)

    def logs(self, name: str, *, task: Optional[str] = None, tail: Optional[int] = None) -> Dict[str, str]:
        """Return the logs of the main containers of a job's pods, by pod. Pods that have none yet are left out."""
        options = {} if tail is None else {"tail_lines": tail}
        logs: Dict[str, str] = {}
        for pod in self.pods(name, task=task):
            try:
                with self._explained(name):
                    logs[pod] = self._core.read_namespaced_pod_log(pod, self.namespace, container=self._container(pod), **options)
            except NotFoundError:
                pass
            except RefusedError as error:
                if error.status != _NOT_STARTED:
                    raise
        return logs

    def follow(self, pod: str) -> Iterator[str]:
        """Yield the lines of a pod's main container until it ends."""
        with self._explained(pod, "pod"):
            response = self._core.read_namespaced_pod_log(
                pod, self.namespace, container=self._container(pod), follow=True, _preload_content=False
            )
        yield from _lines(response)

    def _create_code(self, name: str, packed: Mapping[str, Any]) -> None:
        """Create the ConfigMap of a job's code. One of the same content exists already if the job ran before."""
        try:
            self._core.create_namespaced_config_map(self.namespace, packed)
        except Exception as error:
            if getattr(error, "status", None) != _CONFLICT:
                with self._explained(name):
                    raise

    def _own(self, job: Job, packed: Mapping[str, Any]) -> None:
        """Have the ConfigMap deleted with the job. One that an earlier job took along is created again."""
        owner = {
            "apiVersion": job.object["apiVersion"], "kind": "DIJob", "name": job.name, "uid": job.object["metadata"]["uid"],
        }  # fmt: skip
        metadata = {"name": packed["metadata"]["name"], "ownerReferences": [owner]}
        try:
            self._core.patch_namespaced_config_map(metadata["name"], self.namespace, {"metadata": metadata})
        except Exception as error:
            with self._explained(job.name):
                if getattr(error, "status", None) != _NOT_FOUND:
                    raise
                self._core.create_namespaced_config_map(self.namespace, {**packed, "metadata": metadata})

    def _patch(self, name: str, patch: Mapping[str, Any], subresource: str = "") -> None:
        with self._explained(name):
            # Releases of kubernetes choose different content types for the patch of a custom object.
            self._api.call_api(
                f"/apis/{_GROUP}/{_VERSION}/namespaces/{self.namespace}/{_PLURAL}/{name}{subresource}",
                "PATCH",
                header_params={"Content-Type": "application/merge-patch+json", "Accept": "application/json"},
                body=patch,
                response_type="object",
                auth_settings=["BearerToken"],
            )

    @contextmanager
    def _explained(self, name: str = "", kind: str = "job") -> Iterator[None]:
        """Raise the errors of this package instead of those of the package kubernetes, which is imported lazily."""
        try:
            yield
        except Exception as error:
            status = getattr(error, "status", None)
            if not isinstance(status, int) or isinstance(error, OrchestratorError) or _is_transient(error):
                raise
            message, fields = _answer(error)
            what = f"{kind} {self.namespace}/{name}" if name else f"the jobs of namespace {self.namespace}"
            if status == _NOT_FOUND:
                raise NotFoundError(f"{what}: {message or 'not found: is DI Orchestrator installed?'}") from error
            raise RefusedError(status, message or str(error), fields, what=f"the API server refused a request about {what}") from error

    def _container(self, pod: str) -> str:
        containers: List[str] = [each.name for each in self._core.read_namespaced_pod(pod, self.namespace).spec.containers]
        return "di-container" if "di-container" in containers else containers[0]


def _lines(response: Any) -> Iterator[str]:
    """Yield the lines of a response as they come."""
    buffer = b""
    for chunk in response.stream():
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    if buffer:
        yield buffer.decode(errors="replace")


def _event(found: Mapping[str, Any]) -> Event:
    about, series = found.get("involvedObject", {}), found.get("series") or {}
    at = series.get("lastObservedTime") or found.get("lastTimestamp") or found.get("eventTime") or found["metadata"]["creationTimestamp"]
    pod = about.get("name", "") if about.get("kind") == "Pod" else ""
    count = series.get("count") or found.get("count") or 1
    return Event(at, found.get("type", ""), found.get("reason", ""), found.get("message", ""), pod, count)


def _configure(config: Any, context: Optional[str]) -> str:
    """Load the configuration of the client. Returns the namespace that it names, or nothing."""
    if context is None and not os.environ.get("KUBECONFIG"):
        try:
            config.load_incluster_config()
            return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text(encoding="utf-8").strip()
        except config.ConfigException:
            pass
    config.load_kube_config(context=context)
    contexts, active = config.list_kube_config_contexts()
    chosen = next((each for each in contexts if each["name"] == context), active)
    return str(chosen.get("context", {}).get("namespace", ""))


def _is_transient(error: Exception) -> bool:
    """Report whether a call of the API server may succeed later."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status == _TOO_MANY or status >= _SERVER_ERRORS
    # The package kubernetes passes on the connection errors of urllib3, which is imported lazily, too.
    return type(error).__module__.startswith("urllib3.")


def _read_manifest(path: Path) -> Mapping[str, Any]:
    import yaml  # kubernetes needs it, too

    documents: List[Any] = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        raise ValueError(f"{path} has {len(documents)} objects: must have one DIJob")
    return documents[0]


def _job(found: Mapping[str, Any]) -> Job:
    status = found.get("status", {})
    replicas, ready = status.get("replicas", 0), status.get("readyReplicas", 0)
    metadata = found["metadata"]
    return Job(metadata["name"], metadata["namespace"], status.get("phase", ""), replicas, ready, found)


def _reason(found: Mapping[str, Any]) -> str:
    """Return why a job has failed, with what its program last said."""
    status = found.get("status", {})
    conditions = status.get("conditions", [])
    reason: str = next((each.get("message", "") for each in conditions if each.get("type") == "Failed"), "")
    said: str = (status.get("lastFailure") or {}).get("message", "")
    return reason if not said or said in reason else f"{reason}: {said}"


def _answer(error: Exception) -> Tuple[str, List[FieldError]]:
    """Return the message of the API server, and what it says about each field. The body is a Status of Kubernetes, or text."""
    try:
        status = json.loads(getattr(error, "body", None) or "")
        causes = (status.get("details") or {}).get("causes") or []
        return status.get("message", ""), [FieldError(each.get("field", ""), each.get("message", "")) for each in causes]
    except (ValueError, TypeError, AttributeError):
        return "", []


def _not_scalable(job: Job) -> str:
    """Return why the number of replicas of a job cannot be set, or nothing."""
    spec = job.object.get("spec", {})
    if spec.get("lifecycle") == "CoordinatorLed":
        return "it is coordinator-led, and its coordinator decides about its replicas"
    if not _elastic_task(spec):
        return "it has no task that can be resized: name one in spec.elastic.task"
    if job.phase in ("Succeeded", "Failed"):
        return f"it has finished: {job.phase}"
    if spec.get("preemptible"):
        return "it is preemptible, and the allocator decides about its replicas: change spec.elastic.minReplicas and maxReplicas"
    return ""


def _elastic_task(spec: Mapping[str, Any]) -> str:
    """Return the task that can be resized: the named one, the collector, or the only one; "" for none."""
    tasks, named = spec.get("tasks", []), (spec.get("elastic") or {}).get("task")
    names = [each.get("name") or each.get("type") for each in tasks]
    if named:
        return named if named in names else ""
    collectors = [name for name, each in zip(names, tasks) if each.get("type") == "collector"]
    return names[0] if len(tasks) == 1 else next(iter(collectors), "")


def _overruled(job: Job, replicas: int) -> str:
    """Return why a number that the spec has already changes nothing, or nothing: the status has a newer total."""
    spec, status = job.object.get("spec", {}), job.object.get("status", {})
    task, recorded = _elastic_task(spec), (status.get("scaling") or {}).get("specReplicas") or {}
    total = sum(recorded.values())
    if (spec.get("elastic") or {}).get("replicas") != replicas or recorded.get(task) != replicas or job.replicas in (0, total):
        return ""
    return (
        f"its spec has {replicas} of task {task!r} already, and the total of {job.replicas} in its status, which was set through "
        f"di-server or by a user since, overrules it: set status.replicas to {total} to end that"
    )
