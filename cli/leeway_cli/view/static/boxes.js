// The nodes as boxes that fill with pods, by their owners. Every text is a textContent: names come
// from the cluster, and whoever runs pods chooses them.

import { counted, next, percent, share, time } from "./words.js";

const COLOURS = 9;
const MANY = 120; // nodes, from which on boxes are small

export const make = (tag, className = "", text = "") => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
};

export class Boxes {
  constructor(root, show) {
    this.root = root;
    this.show = show;
    this.pools = new Map();
    this.boxes = new Map();
    root.addEventListener("click", (event) => {
      const box = event.target.closest(".box");
      if (box) this.show(box.dataset.node);
    });
    root.addEventListener("keydown", (event) => this.move(event));
    root.addEventListener("focusin", (event) => {
      if (event.target.classList.contains("box")) this.select(event.target);
    });
  }

  clear() {
    this.root.replaceChildren();
    this.pools.clear();
    this.boxes.clear();
    this.current = undefined;
  }

  // Show the nodes with these names as the model has them.
  update(model, names, now) {
    document.body.classList.toggle("many", model.nodes.size > MANY);
    const owners = new Set([...names].map((name) => model.nodes.get(name)?.owner).filter((one) => one !== undefined));
    for (const owner of [...owners].sort()) this.pool(owner);
    for (const name of [...names].sort()) {
      const node = model.nodes.get(name);
      if (node) this.box(name, node, model.podsOf.get(name) ?? new Map(), now);
      else this.remove(name);
    }
    this.sums(model);
    if (!this.current?.isConnected) this.select(this.root.querySelector(".box"));
  }

  pool(owner) {
    if (this.pools.has(owner)) return this.pools.get(owner);
    const section = make("section", `pool k${this.pools.size % COLOURS}`);
    const title = make("h3");
    const made = { section, boxes: make("ul", "boxes"), sum: make("small") };
    title.append(make("i"), make("span", "", owner || "no known owner"), made.sum);
    section.append(title, made.boxes);
    this.pools.set(owner, made);
    this.root.append(section);
    return made;
  }

  remove(name) {
    const box = this.boxes.get(name);
    if (!box) return;
    const focused = box.button === document.activeElement;
    const other = box.item.nextElementSibling ?? box.item.previousElementSibling;
    box.item.remove();
    this.boxes.delete(name);
    if (focused && other) other.firstElementChild.focus();
  }

  box(name, node, pods, now) {
    let box = this.boxes.get(name);
    if (!box) {
      box = { item: make("li"), button: make("button"), fill: make("div", "fill"), pods: new Map(), made: 0 };
      for (const part of ["name", "kind", "shares"]) box[part] = make(part === "name" ? "b" : "span");
      box.next = make("em");
      box.button.type = "button";
      box.button.dataset.node = name;
      box.button.tabIndex = -1;
      box.name.textContent = name.split(".")[0];
      box.name.title = name;
      box.button.append(box.name, box.kind, box.fill, box.shares, box.next);
      box.item.append(box.button);
      this.boxes.set(name, box);
    }
    const { boxes } = this.pool(node.owner);
    if (box.item.parentElement !== boxes) boxes.append(box.item);
    const [cpu, memory] = [percent(share(node.cpu)), percent(share(node.memory))];
    const gpus = node.gpus?.[1] ? `, GPU ${percent(share(node.gpus))}` : "";
    const kind = [node.instanceType, node.capacityType, node.zone].filter(Boolean).join(" · ");
    box.button.className = `box ${node.fate ?? ""}`;
    box.kind.textContent = kind || "type not known";
    box.shares.textContent = `CPU ${cpu}, memory ${memory}${gpus}, ${counted(node.pods[0], "pod")}`;
    this.fill(box, node, pods);
    box.node = node;
    this.count(box, now);
    const until = node.clockAt && node.fate === "retires" ? `retires until ${time(node.clockAt)} UTC` : node.next;
    box.button.setAttribute(
      "aria-label",
      [name, kind, `CPU ${cpu}`, `memory ${memory}`, counted(node.pods[0], "pod"), until].filter(Boolean).join(", "),
    );
  }

  // Fill the box with pods. Each is as wide as its share of the resource that is requested most.
  fill(box, node, pods) {
    const byMemory = share(node.memory) > share(node.cpu);
    const [requested, allocatable] = byMemory ? node.memory : node.cpu;
    for (const [name, one] of box.pods) {
      if (!pods.has(name)) {
        one.element.remove();
        box.pods.delete(name);
      }
    }
    let named = 0;
    for (const [name, pod] of pods) {
      let one = box.pods.get(name);
      if (!one) {
        one = { element: make("i", box.made++ % 2 ? "pod" : "pod alt") };
        one.element.title = name;
        box.pods.set(name, one);
        box.fill.insertBefore(one.element, box.other ?? null);
      }
      const amount = pod[byMemory ? 2 : 1];
      widen(one, amount, allocatable);
      named += amount;
    }
    box.other ??= box.fill.appendChild(make("i"));
    box.other.className = `pod ${node.leaving ? "leaving" : "other"}`;
    box.other.title = [
      node.leaving && counted(node.leaving, "pod terminates", "pods terminate"),
      node.others && counted(node.others, "pod of DaemonSets and static ones", "pods of DaemonSets and static ones"),
    ].filter(Boolean).join(", ");
    box.other.hidden = requested <= named;
    box.rest ??= { element: box.other };
    widen(box.rest, Math.max(requested - named, 0), allocatable);
  }

  count(box, now) {
    const words = next(box.node, now);
    if (box.next.textContent !== words) box.next.textContent = words;
  }

  // Let the clocks of all boxes run.
  tick(now) {
    for (const box of this.boxes.values()) if (box.node.clockAt !== undefined) this.count(box, now);
  }

  sums(model) {
    const sums = new Map();
    for (const node of model.nodes.values()) {
      const sum = sums.get(node.owner) ?? { nodes: 0, price: 0 };
      sum.nodes += 1;
      sum.price += node.price ?? 0;
      sums.set(node.owner, sum);
    }
    for (const [owner, pool] of this.pools) {
      const { nodes, price } = sums.get(owner) ?? { nodes: 0, price: 0 };
      pool.section.hidden = !nodes;
      pool.sum.textContent = `${counted(nodes, "node")}${price ? `, ${price.toFixed(4)} USD per hour` : ""}`;
    }
  }

  select(button) {
    if (this.current) this.current.tabIndex = -1;
    this.current = button ?? undefined;
    if (button) button.tabIndex = 0;
  }

  focus(name) {
    this.boxes.get(name)?.button.focus();
  }

  move(event) {
    const from = event.target.closest?.(".box");
    const all = [...this.root.querySelectorAll(".pool:not([hidden]) .box")];
    const at = all.indexOf(from);
    if (at < 0) return;
    const to = {
      ArrowRight: () => all[at + 1],
      ArrowLeft: () => all[at - 1],
      Home: () => all[0],
      End: () => all.at(-1),
      ArrowDown: () => nearest(from, all.slice(at + 1), 1),
      ArrowUp: () => nearest(from, all.slice(0, at).reverse(), -1),
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    to.focus();
  }
}

// Make an element as wide as an amount is of what the node has. Most stay as they are.
const widen = (one, amount, allocatable) => {
  const share = allocatable ? amount / allocatable : 0;
  if (one.share === share) return;
  one.share = share;
  one.element.style.width = `${(share * 100).toFixed(2)}%`;
};

// The box in the next row that is nearest to this one.
const nearest = (from, others, direction) => {
  const here = from.getBoundingClientRect();
  let row, best, distance = Infinity;
  for (const one of others) {
    const there = one.getBoundingClientRect();
    if ((there.top - here.top) * direction <= 1) continue;
    if (row !== undefined && Math.abs(there.top - row) > 1) break;
    row ??= there.top;
    if (Math.abs(there.left - here.left) < distance) [best, distance] = [one, Math.abs(there.left - here.left)];
  }
  return best;
};
