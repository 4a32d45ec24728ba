// A trial's curves as panels in plotly's terms; colours are names of the style.

import { value } from "./words.js";

const CURVES = [
  {
    id: "trial-errors", title: "Error", axis: "error, %", factor: 100,
    columns: { validation_error: "validation", test_error: "test*" },
  },
  {
    id: "trial-losses", title: "Loss", axis: "loss", factor: 1,
    columns: {
      loss: "whole", loss_labeled: "labeled", loss_unlabeled: "unlabeled", loss_lb: "lb", loss_lv: "lv",
      validation_loss: "validation",
    },
  },
  {
    id: "trial-pseudo", title: "Pseudo-labels", axis: "%", factor: 100,
    columns: {
      pseudo_accuracy: "accuracy", sampling_rate: "sampling rate",
      sampling_rate_ensemble: "sampling rate of the ensemble",
    },
  },
  {
    id: "trial-heads", title: "Heads", axis: "", factor: 1,
    columns: {
      head_correlation: "correlation", head_disagreement: "disagreement",
      variance_ensemble: "variance of the ensemble", variance_heads: "mean variance of the heads",
    },
  },
];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const FEW = 30; // reports, of which each is worth a mark

// The panels of which there is something to draw, from the rows of `metrics`.
export function curves(rows) {
  return CURVES.map((about) => panel(about, rows)).filter(({ figure }) => figure.data.length);
}

function panel({ id, title, axis, factor, columns }, rows) {
  const drawn = Object.entries(columns).filter(([column]) => rows.some((row) => typeof row[column] === "number"));
  const data = drawn.map(([column, name], at) => line(rows, column, name, factor, at));
  const last = data.map(({ name, y }) => `${name} ${value(y.findLast((each) => each !== null))}`).join(", ");
  const layout = {
    height: 290, hovermode: "x unified", margin: { l: 48, r: 8, t: 60, b: 44 }, // the tools fit above the legend
    xaxis: { title: { text: "step" }, rangemode: "tozero" },
    yaxis: { title: { text: axis }, rangemode: "tozero", hoverformat: ".4~g" },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
  };
  return { id, title, note: `${title} by step; at last: ${last}`, figure: { data, layout } };
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
