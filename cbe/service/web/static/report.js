// The report's parts on a study's page: fetched again when trials have changed, neither too often nor unseen.

import { ask, studyPath } from "./api.js";
import { el, find, show } from "./dom.js";
import { panels } from "./figures.js";
import { renew } from "./fragments.js";

const PARTS = {
  answer: ["sentence", "Answer"], search: ["search-title", "Search"],
  configs: ["configs-title", "Best configs"], paper: ["paper-title", "Paper’s figures"], trials: ["trials-title", "Trials"],
  spent: ["spent-title", "Time and cost"], provenance: ["provenance-title", "Provenance"],
};
const LEAST_MS = 5000;
const REST = 4; // times as long as the service took to make it

export function report(name, openTrial) {
  const sections = Object.fromEntries(Object.entries(PARTS).map(([part, [heading]]) => [
    part, el("section", { id: part, "aria-labelledby": heading, hidden: true })]));
  const links = Object.fromEntries(Object.entries(PARTS).map(([part, [, title]]) => [
    part, el("a", { href: `#${part}`, hidden: true }, title)]));
  const nav = el("nav", { "aria-label": "Sections", class: "sections" }, Object.values(links));
  const loading = el("p", { class: "lead", id: "report-loading" }, "Loading the report …");
  const trouble = el("p", { id: "report-trouble", class: "banner", role: "status", hidden: true });
  const parts = el("div", { id: "report" }, loading, trouble, Object.values(sections));
  const draw = panels(openTrial);
  let version = null;
  let table = null;
  let next = 0; // when it may be fetched again
  let waiting = 0;
  let busy = false;
  let stale = false;

  function put(page) {
    const focused = document.activeElement;
    const anchor = above();
    for (const [part, section] of Object.entries(sections)) {
      const html = page.html[part] || "";
      renew(section, html);
      section.hidden = links[part].hidden = !html;
    }
    const found = find("trial-table");
    if (table && table.of === found) table.refresh();
    else table = found && { of: found, ...globalThis.cbePage.trialTable(found, find("filter"), find("shown")) };
    globalThis.cbePage.reachable();
    if (anchor) {
      window.scrollBy({ top: anchor.element.getBoundingClientRect().top - anchor.top, behavior: "instant" });
    }
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }
  // The part that the reader sees stays where it is, whatever grows above it.
  function above() {
    const element = Object.values(sections).find((each) => !each.hidden && each.getBoundingClientRect().bottom > 0);
    return element && window.scrollY > 0 ? { element, top: element.getBoundingClientRect().top } : null;
  }

  async function fetchIt() {
    busy = true;
    stale = false;
    const began = performance.now();
    let took = 0;
    try {
      const page = await ask(studyPath(name, "/page"));
      took = performance.now() - began;
      if (page.version !== version) {
        version = page.version;
        loading.remove();
        put(page);
      }
      show(trouble, "");
      parts.dataset.version = version;
      await draw(page.panels).catch((fault) => show(trouble, fault.message));
    } catch (fault) {
      if (fault.status !== 401) show(trouble, fault.status === 0 ? "" : fault.message);
      if (fault.status === 0 || fault.status >= 500) stale = true;
    } finally {
      busy = false;
      loading.remove();
      next = began + Math.max(LEAST_MS, (1 + REST) * took);
      if (stale) refresh();
    }
  }
  // `now`: it ended or was never seen, so that there is nothing to wait for.
  function refresh(now = false) {
    stale = true;
    clearTimeout(waiting);
    if (busy || document.hidden) return;
    waiting = setTimeout(fetchIt, now ? 0 : Math.max(0, next - performance.now()));
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && stale) refresh(); });
  parts.addEventListener("click", (event) => {
    const line = event.target.closest("tr[data-trial]");
    if (!line || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button) return;
    if (!event.target.closest("a") && !getSelection().isCollapsed) return; // somebody selects a text
    event.preventDefault();
    openTrial(line.dataset.trial);
  });
  return { nav, parts, refresh };
}
