// HTML that the service has rendered and escaped, put in place of what it said before: what is the same stays,
// and with it the reader's place, focus, selection, open details, filter and zoom.

const OWN_ATTRIBUTES = "tr[data-trial], th[data-key], details, input, .scroll, .frame, .plot"; // the page writes these itself
const OWN_CONTENT = ".plot, output, .copy";

export function renew(place, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  match(place, template.content);
}

function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  const heading = node.tagName === "SECTION" ? node.getAttribute("aria-labelledby") : null;
  return node.id || node.dataset.trial || heading;
}

function match(old, fresh) {
  const known = new Map([...old.childNodes].map((node) => [keyOf(node), node]));
  const sorted = old.nodeName === "TBODY" && old.parentElement.querySelector("[aria-sort]"); // by the reader
  const kept = new Set();
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    while (at && kept.has(at)) at = at.nextSibling;
    const key = keyOf(next);
    let same = key ? known.get(key) : at;
    if (same && (same.nodeName !== next.nodeName || keyOf(same) !== key)) same = null;
    if (!same) {
      old.insertBefore(next, at);
      kept.add(next);
      continue;
    }
    if (same !== at && !sorted) old.insertBefore(same, at);
    kept.add(same);
    update(same, next);
  }
  for (const node of [...old.childNodes]) if (!kept.has(node)) drop(node);
}

function update(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  if (!old.matches(OWN_ATTRIBUTES)) attributes(old, next);
  else if (old.matches(".plot")) old.setAttribute("aria-label", next.getAttribute("aria-label"));
  if (!old.matches(OWN_CONTENT)) match(old, next);
}

function attributes(old, next) {
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}

function drop(node) {
  node.remove();
  if (!globalThis.Plotly || node.nodeType !== Node.ELEMENT_NODE) return;
  for (const plot of [node, ...node.querySelectorAll(".plot")]) {
    if (plot.classList.contains("js-plotly-plot")) Plotly.purge(plot);
  }
}
