"""Digests of updates: what they catch, what they do not depend on, how often they are taken, and what a resume cuts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.conftest import Typed
from tests.runs import BASE, the_run
from torchlite.digests import Digests, checksum, lines_kept, weights_digest
from torchlite.randomness import hash_bits


def digests(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "digests.jsonl").read_text().splitlines()]


def test_every_update_of_a_small_run_is_digested(typed: Typed, tmp_path: Path) -> None:
    assert typed(*BASE[:2], "trainer.max_epochs=2", "trainer.log_every_updates=7").code == 0
    run = the_run(tmp_path / "outputs")
    lines = digests(run)
    assert [line["update"] for line in lines] == [0, *range(1, 18), 17, *range(18, 35), 34]
    assert lines[0].keys() == {"every", "update", "weights"} and lines[0]["every"] == 1
    assert lines[2].keys() == {"update", "ids", "lr", "targets", "images", "loss", "grad_norm"}
    assert [line["update"] for line in lines if "weights" in line] == [0, 1, 10, 17, 34]
    final = torch.load(run / "checkpoints" / "last.pt", weights_only=True)["model"]
    network = SimpleNamespace(state_dict=lambda: final)
    assert lines[-1]["weights"] == weights_digest(network)  # type: ignore[arg-type]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    by_update = {line["update"]: line for line in lines if "loss" in line}
    logged = [line for line in metrics if "grad_norm" in line]
    assert logged and all(line["grad_norm"] == pytest.approx(by_update[line["update"]]["grad_norm"]) for line in logged)
    first = [by_update[update]["loss"] for update in range(1, 8)]
    assert logged[0]["update/loss"] == pytest.approx(sum(first) / 7, rel=1e-6)


def test_micro_batches_give_the_loss_of_the_whole_update(typed: Typed, tmp_path: Path) -> None:
    losses = []
    for name, words in {"whole": [], "cut": ["trainer.micro_batch_size=24"]}.items():
        assert typed("trainer=smoke", "model=mlp", f"name={name}", *words).code == 0
        losses.append([line["loss"] for line in digests(the_run(tmp_path / "outputs" / name)) if "loss" in line])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4) and losses[0] != losses[1]


def test_what_a_checkpoint_counts_is_kept_and_the_rest_is_cut(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(20, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    state = torch.load(run / "checkpoints" / "last.pt", weights_only=True)
    before = (run / "digests.jsonl").read_text()
    assert lines_kept(state) == (6, len(before.splitlines())) == (6, 1 + 20 + 1)
    (run / "digests.jsonl").write_text(before + '{"update": 99}\n')
    assert stopped(None, *BASE, "resume=auto").code == 0
    assert (run / "digests.jsonl").read_text().startswith(before) and 99 not in [d["update"] for d in digests(run)]
    assert lines_kept(None) == (None, 0)
    assert lines_kept({"progress": {"lines": 3}, "callbacks": {}}) == (3, 0)  # of before there were digests


def test_lost_lines_are_said(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(20, *BASE).code == 143
    (the_run(tmp_path / "outputs") / "digests.jsonl").unlink()
    done = stopped(None, *BASE, "resume=auto")
    assert done.code == 2 and "digests.jsonl has lost lines" in done.stderr


# The checksum of a batch

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def changed(kind: str) -> torch.Tensor:
    images = IMAGES.clone()
    if kind == "one image flipped":
        images[2] = images[2].flip(-1)
    elif kind == "one shifted":
        images[2] = images[2].roll(1, -2)
    elif kind == "two pixels swapped":
        images[1, 0, 0, [0, 1]] = images[1, 0, 0, [1, 0]]
    elif kind == "channels swapped":
        images[4] = images[4].flip(0)
    elif kind == "the last bit of one value":
        images.view(torch.int32)[3, 1, 4, 4] ^= 1
    elif kind == "the sign of a zero":
        images[0, 0, 0, 0] = -0.0
    elif kind == "one image of another":
        images[5] = images[0]
    elif kind == "all brighter":
        images += 0.01
    return images


KINDS = ("one image flipped", "one shifted", "two pixels swapped", "channels swapped", "the last bit of one value")
KINDS += ("the sign of a zero", "one image of another", "all brighter")


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_seen(kind: str) -> None:
    original = IMAGES.clone()
    original[0, 0, 0, 0] = 0.0 if kind == "the sign of a zero" else original[0, 0, 0, 0]
    assert checksum(changed(kind)) != checksum(original)


@given(st.integers(0, 5), st.integers(0, 191), st.integers(0, 31))
def test_any_single_bit_is_seen(sample: int, value: int, bit: int) -> None:
    images = IMAGES.clone().reshape(6, -1)
    images.view(torch.int32)[sample, value] ^= 1 << bit if bit < 31 else -(1 << 31)
    assert checksum(images) != checksum(IMAGES.reshape(6, -1))


@pytest.mark.parametrize("shape", [(5, 3), (4, 1, 7, 7), (1, 9), (3, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_layout_and_threads_do_not_count(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 9).to(dtype)
    wide = torch.stack([values, values], dim=-1)[..., 0]  # the same numbers with gaps between them
    assert not wide.is_contiguous() and int(checksum(wide)) == int(checksum(values))
    assert int(checksum(values.to(torch.float32))) == int(checksum_by_torch(values.to(torch.float32)))
    if len(shape) == 4:
        assert int(checksum(values.to(memory_format=torch.channels_last))) == int(checksum(values))


def checksum_by_torch(values: torch.Tensor) -> int:
    """What an accelerator computes."""
    bits = values.reshape(len(values), -1).contiguous()
    bits = bits.view(torch.int64 if bits.shape[1] % 2 == 0 else torch.uint8)
    factors = hash_bits(0, 0, torch.arange(bits.shape[1]), 1, 0)[:, 0] | 1
    return int((bits.sum(0) * factors).sum())


def test_labels_that_change_places_are_seen() -> None:
    labels = torch.tensor([3, 1, 2, 2])
    assert checksum(labels) != checksum(labels[[1, 0, 2, 3]])


def test_weights_count_with_their_names_and_buffers() -> None:
    one = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = weights_digest(one)
    assert before == weights_digest(one) and len(before) == 16
    one[1].num_batches_tracked += 1
    assert weights_digest(one) != before


# How often


@pytest.mark.parametrize(
    ("network", "shape", "total", "every"),
    [
        (nn.Linear(4, 2), (64, 1, 8, 8), 500, 1),
        (nn.Linear(4, 2), (128, 1, 28, 28), 500, 32),
        (nn.Conv2d(3, 2, 3), (128, 3, 32, 32), 500, 1),
        (nn.Conv2d(3, 2, 3), (128, 3, 32, 32), 60_000, 4),
    ],
)
def test_every_update_unless_that_costs(network: nn.Module, shape: tuple[int, ...], total: int, every: int) -> None:
    """Bytes a network without convolutions gets through in no time; and runs so long that the text would be huge."""
    written: list[str] = []
    record = SimpleNamespace(digest=written.append)
    progress = SimpleNamespace(update=0, epoch=0)
    updater = SimpleNamespace(loss_sum=torch.tensor(1.0), grad_square=torch.tensor(4.0))
    trainer = SimpleNamespace(
        record=record, progress=progress, model=network, total_updates=total, lr=0.1, updater=updater
    )
    batch = SimpleNamespace(images=torch.zeros(shape), targets=torch.zeros(shape[0]), ids=torch.arange(shape[0]))
    digests = Digests()
    digests.on_fit_begin(trainer)
    for progress.update in range(1, 40):
        digests.on_batch_end(trainer, batch)
    digests.close()
    lines = [json.loads(line) for text in written for line in text.splitlines()]
    assert lines[0]["every"] == every
    assert [line["update"] for line in lines[1:]] == [u for u in range(1, 40) if u <= 16 or u % every == 0]
    assert lines[5]["grad_norm"] == 2.0 and lines[5]["loss"] == 1 / shape[0]
