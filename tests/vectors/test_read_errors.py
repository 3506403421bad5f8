"""What a real API server says of values that it cannot read is what is foretold of each, with the gate and without."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

from etcdfix.apiserver.objects import Foretold
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.checks.servers import foretold_of
from tests.support.apiserver.recording import Record, load
from tests.support.apiserver.requests import Target, target_of
from tests.support.decoders import shared_decoder
from tests.support.golden import golden_folder, needs_golden

OWN_GROUPS = ("example.com", "apiextensions.k8s.io")


@needs_golden
def test_read_errors_are_recognised_and_nothing_else_is() -> None:
    counted: Counter[tuple[bool, str]] = Counter()
    for records in load(golden_folder("apiserver-http") / "exchanges.jsonl.gz").values():
        examiner: Examiner | None = None
        for record in records:
            if record.get("encryption"):
                examiner = _examiner(record["encryption"])
            if record["kind"] != "exchange" or "body" not in record["response"]:
                continue
            target = target_of(record["request"]["path"].partition("?")[0])
            response = record["response"]
            body = response["body"].encode()
            if record["request"]["method"] != "GET" or response["status"] != 500:
                assert response["status"] == 500 or not Foretold("anything").is_read_error(body)
            elif target is None:
                assert not Foretold("unexpected EOF").is_read_error(body)  # /readyz and the like
                counted[False, "page"] += 1
            elif target.name and examiner is not None and body.startswith(b"{"):
                value = _stored(records, record["step"], _key(target))
                if value is None:
                    continue
                found = examiner.examine(StoredValue(_key(target).encode(), value, 5, 4, 1, 0))
                if found.verdict.outcome not in {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}:
                    counted[False, "undetermined"] += (
                        1  # the owner of a custom resource is not looked up here
                    )
                    continue
                foretold = foretold_of(found)
                gate = b"StorageError: corrupt object" in body
                assert foretold.is_read_error(body), (foretold, body)
                # Without the gate it is these words alone that tell; no others will do.
                assert Foretold("").is_read_error(body) == gate
                assert Foretold("unexpected end").is_read_error(body) == gate
                counted[gate, foretold.message] += 1
    assert sum(number for (gate, _), number in counted.items() if gate) > 20
    assert len({message for gate, message in counted if not gate}) >= 5


def _examiner(encryption: Any) -> Examiner:
    configuration = parse_configuration(json.dumps(encryption).encode(), path="recorded")
    return Examiner(
        StorageLayout("/registry"),
        Transformers.from_configuration(configuration, no_plugin),
        shared_decoder(None),
    )


def _key(target: Target) -> str:
    group = f"{target.group}/" if target.group in OWN_GROUPS else ""
    namespace = f"{target.namespace}/" if target.namespace else ""
    return f"/registry/{group}{target.resource}/{namespace}{target.name}"


def _stored(records: list[Record], step: int, key: str) -> bytes | None:
    changes = [each for each in records if (each.get("etcd") or {}).get("key") == key]
    earlier = [each["etcd"]["after"] for each in changes if each["step"] < step]
    later = [each["etcd"]["before"] for each in changes if each["step"] > step]
    entry = earlier[-1] if earlier else next(iter(later), None)
    return None if entry is None else base64.b64decode(entry["value"])
