"""The plan of the house, checked: who leans on whom, names, lengths. Each rule is also shown a tree that breaks it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LEAVES = {"data", "models", "optim", "tasks", "metrics", "callbacks", "randomness"}
LOOP = {
    "trainer",
    "options",
    "update",
    "evaluation",
    "machine",
    "checkpoint",
    "progress",
    "stopping",
}  # never sees Hydra, files of config or what builds from them
COMPOSING = {"command_line", "config", "check", "contradictions", "build", "annotations", "mistakes", "resume"}
MIDDLE = LOOP | COMPOSING | {"record", "provenance", "naming", "logs", "digests", "lines", "scores"}
TOOLS = {"diagnose", "export", "compare", "reproduce", "sweep"}
ROOMS = LEAVES | MIDDLE | TOOLS | {"run", "errors"}
BETWEEN_LEAVES = {("tasks", "metrics"), ("data", "randomness")}
LEAF_LIBRARIES = {"torch", "torchvision", "timm", "numpy", "PIL"} | set(sys.stdlib_module_names)
EXTRA_LIBRARIES = {
    "callbacks": {"rich", "mlflow"},
    "data": {"filelock", "simplejpeg", "webdataset"},
    "models": {"safetensors"},
}  # the plan's own words for progress and for locks
HYDRA = {"hydra", "omegaconf"}
HYDRA_ROOMS = re.compile(
    r"^(train\.py|diagnose\.py|src/torchlite/(command_line\.py|config\.py|build\.py|sweep/.*)|src/hydra_plugins/.*|tests/.*)$"
)
BAD_FILES = re.compile(r"^(utils?|helpers?|common|misc|base|managers?|wrappers?|factory|registry)(\.py)?$")
BAD_CLASSES = re.compile(r"^(Base[A-Z]\w*|\w+(Manager|Wrapper|Factory|Registry|Helpers?|Utils?))$")


def python_files(root: Path) -> Iterator[tuple[str, str]]:
    """(path from the root, text) of every python file of ours."""
    paths = [*root.glob("*.py"), *(p for top in ("src", "tests", "benchmarks") for p in (root / top).rglob("*.py"))]
    for path in sorted(paths):
        yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def room_of(name: str) -> str | None:
    """The room a file belongs to: `data` for src/torchlite/data/order.py; None outside the package."""
    inside = name.removeprefix("src/torchlite/")
    return inside.split("/")[0].removesuffix(".py") if inside != name else None


def imports(name: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(absolute dotted name, line) of everything imported: at the top or inside a function, relative or by string."""
    package = name.removeprefix("src/").removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.args[0].value, node.lineno


def may_lean(room: str, on: str) -> bool:
    """Whether a file of one room may import another room."""
    if on in (room, "errors", "__version__") or room == "__init__":
        return on in (room, "errors", "__version__")
    if room in LEAVES:
        return (room, on) in BETWEEN_LEAVES
    if room in MIDDLE:
        return on in LEAVES | (MIDDLE - COMPOSING if room in LOOP else MIDDLE)
    if room == "run":
        return on in LEAVES | MIDDLE
    return room in TOOLS


def import_problems(root: Path) -> list[str]:
    """Imports that go the wrong way."""
    found = []
    for name, text in python_files(root):
        room = room_of(name)
        if room is not None and room not in ROOMS | {"__init__"}:
            found.append(f"{name}: the room {room} has no place in the plan")
        tools = set()
        for module, line in imports(name, ast.parse(text)):
            top, *rest = module.split(".")
            if top == "experiments":
                found.append(f"{name}:{line} imports experiments, which is a ledger")
            if top in HYDRA and not HYDRA_ROOMS.match(name):
                found.append(f"{name}:{line} imports {top} outside the rooms that know Hydra")
            if top == "torchlite" and room and rest and not may_lean(room, rest[0]):
                found.append(f"{name}:{line} {room} leans on {rest[0]}")
            if top == "torchlite" and rest and rest[0] in TOOLS:
                tools.add(rest[0])
            known = LEAF_LIBRARIES | HYDRA | {"torchlite", "experiments"} | EXTRA_LIBRARIES.get(room or "", set())
            if room in LEAVES and top not in known:
                found.append(f"{name}:{line} a leaf room imports {top}")
        if "/" not in name and len(tools) > 1:
            found.append(f"{name}: an entry point opens more than one tool folder: {', '.join(sorted(tools))}")
    return found


def name_problems(root: Path) -> list[str]:
    """Names that say nothing, and defaults hidden in cfg.get."""
    found = []
    for name, text in python_files(root):
        found += [f"{name}: {part} is a name that says nothing" for part in name.split("/") if BAD_FILES.match(part)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and BAD_CLASSES.match(node.name):
                found.append(f"{name}:{node.lineno} class {node.name} is a name the plan avoids")
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "cfg.get":
                found.append(f"{name}:{node.lineno} cfg.get hides a default")
    return found


def length_problems(root: Path) -> list[str]:
    """Files, functions, entry points and yaml that a second thing has moved into."""
    found = []
    for name, text in python_files(root):
        lines = len(text.splitlines())
        limit = 300 if "/" in name else 39
        if lines > limit:
            found.append(f"{name}: {lines} lines, over {limit}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > 60:
                    found.append(f"{name}:{node.lineno} {node.name}: {length} lines, over 60")
    for path in sorted((root / "conf").rglob("*.yaml")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 40:
            found.append(f"{path.relative_to(root).as_posix()}: {lines} lines, over 40")
    return found


def pin_problems(root: Path) -> list[str]:
    """Lines of constraints.txt that are anything but name==version."""
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    exact = re.compile(r"#[^/]*|[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")
    return [f"constraints.txt: {line}" for line in lines if not exact.fullmatch(line)]


@pytest.mark.parametrize("problems", [import_problems, name_problems, length_problems, pin_problems])
def test_house_stands_as_planned(problems) -> None:
    assert problems(ROOT) == []


def test_house_is_not_empty() -> None:
    names = [name for name, _ in python_files(ROOT)]
    assert {"src/torchlite/randomness.py", "tests/test_house.py"} <= set(names)


BAD_IMPORTS = {
    "src/torchlite/models/net.py": ("from torchlite.run import run", "models leans on run"),
    "src/torchlite/models/cnn.py": ("from torchlite import optim", "models leans on optim"),
    "src/torchlite/models/mlp.py": ("import sklearn", "a leaf room imports sklearn"),
    "src/torchlite/data/order.py": ("from ..build import build", "data leans on build"),
    "src/torchlite/data/loader.py": ("def f():\n    from .. import config", "data leans on config"),
    "src/torchlite/optim/groups.py": ("import omegaconf.base", "imports omegaconf outside"),
    "src/torchlite/callbacks.py": ("import torchlite.trainer", "callbacks leans on trainer"),
    "src/torchlite/metrics.py": ("from torchlite.tasks.classify import Classify", "metrics leans on tasks"),
    "src/torchlite/errors.py": ("from torchlite import metrics", "errors leans on metrics"),
    "src/torchlite/trainer.py": ("from torchlite import config", "trainer leans on config"),
    "src/torchlite/run.py": ("from torchlite.sweep.jobs import jobs", "run leans on sweep"),
    "src/torchlite/record.py": ("import importlib\nimportlib.import_module('hydra.utils')", "imports hydra outside"),
    "src/torchlite/checkpoint.py": ("from torchlite.run import run", "checkpoint leans on run"),
    "src/torchlite/attic.py": ("", "the room attic has no place in the plan"),
    "compare.py": ("import torchlite.compare, torchlite.export.onnx", "more than one tool folder: compare, export"),
    "tests/test_x.py": ("from experiments import baseline", "imports experiments"),
}


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", BAD_IMPORTS)
def test_wrong_way_imports_are_found(tmp_path: Path, name: str) -> None:
    text, problem = BAD_IMPORTS[name]
    write_tree(tmp_path, {name: text})
    found = import_problems(tmp_path)
    assert len(found) == 1 and name in found[0] and problem in found[0]


def test_right_way_imports_pass(tmp_path: Path) -> None:
    good = {
        "train.py": "import hydra\nfrom torchlite.errors import UserError\nfrom torchlite.run import run",
        "src/torchlite/run.py": "from torchlite import build, config, record, trainer\nimport torchlite.data",
        "src/torchlite/trainer.py": "from torchlite.metrics import Average\nfrom .record import Record",
        "src/torchlite/build.py": "from hydra.utils import instantiate\nfrom omegaconf import OmegaConf",
        "src/torchlite/sweep/jobs.py": "import hydra\nfrom torchlite.run import run\nfrom . import table",
        "src/torchlite/tasks/classify.py": "import timm.loss\nfrom torchlite.metrics import Average",
        "src/torchlite/data/order.py": "import numpy\nfrom ..randomness import draws\nfrom ..errors import UserError",
    }
    write_tree(tmp_path, good)
    assert import_problems(tmp_path) == []


def test_names_and_lengths_are_found(tmp_path: Path) -> None:
    bad = {
        "src/torchlite/data/utils.py": "",
        "src/torchlite/common/lists.py": "",
        "src/torchlite/trainer.py": "class BaseLoop: ...\nclass LoopManager: ...\nclass Trainer: ...\ncfg.get('lr', 1)",
        "src/torchlite/metrics.py": "x = 1\n" * 301,
        "src/torchlite/record.py": "def long():\n" + "    x = 1\n" * 60,
        "train.py": "x = 1\n" * 40,
        "conf/data/big.yaml": "a: 1\n" * 41,
    }
    good = {"src/torchlite/run.py": "x = 1\n" * 300, "test.py": "x = 1\n" * 39, "conf/ok.yaml": "a: 1\n" * 40}
    write_tree(tmp_path, bad | good)
    names, lengths = name_problems(tmp_path), length_problems(tmp_path)
    assert [n.split(" ")[0] for n in names] == [
        "src/torchlite/common/lists.py:",
        "src/torchlite/data/utils.py:",
        "src/torchlite/trainer.py:1",
        "src/torchlite/trainer.py:2",
        "src/torchlite/trainer.py:4",
    ]
    assert [n.split(" ")[0] for n in lengths] == [
        "src/torchlite/metrics.py:",
        "src/torchlite/record.py:1",
        "train.py:",
        "conf/data/big.yaml:",
    ]


@pytest.mark.parametrize(
    "line", ["torch @ file:///torch.whl", "-e .", "torch>=2.9", "--index-url https://host/simple", "# see https://host"]
)
def test_pins_with_an_address_are_found(tmp_path: Path, line: str) -> None:
    write_tree(tmp_path, {"constraints.txt": f"# pins\ntorch==2.14.1\n{line}\n"})
    assert pin_problems(tmp_path) == [f"constraints.txt: {line}"]


def test_pins_of_what_matters() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    assert {"torch==2.14.1", "torchvision==0.29.1"} <= set(pins)


@pytest.mark.slow
def test_default_run_imports_neither_torchvision_nor_timm(tmp_path: Path) -> None:
    words = ["train.py", "trainer=smoke"]
    program = (
        f"import atexit, runpy, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = {words!r}\n"
        "heavy = {'torchvision', 'timm', 'torch', 'hydra'}\n"
        "atexit.register(lambda: print('imported:', sorted(heavy & set(sys.modules))))\n"
        f"runpy.run_path({str(ROOT / 'train.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: ['hydra', 'torch']"
