"""The folder with the executable: in a read-only root of a C library and libz, without network and shell."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix import __version__
from etcdfix.cli.version import DEPENDENCIES
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.places import find_tools
from etcdfix.testing.servers import EtcdServer
from etcdfix.workers.frozen import WORKER_ARGUMENT
from tests.offline.conftest import PAGE, modules_in, names_in, only
from tests.support.change_runs import ACKNOWLEDGED
from tests.support.kubernetes_api import ACCESS_REVIEW, KubernetesAPI
from tests.support.nowhere import NOBODY, Nowhere, Root, bare, completed
from tests.support.offline_jobs import (
    ALPHA,
    ALPHA_UID,
    BROKEN,
    CONFIGURATION,
    REPOSITORY,
    SCAN,
    Run,
    check_a_deletion,
    check_the_scan,
    etcd_arguments,
    restored_alpha,
    running,
)

ON_ALPHA = ("--snapshot", f"{ALPHA}/snapshot.db.gz", "--encryption-config", CONFIGURATION)
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def root(executable: Path, place: Nowhere, tmp_path_factory: pytest.TempPathFactory) -> Root:
    made = Root(tmp_path_factory.mktemp("root"), place)
    made.folder.chmod(0o755)
    shutil.copytree(executable, made.folder / "opt/of somebody/etcdfix", symlinks=True)
    shutil.copytree(REPOSITORY / ALPHA, made.folder / ALPHA)
    (made.folder / "bin").mkdir()
    shutil.copy(find_tools().etcd, made.folder / "bin/etcd")
    restored_alpha(made.folder / "data")
    (made.folder / "data/records").mkdir(mode=0o700)
    made.close_it()
    return made


@pytest.fixture(scope="module")
def run(root: Root) -> Run:
    def run_it(*arguments: str, user: int = NOBODY, **variables: str) -> Done:
        command = root.command("/opt/of somebody/etcdfix/etcdfix", *arguments, user=user)
        return completed(command, env=bare(**variables))

    return run_it


def version_of(executable: Path) -> str:
    return executable.name.split("-")[1]


@pytest.fixture
def _etcd(root: Root, tmp_path: Path) -> Iterator[None]:
    """An etcd that holds alpha, and of all networks has only the loopback of that place."""
    with running(root.command("/bin/etcd", *etcd_arguments("/data")), tmp_path / "log"):
        yield


def test_a_changed_archive_is_noticed(archives: Path, tmp_path: Path) -> None:
    archive = only(archives, "etcdfix-*-linux-*[!s].tar.gz")
    for name in (archive.name, "SHA256SUMS"):
        shutil.copy(archive.with_name(name), tmp_path)
    check = ["sha256sum", "--check", "--strict", "--ignore-missing", "SHA256SUMS"]
    assert f"\n{shlex.join(check)}\n" in PAGE.read_text()
    assert completed(check, cwd=tmp_path).stdout == f"{archive.name}: OK\n"
    with (tmp_path / archive.name).open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"changed")
    refused = completed(check, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, f"{archive.name}: FAILED\n")


def test_the_archive_is_sorted_owned_by_root_and_of_one_time(archives: Path) -> None:
    entries = names_in(only(archives, "etcdfix-*-linux-*[!s].tar.gz"))
    names = [entry.name.split("/") for entry in entries]
    assert names == sorted(names)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, "", "")}
    assert len({entry.mtime for entry in entries}) == 1
    assert {entry.mode for entry in entries} == {0o755, 0o644}
    assert not [entry.name for entry in entries if entry.issym() and entry.linkname.startswith(("/", ".."))]


def test_there_is_no_network_and_no_interpreter(root: Root, place: Nowhere) -> None:
    assert not place.reaches("192.0.2.1")
    assert completed(root.command("/bin/sh", "-c", "true")).returncode == 127
    held = {path.name for path in (root.folder / "bin").iterdir()}
    assert held == {"etcd"}


@pytest.mark.parametrize("user", [0, NOBODY])
def test_alpha_is_scanned_as_from_source(run: Run, user: int) -> None:
    check_the_scan(lambda *arguments: run(*arguments, user=user))


def test_workers_work(run: Run) -> None:
    check_the_scan(run, "--jobs", "3")


def test_tls_and_the_client_for_api_servers_work(
    executable: Path,
    authority: CertificateAuthority,
    start_local_etcd: Callable[..., EtcdServer],
    tmp_path: Path,
) -> None:
    snapshot = REPOSITORY / ALPHA / "snapshot.db.gz"
    etcd = start_local_etcd(authority=authority, client_certificates=True, snapshot=snapshot)
    shown = authority.issue("client")
    records = tmp_path / "records"
    records.mkdir(mode=0o700)
    with KubernetesAPI(authority, uid=ALPHA_UID) as api:
        command: list[str | Path] = [
            executable / "etcdfix", "delete", BROKEN, "--endpoints", f"https://{etcd.endpoint}",
            "--cacert", authority.cert, "--cert", shown.cert, "--key", shown.key,
            "--encryption-config", CONFIGURATION, "--no-kms", "--kubeconfig", api.kubeconfig(tmp_path),
            "--reason", "tried", "--backup-dir", records, "--audit-log", records / "audit.jsonl",
            ACKNOWLEDGED, "--dry-run",
        ]  # fmt: skip
        done = completed(command, cwd=REPOSITORY)
        assert done.returncode == 0, done
        (allowed,) = [line for line in done.stderr.splitlines() if line.startswith("Allowed by ")]
        assert api.user in allowed
        assert ACCESS_REVIEW in {request.path for request in api.requests}


def test_a_worker_is_the_program_itself(executable: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "started"
    traced = ["strace", "-f", "-qq", "-e", "trace=execve,prctl", "-o", str(trace)]
    done = completed([*traced, str(executable / "etcdfix"), *SCAN, "--jobs", "3"], cwd=REPOSITORY)
    assert done.returncode == 3, done
    traced_calls = trace.read_text()
    assert f'"{WORKER_ARGUMENT}"' in traced_calls
    assert "prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE" in traced_calls  # no core file: it would hold keys


@pytest.mark.usefixtures("_etcd")
def test_one_object_of_a_live_etcd_is_deleted(run: Run) -> None:
    check_a_deletion(lambda *arguments: run(*arguments, user=0), "/data/records")


def test_every_package_is_there_and_says_its_version(run: Run) -> None:
    done = run("version", "-o", "json")
    assert done.returncode == 0, done
    versions = json.loads(done.stdout)["dependencies"]
    assert set(versions) == set(DEPENDENCIES)
    assert all(versions.values())


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "trailing-bytes"),
        ("schema", "scan"),
        ("completion", "bash"),
        ("scan", *ON_ALPHA, "-o", "html"),
        ("orphans", *ON_ALPHA, "--no-kms"),
    ],
    ids=lambda arguments: arguments[0] if arguments[-1] != "html" else "page",
)
def test_what_reads_files_of_the_package_says_what_the_source_tree_says(
    run: Run, executable: Path, arguments: tuple[str, ...]
) -> None:
    from_source = completed(
        [sys.executable, "-m", "etcdfix", *arguments],
        cwd=REPOSITORY, env=bare(PATH="/nonexistent", PYTHONPATH=str(REPOSITORY)),
    )  # fmt: skip
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (from_source.returncode, from_source.stderr)
    said = done.stdout.replace(version_of(executable), __version__)
    if arguments[-1] != "html":  # which says when it was made
        assert said == from_source.stdout
    assert len(said) == len(from_source.stdout)


def test_completion_answers(run: Run) -> None:
    asked = {"COMP_WORDS": "etcdfix aud", "COMP_CWORD": "1", "_ETCDFIX_COMPLETE": "bash_complete"}
    assert run(**asked).stdout == "plain,audit\n"


def test_kubectl_calls_it_by_its_other_names(executable: Path) -> None:
    plugin = completed([executable / "kubectl-etcdfix", "scan", "--help"])
    assert plugin.stdout.startswith("Usage: kubectl etcdfix scan ")
    completing = completed([executable / "kubectl_complete-etcdfix", "aud"])
    assert completing.stdout.split("\t")[0] == "audit"


def test_a_link_from_elsewhere_will_do(executable: Path, tmp_path: Path) -> None:
    for name in ("etcdfix", "kubectl-etcdfix"):
        (tmp_path / name).symlink_to(executable / name)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert completed(["etcdfix", "--version"], env=bare(**path)).stdout.startswith("etcdfix, version ")
    help_text = completed(["kubectl-etcdfix", "scan", "--help"], env=bare(**path)).stdout
    assert help_text.startswith("Usage: kubectl etcdfix scan ")


@pytest.mark.parametrize("before", [{}, {"LD_LIBRARY_PATH": "/opt/theirs"}])
def test_what_it_starts_gets_the_environment_that_it_was_started_in(
    executable: Path, tmp_path: Path, before: dict[str, str]
) -> None:
    """A plugin of a kubeconfig, which must not load the libraries of the folder."""
    seen = tmp_path / "seen"
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    plugin.chmod(0o755)
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never",
            }}}],
        })
    )  # fmt: skip
    completed([executable / "etcdfix", "doctor", "--kubeconfig", kubeconfig], env=bare(**before))
    found = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert not [name for name in found if name.startswith("_PYI") or name == "LD_LIBRARY_PATH_ORIG"]
    assert found.get("LD_LIBRARY_PATH") == before.get("LD_LIBRARY_PATH")


def test_python_of_the_machine_is_not_listened_to(executable: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(99)\n")
    (tmp_path / "click.py").write_text("raise SystemExit(98)\n")
    done = completed(
        [executable / "etcdfix", "version"],
        cwd=tmp_path, env=bare(PYTHONPATH=str(tmp_path), PYTHONHOME="/nonexistent", PYTHONSTARTUP="/nonexistent"),
    )  # fmt: skip
    assert done.returncode == 0, done


def test_what_it_needs_and_is_made_of_is_said(executable: Path) -> None:
    said = (executable / "BUILD").read_text()
    needs = r"needs: glibc 2\.\d+ or newer, and beside it of the system libz\.so\.1; no Python"
    assert re.fullmatch(needs, said.splitlines()[1])
    for name in DEPENDENCIES:
        assert f"\n  {name.lower()} " in said.lower()
    assert "licence was not found" not in said  # all licences are known
    held = {path.name for path in (executable / "licences/libraries").iterdir()}
    assert held == set(re.findall(r"^  lib\S+ of (\S+) \S+$", said, re.MULTILINE))
    assert not [name for name in held if "readline" in name]
    assert (executable / "licences/Python").exists()


def test_what_makes_it_and_what_is_for_tests_is_not_in_it(executable: Path) -> None:
    held = modules_in((executable / "etcdfix").read_bytes())
    assert {"etcdfix.workers.frozen", "kubernetes", "etcdfix.cli.root"} <= held
    assert [name for name in held if name.startswith(("etcdfix.testing", "pytest", "_pytest"))] == []
    assert not held & {"PyInstaller", "altgraph", "packaging", "pip", "pkg_resources", "setuptools"}
    assert not {"testing"} & {path.name for path in (executable / "_internal/etcdfix").iterdir()}


def test_its_man_pages_and_documentation_come_along(executable: Path, tmp_path: Path) -> None:
    command = [sys.executable, "docs/reference/manpages.py", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, env=bare(PYTHONPATH=str(REPOSITORY)), check=True)
    made = {
        page.name: page.read_text().split("\n", 1)[1] for page in tmp_path.iterdir()
    }  # 1: with the version
    assert {page.name: page.read_text().split("\n", 1)[1] for page in (executable / "man1").iterdir()} == made
    assert f'"etcdfix {version_of(executable)}"' in (executable / "man1/etcdfix.1").read_text()
    assert (executable / "man1/etcdfix-delete.1").read_text().startswith(".TH ETCDFIX-DELETE 1 ")
    assert (executable / "docs/runbooks/stuck-namespace.md").exists()
    assert (executable / "docs/offline/README.md").exists()
    strange = [
        path
        for path in (executable / "docs").rglob("*")
        if path.is_file() and path.suffix not in {".md", ".yaml"}
    ]
    assert strange == []
