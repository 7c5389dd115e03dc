// The page: reads the updates of the server, or plays a recording, and shows what has changed.

import { Boxes, make } from "./boxes.js";
import { chart } from "./chart.js";
import { Model, Recording, pricesOf } from "./model.js";
import { clock, counted, cpu, memory, month, next, percent, time } from "./words.js";

const SAID_EVERY = 15000; // milliseconds between two sentences for screen readers
const MOST_FATES = 40;
const MOST_PODS = 300;
const SOON = new Set(["retires", "starting", "notReady"]);

const by = (id) => document.getElementById(id);
const text = (element, words) => {
  if (element.textContent !== words) element.textContent = words;
};

const model = new Model();
const longest = new Map(); // by node: the seconds to its deadline when it was seen first
let now = () => Date.now() / 1000;
let shown; // the node in the dialog

const boxes = new Boxes(by("pools"), (name) => {
  shown = name;
  detail();
  by("detail").showModal();
});

const totals = () => {
  const sums = model.totals;
  text(by("total-nodes"), sums.nodes.toLocaleString("en"));
  text(by("total-pods"), sums.pods.toLocaleString("en"));
  text(by("more-pods"), sums.waiting ? `${counted(sums.waiting, "pod waits", "pods wait")} for a node` : "no pod waits for a node");
  text(by("total-requested"), percent(sums.cpu));
  text(by("more-requested"), `memory ${percent(sums.memory)}`);
  const known = sums.withoutPrice < sums.nodes || !sums.nodes;
  text(by("total-price"), known ? sums.price.toFixed(4) : "–");
  text(by("unit-price"), known ? "USD/h" : "");
  const unknown = sums.withoutPrice ? `, without ${counted(sums.withoutPrice, "node")} of unknown price` : "";
  text(by("more-price"), known ? `${month(sums.price)} a month${unknown}` : "no price is known");
  text(by("total-saving"), sums.saving === null ? "–" : sums.saving.toFixed(4));
  text(by("unit-saving"), sums.saving === null ? "" : "USD/h");
  text(by("more-saving"), sums.saving === null ? "nothing is planned" : `${month(sums.saving)} a month${sums.complete === false ? ", or more" : ""}`);
  const names = [...(model.podsOf.get("")?.keys() ?? [])];
  const more = names.length > 5 ? ` and ${names.length - 5} more` : "";
  by("waiting").hidden = !names.length;
  const why = model.without.map((one) => `${counted(one.count, "pod")}, such as ${one.some[0]}: ${one.code}: ${one.reason}`);
  text(by("waiting"), names.length ? [`Without a node: ${names.slice(0, 5).join(", ")}${more}`, ...why].join("\n") : "");
};

// The nodes that retire, start or are not ready. The rows stay, so that focus does.
const fateRows = new Map();
const fates = () => {
  const soon = [...model.nodes].filter(([, node]) => SOON.has(node.fate));
  const order = (node) => (node.fate === "retires" ? 0 : 1e12) + (node.clockAt ?? 0);
  soon.sort(([, a], [, b]) => order(a) - order(b));
  const names = new Set(soon.slice(0, MOST_FATES).map(([name]) => name));
  for (const [name, row] of fateRows) {
    if (!names.has(name)) {
      row.item.remove();
      fateRows.delete(name);
    }
  }
  let last = null;
  for (const name of names) {
    const node = model.nodes.get(name);
    let row = fateRows.get(name);
    if (!row) {
      row = { item: make("li"), jump: make("button", "", name), when: make("span"), more: make("small"), track: make("div", "track") };
      row.jump.type = "button";
      row.jump.addEventListener("click", () => boxes.focus(name));
      row.track.append(make("i"));
      row.item.append(row.jump, row.when, row.more, row.track);
      fateRows.set(name, row);
    }
    text(row.more, [node.owner, node.instanceType, counted(node.pods[0], "pod")].filter(Boolean).join(", "));
    const place = last ? last.nextSibling : by("fates").firstChild;
    if (place !== row.item) by("fates").insertBefore(row.item, place);
    last = row.item;
  }
  const more = soon.length - names.size;
  by("fates").querySelector(".more")?.remove();
  if (!soon.length || more > 0) {
    by("fates").append(make("li", "more", soon.length ? `and ${more} more` : "No node retires or starts."));
  }
  ticking();
};

const ticking = () => {
  const moment = now();
  boxes.tick(moment);
  for (const [name, row] of fateRows) {
    const node = model.nodes.get(name);
    if (!node) continue;
    text(row.when, next(node, moment));
    const retires = node.fate === "retires" && node.clockAt !== undefined;
    row.track.hidden = !retires;
    if (!retires) continue;
    const left = Math.max(0, node.clockAt - moment);
    longest.set(name, Math.max(longest.get(name) ?? 1, left));
    row.track.firstChild.style.transform = `scaleX(${(left / longest.get(name)).toFixed(3)})`;
  }
};

const plan = () => {
  const rows = (model.plan ?? []).map((step) => {
    const row = make("li");
    const when = step.at === null ? "now" : `at ${time(step.at).slice(0, 5)} UTC`;
    const moved = step.pods ? `, ${counted(step.pods, "pod moves", "pods move")}` : "";
    const launched = step.launches.length ? `, launches ${step.launches.join(", ")}` : "";
    const money = `${step.saving < 0 ? "costs" : "saves"} ${Math.abs(step.saving).toFixed(4)} USD per hour`;
    row.append(make("b", "", `${when}: ${step.nodes.join(", ")}`), make("small", "", `${step.cause}: ${money}${moved}${launched}`));
    row.append(make("span", "", `${step.code}: ${step.reason}`));
    return row;
  });
  const none = model.plan ? "Nothing can be given back." : "Nothing is planned: no pool is known. See --cluster and -f.";
  by("plan").replaceChildren(...(rows.length ? rows : [make("li", "", none)]));
};

// The newest decision comes first. One that is repeated is one row.
let logged; // how many lines are shown
const log = () => {
  const rows = new Map();
  for (const line of model.log) {
    const key = JSON.stringify([line.function, line.level, line.code, line.about, line.message]);
    const { times = 0, since = line.at } = rows.get(key) ?? {};
    rows.delete(key);
    rows.set(key, { line, times: times + 1, since });
  }
  const made = [...rows.values()].reverse().map(({ line, times, since }) => {
    const row = make("li", line.level.toLowerCase());
    const repeated = times > 1 && `${times} times since ${time(since)}`;
    const head = [time(line.at), line.function, line.level, line.code, line.about, repeated].filter(Boolean);
    row.append(make("small", "", head.join("  ")), make("span", "", line.message));
    return row;
  });
  const none = make("li", "", "No decision in the last hour, or no log of a deployment.");
  by("log").replaceChildren(...(made.length ? made : [none]));
  logged = model.log.length;
};

const detail = () => {
  const node = model.nodes.get(shown);
  const dialog = by("detail");
  text(by("detail-title"), node ? shown : `${shown} has gone`);
  if (!node) return;
  const pods = model.podsOf.get(shown) ?? new Map();
  const step = model.plan?.find((one) => one.nodes.includes(shown));
  const facts = {
    Owner: node.owner,
    Type: [node.instanceType, node.capacityType, node.zone].filter(Boolean).join(", "),
    Instance: node.instance,
    Ready: node.ready ? "yes" : "no",
    CPU: `${cpu(node.cpu[0])} of ${cpu(node.cpu[1])}`,
    Memory: `${memory(node.memory[0])} of ${memory(node.memory[1])}`,
    GPUs: node.gpus?.[1] ? `${node.gpus[0]} of ${node.gpus[1]}` : "",
    Price: node.price === undefined ? "not known" : `${node.price.toFixed(4)} USD per hour, ${month(node.price)} a month`,
    Age: clock(now() - node.createdAt),
    Next: next(node, now()),
    Reason: step ? `${step.code}: ${step.reason}` : "",
  };
  const rows = Object.entries(facts).filter(([, value]) => value);
  dialog.querySelector("dl").replaceChildren(...rows.flatMap(([key, value]) => [make("dt", "", key), make("dd", "", value)]));
  const others = node.others ? `, and ${node.others} of DaemonSets and static ones` : "";
  text(dialog.querySelector("h3"), `${counted(pods.size, "pod")}${others}`);
  const items = [...pods].sort().slice(0, MOST_PODS).map(([name, pod]) => {
    const item = make("li");
    item.append(make("span", "", name), make("small", "", `${cpu(pod[1])}, ${memory(pod[2])}`));
    return item;
  });
  dialog.querySelector(".pods").replaceChildren(...items);
};

// Sentences for screen readers: what has happened, and not more often than they can be read.
let heard = 0, waiting, come = 0, gone = 0, retire = new Set();
const say = (touched) => {
  const retires = new Set([...model.nodes].filter(([, node]) => node.fate === "retires").map(([name]) => name));
  const begun = [...retires].filter((name) => !retire.has(name)).length;
  retire = retires;
  if (touched) [come, gone] = [come + touched.come.length, gone + touched.gone.length];
  say.begun = (say.begun ?? 0) + (touched ? begun : 0);
  if (!(come || gone || say.begun) || waiting) return;
  waiting = setTimeout(() => {
    const parts = [
      say.begun && counted(say.begun, "node retires", "nodes retire"),
      come && counted(come, "node was launched", "nodes were launched"),
      gone && counted(gone, "node has gone", "nodes have gone"),
    ];
    text(by("said"), `${parts.filter(Boolean).join(", ")}. ${counted(model.totals.nodes, "node")} now.`);
    [heard, waiting, come, gone, say.begun] = [Date.now(), undefined, 0, 0, 0];
  }, Math.max(0, heard + SAID_EVERY - Date.now()));
};

const problem = () => {
  by("problem").hidden = !model.problem;
  text(by("problem").querySelector("p"), model.problem);
  by("warnings").hidden = !model.warnings.length;
  text(by("warnings").querySelector("summary"), counted(model.warnings.length, "warning"));
  by("warnings").querySelector("ul").replaceChildren(...model.warnings.map((one) => make("li", "", one)));
};

let wide = 600; // pixels of the chart
const drawPrices = () => chart(by("price"), pricesOf(model), wide);
new ResizeObserver(([figure]) => {
  wide = Math.max(200, Math.round(figure.contentRect.width));
  if (model.at) drawPrices();
}).observe(by("price"));

const state = (words, stale) => {
  document.body.classList.toggle("stale", stale);
  text(by("state"), words);
};

// Show what was touched; without it, everything.
const show = (touched) => {
  const began = performance.now();
  if (!touched) {
    boxes.clear();
    const name = model.cluster ? `Cluster ${model.cluster}` : "The cluster";
    document.title = `Leeway: ${name}`;
    text(by("cluster"), name);
  }
  boxes.update(model, touched ? touched.nodes : new Set(model.nodes.keys()), now());
  totals();
  fates();
  drawPrices();
  if (!touched || touched.plan) plan();
  if (!touched || touched.log || logged !== model.log.length) log();
  problem();
  if (by("detail").open) detail();
  say(touched);
  performance.measure("show", { start: began });
  if (!touched) requestAnimationFrame(() => document.body.classList.add("moving"));
};

// What several changes have touched.
const together = (all) => ({
  nodes: new Set(all.flatMap((one) => [...one.nodes])),
  come: all.flatMap((one) => one.come),
  gone: all.flatMap((one) => one.gone),
  plan: all.some((one) => one.plan),
  log: all.some((one) => one.log),
});

const follow = () => {
  const source = new EventSource("events");
  const longest = Math.max(4 * Number(document.body.dataset.every), 30) * 1000; // without an update
  let proven = false; // whether the server of this connection is the one that sent this page
  let heard = performance.now(), lost = ""; // the time of the last update, and what is said when none comes
  // A live region says it once: words that change each second would be read without an end.
  const lose = (words, said = words) => {
    if (!lost) text(by("said"), said);
    lost = words;
    state(words, true);
  };
  const silence = () => {
    const silent = performance.now() - heard;
    if (silent < longest) return;
    const words = `No answer for ${clock(silent / 1000)}: a read takes long, or hangs.`;
    lose(`${words}${model.at ? ` Shown as of ${time(model.at)} UTC.` : ""}`, words);
  };
  const read = (event, whole) => {
    const data = JSON.parse(event.data);
    if (whole) proven = data.proof === document.body.dataset.proof;
    if (!proven) {
      source.close();
      heard = Infinity;
      lose("The command has ended, and another program answers at its address. Close this page.");
      return;
    }
    heard = performance.now() - (data.age ?? 0) * 1000; // the first picture may be an old one
    show(whole ? void model.begin(data) : model.apply(data));
    if (performance.now() - heard >= longest) {
      silence();
      return;
    }
    if (lost) text(by("said"), "The page is live again.");
    lost = "";
    state(`${model.problem ? "Shown since the last read that succeeded. Tried" : "Live. Read"} at ${time(model.at)} UTC.`, Boolean(model.problem));
  };
  source.addEventListener("picture", (event) => read(event, true));
  source.addEventListener("change", (event) => read(event, false));
  source.addEventListener("open", () => {
    proven = false;
    heard = performance.now();
  });
  source.addEventListener("error", () => {
    proven = false;
    heard = Infinity;
    lose(`No connection: the command has ended, or is not reached.${model.at ? ` Shown as of ${time(model.at)} UTC.` : ""}`);
  });
  setInterval(() => {
    ticking();
    silence();
  }, 1000);
};

const play = async () => {
  const recording = new Recording(await (await fetch("recording")).text());
  const [button, moment, speed] = [by("play"), by("moment"), by("speed")];
  let at = recording.begins, playing = false, last;
  now = () => at;
  moment.min = Math.floor(recording.begins);
  moment.max = Math.ceil(recording.ends);
  const move = (to) => {
    at = Math.min(Math.max(to, recording.begins), recording.ends);
    const applied = recording.moveTo(model, at);
    if (applied === null) show();
    else if (applied.length) show(together(applied));
    else ticking();
    moment.value = Math.round(at);
    moment.setAttribute("aria-valuetext", `${time(at)} UTC`);
    state(`Recording, at ${time(at)} UTC, of ${time(recording.begins)} to ${time(recording.ends)}.`, false);
  };
  const run = (on) => {
    playing = on;
    last = performance.now();
    text(button, on ? "Pause" : "Play");
  };
  button.addEventListener("click", () => {
    if (!playing && at >= recording.ends) move(recording.begins);
    run(!playing);
  });
  moment.addEventListener("input", () => move(Number(moment.value)));
  setInterval(() => {
    if (!playing) return;
    const passed = ((performance.now() - last) / 1000) * Number(speed.value);
    last = performance.now();
    move(at + passed);
    if (at >= recording.ends) run(false);
  }, 250);
  move(recording.begins);
};

if (document.body.dataset.live === "yes") follow();
else play();
