// The machine: packages, NUMA nodes, L3 caches, cores, threads.
import { bytes, count, find, make, plain, put, Rows, say } from './dom.js';
import { kinds, ownersOf, ranges } from './owners.js';

const grid = find('#map');
const step = 5; // percent: a pixel of a cell

// Up to so many CPUs have cells that say their numbers and loads, and larger ones.
const [few, some] = [32, 128];

export class NodeMap {
  #machine = null;
  #cells = []; // by CPU
  #order = []; // the same, as they stand
  #owners = [];
  #load = null;
  #few = false; // the machine has few CPUs
  #at = null; // the cell that has the focus, or had it last
  #legend = new Rows(find('#legend'), (kind) => {
    const sign = make('span', { class: `c ${kind.id}`, 'aria-hidden': true }, kind.letter);
    return make('li', {}, sign, ` ${plain(kind.name)}`);
  }, () => {});
  #table = new Rows(find('#as-table tbody'), () => make('tr', {}, make('th', { scope: 'row' }), make('td'), make('td'), make('td', { class: 'n' })), (row, group) => {
    say(row.cells[0], ranges(group.cpus));
    say(row.cells[1], group.whose);
    say(row.cells[2], group.place);
    say(row.cells[3], group.known ? `${Math.round(group.load / group.known)} %` : 'not known');
  });

  constructor(pick) {
    grid.addEventListener('keydown', (event) => this.#key(event, pick));
    grid.addEventListener('click', (event) => {
      const cell = event.target.closest('[role=gridcell]');
      if (!cell) return;
      this.#focus(cell);
      pick(Number(cell.dataset.cpu));
    });
    for (const kind of ['focusin', 'mouseover']) {
      grid.addEventListener(kind, (event) => {
        const cell = event.target.closest('[role=gridcell]');
        if (cell) this.#tell(cell);
      });
    }
    find('#as-table').addEventListener('toggle', () => this.#listTable());
  }

  // show draws a snapshot, with the CPUs of a container marked.
  show(snapshot, marked) {
    if (snapshot.machineModel !== this.#machine) this.#build(snapshot.machineModel);
    const owners = ownersOf(snapshot);
    [this.#owners, this.#load] = [owners, snapshot.cpuLoad];
    const hits = new Set(marked);
    this.#cells.forEach((cell, cpu) => {
      const { kind, batch } = owners[cpu] ?? { kind: { id: 'none', letter: '–', name: 'nobody' } };
      const look = `c ${kind.id}${batch ? ' batch' : ''}${hits.has(cpu) ? ' hit' : ''}`;
      if (cell.className !== look) cell.className = look;
      say(cell, kind.letter);
      const level = Math.round(Math.max(0, this.#load?.[cpu] ?? 0) / step) * step;
      if (cell.level !== level) {
        cell.level = level;
        cell.style.setProperty('--load', level);
      }
      if (this.#few) put(cell, 'data-busy', this.#load?.[cpu] >= 0 ? `${this.#load[cpu]} %` : '');
      if (cell !== this.#at) put(cell, 'aria-label', this.#words(cpu, false));
    });
    if (this.#at) this.#tell(this.#at);
    const used = new Set(owners.map((owner) => owner.kind.id + owner.kind.letter));
    const legend = kinds(snapshot).filter((kind) => 'pool' in kind || used.has(kind.id + kind.letter));
    if (owners.some((owner) => owner.batch)) {
      legend.push({ id: 'none batch', letter: '', name: `pool ${snapshot.pools.at(-1).name} may run there too` });
    }
    this.#legend.show(legend, (kind) => `${kind.id} ${kind.letter} ${kind.name}`);
    this.#listTable();
  }

  // #build makes the cells of a machine. It comes again with hotplug alone.
  #build(machine) {
    this.#machine = machine;
    [this.#cells, this.#order] = [[], []];
    this.#few = machine.cpus.length <= few;
    grid.classList.toggle('few', this.#few);
    grid.classList.toggle('some', !this.#few && machine.cpus.length <= some);
    const nodes = new Map(machine.nodes.map((node) => [node.id, node]));
    const byPlace = Map.groupBy(machine.cpus, (cpu) => cpu.package);
    grid.replaceChildren(...machine.packages.map((pack, p) => {
      const group = make('div', { class: 'package', role: 'rowgroup', 'aria-label': `Package ${pack.id}`, 'data-name': `Package ${pack.id}` });
      for (const [id, ofNode] of Map.groupBy(byPlace.get(p) ?? [], (cpu) => cpu.node)) {
        const box = make('div', { class: 'node', 'data-name': `NUMA node ${id} · ${bytes(nodes.get(id)?.memoryBytes ?? 0)}` });
        for (const [l3, ofCache] of Map.groupBy(ofNode, (cpu) => cpu.l3)) {
          const { size } = machine.l3s[l3];
          const row = make('div', { class: 'l3', role: 'row', 'aria-label': `NUMA node ${id}, L3 cache ${l3}${size ? `, ${bytes(size)}` : ''}` });
          let cores = 0;
          for (const ofCore of Map.groupBy(ofCache, (cpu) => cpu.core).values()) {
            cores++;
            row.append(make('div', { class: ofCore[0].kind === 'efficiency' ? 'core small' : 'core' }, ...ofCore.map((cpu) => this.#cell(cpu))));
          }
          row.style.setProperty('--cores', cores);
          box.append(row);
        }
        group.append(box);
      }
      return group;
    }));
    this.#at = null;
    if (this.#order.length) this.#order[0].tabIndex = 0;
    const far = machine.nodes.filter((node) => !node.cpus);
    say(find('#size'), [
      count(machine.packages.length, 'package'), count(machine.nodes.length, 'NUMA node'), count(machine.l3s.length, 'L3 cache'), count(machine.cores.length, 'core'), count(machine.cpus.length, 'CPU'),
      bytes(machine.nodes.reduce((sum, node) => sum + node.memoryBytes, 0)),
    ].join(', ') + (far.length ? `; NUMA nodes ${ranges(far.map((node) => node.id))} have memory but no CPU` : '') + (machine.offline ? `; CPUs ${machine.offline} are offline` : ''));
  }

  #cell(cpu) {
    const cell = make('div', { class: 'c', role: 'gridcell', tabindex: -1, 'data-cpu': cpu.id });
    this.#cells[cpu.id] = cell;
    this.#order.push(cell);
    return cell;
  }

  #words(cpu, all) {
    const { kind, pins, batch } = this.#owners[cpu] ?? { kind: { name: 'nobody' }, pins: [], batch: false };
    const words = [`CPU ${cpu}`, plain(kind.name)];
    if (batch) words.push('batch work may run here too');
    if (pins.length) words.push(pins.map((ref) => plain(ref, 80)).join(', '));
    const load = this.#load?.[cpu] ?? -1;
    if (all) words.push(load < 0 ? 'load not known' : `${load} % busy`);
    return words.join(', ');
  }

  // #tell says all about the CPU that is looked at.
  #tell(cell) {
    const cpu = Number(cell.dataset.cpu);
    const place = this.#machine.cpus.find((other) => other.id === cpu);
    const text = this.#words(cpu, true);
    say(find('#cpu'), `${text}; core ${place.core}, L3 cache ${place.l3}, NUMA node ${place.node}, package ${place.package}`);
    if (cell === this.#at) put(cell, 'aria-label', text);
  }

  #focus(cell) {
    if (!cell) return;
    for (const old of [this.#at, this.#order[0]]) if (old) old.tabIndex = -1;
    this.#at = cell;
    cell.tabIndex = 0;
    cell.focus();
  }

  #key(event, pick) {
    const cell = event.target.closest('[role=gridcell]');
    if (!cell || event.altKey || event.metaKey) return;
    const at = this.#order.indexOf(cell);
    const row = [...cell.closest('[role=row]').querySelectorAll('[role=gridcell]')];
    const to = {
      ArrowRight: () => this.#order[at + 1],
      ArrowLeft: () => this.#order[at - 1],
      ArrowDown: () => this.#beside(cell, 1),
      ArrowUp: () => this.#beside(cell, -1),
      Home: () => (event.ctrlKey ? this.#order[0] : row[0]),
      End: () => (event.ctrlKey ? this.#order.at(-1) : row.at(-1)),
    }[event.key];
    if (to) {
      this.#focus(to());
    } else if (event.key === 'Enter' || event.key === ' ') {
      pick(Number(cell.dataset.cpu));
    } else {
      return;
    }
    event.preventDefault();
  }

  // #beside is the nearest cell below (1) or above (-1), as they stand on the screen.
  #beside(cell, way) {
    const from = cell.getBoundingClientRect();
    let [best, least] = [null, Infinity];
    for (const other of this.#order) {
      const to = other.getBoundingClientRect();
      const down = (to.top - from.top) * way;
      const far = down * 4 + Math.abs(to.left - from.left);
      if (down > 1 && far < least) [best, least] = [other, far];
    }
    return best;
  }

  // #listTable is the same in words, while it is open.
  #listTable() {
    if (!find('#as-table').open || !this.#machine) return;
    const groups = new Map();
    for (const cpu of this.#machine.cpus) {
      const whose = this.#words(cpu.id, false).split(', ').slice(1).join(', ');
      const place = `${cpu.package}, ${cpu.node}`;
      const key = `${whose}\n${place}`;
      const group = groups.get(key) ?? { key, whose, place, cpus: [], load: 0, known: 0 };
      groups.set(key, group);
      group.cpus.push(cpu.id);
      const load = this.#load?.[cpu.id] ?? -1;
      if (load >= 0) [group.load, group.known] = [group.load + load, group.known + 1];
    }
    this.#table.show([...groups.values()], (group) => group.key);
  }
}
