# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The errors of the package."""

from __future__ import annotations

from typing import Any, Mapping


class OrchestratorError(Exception):
    """The base of all errors of this package."""


class NotInJobError(OrchestratorError):
    """The environment has none of the variables that the operator sets in the pods of a job."""


class RefusedError(OrchestratorError):
    """di-server refused a request: to repeat it unchanged is useless.

    `status` is the HTTP status, and `message` names the field, its value and what would be right.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"di-server refused the request with status {status}: {message}")
        self.status = status
        self.message = message


class UnansweredError(OrchestratorError):
    """di-server gave no final answer within the deadline.

    The request may have been executed. To find out, repeat it with the same idempotency key, or list the replicas.
    """


class JobFailedError(OrchestratorError):
    """A job has failed. `job` is the DIJob as the API server returned it."""

    def __init__(self, message: str, job: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.job = job
