// A study's file as it is written: with the numbers of its lines, and those with faults marked.

import { announce, el } from "./dom.js";
import { number } from "./words.js";

const LARGEST = 1000000; // bytes that the service takes
const DRAFT = "cbe-draft";

// What was written and not yet submitted outlives a reload.
export const draft = {
  get() { try { return sessionStorage.getItem(DRAFT) || ""; } catch { return ""; } },
  set(text) { try { sessionStorage.setItem(DRAFT, text); } catch { /* only as long as the page */ } },
};

// `changed` is called after every change, `refused` with a text where a file cannot be taken. It opens with the
// draft, or else with the example: an empty editor does not show what a study is.
export function editor(describedBy, changed, refused, example) {
  const gutter = el("pre", { class: "gutter", "aria-hidden": "true" });
  const text = el("textarea", {
    id: "yaml", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", rows: "24",
    "aria-describedby": describedBy, placeholder: "name: my-study\nquestion: …",
  });
  const place = el("div", { class: "editor" }, gutter, text);
  let marked = new Set();

  function count() {
    const lines = text.value.split("\n").length;
    while (gutter.childElementCount > lines) gutter.lastElementChild.remove();
    while (gutter.childElementCount < lines) gutter.append(el("span", {}, String(gutter.childElementCount + 1)));
    [...gutter.children].forEach((each, at) => each.classList.toggle("marked", marked.has(at + 1)));
    gutter.scrollTop = text.scrollTop;
  }
  function written() {
    count();
    draft.set(text.value);
    changed();
  }
  function put(content) {
    text.value = content;
    text.focus();
    text.setSelectionRange(0, 0);
    text.scrollTop = 0;
    written();
  }
  async function take(file) {
    if (!file) return;
    if (file.size > LARGEST) {
      refused(`${file.name}: ${number(file.size)} bytes; a study’s file has at most 1 MB`);
      return;
    }
    put(await file.text());
    announce(`${file.name} is opened`);
  }
  // Marks the lines with faults.
  function mark(lines) {
    marked = new Set(lines);
    text.setAttribute("aria-invalid", String(marked.size > 0));
    count();
  }
  function goTo(line) {
    const before = text.value.split("\n").slice(0, line - 1);
    const start = before.reduce((sum, each) => sum + each.length + 1, 0);
    const end = text.value.indexOf("\n", start);
    text.focus();
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
    text.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(text).lineHeight));
  }

  text.addEventListener("input", written);
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  place.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    place.classList.add("over");
  });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    place.classList.remove("over");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  text.value = draft.get() || example;
  count();
  return { place, put, take, mark, goTo, get value() { return text.value; } };
}
