"""What goes into the ledger tells nothing of the machine or the person, and nothing secret."""

import getpass
import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.repeats import WORDS, change_facts, run_script
from tests.runs import the_run
from torchlite.reproduce import cleaning

SECRET = "s3cr3t-" + "value-of-mine"


@pytest.mark.slow
def test_nothing_of_the_machine_or_the_person_is_published(published: Any, tmp_path: Path) -> None:
    """Data below HOME, a secret in the environment that the config refers to, and the names of host and user."""
    home = tmp_path / "home" / "ada.lovelace"
    (home / "work" / "sets").mkdir(parents=True)
    secret = 'callbacks.progress_bar.refresh_seconds="${oc.decode:${oc.env:REFRESH_OF_MINE}}"'
    place = {"HOME": str(home), "REFRESH_OF_MINE": "0.12345678", "API_TOKEN": SECRET}
    done = run_script(
        ROOT / "train.py", *WORDS, f"data_dir={home / 'work' / 'sets'}", secret, cwd=home / "work", **place
    )
    assert done.code == 0, done.text
    run = the_run(home / "work" / "outputs")
    (run / "source.patch").unlink(missing_ok=True)
    change_facts(run, lambda facts: facts["code"].update(dirty=False, not_recorded=[]))
    assert str(home) in (run / "run.json").read_text()
    code, said = published(run, "entry")
    assert code == 0, said
    everything = "".join(
        path.read_text(errors="replace") + path.name
        for path in (tmp_path / "ledger").rglob("*")
        if path.is_file() and path.suffix != ".png"
    )
    private = [str(home), "lovelace", str(tmp_path), "0.12345678", SECRET, sys.prefix, str(ROOT)]
    private += [name for name in (platform.node(), getpass.getuser()) if len(name) >= 4 and name != "root"]
    assert [word for word in private if word in everything] == []
    assert "${oc.env:REFRESH_OF_MINE}" in everything and "environment: REFRESH_OF_MINE" in everything


LEAKS = {
    "a secret of the environment": (SECRET, "the environment variable DEPLOY_KEY"),
    "a token": ("ghp_" + "0123456789abcdefghij", "a secret"),
    "a key": ("-----BEGIN OPENSSH " + "PRIVATE KEY-----", "a secret"),
    "a password in an address": ("https://ada:hunter2@example.invalid/x", "a secret"),
    "a password in words": ("password=hunter2", "a password or token"),
    "a token in words": ("see token: abc123def", "a password or token"),
    "a password in quotes": ("api_key = 'swordfish'", "a password or token"),
    "a password before a host": ("ada:hunter2@db.example.invalid", "a secret"),
    "a folder": ("/home/ada/photos", "a folder of this machine"),
    "a folder as an address": ("file:///projects/photos", "a folder of this machine"),
    "a folder in a store's address": ("sqlite:////home/ada/runs.db", "a folder of this machine"),
    "a folder of a container": ("/workspace", "a folder of this machine"),
    "a folder of a cluster": ("/lustre/groups/photos", "a folder of this machine"),
    "a disk": ("/data", "a folder of this machine"),
    "another host": ("ran on secret-host-17 today", "the name of the machine"),
}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("where", ["source.patch", "config", "class names"])
def test_what_would_leak_is_refused_and_not_repeated(
    published: Any, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: str, where: str
) -> None:
    text, what = LEAKS[leak]
    monkeypatch.setenv("DEPLOY_KEY", SECRET)
    change_facts(finished, lambda facts: facts["hardware"].update(host="secret-host-17"))
    if where == "source.patch":
        (finished / "source.patch").write_text(f"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+{text}\n")
    elif where == "config":
        change_facts(finished, lambda facts: facts["config"]["model"].update(note=f"{text}"))
    else:
        change_facts(finished, lambda facts: facts["data"].update(classes=[text, "b"]))
    code, said = published(finished, "entry")
    assert code == 2 and what in said and text not in said, said
    assert not (tmp_path / "ledger" / "entry").exists()


@pytest.mark.parametrize("text", ["/anywhere/photos", "password=swordfish"])
def test_in_a_config_every_path_and_word_counts(published: Any, finished: Path, text: str) -> None:
    change_facts(finished, lambda facts: facts["config"]["model"].update(note=text))
    ended, said = published(finished, "entry")
    assert ended == 2 and "config.yaml, line " in said and text not in said, said


def test_binary_changes_are_refused(published: Any, finished: Path) -> None:
    (finished / "source.patch").write_text("diff --git a/w.pt b/w.pt\nGIT binary patch\nliteral 3\nKc$@<O00001\n\n")
    ended, said = published(finished, "entry")
    assert ended == 2 and "source.patch, line 2: a binary file" in said


CODE = ["x = a / b", "token = tokens[0]", "secret: str", "def f(token: Tensor):", "password = getpass()", "w:x@y"]


@pytest.mark.parametrize(
    "line",
    [
        *CODE,
        "+import os  # and/or",
        "--- a/data/x.py",
        "--- /dev/null",
        "num_tokens = 196",
        "  - override /data: mnist",
    ],
)
def test_code_is_no_secret(line: str) -> None:
    assert [what for what, pattern in cleaning.private([]) if pattern.search(line)] == []


def test_folders_of_data_become_the_readers_own(published: Any, finished: Path, tmp_path: Path) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["config"]["data_dir"] = "/scratch/ada/sets"
        facts["config"]["data"] |= {"root": "/scratch/ada/sets/cells", "train": {"root": "/scratch/ada/sets/cells/a"}}
        facts["data"] |= {"data_dir": "/scratch/ada/sets", "root": "/scratch/ada/sets/cells"}
        facts["overrides"] += ["data_dir=/scratch/ada/sets", "data.root=/scratch/ada/sets/cells"]
        facts["command"] += " data_dir=/scratch/ada/sets data.root=/scratch/ada/sets/cells"

    change_facts(finished, change)
    code, said = published(finished, "entry")
    assert code == 0, said
    (job,) = (tmp_path / "ledger" / "entry" / "runs").iterdir()
    facts = json.loads((job / "run.json").read_text())
    assert facts["config"]["data_dir"] == "${oc.env:TORCHLITE_DATA,./data}"
    assert facts["config"]["data"]["root"] == "${data_dir}/cells"
    assert facts["config"]["data"]["train"]["root"] == "${data_dir}/cells/a"
    assert "data_dir=/" not in facts["command"] and facts["overrides"][-1] == "data.root=${data_dir}/cells"
