"use strict";
// Draws what page.py computed; every number, mean and interval comes from there. Text enters the page as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  // Okabe and Ito's colours, told apart by the colour-blind; the seventh row in colour begins anew with dashes
  const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const SCALE = ["#00204c", "#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"]; // cividis
  const AXES = { updates: "applied updates", epochs: "epochs", seconds: "training time (s)" };
  const PLOT = { responsive: true, displaylogo: false };
  const FONT = { family: "system-ui, sans-serif", size: 12, color: "#1a1a1a" };

  const state = { folded: true, sort: null, down: false, filters: new Map(), search: "", brush: null, picked: new Map() };

  // Rows: groups, or single runs

  const groups = data.groups.map((group, index) => ({ ...group, id: `g${index}`, curves: (m) => data.curves[m].groups[index] }));
  const runs = data.runs.map((run, index) => ({
    ...run, id: `r${index}`, n: 1, runs: [index], comparison: [], curves: (m) => data.curves[m].runs[index],
  }));
  const rows = () => (state.folded ? groups : runs);
  const byId = new Map([...groups, ...runs].map((row) => [row.id, row]));
  const score = (row, metric) => row.scores[metric] || [null, null, null];

  // plotly reads a few HTML tags in text, and formulas between dollars
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
  const digits = (value) => (value === null ? "" : Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6 || value === 0
    ? String(Number(value.toPrecision(4))) : value.toExponential(2));

  function withInterval([mean, low, high]) {
    if (mean === null || low === null) return digits(mean);
    const half = (high - low) / 2;
    if (!(half > 0)) return `${digits(mean)} ± 0`;
    const places = Math.max(0, 1 - Math.floor(Math.log10(half)));
    if (places > 8) return `${digits(mean)} ± ${half.toExponential(1)}`;
    return `${mean.toFixed(places)} ± ${half.toFixed(places)}`;
  }

  function element(name, text, properties = {}) {
    const made = Object.assign(document.createElement(name), properties);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Columns

  function columns() {
    const made = [];
    if (!state.folded) made.push({ title: "seed", value: (row) => row.seed, number: true });
    data.columns.forEach((title, i) => made.push({ title, value: (row) => row.values[i],
      number: rows().every((row) => typeof row.values[i] === "number") }));
    if (state.folded) made.push({ title: "n", value: (row) => row.n, number: true });
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
      const swatch = element("span", undefined, { className: "swatch" }), first = element("td");
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

  const color = (row) => COLORS[state.picked.get(row.id) % COLORS.length];
  const dash = (row) => DASHES[Math.floor(state.picked.get(row.id) / COLORS.length) % DASHES.length];
  function paint() {
    for (const { row, swatch, box } of table) {
      box.checked = state.picked.has(row.id);
      swatch.style.background = box.checked ? color(row) : "none";
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

  const layout = (more) => ({ font: FONT, margin: { l: 64, r: 16, t: 10, b: 48 }, hovermode: "closest", showlegend: false,
    hoverlabel: { align: "left", font: { size: 12 } }, ...more });
  const axisOf = (title, more = {}) => ({ title: { text: plain(title) }, zeroline: false, showline: true, linecolor: "#999",
    gridcolor: "#eee", automargin: true, ...more });

  /** The points of many curves as one line with gaps: a thousand lines of their own would be slow. */
  function joined(parts) {
    const x = [], y = [], text = [], ids = [];
    for (const { xs, ys, row, label } of parts) {
      for (let i = 0; i < xs.length; i += 1) { x.push(xs[i]); y.push(ys[i]); text.push(label); ids.push(row.id); }
      x.push(null); y.push(null); text.push(""); ids.push(row.id);
    }
    return { x, y, text, customdata: ids };
  }

  const line = (points, more) => ({ type: "scatter", mode: "lines", showlegend: false, hovertemplate: "%{text}<br>%{x}, %{y}<extra></extra>", ...points, ...more });

  function drawCurves(kept) {
    const metric = $("curve-metric").value, axis = $("curve-axis").value, place = Object.keys(AXES).indexOf(axis);
    const part = (row, which = 3) => {
      const curve = metric && row.curves(metric);
      return curve && curve[which] && { xs: data.arrays[curve[place]], ys: curve[which], row, label: plain(row.label) };
    };
    const traces = [line(joined(kept.filter((row) => !state.picked.has(row.id)).map((row) => part(row)).filter(Boolean)),
      { line: { color: "#9a9a9a", width: kept.length > 100 ? 0.4 : 0.8 }, opacity: 0.6 })];
    for (const row of kept.filter((one) => state.picked.has(one.id))) {
      const mean = part(row);
      if (!mean) continue;
      if (part(row, 4)) {
        const [low, high] = [part(row, 4), part(row, 5)];
        traces.push({ type: "scatter", mode: "lines", showlegend: false, x: [...high.xs, ...[...low.xs].reverse()], y: [...high.ys, ...[...low.ys].reverse()],
          fill: "toself", fillcolor: `${color(row)}2e`, line: { width: 0 }, hoverinfo: "skip" });
      }
      if (state.folded && $("seed-curves").checked) {
        const each = row.runs.map((i) => { const c = runs[i].curves(metric); return c && { xs: data.arrays[c[place]], ys: c[3], row, label: plain(runs[i].label) }; });
        traces.push(line(joined(each.filter(Boolean)), { line: { color: color(row), width: 0.8 }, opacity: 0.6 }));
      }
      traces.push(line(joined([mean]), { name: plain(row.label), showlegend: true, line: { color: color(row), width: 2, dash: dash(row) } }));
    }
    $("curve-hint").textContent = traces.some((t) => t.fill) ? "Bands: 95 % interval of the mean over seeds." : "";
    Plotly.react("curves", traces, layout({ showlegend: true, legend: { orientation: "h", y: -0.18, font: { size: 11 } },
      xaxis: axisOf(AXES[axis], { rangemode: "tozero" }), yaxis: axisOf(data.units[metric] ?? metric) }), PLOT);
  }

  function drawCost(kept) {
    const cost = $("cost").value, metric = data.metric;
    const points = kept.map((row) => ({ row, x: score(row, cost)[0], y: score(row, metric) })).filter((p) => p.x !== null && p.y[0] !== null);
    const sign = data.less_is_better ? -1 : 1;
    const front = [];
    for (const p of [...points].sort((a, b) => a.x - b.x || sign * (b.y[0] - a.y[0]))) {
      if (!front.length || sign * p.y[0] > sign * front[front.length - 1].y[0]) front.push(p);
    }
    const trace = { type: "scatter", mode: "markers", x: points.map((p) => p.x), y: points.map((p) => p.y[0]),
      text: points.map((p) => `${plain(p.row.label)}<br>${plain(metric)} ${withInterval(p.y)}<br>${plain(cost)} ${digits(p.x)}`),
      customdata: points.map((p) => p.row.id), hovertemplate: "%{text}<extra></extra>",
      error_y: { type: "data", array: points.map((p) => (p.y[1] === null ? 0 : p.y[2] - p.y[0])), thickness: 1, width: 2, color: "#aaaaaa" },
      marker: { size: points.map((p) => (state.picked.has(p.row.id) ? 10 : 6)), line: { width: 0.5, color: "#fff" },
        color: points.map((p) => (state.picked.has(p.row.id) ? color(p.row) : "#8a8a8a")) } };
    const best = { type: "scatter", mode: "lines", x: front.map((p) => p.x), y: front.map((p) => p.y[0]), hoverinfo: "skip",
      line: { color: "#444", width: 1, dash: "dot", shape: "hv" } };
    Plotly.react("against-cost", [best, trace], layout({ xaxis: axisOf(data.units[cost] ?? cost, { rangemode: "tozero" }),
      yaxis: axisOf(data.units[metric] ?? metric) }), PLOT);
  }

  /** One vertical axis: where a row's value stands on it, 0 to 1, and the texts beside it. */
  function dimension(title, all, value, ends = false) {
    const found = all.map(value), numbers = found.filter((v) => typeof v === "number");
    if (numbers.length === found.length && new Set(numbers).size > 1) {
      const low = Math.min(...numbers), high = Math.max(...numbers);
      const bend = low > 0 && high / low > 30 ? Math.log10 : (v) => v; // learning rates are spread over decades
      const at = (v) => (bend(v) - bend(low)) / (bend(high) - bend(low));
      const distinct = [...new Set(numbers)].sort((a, b) => a - b);
      return { title, at: (row) => at(value(row)), ticks: (distinct.length <= 8 && !ends ? distinct : [low, high]).map((v) => [at(v), digits(v)]) };
    }
    const name = (v) => (typeof v === "number" ? digits(v) : String(v ?? "–"));
    const names = [...new Set(found.map(name))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const at = (text) => (names.length > 1 ? names.indexOf(text) / (names.length - 1) : 0.5);
    const every = Math.ceil(names.length / 12);
    return { title, at: (row) => at(name(value(row))), ticks: names.filter((_, i) => i % every === 0).map((n) => [at(n), n.length > 18 ? `${n.slice(0, 17)}…` : n]) };
  }

  function drawParallel(kept) {
    const scored = kept.filter((row) => score(row, data.metric)[0] !== null);
    const scores = [data.metric, ...data.scores.filter((name) => name !== data.metric)];
    const dimensions = [...data.columns.map((title, i) => dimension(title, rows(), (row) => row.values[i])),
      ...scores.filter((name) => rows().every((row) => score(row, name)[0] !== null)).map((name) => dimension(name, rows(), (row) => score(row, name)[0], true))];
    const xs = dimensions.map((_, i) => i);
    const part = (row) => ({ xs, ys: dimensions.map((d) => d.at(row)), row, label: `${plain(row.label)}<br>${plain(data.metric)} ${withInterval(score(row, data.metric))}` });
    const ranked = [...scored].sort((a, b) => (data.less_is_better ? -1 : 1) * (score(a, data.metric)[0] - score(b, data.metric)[0]));
    const style = (stroke, width) => ({ mode: "lines+markers", marker: { size: 5, color: stroke }, line: { color: stroke, width },
      hovertemplate: "%{text}<extra></extra>" });
    const traces = SCALE.map((stroke, i) => line(joined(ranked.filter((row, rank) => !state.picked.has(row.id)
      && Math.floor((rank * SCALE.length) / ranked.length) === i).map(part)), style(stroke, 1)));
    for (const row of scored.filter((one) => state.picked.has(one.id))) traces.push(line(joined([part(row)]), style(color(row), 2.5)));
    const ticks = dimensions.flatMap((d, i) => d.ticks.map(([y, text]) => ({ x: i, y, text: plain(text), showarrow: false,
      xanchor: "left", xshift: 5, font: { size: 11 }, bgcolor: "rgba(255,255,255,0.75)", borderpad: 0 })));
    Plotly.react("parallel", traces, layout({ dragmode: "select", annotations: ticks, margin: { l: 30, r: 80, t: 40, b: 12 },
      xaxis: { tickvals: xs, ticktext: dimensions.map((d) => plain(d.title)), side: "top", showgrid: true, gridcolor: "#444", zeroline: false,
        range: [-0.1, Math.max(dimensions.length - 1, 0.2) + 0.1], fixedrange: true },
      yaxis: { visible: false, range: [-0.06, 1.06], fixedrange: true }, selections: [] }), PLOT);
  }

  function drawAll() {
    const kept = table.filter((entry) => !entry.line.hidden).map((entry) => entry.row);
    drawCurves(kept); drawCost(kept); drawParallel(kept);
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
