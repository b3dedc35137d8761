"""`--audit`: what a config computes twice, with other workers and threads; the first module that differs is named."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.repeats import change_facts
from torchlite.reproduce import command
from torchlite.reproduce.trace import Mark, Trace, first_difference, kind_of

SMALL = ("model=small_cnn", "model.widths=[16]", "trainer.num_threads=1")


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()

    def run(*words: str) -> tuple[int, str, str]:
        code = command.main([*words, "--audit"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_config_that_repeats(audited: Any, tmp_path: Path) -> None:
    """P7: twice, and with loader workers, every output, gradient and weight is equal."""
    code, out, err = audited(*SMALL, "model.dropout=0.3", "--updates", "4")
    assert code == 0, out + err
    lines = out.splitlines()
    assert lines[:2] == ["the same again: equal in all 4 updates", "2 loader workers: equal in all 4 updates"]
    assert lines[2].startswith("2 threads instead of 1: ") and "checksums of 4 updates compared" in lines[3]
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_threads_are_told_apart_to_the_module(audited: Any) -> None:
    code, out, _ = audited(*SMALL, "model.widths=[32,64]", "data.batch_size=256", "--updates", "6", "--json")
    assert code == 0
    report = json.loads(out)
    assert [row["equal"] for row in report["variations"][:2]] == [True, True]
    difference = report["variations"][2]["first_difference"]
    assert difference["update"] >= 1 and difference["what"].startswith(("the output of ", "the gradient of "))
    assert any(kind in difference["kind"] for kind in ("convolution", "matrix product", "batch statistics"))


@pytest.mark.slow
def test_a_module_that_draws_by_itself_is_named(audited: Any) -> None:
    """A fault of a user's: noise from a generator of its own that is not seeded."""
    own = ["model._target_=tests.repeats.Noisy", "trainer.num_threads=1"]
    code, out, err = audited(*own, "--updates", "2")
    assert code == 3 and "not repeatable: the same again" in err, out + err
    assert "differs from update 1 on, first in the output of noise (Noise)" in out


@pytest.mark.slow
def test_a_recorded_run_can_be_audited(audited: Any, recorded: Path) -> None:
    code, out, err = audited(str(recorded), "--updates", "2")
    assert code == 0 and "the same again: equal in all 2 updates" in out, out + err


def test_a_record_is_trusted_no_further_than_where_it_is_repeated(
    audited: Any, recorded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No pickle is opened, whatever a library asks for; and no secret is used."""
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    torch.save({"model": Path("an object")}, tmp_path / "evil.pt")

    def marks(*_: Any) -> list[Mark]:
        with pytest.raises(pickle.UnpicklingError):
            torch.load(tmp_path / "evil.pt", weights_only=False)
        return [Mark(1, "\x1b[2J", "k", 1)]

    monkeypatch.setattr("torchlite.reproduce.audit.marks", marks)
    assert audited(str(recorded))[0] == 0
    secret = {"_target_": "torchlite.callbacks.EarlyStopping", "note": "${oc.env:DEPLOY_KEY}"}
    change_facts(recorded, lambda facts: facts["config"]["callbacks"].update(x=secret))
    monkeypatch.setenv("DEPLOY_KEY", "7")
    code, _, err = audited(str(recorded))
    assert code == 2 and err.startswith("callbacks.x.note: ") and "--allow-env DEPLOY_KEY" in err
    assert audited(str(recorded), "--allow-env", "DEPLOY_KEY")[0] == 0


def test_wrong_words_are_refused(audited: Any) -> None:
    code, _, err = audited("optimzer=sgd", "trainer.max_epoch=3")
    assert code == 2 and "Did you mean optimizer?" in err and "trainer.max_epochs" in err
    for words in (["--updates", "0"], ["--updates", "-4"], ["--num-threads", "2"], ["--tolerance", "0.1"]):
        code, _, err = audited("model=mlp", *words)
        assert code == 2 and words[0] in err and len(err.splitlines()) == 1


def test_as_many_updates_are_told_of_as_there_were(audited: Any) -> None:
    words = ["model=mlp", "trainer.max_epochs=1", "trainer.limit_train_batches=2", "trainer.num_threads=1"]
    code, out, err = audited(*words, "--updates", "50")
    assert code == 0 and "the same again: equal in all 2 updates" in out and "of 2 updates compared" in out, out + err


def test_one_run_is_audited(audited: Any, recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, recorded.with_name("20260101-000000-0123456789ab"))
    code, _, err = audited(str(tmp_path / "given"))
    assert code == 2 and "holds 2 runs; name one" in err


def test_kinds_of_operation() -> None:
    assert kind_of(nn.Conv2d(1, 1, 1)) == "a convolution, Conv2d"
    assert kind_of(nn.BatchNorm2d(1)) == "batch statistics, BatchNorm2d"
    assert kind_of(nn.ReLU()) == "ReLU"


def test_the_first_mark_that_differs() -> None:
    marks = [Mark(1, "a", "k", 1), Mark(1, "b", "k", 2), Mark(2, "a", "k", 3)]
    assert first_difference(marks, list(marks)) is None
    assert first_difference(marks, [marks[0], Mark(1, "b", "k", 9), marks[2]]) == Mark(1, "b", "k", 9)
    ended = first_difference(marks, marks[:2])
    assert ended is not None and "number" in ended.what


def test_a_trace_leaves_no_hook_behind() -> None:
    from types import SimpleNamespace

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    trace = Trace(1)
    trace.on_fit_begin(SimpleNamespace(model=model, progress=SimpleNamespace(update=0)))
    model(torch.ones(1, 2)).sum().backward()
    names = [mark.what for mark in Trace.marks]
    assert names == ["the output of 0", "the output of 1", "the gradient of 0.bias", "the gradient of 0.weight"]
    trace.close()
    model(torch.ones(1, 2)).sum().backward()
    assert len(Trace.marks) == 4
