"""How long `train.py --help` and `--cfg job` take, beside a bare Hydra app over the same conf.

python -m benchmarks.startup [ROUNDS]
"""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.measure import compared, interleave, machine

ROOT = Path(__file__).resolve().parents[1]
BARE_APP = """import hydra
@hydra.main(version_base="1.3", config_path={conf!r}, config_name="config")
def main(cfg):
    pass
main()
"""


def seconds(script: Path, words: list[str], cwd: str) -> float:
    """Wall time in seconds of one run of a script that has to succeed."""
    start = time.perf_counter()
    subprocess.run([sys.executable, str(script), *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def imported(script: Path, words: list[str], cwd: str) -> set[str]:
    """The modules a run of a script imports."""
    command = [sys.executable, "-X", "importtime", str(script), *words]
    log = subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stderr
    return {line.rsplit("|", 1)[-1].strip() for line in log.splitlines() if line.startswith("import time:")}


def main(rounds: int = 9) -> None:
    ours = ROOT / "train.py"
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE_APP.format(conf=str(ROOT / "conf")), encoding="utf-8")
        print(machine())
        for words in (["--help"], ["--cfg", "job"]):
            what = " ".join(words)
            sides = (partial(seconds, script, words, folder) for script in (ours, bare))
            print(compared(what, interleave(*sides, rounds), "s", 3))
            heavy = sorted({"torch", "torchvision", "timm", "numpy"} & imported(ours, words, folder))
            print(f"{what}: imports {', '.join(heavy) or 'neither torch, torchvision, timm nor numpy'}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
