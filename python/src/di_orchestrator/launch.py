# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The manifests of Jobs.run(): a job from a function, a script or a folder, as `kubectl di run` makes it. Calls nothing."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import os
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

#: The bounds of what is sent, as those of `kubectl di run --code`.
MOST_BYTES, MOST_FILES = 900 * 1024, 500
_MOST_OF_NAME = 200
CODE_PATH = "/code"
_TYPES = ("learner", "collector", "evaluator")
_PROCESSES = "PET_NPROC_PER_NODE"

Program = Union[Callable[..., object], str, Path]


@dataclass(frozen=True)
class Launch:
    """What Jobs.run() runs, apart from the program. The names are those of the flags of `kubectl di run`."""

    image: str
    command: Sequence[str] = ()
    #: The number of replicas, or the numbers of several tasks.
    replicas: Union[int, Mapping[str, int]] = 1
    gpus: int = 0
    cpu: Optional[str] = None
    memory: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: PersistentVolumeClaims by the path where they are mounted.
    claims: Mapping[str, str] = field(default_factory=dict)
    torch: bool = False
    queue: Optional[str] = None
    preemptible: bool = False

    def _check(self) -> None:
        if not self.image or any(each.isspace() for each in self.image):
            raise ValueError(f"image is {self.image!r}: must be the name of an image, such as example.com/train:1")
        for task, count in self._tasks().items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(f"replicas of task {task!r} is {count!r}: must be a whole number, 1 or more")
        if self.gpus < 0:
            raise ValueError(f"gpus is {self.gpus!r}: must be 0 or more")
        for path, claim in self.claims.items():
            if not path.startswith("/") or os.path.normpath(path) != path or path in ("/", CODE_PATH):
                raise ValueError(f"claims has {path!r}: {claim!r}: must be at an absolute path other than {CODE_PATH}, such as /data")

    def _tasks(self) -> Mapping[str, int]:
        return {"worker": self.replicas} if isinstance(self.replicas, int) else self.replicas


@dataclass(frozen=True)
class Code:
    """A program that is sent in a ConfigMap."""

    files: Mapping[str, bytes]
    command: Sequence[str]

    def config_map(self, job: str) -> Dict[str, Any]:
        """Return the ConfigMap. Its name depends on the content."""
        digest = hashlib.sha256()
        data: Dict[str, str] = {}
        binary: Dict[str, str] = {}
        for key, (path, content) in zip(self._keys(), sorted(self.files.items())):
            digest.update(f"{path!r} {len(content)}\n".encode() + content)
            try:
                data[key] = content.decode()
            except UnicodeDecodeError:
                binary[key] = base64.b64encode(content).decode()
        name = f"{job[:_MOST_OF_NAME].rstrip('-.')}-code-{digest.hexdigest()[:10]}"
        return {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "immutable": True, "data": data, "binaryData": binary,
        }  # fmt: skip

    def items(self) -> List[Dict[str, str]]:
        """Return the keys of the ConfigMap and the paths of their files."""
        return [{"key": key, "path": path} for key, path in zip(self._keys(), sorted(self.files))]

    def _keys(self) -> List[str]:
        # A key has no slash.
        return [f"f{i:03d}" for i in range(len(self.files))]


def pack(program: Program, arguments: Optional[Mapping[str, Any]] = None) -> Code:
    """Return the code of a function, of a script, or of a folder, whose command the caller must give.

    The source of the function is sent alone, so that it must import what it uses itself. It gets the arguments by their names;
    they must be what JSON has.
    """
    if callable(program):
        return Code({"program.py": _source(program, arguments or {}).encode()}, ("python3", "program.py"))
    if arguments:
        raise ValueError("arguments are for a function: name those of a script in its command")
    path = Path(program)
    if path.is_dir():
        return Code(_read(path, sorted(_listed(path))), ())
    return Code(_read(path.parent, [path]), ("python3", path.name))


def _source(function: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    name = getattr(function, "__name__", "")
    if not inspect.isfunction(function) or not name.isidentifier() or function.__closure__:
        raise ValueError(f"program is {function!r}: must be a function of a module, and use no variable of another function")
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise ValueError(f"program is {function!r}: its source is not known; write it to a file, and send that") from error
    try:
        given = json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"arguments must be what JSON has: {error}") from error
    inspect.signature(function).bind(**arguments)
    return f"{source}\n\nif __name__ == '__main__':\n    import json\n\n    {name}(**json.loads({given!r}))\n"


def _listed(folder: Path) -> List[Path]:
    """Return the regular files of a folder, without what begins with a dot and what Python compiled."""
    files: List[Path] = []
    for current, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".") and each != "__pycache__"]
        paths = [Path(current) / each for each in names if not each.startswith(".")]
        files += [each for each in paths if each.is_file() and not each.is_symlink()]
        if len(files) > MOST_FILES:
            raise ValueError(f"{folder} has more than {MOST_FILES} files: put the program into the image")
    return files


def _read(folder: Path, files: Sequence[Path]) -> Dict[str, bytes]:
    """Read files, after their sizes were checked."""
    total = sum(each.stat().st_size for each in files)
    if not files:
        raise ValueError(f"{folder} has no files")
    if total > MOST_BYTES:
        raise ValueError(
            f"{folder} has {total} bytes, and {MOST_BYTES} at most are sent: put the program into the image, or data into a volume"
        )
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in files}


def manifests(name: str, launch: Launch, code: Optional[Code]) -> Tuple[Dict[str, Any], Optional[Dict[str, Any]]]:
    """Return the job, and the ConfigMap of its code."""
    launch._check()
    packed = code.config_map(name) if code else None
    command = list(launch.command or (code.command if code else ()))
    if code and not command:
        raise ValueError("command is missing: name the program of the folder, such as ['python3', 'train.py']")
    template = {"spec": _pod(launch, command, code, packed)}
    tasks = [
        {"name": task, "type": task if task in _TYPES else "none", "replicas": count, "template": template}
        for task, count in launch._tasks().items()
    ]
    spec: Dict[str, Any] = {"tasks": tasks}
    if launch.torch:
        spec["clusterSpec"] = ["Torch"]
    if launch.queue:
        spec["scheduling"] = {"queue": launch.queue}
    if launch.preemptible:
        spec["preemptible"] = True
    return {"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": {"name": name}, "spec": spec}, packed


def _pod(launch: Launch, command: List[str], code: Optional[Code], packed: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    environment = dict(launch.env)
    if launch.torch and launch.gpus > 1:
        environment.setdefault(_PROCESSES, str(launch.gpus))
    requests = {key: value for key, value in (("cpu", launch.cpu), ("memory", launch.memory)) if value}
    limits = {key: value for key, value in (("memory", launch.memory), ("nvidia.com/gpu", launch.gpus or None)) if value}
    container: Dict[str, Any] = {"name": "di-container", "image": launch.image}
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    variables = [{"name": key, "value": str(value)} for key, value in environment.items()]
    mounts = [{"name": f"claim-{i}", "mountPath": path} for i, path in enumerate(launch.claims)]
    volumes: List[Dict[str, Any]] = [
        {"name": f"claim-{i}", "persistentVolumeClaim": {"claimName": claim}} for i, claim in enumerate(launch.claims.values())
    ]
    if code and packed:
        container["workingDir"] = CODE_PATH
        mounts.append({"name": "code", "mountPath": CODE_PATH})
        volumes.append({"name": "code", "configMap": {"name": packed["metadata"]["name"], "items": code.items()}})
    for key, value in (("command", command), ("env", variables), ("resources", resources), ("volumeMounts", mounts)):
        if value:
            container[key] = value
    return {"containers": [container], **({"volumes": volumes} if volumes else {})}
