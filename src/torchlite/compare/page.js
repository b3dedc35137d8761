// Shows what page.py computed; every number, mean and interval comes from there. Text enters the page as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { folded: true, sort: null, down: false, filters: new Map(), search: "", brush: null, picked: new Map() };

  // Rows: groups, or single runs

  const groups = data.groups.map((group, index) => ({ ...group, id: `g${index}`, curves: (m) => data.curves[m].groups[index] }));
  const runs = data.runs.map((run, index) => ({
    ...run, id: `r${index}`, n: 1, runs: [index], comparison: [], curves: (m) => data.curves[m].runs[index],
  }));
  const rows = () => (state.folded ? groups : runs);
  const byId = new Map([...groups, ...runs].map((row) => [row.id, row]));
  const score = (row, metric) => row.scores[metric] || [null, null, null];
  const { draw, stroke } = charts({ data, state, rows, runs, score });

  function element(name, text, properties = {}) {
    const made = Object.assign(document.createElement(name), properties);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /** A piece of a row's line, as it is in the charts. */
  function sample() {
    const [made, line] = ["svg", "line"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
    Object.entries({ x1: 0, x2: 30, y1: 3, y2: 3, "stroke-width": 3 }).forEach(([name, value]) => line.setAttribute(name, value));
    made.setAttribute("class", "swatch");
    made.append(line);
    return made;
  }

  // Columns

  function columns() {
    const made = [];
    if (!state.folded) made.push({ title: "seed", value: (row) => row.seed, number: true });
    data.columns.forEach((title, i) => made.push({ title, value: (row) => row.values[i],
      number: rows().every((row) => typeof row.values[i] === "number") }));
    if (state.folded) made.push({ title: "n", value: (row) => row.n, number: true, text: (row) => row.finished || String(row.n) });
    for (const metric of data.scores) {
      made.push({ title: metric, value: (row) => score(row, metric)[0], number: true,
        text: (row) => (metric === "seconds" ? digits(score(row, metric)[0]) : withInterval(score(row, metric))) });
    }
    if (state.folded && data.baseline) {
      ["difference", "p (Holm)", "verdict", "more seeds"].forEach((title, i) => made.push({ title,
        value: (row) => (row.comparison[i] ?? [null])[0], text: (row) => (row.comparison[i] ?? [null, ""])[1], number: i !== 2 }));
    }
    if (!data.columns.length) made.unshift({ title: "run", value: (row) => row.label });
    made.forEach((column) => { column.text ??= (row) => (typeof column.value(row) === "number" ? digits(column.value(row)) : String(column.value(row) ?? "")); });
    return made;
  }

  function passes(text, value, wanted) {
    const match = wanted.trim().match(/^(<=|>=|<|>|=|!=)\s*(.+)$/);
    if (!match) return text.toLowerCase().includes(wanted.trim().toLowerCase());
    const [, sign, word] = match;
    if (sign === "=") return text === word || value === Number(word);
    if (sign === "!=") return !(text === word || value === Number(word));
    if (typeof value !== "number") return false;
    return { "<": value < word, ">": value > word, "<=": value <= word, ">=": value >= word }[sign];
  }

  let table = []; // {row, line, column texts}, in the order of rows()
  let shape = [];

  function build() {
    shape = columns();
    const head = $("rows").tHead, body = $("rows").tBodies[0];
    head.replaceChildren();
    const titles = head.insertRow(), filters = head.insertRow();
    titles.append(element("th", "colour")); filters.append(element("th"));
    for (const column of shape) {
      const cell = element("th", undefined, { className: column.number ? "number" : "" });
      const button = element("button", column.title, { type: "button", title: `sort by ${column.title}` });
      button.addEventListener("click", () => sortBy(column.title));
      cell.append(button); titles.append(cell);
      const input = element("input", undefined, { type: "search", value: state.filters.get(column.title) ?? "" });
      input.setAttribute("aria-label", `filter ${column.title}`);
      input.addEventListener("input", () => { state.filters.set(column.title, input.value); refresh(); });
      const place = element("th"); place.append(input); filters.append(place);
    }
    table = rows().map((row) => {
      const line = element("tr", undefined, { tabIndex: 0, className: row.best ? "best" : "" });
      line.dataset.id = row.id;
      const box = element("input", undefined, { type: "checkbox", checked: state.picked.has(row.id) });
      box.setAttribute("aria-label", `draw ${row.label} in colour`);
      const swatch = sample(), first = element("td");
      box.addEventListener("click", (event) => { event.stopPropagation(); pick(row, box.checked); });
      first.append(box, swatch); line.append(first);
      const texts = shape.map((column) => column.text(row));
      texts.forEach((text, i) => line.append(element("td", (i === 0 && row.best ? "* " : "") + text,
        { className: shape[i].number ? "number" : "", title: text.length > 40 ? text : "" })));
      line.addEventListener("click", () => open(row));
      line.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target === line) open(row); });
      return { row, line, swatch, box, texts, all: [row.label, ...texts].join(" ").toLowerCase() };
    });
    body.replaceChildren(...table.map((entry) => entry.line));
    sort(); paint(); refresh();
  }

  function sortBy(title) {
    state.down = state.sort === title ? !state.down : false;
    state.sort = title;
    sort(); refresh();
  }

  function sort() {
    const column = shape.find((one) => one.title === state.sort);
    $("rows").tHead.rows[0].querySelectorAll("button").forEach((button) => {
      const on = button.textContent === state.sort;
      button.parentNode.setAttribute("aria-sort", on ? (state.down ? "descending" : "ascending") : "none");
      button.dataset.arrow = on ? (state.down ? "↓" : "↑") : "";
    });
    if (!column) return;
    const missing = (value) => value === null || value === undefined || value === "";
    table.sort((a, b) => {
      const [x, y] = [column.value(a.row), column.value(b.row)];
      if (missing(x) || missing(y)) return missing(x) - missing(y); // what is missing stays below
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return state.down ? -order : order;
    });
    $("rows").tBodies[0].append(...table.map((entry) => entry.line));
  }

  function shownEntries() {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const filters = shape.map((column, i) => [column, i, state.filters.get(column.title) ?? ""]).filter(([, , text]) => text.trim());
    return table.filter(({ row, texts, all }) => (!state.brush || state.brush.has(row.id)) && words.every((word) => all.includes(word))
      && filters.every(([column, i, wanted]) => passes(texts[i], column.value(row), wanted)));
  }

  let waiting = 0;
  function refresh() {
    const kept = new Set(shownEntries());
    for (const entry of table) entry.line.hidden = !kept.has(entry);
    $("count").textContent = `${kept.size} of ${table.length} ${state.folded ? "rows" : "runs"}`;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 60);
  }

  // Rows in colour

  function pick(row, on) {
    if (on) {
      const taken = new Set(state.picked.values());
      let next = 0;
      while (taken.has(next)) next += 1;
      state.picked.set(row.id, next);
    } else state.picked.delete(row.id);
    paint(); drawAll();
  }

  function paint() {
    for (const { row, swatch, box } of table) {
      box.checked = state.picked.has(row.id);
      const { color, dash } = box.checked ? stroke(row) : { color: "none", dash: "" };
      swatch.firstChild.setAttribute("stroke", color);
      swatch.firstChild.setAttribute("stroke-dasharray", dash);
    }
  }

  function pickFirst() {
    state.picked.clear();
    const first = rows().slice(0, COLORS.length);
    const baseline = rows().find((row) => row.baseline);
    if (baseline && !first.includes(baseline)) first[first.length - 1] = baseline;
    first.forEach((row, index) => state.picked.set(row.id, index));
  }

  // Charts

  function drawAll() {
    const kept = table.filter((entry) => !entry.line.hidden).map((entry) => entry.row);
    draw(kept);
    document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
  }

  function listen() {
    for (const id of ["curves", "against-cost", "parallel"]) {
      $(id).on("plotly_click", (event) => { const row = byId.get(event.points[0].customdata); if (row) open(row); });
    }
    $("parallel").on("plotly_selected", (event) => {
      if (!event || !event.range) return;
      const hit = new Set(event.points.map((point) => point.customdata));
      state.brush = state.brush ? new Set([...state.brush].filter((id) => hit.has(id))) : hit;
      refresh();
    });
  }

  // A row's detail

  function open(row) {
    const place = $("detail").querySelector("div");
    const list = element("table"), head = list.createTHead().insertRow(), names = ["seed", data.metric, "seconds", "directory", "command"];
    for (const name of names) head.append(element("th", name));
    for (const index of row.runs) {
      const run = runs[index], cells = list.insertRow();
      for (const text of [run.seed, digits(score(run, data.metric)[0]), digits(score(run, "seconds")[0]), run.directory, run.command]) cells.append(element("td", text));
    }
    const where = [...new Set(row.runs.map((index) => runs[index].where))];
    const settings = [...new Set(row.runs.map((index) => runs[index].setting))];
    place.replaceChildren(element("h2", row.label), list, ...where.map((text) => element("p", text)), ...settings.map((index) => {
      const text = Object.entries(data.settings[index]).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n");
      return element("pre", text);
    }));
    $("detail").showModal();
  }

  // The page

  function start() {
    $("summary").textContent = data.summary.join(" ");
    for (const note of data.notes) $("notes").append(element("li", note));
    if (data.left_out.length) {
      $("left-out").hidden = false;
      $("left-out").querySelector("summary").textContent = `left out (${data.left_out.length})`;
      for (const text of data.left_out) $("left-out").querySelector("ul").append(element("li", text));
    }
    for (const name of Object.keys(data.curves)) $("curve-metric").append(element("option", name, { value: name, selected: name === data.curve_metric }));
    for (const [name, title] of Object.entries(AXES)) $("curve-axis").append(element("option", title, { value: name }));
    for (const name of data.costs) $("cost").append(element("option", data.units[name] ?? name, { value: name }));
    for (const id of ["curve-metric", "curve-axis", "cost", "seed-curves"]) $(id).addEventListener("change", drawAll);
    $("search").addEventListener("input", () => { state.search = $("search").value; refresh(); });
    $("fold").addEventListener("change", () => { state.folded = $("fold").checked; state.brush = null; pickFirst(); build(); });
    $("clear").addEventListener("click", () => {
      state.filters.clear(); state.search = $("search").value = ""; state.brush = null;
      $("rows").tHead.querySelectorAll("input").forEach((input) => { input.value = ""; });
      refresh();
    });
    $("detail").querySelector("button").addEventListener("click", () => $("detail").close());
    $("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); }); // beside it
    pickFirst(); build(); clearTimeout(waiting); drawAll(); listen();
  }

  start();
})();
