"""How many cores there are to work with. Imports no torch: a sweep asks before torch is there."""

import os


def num_cores() -> int:
    """Cores that this process may use; a sweep that runs several jobs at a time tells each its share."""
    share = os.environ.get("TORCHLITE_CORES", "")
    if share.isdigit() and int(share) > 0:
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
