from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.profiles import FIELDS, default_file, load_profile, load_profiles

PROD = """
profiles:
  prod:
    endpoints: [https://10.0.0.1:2379, "https://10.0.0.2:2379,https://10.0.0.3:2379"]
    cacert: /pki/ca.crt
    kms-endpoint: vault=unix:///run/vault.sock
    kubernetes-version: "1.30"
  night:
    snapshot: /backups/snap.db
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    path.chmod(0o600)
    folder.chmod(0o700)
    return path


def test_what_a_profile_says(tmp_path: Path) -> None:
    profile = load_profile("prod", written(tmp_path, PROD), trusted=True)
    assert profile.values == {
        "endpoints": ("https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"),
        "cacert": "/pki/ca.crt",
        "kms-endpoint": ("vault=unix:///run/vault.sock",),
        "kubernetes-version": "1.30",
    }
    assert profile.words == [
        "--endpoints", "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379",
        "--cacert", "/pki/ca.crt", "--kms-endpoint", "vault=unix:///run/vault.sock", "--kubernetes-version", "1.30",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles:\n  a: {endpoint: x}", "unknown field 'endpoint'; do you mean 'endpoints'?"),
        ("profiles:\n  a: {endpoints: x, password: x}", "unknown field 'password'"),
        ("profiles:\n  a: {endpoints: x, user: x}", "unknown field 'user'"),
        ("profiles:\n  a: {endpoints: x, yes: 'true'}", "unknown field"),
        ("profiles:\n  a: {endpoints: x, accept-risk: only-copy}", "unknown field 'accept-risk'"),
        (
            "profiles:\n  a: {endpoints: x, insecure-skip-tls-verify: true}",
            "unknown field 'insecure-skip-tls-verify'",
        ),
        ("profile:\n  a: {endpoints: x}", "no mapping 'profiles'"),
        ("profiles: {}\ndefault: a", "there is an unknown field 'default'"),
        ("profiles:\n  a: {endpoints: x}\n  a: {endpoints: y}", "line 3: 'a' stands there twice"),
        ("profiles:\n  a:\n    endpoints: x\n    endpoints: y", "line 4: 'endpoints' stands there twice"),
        ("profiles:\n  a: {endpoints: x, kubernetes-version: 1.30}", "kubernetes-version is no text"),
        ("profiles:\n  a: {endpoints: [x, 7]}", "endpoints is no list of texts"),
        ("profiles:\n  a: {endpoints: []}", "endpoints is no list of texts"),
        ("profiles:\n  a: {snapshot: snap.db}", "snapshot 'snap.db' is no absolute path"),
        ("profiles:\n  a: {snapshot: ~/snap.db}", "is no absolute path"),
        ("profiles:\n  a: {snapshot: /s, endpoints: x}", "two different sources"),
        ("profiles:\n  a: {cacert: /ca}", "says nowhere where the data is"),
        ("profiles:\n  a: x", "is no mapping of fields"),
        ("profiles:\n  -a: {endpoints: x}", "cannot be typed"),
        ("profiles: [", "neither YAML nor JSON"),
        ("[]", "no mapping 'profiles'"),
    ],
)
def test_what_is_not_as_it_has_to_be_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_profiles(written(tmp_path, text))
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_no_field_is_a_password_or_lifts_a_rule() -> None:
    assert set(FIELDS) == {
        "endpoints", "cacert", "cert", "key", "snapshot", "manifest", "etcd-prefix", "encryption-config",
        "kms-endpoint", "kubernetes-version", "cluster-name",
    }  # fmt: skip


def test_a_name_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no profile 'prd'; do you mean 'prod'\?"
    ) as caught:
        load_profile("prd", written(tmp_path, PROD))
    assert caught.value.hint == "profiles there: night, prod"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file") as caught:
        load_profiles(tmp_path / "none.yaml")
    assert "--config-file" in caught.value.hint


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.parametrize("directory", [False, True])
def test_a_change_rests_on_no_file_that_others_could_have_written(
    mode: int, directory: bool, tmp_path: Path
) -> None:
    path = written(tmp_path, PROD)
    (tmp_path if directory else path).chmod(mode | 0o100)
    assert load_profiles(path)  # to look is another matter
    with pytest.raises(ConfigurationError, match="others may write") as caught:
        load_profiles(path, trusted=True)
    assert caught.value.hint.startswith("chmod go-w /")


@pytest.mark.parametrize("directory", [False, True])
def test_a_change_rests_on_no_file_of_another_user(
    directory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, PROD)
    if os.geteuid() == 0:  # whose files everybody may rest on
        os.chown(tmp_path if directory else path, 4321, 4321)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        load_profiles(path, trusted=True)


def test_the_file_behind_a_link_counts_too(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o700)
    written(tmp_path / "open", PROD)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "own").mkdir(mode=0o700)
    link = tmp_path / "own" / "config.yaml"
    link.symlink_to(tmp_path / "open" / "config.yaml")
    with pytest.raises(ConfigurationError, match=r"others may write .*/open, "):
        load_profiles(link, trusted=True)


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("by_link", [False, True])
def test_every_directory_above_counts_up_to_the_root(mode: int, by_link: bool, tmp_path: Path) -> None:
    (tmp_path / "open" / "own").mkdir(parents=True, mode=0o700)
    path = written(tmp_path / "open" / "own", PROD)
    if by_link:
        (tmp_path / "mine").mkdir(mode=0o700)
        (tmp_path / "mine" / "link").symlink_to(path.parent)
        path = tmp_path / "mine" / "link" / path.name
    (tmp_path / "open").chmod(0o700)
    assert load_profiles(path, trusted=True)
    (tmp_path / "open").chmod(mode)
    assert load_profiles(path)
    with pytest.raises(ConfigurationError, match=r"others may write .*/open, ") as caught:
        load_profiles(path, trusted=True)
    assert caught.value.hint == f"chmod go-w {tmp_path / 'open'}"
    (tmp_path / "open").chmod(mode | 0o1000)  # as /tmp is
    assert load_profiles(path, trusted=True)


def test_a_path_from_here_counts_up_to_the_root_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open" / "own").mkdir(parents=True, mode=0o700)
    written(tmp_path / "open" / "own", PROD)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.chdir(tmp_path / "open" / "own")
    with pytest.raises(ConfigurationError, match=r"others may write .*/open, "):
        load_profiles(Path("config.yaml"), trusted=True)


def test_links_in_a_circle_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").symlink_to(tmp_path / "config.yaml")
    with pytest.raises(ConfigurationError, match="Too many levels of symbolic links"):
        load_profiles(tmp_path / "config.yaml", trusted=True)


def test_where_profiles_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_file({}) == Path("/home/ada/.config/etcdfix/config.yaml")
    assert default_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/etcdfix/config.yaml")
    assert default_file({"XDG_CONFIG_HOME": "relative"}) == Path("/home/ada/.config/etcdfix/config.yaml")
