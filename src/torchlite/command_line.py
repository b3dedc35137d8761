"""A command line of Hydra's: what runs it, and what is wrong with its words, in plain English. Never torch."""

import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from torchlite import mistakes, stopping
from torchlite.errors import FAULT, UserError, refuse
from torchlite.naming import GROUPS

CONF = Path(__file__).resolve().parents[2] / "conf"
# Hydra's own script runs any Python file whose arguments are completed, and knows no `python3` and no absolute path
COMPLETION = [[flag, "install=bash"] for flag in ("-sc", "--shell-completion", "--shell_completion")]
_command = ""  # as typed, before `for_each_job`


def command(main: Callable[[], Any]) -> int:
    """Run a `hydra.main` function; the exit code. A user's mistake ends in a short message, all wrong words at once."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing, and `explain` can say more
    # Threads that spin for long while they wait slow a machine with anything else on it sixfold; spinning shortly costs nothing
    # on a quiet one (both measured). GNU's OpenMP reads this when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a model of yours can be a file beside you
    if sys.argv[1:] in COMPLETION:
        print(Path(__file__).with_name("completion.bash").read_text(encoding="utf-8"), end="")
        return 0
    global _command
    _command = shlex.join(["python", os.path.basename(sys.argv[0]), *sys.argv[1:]])
    try:
        with stopping.at_once():
            sys.argv[1:] = for_each_job(mistakes.words_first(get_args_parser(), sys.argv[1:]))
            main()
    except stopping.Stopped as stopped:  # before a run, or between two: a run says more
        print(f"stopped: {stopped}", file=sys.stderr)
        return stopped.code
    except Exception as error:  # from composing: a run has dealt with its own
        unreadable = isinstance(error, yaml.YAMLError | UnicodeDecodeError | RecursionError)
        said = f"a yaml cannot be read: {' '.join(str(error).split())[:300]}"
        problems = [str(error)] if isinstance(error, UserError) else [said] if unreadable else explain(sys.argv[1:])
        if not problems and not isinstance(error, HydraException | OmegaConfBaseException):
            traceback.print_exc()
            return FAULT
        return refuse("\n".join(problems) or _short(error))
    return 0


def typed_command() -> str:
    """The command line as it was typed."""
    return _command or shlex.join(sys.argv)


def for_each_job(arguments: list[str]) -> list[str]:
    """The words of a sweep, with values inside a swept group left to the jobs.

    Hydra first composes a sweep with the group's default option, which may lack the key: `-m optimizer=sgd,rmsprop
    optimizer.momentum=0.8` would be refused because adamw has no momentum. A choice of one is not composed until then.
    """
    flags = [word for word in arguments if word in ("-m", "--multirun")]
    if not flags:
        return arguments
    parser = OverridesParser.create()
    parsed = {}
    for text in arguments:
        with contextlib.suppress(HydraException):
            parsed[text] = parser.parse_override(text)
    words = {override.key_or_group: override for override in parsed.values()}
    swept = {key for key, override in words.items() if override.is_sweep_override()} & {*GROUPS, "experiment"}
    if "sweep" in words:  # what its file sweeps is not known here
        swept = {*GROUPS, "experiment"}

    def held(text: str) -> str:
        key, equals, value = text.partition("=")
        if key.startswith("hydra"):  # of the sweep itself
            return text
        inside = key.split(".")[0] in swept or ("experiment" in swept and key not in GROUPS)
        plain = text in parsed and "." in key and not parsed[text].is_sweep_override()
        return f"{key}=choice({value})" if plain and inside and value else text

    return [held(text) for text in arguments]


def _short(error: Exception) -> str:
    lines = [line for line in f"{error}\n{error.__cause__ or ''}".splitlines() if line.strip()]
    return "\n".join(dict.fromkeys(lines[:4]))


def explain(arguments: list[str], sweep: bool | None = None) -> list[str]:
    """What is wrong with the words on a command line, a line each; empty when every word is one we know."""
    parsed = get_args_parser().parse_args(arguments)
    if parsed.config_dir and not os.path.isdir(parsed.config_dir):
        return [f"--config-dir {parsed.config_dir}: there is no such directory."]
    search_path = create_config_search_path(str(CONF))
    if parsed.config_dir:
        place = SearchPathQuery(provider="schema", path=None)
        search_path.prepend("command-line", f"file://{os.path.abspath(parsed.config_dir)}", place)
    running = GlobalHydra.instance().hydra  # in a sweep's planning Hydra goes on after this
    GlobalHydra.instance().clear()
    loader = Hydra.create_main_hydra2("train", search_path).config_loader
    try:
        return _wrong_words(parsed.overrides, loader, parsed.multirun if sweep is None else sweep)
    finally:
        GlobalHydra.instance().clear()
        if running is not None:
            GlobalHydra.instance().initialize(running)


def _wrong_words(words: list[str], loader: ConfigLoader, sweep: bool) -> list[str]:
    problems: list[str] = []
    overrides: list[Override] = []
    for text in words:
        try:
            overrides.append(OverridesParser.create(loader).parse_override(text))
        except HydraException:  # the parser's, or the lexer's own
            problems.append(mistakes.unreadable(text))
    groups = {group: sorted(loader.get_group_options(group)) for group in loader.list_groups("") if group != "hydra"}
    good = []
    for override in overrides:
        wrong = list(mistakes.wrong_choice(override, groups, sweep, GROUPS))
        problems += wrong
        if not wrong and override.key_or_group in groups and not override.is_delete():
            good.append(f"{override.key_or_group}={mistakes.values(override)[0]}")
    try:
        cfg = OmegaConf.to_container(compose("config", good), resolve=False)
    except HydraException as error:
        return [*problems, _short(error)]
    for override in overrides:
        if override.key_or_group not in groups and not override.key_or_group.startswith("hydra"):
            problems += mistakes.wrong_key(override, cfg, groups)
    return list(dict.fromkeys(problems))
