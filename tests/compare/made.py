"""Run directories made for tests: the files that a real run leaves, with scores of one's choice."""

import copy
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlite.naming import identity_of

OPTIMIZERS = {
    "sgd": {"_target_": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True},
    "adamw": {"_target_": "torch.optim.AdamW", "lr": 0.003, "betas": [0.9, 0.999], "weight_decay": 0.05},
    "rmsprop": {"_target_": "torch.optim.RMSprop", "lr": 0.001, "alpha": 0.99, "momentum": 0.0},
}
CONFIG: dict[str, Any] = {
    "seed": 0,
    "name": None,
    "data_dir": "${oc.env:TORCHLITE_DATA,./data}",
    "resume": None,
    "dry_run": False,
    "fail_fast": False,
    "data": {
        "_target_": "torchlite.data.image_data.ImageData",
        "root": "${data_dir}",
        "num_classes": 10,
        "num_workers": "auto",
    },
    "model": {"_target_": "torchlite.models.MLP", "widths": [128], "num_classes": 10},
    "scheduler": {"_target_": "torchlite.optim.warmup_cosine", "warmup_epochs": 2},
    "trainer": {
        "_target_": "torchlite.trainer.Trainer",
        "max_epochs": 3,
        "monitor": "val/acc1",
        "log_every_updates": 4,
    },
    "task": {"_target_": "torchlite.tasks.Classification", "num_classes": 10},
    "callbacks": {"tensorboard": {"_target_": "torchlite.callbacks.TensorBoard", "num_images": 32}},
}


def config(optimizer: str = "sgd", seed: Any = 0, **dotted: Any) -> dict[str, Any]:
    """A config as run.json has it; `model__widths=[16]` sets model.widths."""
    made = copy.deepcopy(CONFIG) | {"seed": seed, "optimizer": dict(OPTIMIZERS[optimizer])}
    for key, value in dotted.items():
        *parents, last = key.split("__")
        node = made
        for parent in parents:
            node = node[parent]
        node[last] = value
    return made


def identity(made: Mapping[str, Any]) -> str:
    text = json.dumps({**made, "data_dir": "<data_dir>"}).replace("${data_dir}", "<data_dir>")
    return identity_of(json.loads(text))


def run(
    directory: Path,
    score: float = 0.9,
    optimizer: str = "sgd",
    seed: Any = 0,
    *,
    test: float | None = 0.88,
    facts: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
    typed: tuple[str, ...] = (),
    seconds: float = 2.5,
    monitor: str = "val/acc1",
    **dotted: Any,
) -> Path:
    """Write a finished run of three epochs of 10 updates, its score reached in the last; returns its directory."""
    made = config(optimizer, seed, **dotted)
    made["trainer"]["monitor"] = monitor
    data = {"fingerprint": "f" * 64, "split": {"train": 1150, "val": 287, "test": 360, "held_out_sha256": "e" * 64}}
    whole = {
        "name": "made",
        "identity": identity(made),
        "options": {"data": "digits", "model": "mlp", "optimizer": optimizer, "experiment": None},
        "overrides": [f"optimizer={optimizer}", f"seed={seed}", *typed],
        "command": f"python train.py -m optimizer=sgd,adamw seed={seed}",
        "choices": {"device": "cpu", "num_threads": 1, "monitor_mode": "min" if "loss" in monitor else "max"},
        "data": data,
        "config": made,
        "working_directory": "/work",
        "code": {"commit": "a" * 40, "dirty": False, "modules": {}},
        "packages": {"python": "3.11.7", "torch": "2.14.1", "numpy": "2.4.6"},
        "hardware": {"host": "here", "cpu": "A processor", "num_cores": 2},
        **(facts or {}),
    }
    best = {"update": 30, "epoch": 3, "val/loss": 1.0 / 3, monitor: score}
    whole_result = {
        "status": "finished",
        "best": best,
        "last": best,
        "test": {} if test is None else {"test/loss": 0.4, f"test/{monitor.partition('/')[2]}": test},
        "updates": 30,
        "seconds": seconds,
        **(result or {}),
    }
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps(whole, indent=2))
    (directory / "result.json").write_text(json.dumps(whole_result, indent=2))
    (directory / "metrics.jsonl").write_text(metrics(random.Random(ascii(directory.name)), monitor, score, seconds))
    (directory / "config.yaml").write_text("seed: 0\n")
    (directory / "checkpoints").mkdir()
    return directory


def metrics(noise: random.Random, monitor: str, score: float, seconds: float) -> str:
    """metrics.jsonl of three epochs of 10 updates, logged every 4."""
    lines = []
    for epoch in (1, 2, 3):
        reached = score - 0.1 * (3 - epoch)
        for update in range(10 * (epoch - 1) + 4, 10 * epoch + 1, 4):
            loss = 2.0 / update + 0.01 * noise.random()
            lines.append(
                {"update": update, "epoch": epoch - 1, "update/loss": loss, "lr": 0.1, "images_per_second": 900.0}
            )
        line = {
            "update": 10 * epoch,
            "epoch": epoch,
            "train/loss": 2.0 / epoch,
            "val/loss": 1.0 / epoch,
            monitor: reached,
        }
        lines.append(line | {"seconds/epoch": seconds / 4})
    return "".join(json.dumps(line) + "\n" for line in lines)


def sweep(root: Path, num_seeds: int = 3, spread: float = 0.01) -> Path:
    """Three optimizers at two learning rates, `num_seeds` seeds each; adamw at its first rate is the best by far."""
    draw = random.Random(0)
    level = {("sgd", 0.1): 0.90, ("sgd", 0.01): 0.85, ("adamw", 0.003): 0.96, ("adamw", 0.001): 0.90}
    level |= {("rmsprop", 0.001): 0.91, ("rmsprop", 0.01): 0.70}
    for (optimizer, lr), score in level.items():
        for seed in range(num_seeds):
            reached = score + spread * draw.gauss(0, 1)
            name = f"{optimizer}_lr-{lr}_seed-{seed}"
            run(
                root / name,
                reached,
                optimizer,
                seed,
                test=reached - 0.01,
                typed=(f"optimizer.lr={lr}",),
                optimizer__lr=lr,
            )
    return root
