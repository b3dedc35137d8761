"""What has to be there before two runs are called the same."""

from pathlib import Path

import pytest

from tests.reproduce.made import DIGESTS, METRICS, RESULT, STOPPED, changed, every, past
from torchlite.reproduce.cleaning import thinned
from torchlite.reproduce.verdict import Spread, judge


def test_equal_records_are_identical(tmp_path: Path) -> None:
    slower = [{**line, "seconds/epoch": 9.0} if "seconds/epoch" in line else line for line in METRICS]
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", metrics=slower), None)
    assert (verdict.verdict, verdict.parting, verdict.updates) == ("identical", None, 5)


@pytest.mark.parametrize(("one", "other"), [(1, 10), (10, 1), (10, 10), (3, 10)])
def test_runs_that_digest_other_updates_are_compared_where_both_do(tmp_path: Path, one: int, other: int) -> None:
    result = {**RESULT, "updates": 45}
    first, second = every(one, 45), every(other, 45)
    verdict = judge(past(tmp_path / "a", first, result=result), past(tmp_path / "b", second, result=result), None)
    assert (verdict.verdict, verdict.why) == ("identical", None)
    assert "of 45 updates digested in both" in verdict.compared


def test_the_digests_that_an_entry_keeps_are_enough(tmp_path: Path) -> None:
    result = {**RESULT, "updates": 450}
    for count in (1, 7, 12):
        new = past(tmp_path / "b", every(count, 450), result=result)
        old = past(tmp_path / "a", thinned(new), result=result)
        assert judge(old, new, None).verdict == "identical"
        assert judge(old, past(tmp_path / "c", every(count, 450)[:40], [], STOPPED), None, 24).verdict == "identical"
    gone = [line for line in thinned(new) if line["update"] != 60]
    assert "nothing on update 60" in (judge(past(tmp_path / "d", gone, result=result), new, None).why or "")


def test_of_some_updates_nothing_is_known_of_the_score(tmp_path: Path) -> None:
    stopped = {"status": "stopped"}
    one, wide = past(tmp_path / "a"), Spread(0.0, 1.0, "x")
    at_the_end_of_an_epoch = past(tmp_path / "e", DIGESTS[:5], [], stopped)
    assert judge(one, at_the_end_of_an_epoch, wide, updates=4).verdict == "identical"
    for count in (3, 10):  # update 45 has its weights alone
        whole = past(tmp_path / "f", every(count, 45), result={**RESULT, "updates": 45})
        assert (
            judge(whole, past(tmp_path / "g", every(10, 45)[:-1], [], stopped), wide, updates=45).verdict == "identical"
        )
    assert judge(one, past(tmp_path / "b", DIGESTS[:3], [], stopped), wide, updates=2).verdict == "identical"
    verdict = judge(one, past(tmp_path / "c", changed(2, loss=1.5)[:3], [], stopped), wide, updates=2)
    assert verdict.verdict == "different" and verdict.now is None and verdict.parting is not None
    assert verdict.why == "they part, and after --updates no final score tells whether it is as good"
    assert (
        judge(one, past(tmp_path / "d", changed(3, loss=1.5)[:4], [], stopped), wide, updates=2).verdict == "identical"
    )


def test_a_record_without_digests_is_never_called_identical(tmp_path: Path) -> None:
    verdict = judge(past(tmp_path / "a", None), past(tmp_path / "b"), None)
    assert verdict.verdict == "equivalent" and verdict.compared == "metrics alone: it has no digests"
    for metrics, digests in ((None, None), ([], []), (METRICS[:1], [])):
        verdict = judge(past(tmp_path / "c", digests, metrics), past(tmp_path / "b"), None)
        assert verdict.verdict == "not known", metrics


LACKING = {  # of the record, of the repetition, so many updates; and what is said
    "a record that was stopped": (
        {"result": STOPPED, "digests": DIGESTS[:4], "metrics": METRICS[:1]},
        {},
        None,
        "stopped",
    ),
    "a record that failed": (
        {"result": {"status": "failed"}, "digests": DIGESTS[:3], "metrics": []},
        {},
        None,
        "failed",
    ),
    "a record without a status": ({"result": {"updates": 4}}, {}, None, "the record is None"),
    "a repetition that was stopped": (
        {},
        {"result": {**RESULT, "status": "stopped"}},
        None,
        "the repetition is stopped",
    ),
    "digests that end early": ({"digests": DIGESTS[:3]}, {}, None, "ends at update 2, before 4"),
    "nothing but the initial weights": ({"digests": DIGESTS[:1]}, {}, None, "ends at update 0, before 4"),
    "no last weights": ({"digests": DIGESTS[:5]}, {}, None, "no weights of the last update, 4"),
    "no last weights in both": ({"digests": DIGESTS[:5]}, {"digests": DIGESTS[:5]}, None, "no weights of the last"),
    "a line is gone": ({"digests": DIGESTS[:2] + DIGESTS[3:]}, {}, None, "the record has nothing on update 2"),
    "a line is gone later on": (
        {"digests": [line for line in every(1, 45) if line["update"] != 30], "result": {**RESULT, "updates": 45}},
        {"digests": every(1, 45), "result": {**RESULT, "updates": 45}},
        None,
        "the record has nothing on update 30",
    ),
    "a line of the repetition": (
        {},
        {"digests": DIGESTS[:2] + DIGESTS[3:]},
        None,
        "the repetition has nothing on update 2",
    ),
    "no initial weights": ({"digests": DIGESTS[1:]}, {}, None, "the record has nothing on update 0"),
    "nothing but samples": (
        {"digests": [*DIGESTS[:3], {"update": 3, "ids": "a"}, *DIGESTS[4:]]},
        {},
        None,
        "only one of the two has targets in its digest of update 3",
    ),
    "metrics that end early": (
        {"metrics": METRICS[:1]},
        {},
        None,
        "metrics.jsonl of the record has nothing on update 4",
    ),
    "no score": ({"result": {**RESULT, "test": {}}}, {}, None, "no test score"),
    "a run of fewer updates": ({}, {}, 5, "the record has only 4 updates"),
    "digests of fewer updates": (
        {"digests": DIGESTS[:3]},
        {},
        3,
        "digests.jsonl of the record ends at update 2, before 3",
    ),
    "a repetition of fewer updates": (
        {},
        {"digests": DIGESTS[:3], "result": STOPPED, "metrics": []},
        3,
        "digests.jsonl of the repetition ends at update 2, before 3",
    ),
    "no digests of so many updates": ({"digests": None}, {"digests": DIGESTS[:3]}, 2, "no digests of single updates"),
}


@pytest.mark.parametrize("case", LACKING)
def test_identical_is_not_said_of_what_is_not_there(tmp_path: Path, case: str) -> None:
    one, other, updates, why = LACKING[case]
    verdict = judge(past(tmp_path / "a", **one), past(tmp_path / "b", **other), Spread(0.0, 1.0, "x"), updates)
    assert (verdict.verdict, verdict.parting) == ("not known", None)
    assert verdict.why is not None and why in verdict.why and "\n" not in verdict.why
