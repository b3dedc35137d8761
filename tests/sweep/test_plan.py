"""What a sweep settles before its first job: names, states, what it will take, configs that nobody changes afterwards."""

import json
import resource
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command, Typed
from tests.runs import BASE, result


def jobs(tmp_path: Path, name: str = "s") -> dict[str, Path]:
    facts = json.loads((tmp_path / "outputs" / name / "sweep.json").read_text())
    return {fact["words"][-1]: tmp_path / "outputs" / name / fact["directory"] for fact in facts["jobs"]}


def test_a_dry_run_of_a_sweep_shows_the_plan_and_creates_nothing(typed: Typed, tmp_path: Path) -> None:
    done = typed("-m", "sweep=optimizers", "seed=0,1", "dry_run=true")
    assert done.code == 0 and "12 jobs in outputs/digits-small_cnn-optimizers: 12 new" in done.stdout
    assert "optimizer=sgd optimizer.lr=0.1 optimizer.momentum=0.9 seed=1" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", sorted(path.stem for path in (ROOT / "conf" / "sweep").glob("*.yaml")))
def test_every_sweep_file_is_planned(typed: Typed, file: str) -> None:
    done = typed("-m", f"sweep={file}", "hydra/launcher=local", "hydra.launcher.num_jobs=2", "dry_run=true")
    assert done.code == 0 and " jobs in outputs/" in done.stdout, done.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("product: {seed: [1, 2]}\n", "begins with `# @package hydra.sweeper`"),  # it would be one job of the defaults
        ("# @package hydra.sweeper\n", "lists nothing"),
        ("# @package hydra.sweeper\nprodct: {seed: [1, 2]}\n", "sweep.prodct: no such section"),
        ("# @package hydra.sweeper\njoin: []\n", "no job"),
        ("# @package hydra.sweeper\nproduct: {optimizer: [sgd, null]}\n", "optimizer"),
        ("# @package hydra.sweeper\nproduct: {seed: [1, 1]}\n", "two jobs would compute the same"),
    ],
)
def test_a_sweep_file_with_a_mistake_is_refused(typed: Typed, tmp_path: Path, text: str, said: str) -> None:
    own = tmp_path / "conf" / "sweep"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(text)
    done = typed("-m", "--config-dir", str(tmp_path / "conf"), "sweep=mine", "dry_run=true")
    assert done.code == 2 and said in done.stderr and "Traceback" not in done.stderr, done.text
    assert typed("-m", "sweep=optimizers,optimizers", "dry_run=true").code == 2


def test_the_number_of_jobs_can_be_set_beside_swept_experiments(typed: Typed) -> None:
    words = ["experiment=digits_default,cifar10_resnet18", "hydra/launcher=local", "hydra.launcher.num_jobs=2"]
    done = typed("-m", *words, "dry_run=true")
    assert done.code == 0 and "2 jobs in" in done.stdout, done.text
    done = typed("-m", "sweep=optimizers", "hydra/launcher=locl")
    assert done.code == 2 and "locl" in done.stderr and "Traceback" not in done.stderr, done.text


def test_a_sweep_file_can_name_options_by_a_pattern(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "conf" / "sweep").mkdir(parents=True)
    (tmp_path / "conf" / "sweep" / "mine.yaml").write_text(
        "# @package hydra.sweeper\nproduct: {optimizer: glob(adam*)}\n"
    )
    done = typed("-m", "--config-dir", "conf", "sweep=mine", "dry_run=true")
    assert done.code == 0 and "optimizer=adam " in done.stdout and "optimizer=adamw" in done.stdout, done.text


@pytest.mark.slow
def test_a_plan_tells_what_is_done_and_what_it_will_take(typed: Typed, tmp_path: Path) -> None:
    assert typed("-m", *BASE, "name=s", "seed=0,1").code == 0
    done = typed("-m", *BASE, "name=s", "seed=0,1,2,3", "dry_run=true")
    assert done.code == 0 and "4 jobs in outputs/s: 2 finished, 2 new" in done.stdout
    assert "as earlier runs of this shape took" in done.stdout and " GB are free" in done.stdout
    for text in ('{"status": "finished"}', '{"status": "failed", "failure": "?"}'):  # written by another hand
        (jobs(tmp_path)["seed=1"] / "result.json").write_text(text)
        assert typed("-m", *BASE, "name=s", "seed=0,1,2,3", "dry_run=true").code == 0
    done = typed("-m", *BASE, "name=s", "seed=0,1")
    assert done.code == 0 and "1 finished, 1 new" in done.stdout, done.text


@pytest.mark.slow
def test_the_mapping_of_directories_to_words_is_kept(typed: Typed, tmp_path: Path) -> None:
    """B06: long words and slashes give one flat, safe name each; a changed definition extends the sweep."""
    long = ["trainer=smoke", "model=mlp", "model.widths=" + "[" + ",".join(["8"] * 120) + "]", "name=s"]
    assert typed("-m", *long, f"data_dir={tmp_path}/a/b", "seed=0,1").code == 0
    assert typed("-m", *long, f"data_dir={tmp_path}/a/b", "seed=2").code == 0
    found = jobs(tmp_path)
    assert set(found) == {"seed=0", "seed=1", "seed=2"}
    for path in found.values():
        assert result(path)["status"] == "finished" and len(path.name) <= 120 and not set(path.name) & set("/=, ")


def test_a_sweep_over_experiments_and_one_that_sets_a_key_of_one_optimizer(typed: Typed, tmp_path: Path) -> None:
    own = tmp_path / "conf" / "sweep"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(
        "# @package hydra.sweeper\n"
        "product: {experiment: [digits_default, cifar10_resnet18]}\n"
        "list: [{optimizer: adamw}, {optimizer: sgd, optimizer.momentum: 0.5}]\n"
    )
    words = ["-m", "--config-dir", str(tmp_path / "conf"), "sweep=mine", "dry_run=true"]
    done = typed(*words, "trainer.max_epochs=6")
    assert done.code == 0 and "4 jobs" in done.stdout, done.text
    assert "experiment=cifar10_resnet18 optimizer=sgd optimizer.momentum=0.5" in " ".join(done.stdout.split())


def test_the_file_on_the_page_about_sweeps_lists_seven_jobs(typed: Typed, tmp_path: Path) -> None:
    own = tmp_path / "conf" / "sweep"
    own.mkdir(parents=True)
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (own / "mine.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    done = typed("-m", "--config-dir", str(tmp_path / "conf"), "sweep=mine", "dry_run=true")
    assert done.code == 0 and "7 jobs in " in done.stdout, done.text


def test_a_key_for_one_optimizer_alone_is_refused_for_the_other(typed: Typed, tmp_path: Path) -> None:
    """C05"""
    done = typed("-m", "optimizer=sgd,adam", "optimizer.momentum=0.9")
    assert done.code == 2 and "optimizer.momentum" in done.stderr and "optimizer=adam" in done.stderr
    assert "optimizer=sgd" not in done.stderr and not list(tmp_path.iterdir())


def test_a_sweep_file_needs_m(typed: Typed, tmp_path: Path) -> None:
    done = typed("sweep=optimizers")
    assert done.code == 2 and "add -m" in done.stderr and not list(tmp_path.iterdir())


def test_a_sweep_goes_on_by_itself_and_never_elsewhere(typed: Typed, tmp_path: Path) -> None:
    done = typed("-m", *BASE, "seed=0,1", "resume=outputs/digits-mlp/a")
    assert done.code == 2 and done.stderr.startswith("resume=outputs/digits-mlp/a: "), done.text
    assert len(done.text.splitlines()) == 1 and not list(tmp_path.iterdir())
    done = typed("-m", *BASE, "seed=0,1", "resume=auto", "dry_run=true")
    assert done.code == 0 and "2 jobs in outputs/digits-mlp: 2 new" in done.stdout, done.text


def test_missing_data_is_said_once_before_the_first_job(typed: Typed, tmp_path: Path) -> None:
    done = typed("-m", "data=image_folder", "data.num_classes=2", f"data.root={tmp_path}/nowhere", "seed=0,1,2")
    assert done.code == 2 and done.stderr.count("nowhere") == 1, done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("launcher", ["serial", "basic"])
def test_what_is_edited_while_jobs_wait_changes_none(typed: Typed, tmp_path: Path, launcher: str) -> None:
    """The first job appends to the yaml that all were composed from."""
    own = tmp_path / "conf" / "trainer"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("defaults: [default]\nmax_epochs: 1\n")
    words = ["-m", "--config-dir", str(tmp_path / "conf"), "model=mlp", "trainer=mine", f"hydra/launcher={launcher}"]
    edits = f"{{_target_:tests.strangers.Edits,file:{own}/mine.yaml,text:'{{_}}'}}".replace(
        "{_}", "clip_grad_norm: 0.001\\n"
    )
    done = typed(*words, f"+callbacks.edits={edits}", "name=s", "seed=0,1")
    assert done.code == 0, done.text
    assert "clip_grad_norm" in (own / "mine.yaml").read_text()
    for path in jobs(tmp_path).values():
        assert json.loads((path / "run.json").read_text())["config"]["trainer"]["clip_grad_norm"] is None


def test_a_damaged_sweep_file_of_a_sweep_is_named(typed: Typed, tmp_path: Path) -> None:
    assert typed("-m", *BASE, "name=s", "seed=0").code == 0
    (tmp_path / "outputs" / "s" / "sweep.json").write_text("{")
    done = typed("-m", *BASE, "name=s", "seed=0,1")
    assert done.code == 2 and "sweep.json cannot be read" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_hundred_jobs_are_planned_in_seconds(command: Command, tmp_path: Path) -> None:
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    rates = ",".join(f"{number / 1000}" for number in range(1, 51))
    done = command("train.py", "-m", "optimizer=sgd,adamw", f"optimizer.lr={rates}", "seed=0,1", "dry_run=true")
    assert done.code == 0 and "200 jobs" in done.stdout, done.text
    assert sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before < 30  # seconds of processor time


@pytest.mark.slow
def test_hydras_launchers_work_too(command: Command, tmp_path: Path) -> None:
    """joblib: in processes of its own, one thread for each of two jobs on two cores."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ["-m", "model=mlp", "trainer.max_epochs=1", "name=s", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = command("train.py", *words, "seed=0,1,2")
    assert done.code == 0, done.text
    for path in jobs(tmp_path).values():
        assert result(path)["status"] == "finished"
        choices = json.loads((path / "run.json").read_text())["choices"]
        assert choices["num_threads"] == json.loads((path.parent / "sweep.json").read_text())["num_threads"]
