"""Tell the licences of what etcdfix needs: ``python docs/release/licences.py ENVIRONMENT [DIRECTORY]``.

The environment is one that ``requirements.txt`` was installed into. Writes ``docs/release/licences.md``; with a
directory also ``etcdfix-VERSION-licences.txt`` there, which has the text of each licence and notice that a package
brings. Ends with 1 where a licence is unknown, or not one of those below.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from checkout import HERE, RUNTIME_LOCK, packages_of, pinned, same_name, version

ALLOWED: Final = frozenset(
    {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"}
)
"""What may be used by, and given out beside, a program under Apache-2.0."""

_OTHER_WORDS: Final = {"Apache 2.0": "Apache-2.0", "3-Clause BSD License": "BSD-3-Clause"}
_BSD: Final = "License :: OSI Approved :: BSD License"
_THIRD_CLAUSE: Final = re.compile(r"neither\s+the\s+name", re.IGNORECASE)
_FILES: Final = re.compile(r"(licen[cs]e|copying|notice|authors)", re.IGNORECASE)
_TABLE: Final = HERE / "licences.md"
_HEAD: Final = """# Licences of what etcdfix needs

What `requirements.txt` pins, and the licence that each package declares. Written by `docs/release/licences.py`, which
refuses a licence that it does not know or that is not on its list. Their texts and notices are in
`etcdfix-VERSION-licences.txt` of a release. A wheel may hold libraries of its own (OpenSSL, libsodium, LibYAML …): of
these the file has what the package says.

| package | version | licence |
|---|---|---|
"""


@dataclass(frozen=True)
class Licensed:
    """A package, its licence in SPDX's words, and the texts that it brings, by file name."""

    name: str
    version: str
    licence: str
    texts: dict[str, str]


class UnknownLicenceError(Exception):
    """A package says nothing about its licence that we know, or brings no text of it."""


def licensed(environment: Path) -> list[Licensed]:
    """Return what the lock pins, as it is installed.

    Raises:
        UnknownLicenceError: For a package that is not as the lock says, or does not tell its licence.
    """
    found = {
        same_name(package.name): package for package in distributions(path=[str(packages_of(environment))])
    }
    wanted = pinned(RUNTIME_LOCK)
    wrong = sorted(name for name, at in wanted.items() if name not in found or found[name].version != at)
    if wrong:
        raise UnknownLicenceError(f"{environment}: not installed as the lock says: {', '.join(wrong)}")
    return [_licensed(found[name]) for name in wanted]


def _licensed(package: Distribution) -> Licensed:
    texts = dict(_texts(package))
    if not texts:
        raise UnknownLicenceError(f"{package.name} {package.version} brings no text of its licence")
    licence = _declared(package, texts)
    for part in re.split(r" (?:AND|OR) ", licence):
        if part not in ALLOWED:
            raise UnknownLicenceError(
                f"{package.name} {package.version}: {part!r} is not one of {sorted(ALLOWED)}"
            )
    return Licensed(package.name, package.version, licence, texts)


def _declared(package: Distribution, texts: dict[str, str]) -> str:
    told = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    if told:
        return _OTHER_WORDS.get(told, told)
    if _BSD in package.metadata.get_all("Classifier", []):
        return "BSD-3-Clause" if any(map(_THIRD_CLAUSE.search, texts.values())) else "BSD-2-Clause"
    return ""


def _texts(package: Distribution) -> Iterator[tuple[str, str]]:
    for file in sorted(package.files or [], key=str):
        if ".dist-info" in file.parts[0] and _FILES.match(file.name):
            within = [part for part in file.parts[1:] if part != "licenses"]
            yield "/".join(within), Path(str(file.locate())).read_text(encoding="utf-8")


def table(packages: list[Licensed]) -> str:
    """Return the page with the licence of each package."""
    return _HEAD + "".join(f"| {each.name} | {each.version} | {each.licence} |\n" for each in packages)


def write_notices(packages: list[Licensed], folder: Path) -> Path:
    """Write the texts of all licences, one package after the other, and return the file."""
    line = "=" * 80
    parts = [f"What etcdfix {version()} needs, and under which licences.\n"]
    for each in packages:
        parts.append(f"\n{line}\n{each.name} {each.version}: {each.licence}\n{line}\n")
        parts += [f"\n--- {name}\n\n{text.strip()}\n" for name, text in each.texts.items()]
    file = folder / f"etcdfix-{version()}-licences.txt"
    file.write_text("".join(parts), encoding="utf-8")
    return file


def main() -> None:
    """Write the page, and the texts where a directory is named."""
    try:
        packages = licensed(Path(sys.argv[1]))
    except UnknownLicenceError as exc:
        sys.exit(str(exc))
    _TABLE.write_text(table(packages))
    if len(sys.argv) > 2:
        write_notices(packages, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
