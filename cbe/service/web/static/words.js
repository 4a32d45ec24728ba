// Numbers, times and states as a person reads them; the same words as the commands have.

import { METRICS } from "./metrics.js"; // made by the service

export const NOTHING = "–";
export const STATES = [
  "running", "starting", "stopping", "queued", "new", "finished", "stopped", "interrupted", "failed", "unreadable",
];

const known = (value) => typeof value === "number" && Number.isFinite(value);
const fixed = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export function metric(name) { return METRICS[name]?.title || name || ""; }

export function number(value) { return known(value) ? value.toLocaleString("en") : NOTHING; }

// A metric's value with its unit.
export function figure(name, value) {
  if (!known(value)) return NOTHING;
  const { sign = "", factor = 1, decimals = null } = METRICS[name] || {};
  if (sign === "s") return duration(value);
  const said = decimals === null ? String(Number((factor * value).toPrecision(4))) : fixed(factor * value, decimals);
  return sign ? `${said}\u00a0${sign}` : said;
}

// A time of whatever size in its own unit: 7 s, 3.3 min, 2.5 h.
export function duration(seconds) {
  if (!known(seconds)) return NOTHING;
  const [unit, sign] = unitOf(seconds);
  return `${fixed(seconds / unit, unit === 1 ? 0 : 1)}\u00a0${sign}`;
}

// A range of times in one unit: 3 to 7 min, about 2 min.
export function span(low, high) {
  if (!known(low) || !known(high)) return NOTHING;
  const [unit, sign] = unitOf(high);
  const [from, to] = [low, high].map((value) => fixed(Math.max(value / unit, 0), sign === "h" ? 1 : 0));
  return from === to ? `about ${to}\u00a0${sign}` : `${from} to ${to}\u00a0${sign}`;
}

export function range(found, digits = 0) {
  if (!found || !known(found.low) || !known(found.high)) return NOTHING;
  const [from, to] = [fixed(found.low, digits), fixed(found.high, digits)];
  return from === to ? to : `${from} to ${to}`;
}

function unitOf(seconds) { return seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : [3600, "h"]; }

export function usd(amount) { return known(amount) && amount > 0 ? `$${fixed(amount, 2)}` : NOTHING; }

// What a study took: money where it costs any, and hours.
export function spent(found) {
  if (!found) return [];
  const said = [];
  if (found.usd > 0) said.push(usd(found.usd));
  if (found.gpu_hours > 0) said.push(`${fixed(found.gpu_hours, 2)}\u00a0GPU\u00a0h`);
  if (!said.length && found.trial_hours > 0) said.push(`${duration(3600 * found.trial_hours)} in trials`);
  return said;
}

export function plural(count, noun) { return `${number(count)} ${noun}${count === 1 ? "" : "s"}`; }

// Whether a driver runs for a study, or is about to.
export function isActive(study) { return study.under_way && study.state !== "queued"; }

// A text as a sentence begins.
export function begun(text) { return text && text[0].toUpperCase() + text.slice(1); }

export function ordinal(place) {
  const tail = place % 100 > 10 && place % 100 < 14 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[place % 10] || "th";
  return `${place}${tail}`;
}

export function ago(time, now = Date.now()) {
  const seconds = (now - Date.parse(time)) / 1000;
  if (!Number.isFinite(seconds)) return NOTHING;
  if (seconds < 45) return "just now";
  if (seconds < 5400) return `${Math.max(1, Math.round(seconds / 60))}\u00a0min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)}\u00a0h ago`;
  return new Date(time).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

export function moment(time) {
  const found = new Date(time);
  if (!time || Number.isNaN(found.valueOf())) return NOTHING;
  return `${found.toISOString().slice(0, 19).replace("T", " ")}\u00a0UTC`;
}

// Searched values under the shortest names that tell them apart: heads 4, lb 0.123.
export function point(values) {
  const last = (key) => key.slice(key.lastIndexOf(".") + 1);
  const keys = Object.keys(values || {});
  const name = (key) => (keys.filter((other) => last(other) === last(key)).length > 1 ? key : last(key));
  return keys.map((key) => `${name(key)} ${value(values[key])}`).join(", ");
}

export function value(found) {
  if (typeof found === "number" && !Number.isInteger(found)) return String(Number(found.toPrecision(3)));
  return found !== null && typeof found === "object" ? JSON.stringify(found) : String(found);
}
