// The last lines that a study's driver has printed.

import { ask, studyPath } from "./api.js";
import { el, find, write } from "./dom.js";
import { moment } from "./words.js";

const LINES = 40;
const AGAIN_MS = 10000;
const SILENT = ["new", "queued", "unreadable"]; // states without a driver that says anything

export function log(name) {
  const text = el("pre", { id: "log-text", tabindex: "0", role: "region", "aria-label": "The last lines of the log" });
  const note = el("p", { class: "note" });
  const box = el("div", { class: "yaml", hidden: true }, text);
  const refresh = el("button", { type: "button", id: "log-refresh", onclick: load }, "Refresh");
  const link = el("a", { href: "#log" }, "Log");
  const part = el("section", { id: "log", "aria-labelledby": "log-title" },
    el("h2", { id: "log-title" }, "Log"), note, el("p", {}, refresh), box);
  let waiting = 0;

  async function load() {
    clearTimeout(waiting);
    try {
      const found = (await ask(studyPath(name, `/logs?tail=${LINES}`), { as: "text" })).trimEnd();
      const at = moment(new Date().toISOString());
      write(note, found ? `The last ${LINES} lines of its driver, as of ${at}.` : "There is no log.");
      write(text, found);
      box.hidden = !found;
      text.scrollTop = text.scrollHeight;
    } catch (fault) {
      write(note, fault.message);
      if (fault.status === 0 || fault.status >= 500) waiting = setTimeout(load, AGAIN_MS); // Ray may only be busy
    }
  }
  // A failed study has it beside the reason; others at the end of the page.
  function state(now) {
    part.hidden = link.hidden = SILENT.includes(now);
    if (part.hidden) return;
    const failed = now === "failed";
    part.classList.toggle("close", failed);
    if (failed) find("progress").before(part);
    else if (find("report").nextElementSibling !== part) find("report").after(part);
    load();
  }
  return { part, link, state };
}
