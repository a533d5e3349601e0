"use strict";
// Charts by Plotly in the page's own colours. Every chart is drawn by one function from plain data,
// and drawn again when the data or the colours change.

const LOOK = JSON.parse(document.getElementById("look").textContent);
const GLYPHS = "● ■ ▲ ◆ ▼ ✚ ✖ ◀ ▶ ★ ⬟ ⬢".split(" ");

const ofPage = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => ofPage("color-scheme") === "dark";

function colour(index) {
  if (index < 0) return ofPage("--soft");
  const colours = LOOK.colours[isDark() ? "dark" : "light"];
  return colours[index % colours.length];
}
const symbol = (index) => LOOK.symbols[index % LOOK.symbols.length];
const glyph = (index) => GLYPHS[index % GLYPHS.length];
const dash = (index) => (index < 7 ? "solid" : "dash");
// A run's line, and those of others it is held against, which may lie on it.
const HELD = [{ colour: 0, dash: "solid", width: 7 }, { colour: 4, dash: "dash", width: 2 }, { colour: 5, dash: "dot", width: 2 }];

function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 8 }, gridcolor: ofPage("--line"), zeroline: false,
    linecolor: ofPage("--soft"), automargin: true, fixedrange: true, ...more,
  };
}
function roundAxis(rounds) {
  const edge = Math.max(0.5, 0.01 * rounds.length);
  const range = [Math.min(...rounds) - edge, Math.max(...rounds) + edge];
  const ticks = range[1] - range[0] > 12 ? { nticks: 10 } : { dtick: 1 };
  return axis("round", { tickformat: "d", showgrid: false, range, ...ticks });
}

function draw(box, label, traces, layout) {
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", label);
  const whole = {
    margin: { l: 52, r: 12, t: 12, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ofPage("--ink"), family: getComputedStyle(document.body).fontFamily, size: 12 }, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: ofPage("--card"), bordercolor: ofPage("--line"), font: { color: ofPage("--ink") } },
    ...layout,
  };
  return Plotly.react(box, traces, whole, { responsive: true, displayModeBar: false });
}

// A vertical line with a word, at the round in which assignments were first stable.
function stableMark(round, rounds, ink = "--soft") {
  if (!round) return {};
  const late = 2 * round > Math.min(...rounds) + Math.max(...rounds);
  const line = { type: "line", x0: round, x1: round, yref: "paper", y0: 0, y1: 1,
    line: { color: ofPage(ink), width: ink === "--ink" ? 2.5 : 1.5, dash: "dot" } };
  const word = { x: round, yref: "paper", y: 1, yanchor: "bottom", xanchor: late ? "right" : "left", showarrow: false,
    text: `first stable in round ${round}`, font: { size: 12, color: ofPage("--soft") } };
  return { shapes: [line], annotations: [word], margin: { l: 52, r: 12, t: 26, b: 42 } };
}

function drawCurve(box, label, title, rounds, values, more = {}) {
  const points = rounds.map((round, i) => [round, values[i]]).filter(([, value]) => value !== null);
  const trace = {
    x: points.map((p) => p[0]), y: points.map((p) => p[1]), mode: points.length > 40 ? "lines" : "lines+markers",
    line: { color: colour(0), width: 2.2 }, marker: { size: 5 }, hovertemplate: "round %{x}: %{y:.4~g}<extra></extra>",
  };
  return draw(box, label, [trace], { xaxis: roundAxis(rounds), yaxis: axis(title, more.yaxis), ...stableMark(more.stable, rounds) });
}

// Mean over seeds as a line, least to most as a band.
function drawBands(box, label, title, curves, metric, yaxis) {
  const traces = curves.flatMap((one, i) => {
    const { round, mean, low, high } = one[metric];
    if (!round.length) return [];
    const tint = colour(i) + "2e";
    const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: one.name };
    const band = one.seeds < 2 ? [] : [
      { ...edge, x: round, y: high }, { ...edge, x: round, y: low, fill: "tonexty", fillcolor: tint },
    ];
    const line = { x: round, y: mean, mode: "lines", name: one.name, line: { color: colour(i), width: 2.2, dash: dash(i) },
      hovertemplate: `${one.name}, round %{x}: %{y:.4~g}<extra></extra>` };
    return [...band, line];
  });
  const rounds = curves.flatMap((one) => one[metric].round);
  return draw(box, label, traces, { xaxis: roundAxis(rounds), yaxis: axis(title, yaxis) });
}

function drawEmbedding(box, label, frame, groups, range) {
  const share = (i) => `${Math.round(100 * (frame.explained[i] ?? 0))} % of variance`;
  const trace = {
    x: frame.x, y: frame.y, mode: "markers", ids: frame.clients.map(String),
    marker: {
      size: 11, color: frame.models.map(colour), symbol: groups ? frame.clients.map((c) => symbol(groups[c] ?? 0)) : "circle",
      line: { width: 0.8, color: ofPage("--edge") },
    },
    text: frame.clients.map((c, i) => `client ${c}<br>${frame.models[i] < 0 ? "in no cluster" : `cluster ${frame.models[i]}`}${groups ? `<br>true group ${groups[c]}` : ""}`),
    hovertemplate: "%{text}<extra></extra>",
  };
  return draw(box, label, [trace], {
    xaxis: axis(`first direction (${share(0)})`, { range: range.x, nticks: 6 }),
    yaxis: axis(`second direction (${share(1)})`, { range: range.y, nticks: 6 }),
    transition: { duration: 350, easing: "cubic-in-out" },
  });
}

function drawLosses(box, label, frame, order) {
  const place = new Map(frame.clients.map((client, i) => [client, i]));
  const rows = order.filter((client) => place.has(client));
  const losses = rows.map((client) => frame.losses[place.get(client)]);
  const flat = losses.flat().filter((v) => v !== null).sort((a, b) => a - b);
  const quantile = (share) => flat[Math.round(share * (flat.length - 1))];
  const models = losses[0].map((_, j) => `${j}`);
  const what = frame.columns > models.length ? `first ${models.length} of ${frame.columns} models` : "model";
  return draw(box, label, [{
    type: "heatmap", z: losses, x: models, y: rows.map(String), colorscale: "Cividis", zmin: quantile(0.02), zmax: quantile(0.98),
    xgap: 1, ygap: rows.length > 60 ? 0 : 1, colorbar: { title: { text: "loss", side: "right" }, thickness: 12, outlinewidth: 0 },
    hovertemplate: "client %{y}, model %{x}: loss %{z:.4~g}<extra></extra>",
  }], {
    xaxis: axis(what, { type: "category", showgrid: false }),
    yaxis: axis("client", { type: "category", autorange: "reversed", showgrid: false, nticks: 20 }),
  });
}

function drawMembership(box, label, strip, stable) {
  const models = Object.keys(strip.sizes).map(Number);
  const most = Math.max(...models) + 1;
  const steps = Array.from({ length: most }, (_, m) => [[m / most, colour(m)], [(m + 1) / most, colour(m)]]).flat();
  return draw(box, label, [{
    type: "heatmap", z: strip.models.map((row) => row.map((m) => (m < 0 ? null : m))), x: strip.rounds,
    y: strip.clients.map(String), colorscale: steps, zmin: -0.5, zmax: most - 0.5, showscale: false,
    xgap: strip.rounds.length > 60 ? 0 : 1, ygap: strip.clients.length > 60 ? 0 : 1,
    hovertemplate: "client %{y}, round %{x}: cluster %{z}<extra></extra>",
  }], {
    xaxis: roundAxis(strip.rounds),
    yaxis: axis("client", { type: "category", autorange: "reversed", showgrid: false, nticks: 25 }),
    ...stableMark(stable, strip.rounds, "--ink"),
  });
}

function drawTraffic(box, label, rounds, methods, way) {
  const traces = Object.entries(methods).map(([name, one], i) => ({
    x: rounds, y: one[way], name, mode: "lines", line: { ...HELD[i], color: colour(HELD[i].colour) },
    hovertemplate: `${name}, round %{x}: %{y:.3s}B<extra></extra>`,
  }));
  return draw(box, label, traces, { xaxis: roundAxis(rounds), yaxis: axis(`bytes ${way}`, { rangemode: "tozero", tickformat: "~s", ticksuffix: "B" }) });
}

function drawTimes(box, label, rounds, phases) {
  const traces = Object.entries(phases).map(([phase, seconds], i) => ({
    type: "bar", x: rounds, y: seconds, name: phase, marker: { color: colour(i), line: { width: 0 } },
    hovertemplate: `${phase}, round %{x}: %{y:.3s}s<extra></extra>`,
  }));
  return draw(box, label, traces, { barmode: "stack", bargap: 0.15, xaxis: roundAxis(rounds), yaxis: axis("seconds a round") });
}

// The range that holds some numbers, with room for marks; in powers of ten where they are far apart.
function around(values, share) {
  const low = Math.min(...values), high = Math.max(...values), log = low > 0 && high / low > 30;
  const of = (value) => (log ? Math.log10(value) : value);
  const room = share * (of(high) - of(low)) || 0.5 * Math.abs(of(high)) || 1;
  return { type: log ? "log" : "linear", range: [of(low) - room, of(high) + room], of };
}

// Where each point's name has room, as Plotly names places; "" where it would lie on another or be cut.
function namePlaces(points, width, height) {
  const taken = points.map(({ x, y }) => [x - 9, y - 9, x + 9, y + 9]);
  const free = ([left, top, right, bottom]) => left > 0 && right < width && top > 0 && bottom < height
    && taken.every(([l, t, r, b]) => right < l || left > r || bottom < t || top > b);
  return points.map(({ x, y, name }) => {
    const wide = 7 * name.length, high = 14;
    const boxes = {
      "top center": [x - wide / 2, y - 11 - high, x + wide / 2, y - 11], "bottom center": [x - wide / 2, y + 11, x + wide / 2, y + 11 + high],
      "middle right": [x + 11, y - high / 2, x + 11 + wide, y + high / 2], "middle left": [x - 11 - wide, y - high / 2, x - 11, y + high / 2],
    };
    const place = Object.keys(boxes).find((one) => free(boxes[one])) ?? "";
    if (place) taken.push(boxes[place]);
    return place;
  });
}

function drawPareto(box, label, found) {
  const margin = { l: 64, r: 12, t: 12, b: 42 };
  const bytes = around(found.points.flatMap((one) => one.seeds[0]), 0.12), values = around(found.points.flatMap((one) => one.seeds[1]), 0.15);
  const width = box.clientWidth - margin.l - margin.r, height = box.clientHeight - margin.t - margin.b;
  const share = ({ range, of }, value) => (of(value) - range[0]) / (range[1] - range[0]);
  const places = namePlaces(found.points.map((one) => (
    { name: one.name, x: width * share(bytes, one.bytes), y: height * (1 - share(values, one.value)) })), width, height);
  const traces = found.points.flatMap((one, i) => [
    { x: one.seeds[0], y: one.seeds[1], mode: "markers", marker: { size: 6, color: colour(i), opacity: 0.5 }, hoverinfo: "skip" },
    { x: [one.bytes], y: [one.value], mode: "markers+text", text: [places[i] ? one.name : ""], textposition: places[i] || "top center",
      marker: { size: 13, color: colour(i), symbol: symbol(i), line: { width: 1, color: ofPage("--edge") } },
      hovertemplate: `${one.name}: %{y:.4~g} for %{x:.3s}B<extra></extra>` },
  ]);
  const best = found.points.filter((one) => one.best).sort((a, b) => a.bytes - b.bytes);
  traces.unshift({ x: best.map((p) => p.bytes), y: best.map((p) => p.value), mode: "lines", hoverinfo: "skip",
    line: { color: ofPage("--soft"), width: 1.5, dash: "dot", shape: "hv" } });
  const { type, range } = bytes;
  return draw(box, label, traces, {
    margin,
    xaxis: axis("bytes up and down, all rounds", { type, range, tickformat: "~s", ticksuffix: "B", ...(type === "log" ? { dtick: 1 } : { nticks: 8 }) }),
    yaxis: axis(found.what === "accuracy" ? "test accuracy" : "test loss", { type: values.type, range: values.range }),
  });
}
