"""The image: the folder with the executable, and of this machine's system only the C library that it needs.

Format: an OCI image layout (``index.json``, ``blobs``), with the ``manifest.json`` of ``docker save`` beside it, so
that every engine takes it from a file. No registry, and no engine, is needed to make it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from archives import compressing, write_tar
from checkout import digest_of, version
from libraries import system_libraries, take_along

USER: Final = "65532:65532"
"""As in docs/deploy: a number that is no user of the node."""

_PLACE: Final = "opt/etcdfix"
# What the C library loads by itself when a name is looked up; part of the library since glibc 2.34.
_LOADED_LATER: Final = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\netcdfix:x:65532:65532:etcdfix:/tmp:/sbin/nologin\n",
    "etc/group": "root:x:0:\netcdfix:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def build_image(executable: Path, work: Path, target: IO[bytes], *, epoch: int) -> None:
    """Write the image.

    Args:
        executable: The folder with the executable.
        work: An empty directory to work in.
        target: Where the archive goes.
        epoch: The time of everything in it, in seconds since 1970.
    """
    root = work / "root"
    _fill(root, executable)
    blobs = work / "layout/blobs/sha256"
    blobs.mkdir(parents=True)
    layer, unpacked_digest = _write_layer(root, blobs, epoch)
    when = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    where = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    name = f"localhost/etcdfix:{version()}"  # of no registry: nobody else can offer an image under it
    config = _write_json(blobs, {
        **where,
        "created": when,
        "config": {
            "User": USER,
            "Env": [f"PATH=/{_PLACE}", "LC_ALL=C.UTF-8"],
            "WorkingDir": "/tmp",  # noqa: S108 - of the container
            "Entrypoint": ["etcdfix"],
            "Cmd": ["--help"],
            "Labels": {
                "org.opencontainers.image.title": "etcdfix",
                "org.opencontainers.image.version": version(),
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{unpacked_digest}"]},
        "history": [{"created": when, "created_by": "docs/offline/build.py"}],
    })  # fmt: skip
    manifest = _write_json(blobs, {
        "schemaVersion": 2,
        "mediaType": _OCI.format("manifest.v1+json"),
        "config": _described(config, _OCI.format("config.v1+json")),
        "layers": [_described(layer, _OCI.format("layer.v1.tar+gzip"))],
    })  # fmt: skip
    files = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {
            "schemaVersion": 2,
            "mediaType": _OCI.format("index.v1+json"),
            "manifests": [{
                **_described(manifest, _OCI.format("manifest.v1+json")),
                "platform": where,
                "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
            }],
        },
        "manifest.json": [{
            "Config": f"blobs/sha256/{config.name}",
            "RepoTags": [name],
            "Layers": [f"blobs/sha256/{layer.name}"],
        }],
    }  # fmt: skip
    for file, content in files.items():
        (work / "layout" / file).write_bytes(_json(content))
    write_tar(target, work / "layout", below="", epoch=epoch)


_OCI: Final = "application/vnd.oci.image.{}"


def _fill(root: Path, executable: Path) -> None:
    shutil.copytree(executable, root / _PLACE, symlinks=True, ignore=shutil.ignore_patterns("docs", "man1"))
    for name, content in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "tmp").mkdir()
    libraries = system_libraries(executable / "etcdfix", executable / "_internal")
    (folder,) = {library.parent for library in libraries if library.name == "libc.so.6"}
    libraries |= {folder / name for name in _LOADED_LATER if (folder / name).exists()}
    for library in libraries:
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, target)
        target.chmod(0o755)
    with (root / _PLACE / "BUILD").open("a") as build:
        for line in take_along(sorted(libraries), root / _PLACE / "licences/libraries"):
            build.write(f"  {line}\n")


def _write_layer(root: Path, blobs: Path, epoch: int) -> tuple[Path, str]:
    """Write the one layer; return it, and the digest of what is compressed in it."""
    with tempfile.TemporaryFile(dir=root.parent) as plain:
        write_tar(plain, root, below="", epoch=epoch, modes={"tmp": 0o1777})
        plain.seek(0)
        digest = hashlib.file_digest(plain, "sha256").hexdigest()
        plain.seek(0)
        packed = blobs / "layer"
        with packed.open("wb") as file, compressing(file) as stream:
            shutil.copyfileobj(plain, stream, 1 << 20)
    return packed.rename(blobs / digest_of(packed)), digest


def _write_json(blobs: Path, content: Any) -> Path:
    data = _json(content)
    blob = blobs / hashlib.sha256(data).hexdigest()
    blob.write_bytes(data)
    return blob


def _described(blob: Path, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.name}", "size": blob.stat().st_size}


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
