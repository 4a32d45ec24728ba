// The service: requests with the token in a header, and events that come back after every loss.

const KEY = "cbe-token";
const SILENT_MS = 60000; // the service says something at least every few seconds
const HIDDEN_MS = 5000;
const LONGEST_MS = 15000;

let memory = null; // where there is no storage
let refused = () => {};

export const token = {
  get() { try { return sessionStorage.getItem(KEY); } catch { return memory; } },
  set(value) {
    memory = value;
    try {
      if (value) sessionStorage.setItem(KEY, value);
      else sessionStorage.removeItem(KEY);
    } catch { /* in memory, then */ }
  },
  // And with it all that its holder has left in this tab.
  forget() {
    memory = null;
    try { sessionStorage.clear(); } catch { /* was in memory */ }
  },
};

// What is called where a token is wanted.
export function whenRefused(call) { refused = call; }

export class Fault extends Error {
  constructor(status, message, faults = []) {
    super(message);
    this.status = status;
    this.faults = faults;
  }
}

const PLAINLY = {
  0: "The service cannot be reached. Check the network, and try again.",
  403: "Your token does not allow this.",
  404: "There is nothing of that name.",
  409: "This cannot be done as things stand.",
  413: "The file is too large: at most 1 MB.",
  429: "Too many failed tries. Wait a minute.",
  503: "The service is not ready: its store or its cluster is away.",
};

function headers(more) {
  const held = token.get();
  return held ? { ...more, Authorization: `Bearer ${held}` } : more;
}

async function faultOf(answer) {
  let said = {};
  try { said = await answer.json(); } catch { /* not from the service itself */ }
  const message = typeof said.message === "string" && said.message
    ? said.message : PLAINLY[answer.status] || `The service answered ${answer.status} ${answer.statusText}`.trim();
  return new Fault(answer.status, message, Array.isArray(said.faults) ? said.faults : []);
}

// One request; answers with JSON, or `as` text or a blob. Throws a Fault with a text for the reader.
export async function ask(path, { method = "GET", body, type, signal, as = "json", quiet = false } = {}) {
  const sent = type || (body !== undefined ? "application/json" : null);
  let answer;
  try {
    answer = await fetch(path, {
      method, signal, cache: "no-store", credentials: "omit",
      headers: headers(sent ? { "Content-Type": sent } : {}),
      body: body === undefined ? undefined : type ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault(0, PLAINLY[0]);
  }
  if (!answer.ok) {
    const fault = await faultOf(answer);
    if (fault.status === 401 && !quiet) refused(fault);
    throw fault;
  }
  if (answer.status === 204) return null;
  return answer[as]();
}

export const studyPath = (name, rest = "") => `/api/studies/${encodeURIComponent(name)}${rest}`;

// Events of a path for as long as the page is open and seen. `heard(kind, data)` for each; `connected(text)`
// with "" when they come and with a text when they do not; `gone(fault)` where trying again would not help.
export function follow(path, { heard, connected, gone }) {
  let failures = 0;
  let stop = null;

  async function once() {
    stop = new AbortController();
    let last = setTimeout(() => stop.abort(), SILENT_MS);
    const alive = () => { clearTimeout(last); last = setTimeout(() => stop.abort(), SILENT_MS); };
    try {
      const answer = await fetch(path, {
        signal: stop.signal, cache: "no-store", credentials: "omit",
        headers: headers({ Accept: "text/event-stream" }),
      });
      if (!answer.ok) throw await faultOf(answer);
      connected("");
      for await (const [kind, data] of parsed(answer.body, alive)) {
        failures = 0;
        heard(kind, data);
      }
    } finally {
      clearTimeout(last);
      stop = null;
    }
  }

  async function forever() {
    for (;;) {
      if (document.hidden) await until("visibilitychange", () => !document.hidden);
      let why = "Connection lost, trying again.";
      try {
        await once(); // ends where the service restarts
      } catch (fault) {
        if (fault.status === 401) { refused(fault); return; }
        if ([403, 404].includes(fault.status)) { gone(fault); return; }
        if (fault.status) why = `${fault.message} Trying again.`;
        else if (!(fault instanceof Fault) && !["AbortError", "TypeError"].includes(fault.name)) console.error(fault);
      }
      if (document.hidden) continue;
      connected(why);
      await pause(Math.min(LONGEST_MS, 1000 * 2 ** failures) * (0.75 + Math.random() / 2));
      failures += 1;
    }
  }

  // A browser keeps few connections to one host: tabs that nobody sees leave theirs to the others.
  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => stop && stop.abort(), HIDDEN_MS);
  });
  forever();
}

function until(event, holds) {
  return new Promise((resume) => {
    const look = () => { if (holds()) { document.removeEventListener(event, look); resume(); } };
    document.addEventListener(event, look);
    look();
  });
}

function pause(ms) {
  return new Promise((resume) => {
    const done = () => { clearTimeout(timer); window.removeEventListener("online", done); resume(); };
    const timer = setTimeout(done, ms);
    window.addEventListener("online", done);
  });
}

// Server-sent events from a stream of bytes, as [kind, data].
async function* parsed(stream, alive) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let kind = "message";
  let lines = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest += value;
    const whole = rest.split(/\r\n|\n|\r(?!$)/);
    rest = whole.pop();
    for (const line of whole) {
      if (line === "") {
        if (lines.length) yield [kind, JSON.parse(lines.join("\n"))];
        kind = "message";
        lines = [];
      } else if (line.startsWith("data:")) lines.push(line.slice(5).replace(/^ /, ""));
      else if (line.startsWith("event:")) kind = line.slice(6).trim();
    }
  }
}
