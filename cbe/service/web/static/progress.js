// How far a study is: its two parts, its pace, and the trials under way.

import { arrange, bar, el, facts, show, write } from "./dom.js";
import { duration, figure, isActive, metric, number, plural, point, span, spent } from "./words.js";

const BY = { search: "by the search", confirm: "by the confirmation" };
const MOST = 12; // trials shown one by one

export function progress(openTrial) {
  const bars = { search: bar("Search"), confirm: bar("Confirm") };
  const told = facts(["Best so far", "Time left", "Pace", "Running for", "Spent so far"]);
  const running = underWay(openTrial);
  const part = el("section", { id: "progress", "aria-label": "Progress" },
    el("div", { class: "bars" }, bars.search, bars.confirm), told, running.part);

  function fill(now, trials) {
    part.hidden = !now.search;
    for (const [stage, line] of Object.entries(bars)) {
      const found = now[stage];
      line.hidden = !found || !found.total;
      if (found) line.fill(found.done, found.total);
    }
    const active = isActive(now);
    const best = typeof now.best === "number" ? `${figure(now.metric, now.best)} ${metric(now.metric)}` : "";
    told.hidden = !active; // of one that rests, the report says all this
    told.fill({
      "Best so far": best && now.best_trial ? `${best}, ${now.best_trial}, ${BY[now.best_role] || ""}` : best,
      "Time left": now.eta_s ? span(...now.eta_s) : "",
      Pace: now.steps_per_s ? `${now.steps_per_s.toPrecision(3)} steps/s` : "",
      "Running for": now.elapsed_s ? duration(now.elapsed_s) : "",
      "Spent so far": spent(now.spent).join(", "),
    });
    const of = (wanted) => (active ? [...trials.values()].filter(({ state }) => state === wanted) : []);
    running.fill(of("running"), of("paused").length);
  }
  return { part, fill };
}

function underWay(openTrial) {
  const count = el("h2", { class: "minor", id: "running-title" });
  const list = el("ul", { id: "running", class: "under-way", "aria-labelledby": "running-title" });
  const more = el("p", { class: "note", hidden: true });
  const part = el("div", { hidden: true }, count, list, more);
  const lines = new Map(); // by trial

  function fill(rows, paused) {
    rows.sort((a, b) => a.trial.localeCompare(b.trial));
    part.hidden = !rows.length && !paused;
    write(count, `${plural(rows.length, "trial")} under way${paused ? `, ${number(paused)} paused` : ""}`);
    show(more, rows.length > MOST ? `and ${number(rows.length - MOST)} more` : "");
    const wanted = rows.slice(0, MOST);
    const names = new Set(wanted.map(({ trial }) => trial));
    for (const name of [...lines.keys()]) if (!names.has(name)) lines.delete(name);
    for (const row of wanted) {
      if (!lines.has(row.trial)) lines.set(row.trial, lineOf(row.trial, openTrial));
      lines.get(row.trial).fill(row);
    }
    arrange(list, wanted.map(({ trial }) => lines.get(trial)));
  }
  return { part, fill };
}

function lineOf(trial, openTrial) {
  const link = el("a", { href: `?trial=${encodeURIComponent(trial)}` }, trial);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openTrial(trial);
  });
  const steps = bar(trial, link);
  const about = el("small");
  const line = el("li", {}, steps, about);
  line.fill = (row) => {
    const said = row.steps ? `${number(row.step || 0)} of ${number(row.steps)} steps` : "starting";
    steps.fill(row.step || 0, row.steps || 1, said);
    const role = row.preset ? `${row.role}, ${row.preset}` : row.role;
    write(about, [role, point(row.params)].filter(Boolean).join(": "));
  };
  return line;
}
