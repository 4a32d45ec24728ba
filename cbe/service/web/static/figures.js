// Figures as the report draws them; plotly is fetched by the first view that wants one.

let loading = null;
function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/assets/plotly.min.js";
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error("The figures cannot be drawn: their library could not be fetched. Reload to try again."));
    });
    document.head.append(script);
  });
  return loading;
}

// Draws panels, of those that are there already only what has changed.
export function panels(clicked) {
  const { show } = globalThis.cbePage.figures({ clicked, zoom: true });
  let drawn = new Map();
  return async (wanted) => {
    if (!wanted.length) return;
    await plotly();
    const texts = new Map(wanted.map((panel) => [panel.id, JSON.stringify(panel.figure)]));
    const changed = wanted.filter(({ id }) => {
      const fresh = !document.getElementById(id).classList.contains("js-plotly-plot");
      return fresh || texts.get(id) !== drawn.get(id);
    });
    drawn = texts;
    await show(wanted, changed);
    document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // plotly measures by it
  };
}
