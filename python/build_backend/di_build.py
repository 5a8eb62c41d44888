# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Builds the wheel and the source archive without other packages: a back end for pip, and `di_build.py FOLDER` for make.

The result depends only on the sources, and on DI_VERSION, the version to build.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "di_orchestrator"
#: The earliest time that an archive of zip has.
EPOCH = (1980, 1, 1, 0, 0, 0)
EPOCH_SECONDS = 315532800
FILE_MODE = 0o644
METADATA = """\
Metadata-Version: 2.1
Name: di-orchestrator
Version: {version}
Summary: The library of DI Orchestrator for training programs, and for those who submit them
Home-page: https://github.com/opendilab/DI-orchestrator
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
Provides-Extra: kubernetes
Requires-Dist: kubernetes (>=18) ; extra == 'kubernetes'
Description-Content-Type: text/markdown

{readme}"""
WHEEL = "Wheel-Version: 1.0\nGenerator: di_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """Build a wheel and return its name."""
    files = {name[len("src/") :]: content for name, content in _sources().items() if name.startswith("src/")}
    return _write_wheel(Path(wheel_directory), _version(), files)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """Build a wheel that imports the package from this folder, and return its name."""
    return _write_wheel(Path(wheel_directory), _version(), {f"{PACKAGE}.pth": f"{ROOT / 'src'}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build a source archive and return its name."""
    base = f"{PACKAGE}-{_version()}"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted({**_sources(), "PKG-INFO": _metadata(_version())}.items()):
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), EPOCH_SECONDS, FILE_MODE
            archive.addfile(entry, io.BytesIO(content))
    with open(Path(sdist_directory) / f"{base}.tar.gz", "wb") as file:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=EPOCH_SECONDS) as compressed:
            compressed.write(raw.getvalue())
    return f"{base}.tar.gz"


def _write_wheel(folder: Path, version: str, files: Dict[str, bytes]) -> str:
    info = f"{PACKAGE}-{version}.dist-info"
    files = {**files, f"{info}/METADATA": _metadata(version), f"{info}/WHEEL": WHEEL.encode()}
    files[f"{info}/LICENSE"] = _license()
    record = [f"{name},sha256={_hash(content)},{len(content)}" for name, content in sorted(files.items())]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    name = f"{PACKAGE}-{version}-py3-none-any.whl"
    # Stored, because compressed bytes depend on the release of zlib.
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_STORED) as archive:
        for path, content in sorted(files.items(), key=lambda item: (item[0].startswith(info), item[0])):
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.create_system, entry.external_attr = 3, (0o100000 | FILE_MODE) << 16
            archive.writestr(entry, content)
    return name


def _sources() -> Dict[str, bytes]:
    """Return the files of the source archive by name, with the version that is built."""
    paths: List[Path] = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "build_backend" / "di_build.py"]
    paths += [path for path in (ROOT / "src").rglob("*") if path.suffix == ".py" or path.name == "py.typed"]
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
    init = f"src/{PACKAGE}/__init__.py"
    files[init] = _VERSION.sub(f'__version__ = "{_version()}"', files[init].decode()).encode()
    files["LICENSE"] = _license()
    return files


def _version() -> str:
    """Return the version: DI_VERSION of make in the form of PEP 440, else that of the sources."""
    given = os.environ.get("DI_VERSION", "")
    # v2.1.0, v2.1.0-rc.1 and v2.1.0-3-gabcdef. Anything else is no version of a release.
    found = re.fullmatch(r"v?(\d+\.\d+\.\d+)(?:-rc\.?(\d+))?(?:-(\d+)-g[0-9a-f]+)?(?:-dirty)?", given)
    if not found:
        text = (ROOT / "src" / PACKAGE / "__init__.py").read_text(encoding="utf-8")
        return _VERSION.findall(text)[0]
    version, candidate, commits = found.groups()
    return version + (f"rc{candidate}" if candidate else "") + (f".post{commits}" if commits else "")


def _metadata(version: str) -> bytes:
    return METADATA.format(version=version, readme=(ROOT / "README.md").read_text(encoding="utf-8")).encode()


def _license() -> bytes:
    # A source archive has its own copy.
    own = ROOT / "LICENSE"
    return (own if own.exists() else ROOT.parent / "LICENSE").read_bytes()


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: di_build.py FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    for build in (build_wheel, build_sdist):
        print(Path(sys.argv[1]) / build(sys.argv[1]))
