// The price over time, as steps. A price of null begins a gap.

import { time } from "./words.js";

const [HEIGHT, LEFT, BOTTOM, TOP] = [170, 52, 22, 12];

const shape = (tag, attributes, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
};

export const chart = (figure, prices, width) => {
  const first = prices[0]?.[0] ?? 0, last = prices.at(-1)?.[0] ?? 0;
  const most = Math.max(...prices.map(([, price]) => price ?? 0), 1e-6) * 1.1;
  const x = (at) => LEFT + ((at - first) / Math.max(last - first, 1)) * (width - LEFT - 8);
  const y = (price) => HEIGHT - BOTTOM - (price / most) * (HEIGHT - BOTTOM - TOP);
  const known = prices.filter(([, price]) => price !== null);
  const lines = []; // of each time without a gap: where it begins, its steps
  let line = null, before;
  for (const [at, price] of prices) {
    if (price === null) {
      if (line) line.steps += `H${x(at).toFixed(1)}`;
      line = null;
    } else if (!line) lines.push((line = { from: x(at), steps: `M${x(at).toFixed(1)} ${y(price).toFixed(1)}` }));
    else if (price !== before) line.steps += `H${x(at).toFixed(1)}V${y(price).toFixed(1)}`;
    before = price;
  }
  if (line) line.steps += `H${x(last).toFixed(1)}`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", known.length ? `USD per hour from ${time(first)} to ${time(last)} UTC: ${known[0][1].toFixed(4)} at first, ${known.at(-1)[1].toFixed(4)} ${prices.at(-1)[1] === null ? "when it was last known" : "now"}.` : "No price was read.");
  for (const part of [0, 0.5, 1]) {
    const price = (most / 1.1) * part;
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(price), y2: y(price) }));
    svg.append(shape("text", { x: LEFT - 6, y: y(price) + 4, "text-anchor": "end" }, price.toFixed(2)));
  }
  for (const { from, steps } of lines) {
    svg.append(shape("path", { class: "area price", d: `${steps}V${y(0)}H${from.toFixed(1)}Z` }), shape("path", { class: "line price", d: steps }));
  }
  if (known.length) {
    svg.append(shape("text", { x: LEFT, y: HEIGHT - 6 }, time(first)));
    svg.append(shape("text", { x: width - 8, y: HEIGHT - 6, "text-anchor": "end" }, time(last)));
  }
  figure.replaceChildren(svg);
};
