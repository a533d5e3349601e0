// Sections of the page of several runs.

function tableSection() {
  const box = make("div", { class: "scroll" });
  return {
    id: "table", title: "Side by side", about: "Mean ± standard deviation over seeds; the best in bold, references aside.",
    applies: (data) => data.table.rows.length > 0, body: [box],
    fill({ table, names }) {
      const rows = table.rows.map(([[name], ...row]) => [nameCell(name, names),
        ...row.map(([words, best]) => make("td", {}, best ? make("b", {}, words) : words))]);
      box.replaceChildren(tableOf(table.titles, rows, { class: "wide" }));
    },
  };
}

// A short name, with all that differs as its title.
const nameCell = (name, names) => make("td", { class: "name", title: names[name] }, name);

function apartSection() {
  const box = make("div", { class: "scroll" });
  return {
    id: "apart", title: "What differs", about: "Settings that are not the same everywhere. Names say the fewest that tell runs of a method apart.",
    applies: (data) => data.apart.rows.length > 0, body: [box],
    fill({ apart, names }) {
      const rows = apart.rows.map(([name, ...values]) => [nameCell(name, names), ...values]);
      box.replaceChildren(tableOf(apart.titles, rows));
    },
  };
}

function bandsSection() {
  const boxes = [chart(), chart()], marks = make("ul");
  const first = figure("", boxes[0]), second = figure("Agreement with the true groups (ARI)", boxes[1]);
  return {
    id: "curves", title: "By round", about: "Lines are means over seeds, bands reach from the least to the most.",
    applies: (data) => data.curves.length > 0,
    body: [make("div", { class: "figures" }, first, second), marks],
    fill({ curves, names }) {
      const accurate = curves.some((one) => one.accuracy.round.length);
      const all = curves.map((one) => one.name).join(", ");
      first.firstChild.textContent = accurate ? "Accuracy on clients' own test data" : "Loss on clients' own test data";
      second.hidden = !curves.some((one) => one.ari.round.length);
      if (accurate) drawBands(boxes[0], `Accuracy by round of ${all}`, "test accuracy", curves, "accuracy", { range: [0, 1.02], tickformat: ".0%" });
      else drawBands(boxes[0], `Test loss by round of ${all}`, "test loss", curves, "test_loss", { rangemode: "tozero" });
      if (!second.hidden) drawBands(boxes[1], `ARI by round of ${all}`, "ARI", curves, "ari", { range: [-0.05, 1.05] });
      legend(marks, curves.map((one, i) => [lineSwatch(i), one.seeds > 1 ? `${one.name} (${one.seeds} seeds)` : one.name, names[one.name]]));
    },
  };
}

function paretoSection() {
  const box = chart("tall"), marks = make("ul");
  return {
    id: "pareto", title: "Against bytes", about: "What each method reaches for what it sends. Those on the dotted line are beaten by none in both; references, whose bytes leave out the data they were given, have no part in that.",
    applies: (data) => Boolean(data.pareto), body: [box, marks],
    fill({ pareto, names }) {
      const best = pareto.points.filter((one) => one.best).map((one) => one.name).join(", ");
      drawPareto(box, `${pareto.what === "accuracy" ? "Accuracy" : "Test loss"} against bytes; beaten by none: ${best}`, pareto);
      legend(marks, pareto.points.map((one, i) => [make("span", { style: `color:${colour(i)}`, "aria-hidden": "true" }, `${glyph(i)} `), one.reference ? `${one.name} (reference)` : one.name, names[one.name]]));
    },
  };
}

function runsSection() {
  const box = make("div", { class: "scroll" });
  return {
    id: "runs", title: "Runs", applies: (data) => data.runs.length > 0, body: [box],
    fill({ runs, names }) {
      box.replaceChildren(tableOf(["run", "seed", "state", "folder", ""], runs.map((run) => [
        nameCell(run.name, names), run.seed, run.status, make("td", { class: "words" }, run.folder),
        make("td", {}, run.command ? copyButton("Copy the command", () => run.command) : ""),
      ]), { class: "wide" }));
    },
  };
}
