// What can be done with a study: stop, resume, delete it, and take its report or its file along.

import { ask, studyPath } from "./api.js";
import { question, sheet } from "./dialogs.js";
import { announce, code, complain, el, write } from "./dom.js";

export function steering(name, me) {
  let standing = null;
  let gone = false;
  const may = new Map(); // by button: whether it can be pressed now
  const stop = button("stop", "Stop", () => steer("stop", "asked to stop"));
  const resume = button("resume", "Resume …", askHowFar);
  const download = button("download", "Download report", report);
  const file = button("file", "File", showFile);
  const remove = button("delete", "Delete …", askForItsName);
  const buttons = el("div", { class: "actions", role: "group", "aria-label": "Actions" });
  buttons.append(stop, resume, download, file, remove);

  // One press at a time; what is refused is told.
  function button(id, text, act) {
    const made = el("button", { type: "button", id }, text);
    made.addEventListener("click", async () => {
      complain(null);
      made.disabled = true;
      try {
        await act();
      } catch (fault) {
        if (fault.status !== 401) complain(fault);
      } finally {
        made.disabled = !may.get(made);
      }
    });
    may.set(made, true);
    return made;
  }
  function possible(made, now) {
    may.set(made, now);
    made.disabled = !now;
  }
  async function steer(verb, told, body) {
    fill(await ask(studyPath(name, `/${verb}`), { method: "POST", body }));
    announce(`${name}: ${told}`);
  }
  function fill(now) {
    standing = now;
    const mine = me.open || me.role === "admin" || (me.role === "submit" && now.owner === me.name);
    // Each keeps its place: what cannot be done now is disabled, what this reader never may is hidden.
    for (const each of [stop, resume, remove]) each.hidden = !mine;
    possible(stop, now.under_way && now.state !== "stopping");
    possible(resume, !now.under_way && now.state !== "unreadable");
    possible(remove, !now.under_way);
    possible(download, now.state !== "unreadable" && Object.values(now.counts || {}).some(Boolean));
    write(stop, now.state === "queued" ? "Leave the queue" : "Stop");
    write(resume, `${begins()} …`);
  }

  // One that has never run is not resumed.
  function begins() { return standing.state === "new" ? "Start" : "Resume"; }
  function askHowFar() {
    const total = standing.search ? standing.search.total : 0;
    const done = standing.state === "finished";
    const input = el("input", {
      id: "more-trials", type: "number", min: total + 1, step: 1, placeholder: total, required: done,
      "aria-describedby": "more-trials-note",
    });
    const note = done ? `It has finished all ${total}: give it more to go on.`
      : `Left empty, it goes on with the ${total} of its file.`;
    question(begins(), `${begins()} ${name}`, [
      el("p", { class: "field" }, el("label", { for: "more-trials" }, "Trials of the search, in all"), input),
      el("p", { class: "note", id: "more-trials-note" }, note),
    ], () => steer("resume", "goes on", input.value ? { set: { "budget.trials": Number(input.value) } } : {}));
  }
  function askForItsName() {
    const input = el("input", {
      id: "delete-name", autocomplete: "off", spellcheck: "false", "aria-describedby": "delete-note",
    });
    const yes = question("Delete", `Delete ${name}?`, [
      el("p", { class: "note", id: "delete-note" },
        "Its trials, curves, checkpoints and answer are gone for good. Type its name to say that you mean it."),
      el("p", { class: "field" }, el("label", { for: "delete-name" }, "Name of the study"), input),
    ], forGood, "danger");
    yes.disabled = true;
    input.addEventListener("input", () => { yes.disabled = input.value !== name; });
  }
  async function forGood() {
    gone = true;
    try {
      await ask(`${studyPath(name)}?confirm=${encodeURIComponent(name)}`, { method: "DELETE" });
    } catch (fault) {
      gone = false;
      throw fault;
    }
    location.assign("/");
  }
  async function showFile() {
    const text = await ask(studyPath(name, "/file"), { as: "text" });
    const save = () => offer(new Blob([text], { type: "application/yaml" }), `${name}.yaml`);
    sheet(`The file of ${name}`, el("div", { class: "yaml" }, code("study-file", "the file", text)),
      el("button", { type: "button", onclick: save }, "Download"));
  }
  async function report() {
    write(download, "Making it …");
    try {
      offer(await ask(studyPath(name, "/report"), { as: "blob" }), `${name}.html`);
    } finally {
      write(download, "Download report");
    }
  }
  return { buttons, fill, leaving: () => gone };
}

// A file for the reader to keep. A plain link could not carry the token.
function offer(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
