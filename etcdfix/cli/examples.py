"""Commands to begin with, for the help of each command: what for, and what to type."""

from __future__ import annotations

from typing import Final

Example = tuple[str, str]

_CONFIG: Final = "--encryption-config enc.yaml"
_LOST: Final = f'{_CONFIG} --reason "ticket 4711"'
_KEY: Final = "/registry/secrets/shop/db"
_API: Final = "--kubeconfig admin.conf"
_ACK: Final = "--ignore-store-read-error-with-cluster-breaking-potential"

EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "scan": (
        ("Everything in a snapshot", f"etcdfix scan --snapshot snapshot.db {_CONFIG}"),
        ("Secrets of one namespace, saved", "etcdfix scan secrets -n shop -o json --output-file report.json"),
    ),
    "get": (("One object; contents of Secrets are masked", f"etcdfix get {_KEY} {_CONFIG}"),),
    "compare": (
        ("What changed since Monday", "etcdfix compare --with-snapshot monday.db --snapshot tuesday.db"),
    ),
    "explain": (("What is wrong with one key, and every way out", f"etcdfix explain {_KEY} {_CONFIG}"),),
    "encryption try": (
        ("Does an old file open what does not open?", f"etcdfix encryption try {_CONFIG} --in candidate:old.yaml"),
    ),
    "encryption recover": (
        ("From a snapshot of k3s", "etcdfix encryption recover --snapshot etcd-snapshot-server-1 --token-file token"),
    ),
    "copies": (("In a log too", f"etcdfix copies --in log:/var/lib/etcd/member/wal {_CONFIG}"),),
    "plan": (
        ("Who makes what again, in which order to act", f"etcdfix plan --from-report report.json {_CONFIG}"),
        ("A dry run of the plan", f"etcdfix plan --run plan.json {_LOST} \\\n  {_ACK} --dry-run"),
    ),
    "rescue": (
        ("All Secrets that do not open", f"etcdfix rescue secrets {_API} --rescued /srv/rescued {_CONFIG}"),
    ),
    "fix": (
        (
            "What an older configuration opens, encrypted under today's key",
            f"etcdfix fix {_KEY} --from candidate:old.yaml \\\n  {_LOST} --dry-run",
        ),
    ),
    "undo": (("Undo a deletion", 'etcdfix undo /var/lib/etcdfix/backup.json --reason "ticket 4711"'),),
    "delete": (
        ("What a deletion would mean", f"etcdfix delete {_KEY} {_LOST} \\\n  {_ACK} --dry-run"),
        (
            "An object whose encryption key is gone for ever",
            f"etcdfix delete {_KEY} {_LOST} \\\n  --declare-key-lost aescbc/v1/key1 {_ACK}",
        ),
    ),
}  # fmt: skip
"""Name of a command, with the group that it is in, to its examples, where they are not obvious."""
