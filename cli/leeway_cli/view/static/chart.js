// The price over time, as steps.

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
  const most = Math.max(...prices.map(([, price]) => price), 1e-6) * 1.1;
  const x = (at) => LEFT + ((at - first) / Math.max(last - first, 1)) * (width - LEFT - 8);
  const y = (price) => HEIGHT - BOTTOM - (price / most) * (HEIGHT - BOTTOM - TOP);
  let line = "", before;
  for (const [at, price] of prices) {
    if (before === undefined) line = `M${x(at).toFixed(1)} ${y(price).toFixed(1)}`;
    else if (price !== before) line += `H${x(at).toFixed(1)}V${y(price).toFixed(1)}`;
    before = price;
  }
  line += `H${x(last).toFixed(1)}`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", prices.length ? `USD per hour from ${time(first)} to ${time(last)} UTC: ${prices[0][1].toFixed(4)} at first, ${before.toFixed(4)} now.` : "No price was read.");
  for (const part of [0, 0.5, 1]) {
    const price = (most / 1.1) * part;
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(price), y2: y(price) }));
    svg.append(shape("text", { x: LEFT - 6, y: y(price) + 4, "text-anchor": "end" }, price.toFixed(2)));
  }
  if (prices.length) {
    svg.append(shape("path", { class: "area price", d: `${line}V${y(0)}H${LEFT}Z` }), shape("path", { class: "line price", d: line }));
    svg.append(shape("text", { x: LEFT, y: HEIGHT - 6 }, time(first)));
    svg.append(shape("text", { x: width - 8, y: HEIGHT - 6, "text-anchor": "end" }, time(last)));
  }
  figure.replaceChildren(svg);
};
