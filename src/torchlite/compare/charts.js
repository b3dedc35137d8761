"use strict";
// The charts, and numbers as text. page.js hands in the rows; what it picks is drawn in a colour and a dash of its own.
const $ = (id) => document.getElementById(id);
// Okabe and Ito's colours, told apart by the colour-blind; dashes, in pixels, serve where all is gray
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const DASHES = ["", "8 4", "2 3", "9 3 2 3", "15 5", "9 3 2 3 2 3"];
const SCALE = ["#00204c", "#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"]; // cividis
const AXES = { updates: "applied updates", epochs: "epochs", seconds: "training time (s)" };
const PLOT = { responsive: true, displaylogo: false };
const FONT = { family: "system-ui, sans-serif", size: 12, color: "#1a1a1a" };

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

function charts({ data, state, rows, runs, score }) {
  /** How a picked row is drawn: the first six differ in colour and in dash, the next six in how the two go together. */
  function stroke(row) {
    const place = state.picked.get(row.id), dash = DASHES[(place + Math.floor(place / COLORS.length)) % DASHES.length];
    return { color: COLORS[place % COLORS.length], dash: dash ? dash.replace(/\d+/g, "$&px").replaceAll(" ", ",") : "solid", width: 2 };
  }

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
      return curve && curve[which] && { xs: data.arrays[curve[place]], ys: curve[which], row,
        label: `${plain(row.label)}${row.runs.length > 1 ? ` (n = ${curve[6]})` : ""}` };
    };
    const traces = [line(joined(kept.filter((row) => !state.picked.has(row.id)).map((row) => part(row)).filter(Boolean)),
      { line: { color: "#9a9a9a", width: kept.length > 100 ? 0.4 : 0.8 }, opacity: 0.6 })];
    for (const row of kept.filter((one) => state.picked.has(one.id))) {
      const mean = part(row);
      if (!mean) continue;
      if (part(row, 4)) {
        const [low, high] = [part(row, 4), part(row, 5)];
        traces.push({ type: "scatter", mode: "lines", showlegend: false, x: [...high.xs, ...[...low.xs].reverse()], y: [...high.ys, ...[...low.ys].reverse()],
          fill: "toself", fillcolor: `${stroke(row).color}2e`, line: { width: 0 }, hoverinfo: "skip" });
      }
      if (state.folded && $("seed-curves").checked) {
        const each = row.runs.map((i) => { const c = runs[i].curves(metric); return c && { xs: data.arrays[c[place]], ys: c[3], row, label: plain(runs[i].label) }; });
        traces.push(line(joined(each.filter(Boolean)), { line: { ...stroke(row), width: 0.8 }, opacity: 0.6 }));
      }
      traces.push(line(joined([mean]), { name: plain(row.label), showlegend: true, line: stroke(row) }));
    }
    const counts = kept.filter((row) => state.picked.has(row.id)).map((row) => metric && row.curves(metric)).filter(Boolean).map((curve) => curve[6]);
    const [least, most] = [Math.min(...counts), Math.max(...counts)];
    $("curve-hint").textContent = traces.some((t) => t.fill)
      ? `Bands: 95 % interval of the mean over ${least === most ? most : `${least} to ${most}`} seeds.` : "";
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
        color: points.map((p) => (state.picked.has(p.row.id) ? stroke(p.row).color : "#8a8a8a")) } };
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
    const style = (one) => ({ mode: "lines+markers", marker: { size: 5, color: one.color }, line: one, hovertemplate: "%{text}<extra></extra>" });
    const traces = SCALE.map((shade, i) => line(joined(ranked.filter((row, rank) => !state.picked.has(row.id)
      && Math.floor((rank * SCALE.length) / ranked.length) === i).map(part)), style({ color: shade, width: 1 })));
    for (const row of scored.filter((one) => state.picked.has(one.id))) traces.push(line(joined([part(row)]), style(stroke(row))));
    const ticks = dimensions.flatMap((d, i) => d.ticks.map(([y, text]) => ({ x: i, y, text: plain(text), showarrow: false,
      xanchor: "left", xshift: 5, font: { size: 11 }, bgcolor: "rgba(255,255,255,0.75)", borderpad: 0 })));
    Plotly.react("parallel", traces, layout({ dragmode: "select", annotations: ticks, margin: { l: 30, r: 80, t: 40, b: 12 },
      xaxis: { tickvals: xs, ticktext: dimensions.map((d) => plain(d.title)), side: "top", showgrid: true, gridcolor: "#444", zeroline: false,
        range: [-0.1, Math.max(dimensions.length - 1, 0.2) + 0.1], fixedrange: true },
      yaxis: { visible: false, range: [-0.06, 1.06], fixedrange: true }, selections: [] }), PLOT);
  }

  return {
    stroke,
    draw(kept) { drawCurves(kept); drawCost(kept); drawParallel(kept); },
  };
}
