// One study: how it stands, what can be done with it, and its report as far as it is.

import { ask, follow, studyPath } from "./api.js";
import { drawer } from "./drawer.js";
import { announce, arrange, bar, complain, el, facts, find, show, stateMark, write } from "./dom.js";
import { report } from "./report.js";
import { steering } from "./steering.js";
import { ACTIVE, ago, duration, figure, metric, moment, number, ordinal, plural, point, span, spent } from "./words.js";

const MOST_RUNNING = 12;
const LOG_LINES = 40;
const SILENT = ["new", "queued", "unreadable"]; // states without a driver that says anything

export async function open(main, me, connected) {
  const name = decodeURIComponent(location.pathname.replace(/\/+$/, "").slice("/studies/".length));
  document.title = `${name} · CBE Studies`;
  const first = await ask(studyPath(name)); // one that is not there is told at once
  const trials = new Map();
  let standing = null;
  const opened = drawer(name, () => standing && standing.metric);
  const { nav, parts, refresh } = report(name, opened.open);
  const head = heading(name, me);
  const live = progress(opened.open);
  const log = logs(name);
  main.replaceChildren(head.part, live.part, nav, parts, log.part);
  nav.append(log.link);

  function stands(now) {
    const before = standing;
    standing = now;
    document.title = `${name} · ${now.state} · CBE Studies`;
    head.fill(now);
    live.fill(now, trials);
    if (before && before.state !== now.state) announce(`${name} is ${now.state}${now.why ? `: ${now.why}` : ""}`);
    if (!before || before.state !== now.state) {
      log.state(now.state);
      nav.hidden = parts.hidden = now.state === "unreadable";
      if (!parts.hidden) refresh(true);
    }
  }
  function changed(rows) {
    for (const row of rows) trials.set(row.trial, row);
    live.fill(standing, trials);
    opened.changed(rows);
    if (rows.length) refresh();
  }
  for (const row of first.trials || []) trials.set(row.trial, row);
  stands(first);
  opened.sync();
  follow(studyPath(name, "/events"), {
    connected,
    heard(kind, data) {
      if (kind === "study") stands(data);
      else if (kind === "trials") changed((data.trials || []).filter((row) => differs(row, trials.get(row.trial))));
    },
    gone(fault) {
      connected("");
      if (fault.status === 404 && !head.leaving()) complain(`${name} is no longer there: somebody has deleted it.`);
      else if (fault.status !== 404) complain(fault);
    },
  });
}

function differs(row, known) { return !known || JSON.stringify(row) !== JSON.stringify(known); }

function heading(name, me) {
  const state = el("span", { id: "state" });
  const about = el("p", { class: "note", id: "about" });
  const question = el("p", { class: "question", id: "question" });
  const reason = el("div", { id: "reason", class: "banner bad", role: "group", "aria-label": "What went wrong", hidden: true });
  const problem = el("p", { id: "problem", class: "banner", hidden: true });
  const steer = steering(name, me);
  const part = el("section", { class: "study-head", "aria-labelledby": "study-name" },
    el("div", { class: "head" }, el("h1", { id: "study-name" }, name), state, steer.buttons),
    question, about, reason, problem);
  let before = null;
  function fill(now) {
    if (before !== now.state) state.replaceChildren(stateMark(now.state));
    before = now.state;
    show(question, now.question);
    const said = [
      now.place ? `${ordinal(now.place)} in the queue` : "",
      now.owner ? `submitted by ${now.owner}${now.submitted ? ` ${ago(now.submitted)}` : ""}` : "",
      now.priority ? `priority ${now.priority}` : "",
      now.updated ? `last word ${ago(now.updated)}` : "",
    ].filter(Boolean).join(" · ");
    show(about, said && said[0].toUpperCase() + said.slice(1));
    const broken = ["failed", "unreadable"].includes(now.state);
    const words = now.why ? now.why.split("\n") : [];
    reason.hidden = !broken;
    if (broken && reason.dataset.said !== now.why) {
      reason.dataset.said = now.why || "";
      reason.replaceChildren(
        el("strong", {}, now.state === "failed" ? "This study has failed." : "This study cannot be read."),
        ...words.map((line) => el("p", {}, line)));
    }
    const stopped = ["halted", "interrupted"].includes(now.state) && now.why ? `${now.state === "halted" ? "Halted" : "Interrupted"}: ${now.why}` : "";
    show(problem, stopped || (ACTIVE.includes(now.state) ? now.problem : "") || "");
    steer.fill(now);
  }
  return { part, fill, leaving: steer.leaving };
}

function progress(openTrial) {
  const bars = { search: bar("Search"), confirm: bar("Confirm") };
  const told = facts(["Best so far", "Time left", "Pace", "Running for", "Spent so far"]);
  const count = el("h2", { class: "minor", id: "running-title" });
  const list = el("ul", { id: "running", class: "under-way", "aria-labelledby": "running-title" });
  const more = el("p", { class: "note", hidden: true });
  const under = el("div", { hidden: true }, count, list, more);
  const part = el("section", { id: "progress", "aria-label": "Progress" }, el("div", { class: "bars" }, bars.search, bars.confirm), told, under);
  const lines = new Map();

  function lineOf(trial) {
    const bar_ = bar(trial);
    const text = el("small");
    const link = el("a", { href: `?trial=${encodeURIComponent(trial)}`, onclick(event) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openTrial(trial);
    } }, trial);
    bar_.firstElementChild.replaceWith(el("span", { class: "bar-name" }, link));
    const line = el("li", {}, bar_, text);
    line.fill = (row) => {
      bar_.fill(row.step || 0, row.steps || 1, row.steps ? `${number(row.step || 0)} of ${number(row.steps)} steps` : "starting");
      write(text, [row.preset ? `${row.role}, ${row.preset}` : row.role, point(row.params)].filter(Boolean).join(": "));
    };
    return line;
  }
  function fill(now, trials) {
    for (const [stage, line] of Object.entries(bars)) {
      const found = now[stage];
      line.hidden = !found || !found.total;
      if (found) line.fill(found.done, found.total);
    }
    const active = ACTIVE.includes(now.state);
    told.hidden = !active; // of one that rests, the report says all this
    told.fill({
      "Best so far": typeof now.best === "number" ? `${figure(now.metric, now.best)} ${metric(now.metric)}, ${now.best_trial}` : "",
      "Time left": now.eta_s ? span(...now.eta_s) : "",
      Pace: now.steps_per_s ? `${now.steps_per_s.toPrecision(3)} steps/s` : "",
      "Running for": now.elapsed_s ? duration(now.elapsed_s) : "",
      "Spent so far": spent(now.spent).join(", "),
    });
    const running = active ? [...trials.values()].filter((row) => row.state === "running") : [];
    running.sort((a, b) => a.trial.localeCompare(b.trial));
    under.hidden = !running.length;
    write(count, `${plural(running.length, "trial")} under way`);
    show(more, running.length > MOST_RUNNING ? `and ${running.length - MOST_RUNNING} more` : "");
    const wanted = running.slice(0, MOST_RUNNING);
    for (const name of [...lines.keys()]) if (!wanted.some((row) => row.trial === name)) lines.delete(name);
    for (const row of wanted) {
      if (!lines.has(row.trial)) lines.set(row.trial, lineOf(row.trial));
      lines.get(row.trial).fill(row);
    }
    arrange(list, wanted.map((row) => lines.get(row.trial)));
    part.hidden = !now.search;
  }
  return { part, fill };
}

function logs(name) {
  const text = el("pre", { id: "log-text", tabindex: "0", role: "region", "aria-label": "The last lines of the log" });
  const again = el("button", { type: "button", onclick: () => load() }, "Refresh");
  const note = el("p", { class: "note" });
  const box = el("div", { class: "yaml", hidden: true }, text);
  const part = el("section", { id: "log", "aria-labelledby": "log-title" },
    el("h2", { id: "log-title" }, "Log"), note, el("p", {}, again), box);
  const link = el("a", { href: "#log" }, "Log");
  async function load() {
    try {
      const found = await ask(studyPath(name, `/logs?tail=${LOG_LINES}`), { as: "text" });
      box.hidden = !found.trim();
      write(text, found.trimEnd());
      write(note, found.trim() ? `The last ${LOG_LINES} lines of its driver, as of ${moment(new Date().toISOString())}.` : "Its driver has said nothing yet.");
      text.scrollTop = text.scrollHeight;
    } catch (fault) {
      box.hidden = true;
      write(note, fault.message);
    }
  }
  return {
    part, link,
    // A failed study shows its log where its reason stands; others at the end of the page.
    state(now) {
      part.hidden = link.hidden = SILENT.includes(now);
      if (part.hidden) return;
      part.classList.toggle("close", now === "failed");
      if (now === "failed") find("progress").before(part);
      else if (find("report").nextElementSibling !== part) find("report").after(part);
      load();
    },
  };
}
