"""Wrong words: each refused with its key named and the right one suggested, exit code 2, and nothing created."""

from pathlib import Path

import pytest

from tests.conftest import ROOT, Command, Typed

# words typed, then what the message has to hold
TYPOS = [
    ("trainer.max_epoch=3", "trainer.max_epoch", "Did you mean trainer.max_epochs?"),  # A01
    ("+trainer.max_epoch=3", "trainer.max_epoch", "Did you mean max_epochs?"),  # A01
    ("optimzer=sgd", "optimzer", "Did you mean optimizer?"),
    ("optimizer=sdg", "optimizer=sdg", "Did you mean sgd?", "adam, adamw, rmsprop, sgd, timm"),  # A06
    ("model=resnet99", "model=resnet99", "Did you mean resnet18?"),  # A06
    ("experiment=cifar_resnet", "experiment=cifar_resnet", "Did you mean cifar10_resnet18?"),
    ("experimnt=digits_default", "experimnt", "Did you mean experiment?"),
    ("optimizer.lr=abc", "optimizer.lr=abc", "a number"),
    ("trainer.max_epochs=three", "trainer.max_epochs=three", "a whole number"),
    ("trainer.max_epochs=1e1", "trainer.max_epochs=10.0", "a whole number"),
    ("trainer.compile=1", "trainer.compile=1", "true or false"),
    ("trainer.max_epochs=true", "trainer.max_epochs=True", "a whole number"),
    ("model.norm=bach", "model.norm=bach", "one of batch, group, layer"),
    ("model.widths=64", "model.widths=64", "a list"),
    ("seed=07", "seed=07", "a whole number"),
    ("dry_run=maybe", "dry_run=maybe", "true or false"),
    ("trainer.clip_grad_norm=None", "trainer.clip_grad_norm=None", "null"),  # A04
    ("scheduler=None", "scheduler=None", "constant, cosine"),  # A04
    ("scheduler=null", "scheduler=null", "constant, cosine"),  # A04
    (
        "optimizer=adamw optimizer.momentum=0.9",
        "optimizer.momentum",
        "betas, eps, lr, weight_decay",
    ),  # stale after a swap
    ("+optimizer.params=[]", "optimizer.params", "only the run knows this"),
    ("+scheduler.total_updates=5", "scheduler.total_updates", "only the run knows this"),
    ("+data.device=cpu", "data.device", "only the run knows this"),
    ("model._target_=torchvison.models.resnet18", "model._target_", "Did you mean torchvision?"),
    ("model._target_=torchlite.models.SmallCNNN", "model._target_", "Did you mean SmallCNN?"),
    ("optimizer._target_=torch.nn.Linear", "optimizer._target_", "Optimizer classes"),
    ("model=timm ~model.model_name", "model", "needs model_name"),  # missing required
    ("model.num_classes=???", "model.num_classes", "this has to be given"),
    ("data=image_folder", "data.root: this has to be given", "data.num_classes: this has to be given"),
    ("model=mlp,small_cnn", "model=mlp,small_cnn", "add -m"),  # A07
    ("optimizer.lr=0.1,0.01", "optimizer.lr=0.1,0.01", "add -m"),  # A07
    ("optimizer.amsgrad=true", "optimizer.amsgrad", "+optimizer.amsgrad=true"),
    ("+optimizr.lr=1", "optimizr", "Did you mean optimizer?"),
    ("+data.preprocess.men=[0.1]", "data.preprocess.men", "Did you mean mean?"),  # nested target
    ("data.augment=[{_target_:torchlite.data.augment.RandomCrop,paddng:2}]", "data.augment[0].paddng", "padding"),
    ("trainer.monitor=val/acc", "trainer.monitor=val/acc", "val/loss, val/acc1"),  # J03
    ("callbacks=early_stopping +callbacks.early_stopping.monitor=val_los", "callbacks.early_stopping.monitor"),  # J03
    ("scheduler=plateau data.val_fraction=0", "scheduler", "data.val_fraction"),
    ("callbacks=early_stopping data.val_fraction=0", "callbacks.early_stopping", "data.val_fraction"),
    ("data.preprocess.mean=[0.1,0.2]", "data.preprocess.mean", "data.channels=1"),
    ("scheduler.warmup_epochs=31", "scheduler.warmup_epochs=31", "trainer.max_epochs=30"),  # G05
    ("trainer.max_epochs=0", "trainer.max_epochs=0", "nothing would be trained"),  # P03
    ("trainer.save_pause_seconds=-1", "trainer.save_pause_seconds=-1", "from 0 upwards"),
    ("optimizer.lr=inf", "optimizer.lr=inf", "a finite number"),
    ("task.class_weights=[1,1,1,1,1,1,1,1,1,nan]", "task.class_weights[9]=nan", "a finite number"),
    ("model.dropout=nan", "model.dropout=nan", "a finite number"),
    ("model.weights=nowhere.pt", "model.weights=nowhere.pt", "there is no such file"),
    ("callbacks=early_stopping callbacks.early_stopping.min_delta=-1", "min_delta=-1"),
    ("name=a/b", "name=a/b", "names a directory"),
    ("model.norm=[", "model.norm=[", "Quote the value"),
    ("data.root=a b=c", "data.root=a b=c", "Quote the value"),
    ("bare", "bare", "key=value"),
    ("model._target_=[a]", "model._target_", "dotted import path"),
    ("~seed", "seed: this key is required"),
    ("data.train=null", "data.train=None"),
    ("optimizer.betas=[2,3]", "optimizer: AdamW refuses its arguments: Invalid beta"),
    ("scheduler=step scheduler.gamma=5", "scheduler.gamma=5"),
    ("callbacks=early_stopping callbacks.early_stopping.patience_validations=0", "patience_validations=0"),
    ("lr=0.1", "lr: no such key", "Did you mean optimizer.lr?"),
    ("epochs=3", "epochs: no such key", "Did you mean trainer.max_epochs?"),
    ("workers=2", "workers: no such key", "Did you mean data.num_workers?"),
    ("mode=x", "mode: no such key", "Did you mean model?"),
    ("optimizer=SGD", "optimizer=SGD", "Did you mean sgd?"),
    ("callbacks.mine._target_=tests.strangers.Spy", "callbacks.mine", "+callbacks.mine._target_=tests.strangers.Spy"),
    ("--config-dir nowhere model=mine", "--config-dir nowhere", "no such directory"),
    ("experiment=null", "experiment=null", "Leave it out"),
    ("experiment=digits_default experiment=null", "experiment=null", "Leave it out"),
    ("hydra.run.dir=x", "hydra.run.dir=x", "name=NAME"),
    ("model=mlp --config-dir nowhere seed=1", "--config-dir nowhere", "no such directory"),
    ("--confg-dir conf seed=1", "--confg-dir", "--hydra-help"),
    ("seed=1 --config-dir", "--config-dir", "--hydra-help"),
    ("--info seed=1", "--info", "--hydra-help"),
    ("task.class_weights=[1,1,1,1,1,1,1,1,1,-5]", "task.class_weights", "above 0"),
    ("trainer.precision=fp23", "trainer.precision=fp23", "one of auto, fp32, bf16, fp16 is wanted."),
    ("seed=99999999999999999999", "seed=99999999999999999999", "63 bits"),
    ("trainer._target_=torchlite.trainer.Progress", "trainer._target_", "Trainer classes"),
    ("trainer.clip_gradients=5", "trainer.clip_gradients=5", "a node"),
]


@pytest.mark.parametrize("case", TYPOS, ids=[case[0] for case in TYPOS])
def test_a_typo_is_refused_by_name(typed: Typed, tmp_path: Path, case: tuple[str, ...]) -> None:
    words, *expected = case
    done = typed(*([words] if words.startswith("data.root") else words.split()))
    assert done.code == 2, done.text
    assert all(text in done.stderr for text in expected), done.text
    assert len(done.text.splitlines()) < 15
    assert not list(tmp_path.iterdir()), "something was created"


def test_every_wrong_word_is_named_at_once(typed: Typed) -> None:
    done = typed("optimzer=sgd", "trainer.max_epoch=3", "model=resnet99")
    assert done.code == 2
    assert all(word in done.stderr for word in ("optimzer", "trainer.max_epoch", "model=resnet99"))


def test_every_wrong_value_is_named_at_once(typed: Typed) -> None:
    done = typed("optimizer.lr=abc", "trainer.max_epochs=three", "+model.depth=3")
    assert done.code == 2
    assert all(word in done.stderr for word in ("optimizer.lr", "trainer.max_epochs", "model.depth"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("optimizer=sgd,sdg", "Did you mean sgd?"),  # A06
        ("optimizer=sgd,adam optimizer.momentum=0.9", "optimizer.momentum: no such key in optimizer"),  # C05
        ("optimizer.lr=0.1,abc", "optimizer.lr=abc"),
        ("seed=0,1 trainer.monitor=val/los", "trainer.monitor=val/los"),  # J03
        ("seed=0,1 optimzer=sgd", "Did you mean optimizer?"),
        ("optimizer.lr=0.1,-1", "Invalid learning rate: -1"),
        ("data_dir=a,b", "two jobs would compute the same"),
        ("optimizer=adamw seed=0,1,0", "two jobs would compute the same"),
        ("optimizer=adamw,sgd,adam optimizer.momentum=0.9", "(job optimizer=adam optimizer.momentum=0.9)"),
        ("experiment=digits_default,null", "experiment=null: no such option. Leave it out"),
        ("model.dropout=0.1,2", "model.dropout=2: give a probability from 0 to 1"),
        ("seed=0,1 hydra.sweep.dir=x", "hydra.sweep.dir=x"),
        ("seed=0,1 trainer.max_epoc=1,2", "Did you mean trainer.max_epochs?"),
    ],
)
def test_a_sweep_is_refused_as_a_whole(typed: Typed, tmp_path: Path, words: str, expected: str) -> None:
    done = typed("-m", *words.split())
    assert done.code == 2, done.text
    assert expected in done.stderr
    assert len(done.text.splitlines()) < 15
    assert not list(tmp_path.iterdir())


# Refused only when the objects are built: the directory that was claimed goes again
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("model.widths=[]", "model.widths"),
        ("model=mlp model.widths=[0]", "model.widths=[0]"),
        ("model=mlp model.dropout=-0.5", "model.dropout=-0.5: give a probability"),
        ("trainer.device=meta", "trainer.device=meta"),
        ("trainer.num_threads=100000", "trainer.num_threads=100000"),
        ("data.batch_size=100000", "data.batch_size"),
        ("trainer.device=gpu", "trainer.device=gpu cannot be used here"),
        ("model=timm model.model_name=resnet19", "Unknown model"),
        ("data=mnist data_dir=./nowhere", "./nowhere"),
        ("model.num_classes=3", "needs [batch, 10]"),
        ("+callbacks.x._target_=tests.strangers.make_task", "no torchlite.callbacks.Callback"),
    ],
)
def test_a_refused_value_leaves_nothing_behind(typed: Typed, tmp_path: Path, word: str, expected: str) -> None:
    done = typed("optimizer=sgd", *word.split())
    assert done.code == 2 and expected in done.stderr, done.text
    assert not list((tmp_path / "outputs").rglob("result.json"))
    assert not list(tmp_path.glob("nowhere"))


def test_words_may_stand_on_both_sides_of_a_flag(typed: Typed, tmp_path: Path) -> None:
    own = tmp_path / "conf" / "optimizer"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("_target_: torch.optim.SGD\nlr: 0.1\n")
    done = typed("optimizer=mine", "--config-dir", "conf", "seed=1", "dry_run=true")
    assert done.code == 0 and "optimizer=mine seed=1" in done.stdout, done.text
    done = typed("optimizer=mine", "-m", "seed=1,2", "--config-dir", "conf", "dry_run=true", "model=mlp")
    assert done.code == 0 and "2 jobs" in done.stdout, done.text


@pytest.mark.parametrize(
    "text", ["lr: [1", "a:\tb", "{{", "lr: 1\nlr: 2", "\xff\xfe"], ids=["open", "tab", "braces", "twice", "encoding"]
)
def test_a_broken_yaml_of_ones_own_is_named(typed: Typed, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "conf" / "optimizer"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_bytes(text.encode("latin-1"))
    done = typed("--config-dir", "conf", "optimizer=mine")
    assert done.code == 2 and "Traceback" not in done.text and len(done.text.splitlines()) < 5, done.text


def test_a_wrong_monitor_direction_is_warned_about(typed: Typed) -> None:
    """J03"""
    done = typed("trainer=smoke", "trainer.monitor_mode=min")
    assert done.code == 0
    assert "trainer.monitor_mode=min keeps the worst val/acc1" in done.text


def test_refusing_a_word_imports_no_torch(command: Command, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(
        f"import sys, runpy\nsys.path.insert(0, {str(ROOT)!r})\nsys.argv = ['train.py', sys.argv[1]]\n"
        "from torchlite import command_line\nimport train\ncode = command_line.command(train.main)\n"
        "print(code, sorted({'torch', 'torchvision', 'timm'} & set(sys.modules)))\n"
    )
    for word in ("optimizer=sdg", "optimzer=sgd", "sed=1"):
        done = command(str(probe), word, cwd=tmp_path)
        assert done.stdout.strip() == "2 []", done.text


def test_the_exit_code_reaches_the_shell(command: Command, tmp_path: Path) -> None:
    done = command("train.py", "optimzer=sgd")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == "optimzer: no such key. Did you mean optimizer?\n"
    assert not list(tmp_path.iterdir())
