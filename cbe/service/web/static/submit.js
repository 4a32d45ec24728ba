// A new study: written or taken from a file, checked while it is typed, priced, and submitted.

import { ask } from "./api.js";
import { el, write } from "./dom.js";
import { draft, editor } from "./editor.js";
import { number, plural, range, span } from "./words.js";

const CHECK_MS = 400;
const EXAMPLE = `name: digits-heads
question: How many heads do digits with 40 labels need?

data: {source: digits, labels: 40, validation: 200}
method: fixmatch
model: {name: wrn-10-1, bn_momentum: 0.05}
training: {steps: 300, lr: 0.06, ema: 0.98, eval_every: 50}

search:
  ensemble.heads: {int: [2, 8]}
  loss.weights.lb: {float: [0.1, 10], log: true}
sampler: tpe
scheduler: {name: asha, grace: 0.2}
budget: {trials: 6}
confirm: {configs: 1, runs: 2}
`;

const post = (path, text, signal) => ask(path, { method: "POST", body: text, type: "application/yaml", signal });

export function open(main, me) {
  document.title = "Submit · CBE Studies";
  const allowed = me.role !== "read";
  const refused = allowed ? "" : "Your token may only read. Ask for one with the role submit.";
  const trouble = el("p", { id: "submit-trouble", class: "fault", role: "alert" }, refused);
  const file = editor("check faults", changed, (text) => write(trouble, text), EXAMPLE);
  const checked = checking(file, () => allow());
  const plan = planning(file);
  const submit = el("button", { type: "submit", id: "submit", class: "primary", disabled: true }, "Submit");
  const priority = el("input", {
    id: "priority", type: "number", value: "0", step: "1", min: "-100", max: "100",
    "aria-describedby": "priority-note",
  });
  const form = el("form", { id: "submit-form", class: "two" },
    el("div", {}, tools(file), file.place,
      el("p", { class: "note" }, "Or drop a file on it. It is checked while you type.")),
    el("div", { class: "side" },
      step("check-title", "Check", checked.told, checked.faults),
      step("plan-title", "Plan", el("p", { class: "note" }, "What it would take, before it takes anything."),
        el("p", {}, plan.button), plan.result),
      step("submit-title", "Submit",
        el("p", { class: "field" }, el("label", { for: "priority" }, "Priority"), priority,
          el("span", { class: "note", id: "priority-note" }, "Higher goes first; 0 is usual.")),
        trouble, el("p", {}, submit))));
  main.replaceChildren(el("h1", {}, "Submit a study"), form);

  function allow() {
    const may = allowed && checked.good();
    plan.allow(may);
    submit.disabled = !may;
  }
  function changed() {
    write(trouble, refused);
    checked.soon();
    plan.age();
    allow();
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    write(trouble, "");
    try {
      const found = await post(`/api/studies?priority=${encodeURIComponent(priority.value || 0)}`, file.value);
      draft.set("");
      location.assign(`/studies/${encodeURIComponent(found.study)}`);
    } catch (fault) {
      if (fault.faults && fault.faults.length) checked.tell(fault.faults);
      write(trouble, fault.message);
      allow();
    }
  });
  checked.now();
}

function step(id, title, ...content) {
  return el("section", { "aria-labelledby": id }, el("h2", { class: "minor", id }, title), content);
}

function tools(file) {
  const upload = el("input", { id: "upload", type: "file", accept: ".yaml,.yml,text/yaml", class: "unseen" });
  upload.addEventListener("change", () => {
    file.take(upload.files[0]);
    upload.value = "";
  });
  function start() {
    const own = file.value.trim() && file.value !== EXAMPLE;
    if (!own || window.confirm("Replace what you have written?")) file.put(EXAMPLE);
  }
  return el("p", { class: "tools" },
    el("label", { for: "yaml" }, "Study, in YAML"),
    el("button", { type: "button", id: "example", onclick: start }, "Back to the example"),
    el("label", { for: "upload", class: "button file" }, "Open a file", upload));
}

// Asks what is wrong with the file, once nobody has typed for a moment; `done` after every answer.
function checking(file, done) {
  const told = el("p", { id: "check", role: "status" });
  const faults = el("ol", { id: "faults", class: "faults" });
  let good = false;
  let asked = null;
  let timer = 0;

  function say(text, kind) {
    write(told, text);
    told.className = kind;
  }
  function tell(found) {
    file.mark(found.map(({ line }) => line).filter(Boolean));
    faults.replaceChildren(...found.map((fault) => {
      if (!fault.line) return el("li", {}, el("p", {}, said(fault)));
      return el("li", {}, el("button", { type: "button", onclick: () => file.goTo(fault.line) }, said(fault)));
    }));
  }
  async function now() {
    if (asked) asked.abort();
    const text = file.value;
    if (!text.trim()) {
      tell([]);
      say("Nothing to check yet.", "");
      return;
    }
    asked = new AbortController();
    try {
      const found = await post("/api/check", text, asked.signal);
      good = !found.faults.length;
      tell(found.faults);
      say(good ? about(found.about) : plural(found.faults.length, "fault"), good ? "good" : "fault");
    } catch (fault) {
      if (fault.name === "AbortError") return;
      tell(fault.faults || []);
      say(fault.message, "fault");
    }
    done();
  }
  function soon() {
    good = false;
    if (asked) asked.abort(); // it is of another text
    clearTimeout(timer);
    timer = setTimeout(now, CHECK_MS);
  }
  return { told, faults, tell, now, soon, good: () => good };
}

function said({ line, key, where, problem, hint }) {
  const place = [line ? `Line ${line}` : "", key || (line ? "" : where)].filter(Boolean).join(", ");
  return [el("b", {}, place), place ? ": " : "", problem, hint ? el("span", { class: "hint" }, hint) : null];
}

function about(found) {
  if (!found) return "No faults.";
  const search = `${plural(found.trials, "trial")} over ${plural(found.parameters, "parameter")}`;
  const confirm = found.confirm ? `; then ${plural(found.confirm, "run")} to confirm` : "";
  return `No faults: ${search} by ${found.sampler}, scheduler ${found.scheduler}${confirm}.`;
}

// Asks what the study would take; after a change the answer is that of another file, and fades.
function planning(file) {
  const result = el("div", { id: "plan-result", "aria-live": "polite" });
  const button = el("button", { type: "button", id: "plan", disabled: true }, "Plan");
  let may = false;
  let busy = false;
  const allow = (now) => {
    may = now;
    button.disabled = busy || !may;
  };
  button.addEventListener("click", async () => {
    busy = true;
    allow(may);
    write(button, "Measuring …");
    const text = file.value;
    try {
      result.replaceChildren(...priced(await post("/api/plan", text)));
    } catch (fault) {
      result.replaceChildren(el("p", { class: "fault" }, fault.message));
    }
    result.classList.toggle("stale", text !== file.value);
    busy = false;
    write(button, "Plan");
    allow(may);
  });
  return { button, result, allow, age: () => result.classList.add("stale") };
}

// A plan as facts; ranges where the scheduler or the machine decides.
function priced(found) {
  const hours = (taken) => (taken ? span(3600 * taken.low, 3600 * taken.high) : "");
  const facts = {
    Trials: `${number(found.trials)} to search, ${number(found.confirm_runs)} to confirm`,
    Steps: range(found.steps),
    "At once": plural(found.concurrent, "trial"),
    Time: found.wall_s ? span(found.wall_s.low, found.wall_s.high) : "",
    "In trials": hours(found.trial_hours),
    "GPU hours": found.gpu_hours && found.gpu_hours.high > 0 ? range(found.gpu_hours, 2) : "",
    Cost: price(found.usd),
  };
  const told = Object.entries(facts).filter(([, text]) => text);
  const limits = Object.entries(found.budget || {}).filter(([, reached]) => reached !== "no")
    .map(([limit, reached]) => `budget.${limit} ${reached === "yes" ? "ends" : "may end"} it before its end.`);
  const varies = (found.varies || []).length
    ? [`Searched and costly, so that single trials may differ: ${found.varies.join(", ")}.`] : [];
  const notes = [...limits, ...varies, found.note].filter(Boolean);
  return [
    el("dl", { class: "plan" }, told.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
    ...notes.map((text) => el("p", { class: "note" }, text)),
  ];
}

function price(found) {
  if (!found) return "";
  return found.high > 0 ? `$${range(found, 2).replace(" to ", " to $")}` : "–";
}
