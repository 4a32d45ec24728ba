// A trial's curves as panels in plotly's terms; colours are names of the style.

import { CHARTS, METRICS } from "./metrics.js";
import { value } from "./words.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const FEW = 30; // reports, of which each is worth a mark

// The panels of which there is something to draw, from the rows of `metrics`.
export function curves(rows) {
  return Object.keys(CHARTS).map((name) => panel(name, rows)).filter(({ figure }) => figure.data.length);
}

function panel(chart, rows) {
  const { title, axis, factor } = CHARTS[chart];
  const drawn = Object.entries(METRICS).filter(([column, { curve }]) =>
    curve && curve[0] === chart && rows.some((row) => typeof row[column] === "number"));
  const data = drawn.map(([column, { curve }], at) => line(rows, column, curve[1], factor, at % DASHES.length));
  const last = data.map(({ name, y }) => `${name} ${value(y.findLast((each) => each !== null))}`).join(", ");
  const layout = {
    height: 290, hovermode: "x unified", margin: { l: 48, r: 8, t: 60, b: 44 }, // the tools fit above the legend
    xaxis: { title: { text: "step" }, rangemode: "tozero" },
    yaxis: { title: { text: axis }, rangemode: "tozero", hoverformat: ".4~g" },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
  };
  return { id: `trial-${chart}`, title, note: `${title} by step; at last: ${last}`, figure: { data, layout } };
}

function line(rows, column, name, factor, at) {
  const color = `var(--series-${at + 1})`;
  return {
    type: "scatter", mode: rows.length < FEW ? "lines+markers" : "lines", name,
    x: rows.map((row) => row.step),
    y: rows.map((row) => (typeof row[column] === "number" ? factor * row[column] : null)),
    line: { color, width: 2, dash: DASHES[at] }, marker: { color, size: 4 },
  };
}
