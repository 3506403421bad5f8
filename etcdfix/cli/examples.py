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
        ("Each night: metrics for Prometheus", "etcdfix scan -o metrics --output-file /var/lib/etcdfix.prom"),
    ),
    "get": (
        ("One object; contents of Secrets are masked", f"etcdfix get {_KEY} {_CONFIG}"),
        ("Every Deployment, and what is wrong with it", "etcdfix get deployments.apps -A"),
    ),
    "compare": (
        ("Do all members hold the same?", "etcdfix compare --endpoints https://10.0.0.1:2379"),
        ("What changed since Monday", "etcdfix compare --with-snapshot monday.db --snapshot tuesday.db"),
    ),
    "explain": (
        ("What is wrong with one key, and every way out", f"etcdfix explain {_KEY} {_CONFIG}"),
        ("What a cause means, and what to do", "etcdfix explain wrong-key"),
    ),
    "encryption try": (
        ("Does an old file open what does not open?", f"etcdfix encryption try {_CONFIG} --in candidate:old.yaml"),
    ),
    "encryption what-if": (
        ("What would a new file make unreadable?", f"etcdfix encryption what-if {_CONFIG} --new new.yaml"),
    ),
    "encryption recover": (
        ("From a snapshot of k3s", "etcdfix encryption recover --snapshot etcd-snapshot-server-1 --token-file token"),
    ),
    "copies": (
        ("Every copy of what cannot be read", f"etcdfix copies {_CONFIG}"),
        ("In a log too", f"etcdfix copies --in log:/var/lib/etcd/member/wal {_CONFIG}"),
    ),
    "plan": (
        ("Who makes what again, in which order to act", f"etcdfix plan --from-report report.json {_CONFIG}"),
        ("A dry run of the plan", f"etcdfix plan --run plan.json {_LOST} \\\n  {_ACK} --dry-run"),
    ),
    "rescue": (
        ("All Secrets that do not open", f"etcdfix rescue secrets {_API} --rescued /srv/rescued {_CONFIG}"),
    ),
    "fix": (
        ("What would be put back", f"etcdfix fix {_KEY} {_LOST} --dry-run"),
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
    "log prune": (
        ("What would go", 'etcdfix log prune --older-than 90d --reason "kept long enough" --dry-run'),
    ),
    "doctor": (
        ("On a control-plane node", "etcdfix doctor --manifest /etc/kubernetes/manifests/kube-apiserver.yaml"),
    ),
}  # fmt: skip
"""Name of a command, with the group that it is in, to its examples, where they are not obvious."""
