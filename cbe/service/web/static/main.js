// The page: who is there, and which of the views the address asks for.

import { Fault, ask, token, whenRefused } from "./api.js";
import { complain, el, find, show } from "./dom.js";

const { theming, copying } = globalThis.cbePage;

function view() {
  const path = location.pathname.replace(/\/+$/, "");
  if (path === "/submit") return import("./submit.js");
  if (path.startsWith("/studies/")) return import("./study.js");
  return import("./list.js");
}

export function connected(text) { show(find("connection"), text); }

let asking = false;
function askForToken(fault) {
  if (asking) return;
  asking = true;
  document.title = "Sign in · CBE Studies";
  find("sign-out").hidden = true;
  show(find("who"), "");
  connected("");
  const input = el("input", {
    id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "token-fault",
  });
  const said = el("p", { id: "token-fault", class: "fault", role: "alert" });
  if (token.get()) said.textContent = fault.message;
  const form = el("form", { id: "sign-in", class: "narrow" },
    el("h1", {}, "Sign in"),
    el("p", { class: "lead" }, "This service asks for a token. Its administrator makes one with ",
      el("code", {}, "cbe token create"), "."),
    el("p", { class: "field" }, el("label", { for: "token" }, "Token"), input),
    said,
    el("p", {}, el("button", { class: "primary" }, "Sign in"),
      el("span", { class: "note beside" }, "It is kept until you close this tab.")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    try {
      await ask("/api/me", { quiet: true });
      location.reload();
    } catch (error) {
      if (error.status !== 0) token.set(null);
      said.textContent = error.message;
      input.select();
    }
  });
  find("main").replaceChildren(form);
  input.focus();
}

function greet(me) {
  show(find("who"), me.open ? "" : `${me.name}, ${me.role}`);
  find("sign-out").hidden = me.open || !token.get();
  find("to-submit").hidden = me.role === "read";
  for (const link of document.querySelectorAll("nav a")) {
    if (new URL(link.href).pathname === location.pathname) link.setAttribute("aria-current", "page");
  }
}

async function begin() {
  theming(find("theme"));
  copying();
  whenRefused(askForToken);
  find("sign-out").addEventListener("click", () => { token.forget(); location.assign("/"); });
  try {
    const me = await ask("/api/me");
    greet(me);
    const { open } = await view();
    await open(find("main"), me, connected);
  } catch (error) {
    if (error instanceof Fault && error.status === 401) return; // asked for
    const missing = error.status === 404 || error.status === 422; // no such name, or none that a study could have
    find("main").replaceChildren(
      el("h1", {}, missing ? "There is no study of that name" : "This page cannot be shown"),
      el("p", { class: "lead", id: "trouble" }, missing ? location.pathname : error.message),
      el("p", {}, missing ? el("a", { href: "/" }, "All studies")
        : el("button", { type: "button", onclick: () => location.reload() }, "Try again")));
    if (!(error instanceof Fault)) throw error;
  }
}

window.addEventListener("unhandledrejection", ({ reason }) => { if (reason instanceof Fault) complain(reason); });
begin();
