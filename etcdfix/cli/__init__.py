"""The thin skin: parse options, call one function, hand results to a reporter, map to an exit code.

Any function here raises :class:`~etcdfix.model.errors.EtcdfixError`; the root command says it and ends.
"""

from __future__ import annotations
