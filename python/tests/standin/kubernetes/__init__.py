# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""A stand-in for the package kubernetes, where that is not installed. It makes the same calls of the API server."""
