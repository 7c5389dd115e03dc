// The picture of the cluster, as the server describes it, and the pods of each node.

const KEPT = 3600; // seconds of prices and lines
const MOST_LINES = 300;

export class Model {
  constructor() {
    this.nodes = new Map();
    this.pods = new Map();
    this.podsOf = new Map();
  }

  // Begin with a whole picture. Everything in it has changed.
  begin(picture) {
    this.nodes.clear();
    this.pods.clear();
    this.podsOf.clear();
    Object.assign(this, { cluster: picture.cluster, plan: null, without: [], log: [], prices: [], recorded: [], warnings: [], problem: "" });
    return this.apply(picture);
  }

  // Apply a change. Return which nodes differ, which have come, and which have gone.
  apply(change) {
    const nodes = new Set(), come = [], gone = [];
    this.at = change.at;
    for (const [name, node] of Object.entries(change.nodes ?? {})) {
      nodes.add(name);
      if (node === null) {
        gone.push(name);
        this.nodes.delete(name);
      } else {
        if (!this.nodes.has(name)) come.push(name);
        this.nodes.set(name, node);
      }
    }
    for (const [name, pod] of Object.entries(change.pods ?? {})) {
      const before = this.pods.get(name);
      if (before) {
        this.podsOf.get(before[0]).delete(name);
        nodes.add(before[0]);
      }
      if (pod === null) {
        this.pods.delete(name);
        continue;
      }
      this.pods.set(name, pod);
      if (!this.podsOf.has(pod[0])) this.podsOf.set(pod[0], new Map());
      this.podsOf.get(pod[0]).set(name, pod);
      nodes.add(pod[0]);
    }
    for (const one of ["totals", "plan", "without", "recorded", "warnings", "problem"]) {
      if (change[one] !== undefined) this[one] = change[one];
    }
    const lines = [...this.log, ...(change.log ?? [])].slice(-MOST_LINES);
    const recent = lines.findIndex((line) => line.at >= this.at - KEPT);
    this.log = recent < 0 ? [] : lines.slice(recent);
    this.prices = [...this.prices, ...(change.prices ?? [])].filter(([at]) => at >= this.at - KEPT);
    return { nodes, come, gone, plan: change.plan !== undefined, log: Boolean(change.log?.length) };
  }
}

// The prices of the last day: those that the functions recorded, and from when this page has its own.
export const pricesOf = ({ recorded, prices }) => {
  const first = prices[0]?.[0] ?? Infinity;
  return [...recorded.filter(([at]) => at < first), ...prices];
};

// A recording: the first picture, and the changes with their times.
export class Recording {
  constructor(text) {
    const [first, ...changes] = text.trimEnd().split("\n").map((line) => JSON.parse(line));
    this.first = first.picture;
    this.changes = changes;
    this.next = 0;
  }

  get begins() {
    return this.first.at;
  }

  get ends() {
    return this.changes.at(-1)?.at ?? this.first.at;
  }

  // Bring a model to a time. Return the changes that were applied, or null if it began again.
  moveTo(model, time) {
    let again = false;
    if (!model.at || model.at > time) {
      model.begin(this.first);
      this.next = 0;
      again = true;
    }
    const applied = [];
    while (this.next < this.changes.length && this.changes[this.next].at <= time) {
      applied.push(model.apply(this.changes[this.next]));
      this.next += 1;
    }
    return again ? null : applied;
  }
}
