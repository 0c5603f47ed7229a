// Whose each CPU is.

const lists = new Map();

// numbers reads Linux' list format: "0-3,8".
export function numbers(list) {
  let all = lists.get(list);
  if (!all) {
    all = [];
    for (const part of (list ?? '').split(',').filter(Boolean)) {
      const [first, last = first] = part.split('-').map(Number);
      for (let n = first; n <= last; n++) all.push(n);
    }
    if (lists.size > 5000) lists.clear();
    lists.set(list, all);
  }
  return all;
}

// ranges writes it.
export function ranges(all) {
  const parts = [];
  for (let i = 0; i < all.length; i++) {
    const first = all[i];
    while (all[i + 1] === all[i] + 1) i++;
    parts.push(first === all[i] ? `${first}` : `${first}-${all[i]}`);
  }
  return parts.join(',');
}

const hues = 8; // of pools, in the style sheet

// kinds are the kinds of owner there are in a snapshot: with a letter and a name,
// and the class of the style sheet.
export function kinds(snapshot) {
  const all = [
    { id: 'lse', letter: 'E', name: "one container's own whole cores (LSE)" },
    { id: 'lsr', letter: 'R', name: "one container's own CPUs (LSR)" },
    { id: 'system', letter: 'S', name: 'daemons of the node (SYSTEM)' },
    { id: 'reserved', letter: '×', name: 'reserved: no container' },
    { id: 'external', letter: 'K', name: 'not for Sluice: pinned by the kubelet, or outside the pods\u2019 cgroup' },
  ];
  snapshot.pools?.forEach((pool, i) => all.push({ id: `p${i % hues}`, letter: String(i + 1), name: `pool ${pool.name}`, pool: i }));
  all.push({ id: 'none', letter: '–', name: 'nobody' });
  return all;
}

// ownersOf are the owners of a snapshot's CPUs by number: the kind, the containers that
// are pinned there, and whether the batch pool lies over it.
export function ownersOf(snapshot) {
  const owners = [];
  const all = kinds(snapshot);
  const byId = new Map(all.map((kind) => [kind.id, kind]));
  const none = byId.get('none');
  for (const cpu of numbers(snapshot.machine.online)) owners[cpu] = { kind: none, pins: [], batch: false };
  const give = (list, kind) => numbers(list).forEach((cpu) => {
    if (owners[cpu]) owners[cpu].kind = kind;
  });

  const pools = all.filter((kind) => 'pool' in kind);
  // The first pool of a CPU that has containers, else the first.
  const order = pools.toSorted((a, b) => (snapshot.pools[a.pool].containers > 0) - (snapshot.pools[b.pool].containers > 0) || b.pool - a.pool);
  for (const kind of order) give(snapshot.pools[kind.pool].cpus, kind);
  const last = pools.at(-1);
  if (last && snapshot.pools[last.pool].containers > 0) {
    for (const cpu of numbers(snapshot.pools[last.pool].cpus)) {
      if (owners[cpu] && owners[cpu].kind !== last) owners[cpu].batch = true;
    }
  }
  give(snapshot.machine.system, byId.get('system'));
  give(snapshot.machine.external, byId.get('external'));
  give(snapshot.machine.reserved, byId.get('reserved'));
  for (const record of snapshot.records) {
    if (record.class !== 'LSE' && record.class !== 'LSR') continue;
    for (const cpu of numbers(record.cpus)) {
      if (!owners[cpu]) continue;
      owners[cpu].kind = byId.get(record.class.toLowerCase());
      owners[cpu].pins.push(record.ref);
      owners[cpu].batch = false;
    }
  }
  return owners;
}
