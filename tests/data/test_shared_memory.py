"""A set in memory is there once, however many workers look at it (PSS: what is shared is counted once)."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import json, os, sys
import numpy as np
import torch
from torchlite.data.image_data import ImageData
from torchlite.data.mapped_arrays import image_arrays
from torchlite.data.preprocess import Preprocess

class Same:
    def __call__(self, image):
        return image + 0

def pss():
    tree = {os.getpid()}
    while True:
        found = {int(c) for p in tree for c in open(f"/proc/{p}/task/{p}/children").read().split()} | tree
        if found == tree:
            break
        tree = found
    total = 0
    for process in tree:
        try:
            lines = open(f"/proc/{process}/smaps_rollup").read().splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total

if __name__ == "__main__":
    name, method = sys.argv[1:]
    made = ImageData(
        train=image_arrays(name, name), test=None, num_classes=1, channels=3, image_size=64, batch_size=256,
        preprocess=Preprocess([0.0] * 3, [1.0] * 3), val_fraction=0, transforms=[Same()], in_memory=True, num_workers=4,
        start_method=method, seed=0, device="cpu",
    )
    most = 0
    for index, batch in enumerate(made.train.epoch(0)):
        if index % 40 == 0:
            most = max(most, pss())
    print(json.dumps([max(most, pss()), made.train.num_samples]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_gigabyte_in_memory_does_not_multiply_with_four_workers(tmp_path: Path, method: str) -> None:
    (tmp_path / "measure.py").write_text(SCRIPT)
    most = {}
    for count in (1024, 1 << 30):
        number = max(512, count // (3 * 64 * 64))
        pixels = np.random.default_rng(0).integers(0, 256, (number, 3, 64, 64), dtype=np.uint8)
        np.savez(tmp_path / "set.npz", images=pixels, labels=np.zeros(number, np.int64))
        one_copy = pixels.nbytes
        del pixels
        command = [sys.executable, "-W", "ignore", str(tmp_path / "measure.py"), str(tmp_path / "set.npz"), method]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        most[count], read = json.loads(done.stdout.splitlines()[-1])
        assert read == number
    grown = (most[1 << 30] - most[1024]) / one_copy
    print(f"{method}: {grown:.2f} copies")
    assert grown <= 1.3
