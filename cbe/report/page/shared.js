"use strict";
// What the report in a file and the service's page have in common: theme, figures, copying, the table of trials.
globalThis.cbePage = (() => {
  const root = document.documentElement;
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Theme. A page from a file may have no storage; then the choice lasts as long as the page.
  const THEMES = ["auto", "light", "dark"];
  const KEY = "cbe-theme";
  const kept = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* lasts as long as the page */ } };
  let theme = THEMES.includes(kept()) ? kept() : "auto";
  const heeding = []; // called when colours change
  dress(); // before anything is seen

  function dress() { if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme; }
  function after(now) { return THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]; }
  function wear(chosen, button) {
    theme = chosen;
    dress();
    button.textContent = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}. Switch to ${after(theme)}`);
  }
  function theming(button) {
    wear(theme, button);
    button.addEventListener("click", () => {
      wear(after(theme), button);
      keep(theme);
      for (const each of heeding) each();
    });
    dark.addEventListener("change", () => { if (theme === "auto") for (const each of heeding) each(); });
  }

  // Figures name colours of the style, as var(--chosen); plotly wants the colours themselves.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  function palette() {
    const known = new Map();
    return (name) => {
      if (!known.has(name)) {
        probe.style.color = name;
        known.set(name, getComputedStyle(probe).color);
      }
      return known.get(name);
    };
  }
  function coloured(value, colour) {
    if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
    if (Array.isArray(value)) return value.map((each) => coloured(each, colour));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, coloured(each, colour)]));
  }
  function template(colour) {
    const ink = colour("var(--ink)"), soft = colour("var(--soft)"), rule = colour("var(--rule)");
    const axis = {
      color: soft, gridcolor: rule, linecolor: rule, zerolinecolor: rule, zeroline: false, automargin: true,
      title: { font: { size: 13, color: soft }, standoff: 10 }, tickfont: { size: 12, color: soft },
      ticks: "", ticklabelstandoff: 5,
    };
    return {
      layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        colorway: [1, 2, 3, 4, 5, 6].map((n) => colour(`var(--series-${n})`)),
        margin: { l: 48, r: 16, t: 28, b: 44 },
        xaxis: axis, yaxis: axis,
        coloraxis: { colorbar: { outlinewidth: 0, tickfont: { color: soft } } },
        legend: { font: { color: soft, size: 13 } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: colour("var(--accent)") },
        hoverlabel: {
          bgcolor: colour("var(--surface)"), bordercolor: rule, align: "left",
          font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 12 },
        },
        annotationdefaults: { font: { color: soft } },
      },
    };
  }

  // Small multiples take as many columns as there is room for.
  function fitted(layout, width) {
    const { cells, width: least, height, between, beside = 0, most } = layout.meta || {};
    if (!cells) return {};
    const columns = Math.max(1, Math.min(cells, most || 4, Math.floor(width / least)));
    const rows = Math.ceil(cells / columns);
    const gap = Math.min(beside ? 0.55 : 0.3, (80 + beside) / (width / columns));
    const scale = layout.coloraxis ? { coloraxis: { ...layout.coloraxis, showscale: width > 600 } } : {};
    if (between) { // square cells: as high as they are wide, and as far apart as ticks and titles need
      const side = ((width - beside - (width > 600 ? 130 : 80)) * (1 - gap)) / (columns - gap);
      const grid = { ...layout.grid, rows, columns, xgap: gap, ygap: between / (side + between) };
      return { grid, height: rows * side + (rows - 1) * between + 110, ...scale };
    }
    return { grid: { ...layout.grid, rows, columns, xgap: gap, ygap: 0.34 }, height: rows * height + 50, ...scale };
  }
  const OPTIONS = {
    displaylogo: false, responsive: true, displayModeBar: "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    showSendToCloud: false, // results stay here
  };
  // What scrolls sideways can be scrolled by the keyboard, too; what does not is no stop on its way.
  function reachable() {
    for (const frame of document.querySelectorAll(".frame")) {
      const scrolls = frame.scrollWidth > frame.clientWidth;
      const heading = frame.closest(".panel").querySelector("h3").textContent;
      const wanted = { tabindex: "0", role: "region", "aria-label": `${heading}: scrolls sideways` };
      for (const [name, value] of Object.entries(wanted)) {
        if (scrolls) frame.setAttribute(name, value); else frame.removeAttribute(name);
      }
    }
    for (const each of document.querySelectorAll(".scroll")) {
      const sideways = each.scrollWidth > each.clientWidth + 1;
      const down = each.scrollHeight > each.clientHeight + 1;
      if (sideways || down) each.dataset.scrolls = sideways && down ? "both" : sideways ? "sideways" : "down";
      else delete each.dataset.scrolls;
    }
  }
  reachable();
  window.addEventListener("resize", reachable);

  // The figures of a page. `clicked` is told the trial of a mark; `zoom` keeps what a reader has zoomed into.
  let underWay = 0;
  function figures({ clicked = () => {}, zoom = false } = {}) {
    let panels = [];
    let drawing = Promise.resolve();

    function draw(panel) {
      const place = document.getElementById(panel.id);
      const { least } = panel.figure.layout.meta || {};
      if (least) place.style.minWidth = `${Math.min(least, 1100)}px`;
      const colour = palette();
      const figure = coloured(panel.figure, colour);
      const width = place.clientWidth;
      const layout = { ...figure.layout, ...fitted(figure.layout, width), template: template(colour), autosize: true };
      if (zoom) layout.uirevision = panel.id;
      const first = !place.classList.contains("js-plotly-plot");
      return Plotly.react(place, figure.data, layout, OPTIONS).then(() => {
        place.dataset.theme = dark.matches && theme === "auto" ? "dark" : theme;
        place.dataset.width = width;
        for (const each of place.querySelectorAll(".modebar-btn")) each.tabIndex = -1; // seen under a pointer alone
        if (first) place.on("plotly_click", ({ points }) => clicked(points[0].customdata));
      });
    }
    async function drawAll(wanted) {
      root.dataset.drawn = "no";
      underWay += 1;
      const faults = [];
      for (const panel of wanted) {
        try { await draw(panel); } catch (fault) { faults.push(fault); } // the others are still worth seeing
        await new Promise((resume) => setTimeout(resume)); // the page stays answerable
      }
      reachable();
      underWay -= 1;
      if (faults.length) throw faults[0];
      if (!underWay) root.dataset.drawn = "yes";
    }
    function again(wanted) {
      drawing = drawing.catch(() => {}).then(() => drawAll(wanted || panels));
      return drawing;
    }

    heeding.push(() => again());
    let waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        const moved = panels.some(({ id }) => {
          const place = document.getElementById(id);
          return place && String(place.clientWidth) !== place.dataset.width;
        });
        if (moved) again();
      }, 150);
    });
    return { show(all, changed) { panels = all; return again(changed); } };
  }

  // Copying. A page from a file may not write to the clipboard; then the text is selected for Ctrl-C.
  async function copy(pressed) {
    const source = document.getElementById(pressed.dataset.of);
    const say = (text) => {
      pressed.textContent = text;
      setTimeout(() => { pressed.textContent = "Copy"; }, 2500);
    };
    try {
      await navigator.clipboard.writeText(source.textContent);
      return say("Copied");
    } catch { /* the older way */ }
    getSelection().selectAllChildren(source);
    let done = false;
    try { done = document.execCommand("copy"); } catch { /* selected, at least */ }
    say(done ? "Copied" : "Selected: press Ctrl-C");
  }
  function copying() {
    document.addEventListener("click", (event) => {
      const pressed = event.target.closest(".copy");
      if (pressed) copy(pressed);
    });
  }

  // The table of trials: sorted by a click on a head, sifted by the filter. `refresh` after its lines have changed.
  function plain(text) { return text.toLowerCase().replace(/\s+/g, " ").trim(); }
  function trialTable(table, filter, shown) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    let lines = [];
    let texts = new Map();

    function order(column, way) {
      const sign = way === "ascending" ? 1 : -1;
      const numeric = heads[column].classList.contains("number");
      const value = (line) => {
        const cell = line.cells[column];
        if (!numeric) return cell.textContent.trim() || null;
        return "by" in cell.dataset ? Number(cell.dataset.by) : null;
      };
      const keyed = lines.map((line) => [value(line), line]);
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null); // what has none comes last
        return sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
      });
      if (keyed.some(([, line], at) => body.rows[at] !== line)) body.append(...keyed.map(([, line]) => line));
    }
    function sort(column) {
      const head = heads[column];
      const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", way);
      order(column, way);
    }
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sort(column)));

    function sift() {
      const words = filter.value.split(",").map(plain);
      let count = 0;
      for (const line of lines) {
        line.hidden = !words.every((word) => texts.get(line).includes(word));
        count += !line.hidden;
      }
      shown.textContent = `${count} of ${lines.length}`;
    }
    filter.addEventListener("input", sift);

    function refresh() {
      lines = [...body.rows];
      texts = new Map(lines.map((line) => [line, plain(line.textContent)]));
      const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
      if (column >= 0) order(column, heads[column].getAttribute("aria-sort"));
      sift();
    }
    function mark(trial) {
      const line = lines.find((each) => each.dataset.trial === trial);
      if (!line) return;
      for (const each of body.querySelectorAll(".marked")) each.classList.remove("marked");
      filter.value = "";
      sift();
      line.classList.add("marked");
      line.scrollIntoView({ block: "center", behavior: calm.matches ? "auto" : "smooth" });
    }
    refresh();
    return { refresh, mark };
  }

  const isDark = () => (theme === "auto" ? dark.matches : theme === "dark");
  return { theming, isDark, whenThemed: (act) => heeding.push(act), figures, copying, trialTable, reachable };
})();
