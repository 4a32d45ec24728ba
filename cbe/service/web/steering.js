// What can be done with a study: stop, resume, delete it, and take its report or its file along.

import { ask, studyPath } from "./api.js";
import { announce, code, complain, el } from "./dom.js";
import { ACTIVE } from "./words.js";

const STOPS = ["queued", "starting", "running"];
const RESUMES = ["new", "halted", "interrupted", "failed", "finished"];

export function steering(name, me) {
  let standing = null;
  let gone = false;
  const stop = button("stop", "Stop", () => act("stop"));
  const resume = button("resume", "Resume …", () => ask_resume());
  const remove = button("delete", "Delete …", () => ask_delete());
  const download = button("download", "Download report", () => save(studyPath(name, "/report"), `${name}.html`, download));
  const file = button("file", "File", () => showFile());
  const buttons = el("div", { class: "actions", role: "group", "aria-label": "Actions" }, stop, resume, download, file, remove);

  function button(id, text, act_) {
    return el("button", { type: "button", id, onclick: async () => {
      complain(null);
      try { await act_(); } catch (fault) { if (fault.status !== 401) complain(fault); }
    } }, text);
  }
  async function busy(pressed, work) {
    pressed.disabled = true;
    try { return await work(); } finally { pressed.disabled = false; }
  }
  async function act(verb, body) {
    const now = await busy(verb === "stop" ? stop : resume, () => ask(studyPath(name, `/${verb}`), { method: "POST", body }));
    announce(`${name}: ${verb === "stop" ? "asked to stop" : "goes on"}`);
    if (now && now.state) fill(now);
  }
  function may(now) {
    return me.open || me.role === "admin" || (me.role === "submit" && now.owner === me.name);
  }
  function fill(now) {
    standing = now;
    const mine = may(now);
    stop.hidden = !mine || !STOPS.includes(now.state);
    stop.textContent = now.state === "queued" ? "Leave the queue" : "Stop";
    resume.hidden = !mine || !RESUMES.includes(now.state);
    remove.hidden = !mine || ACTIVE.includes(now.state) || now.state === "queued";
    download.hidden = now.state === "unreadable" || !Object.values(now.counts || {}).some(Boolean);
  }

  function ask_resume() {
    const total = standing.search ? standing.search.total : 0;
    const done = standing.state === "finished";
    const input = el("input", { id: "more-trials", type: "number", min: total + 1, step: 1, inputmode: "numeric", placeholder: String(total), required: done, "aria-describedby": "more-trials-note" });
    const box = dialog("Resume", `Resume ${name}`, [
      el("p", { class: "field" }, el("label", { for: "more-trials" }, "Trials of the search, in all"), input),
      el("p", { class: "note", id: "more-trials-note" }, done
        ? `It has finished all ${total}: give it more to go on.` : `Left empty, it goes on with the ${total} of its file.`),
    ], async () => act("resume", input.value ? { set: { "budget.trials": Number(input.value) } } : {}));
    box.showModal();
  }
  function ask_delete() {
    const input = el("input", { id: "delete-name", autocomplete: "off", spellcheck: "false", "aria-describedby": "delete-note" });
    const box = dialog("Delete", `Delete ${name}?`, [
      el("p", { class: "note", id: "delete-note" }, "Its trials, curves, checkpoints and answer are gone for good. Type its name to say that you mean it."),
      el("p", { class: "field" }, el("label", { for: "delete-name" }, "Name of the study"), input),
    ], async () => {
      gone = true;
      try {
        await ask(`${studyPath(name)}?confirm=${encodeURIComponent(name)}`, { method: "DELETE" });
      } catch (fault) { gone = false; throw fault; }
      location.assign("/");
    }, "danger");
    const yes = box.querySelector("button.danger");
    yes.disabled = true;
    input.addEventListener("input", () => { yes.disabled = input.value !== name; });
    box.showModal();
  }
  async function showFile() {
    const text = await busy(file, () => ask(studyPath(name, "/file"), { as: "text" }));
    const box = dialog(null, `The file of ${name}`, [el("div", { class: "yaml" }, code("study-file", "the file", text))]);
    box.querySelector(".buttons").prepend(el("button", { type: "button", onclick: () => offer(new Blob([text], { type: "application/yaml" }), `${name}.yaml`) }, "Download"));
    box.showModal();
  }
  async function save(path, as, pressed) {
    const said = pressed.textContent;
    pressed.textContent = "Making it …";
    try { offer(await busy(pressed, () => ask(path, { as: "blob" })), as); } finally { pressed.textContent = said; }
  }
  return { buttons, fill, leaving: () => gone };
}

// A file for the reader to keep. A plain link could not carry the token.
function offer(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A question above the page; with a verb it asks, and stays open with the reason where the answer is refused.
function dialog(verb, title, content, act, kind = "primary") {
  const fault = el("p", { class: "fault", role: "alert" });
  const close = el("button", { type: "button", onclick: () => box.close() }, verb ? "Cancel" : "Close");
  const form = el("form", { novalidate: false },
    el("h2", { id: "dialog-title" }, title), content, fault,
    el("p", { class: "buttons" }, close, verb ? el("button", { class: kind }, verb) : null));
  const box = el("dialog", { "aria-labelledby": "dialog-title", class: "ask" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!act) return;
    const yes = form.querySelector(`button.${kind}`);
    yes.disabled = true;
    try {
      await act();
      box.close();
    } catch (error) {
      fault.textContent = error.message;
      yes.disabled = false;
    }
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  return box;
}
