// The last ten minutes. What did not change between two snapshots is kept once.

const kept = 600_000; // ms
const keptDecisions = 2000;
const keptSufferers = 50; // in each snapshot

// The figures of a container, in the order in which a snapshot's row has them; NaN is
// not known.
const figures = {
  cpu: (u) => u.cpu?.measuredAt && u.cpu.usageMilliCPU,
  limit: (u) => u.cpu?.limitMilliCPU,
  loopLimit: (u) => u.cpu?.loopLimitMilliCPU,
  throttled: (u) => u.cpu?.measuredAt && u.cpu.throttledFraction,
  memory: (u) => u.memory?.measuredAt && u.memory.workingSetBytes,
  memoryLimit: (u) => u.memory?.limitBytes,
  cpuPressure: (u) => u.pressure?.measuredAt && u.pressure.cpuFraction,
  memoryPressure: (u) => u.pressure?.measuredAt && u.pressure.memoryFraction,
  ioPressure: (u) => u.pressure?.measuredAt && u.pressure.ioFraction,
  oomKills: (u) => u.memory?.measuredAt && u.memory.oomKills,
};
const names = Object.keys(figures);
const number = (value) => (typeof value === 'number' ? value : NaN);

// alike reports whether two objects have the same members. Patches leave the lists as
// they are that don't change.
function alike(a, b) {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => a[key] === b[key]);
}

// suffering is how many pods batch work keeps waiting, and the worst of them.
function suffering(disturbed) {
  const excess = (d) => Math.max(...Object.values(d.excess));
  const all = disturbed.filter((d) => d.suspects?.length).sort((a, b) => excess(b) - excess(a));
  return { observed: disturbed.length, suffering: all.length, worst: all.slice(0, keptSufferers) };
}

export class Past {
  snapshots = [];
  decisions = [];
  #known = new Map(); // decisions, by their keys
  #records = new Map();

  // add keeps a status and returns its snapshot.
  add(status, machine) {
    const { containers, loop, ...rest } = status;
    const all = Object.values(containers ?? {});
    const snapshot = { ...rest, machineModel: machine, at: Date.parse(status.time), records: [], figures: new Float32Array(all.length * names.length) };
    const records = new Map();
    for (const [i, container] of all.entries()) {
      const { usage, cache, ...fixed } = container;
      let record = this.#records.get(fixed.id);
      if (!record || !alike(record, fixed)) record = Object.freeze(fixed);
      records.set(fixed.id, record);
      snapshot.records.push(record);
      names.forEach((name, n) => {
        snapshot.figures[i * names.length + n] = number(usage ? figures[name](usage) : NaN);
      });
    }
    this.#records = records;
    if (loop) {
      const { mode, problem, measuredAt, intervalNanos, node, batch, memory, refusal, advice, disturbed = [] } = loop;
      const { cpuLoadPercent, ...others } = node;
      snapshot.loop = { mode, problem, measuredAt, intervalNanos, node: others, batch, memory, refusal, advice, disturbed: suffering(disturbed) };
      if (cpuLoadPercent) snapshot.cpuLoad = Int16Array.from(cpuLoadPercent);
    }
    this.snapshots.push(snapshot);
    while (this.snapshots[0].at < snapshot.at - kept || this.snapshots.length > kept / 1000) this.snapshots.shift();
    return { snapshot, decided: this.#decide(loop?.decisions ?? []) };
  }

  // #decide keeps the decisions and returns those that are new. One that joins the steps
  // of a movement changes as they come.
  #decide(decisions) {
    const fresh = [];
    for (const d of decisions) {
      const key = [d.time, d.controller, d.object, d.action].join('\n');
      const known = this.#known.get(key);
      if (known) {
        Object.assign(known, { going: false }, d);
        continue;
      }
      const decision = { ...d, key, at: Date.parse(d.time) };
      this.#known.set(key, decision);
      fresh.push(decision);
    }
    this.decisions.push(...fresh);
    for (const old of this.decisions.splice(0, Math.max(0, this.decisions.length - keptDecisions))) this.#known.delete(old.key);
    return fresh;
  }

  // near is the last snapshot of that time, or the first there is.
  near(at) {
    return this.snapshots.findLast((s) => s.at <= at) ?? this.snapshots[0];
  }
}

// containersOf are a snapshot's containers, each with its record and figures.
export function containersOf(snapshot) {
  return snapshot.records.map((record, i) => {
    const container = { record };
    names.forEach((name, n) => {
      container[name] = snapshot.figures[i * names.length + n];
    });
    return container;
  });
}
