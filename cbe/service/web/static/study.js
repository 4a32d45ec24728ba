// One study: how it stands, what can be done with it, and its report as far as it is.

import { ask, follow, studyPath } from "./api.js";
import { announce, complain, el, show, stateMark } from "./dom.js";
import { drawer } from "./drawer.js";
import { log } from "./log.js";
import { progress } from "./progress.js";
import { report } from "./report.js";
import { steering } from "./steering.js";
import { ago, begun, isActive, ordinal } from "./words.js";

export async function open(main, me, connected) {
  const name = decodeURIComponent(location.pathname.replace(/\/+$/, "").slice("/studies/".length));
  document.title = `${name} · CBE Studies`;
  const first = await ask(studyPath(name)); // one that is not there is told at once
  const trials = new Map((first.trials || []).map((row) => [row.trial, row]));
  let standing = null;
  const trial = drawer(name, () => standing && standing.metric);
  const { nav, parts, refresh } = report(name, trial.open);
  const head = heading(name, me);
  const live = progress(trial.open);
  const printed = log(name);
  main.replaceChildren(head.part, live.part, nav, parts, printed.part);
  nav.append(printed.link);

  function stands(now) {
    const before = standing;
    standing = now;
    document.title = `${name} · ${now.state} · CBE Studies`;
    head.fill(now);
    live.fill(now, trials);
    if (before && before.state === now.state) return;
    if (before) announce(`${name} is ${now.state}${now.reason ? `: ${now.reason}` : ""}`);
    printed.state(now.state);
    nav.hidden = parts.hidden = now.state === "unreadable";
    if (!parts.hidden) refresh(true);
  }
  function changed(rows) {
    const news = rows.filter((row) => JSON.stringify(row) !== JSON.stringify(trials.get(row.trial)));
    if (!news.length) return;
    for (const row of news) trials.set(row.trial, row);
    live.fill(standing, trials);
    trial.changed(news);
    refresh();
  }
  function gone(fault) {
    connected("");
    if (fault.status !== 404) complain(fault);
    else if (!head.leaving()) complain(`${name} is no longer there: somebody has deleted it.`);
  }
  stands(first);
  trial.sync();
  follow(studyPath(name, "/events"), {
    connected,
    gone,
    heard(kind, data) {
      if (kind === "study") stands(data);
      else if (kind === "trials") changed(data.trials || []);
    },
  });
}

function heading(name, me) {
  const state = el("span", { id: "state" });
  const question = el("p", { class: "question", id: "question" });
  const about = el("p", { class: "note", id: "about" });
  const reason = el("div", { id: "reason", class: "banner bad", role: "group", hidden: true });
  reason.setAttribute("aria-label", "What went wrong");
  const problem = el("p", { id: "problem", class: "banner", hidden: true });
  const steer = steering(name, me);
  const part = el("section", { class: "study-head", "aria-labelledby": "study-name" },
    el("div", { class: "head" }, el("h1", { id: "study-name" }, name), state, steer.buttons),
    question, about, reason, problem);
  let last = {};

  function fill(now) {
    if (last.state !== now.state) state.replaceChildren(stateMark(now.state));
    if (last.state !== now.state || last.reason !== now.reason) explain(now);
    last = now;
    show(question, now.question);
    show(about, whose(now));
    show(problem, ended(now) || (isActive(now) && (now.problem || now.outage)) || "");
    steer.fill(now);
  }
  function explain(now) {
    reason.hidden = !["failed", "unreadable"].includes(now.state);
    reason.replaceChildren(
      el("strong", {}, now.state === "failed" ? "This study has failed." : "This study cannot be read."),
      el("p", { class: "lines" }, begun(now.reason) || "Its log may say why."));
  }
  return { part, fill, leaving: steer.leaving };
}

function ended({ state, reason }) {
  const names = { stopped: "Stopped", interrupted: "Interrupted" };
  return reason && names[state] ? `${names[state]}: ${reason}` : "";
}

function whose(now) {
  return begun([
    now.queue_position ? `${ordinal(now.queue_position)} in the queue` : "",
    now.owner ? `submitted by ${now.owner}${now.submitted ? ` ${ago(now.submitted)}` : ""}` : "",
    now.priority ? `priority ${now.priority}` : "",
    now.updated ? `last word ${ago(now.updated)}` : "",
  ].filter(Boolean).join(" · "));
}
