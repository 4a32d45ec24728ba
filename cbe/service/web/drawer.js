// One trial beside the page: its curves, values, config, events and how to train it again.

import { ask, studyPath } from "./api.js";
import { code, el, facts, stateMark, write } from "./dom.js";
import { panels } from "./figures.js";
import { duration, figure, metric as nameOf, moment, number, usd, value } from "./words.js";

const AGAIN_MS = 5000;
// Curves: title, unit's factor, axis, and the columns of `metrics` with their names.
const CURVES = [
  ["trial-errors", "Error", 100, "error, %", [["validation_error", "validation"], ["test_error", "test*"]]],
  ["trial-losses", "Loss", 1, "loss", [["loss", "whole"], ["loss_labeled", "labeled"], ["loss_unlabeled", "unlabeled"], ["loss_lb", "lb"], ["loss_lv", "lv"], ["validation_loss", "validation"]]],
  ["trial-pseudo", "Pseudo-labels", 100, "%", [["pseudo_accuracy", "accuracy"], ["sampling_rate", "sampling rate"], ["sampling_rate_ensemble", "sampling rate of the ensemble"]]],
  ["trial-heads", "Heads", 1, "", [["head_correlation", "correlation"], ["head_disagreement", "disagreement"], ["variance_ensemble", "variance of the ensemble"], ["variance_heads", "mean variance of the heads"]]],
];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

// `metric` says what the study selects by.
export function drawer(study, metric) {
  const title = el("h2", { id: "trial-title", tabindex: "-1" });
  const state = el("span", { class: "trial-state" });
  const told = facts(["Role", "Step", "Objective", "Test error*", "Seed, label split", "Wall time", "Cost", "Config", "Started", "Last word"]);
  const trouble = el("div", { class: "banner bad", hidden: true });
  const figures = el("div");
  const more = el("div");
  const close = el("button", { type: "button", id: "close-trial", onclick: () => box.close() }, "Close");
  const box = el("dialog", { id: "trial", class: "drawer", "aria-labelledby": "trial-title" },
    el("div", { class: "head" }, title, state, close), trouble, told, el("p", { class: "note" }, "* Not used for selection, unless the study’s objective is on test labels."), figures, more);
  document.body.append(box);
  const draw = panels();
  let shown = null; // the trial's name
  let asked = null;
  let again = 0;

  async function load(trial) {
    if (asked) asked.abort();
    asked = new AbortController();
    try {
      const found = await ask(studyPath(study, `/trials/${encodeURIComponent(trial)}`), { signal: asked.signal });
      if (shown === trial) await fill(found);
    } catch (fault) {
      if (fault.name === "AbortError" || shown !== trial) return;
      trouble.replaceChildren(el("p", {}, fault.message));
      trouble.hidden = false;
    }
  }
  function clear(trial) {
    write(title, trial);
    state.replaceChildren();
    told.fill({});
    trouble.hidden = true;
    figures.replaceChildren(el("p", { class: "note" }, "Loading …"));
    more.replaceChildren();
    box.scrollTop = 0;
  }
  async function fill(found) {
    state.replaceChildren(stateMark(found.state));
    told.fill({
      Role: found.preset ? `${found.role}, ${found.preset}` : found.role,
      Step: found.steps ? `${number(found.step || 0)} of ${number(found.steps)}` : "",
      Objective: typeof found.objective === "number" ? `${figure(metric(), found.objective)} ${nameOf(metric())}` : "",
      "Test error*": typeof found.last_test_error === "number" ? figure("test_error", found.last_test_error) : "",
      "Seed, label split": typeof found.seed === "number" ? `${found.seed}, ${found.split_seed}` : "",
      "Wall time": typeof found.wall_s === "number" ? duration(found.wall_s) : "",
      Cost: found.cost_usd > 0 ? usd(found.cost_usd) : "",
      Config: found.config_id,
      Started: found.started ? moment(found.started) : "",
      "Last word": found.updated ? moment(found.updated) : "",
    });
    trouble.hidden = !found.error_class && !found.error_text;
    trouble.replaceChildren(el("strong", {}, found.error_class || ""), el("p", { class: "lines" }, found.error_text || ""));
    const wanted = curves(found.curve || []);
    places(wanted);
    rest(found);
    await draw(wanted).catch((fault) => figures.replaceChildren(el("p", { class: "note" }, fault.message)));
  }
  function places(wanted) {
    const there = [...figures.querySelectorAll(".plot")].map((each) => each.id);
    if (there.join() === wanted.map(({ id }) => id).join() && there.length) return;
    figures.replaceChildren(...wanted.map((panel) => el("section", { class: "panel", "aria-labelledby": `${panel.id}-title` },
      el("h3", { id: `${panel.id}-title` }, panel.title),
      el("div", { class: "frame" }, el("div", { class: "plot", id: panel.id, role: "img", "aria-label": panel.note })))));
    if (!wanted.length) figures.replaceChildren(el("p", { class: "note" }, "It has not been evaluated yet, so that there are no curves."));
  }
  function rest(found) {
    const open = new Set([...more.querySelectorAll("details[open]")].map((each) => each.dataset.part));
    const said = JSON.stringify([found.params, found.yaml, found.rerun, found.events]);
    if (more.dataset.said === said && more.childElementCount) return;
    more.dataset.said = said;
    const values = Object.entries(found.params || {});
    more.replaceChildren(
      values.length ? el("section", { "aria-label": "Sampled values" }, el("h3", {}, "Sampled values"),
        el("table", { class: "values" }, el("tbody", {}, values.map(([key, each]) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, key)), el("td", { class: "number" }, value(each))))))) : "",
      found.rerun ? el("section", { "aria-label": "Train it again" }, el("h3", {}, "Train it again"), el("div", { class: "yaml" }, code("trial-rerun", "the command", found.rerun))) : "",
      found.yaml ? el("details", { class: "yaml", "data-part": "yaml", open: open.has("yaml") }, el("summary", {}, "Config"), code("trial-yaml", "the config", found.yaml)) : "",
      (found.events || []).length ? el("section", { "aria-label": "Events" }, el("h3", {}, "Events"),
        el("ol", { class: "events" }, found.events.map((event) => el("li", {}, el("time", { datetime: event.time }, moment(event.time)), el("b", {}, event.kind), el("span", {}, details(event.details)))))) : "");
  }

  box.addEventListener("close", () => {
    shown = null;
    if (asked) asked.abort();
    if (!new URLSearchParams(location.search).has("trial")) return;
    if (history.state && history.state.drawer) history.back();
    else history.replaceState(null, "", location.pathname + location.hash);
  });
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); }); // beside it
  window.addEventListener("popstate", sync);

  function reveal(trial) {
    if (shown === trial) return;
    shown = trial;
    clear(trial);
    if (!box.open) box.showModal();
    title.focus();
    load(trial);
  }
  function open(trial) {
    if (!trial || shown === trial) return;
    history.pushState({ drawer: true }, "", `${location.pathname}?trial=${encodeURIComponent(trial)}`);
    reveal(trial);
  }
  // As the address has it.
  function sync() {
    const wanted = new URLSearchParams(location.search).get("trial");
    if (wanted) reveal(wanted);
    else if (box.open) box.close();
  }
  function changed(rows) {
    if (!shown || !rows.some((row) => row.trial === shown) || again) return;
    again = setTimeout(() => { again = 0; if (shown) load(shown); }, AGAIN_MS);
  }
  return { open, sync, changed };
}

function details(found) {
  if (!found) return "";
  if (typeof found !== "string") return Object.entries(found).map(([key, each]) => `${key} ${value(each)}`).join(", ");
  try {
    const plain = JSON.parse(found);
    return plain !== null && typeof plain === "object" ? details(plain) : String(plain);
  } catch { return found; }
}

// Panels of a trial's curves; a column without any value is left out.
function curves(rows) {
  const has = (column) => rows.some((row) => typeof row[column] === "number");
  return CURVES.map(([id, title, factor, axis, columns]) => {
    const lines = columns.filter(([column]) => has(column)).map(([column, name], at) => ({
      type: "scatter", mode: rows.length < 30 ? "lines+markers" : "lines", name,
      x: rows.map((row) => row.step), y: rows.map((row) => (typeof row[column] === "number" ? factor * row[column] : null)),
      line: { color: `var(--series-${at + 1})`, width: 2, dash: DASHES[at] }, marker: { size: 4, color: `var(--series-${at + 1})` },
    }));
    const layout = {
      height: 270, xaxis: { title: { text: "step" }, rangemode: "tozero" }, yaxis: { title: { text: axis }, rangemode: "tozero" },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, hovermode: "x unified", margin: { l: 48, r: 8, t: 40, b: 44 },
    };
    const last = lines.map(({ name, y }) => `${name} ${value(y.filter((each) => each !== null).at(-1))}`).join(", ");
    return { id, title, note: `${title} by step; at last: ${last}`, figure: { data: lines, layout } };
  }).filter((panel) => panel.figure.data.length);
}
