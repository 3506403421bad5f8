"""Two commands to begin with, for the help of each command: what for, and what to type."""

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
        ("The same from a member's write-ahead log, compacted or not",
         f"etcdfix history {_KEY} --wal member-1/wal --older-snapshot monday.db"),
    ),
    "compare": (
        ("Do all members hold the same?", "etcdfix compare --endpoints https://10.0.0.1:2379"),
        ("What changed since Monday, in two snapshots",
         "etcdfix compare --with-snapshot monday.db --snapshot tuesday.db"),
    ),
    "orphans": (
        ("What belongs to nobody, in a snapshot", "etcdfix orphans --snapshot snapshot.db"),
        ("The same, for a program", "etcdfix orphans --encryption-config enc.yaml -o json"),
    ),
    "explain": (
        ("What is wrong with one key, and every way out", f"etcdfix explain {_KEY} --encryption-config enc.yaml"),
        ("What a cause means, and what to do", "etcdfix explain wrong-key"),
    ),
    "impact": (
        ("Who depends on one object, and who uses it", f"etcdfix impact {_KEY} --encryption-config enc.yaml"),
        ("The same of a snapshot, for a program", f"etcdfix impact {_KEY} --snapshot snapshot.db -o json"),
    ),
    "namespace": (
        ("Why a namespace does not end", "etcdfix namespace shop --encryption-config enc.yaml"),
        ("The same from a snapshot, for a program", "etcdfix namespace shop --snapshot snapshot.db -o json"),
    ),
    "encryption usage": (
        ("Which encryption key is still needed", "etcdfix encryption usage --encryption-config enc.yaml"),
        ("The same of a snapshot", "etcdfix encryption usage --snapshot snapshot.db --encryption-config enc.yaml"),
    ),
    "encryption try": (
        ("Does one of these old files open what cannot be read?",
         ("etcdfix encryption try --encryption-config enc.yaml \\\n"
         "  --candidate-config old-1.yaml --candidate-config old-2.yaml")),
        ("The same for Secrets in a snapshot alone",
         "etcdfix encryption try secrets --snapshot snapshot.db --candidate-config old-1.yaml"),
    ),
    "encryption what-if": (
        ("What would a new configuration make unreadable?",
         "etcdfix encryption what-if --encryption-config enc.yaml --new new.yaml"),
        ("The same against a snapshot",
         "etcdfix encryption what-if --snapshot snapshot.db --encryption-config enc.yaml --new new.yaml"),
        ("The same in CI: tests that passed and failed",
         ("etcdfix encryption what-if --snapshot snapshot.db --encryption-config enc.yaml --new new.yaml \\\n"
         "  -o junit --output-file what-if.xml")),
    ),
    "encryption lint": (
        ("Before a file is deployed", "etcdfix encryption lint enc.yaml"),
        ("For a pipeline", "etcdfix encryption lint enc.yaml -o json"),
    ),
    "encryption diff": (
        ("Do two nodes read the same?", "etcdfix encryption diff node-1.yaml node-2.yaml"),
        ("Before and after a change, for a program", "etcdfix encryption diff before.yaml after.yaml -o json"),
    ),
    "encryption merge": (
        ("One file that reads what any of them reads",
         "etcdfix encryption merge enc.yaml old.yaml --output-file merged.yaml"),
        ("Of three control-plane nodes",
         "etcdfix encryption merge node-1.yaml node-2.yaml node-3.yaml --output-file merged.yaml"),
    ),
    "encryption recover": (
        ("What a snapshot of k3s and its token give back",
         "etcdfix encryption recover --snapshot etcd-snapshot-server-1 --token-file token"),
        ("The same, with a write-ahead log and a former token, saved to files",
         ("etcdfix encryption recover --snapshot snapshot.db --wal member/wal \\\n"
         "  --token-file token --token-file former-token --save-dir recovered")),
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
        ("The same, to be read by etcdfix delete --plan",
         "etcdfix plan --from-report report.json --encryption-config enc.yaml -o json --output-file plan.json"),
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
        ("One object, with an API server that no list names",
         (f"etcdfix heal {_KEY} --saved /srv/rescued --kubeconfig admin.conf \\\n"
         f"  --server https://10.0.0.12:6443 {_LOST}")),
    ),
    "repair": (
        ("What would be put right; nothing is changed", f"etcdfix repair {_KEY} \\\n  {_LOST} --dry-run"),
        ("The same for a key that cannot be typed",
         f"etcdfix repair base64:L3JlZ2lzdHJ5L3BvZHMvc2hvcC9h \\\n  {_LOST} --dry-run"),
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
        ("The same with the API servers asked first",
         f"etcdfix reencrypt {_KEY} --candidate-config old.yaml \\\n  --kubeconfig admin.conf {_LOST}"),
    ),
    "delete": (
        ("What a deletion would mean; nothing is changed", f"etcdfix delete {_KEY} {_LOST} \\\n  {_ACK} --dry-run"),
        ("One object whose encryption key is gone for ever",
         f"etcdfix delete {_KEY} {_LOST} \\\n  --declare-key-lost aescbc/v1/key1 --kubeconfig admin.conf \\\n  {_ACK}"),
    ),
    "audit show": (
        ("The last ten records", "etcdfix audit show /var/lib/etcdfix/audit.jsonl --last 10"),
        ("All of them, for a program", "etcdfix audit show /var/lib/etcdfix/audit.jsonl -o jsonl"),
    ),
    "audit verify": (
        ("Is the log what was written?", "etcdfix audit verify /var/lib/etcdfix/audit.jsonl"),
        ("The same, with every backup of a directory as a witness",
         "etcdfix audit verify /var/lib/etcdfix/audit.jsonl --backup-dir /srv/backups"),
    ),
    "audit reconcile": (
        ("What became of what a crash left open; nothing is recorded",
         "etcdfix audit reconcile /var/lib/etcdfix/audit.jsonl --encryption-config enc.yaml --dry-run"),
        ("The same of a k3s on SQLite, recorded",
         "etcdfix audit reconcile /var/lib/etcdfix/audit.jsonl --kine /var/lib/rancher/k3s/server/db/state.db"),
    ),
    "backup list": (
        ("Every backup of the default directory", "etcdfix backup list"),
        ("Of another directory, for a program", "etcdfix backup list --backup-dir /srv/backups -o json"),
    ),
    "backup verify": (
        ("Is every backup whole, and known to the log?", "etcdfix backup verify"),
        ("The same for another directory and log",
         "etcdfix backup verify --backup-dir /srv/backups --audit-log /srv/audit.jsonl"),
    ),
    "backup prune": (
        ("What would go; nothing is removed",
         'etcdfix backup prune --older-than 90d --reason "kept long enough" --dry-run'),
        ("What was made before a date", 'etcdfix backup prune --before 2026-01-01 --reason "kept long enough"'),
    ),
    "report merge": (
        ("A row for each cluster", "etcdfix report merge prod-eu.json prod-us.json"),
        ("The same, for a program", "etcdfix report merge prod-eu.json prod-us.json -o json"),
    ),
    "report render": (
        ("A saved report as a page for the call",
         "etcdfix report render report.json -o html --output-file scan.html"),
        ("The same as rows for a spreadsheet", "etcdfix report render report.json -o csv"),
    ),
    "report diff": (
        ("What is new since last night", "etcdfix report diff monday.json tuesday.json"),
        ("The same, for a program", "etcdfix report diff monday.json tuesday.json -o json"),
    ),
    "version": (
        ("Which version this is, and what it knows", "etcdfix version"),
        ("The same, for a program", "etcdfix version -o json"),
    ),
    "doctor": (
        ("Before an incident, on a control-plane node",
         "etcdfix doctor --manifest /etc/kubernetes/manifests/kube-apiserver.yaml"),
        ("Also what the kubeconfig's user may do",
         "etcdfix doctor --encryption-config enc.yaml --kubeconfig admin.conf"),
    ),
    "completion": (
        ("For this bash, until it ends", 'eval "$(etcdfix completion bash)"'),
        ("For every fish", "etcdfix completion fish > ~/.config/fish/completions/etcdfix.fish"),
    ),
    "schema": (
        ("Of a scan's report", "etcdfix schema"),
        ("Of one record of the audit log", "etcdfix schema audit"),
    ),
}  # fmt: skip
"""Name of a command, with the group that it is in, to its examples."""
