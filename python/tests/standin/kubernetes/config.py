# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
import json
import os
import tempfile
from typing import Any, Dict, List, Optional, Tuple

from . import client


class ConfigException(Exception):
    pass


def load_incluster_config() -> None:
    raise ConfigException("not in a cluster")


def load_kube_config(context: Optional[str] = None) -> None:
    config = _read()
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    client.Connection.server = cluster["server"].rstrip("/")
    client.Connection.context.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        file.flush()
        client.Connection.context.load_cert_chain(file.name)


def list_kube_config_contexts() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    contexts = _read()["contexts"]
    return contexts, contexts[0]


def _read() -> Any:
    with open(os.environ["KUBECONFIG"], encoding="utf-8") as file:
        return json.load(file)
