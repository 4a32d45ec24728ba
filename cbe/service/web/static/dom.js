// Elements made of plain texts: nothing here reads HTML.

export const find = (id) => document.getElementById(id);

// An element; attributes that are null or false are left out, true ones are bare, and on* are listeners.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

// Writes only what differs, so that selections stay and nobody is told the same twice.
export function write(place, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (place.textContent !== wanted) place.textContent = wanted;
}

export function show(place, text) {
  write(place, text);
  place.hidden = !text;
}

// Children by a key of theirs: those that are there are kept and moved only where they must be.
export function arrange(parent, wanted) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] || null);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

// Tells those who do not see the page what has changed.
export function announce(text) { write(find("said"), text); }

// Shows what went wrong until something else is done; without an error, nothing.
export function complain(error) {
  const place = find("notice");
  show(place, error ? error.message || String(error) : "");
  if (error) place.scrollIntoView({ block: "nearest" });
}

// A line of progress; `link` in place of its name, where that leads somewhere.
export function bar(label, link) {
  const progress = el("progress", { max: 1, value: 0, "aria-label": label });
  const count = el("span", { class: "count" });
  const name = el("span", { class: "bar-name", "aria-hidden": link ? null : "true" }, link || label);
  const line = el("div", { class: "bar-line" }, name, progress, count);
  line.fill = (done, total, said) => {
    progress.max = Math.max(total, 1);
    progress.value = Math.min(done, total);
    progress.setAttribute("aria-valuetext", said || `${done} of ${total}`);
    write(count, said || `${done} of ${total}`);
  };
  return line;
}

// Names and texts; those without a text are not shown.
export function facts(names) {
  const cells = new Map(names.map((name) => [name, el("dd")]));
  const pairs = [...cells].map(([name, cell]) => el("div", {}, el("dt", {}, name), cell));
  const list = el("dl", { class: "facts" }, pairs);
  list.fill = (values) => {
    for (const [name, cell] of cells) {
      cell.parentElement.hidden = !values[name];
      write(cell, values[name] || "");
    }
  };
  return list;
}

export function stateMark(state) { return el("span", { class: `state ${state}` }, state); }

// A code with a button that copies it.
export function code(id, label, text) {
  const copy = el("button", { type: "button", class: "copy", "data-of": id, "aria-label": `Copy ${label}` }, "Copy");
  return el("div", { class: "code" },
    el("p", { class: "bar" }, copy),
    el("pre", { id, tabindex: "0", "aria-label": label, role: "region" }, text));
}
