// The page: sections made once, and filled again whenever there are new data or other colours. What
// a reader has set (round, order, filter) is kept in the controls, which are never made anew.

const UNSORTED = null;

// ------------------------------------------------------------------------------------- small tools

function make(tag, traits = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(traits)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const chart = (kind = "") => make("div", { class: `chart ${kind}` });
const figure = (title, box, ...below) => make("figure", {}, make("figcaption", {}, title), box, ...below);
const swatch = (index, kind = "") => make("span", { class: `swatch ${kind}`, style: `color:${colour(index)}`, "aria-hidden": "true" });
const lineSwatch = (index, dashes = dash(index)) => swatch(index, `line ${dashes}`); // as the line in the chart

function legend(list, entries) {
  list.className = "legend";
  list.replaceChildren(...entries.map(([mark, words, title = null]) => make("li", { title }, mark, words)));
}

function tableOf(titles, rows, traits = {}) {
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell) => (cell instanceof Node ? cell : make("td", {}, shown(cell))))));
  return make("table", traits, make("thead", {}, head), make("tbody", {}, ...body));
}
const shown = (value) => (value === null || value === undefined ? "–" : String(value));
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const several = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

function copyButton(words, text) {
  const button = make("button", { type: "button", onclick: copy }, words);
  async function copy() {
    let done = true;
    try { await navigator.clipboard.writeText(text()); } catch { done = copiedByHand(text()); }
    button.textContent = done ? "Copied" : "Select and copy it by hand";
    setTimeout(() => { button.textContent = words; }, 2000);
  }
  return button;
}

// For pages opened from disk where a browser has no clipboard for them.
function copiedByHand(text) {
  const field = make("textarea", { style: "position:fixed;opacity:0" });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

// ----------------------------------------------------------------------------- sections of one run

function curvesSection() {
  const boxes = [chart(), chart()], rows = make("div", { class: "scroll high" });
  const first = figure("", boxes[0]), second = figure("Agreement with the true groups (ARI)", boxes[1]);
  const numbers = make("details", {}, make("summary", {}, "The same as a table"), rows);
  return {
    id: "curves", title: "By round", applies: (data) => data.curves.round.length > 0,
    body: [make("div", { class: "figures" }, first, second), numbers],
    fill(data) {
      const { round, accuracy, test_loss, ari, clusters } = data.curves;
      const accurate = accuracy.some((value) => value !== null);
      const [values, name] = accurate ? [accuracy, "test accuracy"] : [test_loss, "test loss"];
      first.firstChild.textContent = accurate ? "Accuracy on clients' own test data, mean" : "Loss on clients' own test data, mean";
      second.hidden = !ari.some((value) => value !== null);
      const last = values.findLast((value) => value !== null);
      const yaxis = accurate ? { range: [0, 1.02], tickformat: ".0%" } : { rangemode: "tozero" };
      drawCurve(boxes[0], `${name} by round, ${shown(last)} at the end`, name, round, values, { yaxis, stable: data.stability_round });
      if (!second.hidden) {
        const end = ari.findLast((value) => value !== null);
        drawCurve(boxes[1], `ARI by round, ${end} at the end`, "ARI", round, ari, { yaxis: { range: [Math.min(-0.05, ...ari), 1.05] }, stable: data.stability_round });
      }
      const columns = [["round", round], ["accuracy", accuracy], ["test loss", test_loss], ["ARI", ari], ["clusters", clusters]]
        .filter(([, column]) => column.some((value) => value !== null));
      rows.replaceChildren(tableOf(columns.map(([title]) => title), round.map((_, i) => columns.map(([, column]) => column[i])), { class: "wide" }));
    },
  };
}

const TRANSFORMS = { sqrt: "square roots of losses", log: "logarithms of losses", row: "losses less their mean" };

function vectorsSection() {
  const plane = chart("tall"), heat = chart("tall"), marks = make("ul"), shapes = make("ul");
  const slider = make("input", { type: "range", min: 0, max: 0, value: 0, id: "round-slider", oninput: show });
  const at = make("output", { for: "round-slider" });
  const zoom = make("input", { type: "checkbox", onchange: show });
  const play = make("button", { type: "button", "aria-label": "Play the rounds", onclick: playing }, "▶ Play");
  const left = figure("", plane, marks, shapes);
  let data = null, timer = null;

  function show() {
    const { frames } = data.vectors;
    const frame = frames[Number(slider.value)];
    at.textContent = `round ${frame.round}`;
    slider.setAttribute("aria-valuetext", at.textContent);
    const clusters = [...new Set(frame.models)].filter((m) => m >= 0).sort((a, b) => a - b);
    drawEmbedding(plane, `Loss vectors of ${frame.clients.length} clients in round ${frame.round}, in ${several(clusters.length, "cluster")}`,
      frame, data.groups, extent(zoom.checked ? [frame] : frames.filter((one) => one.columns === frame.columns)));
    drawLosses(heat, `Losses of ${frame.clients.length} clients on ${several(frame.columns, "model")} in round ${frame.round}`, frame, data.order);
    const nowhere = frame.models.some((m) => m < 0) ? [-1] : [];
    legend(marks, [...clusters, ...nowhere].map((m) => [swatch(m), `${m < 0 ? "in none" : `cluster ${m}`}: ${frame.models.filter((one) => one === m).length}`]));
    const known = data.groups ? [...new Set(frame.clients.map((c) => data.groups[c]))].sort((a, b) => a - b) : [];
    legend(shapes, known.map((g) => [`${glyph(g)} `, `true group ${g}`]));
  }
  function playing() {
    if (timer) return stop();
    if (Number(slider.value) === Number(slider.max)) slider.value = 0;
    play.textContent = "❚❚ Stop";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (Number(slider.value) === Number(slider.max)) stop();
    }, 500);
    return show();
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  }
  return {
    id: "vectors", title: "Loss vectors",
    about: "Every client sends its losses on all models. Clients whose vectors are alike belong together. First the vectors in the plane, then the losses themselves.",
    applies: (found) => Boolean(found.vectors),
    body: [
      make("div", { class: "controls" }, make("label", {}, "Round", slider), at, play, make("label", {}, zoom, "zoom to this round")),
      make("div", { class: "figures" },
        left,
        figure("Losses, clients of a cluster together", heat)),
    ],
    fill(found) {
      const atTheEnd = data === null || Number(slider.value) === Number(slider.max);
      data = found;
      const what = found.vectors.transform === "identity" ? "" : `, by ${TRANSFORMS[found.vectors.transform]}`;
      left.firstChild.textContent = `Clients in the plane: colour is the cluster${found.groups ? ", shape the true group" : ""}${what}`;
      slider.max = found.vectors.frames.length - 1;
      if (atTheEnd) slider.value = slider.max;
      show();
    },
  };
}

// The range that holds all points of some frames, with a margin.
function extent(frames) {
  const of = (key) => {
    const values = frames.flatMap((frame) => frame[key]).filter((v) => v !== null);
    const low = Math.min(...values), high = Math.max(...values), margin = 0.08 * (high - low) || 0.5;
    return [low - margin, high + margin];
  };
  return { x: of("x"), y: of("y") };
}

function membershipSection() {
  const box = chart("tall"), marks = make("ul");
  return {
    id: "membership", title: "Who was in which cluster",
    about: "A row for each client, a column for each round, coloured by the cluster it was in.",
    applies: (data) => Boolean(data.membership),
    body: [box, marks],
    fill(data) {
      const { clients, rounds, sizes } = data.membership;
      const words = data.stability_round ? `first stable in round ${data.stability_round}` : "not stable";
      drawMembership(box, `Cluster of ${clients.length} clients over ${several(rounds.length, "round")}, ${words}`, data.membership, data.stability_round);
      legend(marks, Object.keys(sizes).map((m) => [swatch(Number(m)), `cluster ${m}`]));
    },
  };
}

function cardsSection() {
  const list = make("div", { class: "cards" });
  return {
    id: "clusters", title: "Clusters", applies: (data) => data.cards.length > 0, body: [list],
    fill(data) { list.replaceChildren(...data.cards.map(card)); },
  };
}

function card(one) {
  const facts = [];
  const points = one.points === null ? "" : `, ${several(one.points, "training point")}`;
  facts.push(make("p", {}, `${several(one.size, "client")}${points}`));
  if (one.labels) facts.push(...histogram(one.labels));
  if (one.spread) facts.push(...spread(one.spread));
  if (one.groups) facts.push(make("p", {}, `True groups: ${Object.entries(one.groups).map(([g, n]) => `${n} of group ${g}`).join(", ")}`));
  if (one.nearest) facts.push(make("p", {}, `Nearest: cluster ${one.nearest[0]}, ${shown(one.nearest[1])} away`));
  const named = one.members.slice(0, 40), more = one.size - named.length;
  facts.push(make("p", { class: "members" }, `Members: ${named.join(", ")}${more ? ` and ${more} more` : ""}`));
  return make("article", { class: "card", style: `--own:${colour(one.model)}` }, make("h3", {}, `Cluster ${one.model}`), ...facts);
}

function histogram(labels) {
  const most = Math.max(...labels, 1);
  const words = labels.map((n, label) => (n ? `label ${label}: ${n}` : "")).filter(Boolean).join(", ");
  const bars = make("div", { class: "bars", role: "img", "aria-label": `Training points by label. ${words}` },
    ...labels.map((n, label) => make("i", { style: `height:${(100 * n) / most}%`, title: `label ${label}: ${n}` })));
  const ticks = labels.length > 20 ? [] : [make("div", { class: "ticks", "aria-hidden": "true" }, ...labels.map((_, label) => make("span", {}, label)))];
  return [bars, ...ticks];
}

function spread({ what, of }) {
  const [least, low, middle, high, most] = of;
  if (of.includes(null)) return [make("p", {}, "Its losses are no finite numbers")];
  const show = what === "accuracy" ? percent : shown;
  const top = what === "accuracy" ? 1 : most || 1;
  const left = (value) => `${(100 * value) / top}%`;
  const name = what === "accuracy" ? "Accuracy" : "Test loss";
  const words = least === most ? `${show(most)} for all` : `${show(least)} to ${show(most)}, median ${show(middle)}`;
  return [
    make("p", {}, `${name} ${words}`),
    make("div", { class: "range", "aria-hidden": "true" },
      make("i", { style: `left:${left(least)};width:calc(${left(most)} - ${left(least)})` }),
      make("i", { style: `left:${left(low)};width:calc(${left(high)} - ${left(low)})` }),
      make("b", { style: `left:${left(middle)}` })),
  ];
}

const TITLES = { client: "client", name: "name", cluster: "cluster", group: "true group", accuracy: "accuracy", loss: "loss", points: "training points" };
const AT_ONCE = 200;

function clientsSection() {
  const search = make("input", { type: "search", placeholder: "number or name", oninput: show });
  const cluster = make("select", { "aria-label": "Cluster", onchange: show });
  const note = make("p", { class: "quiet", role: "status" });
  const head = make("tr"), body = make("tbody");
  const more = make("button", { type: "button", onclick: () => { most = Infinity; show(); } }, "Show all");
  let data = null, sorted = UNSORTED, down = false, most = AT_ONCE;

  function rows() {
    const { columns, rows: all } = data;
    const whose = columns.indexOf("cluster"), name = columns.indexOf("name"), text = search.value.trim().toLowerCase();
    const kept = all.filter((row) => (cluster.value === "" || String(row[whose]) === cluster.value)
      && (text === "" || String(row[0]) === text || (name > 0 && shown(row[name]).toLowerCase().includes(text))));
    if (sorted === UNSORTED) return kept;
    const place = columns.indexOf(sorted), sign = down ? -1 : 1;
    return kept.toSorted((a, b) => compare(a[place], b[place], sign));
  }
  function show() {
    const found = rows(), accuracy = data.columns.indexOf("accuracy");
    body.replaceChildren(...found.slice(0, most).map((row) => make("tr", {}, ...row.map((value, i) => make("td", {}, i === accuracy && value !== null ? percent(value) : shown(value))))));
    const usual = data.columns.includes("loss") ? "worst served first" : "not measured yet";
    const order = sorted === UNSORTED ? usual : `by ${TITLES[sorted]}`;
    note.textContent = `${several(found.length, "client")} of ${data.of}, ${order}`;
    more.hidden = found.length <= most;
    for (const cell of head.children) {
      cell.setAttribute("aria-sort", cell.dataset.column === sorted ? (down ? "descending" : "ascending") : "none");
    }
  }
  function sort(column) {
    down = sorted === column ? !down : false;
    sorted = column;
    show();
  }
  function heading(column) {
    const button = make("button", { type: "button", onclick: () => sort(column) }, TITLES[column]);
    return make("th", { scope: "col", "data-column": column }, button);
  }
  return {
    id: "clients", title: "Clients", applies: (found) => found.clients.rows.length > 0,
    body: [
      make("div", { class: "controls" }, make("label", {}, "Find", search), make("label", {}, "Cluster", cluster)),
      note, make("div", { class: "scroll high", tabindex: 0, role: "region", "aria-label": "Table of clients" }, make("table", { class: "wide" }, make("thead", {}, head), body)), more,
    ],
    fill({ clients }) {
      const same = data !== null && data.columns.join() === clients.columns.join();
      data = clients;
      if (!same) head.replaceChildren(...clients.columns.map(heading));
      fillChoices(cluster, clients);
      show();
    },
  };
}

function fillChoices(select, { columns, rows }) {
  const place = columns.indexOf("cluster"), before = select.value;
  const known = place < 0 ? [] : [...new Set(rows.map((row) => row[place]))].filter((m) => m !== null && m !== undefined).sort((a, b) => a - b);
  select.replaceChildren(make("option", { value: "" }, "all"), ...known.map((m) => make("option", { value: m }, m)));
  select.value = known.map(String).includes(before) ? before : "";
  select.parentElement.hidden = known.length < 2;
}

// What is missing comes last, whatever the direction of numbers and words.
function compare(a, b, sign) {
  const missing = (value) => value === null || value === undefined;
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
}

function trafficSection() {
  const boxes = { up: chart("low"), down: chart("low") }, marks = make("ul"), totals = make("div", { class: "scroll" });
  return {
    id: "traffic", title: "Bytes",
    about: "What the method itself sends: models, losses, numbers; measuring is not counted. FedAvg and IFCA are calculated for the same models, participants and rounds.",
    applies: (data) => Boolean(data.bytes),
    body: [make("div", { class: "figures" }, figure("Up, by round", boxes.up), figure("Down, by round", boxes.down)), marks, totals],
    fill({ bytes, curves }) {
      const names = Object.keys(bytes.methods);
      for (const way of ["up", "down"]) drawTraffic(boxes[way], `Bytes ${way} by round of ${names.join(", ")}`, curves.round, bytes.methods, way);
      legend(marks, names.map((name, i) => [lineSwatch(HELD[i].colour, HELD[i].dash), i ? `${name}, calculated` : name]));
      const own = bytes.totals[0].both || 1;
      totals.replaceChildren(tableOf(["method", "up", "down", "times this run's"],
        bytes.totals.map((one, i) => [one.method, one.up, one.down, i ? Number((one.both / own).toPrecision(3)) : 1])));
    },
  };
}

function timesSection() {
  const box = chart("low"), marks = make("ul"), totals = make("div", { class: "scroll" });
  return {
    id: "times", title: "Time", applies: (data) => Boolean(data.times), body: [box, marks, totals],
    fill({ times, curves }) {
      drawTimes(box, `Seconds of each round by phase: ${times.totals.map((one) => `${one.phase} ${one.share}`).join(", ")}`, curves.round, times.phases);
      legend(marks, times.totals.map((one, i) => [swatch(i), one.phase]));
      totals.replaceChildren(tableOf(["phase", "time", "share"], times.totals.map((one) => [one.phase, one.time, one.share])));
    },
  };
}

function settingsSection() {
  const tables = make("div", { class: "sections" }), text = make("pre"), again = make("div");
  again.append(make("p", {}, "The command that makes this run again:"), text, copyButton("Copy the command", () => text.textContent));
  return {
    id: "settings", title: "Settings", applies: () => true, body: [again, tables],
    fill({ settings, command }) {
      again.hidden = !command;
      text.replaceChildren(...(command || "").split(/(?= --)/).map((part) => make("span", {}, part)));
      tables.replaceChildren(...Object.entries(settings).filter(([, values]) => Object.keys(values).length).map(([section, values]) => {
        const table = make("table", {}, make("caption", {}, section), make("tbody", {}, ...Object.entries(values).map(([name, value]) =>
          make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)))));
        return table;
      }));
    },
  };
}

// -------------------------------------------------------------------------------------- the page

const KINDS = {
  waiting: [],
  run: [curvesSection, vectorsSection, membershipSection, cardsSection, clientsSection, trafficSection, timesSection, settingsSection],
  several: [tableSection, apartSection, bandsSection, paretoSection, runsSection, settingsSection],
};
let page = { kind: null, sections: [], data: null };

function begin(kind) {
  for (const { frame, link } of page.sections) { frame.remove(); link.remove(); }
  page = { kind, data: null, sections: KINDS[kind].map((section) => {
    const one = section();
    const heading = make("h2", { id: `${one.id}-title` }, one.title);
    const about = one.about ? make("p", { class: "quiet" }, one.about) : null;
    const frame = make("section", { id: one.id, "aria-labelledby": heading.id, hidden: true }, heading, about, ...one.body);
    const link = make("a", { href: `#${one.id}`, hidden: true }, one.title);
    document.getElementById("main").append(frame);
    document.getElementById("contents").append(link);
    return { ...one, frame, link };
  }) };
}

function render(data) {
  if (page.kind !== data.kind) begin(data.kind);
  page.data = data;
  document.title = document.getElementById("title").textContent = data.title;
  document.getElementById("subtitle").textContent = data.subtitle;
  sayStatus();
  document.getElementById("remarks").replaceChildren(
    ...data.remarks.map((words) => make("p", { class: "remark" }, words)),
    ...(data.failures || []).map((one) => make("p", { class: "remark bad" }, `${one.algorithm} failed: ${one.error}`)));
  document.getElementById("headline").replaceChildren(...(data.headline || []).map((one) => make("div", {},
    make("dt", {}, one.label), make("dd", { class: "value" }, one.value), make("dd", { class: "note" }, one.note))));
  for (const section of page.sections) {
    section.frame.hidden = section.link.hidden = !section.applies(data);
    if (!section.frame.hidden) section.fill(data);
  }
}

function sayStatus(lost = false) {
  const status = document.getElementById("status"), { words, finished } = page.data.status;
  lost = lost && !finished; // then there is nothing to wait for
  status.textContent = lost ? `${words}, connection lost: trying again` : words;
  status.className = `pill ${finished ? "done" : ""} ${lost ? "lost" : ""}`;
}

function theme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const wanted = window.matchMedia("(prefers-color-scheme: dark)");
  const say = () => {
    button.textContent = isDark() ? "☀" : "☾";
    button.setAttribute("aria-pressed", String(isDark()));
    if (page.data) render(page.data);
  };
  try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* no storage for files */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.theme = root.dataset.theme; } catch { /* as above */ }
    say();
  });
  wanted.addEventListener("change", say);
  say();
}

// Plotly is in the page, compressed; a live page has it from its server.
async function unpackPlotly() {
  const packed = document.getElementById("plotly");
  if (!packed) return;
  const bytes = Uint8Array.from(atob(packed.textContent), (sign) => sign.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(Object.assign(document.createElement("script"), { textContent: text }));
  packed.remove();
}

// A live page is told by its server that something is new, and fetches it. The browser itself
// connects again when the connection is lost.
function follow() {
  const events = new EventSource("events");
  let newest = page.data.version, fetching = false;
  async function update() {
    if (fetching) return;
    fetching = true;
    try {
      while (page.data.version !== newest) {
        const asked = newest, answer = await fetch("data.json");
        if (answer.ok) render(await answer.json());
        if (asked === newest) newest = page.data.version; // it may be ahead of what was told
      }
    } catch { sayStatus(true); }
    fetching = false;
  }
  events.addEventListener("change", ({ data: version }) => {
    newest = version;
    sayStatus();
    update();
  });
  events.addEventListener("error", () => sayStatus(true));
}

async function start() {
  theme();
  if (!window.DecompressionStream) {
    const words = "This browser is too old for the page: take one of 2023 or later.";
    document.getElementById("remarks").append(make("p", { class: "remark bad" }, words));
    return;
  }
  await unpackPlotly();
  render(JSON.parse(document.getElementById("data").textContent));
  if ("live" in document.body.dataset) follow();
  document.documentElement.dataset.ready = "";
}
start();
