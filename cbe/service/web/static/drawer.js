// One trial beside the page: its curves, values, config, log, events and how to train it again.

import { ask, studyPath } from "./api.js";
import { curves } from "./curves.js";
import { code, el, facts, stateMark, write } from "./dom.js";
import { panels } from "./figures.js";
import { duration, figure, metric as nameOf, moment, number, usd, value } from "./words.js";

const AGAIN_MS = 5000;
const FACTS = [
  "Role", "Step", "Objective", "Test error*", "Seed, label split", "Wall time", "Cost", "Config", "Started",
  "Last word", "Reused from",
];
const NOTE = "* Not used for selection, unless the study’s objective is on test labels.";

// `metric` says what the study selects by.
export function drawer(study, metric) {
  const title = el("h2", { id: "trial-title", tabindex: "-1" });
  const content = trialView(metric);
  const close = el("button", { type: "button", id: "close-trial", onclick: () => box.close() }, "Close");
  const box = el("dialog", { id: "trial", class: "drawer", "aria-labelledby": "trial-title" },
    el("div", { class: "head" }, title, content.state, close), content.parts);
  document.body.append(box);
  let shown = null; // the trial's name
  let asked = null;
  let again = 0;

  async function load(trial) {
    if (asked) asked.abort();
    asked = new AbortController();
    const path = studyPath(study, `/trials/${encodeURIComponent(trial)}`);
    try {
      const found = await ask(path, { signal: asked.signal });
      if (shown === trial) await content.fill(found);
    } catch (fault) {
      if (fault.name !== "AbortError" && shown === trial) content.complain(fault);
    }
  }
  function reveal(trial) {
    if (shown === trial) return;
    shown = trial;
    write(title, trial);
    content.clear();
    if (!box.open) box.showModal();
    box.scrollTop = 0;
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
    if (!shown || again || !rows.some((row) => row.trial === shown)) return;
    again = setTimeout(() => { again = 0; if (shown) load(shown); }, AGAIN_MS);
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
  return { open, sync, changed };
}

function trialView(metric) {
  const state = el("span", { class: "trial-state" });
  const trouble = el("div", { class: "banner bad", hidden: true });
  const told = facts(FACTS);
  const note = el("p", { class: "note", hidden: true }, NOTE);
  const figures = el("div");
  const more = el("div");
  const draw = panels();

  function clear() {
    state.replaceChildren();
    told.fill({});
    trouble.hidden = note.hidden = true;
    figures.replaceChildren(el("p", { class: "note" }, "Loading …"));
    more.replaceChildren();
  }
  function complain(fault) {
    const missing = fault.status === 404 || fault.status === 422; // no such name, or none that a trial could have
    figures.replaceChildren();
    trouble.replaceChildren(el("p", {}, missing ? "There is no trial of that name in this study." : fault.message));
    trouble.hidden = false;
  }
  async function fill(found) {
    state.replaceChildren(stateMark(found.state));
    told.fill(factsOf(found, metric()));
    note.hidden = typeof found.last_test_error !== "number";
    trouble.hidden = !found.error_class && !found.error_text;
    trouble.replaceChildren(
      el("strong", {}, found.error_class || ""), el("p", { class: "lines" }, found.error_text || ""));
    const wanted = curves(found.curve || []);
    places(figures, wanted);
    rest(more, found);
    await draw(wanted).catch((fault) => figures.replaceChildren(el("p", { class: "note" }, fault.message)));
  }
  return { state, parts: [trouble, told, note, figures, more], clear, complain, fill };
}

function factsOf(found, metric) {
  const is = (name) => typeof found[name] === "number";
  return {
    Role: found.preset ? `${found.role}, ${found.preset}` : found.role,
    Step: found.steps ? `${number(found.step || 0)} of ${number(found.steps)}` : "",
    Objective: is("objective") ? `${figure(metric, found.objective)} ${nameOf(metric)}` : "",
    "Test error*": is("last_test_error") ? figure("test_error", found.last_test_error) : "",
    "Seed, label split": is("seed") ? `${found.seed}, ${found.label_split}` : "",
    "Wall time": is("wall_s") ? duration(found.wall_s) : "",
    Cost: found.cost_usd > 0 ? usd(found.cost_usd) : "",
    Config: found.config_id,
    Started: found.started ? moment(found.started) : "",
    "Last word": found.updated ? moment(found.updated) : "",
    "Reused from": found.reused_from || "",
  };
}

// A place for each figure; those that are there are kept, so that they are drawn on and not anew.
function places(figures, wanted) {
  const there = [...figures.querySelectorAll(".plot")].map(({ id }) => id);
  if (there.length && there.join() === wanted.map(({ id }) => id).join()) return;
  figures.replaceChildren(...wanted.map(({ id, title, note }) =>
    el("section", { class: "panel", "aria-labelledby": `${id}-title` },
      el("h3", { id: `${id}-title` }, title),
      el("div", { class: "frame" }, el("div", { class: "plot", id, role: "img", "aria-label": note })))));
  if (!wanted.length) {
    figures.replaceChildren(el("p", { class: "note" }, "It has not been evaluated yet, so that there are no curves."));
  }
}

function rest(place, found) {
  const said = JSON.stringify([found.params, found.yaml, found.rerun, found.events, found.log]);
  if (place.dataset.said === said && place.childElementCount) return;
  place.dataset.said = said;
  const rerun = found.rerun && el("div", { class: "yaml" }, code("trial-rerun", "the command", found.rerun));
  const opened = new Set([...place.querySelectorAll("details[open]")].map(({ id }) => id));
  place.replaceChildren(...[
    titled("Searched values", Object.keys(found.params || {}).length && values(found.params)),
    titled("Train it again", rerun),
    found.yaml && folded("Config", code("trial-yaml", "the config", found.yaml), opened),
    found.log && folded("Log", code("trial-log", "the log", found.log), opened, Boolean(found.error_class)),
    titled("Events", (found.events || []).length && el("ol", { class: "events" }, found.events.map(happened))),
  ].filter(Boolean));
}

function titled(title, content) {
  return content && el("section", { "aria-label": title }, el("h3", {}, title), content);
}

// As open as it was left.
function folded(title, content, opened, open = false) {
  const id = `trial-part-${title.toLowerCase()}`;
  return el("details", { class: "yaml", id, open: open || opened.has(id) }, el("summary", {}, title), content);
}

function values(params) {
  const lines = Object.entries(params).map(([key, each]) =>
    el("tr", {}, el("th", { scope: "row" }, el("code", {}, key)), el("td", { class: "number" }, value(each))));
  return el("table", { class: "values", "aria-label": "Searched values" }, el("tbody", {}, lines));
}

function happened({ time, kind, details }) {
  const about = Object.entries(details || {}).map(([key, each]) => `${key} ${value(each)}`).join(", ");
  return el("li", {}, el("time", { datetime: time }, moment(time)), el("b", {}, kind), el("span", {}, about));
}
