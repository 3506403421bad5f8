"""Entries of a plan, made up."""

from __future__ import annotations

from typing import Any

from etcdfix.report.plan import PlanEntry


def entry(order: int = 1, **change: Any) -> PlanEntry:
    """Return one Secret that nobody makes again and nobody uses, but for what is given."""
    settings: dict[str, Any] = {
        "order": order,
        "key": f"/registry/secrets/shop/web-{order}",
        "group": "",
        "resource": "secrets",
        "namespace": "shop",
        "name": f"web-{order}",
        "mod_revision": 7,
        "value_sha256": "sha256:00",
        "outcome": "decrypt-failure",
        "cause": "key-name-missing",
        "severity": "breaks-now",
        "transformer": "aescbc/v1/lost",
        "kms_key_id_sha256": "",
        "what": "Secret (type not known)",
        "users": 0,
        "cascade": 0,
        "recreated_by": "by hand",
        "recreate_confidence": None,
        "comes_back": "no",
        "recreate_basis": "",
        "recreate_how": "",
        "protected": "",
        "risk": "low",
        "reasons": [],
        "command": f"etcdfix delete /registry/secrets/shop/web-{order}",
    }
    return PlanEntry(**(settings | change))


def fixable(order: int = 1, source: str = "bit", **change: Any) -> PlanEntry:
    """Return one that a copy can be put back of."""
    fix = f"etcdfix fix /registry/secrets/shop/web-{order} --from {source}"
    return entry(order, **({"copy": source, "source": source, "command": fix} | change))
