# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The errors of the package."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Sequence


class OrchestratorError(Exception):
    """The base of all errors of this package."""


class NotInJobError(OrchestratorError):
    """The environment has none of the variables that the operator sets in the pods of a job."""


class NotFoundError(OrchestratorError):
    """A job does not exist, or the cluster has no DI Orchestrator. The message says which."""


class FieldError(NamedTuple):
    """What is wrong with a field. `field` is its path, such as spec.tasks[0].type, or empty."""

    field: str
    message: str


class RefusedError(OrchestratorError):
    """di-server or the API server refused a request: to repeat it unchanged is useless.

    `status` is the HTTP status, and `message` names the field, its value and what would be right. `fields` has the findings of
    the API server, one for each field.
    """

    def __init__(
        self, status: int, message: str, fields: Sequence[FieldError] = (), *, what: str = "di-server refused the request"
    ) -> None:
        super().__init__(f"{what} with status {status}: {message}")
        self.status = status
        self.message = message
        self.fields: List[FieldError] = list(fields)


class UnansweredError(OrchestratorError):
    """di-server gave no final answer within the deadline.

    The request may have been executed. To find out, repeat it with the same idempotency key, or list the replicas.
    """


class JobFailedError(OrchestratorError):
    """A job has failed. `job` is the DIJob as the API server returned it."""

    def __init__(self, message: str, job: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.job = job
