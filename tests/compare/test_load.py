"""Ten thousand runs: read from their JSON records alone, in seconds of processor time."""

import json
import resource
import time
from pathlib import Path

import pytest

from tests.compare import made
from tests.conftest import Command


@pytest.mark.slow
def test_ten_thousand_runs_are_compared_in_under_ten_seconds_of_processor_time(
    command: Command, tmp_path: Path
) -> None:
    """2,000 settings of five seeds, with records of a real one's size. The bound is on processor time, user and system,
    as the machine may be shared; seconds by the clock are printed (`pytest -s`).
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
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command("compare.py", "s", "--json", "-", timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:.1f} s of processor time, {time.perf_counter() - started:.1f} s by the clock")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["rows"]) == 2000 and sum(len(row["runs"]) for row in found["rows"]) == 10_000
    assert seconds < 10
