// All studies of the store, as they stand.

import { follow } from "./api.js";
import { announce, arrange, bar, el, show, stateMark, write } from "./dom.js";
import { STATES, ago, figure, metric, moment, ordinal, span, spent } from "./words.js";

const MOST = 200; // rows, until more are asked for
const COLUMNS = ["Study", "State", "Progress", "Best so far", "Spent", "Time left", "Owner", "Updated"];

export function open(main, me, connected) {
  document.title = "Studies · CBE Studies";
  const lines = new Map(); // by study: its row, made once and written anew
  let whole = true; // whether the next news are of all studies
  let limit = MOST;

  const filter = el("input", {
    id: "filter", type: "search", autocomplete: "off", spellcheck: "false", placeholder: "name, question or owner",
  });
  const state = el("select", { id: "state-filter" },
    el("option", { value: "" }, "all states"), STATES.map((each) => el("option", { value: each }, each)));
  const shown = el("output", { id: "shown", for: "filter state-filter", "aria-live": "polite" });
  const body = el("tbody", { role: "rowgroup" });
  const table = el("table", { id: "studies", class: "studies", role: "table", "aria-labelledby": "studies-title" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
      COLUMNS.map((name) => el("th", { scope: "col", role: "columnheader" }, name)))), body);
  const further = () => { limit += MOST; sift(); };
  const more = el("p", { hidden: true }, el("button", { type: "button", id: "more", onclick: further }, "Show more"));
  const controls = el("p", { class: "filter" },
    el("label", { for: "filter" }, "Filter"), filter, el("label", { for: "state-filter" }, "State"), state, shown);
  const part = el("div", { hidden: true }, controls, el("div", { class: "wide" }, table), more);
  const empty = nothing(me);
  const waiting = el("p", { class: "lead", id: "loading" }, "Loading …");
  const submit = el("a", { class: "button primary", href: "/submit", hidden: true }, "Submit a study");
  const head = el("div", { class: "head" }, el("h1", { id: "studies-title" }, "Studies"), submit);
  main.replaceChildren(head, waiting, empty, part);

  function sift() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...lines.values()].filter(({ standing }) => {
      const text = `${standing.study} ${standing.question} ${standing.owner || ""}`.toLowerCase();
      return (!state.value || standing.state === state.value) && words.every((word) => text.includes(word));
    });
    found.sort((a, b) => inOrder(a.standing, b.standing));
    arrange(body, found.slice(0, limit).map(({ row }) => row));
    more.hidden = found.length <= limit;
    write(shown, `${found.length} of ${lines.size}`);
    empty.hidden = lines.size > 0;
    part.hidden = lines.size === 0;
    submit.hidden = part.hidden || me.role === "read"; // where there is nothing, the way stands below
  }
  filter.addEventListener("input", sift);
  state.addEventListener("change", sift);

  function heard(kind, data) {
    if (kind !== "studies") return;
    const first = waiting.isConnected;
    waiting.remove();
    const changes = [];
    for (const standing of data.studies || []) {
      const line = lines.get(standing.study) || lineOf(standing.study);
      const before = line.standing ? line.standing.state : standing.state;
      if (before !== standing.state) changes.push(`${standing.study} is ${standing.state}`);
      line.fill(standing);
      lines.set(standing.study, line);
    }
    const there = new Set((data.studies || []).map(({ study }) => study));
    const gone = whole ? [...lines.keys()].filter((name) => !there.has(name)) : data.gone || [];
    for (const name of gone) lines.delete(name);
    whole = false;
    if (!first && changes.length) announce(changes.slice(0, 3).join(", "));
    sift();
  }
  follow("/api/events", {
    heard,
    connected(text) {
      whole = !text;
      connected(text);
    },
    gone: (fault) => connected(fault.message),
  });
  setInterval(() => { for (const line of lines.values()) line.age(); }, 30000);
}

// What is under way first, then what waits in its order, then the latest.
function inOrder(a, b) {
  const rank = (study) => (!study.under_way ? 2 : study.state === "queued" ? 1 : 0);
  return rank(a) - rank(b) || (a.queue_position || 0) - (b.queue_position || 0) ||
    String(b.updated || b.submitted || "").localeCompare(String(a.updated || a.submitted || "")) ||
    a.study.localeCompare(b.study);
}

function lineOf(name) {
  const cell = (label, ...content) => el("td", { role: "cell", "data-label": label }, content);
  const link = el("a", { href: `/studies/${encodeURIComponent(name)}` }, name);
  const question = el("small");
  const states = el("div"), why = el("small", { class: "why" });
  const bars = { search: bar("Search"), confirm: bar("Confirm") };
  const best = el("div"), of = el("small");
  const money = el("div"), hours = el("small"), left = el("div"), owner = el("div"), updated = el("time");
  const row = el("tr", { role: "row", "data-study": name },
    el("th", { scope: "row", role: "rowheader" }, link, question),
    cell("State", states, why), cell("Progress", bars.search, bars.confirm), cell("Best so far", best, of),
    cell("Spent", money, hours), cell("Time left", left), cell("Owner", owner), cell("Updated", updated));

  const line = { row, standing: null };
  line.age = () => {
    const time = line.standing && (line.standing.updated || line.standing.submitted);
    write(updated, time ? ago(time) : "");
  };
  line.fill = (standing) => {
    const before = line.standing;
    line.standing = standing;
    row.dataset.state = standing.state;
    show(question, standing.question);
    if (!before || before.state !== standing.state) states.replaceChildren(stateMark(standing.state));
    show(why, standing.queue_position ? `${ordinal(standing.queue_position)} in the queue` : standing.reason);
    for (const [part, line_] of Object.entries(bars)) {
      const found = standing[part];
      line_.hidden = !found || !found.total;
      if (found) line_.fill(found.done, found.total);
    }
    write(best, typeof standing.best === "number" ? figure(standing.metric, standing.best) : "");
    show(of, best.textContent && metric(standing.metric));
    const [sum, ...rest] = spent(standing.spent);
    write(money, sum);
    show(hours, rest.join(", "));
    write(left, standing.eta_s && standing.state === "running" ? span(...standing.eta_s) : "");
    write(owner, standing.owner || "");
    const time = standing.updated || standing.submitted;
    if (time) Object.assign(updated, { dateTime: time, title: moment(time) });
    line.age();
  };
  return line;
}

function nothing(me) {
  const how = me.role === "read" ? [] : [
    el("p", {}, el("a", { class: "button primary", href: "/submit" }, "Submit a study"))];
  return el("section", { id: "empty", hidden: true },
    el("p", { class: "lead" }, "There are no studies yet. A study is a YAML file that asks a question: ",
      "what to train, what to search, and how much to spend on it."),
    how,
    el("p", { class: "note" }, "Or from a shell:"),
    el("pre", { class: "plain", tabindex: "0" }, `cbe submit study.yaml --address ${location.origin}`));
}
