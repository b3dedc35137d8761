"""A composed config in plain Python: what was typed, what it means, which run it is. Knows Hydra, never torch."""

import contextlib
import copy
import dataclasses
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from torchlite import mistakes, stopping
from torchlite.errors import FAULT, UserError, printable, refuse
from torchlite.naming import NOT_IDENTITY, identity_of, run_name

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = ("data", "model", "optimizer", "scheduler", "trainer", "task", "callbacks")
_command = ""  # as typed, before `for_each_job`
_ENVIRONMENT = "\x00from the environment\x00"


@dataclasses.dataclass(frozen=True)
class Composed:
    """One run's config, with no trace of Hydra."""

    config: dict[str, Any]  # every interpolation resolved
    record: dict[str, Any]  # the same, but what comes from the environment stays an interpolation: no secret on disk
    identity: str  # 12 hex digits: equal for two configs that compute the same
    overrides: tuple[str, ...]  # as typed
    choices: dict[str, str | None]  # {"optimizer": "sgd", …}
    name: str  # given or made of the words typed
    sweep_directory: Path | None = None  # of a job of a sweep
    command: str = ""  # as typed
    num_threads: int | None = None  # what trainer.num_threads=auto means, where a sweep has fixed it
    code: tuple[dict[str, Any], str] | None = None  # commit and patch, where a sweep has loaded the code before
    trusted: tuple[str, ...] | None = None  # the user's modules it may name; None: any, since it was typed here


def composed(cfg: DictConfig) -> Composed:
    """The plain form of the config that Hydra hands to `main`; ends the process when root keys are wrong."""
    hydra = HydraConfig.get()
    sweep = Path(hydra.sweep.dir).resolve() if hydra.mode == RunMode.MULTIRUN else None
    try:
        file = dict(hydra.runtime.choices)["sweep"]
        if sweep is None and file is not None:
            raise UserError(f"sweep={file}: a sweep file makes many jobs; add -m.")
        made = plain(cfg, dict(hydra.runtime.choices), as_typed(hydra.overrides.task), sweep)
        return dataclasses.replace(made, command=typed_command())
    except UserError as error:
        raise SystemExit(refuse(str(error))) from None  # anything else Hydra would decorate


def recorded(facts: dict[str, Any], here: Composed) -> Composed:
    """The config of a past run, as its run.json has it, with what comes from the environment looked up here."""
    cfg = DictConfig(facts["config"])
    cfg.dry_run = here.config["dry_run"]
    typed = {word.lstrip("+").partition("=")[0] for word in here.overrides}
    for key in typed & set(NOT_IDENTITY) - {"name", "resume"}:
        OmegaConf.update(cfg, key, OmegaConf.select(DictConfig(here.config), key))
    then = plain(cfg, facts["options"], facts["overrides"])
    known = {"name": facts["name"], "identity": facts["identity"], "num_threads": facts["num_threads"]}
    return dataclasses.replace(then, **known, command=here.command, trusted=())


def from_facts(facts: dict[str, Any], sweep_directory: Path | None, trusted: tuple[str, ...] | None = ()) -> Composed:
    """A sweep's job as it was written down. `trusted` as in `Composed`: None only where it was typed in this very sweep."""
    made = plain(DictConfig(facts["config"]), facts["options"], facts["words"], sweep_directory)
    return dataclasses.replace(made, trusted=trusted, identity=facts["identity"])


def from_words(words: list[str]) -> Composed:
    """What these words of train.py compose. Raises UserError with all that is wrong with them."""
    if problems := explain(words):
        raise UserError("\n".join(problems))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", words, return_hydra_config=True)
    return plain(without_hydra(cfg), dict(cfg.hydra.runtime.choices), words)


def typed_command() -> str:
    """The command line as it was typed."""
    return _command or shlex.join(sys.argv)


def as_typed(overrides: Any) -> list[str]:
    """The words as they stand; merely looping over them would resolve what a word refers to, secrets included."""
    return [str(word) for word in OmegaConf.to_container(overrides, resolve=False) or ()]


def plain(
    cfg: DictConfig, choices: dict[str, Any], overrides: list[str], sweep_directory: Path | None = None
) -> Composed:
    """The same for any composed config, less its `hydra` node. Raises UserError for wrong root keys, all in one message."""
    choices = {group: choice for group, choice in choices.items() if not group.startswith(("hydra/", "sweep"))}
    resolved = resolve(cfg)
    problems = mistakes.wrong_roots(resolved, GROUPS, in_sweep=sweep_directory is not None)
    if problems:
        raise UserError("\n".join(map(printable, problems)))
    name = sweep_directory.name if sweep_directory else run_name(choices, overrides, GROUPS)
    return Composed(
        config=resolved,
        record=without_secrets(cfg),
        identity=identity(cfg),
        overrides=tuple(overrides),
        choices=choices,
        name=resolved["name"] or name,
        sweep_directory=sweep_directory,
    )


def without_hydra(cfg: DictConfig) -> DictConfig:
    """A copy of a composed config less Hydra's own node."""
    copied = copy.deepcopy(cfg)
    with open_dict(copied):
        copied.pop("hydra", None)
    return copied


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """Plain dicts, lists and scalars. Raises UserError for an interpolation that leads nowhere or a `???` left open."""
    try:
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        first_line = str(error).splitlines()[0]
        asked = first_line.partition("while resolving interpolation: Missing mandatory value: ")[2]
        key = asked or error.full_key
        raise UserError(printable(f"{key}: {first_line}. Give it a value: {key}=…")) from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def without_secrets(cfg: DictConfig) -> dict[str, Any]:
    """The config with interpolations resolved, except those that lead to the environment, which stay as written."""
    with _environment_hidden():
        return dict(_keep_environment(cfg))


@contextlib.contextmanager
def _environment_hidden() -> Iterator[None]:
    """While this holds, `${oc.env:…}` gives a mark in place of the value."""
    from omegaconf.resolvers import oc

    OmegaConf.register_new_resolver("oc.env", lambda *_: _ENVIRONMENT, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _keep_environment(node: Any) -> Any:
    if OmegaConf.is_dict(node):
        return {str(key): _leaf(node, key) for key in node}
    return [_leaf(node, index) for index in range(len(node))]


def _leaf(parent: Any, key: Any) -> Any:
    raw = OmegaConf.to_container(parent, resolve=False)[key]  # type: ignore[index]
    try:
        value = parent[key]
        if OmegaConf.is_config(value):
            return _keep_environment(value)
    except OmegaConfBaseException:  # a resolver that could not digest the mark
        return raw
    return raw if isinstance(value, str) and _ENVIRONMENT in value else value


def identity(cfg: DictConfig) -> str:
    """12 hex digits over what is computed, wherever the data lies."""
    copied = copy.deepcopy(cfg)
    OmegaConf.set_struct(copied, False)
    copied["data_dir"] = "<data_dir>"  # also where other keys refer to it
    return identity_of(resolve(copied))


# Running under Hydra, and putting its refusals into plain words


def command(main: Callable[[], Any]) -> int:
    """Run a `hydra.main` function; the exit code. A user's mistake ends in a short message, all wrong words at once."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing, and `explain` can say more
    # Threads that spin for long while they wait slow a machine with anything else on it sixfold; spinning shortly costs nothing
    # on a quiet one (both measured). GNU's OpenMP reads this when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a model of yours can be a file beside you
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
