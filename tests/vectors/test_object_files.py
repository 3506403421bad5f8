"""An object file over upstream's sample of every kind that is persisted: it comes out as the same object."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from etcdfix.copies.model import Copy, Wanted
from etcdfix.copies.object import ObjectFile
from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.encryption.encrypt import Sealed, to_storage
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.storagekey import StorageCodec, StorageLayout, builtin_directories
from tests.support.decoders import shared_decoder
from tests.support.golden import needs_golden
from tests.support.object_files import saved
from tests.support.objects import KEY_1, configuration, provider
from tests.support.sample_objects import RELEASES, Sample, samples
from tests.support.thorough import THOROUGH, some

PROVIDERS = ("aesgcm", "aescbc", "secretbox", "identity")


# Kinds of a later release.
_NEWER = {
    "v1.34.0": {
        ("resource.k8s.io", "ResourcePoolStatusRequest"),
        ("scheduling.k8s.io", "PodGroup"),
        ("scheduling.k8s.io", "Workload"),
        ("storagemigration.k8s.io", "StorageVersionMigration"),
    },
    "v1.36.0": set(),
}


@cache
def _examiner(release: str, kind: str) -> Examiner:
    minor = RELEASES[release]
    settings = {"identity": {}} if kind == "identity" else provider(kind, key1=KEY_1 * 2)
    transformers = Transformers.from_configuration(configuration(settings, resources=("*.*",)), no_plugin)
    return Examiner(StorageLayout(), transformers, shared_decoder(minor), assumed_release=f"1.{minor}")


def _copy(path: Path, key: bytes, examiner: Examiner) -> Copy:
    (found,) = ObjectFile(path, examiner).find(Wanted.gone(key, examiner.layout))
    return found


def _put_back(path: Path, key: bytes, examiner: Examiner) -> tuple[Examination, bytes]:
    examiner = examiner.independent_copy()
    copy = _copy(path, key, examiner)
    assert copy.plaintext is not None, copy.message
    assert examiner.transformers is not None
    resource = examiner.readers.reader_for(key).directory.group_resource
    sealed = to_storage(examiner.transformers.for_resource(resource), copy.plaintext, key)
    assert isinstance(sealed, Sealed)
    found = examiner.examine(StoredValue(key, sealed.data, 0, 0, 0, 0))
    plaintext = examiner.plaintext(found)
    assert plaintext is not None
    return found, plaintext


@needs_golden
@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize("release", RELEASES)
def test_every_sample_comes_out_as_the_same_object(release: str, kind: str, tmp_path: Path) -> None:
    examiner = _examiner(release, kind)
    reader = ObjectReader(examiner.decoder)
    seen = set()
    for number, sample in enumerate(samples(release)):
        seen.add((sample.directory.group, sample.directory.kind))
        if not THOROUGH and number % 5:
            continue
        found, plaintext = _put_back(saved(tmp_path, _served(sample.value)), sample.key(), examiner)
        assert (found.verdict.outcome, found.verdict.cause) == (Outcome.READABLE, None), sample.name
        group, expected = sample.directory.group, sample.directory.kind
        again = reader.builtin(plaintext, group, expected).value
        assert again == _without_revision(sample, reader.builtin(sample.stored, group, expected).value), (
            sample.name
        )
    assert {
        (d.group, d.kind) for d in builtin_directories() if d.codec is StorageCodec.BUILTIN
    } - seen == _NEWER[release]
    assert len(seen) >= 60


def _served(value: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: member for name, member in value["metadata"].items() if name != "resourceVersion"}
    return {name: member for name, member in value.items() if name != "stringData"} | {"metadata": metadata}


def _without_revision(sample: Sample, value: dict[str, object]) -> dict[str, object]:
    metadata = value["metadata"]
    assert isinstance(metadata, dict)
    metadata.pop("resourceVersion")
    if not sample.directory.namespaced:
        metadata.pop("namespace")
    return _served(value)


@needs_golden
def test_a_change_of_any_member_is_seen(tmp_path: Path) -> None:
    """Whatever would be lost on the way: a member that no release knows, wherever it stands."""
    examiner = _examiner("v1.36.0", "aesgcm")
    refused = 0
    for sample in some([*samples("v1.36.0")], of=8):
        for path in ((), ("metadata",), ("spec",)):
            value = _served(json.loads(json.dumps(sample.value)))
            place: Any = value
            for name in path:
                place = place.get(name)
            if not isinstance(place, dict):
                continue
            place["aFieldOfTomorrow"] = {"a": 1}
            assert "aFieldOfTomorrow differs" in _copy(saved(tmp_path, value), sample.key(), examiner).message
            refused += 1
    assert refused > (150 if THOROUGH else 15)
