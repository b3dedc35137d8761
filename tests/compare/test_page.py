"""The page: whole in one file, nothing loaded, hostile names harmless, numbers those of the table."""

import html.parser
import json
import re
from pathlib import Path

from tests.compare import made
from torchlite.compare import page
from torchlite.compare.report import Asked, Report, report

EVIL = "</script><script>alert(1)</script><!-- <script> \" ' & $& \\u003c @@data@@ \u2028 ${x} `"


class Tags(html.parser.HTMLParser):
    """Collects tags, attributes and what stands in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def compared(root: Path, **asked: object) -> Report:
    return report([str(root)], Asked(**asked))  # type: ignore[arg-type]


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    made.sweep(tmp_path)
    text = page.page(compared(tmp_path))
    tags = Tags(text)
    assert len(tags.scripts) == 3
    assert not [attributes for _, attributes in tags.tags if "src" in attributes]
    assert [a["href"] for tag, a in tags.tags if tag == "link"] == ["data:,"]
    (policy,) = [a["content"] for tag, a in tags.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert (
        policy is not None
        and policy.startswith("default-src 'none'; script-src 'sha256-")
        and "unsafe-eval" not in policy
    )
    assert re.search(r"Charts: plotly\.js \d+\.\d+\.\d+, MIT licence", text)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    made.run(tmp_path / "a", model__act=EVIL, facts={"name": EVIL, "command": EVIL}, typed=("model.act=x",))
    made.run(tmp_path / "b", model__act="plain")
    made.run(tmp_path / "c", monitor=f"val/{EVIL}")
    made.run(tmp_path / "d", result={"status": "failed", "failure": {"message": EVIL}})
    for metric in ("val/loss", f"val/{EVIL}"):
        text = page.page(compared(tmp_path, metric=metric))
        tags = Tags(text)
        assert len(tags.scripts) == 3 and "alert(1)" not in "".join(tags.scripts[1:])
        data = json.loads(tags.scripts[0])
        assert any(EVIL.replace("\u2028", "\\u2028") in str(row) or "alert(1)" in str(row) for row in data["groups"])
        assert "<" not in tags.scripts[0] and "&" not in tags.scripts[0]


def test_the_numbers_are_the_tables(tmp_path: Path) -> None:
    made.sweep(tmp_path, num_seeds=4)
    found = compared(tmp_path, baseline="optimizer=sgd optimizer.lr=0.1")
    data = page.contents(found)
    json.dumps(data, allow_nan=False)
    for row, group in zip(data["groups"], found.groups, strict=True):
        mean = group.mean("val/acc1")
        assert mean is not None and row["scores"]["val/acc1"] == [mean.mean, mean.low, mean.high]
        assert row["n"] == 4 and [data["runs"][i]["directory"] for i in row["runs"]] == [
            str(r.directory) for r in group.runs
        ]
        assert len(row["comparison"]) == 4 and len(row["values"]) == len(data["columns"]) == 2
    curve = data["curves"]["val/acc1"]["groups"][0]
    assert data["arrays"][curve[0]] == [10, 20, 30] and len(curve[3]) == len(curve[4]) == 3
    assert data["settings"][data["runs"][0]["setting"]]["optimizer.lr"] == 0.003


def test_scripts_and_styles_are_short_enough_to_read() -> None:
    for name in ("page.html", "page.css", "page.js", "charts.js"):
        assert len((page.HERE / name).read_text().splitlines()) < 300


def test_many_long_curves_are_thinned(tmp_path: Path) -> None:
    for index in range(3):
        path = made.run(tmp_path / str(index), optimizer__lr=0.1 + index) / "metrics.jsonl"
        lines = [json.dumps({"update": u, "epoch": 0, "update/loss": 1 / u}) for u in range(1, 5000)]
        path.write_text("\n".join(lines) + "\n" + path.read_text())
    data = page.contents(compared(tmp_path))
    lengths = {len(curve[3]) for curve in data["curves"]["update/loss"]["runs"]}
    assert lengths == {page.MOST_POINTS}
