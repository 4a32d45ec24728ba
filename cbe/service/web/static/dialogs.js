// Questions above the page.

import { el } from "./dom.js";

// A question with one answer, `verb`, which does `act`; where that is refused it stays open and says why.
export function question(verb, title, content, act, kind = "primary") {
  const fault = el("p", { class: "fault", role: "alert" });
  const yes = el("button", { class: kind }, verb);
  const form = el("form", {}, content, fault, el("p", { class: "buttons" }, closing("Cancel"), yes));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      await act();
      form.closest("dialog").close();
    } catch (error) {
      fault.textContent = error.message;
      yes.disabled = false;
    }
  });
  shown(title, form);
  return yes;
}

// Something to look at, and what can be done with it.
export function sheet(title, content, ...buttons) {
  shown(title, el("div", {}, content, el("p", { class: "buttons" }, buttons, closing("Close"))));
}

function closing(text) {
  return el("button", { type: "button", onclick: (event) => event.target.closest("dialog").close() }, text);
}

function shown(title, content) {
  const box = el("dialog", { "aria-labelledby": "dialog-title", class: "ask" },
    el("h2", { id: "dialog-title" }, title), content);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}
