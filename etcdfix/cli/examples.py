"""Commands to begin with, for the help of each command: what for, and what to type."""

from __future__ import annotations

from typing import Final

Example = tuple[str, str]

_LOST: Final = '--encryption-config enc.yaml --reason "ticket 4711"'
_KEY: Final = "/registry/secrets/shop/db"
_ACK: Final = "--ignore-store-read-error-with-cluster-breaking-potential"

EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "scan": (
        ("Everything in a snapshot, under the configuration of the API servers",
         "etcdfix scan --snapshot snapshot.db --encryption-config enc.yaml"),
        ("Secrets of one namespace in the etcd of this machine, as a saved report",
         ("etcdfix scan secrets -n shop --manifest /etc/kubernetes/manifests/kube-apiserver.yaml \\\n"
         "  -o json --output-file report.json")),
        ("Each night: metrics for Prometheus",
         "etcdfix scan -o metrics --output-file /var/lib/prometheus/node-exporter/etcdfix.prom"),
        ("In CI: tests that passed and failed",
         "etcdfix scan --snapshot snapshot.db --encryption-config enc.yaml -o junit --output-file etcdfix.xml"),
    ),
    "get": (
        ("One object, its contents masked where it is a Secret", f"etcdfix get {_KEY} --encryption-config enc.yaml"),
        ("A list of every Deployment, with what is wrong with each", "etcdfix get deployments.apps -A"),
    ),
    "history": (
        ("Every revision that etcd still keeps", f"etcdfix history {_KEY}"),
    ),
    "compare": (
        ("Do all members hold the same?", "etcdfix compare --endpoints https://10.0.0.1:2379"),
        ("What changed since Monday, in two snapshots",
         "etcdfix compare --with-snapshot monday.db --snapshot tuesday.db"),
    ),
    "orphans": (
        ("What belongs to nobody, in a snapshot", "etcdfix orphans --snapshot snapshot.db"),
    ),
    "explain": (
        ("What is wrong with one key, and every way out", f"etcdfix explain {_KEY} --encryption-config enc.yaml"),
        ("What a cause means, and what to do", "etcdfix explain wrong-key"),
    ),
    "impact": (
        ("Who depends on one object, and who uses it", f"etcdfix impact {_KEY} --encryption-config enc.yaml"),
    ),
    "namespace": (
        ("Why a namespace does not end", "etcdfix namespace shop --encryption-config enc.yaml"),
    ),
    "encryption usage": (
        ("Which encryption key is still needed", "etcdfix encryption usage --encryption-config enc.yaml"),
    ),
    "encryption try": (
        ("Does one of these old files open what cannot be read?",
         ("etcdfix encryption try --encryption-config enc.yaml \\\n"
         "  --candidate-config old-1.yaml --candidate-config old-2.yaml")),
    ),
    "encryption what-if": (
        ("What would a new configuration make unreadable?",
         "etcdfix encryption what-if --encryption-config enc.yaml --new new.yaml"),
    ),
    "encryption check": (
        ("Before a file is deployed", "etcdfix encryption check enc.yaml"),
        ("Do two nodes read the same?", "etcdfix encryption check node-1.yaml node-2.yaml"),
    ),
    "encryption merge": (
        ("One file that reads what any of them reads",
         "etcdfix encryption merge enc.yaml old.yaml --output-file merged.yaml"),
    ),
    "encryption recover": (
        ("What a snapshot of k3s and its token give back",
         "etcdfix encryption recover --snapshot etcd-snapshot-server-1 --token-file token"),
    ),
    "copies": (
        ("Every copy of what cannot be read, or was deleted lately", "etcdfix copies --encryption-config enc.yaml"),
        ("One object, whatever is wrong with it", f"etcdfix copies {_KEY}"),
        ("All of a report, in the write-ahead log and in the memory of API servers too",
         ("etcdfix copies --from-report report.json --wal /var/lib/etcd/member/wal \\\n"
         "  --encryption-config enc.yaml --kubeconfig admin.conf")),
    ),
    "plan": (
        ("Who makes what again, and in which order to act",
         "etcdfix plan --from-report report.json --encryption-config enc.yaml"),
        ("Work through it, as it decides; a dry run first",
         ("etcdfix plan --run plan.json --encryption-config enc.yaml --reason 'ticket 4711' \\\n"
          "  --ignore-store-read-error-with-cluster-breaking-potential --dry-run")),
    ),
    "rescue": (
        ("All that a report names unreadable (mkdir -m 700 /srv/rescued first)",
         "etcdfix rescue --from-report report.json --kubeconfig admin.conf \\\n  --save-dir /srv/rescued --reveal"),
        ("One object", f"etcdfix rescue {_KEY} --kubeconfig admin.conf \\\n  --save-dir /srv/rescued --reveal"),
    ),
    "heal": (
        ("All of a saved scan; with --dry-run nothing is sent",
         ("etcdfix heal --from-report report.json --saved /srv/rescued --kubeconfig admin.conf \\\n"
         f"  {_LOST} --dry-run")),
    ),
    "repair": (
        ("What would be put right; nothing is changed", f"etcdfix repair {_KEY} \\\n  {_LOST} --dry-run"),
    ),
    "restore": (
        ("Undo a deletion", 'etcdfix restore /var/lib/etcdfix/backup.json --reason "ticket 4711"'),
        ("An object of etcdfix rescue, over the value whose key is lost",
         (f"etcdfix restore --from-object saved.json {_KEY} --replace-mod-revision 4711 \\\n"
         f"  --kubeconfig admin.conf --accept unlisted-source \\\n  {_LOST} --dry-run")),
        ("A value that was overwritten, from etcd's write-ahead log",
         (f"etcdfix restore --from-wal /var/lib/etcd/member/wal {_KEY} \\\n"
         f"  --replace-mod-revision 4711 --accept unlisted-source \\\n"
         f"  {_LOST} --dry-run")),
    ),
    "reencrypt": (
        ("What would be written; nothing is changed",
         f"etcdfix reencrypt {_KEY} --candidate-config old.yaml \\\n  {_LOST} --dry-run"),
    ),
    "delete": (
        ("What a deletion would mean; nothing is changed", f"etcdfix delete {_KEY} {_LOST} \\\n  {_ACK} --dry-run"),
        ("One object whose encryption key is gone for ever",
         f"etcdfix delete {_KEY} {_LOST} \\\n  --declare-key-lost aescbc/v1/key1 --kubeconfig admin.conf \\\n  {_ACK}"),
    ),
    "audit show": (
        ("The last ten records", "etcdfix audit show /var/lib/etcdfix/audit.jsonl --last 10"),
    ),
    "audit verify": (
        ("Is the log what was written?", "etcdfix audit verify /var/lib/etcdfix/audit.jsonl"),
    ),
    "audit reconcile": (
        ("What became of what a crash left open; nothing is recorded",
         "etcdfix audit reconcile /var/lib/etcdfix/audit.jsonl --encryption-config enc.yaml --dry-run"),
    ),
    "backup list": (
        ("Every backup of the default directory", "etcdfix backup list"),
    ),
    "backup verify": (
        ("Is every backup whole, and known to the log?", "etcdfix backup verify"),
    ),
    "backup prune": (
        ("What would go; nothing is removed",
         'etcdfix backup prune --older-than 90d --reason "kept long enough" --dry-run'),
        ("What was made before a date", 'etcdfix backup prune --before 2026-01-01 --reason "kept long enough"'),
    ),
    "report merge": (
        ("A row for each cluster", "etcdfix report merge prod-eu.json prod-us.json"),
    ),
    "report render": (
        ("A saved report as a page for the call",
         "etcdfix report render report.json -o html --output-file scan.html"),
    ),
    "report diff": (
        ("What is new since last night", "etcdfix report diff monday.json tuesday.json"),
    ),
    "version": (
        ("Which version this is, and what it knows", "etcdfix version"),
    ),
    "doctor": (
        ("Before an incident, on a control-plane node",
         "etcdfix doctor --manifest /etc/kubernetes/manifests/kube-apiserver.yaml"),
    ),
    "completion": (
        ("For this bash, until it ends", 'eval "$(etcdfix completion bash)"'),
    ),
    "schema": (
        ("Of a scan's report", "etcdfix schema"),
    ),
}  # fmt: skip
"""Name of a command, with the group that it is in, to its examples."""
