"""One recorded run, run again by the code this file belongs to: `python -m torchlite.reproduce.rerun RECORD DIRECTORY`.

`reproduce.py` starts it in the worktree of the recorded commit, so its words stay as they are: code of any later version
calls the `rerun` of any earlier one.
"""

import argparse
import copy
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchlite import stopping
from torchlite.stopping import Stopped, at_once

with stopping.loading():
    from torchlite import config, machine, run
    from torchlite.build import only_logs
    from torchlite.callbacks import ProgressBar
    from torchlite.check import locate
    from torchlite.config import Composed, below, moved
    from torchlite.errors import DONE, FAULT, MachineError, UserError, printable, refuse
    from torchlite.record import Record
    from torchlite.reproduce.records import Past, read

WATCH = "repetition"  # the name of the callback that is added


def main(words: list[str] | None = None) -> int:
    """The exit code of the repeated run; its record is in the directory."""
    parser = argparse.ArgumentParser(prog="rerun")
    parser.add_argument("record", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--data-dir")
    parser.add_argument("--num-threads", type=int)
    parser.add_argument("--trust", action="append", default=[])
    options = parser.parse_args(words)
    try:
        with at_once():
            past = read(options.record)
            past.facts["config"]["callbacks"][WATCH] = watch(past, options.updates)
            composed = as_recorded(past, options.data_dir, tuple(options.trust))
            trainer, task = run.check(composed)
            words_of = run.words_of(composed)
            with Record(options.directory, composed.record, words_of).hold() as rec, rec.open():
                run.train(composed, trainer, task, rec, chosen=chosen(past, options.num_threads))
    except UserError as error:
        return refuse(error)
    except Stopped as stopped:
        return stopped.code
    except MachineError as error:  # its traceback is in train.log
        print(printable(error, keep="\n\t"), file=sys.stderr)
        return FAULT
    except Exception:
        print(printable(traceback.format_exc(), keep="\n\t"), file=sys.stderr)
        return FAULT
    return DONE


def watch(past: Past, updates: int | None) -> dict[str, Any]:
    """The node of the callback that looks over the repetition."""
    fingerprint = past.facts["data"].get("fingerprint")
    return {"_target_": "torchlite.reproduce.watch.Watch", "fingerprint": fingerprint, "updates": updates}


def as_recorded(past: Past, data_dir: str | None = None, trusted: tuple[str, ...] = ()) -> Composed:
    """The config of a past run as it can be run here.

    The data is looked for in `data_dir`, else where it lay, else where this machine keeps its data. What only shows or sends
    numbers elsewhere is left out.
    """
    facts = copy.deepcopy(past.facts)
    made = facts["config"]
    made["callbacks"] = {name: None if is_left_out(node) else node for name, node in made["callbacks"].items()}
    if isinstance(workers := made["data"].get("num_workers"), int):  # they change no bit
        made["data"]["num_workers"] = min(workers, 4 * (os.cpu_count() or 1))
    made["resume"], made["dry_run"], made["trainer"]["max_minutes"] = None, False, None
    if made["trainer"].get("micro_batch_size") == "auto":  # what it became, since batch statistics are of the parts
        made["trainer"]["micro_batch_size"] = past.result.get("micro_batch_size")
    if facts["choices"].get("device") and _is_here(facts["choices"]["device"]):
        made["trainer"]["device"] = facts["choices"]["device"]
    for old, new in places(facts, data_dir).items():
        made["data"], made["data_dir"] = moved(made["data"], old, new), moved(made["data_dir"], old, new)
    if data_dir is not None:
        made["data_dir"] = os.path.abspath(data_dir)
    then = config.from_facts({**facts, "words": facts["overrides"]}, None, trusted)
    return replace(then, name=facts["name"], command=f"reproduction of {facts['name']} {facts['identity']}")


def is_left_out(node: Any) -> bool:
    """Whether a callback has no place in a repetition, since it only logs; the bar on the terminal has."""
    return only_logs(node) and locate(node["_target_"]) is not ProgressBar


def places(facts: dict[str, Any], data_dir: str | None) -> dict[str, str]:
    """Where files of the data lay, as it was written and in full, each with where to look for them now."""
    data, made = facts["data"], facts["config"]
    written = {"data_dir": made["data_dir"], "root": made["data"].get("root")}
    found: dict[str, str] = {}
    for key in ("data_dir", "root"):
        full, word = data.get(key), written[key]
        inside = key == "root" and below(full or word, data.get("data_dir") or written["data_dir"])
        if inside or not isinstance(word, str):
            continue
        new = os.path.abspath(data_dir) if data_dir is not None else full
        if new is None or (data_dir is None and not os.path.exists(new)):
            continue
        found |= {old: new for old in (full, word) if isinstance(old, str) and "${" not in old}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))  # an inner folder before the one around it


def _is_here(device: str) -> bool:
    try:
        machine.find_device(device)
    except UserError:
        return False
    return True


def chosen(past: Past, num_threads: int | None) -> dict[str, Any]:
    """What `auto` became, to be used again; threads at most as many as this machine allows."""
    choices = dict(past.facts["choices"])
    most = 4 * (os.cpu_count() or 1)
    choices["num_threads"] = min(num_threads or int(choices["num_threads"]), most)
    return choices


if __name__ == "__main__":
    sys.exit(main())
