"""The spread of an entry: where one more seed is as good."""

import json
import shlex
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.reproduce.made import FACTS, RESULT, past
from torchlite.errors import UserError
from torchlite.reproduce import pages
from torchlite.reproduce.entry import groups, load
from torchlite.reproduce.records import Past, found, read
from torchlite.reproduce.verdict import sampling_spread


def seeds(folder: Path, **settings: tuple[float, ...]) -> list[Past]:
    """A finished run for each score, by optimizer; the seeds count from 0."""
    runs = []
    for optimizer, scores in settings.items():
        for seed, score in enumerate(scores):
            typed = [f"optimizer={optimizer}", f"seed={seed}"]
            facts = {**FACTS, "config": {**FACTS["config"], "seed": seed}, "overrides": typed}
            result = {**RESULT, "test": {"test/acc1": score}}
            runs.append(past(folder / f"{optimizer}-{seed}", result=result, facts=facts))
    return runs


def test_the_spread_of_seeds_is_where_one_more_is_expected(tmp_path: Path) -> None:
    """t(1 - 0.05/(2 n), n - 1) * s * sqrt(1 + 1/n), all n runs within it at 95 %; at most 5 s, where t knows too little."""
    from scipy.stats import t

    (group,) = groups(seeds(tmp_path, sgd=(0.80, 0.82, 0.84)))
    assert group["spread"][:2] == [pytest.approx(0.82 - 5 * 0.02), pytest.approx(0.82 + 5 * 0.02)]
    assert (group["words"], group["seeds"], group["mean"]) == ("optimizer=sgd", [0, 1, 2], pytest.approx(0.82))
    scores = (0.80, 0.81, 0.82, 0.83, 0.84) * 4
    (group,) = groups(seeds(tmp_path, sgd=scores))
    half = t.ppf(1 - 0.05 / 40, 19) * statistics.stdev(scores) * (21 / 20) ** 0.5
    assert half < 5 * statistics.stdev(scores)
    assert group["spread"][:2] == [pytest.approx(0.82 - half), pytest.approx(0.82 + half)]
    (group,) = groups(seeds(tmp_path, sgd=(0.8, 0.8, 0.8)))
    assert group["spread"][:2] == [pytest.approx(0.8 - 1 / 400), pytest.approx(0.8 + 1 / 400)]  # one image more or less


def test_a_score_of_few_batches_is_as_uncertain_as_it_is(tmp_path: Path) -> None:
    """2 batches of 50 of the 400 test images."""
    config = {"trainer": {"monitor": "val/acc1", "limit_eval_batches": 2}, "data": {"eval_batch_size": 50}, "seed": 0}
    spread = sampling_spread(past(tmp_path / "few", facts={**FACTS, "config": config}))
    assert spread is not None and spread.of.endswith("over 100 images")
    assert spread.low == pytest.approx(0.8 - 2 * (0.8 * 0.2 / 100) ** 0.5)


def test_words_of_a_group_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    typed = [
        "data.transforms=[{_target_: torchvision.transforms.v2.RandAugment}]",
        "data.train.root=${data_dir}/x",
        "seed=0",
    ]
    (group,) = groups([past(tmp_path / "one", facts={**FACTS, "overrides": typed})])
    assert shlex.split(group["words"]) == typed[:2]
    assert shlex.split(pages._command(group)) == ["python", "train.py", *typed]


def test_a_page_says_what_lies_elsewhere_with_everyone() -> None:
    """The data, and a folder of options; and shows one column where the monitored score is the final one."""
    folder = ROOT / "experiments" / "digits_default"
    runs = [read(run) for run in found(str(folder))]
    facts = load(folder)
    assert "DIR" not in (plain := pages.page("mine", facts, runs)) and "| val/acc1 | test/acc1 |" in plain
    for one in runs:
        one.facts["overrides"] = ["data=image_folder", "data.root=${data_dir}", "seed=0"]
        one.facts["command"] = "python train.py --config-dir conf data=image_folder data.root=/home/me/images"
    facts |= {"metric": "val/acc1", "groups": [{**facts["groups"][0], "words": "data=image_folder", "seeds": [0]}]}
    shown = pages.page("mine", facts, runs)
    assert "\npython train.py data=image_folder seed=0 data.root=DIR --config-dir CONF\n" in shown
    assert "\npython reproduce.py experiments/mine --data-dir DIR\n" in shown and "Put for DIR where" in shown
    assert "| typed | seeds | val/acc1 | a run takes |\n|---|---|---|---|\n" in shown


def test_a_run_without_validation_has_no_such_score(tmp_path: Path) -> None:
    result = {**RESULT, "best": {"update": 4}, "last": {}}
    metrics = [{"update": 4, "epoch": 1, "train/loss": 1.0}]
    one = past(tmp_path / "one", result=result, metrics=metrics)
    (group,) = groups([one])
    assert group["val"] is None and pages._validated(group) == "–" and pages._drawn([one]) == "train/loss"


def test_the_deviation_is_pooled_over_settings(tmp_path: Path) -> None:
    """Three settings of three seeds have 6 degrees of freedom; a setting with a single seed uses them too."""
    from scipy.stats import t

    made = groups(
        seeds(tmp_path, sgd=(0.60, 0.62, 0.64), adamw=(0.70, 0.72, 0.74), adam=(0.79, 0.81, 0.83), lion=(0.5,))
    )
    for group, count in zip(made, (3, 3, 3, 1), strict=True):
        half = min(5.0, t.ppf(1 - 0.05 / 20, 6) * (1 + 1 / count) ** 0.5) * 0.02
        assert group["spread"][:2] == [pytest.approx(group["mean"] - half), pytest.approx(group["mean"] + half)]
    assert [group["standard_deviation"] for group in made] == [pytest.approx(0.02)] * 3 + [None]
    uneven = groups(seeds(tmp_path, sgd=(0.5, 0.6), **{f"other{n}": (0.7, 0.7) for n in range(60)}))
    assert uneven[0]["spread"][:2] == [pytest.approx(0.5), pytest.approx(0.6)]  # its own runs are as good as themselves


def test_a_setting_that_diverged_makes_no_other_wide(tmp_path: Path) -> None:
    diverged, *others = groups(seeds(tmp_path, sgd=(0.1, 0.9, 0.9), adamw=(0.90, 0.91, 0.92), adam=(0.93, 0.94, 0.95)))
    assert diverged["spread"][0] <= 0.1 + 1e-9  # its own runs are as good as themselves
    for group in others:
        assert group["spread"][:2] == [pytest.approx(group["mean"] - 0.05), pytest.approx(group["mean"] + 0.05)]


def test_no_accuracy_lies_outside_0_to_1(tmp_path: Path) -> None:
    (group,) = groups(seeds(tmp_path, sgd=(0.97, 0.99, 1.0)))
    assert group["spread"][1] == 1.0
    (group,) = groups(seeds(tmp_path, sgd=(0.0, 0.01, 0.03)))
    assert group["spread"][0] == 0.0
    spread = sampling_spread(past(tmp_path / "b", result={**RESULT, "test": {"test/acc1": 0.999}}))
    assert spread is not None and spread.high == 1.0


def test_the_shipped_ledger_has_the_spreads_that_are_published_now() -> None:
    for path in sorted((ROOT / "experiments").glob("*/entry.json")):
        made = groups([read(run) for run in found(str(path.parent))])
        for group, entry in zip(json.loads(path.read_text())["groups"], made, strict=True):
            assert (group["words"], group["spread"][2]) == (entry["words"], entry["spread"][2])
            assert group["spread"][:2] == pytest.approx(entry["spread"][:2]), "publish it again"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (None, "groups is damaged (null)"),
        ([1], "groups is damaged"),
        ([{"spread": None}], "groups[0].jobs is missing"),
        ([{"jobs": [], "spread": None}, {"jobs": ["a"]}], "groups[1].spread is missing"),
        ([{"jobs": ["a"], "spread": [0.0, 1.0]}], "groups[0].spread is no [low, high, words]"),
        ([{"jobs": ["a"], "spread": [0.0, "1", "x"]}], "groups[0].spread is no [low, high, words]"),
    ],
)
def test_an_entry_of_another_shape_is_refused_in_a_line(tmp_path: Path, groups: Any, expected: str) -> None:
    (tmp_path / "entry.json").write_text(json.dumps({"groups": groups}))
    with pytest.raises(UserError) as refused:
        load(tmp_path)
    assert str(tmp_path / "entry.json") in str(refused.value) and expected in str(refused.value)
