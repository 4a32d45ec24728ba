// A new study: written or taken from a file, checked while it is typed, priced, and submitted.

import { ask } from "./api.js";
import { announce, el, write } from "./dom.js";
import { number, plural, range, span } from "./words.js";

const CHECK_MS = 400;
const DRAFT = "cbe-draft";
const LARGEST = 1000000;
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

const draft = {
  get() { try { return sessionStorage.getItem(DRAFT) || ""; } catch { return ""; } },
  set(text) { try { sessionStorage.setItem(DRAFT, text); } catch { /* only as long as the page */ } },
};

export function open(main, me) {
  document.title = "Submit · CBE Studies";
  const gutter = el("pre", { class: "gutter", "aria-hidden": "true" });
  const text = el("textarea", { id: "yaml", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", rows: "24", "aria-describedby": "check faults", placeholder: "name: my-study\nquestion: …" });
  const file = el("input", { id: "upload", type: "file", accept: ".yaml,.yml,text/yaml", class: "unseen" });
  const example = el("button", { type: "button", id: "example" }, "Start from an example");
  const check = el("p", { id: "check", role: "status" });
  const faults = el("ol", { id: "faults", class: "faults" });
  const planned = el("div", { id: "plan-result", "aria-live": "polite" });
  const trouble = el("p", { id: "submit-trouble", class: "fault", role: "alert" });
  const plan = el("button", { type: "button", id: "plan", disabled: true }, "Plan");
  const submit = el("button", { type: "submit", id: "submit", class: "primary", disabled: true }, "Submit");
  const priority = el("input", { id: "priority", type: "number", value: "0", step: "1", min: "-100", max: "100", "aria-describedby": "priority-note" });
  const editor = el("div", { class: "editor" }, gutter, text);
  const form = el("form", { id: "submit-form", class: "two" },
    el("div", {},
      el("p", { class: "tools" }, el("label", { for: "yaml" }, "Study, in YAML"), example,
        el("label", { for: "upload", class: "button file", id: "upload-label" }, "Open a file", file)),
      editor,
      el("p", { class: "note" }, "Or drop a file on it. It is checked while you type.")),
    el("div", { class: "side" },
      el("section", { "aria-labelledby": "check-title" }, el("h2", { class: "minor", id: "check-title" }, "Check"), check, faults),
      el("section", { "aria-labelledby": "plan-title" }, el("h2", { class: "minor", id: "plan-title" }, "Plan"),
        el("p", { class: "note" }, "What it takes, measured with a few steps on the service’s machine."), el("p", {}, plan), planned),
      el("section", { "aria-labelledby": "submit-title" }, el("h2", { class: "minor", id: "submit-title" }, "Submit"),
        el("p", { class: "field" }, el("label", { for: "priority" }, "Priority"), priority,
          el("span", { class: "note", id: "priority-note" }, "Higher goes first; 0 is usual.")), trouble, el("p", {}, submit))));
  main.replaceChildren(el("h1", {}, "Submit a study"), form);

  const allowed = me.role !== "read";
  let lines = new Set(); // with faults
  let asked = null;
  let timer = 0;
  let good = false;
  let name = null;

  function number_() {
    const count = text.value.split("\n").length;
    const found = Array.from({ length: count }, (_, at) => el("span", { class: lines.has(at + 1) ? "marked" : null }, `${at + 1}\n`));
    gutter.replaceChildren(...found);
    gutter.scrollTop = text.scrollTop;
  }
  function allow() {
    plan.disabled = !good || !allowed;
    submit.disabled = !good || !allowed;
  }
  function tell(found) {
    lines = new Set(found.map(({ line }) => line).filter(Boolean));
    text.setAttribute("aria-invalid", found.length ? "true" : "false");
    faults.replaceChildren(...found.map((fault) => {
      const where = [fault.line ? `Line ${fault.line}` : "", fault.key || (fault.line ? "" : fault.where)].filter(Boolean).join(", ");
      const said = [el("b", {}, where), where ? ": " : "", fault.problem, fault.hint ? el("span", { class: "hint" }, fault.hint) : null];
      return el("li", {}, fault.line ? el("button", { type: "button", onclick: () => goTo(fault.line) }, said) : el("p", {}, said));
    }));
    number_();
  }
  function goTo(line) {
    const before = text.value.split("\n").slice(0, line - 1);
    const start = before.reduce((sum, each) => sum + each.length + 1, 0);
    const end = text.value.indexOf("\n", start);
    text.focus();
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
    const height = parseFloat(getComputedStyle(text).lineHeight);
    text.scrollTop = Math.max(0, (line - 4) * height);
  }
  async function look() {
    if (asked) asked.abort();
    if (!text.value.trim()) { good = false; tell([]); write(check, "Nothing to check yet."); allow(); return; }
    asked = new AbortController();
    try {
      const found = await ask("/api/check", { method: "POST", body: text.value, type: "application/yaml", signal: asked.signal });
      tell(found.faults || []);
      good = !found.faults.length;
      name = good && found.about ? found.about.name : null;
      write(check, good ? about(found.about) : plural(found.faults.length, "fault"));
      check.className = good ? "good" : "fault";
    } catch (fault) {
      if (fault.name === "AbortError") return;
      good = false;
      tell(fault.faults || []);
      write(check, fault.message);
      check.className = "fault";
    }
    allow();
  }
  function about(found) {
    if (!found) return "No faults.";
    const confirmed = found.confirm ? `; then ${plural(found.confirm, "run")} to confirm` : "";
    return `No faults: ${plural(found.trials, "trial")} over ${plural(found.parameters, "parameter")} by ${found.sampler}, scheduler ${found.scheduler}${confirmed}.`;
  }

  function changed() {
    number_();
    draft.set(text.value);
    good = false;
    allow();
    write(trouble, "");
    planned.classList.add("stale");
    clearTimeout(timer);
    timer = setTimeout(look, CHECK_MS);
  }
  function put(content) {
    text.value = content;
    text.scrollTop = 0;
    changed();
  }
  async function take(taken) {
    if (!taken) return;
    if (taken.size > LARGEST) { write(trouble, `${taken.name}: ${number(taken.size)} bytes; a study's file has at most 1 MB`); return; }
    put(await taken.text());
    announce(`${taken.name} is opened`);
    text.focus();
  }

  text.addEventListener("input", changed);
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  example.addEventListener("click", () => {
    if (text.value.trim() && text.value !== EXAMPLE && !window.confirm("Replace what you have written?")) return;
    put(EXAMPLE);
    text.focus();
    text.setSelectionRange(0, 0);
  });
  file.addEventListener("change", () => { take(file.files[0]); file.value = ""; });
  for (const kind of ["dragenter", "dragover"]) editor.addEventListener(kind, (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    editor.classList.add("over");
  });
  editor.addEventListener("dragleave", () => editor.classList.remove("over"));
  editor.addEventListener("drop", (event) => {
    editor.classList.remove("over");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  plan.addEventListener("click", async () => {
    plan.disabled = true;
    write(plan, "Measuring …");
    try {
      const found = await ask("/api/plan", { method: "POST", body: text.value, type: "application/yaml" });
      planned.classList.remove("stale");
      planned.replaceChildren(...priced(found));
    } catch (fault) {
      planned.replaceChildren(el("p", { class: "fault" }, fault.message));
    } finally {
      write(plan, "Plan");
      allow();
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    write(trouble, "");
    try {
      const found = await ask(`/api/studies?priority=${encodeURIComponent(priority.value || 0)}`, { method: "POST", body: text.value, type: "application/yaml" });
      draft.set("");
      location.assign(`/studies/${encodeURIComponent(found.study || name)}`);
    } catch (fault) {
      if (fault.faults && fault.faults.length) tell(fault.faults);
      write(trouble, fault.message);
      allow();
    }
  });
  if (!allowed) write(trouble, "Your token may only read. Ask for one with the role submit.");
  text.value = draft.get();
  number_();
  look();
}

// A plan as facts; ranges where the scheduler or the machine decides.
function priced(found) {
  const facts = [
    ["Trials", `${number(found.trials)} to search, ${number(found.confirm_runs)} to confirm`],
    ["Steps", range(found.steps)],
    ["At once", plural(found.concurrent, "trial")],
    ["Time", found.wall_s ? span(found.wall_s.low, found.wall_s.high) : ""],
    ["In trials", found.trial_hours ? span(3600 * found.trial_hours.low, 3600 * found.trial_hours.high) : ""],
    ["GPU hours", found.gpu_hours && found.gpu_hours.high > 0 ? range(found.gpu_hours, 2) : ""],
    ["Cost", found.usd ? (found.usd.high > 0 ? range(found.usd, 2).replace(/(^| )(?=\d)/g, "$1$") : "nothing, at no price per hour") : ""],
  ].filter(([, said]) => said);
  const limits = Object.entries(found.budget || {}).filter(([, reached]) => reached !== "no")
    .map(([limit, reached]) => el("p", { class: "note" }, `budget.${limit} ${reached === "yes" ? "ends it before its end" : "may end it before its end"}.`));
  return [
    el("dl", { class: "plan" }, facts.map(([name, said]) => el("div", {}, el("dt", {}, name), el("dd", {}, said)))),
    ...limits,
    (found.varies || []).length ? el("p", { class: "note" }, `Searched and costly, so that single trials may differ: ${found.varies.join(", ")}.`) : "",
    found.note ? el("p", { class: "note" }, found.note) : "",
  ];
}
