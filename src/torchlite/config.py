"""A composed config in plain Python: what was typed, what it means, which run it is. Knows Hydra, never torch."""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from torchlite import mistakes
from torchlite.command_line import CONF, explain, typed_command
from torchlite.errors import UserError, printable, refuse
from torchlite.naming import GROUPS, MAY_CHANGE, identity_of, run_name

PLACE = "<data_dir>"  # stands for wherever the data lies
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
    typed = {word.lstrip("+").partition("=")[0] for word in here.overrides}
    made, old = facts["config"], facts["config"].get("data_dir")
    cfg = DictConfig(
        moved(made, old, here.config["data_dir"]) if "data_dir" in typed and "${" not in str(old) else made
    )
    cfg.dry_run = here.config["dry_run"]
    for key in typed & set(MAY_CHANGE) - {"name", "resume"}:
        OmegaConf.update(cfg, key, OmegaConf.select(DictConfig(here.config), key))
    then = plain(cfg, facts["options"], facts["overrides"])
    known = {"name": facts["name"], "identity": facts["identity"], "num_threads": facts["num_threads"]}
    return dataclasses.replace(then, **known, command=here.command, trusted=())


def below(path: Any, folder: Any) -> bool:
    """Whether a value is the path of this folder, or of something in it."""
    return isinstance(path, str) and isinstance(folder, str) and (path == folder or path.startswith(f"{folder}/"))


def moved(value: Any, old: Any, new: str) -> Any:
    """The same with paths below `old` led to `new`."""
    if isinstance(value, dict):
        return {key: moved(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [moved(item, old, new) for item in value]
    return new + value[len(old) :] if below(value, old) else value


def placeless(record: dict[str, Any]) -> dict[str, Any]:
    """A recorded config as if its data lay nowhere; in a record, what follows from `data_dir` may be resolved or not."""
    return without_secrets(DictConfig({**moved(record, record.get("data_dir"), PLACE), "data_dir": PLACE}))


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
    name = sweep_directory.name if sweep_directory else run_name(choices, overrides)
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


def _left_open(node: Any, path: str = "") -> Iterator[str]:
    """Where a `???` stands in a config that is not resolved."""
    if node == "???":
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        inside = f"{path}[{key}]" if isinstance(node, list) else f"{path}.{key}" if path else str(key)
        yield from _left_open(value, inside)


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """Plain dicts, lists and scalars. Raises UserError for an interpolation that leads nowhere or a `???` left open."""
    left_open = list(_left_open(OmegaConf.to_container(cfg)))
    if left_open:
        raise UserError("\n".join(printable(f"{key}: this has to be given: {key}=…") for key in left_open))
    try:
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key, first_line = error.full_key, str(error).splitlines()[0]
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
    copied["data_dir"] = PLACE  # also where other keys refer to it
    return identity_of(resolve(copied))
