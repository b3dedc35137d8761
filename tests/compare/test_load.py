"""Ten thousand runs: compared from their JSON records alone, in a few times what reading those takes."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compare import made
from tests.conftest import Command

READS_ALL = """
import json, pathlib, sys
files = [path for end in ("json", "jsonl") for path in pathlib.Path(sys.argv[1]).rglob("*." + end)]
for path in files:
    [json.loads(line) for line in (path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()])]
print(len(files))
"""


@pytest.mark.slow
def test_ten_thousand_runs_are_compared_in_a_few_times_what_reading_them_takes(
    command: Command, tmp_path: Path
) -> None:
    """2,000 settings of five seeds, with records of a real one's size: seconds, where each pair of runs held against each
    other would take minutes. Processors differ, and share: so the bound is on processor time, against a plain Python
    loop over the same files in the same minute. The seconds are printed (`pytest -s`).
    """
    packages = {f"package-{number}": "1.2.3" for number in range(110)} | {"torch": "2.14.1", "python": "3.11.7"}
    data = {"fingerprint": "f" * 64, "split": {"val": 287, "held_out_sha256": "e" * 64, "held_out": "12 15-16 " * 250}}
    options = {f"option_{number}": number for number in range(70)}
    for setting in range(2000):
        for seed in range(5):
            made.run(
                tmp_path / "outputs" / "s" / f"sgd_lr-{setting}_seed-{seed}-0123456789ab",
                0.9 + setting / 1e5 + seed / 1e3,
                seed=seed,
                optimizer__lr=0.001 * (setting + 1),
                task=options,
                typed=("optimizer.lr=1",),
                facts={"packages": packages, "data": data},
            )
    started = _processor_seconds()
    read = subprocess.run(
        [sys.executable, "-c", READS_ALL, str(tmp_path)], check=True, capture_output=True, timeout=300
    )
    reading = _processor_seconds() - started
    assert int(read.stdout) == 30_000
    started = _processor_seconds()
    done = command("compare.py", "s", "--json", "-", timeout=300)
    comparing = _processor_seconds() - started
    print(f"{comparing:.1f} s of processor time, {comparing / reading:.1f} times the reading")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["rows"]) == 2000 and sum(len(row["runs"]) for row in found["rows"]) == 10_000
    assert comparing < 6 * reading


def _processor_seconds() -> float:
    """User's and system's, of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
