"""Write what etcdfix is made of, as CycloneDX: ``python docs/release/sbom.py ENVIRONMENT DIRECTORY``.

Runs in an environment of ``build-requirements.txt``; the environment that is named is one that ``requirements.txt`` was
installed into. The same commit makes the same bytes: no serial number, and the time is that of the commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from checkout import ROOT, committed_at, same_name, version
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from licences import licensed

_SPECIFICATION: Final = SchemaVersion.V1_6


def main() -> None:
    """Write the document, unless it does not fit its schema."""
    environment, target = Path(sys.argv[1]), Path(sys.argv[2])
    text = json.dumps(document(environment), indent=2, sort_keys=True) + "\n"
    wrong = JsonStrictValidator(_SPECIFICATION).validate_str(text)
    if wrong is not None:
        sys.exit(f"the document does not fit the schema of CycloneDX: {wrong}")
    (target / f"etcdfix-{version()}.cdx.json").write_text(text)


def document(environment: Path) -> dict[str, Any]:
    """Return what the tool finds in the environment, with our version, and one licence for each package."""
    made = subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", "pyproject.toml",
         "--spec-version", _SPECIFICATION.to_version(), environment.resolve() / "bin/python"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, env={**os.environ, "SOURCE_DATE_EPOCH": str(committed_at())},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(made.stdout)
    ours = found["metadata"]["component"]
    ours |= {"version": version(), "purl": f"pkg:pypi/{ours['name']}@{version()}"}
    known = {same_name(each.name): each.licence for each in licensed(environment)}
    found["components"] = [part for part in found["components"] if same_name(part["name"]) in known]
    for part in found["components"]:
        licence = known[same_name(part["name"])]
        part["licenses"] = [
            {"expression": licence}
            if " " in licence
            else {"license": {"id": licence, "acknowledgement": "declared"}}
        ]
    return found


if __name__ == "__main__":
    main()
