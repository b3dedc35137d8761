"""compare.py as typed: table, CSV, JSON, exit codes, and what it says when something is missing."""

import csv
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.compare import made
from tests.conftest import ROOT, Command, Finished
from torchlite.compare import command as compare_command
from torchlite.compare import table
from torchlite.compare.report import Asked, report


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs compare.py in this process, from an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Finished:
        try:
            code = compare_command.main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


def test_the_table(compare, tmp_path: Path) -> None:
    made.sweep(tmp_path / "outputs" / "s", num_seeds=5)
    done = compare("s", "--baseline", "optimizer=sgd optimizer.lr=0.1")
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == (
        [
            "optimizer",
            "optimizer.lr",
            "n",
            "val/acc1",
            "test/acc1",
            "seconds",
            "difference",
            "p",
            "(Holm)",
            "more",
            "seeds",
        ]
    )
    assert lines[1].split()[:5] == ["*", "adamw", "0.003", "5", lines[1].split()[4]]
    assert "±" in lines[1] and lines[1].split()[-1] == "better"
    (sgd,) = [line for line in lines if "baseline" in line]
    assert sgd.split()[:2] == ["sgd", "0.1"]
    (worst,) = [line for line in lines if "rmsprop" in line and " 0.01 " in line]
    assert worst.split()[-1] == "worse"
    assert "two-sided paired t-test on common seeds, p corrected by Holm for 5 comparison(s)" in done.stdout
    assert "power of 80 % at level 0.05/5" in done.stdout


def test_a_small_terminal_gets_two_tables_and_whole_words(tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=3)
    found = report([str(tmp_path / "s")], Asked(baseline="optimizer=sgd optimizer.lr=0.1"))
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=70)
    table.show(found, terminal)
    text = terminal.file.getvalue()
    assert text.count("optimizer.lr") == 2 and text.count("adamw") == 4
    first, second = (line for line in text.splitlines() if "optimizer.lr" in line)
    assert "test/acc1" in first and "p (Holm)" not in first and "p (Holm)" in second


def test_runs_left_out_are_a_line_each_and_the_rest_is_compared(compare, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=2)
    (made.run(tmp_path / "s" / "half") / "result.json").write_text('{"status"')
    made.run(tmp_path / "s" / "lost", result={"status": "running"})
    (tmp_path / "s" / "foreign").mkdir()
    (tmp_path / "s" / "foreign" / "model.h5").write_bytes(b"x")
    done = compare("s")
    assert done.code == 0 and "left out (3):" in done.stdout
    for name, words in (("half", "not JSON"), ("lost", "cut off while it ran"), ("foreign", "it is no run")):
        assert len([line for line in done.stdout.splitlines() if f"s/{name}: " in line and words in line]) == 1


def test_nothing_is_left_out_in_silence(compare, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=1)
    made.run(tmp_path / "s" / "lost", result={"status": "running"}, facts={"code": {"commit": "b" * 40}})
    assert "s/lost: cut off" in compare("s", "--csv", "-").stderr
    assert "cut off" in json.loads(compare("s", "--json", "-").stdout)["left_out"][0]["reason"]


def test_unfinished_seeds_are_told_wherever_n_is(compare, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=3)
    for seed in (0, 1):
        (tmp_path / "s" / f"adamw_lr-0.003_seed-{seed}" / "result.json").unlink()
    lines = compare("s").stdout.splitlines()
    assert "1 of 3 seeds finished" in lines[1] and lines[1].startswith("*") and "1 of 3" not in lines[2]
    rows = list(csv.DictReader(io.StringIO(compare("s", "--csv", "-").stdout)))
    assert [(row["n"], row["seeds unfinished"]) for row in rows[:2]] == [("1", "2"), ("3", "0")]
    assert json.loads(compare("s", "--json", "-").stdout)["rows"][0]["seeds_unfinished"] == ["0", "1"]


def test_one_seed_has_no_interval(compare, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=1)
    done = compare("s", "--baseline", "optimizer=sgd optimizer.lr=0.1")
    assert done.code == 0 and "±" not in "".join(done.stdout.splitlines()[:7])
    assert done.stdout.count("not tested: one seed in common") == 5


def test_csv_and_json_hold_the_numbers_in_full(compare, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=3)
    words = ("s", "--baseline", "optimizer=sgd optimizer.lr=0.1")
    rows = list(csv.DictReader(io.StringIO(compare(*words, "--csv", "-").stdout)))
    found = json.loads(compare(*words, "--json", "-").stdout)
    assert len(rows) == len(found["rows"]) == 6 and found["test"]["correction"] == "Holm"
    for row, other in zip(rows, found["rows"], strict=True):
        score = other["scores"]["val/acc1"]
        assert float(row["val/acc1 mean"]) == score["mean"] and float(row["val/acc1 low"]) == score["low"]
        assert sum(other["seeds"].values()) / 3 == pytest.approx(score["mean"])
        assert row["directories"].split(";") == other["runs"] and len(other["runs"]) == 3
        p = other["against_baseline"]["p_holm"]
        assert row["p_holm"] == ("" if p is None else str(p))
    done = compare("s", "--csv", "rows.csv", "--json", "all.json")
    assert done.stderr == "wrote rows.csv\nwrote all.json\n" and "optimizer.lr" in done.stdout
    assert len(Path("rows.csv").read_text().splitlines()) == 7 and json.loads(Path("all.json").read_text())["rows"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name what to compare"),
        (("nowhere",), "nowhere: there is no such directory."),
        (("nowhere*",), "nowhere*: nothing matches this pattern."),
        (("empty",), "No finished run is there to compare."),
        (("s", "--metric", "acc"), "no run has this score"),
        (("s", "--csv", "no/such/rows.csv"), "no/such/rows.csv cannot be written: No such file or directory."),
        (("s", "--png", "figure.jpg"), "--png figure.jpg: the name has to end in .png."),
        (("s", "--better", "up"), "invalid choice"),
        (("s", "--metric", "test/fidelity"), "test/fidelity: is more of it better, or less? Say --better max or"),
        (("s", "--metrik", "x"), "unrecognized arguments"),
        (("--diff", "s", "s"), "--diff s: holds 6 runs; name one run directory."),
        (("--diff", "empty", "s"), "--diff empty: holds no runs"),
        (("s", "--diff", "s", "s"), "--diff takes two runs and no more"),
    ],
)
def test_a_mistake_ends_in_one_message_and_exit_code_2(
    compare, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    made.sweep(tmp_path / "s", num_seeds=1)
    result = tmp_path / "s" / "sgd_lr-0.1_seed-0" / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"test": {"test/fidelity": 3}}))
    (tmp_path / "empty").mkdir()
    done = compare(*words)
    assert done.code == 2 and says in done.stderr and "Traceback" not in done.text


def test_what_was_wrong_with_all_of_them_is_said(compare, tmp_path: Path) -> None:
    made.run(tmp_path / "s" / "a", result={"status": "failed", "failure": {"message": "out of memory"}})
    done = compare("s")
    assert done.code == 2 and "s/a: failed: out of memory" in done.stderr


def mutated(node: object, draw: random.Random) -> object:
    """JSON with one node, somewhere, replaced by something else."""
    if isinstance(node, dict | list) and node and draw.random() < 0.85:
        copied = dict(node) if isinstance(node, dict) else list(node)
        key = draw.choice(list(copied) if isinstance(copied, dict) else range(len(copied)))
        copied[key] = mutated(copied[key], draw)
        return copied
    return draw.choice(
        [None, 3, -1.5, True, "", "x", "${seed}", "${x.y}", [], [1, "a"], {}, {"a": {"b": 1}}, 10**400, "\ud800"]
    )


def test_records_edited_at_random_end_nothing(compare, tmp_path: Path) -> None:
    """Whatever is replaced in a record, it is compared or named, and the rest stands."""
    draw = random.Random(1)
    for index in range(300):
        directory = made.run(tmp_path / "s" / f"{index}", 0.9, list(made.OPTIMIZERS)[index % 3], index % 5)
        for name in ("run.json", "result.json"):
            path = directory / name
            if draw.random() < 0.7:
                path.write_text(json.dumps(mutated(json.loads(path.read_text()), draw)))
        if draw.random() < 0.2:
            (directory / "metrics.jsonl").write_text(json.dumps(mutated({"update": 1, "val/acc1": 2}, draw)))
    for index in range(4):
        made.run(tmp_path / "s" / f"good{index}", 0.8, "sgd", 100 + index)
    words = ("s", "--metric", "val/acc1", "--baseline", "s/good1")
    done = compare(*words, "--html", "p.html", "--json", "-", "--png", "f.png")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["left_out"]) > 50 and len(found["rows"]) == 3  # no edited config makes a row of its own
    assert compare(*words).code == 0
    for other in ("0", "7", "100"):
        assert compare("--diff", "s/good1", f"s/{other}").code in (0, 2)


def test_hostile_names_reach_the_terminal_as_text(compare, tmp_path: Path) -> None:
    evil = "\x1b[31m[red]</script>\n$x$"
    made.run(tmp_path / "s" / "a", model__act=evil, typed=("model.act=x",))
    made.run(tmp_path / "s" / "b", model__act="plain")
    made.run(tmp_path / "s" / "\x1b[2J[x]", result={"status": "failed", "failure": {"message": "\x1b]0;title\x07"}})
    done = compare("s")
    assert done.code == 0 and "\x1b" not in done.text and "\x07" not in done.text
    assert "\\x1b[31m[red]</script>\\n$x$" in done.stdout and "\\x1b[2J[x]: failed: \\x1b]0;title\\x07" in done.stdout


@pytest.mark.parametrize(
    ("library", "words"), [("scipy", ()), ("matplotlib", ("--png", "f.png")), ("plotly", ("--html", "p.html"))]
)
def test_a_missing_extra_is_named(tmp_path: Path, library: str, words: tuple[str, ...]) -> None:
    made.sweep(tmp_path / "s", num_seeds=1)
    program = (
        f"import sys, importlib.util as u; sys.modules[{library!r}] = None; find = u.find_spec\n"
        f"u.find_spec = lambda name, *a: None if name == {library!r} else find(name, *a)\n"
        f"from torchlite.compare.command import main; sys.exit(main({['s', *words]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{library}; in the clone: pip install -e '.[compare]'." in done.stderr


def test_neither_torch_nor_hydra_is_imported(tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=2)
    program = (
        "import atexit, runpy, sys\n"
        "heavy = {'torch', 'hydra', 'omegaconf', 'torchvision', 'timm', 'matplotlib', 'plotly', 'pandas'}\n"
        "atexit.register(lambda: print('imported:', sorted(heavy & set(sys.modules))))\n"
        f"sys.argv = ['compare.py', 's']; runpy.run_path({str(ROOT / 'compare.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "imported: []", done.stderr


def test_a_reader_that_goes_away_is_no_fault(command: Command, tmp_path: Path) -> None:
    made.sweep(tmp_path / "s", num_seeds=1)
    line = f"{sys.executable} {ROOT / 'compare.py'} s --json - | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.slow
def test_a_real_sweep(command: Command, tmp_path: Path) -> None:
    """What train.py leaves is what compare.py reads."""
    words = ("trainer=smoke", "model=mlp", "name=s", "optimizer=sgd,adamw", "seed=0,1")
    assert command("train.py", "-m", *words).code == 0
    done = command("compare.py", "s", "--baseline", "optimizer=sgd", "--json", "-")
    assert done.code == 0, done.text
    found = json.loads(done.stdout)
    assert [row["values"] for row in found["rows"]] in (
        [{"optimizer": "sgd"}, {"optimizer": "adamw"}],
        [{"optimizer": "adamw"}, {"optimizer": "sgd"}],
    )
    assert (
        all(row["scores"]["val/acc1"]["n"] == 2 for row in found["rows"]) and found["left_out"] == found["notes"] == []
    )
