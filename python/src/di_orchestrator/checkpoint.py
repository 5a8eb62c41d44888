# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Checkpoints on a volume that survive crashes and power loss."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar, Union

T = TypeVar("T")

_CHUNK = 1 << 20
#: A temporary file that was not written to for this long has no writer.
_ABANDONED_SECONDS = 600.0
#: Volumes that cannot sync a directory say so.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})


@dataclass(frozen=True)
class Saved:
    """A stored checkpoint."""

    step: int
    #: The file with the content.
    path: Path
    #: What save() was given beside the content.
    meta: Dict[str, Any] = field(default_factory=dict)


class Checkpoint:
    """Checkpoints of one writer in a directory, usually of a PersistentVolumeClaim.

    A checkpoint is a file, and a manifest with its size and SHA-256. Both are synced to the disk, and renamed from temporary
    names. So a checkpoint exists as a whole or not at all, whenever the process or the node ends. The newest `keep`
    checkpoints are kept. Replicas that each save a part use a `name` of their own.
    """

    def __init__(self, directory: Union[str, "os.PathLike[str]"], *, keep: int = 3, name: str = "checkpoint") -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: must be at least 1")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"name is {name!r}: must consist of letters, digits, - and _")
        self.directory = Path(directory)
        self._keep = keep
        self._name = name
        self._pattern = re.compile(re.escape(name) + r"-(\d{12})\.(?:data|json)")

    def save(self, step: int, content: Union[bytes, Callable[[BinaryIO], object]], **meta: Any) -> Saved:
        """Store a checkpoint, and remove those that are too old.

        `content` is bytes, or a function that writes to a binary file, such as `lambda file: torch.save(model, file)`. If
        it fails, or the disk is full, the earlier checkpoints stay as they are. `meta` is stored as JSON.
        """
        self._create_directory()
        self._remove_abandoned()
        sequence = max(self._sequences(), default=0) + 1
        data, manifest = self._paths(sequence)
        size, digest = self._write(data, content)
        described = {"step": step, "size": size, "sha256": digest, "meta": meta}
        # The rename of the manifest makes the checkpoint valid.
        self._write(manifest, json.dumps(described).encode())
        _sync_directory(self.directory)
        self._remove_old()
        return Saved(step, data, meta)

    def latest(self) -> Optional[Saved]:
        """Return the newest checkpoint whose content is whole; None if there is none."""
        return next(self._valid(), None)

    def load(self, read: Callable[[BinaryIO], T]) -> Optional[Tuple[Saved, T]]:
        """Return the newest checkpoint whose content is whole, and what `read` returns for its file; None if there is none."""
        saved = self.latest()
        if saved is None:
            return None
        with open(saved.path, "rb") as file:
            return saved, read(file)

    def _valid(self) -> Iterator[Saved]:
        for sequence in sorted(self._sequences(), reverse=True):
            data, manifest = self._paths(sequence)
            try:
                described = json.loads(manifest.read_bytes())
                if data.stat().st_size == described["size"] and _digest(data) == described["sha256"]:
                    yield Saved(described["step"], data, described["meta"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue

    def _paths(self, sequence: int) -> Tuple[Path, Path]:
        base = f"{self._name}-{sequence:012d}"
        return self.directory / (base + ".data"), self.directory / (base + ".json")

    def _sequences(self) -> List[int]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted({int(found[1]) for found in map(self._pattern.fullmatch, names) if found})

    def _write(self, path: Path, content: Union[bytes, Callable[[BinaryIO], object]]) -> Tuple[int, str]:
        """Write a file under a temporary name, sync it and rename it. Returns its size and digest."""
        temporary = self.directory / f".{path.name}.{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "wb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    content(file)
                file.flush()
                os.fsync(file.fileno())
            result = temporary.stat().st_size, _digest(temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return result

    def _create_directory(self) -> None:
        missing = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync_directory(path.parent)

    def _remove_old(self) -> None:
        """Remove all but the newest checkpoints. The newest is whole; an incomplete one does not count as kept."""
        kept = 0
        for sequence in sorted(self._sequences(), reverse=True):
            data, manifest = self._paths(sequence)
            if kept < self._keep and data.exists() and manifest.exists():
                kept += 1
                continue
            manifest.unlink(missing_ok=True)
            data.unlink(missing_ok=True)

    def _remove_abandoned(self) -> None:
        """Remove temporary files of processes that ended while they saved."""
        for path in self.directory.glob(f".{self._name}-*.tmp"):
            try:
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                continue


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)
