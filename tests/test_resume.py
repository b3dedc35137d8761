"""A run that was cut off and continued equals one that was not, to the bit: wherever it is cut, whatever it does."""

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.conftest import Typed
from tests.runs import BASE, assert_same_run, lines, result, state, the_run

# What a run may do
VARIANTS = {
    "plain": [],
    "small_cnn and dropout": ["model=small_cnn", "model.widths=[8,8]", "model.dropout=0.5"],
    "sgd": ["optimizer=sgd"],
    "rmsprop": ["optimizer=rmsprop", "optimizer.momentum=0.5"],
    "micro-batches, a trailing window": ["trainer.micro_batch_size=24", "data.drop_last=false"],
    "ema": ["trainer.ema_decay=0.9"],
    "swa": ["trainer.swa_start_epoch=1", "model.norm=batch"],
    "early stopping": ["callbacks=early_stopping", "callbacks.early_stopping.patience_validations=1", "optimizer.lr=0"],
    "bf16": ["trainer.precision=bf16", "model=small_cnn", "model.widths=[8]"],
    "channels last": ["trainer.channels_last=true", "model=small_cnn", "model.widths=[4,8]", "optimizer=adam"],
    "fp16": ["trainer.precision=fp16", "model.dropout=0.2"],
    "validation within the epoch": ["trainer.validate_every_updates=5", "trainer.smooth_validations=2"],
    "mixup": ["data.augment=[{_target_:torchlite.data.mixing.MixUp,alpha:0.4}]", "data.drop_last=false"],
    "cutmix": ["data.augment=[{_target_:torchlite.data.mixing.CutMix,alpha:1.0}]", "trainer.micro_batch_size=30"],
    "from files, by two workers": ["data.in_memory=false", "data.num_workers=2"],
    "clipping": ["trainer.clip_grad_norm=0.5", "trainer.clip_grad_value=0.1"],
    "freezing": ["+callbacks.freeze={_target_:torchlite.callbacks.Freeze,patterns:['*weight'],until_epoch:1}"],
    **{name: [f"scheduler={name}"] for name in ("cosine", "onecycle", "step", "plateau", "constant")},
    "multistep": ["scheduler=multistep", "scheduler.milestones_epochs=[1,2]"],
    "a callback that draws": ["+callbacks.draws._target_=tests.strange_callbacks.Draws", "model.dropout=0.3"],
    "loss weights": [
        "+callbacks.weights={_target_:torchlite.callbacks.LossWeights,attribute:label_smoothing,values:{0:0.1,4:0.5}}"
    ],
    "torch's own schedule": ["--config-dir", "conf", "scheduler=mine"],
}


# Those that every test run tries; the rest are slow
OFTEN = (
    "plain",
    "a callback that draws",
    "micro-batches, a trailing window",
)


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in VARIANTS]
)
def test_stopped_in_mid_epoch_and_resumed_equals_straight(stopped: Typed, tmp_path: Path, variant: str) -> None:
    """D01, D02, D04, D06"""
    (tmp_path / "conf" / "scheduler").mkdir(parents=True)
    yaml = "_target_: torch.optim.lr_scheduler.ExponentialLR\ngamma: 0.5\n"
    (tmp_path / "conf" / "scheduler" / "mine.yaml").write_text(yaml)
    words = [*VARIANTS[variant], *BASE[0 if "model=small_cnn" not in VARIANTS[variant] else 2 :]]
    done = stopped(None, *words, "name=straight")
    assert done.code == 0, done.text
    assert stopped(7, *words, "name=cut").code == 143
    assert stopped(17, *words, "name=cut", "resume=auto").code == 143  # the end of an epoch, unless drop_last is off
    assert stopped(23, *words, "name=cut", "resume=auto").code in (143, 0)  # early stopping ends before
    done = stopped(None, *words, "name=cut", "resume=auto")
    assert done.code == 0, done.text
    assert_same_run(the_run(tmp_path / "outputs" / "straight"), the_run(tmp_path / "outputs" / "cut"))


def test_the_same_run_twice_is_the_same(typed: Typed, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert typed(*BASE[2:], "model=small_cnn", "model.widths=[8]", f"name={name}").code == 0
    assert_same_run(the_run(tmp_path / "outputs" / "one"), the_run(tmp_path / "outputs" / "two"))


@pytest.mark.slow
def test_resumed_after_each_epoch(stopped: Typed, tmp_path: Path) -> None:
    """D02: warm-up and cosine, stopped after epochs 2, 3 and 4 of 10: the rate of every update is the straight run's."""
    words = ["model=mlp", "trainer.max_epochs=10", "scheduler.warmup_epochs=3", "trainer.log_every_updates=1"]
    assert stopped(None, *words, "name=straight").code == 0
    for update in (2 * 17, 3 * 17, 4 * 17):
        assert stopped(update, *words, "name=cut", *(["resume=auto"] if update > 34 else [])).code == 143
    assert stopped(None, *words, "name=cut", "resume=auto").code == 0
    both = [lines(the_run(tmp_path / "outputs" / name)) for name in ("straight", "cut")]
    rates = [[line["lr"] for line in run if "lr" in line] for run in both]
    assert rates[0] == rates[1] and len(rates[0]) == 170


def test_no_sample_is_left_out_or_seen_twice(stopped: Typed, tmp_path: Path) -> None:
    """D01: the samples of each update, written down by both runs."""
    words = [*BASE, "+callbacks.ids={_target_:tests.strangers.Ids,file:'${name}.txt'}"]
    assert stopped(None, *words, "name=straight").code == 0
    assert stopped(20, *words, "name=cut").code == 143
    assert stopped(None, *words, "name=cut", "resume=auto").code == 0
    assert (tmp_path / "cut.txt").read_text() == (tmp_path / "straight.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_workers_and_memory_change_no_bit(typed: Typed, tmp_path: Path, workers: int) -> None:
    """P7, T13: the same run from memory, and from loader workers of any number."""
    words = [
        "model=small_cnn",
        "model.widths=[8]",
        "model.dropout=0.3",
        "trainer.max_epochs=2",
        "trainer.num_threads=1",
    ]
    words += [
        "data.augment=[{_target_:torchlite.data.augment.RandomCrop,padding:2},{_target_:torchlite.data.mixing.MixUp}]"
    ]
    assert typed(*words, "name=memory").code == 0
    done = typed(*words, "name=workers", "data.in_memory=false", f"data.num_workers={workers}")
    assert done.code == 0, done.text
    one, other = the_run(tmp_path / "outputs" / "memory"), the_run(tmp_path / "outputs" / "workers")
    facts = json.loads((other / "run.json").read_text())
    assert facts["choices"]["in_memory"] is False and facts["choices"]["num_workers"] == workers
    assert_same_run(one, other)


# Which run goes on


def test_a_directory_alone_is_enough(stopped: Typed, typed: Typed, tmp_path: Path) -> None:
    """B04: the run's own words are in its record, and it stays where it is."""
    assert stopped(20, *BASE, "optimizer=sgd", "seed=5").code == 143
    run = the_run(tmp_path / "outputs")
    time.sleep(1.1)
    done = typed(f"resume={run}")
    assert done.code == 2 and "tests.strangers.Signal" in done.stderr  # a module of one's own has to be typed again
    done = stopped(None, *BASE, "optimizer=sgd", "seed=5", f"resume={run}")
    assert done.code == 0, done.text
    assert the_run(tmp_path / "outputs") == run
    assert result(run)["status"] == "finished" and "going on after update 20" in done.stdout


@pytest.mark.slow
def test_a_directory_alone_is_enough_without_modules_of_ones_own(typed: Typed, tmp_path: Path) -> None:
    words = [*BASE, "optimizer=sgd", "seed=5"]
    assert typed(*words, "name=straight").code == 0
    assert typed(*words, "name=cut", "trainer.max_minutes=0.00001").code == 75
    run = the_run(tmp_path / "outputs" / "cut")
    done = typed(f"resume={run}", "trainer.max_minutes=0.00002")  # a limit of the machine's: it changes nothing else
    assert done.code == 75 and "trainer.max_minutes=2e-05 are over" in done.stderr, done.text
    done = typed(f"resume={run}", "trainer.max_minutes=null")
    assert done.code == 0, done.text
    assert lines(run) == lines(the_run(tmp_path / "outputs" / "straight"))


@pytest.mark.slow
def test_another_time_limit_and_another_logger_make_no_other_run(typed: Typed, tmp_path: Path) -> None:
    words = [*BASE, "name=cut", "resume=auto"]
    for word in ("trainer.max_minutes=0.00001", "trainer.max_minutes=0.00002", "callbacks.tensorboard=null"):
        assert typed(*words, "trainer.max_minutes=0.00003", word).code == 75
    assert typed(*words).code == 0
    assert result(the_run(tmp_path / "outputs"))["status"] == "finished"


@pytest.mark.slow
def test_a_checkpoint_can_be_named_without_quoting(stopped: Typed, tmp_path: Path) -> None:
    """A02: our own paths need none; a name with `=` in it works quoted, and the message shows how."""
    assert stopped(20, *BASE, "name=cut").code == 143
    last = the_run(tmp_path / "outputs") / "checkpoints" / "last.pt"
    odd = shutil.copy(last, last.with_name("epoch=3-step=40.ckpt"))
    done = stopped(None, *BASE, f"resume={odd}")
    assert done.code == 2 and f"'resume=\"{odd}\"'" in done.stderr
    done = stopped(None, *BASE, f'resume="{odd}"')
    assert done.code == 0 and "going on after update 20" in done.stdout, done.text
    shutil.rmtree(tmp_path / "outputs")
    assert stopped(20, *BASE, "name=cut").code == 143
    assert (
        stopped(
            None, *BASE, f"resume={last.parent.parent.parent.parent / 'cut' / the_run(tmp_path / 'outputs').name}"
        ).code
        == 0
    )


def test_auto_means_new_when_there_is_none_and_says_finished(typed: Typed, tmp_path: Path) -> None:
    """P03"""
    words = ["trainer=smoke", "model=mlp", "resume=auto"]
    assert typed(*words).code == 0
    run = the_run(tmp_path / "outputs")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}
    done = typed(*words)
    assert done.code == 0
    assert done.stdout == f"already finished, nothing to train: {run.relative_to(tmp_path)}\n"
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}
    assert typed(*words, "seed=1").code == 0 and len(list((tmp_path / "outputs").rglob("result.json"))) == 2


def test_auto_starts_again_in_a_directory_without_a_checkpoint(typed: Typed, tmp_path: Path) -> None:
    assert typed("trainer=smoke", "model=mlp").code == 0
    run = the_run(tmp_path / "outputs")
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").write_text('{"status": "running"}')
    assert typed("trainer=smoke", "model=mlp", "resume=auto").code == 0
    assert the_run(tmp_path / "outputs") == run and result(run)["status"] == "finished"
    assert len(lines(run)) == 2


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("optimizer.lr=0.01", "optimizer.lr was 0.003, is 0.01"),  # D08
        ("trainer.max_epochs=9", "trainer.max_epochs was 3, is 9"),
        ("model.widths=[32]", "model.widths was [16], is [32]"),
        ("optimizer=sgd", "optimizer._target_ was"),
    ],
)
def test_other_settings_are_refused_with_the_way_to_go(
    stopped: Typed, tmp_path: Path, word: str, expected: str
) -> None:
    assert stopped(20, *BASE).code == 143
    done = stopped(None, *BASE, word, f"resume={the_run(tmp_path / 'outputs')}")
    assert done.code == 2
    assert expected in done.stderr and "model.weights=" in done.stderr


def test_the_setting_that_was_typed_is_the_first_that_is_named(stopped: Typed, tmp_path: Path) -> None:
    """Beside it the defaults stand for all that was not typed again."""
    assert stopped(20, *BASE, "seed=4", "optimizer=sgd", "data.batch_size=32").code == 143
    done = stopped(None, "trainer.max_epochs=9", f"resume={the_run(tmp_path / 'outputs')}")
    assert done.code == 2 and "typed: trainer.max_epochs was 3, is 9; " in done.stderr, done.text


@pytest.mark.parametrize("resume", ["nowhere", "."])
def test_what_is_no_run_is_refused(typed: Typed, resume: str) -> None:
    done = typed(f"resume={resume}")
    assert done.code == 2 and f"resume={resume}" in done.stderr and len(done.text.splitlines()) == 1


def test_a_living_run_is_left_alone(typed: Typed, tmp_path: Path) -> None:
    from torchlite.record import Record

    assert typed("trainer=smoke", "model=mlp").code == 0
    run = the_run(tmp_path / "outputs")
    (run / "result.json").write_text(json.dumps({"status": "running", "process": 4242}))
    with Record(run, {}).hold():
        done = typed("trainer=smoke", "model=mlp", f"resume={run}")
        assert done.code == 2 and "is being written by process 4242" in done.stderr
        assert typed("trainer=smoke", "model=mlp", "resume=auto", "name=other").code == 0
    assert len(list((tmp_path / "outputs").rglob("result.json"))) == 2


# Best and last


def test_the_best_checkpoint_stays_when_later_epochs_are_worse(stopped: Typed, tmp_path: Path) -> None:
    """D05"""
    words = [*BASE, "trainer.max_epochs=5", "+callbacks.ruin={_target_:tests.strangers.Ruin,epoch:3}"]
    assert stopped(17 * 3 + 5, *words).code == 143
    run = the_run(tmp_path / "outputs")
    before = (run / "checkpoints" / "best.pt").read_bytes()
    best = state(run)["progress"]["best"]
    assert stopped(None, *words, "resume=auto").code == 0
    assert (run / "checkpoints" / "best.pt").read_bytes() == before
    assert result(run)["best"] == best


def test_a_run_that_stopped_early_trains_no_further(typed: Typed, tmp_path: Path) -> None:
    """D04"""
    words = [
        "callbacks=early_stopping",
        "callbacks.early_stopping.patience_validations=2",
        "model=mlp",
        "optimizer.lr=0",
    ]
    assert typed(*words).code == 0
    run = the_run(tmp_path / "outputs")
    (run / "result.json").write_text('{"status": "running"}')  # as if it had been killed before its end
    done = typed(*words, "resume=auto")
    assert done.code == 0, done.text
    assert result(run)["last"]["epoch"] == 3 and len([line for line in lines(run) if "val/acc1" in line]) == 3


def test_a_loss_weight_is_kept_by_a_resume_after_the_last_epoch(stopped: Typed, tmp_path: Path) -> None:
    weight = "{_target_:torchlite.callbacks.LossWeights,attribute:label_smoothing,values:{0:0.0,4:0.8}}"
    words = [*BASE, f"+callbacks.weights={weight}"]
    assert stopped(None, *words, "name=straight").code == 0
    assert stopped(51, *words, "name=cut").code == 143  # the last update of the last epoch
    assert stopped(None, *words, "name=cut", "resume=auto").code == 0
    straight, cut = (result(the_run(tmp_path / "outputs" / name)) for name in ("straight", "cut"))
    assert straight["test"] == cut["test"]
