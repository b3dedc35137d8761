"""The data as it lies here: is it, by its fingerprint, what a run was made with?"""

import json
from typing import Any

from torchlite import build
from torchlite.check import check_nodes
from torchlite.errors import UserError
from torchlite.reproduce.records import Past
from torchlite.reproduce.rerun import as_recorded


def difference(then: str | None, now: str | None) -> list[str]:
    """A line where two fingerprints differ."""
    if then is None or now is None or then == now:
        return []
    return [f"data: the fingerprint was {then[:12]}, is {now[:12]}: other images, labels or files"]


def fingerprint_here(past: Past, data_dir: str | None, own_code: bool, known: dict[str, str | None]) -> str | None:
    """The fingerprint of a run's data as it lies here; None where only the run can tell: of other code or modules.

    Args:
        own_code: it will run by this code, so what this code says of data that is not there is final: a UserError.
        known: those computed so far, as the jobs of a sweep share their data.
    """
    node = as_recorded(past, data_dir).config["data"]
    key = json.dumps(node, sort_keys=True)
    if key not in known:
        try:
            known[key] = None if check_nodes({"data": node}, ()) else _fingerprint(node, past)
        except Exception as error:  # whatever a data set of a library raises: the run itself will tell
            if own_code and isinstance(error, UserError):
                raise
            known[key] = None
    return known[key]


def _fingerprint(node: dict[str, Any], past: Past) -> str | None:
    """By the recorded way: of pixels in memory, else of files, which need not be decoded for it."""
    of = (past.facts["data"].get("split") or {}).get("fingerprint_of") or {}
    ways = {"num_workers": 0, "in_memory": "pixels" in of.values() if isinstance(of, dict) else False}
    made = {**node, **{name: value for name, value in ways.items() if name in node}}
    return getattr(build.data(made, seed=past.facts["config"]["seed"], device="cpu"), "fingerprint", None)
