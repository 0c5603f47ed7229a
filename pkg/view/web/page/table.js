// The containers.
import { bytes, cpusAligned, find, make, percent, plain, put, Rows, say } from './dom.js';
import { numbers } from './owners.js';
import { classes, notes } from './words.js';

const order = { LSE: 0, LSR: 1, LS: 2, BE: 3, SYSTEM: 4 };
const steady = 5000; // ms: rows that change places each second can't be read or clicked
const known = (value, words) => (Number.isNaN(value) ? '' : words(value));

// flags are the notes about what is unusual with a container, by the words of the filter.
function flags(c) {
  const { record: r } = c;
  const all = [];
  if (c.throttled > 0.01) all.push('throttled');
  if (c.loopLimit > 0) all.push('limited');
  if (r.warnings?.length) all.push('warned');
  if (r.lacks?.length) all.push('lacks');
  if (r.drift || r.settings?.some((k) => k.drift)) all.push('drift');
  if (r.settings?.some((k) => k.contested)) all.push('contested');
  if (r.settings?.some((k) => k.problem)) all.push('problem');
  if (c.oomKills > 0) all.push('oom');
  if (!r.controlled) all.push('uncontrolled');
  return all;
}

const columns = [
  { name: 'Container', value: (c) => c.record.ref, text: (c) => plain(c.record.ref) },
  { name: 'Class', value: (c) => order[c.record.class] ?? 9, text: (c) => c.record.class, explain: (c) => (Object.hasOwn(classes, c.record.class) ? classes[c.record.class] : [null, null]) },
  { name: 'Pool', value: (c) => c.record.pool ?? '', text: (c) => plain(c.record.pool) },
  { name: 'CPUs', value: (c) => (c.record.cpus ? numbers(c.record.cpus).length : Infinity), text: (c) => c.record.cpus || 'all' },
  { name: 'CPU requested', n: true, value: (c) => c.record.requestedMilliCPU, text: (c) => cpusAligned(c.record.requestedMilliCPU) },
  { name: 'CPU used', n: true, value: (c) => c.cpu, text: (c) => known(c.cpu, cpusAligned) },
  { name: 'Throttled', n: true, value: (c) => c.throttled, text: (c) => known(c.throttled, percent) },
  { name: 'Memory', n: true, value: (c) => c.memory, text: (c) => known(c.memory, bytes) },
  { name: 'Notes', value: (c) => c.flags.length, text: (c) => c.flags.map((word) => notes[word][0]).join('; ') },
];

// kinds are the containers that a button shows alone: by class, and by note.
const kinds = [
  ...Object.entries(classes).map(([name, [few, title]]) => ({ word: `class:${name}`, name: `${name}: ${few}`, title })),
  ...Object.entries(notes).map(([flag, [name, title]]) => ({ word: `is:${flag}`, name, title })),
];

const compare = (a, b) => {
  if (typeof a === 'string') return a < b ? -1 : Number(a > b);
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // not known: last
  return a === b ? 0 : a - b;
};

// matcher makes a test of containers from a filter's words.
function matcher(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, key, value] = /^(class|pool|cpu|is):(.*)$/.exec(word) ?? [];
    switch (key) {
      case 'class': return (c) => c.record.class.toLowerCase() === value;
      case 'pool': return (c) => (c.record.pool ?? '').toLowerCase() === value;
      case 'cpu': return (c) => !c.record.cpus || numbers(c.record.cpus).includes(Number(value));
      case 'is': return (c) => c.flags.includes(value);
      default: return (c) => c.record.ref.toLowerCase().includes(word);
    }
  });
  return (c) => tests.every((test) => test(c));
}

// explain gives a cell's abbreviation in a few words to who hears it, and in a sentence
// to who hovers over it.
function explain(cell, text, [few, sentence]) {
  put(cell, 'aria-label', few && `${text}: ${few}`);
  put(cell, 'title', sentence);
}

export class Table {
  #sort = columns[5];
  #down = true;
  #containers = [];
  #selected = null;
  #time = 0; // of the containers, in ms
  #places = new Map(); // by id, as they were sorted
  #sorted = 0; // the time of the containers that were
  #heads;
  #rows;
  #at = null; // the button that Tab reaches
  #seen = new Set(); // words of the filter that some container has had
  #kinds = new Rows(find('#kinds'), (kind) => {
    const button = make('button', { type: 'button', title: kind.title }, kind.name, ' ', make('span'));
    button.addEventListener('click', () => this.#toggle(kind.word));
    return make('li', {}, button);
  }, (item, kind) => {
    put(item.firstChild, 'aria-pressed', String(this.#words().includes(kind.word.toLowerCase())));
    say(item.firstChild.lastChild, String(kind.count));
  });

  constructor(pick) {
    const body = find('#table tbody');
    const filter = find('#filter');
    this.#heads = columns.map((column) => {
      const button = make('button', { type: 'button' }, column.name);
      button.addEventListener('click', () => {
        this.#down = this.#sort === column ? !this.#down : Boolean(column.n);
        this.#sort = column;
        this.#draw();
        this.#reach(find('#table tbody button'));
      });
      return make('th', { scope: 'col', class: column.n ? 'n' : null }, button);
    });
    find('#table thead tr').append(...this.#heads);
    this.#rows = new Rows(body, (c) => {
      const button = make('button', { type: 'button', tabindex: -1, 'data-id': c.record.id });
      const cells = columns.slice(1).map((column) => make('td', { class: column.explain ? 'short' : column.n ? 'n' : null }));
      return make('tr', {}, make('th', { scope: 'row' }, make('bdi', {}, button)), ...cells);
    }, (row, c) => {
      say(row.cells[0].firstChild.firstChild, columns[0].text(c));
      for (let i = 1; i < columns.length; i++) {
        const text = columns[i].text(c);
        if (columns[i].explain && row.cells[i].firstChild?.data !== text) explain(row.cells[i], text, columns[i].explain(c));
        say(row.cells[i], text);
      }
      put(row, 'aria-current', c.record.id === this.#selected ? 'true' : null);
    });
    filter.addEventListener('input', () => this.ask(filter.value));
    body.addEventListener('click', (event) => {
      const row = event.target.closest('tr');
      if (row) this.#pick(find('button', row), pick);
    });
    body.addEventListener('keydown', (event) => this.#key(event));
  }

  // show draws the containers of a time. Those that are there keep their places for
  // some seconds.
  show(containers, selected, time) {
    [this.#containers, this.#selected, this.#time] = [containers, selected, time];
    for (const c of containers) c.flags = flags(c);
    this.#draw(Math.abs(time - this.#sorted) < steady);
  }

  // ask puts a filter into the field.
  ask(text) {
    if (find('#filter').value !== text) find('#filter').value = text;
    this.#draw();
    this.#reach(find('#table tbody button'));
  }

  #draw(keep = false) {
    const match = matcher(find('#filter').value);
    const found = this.#containers.filter(match);
    const place = (c) => this.#places.get(c.record.id);
    if (keep && found.every((c) => place(c) !== undefined)) {
      found.sort((a, b) => place(a) - place(b));
    } else {
      this.#order(found);
    }
    this.#rows.show(found, (c) => c.record.id);
    columns.forEach((column, i) => put(this.#heads[i], 'aria-sort', column === this.#sort ? (this.#down ? 'descending' : 'ascending') : null));
    say(find('#found'), `${found.length} of ${this.#containers.length}`);
    this.#count();
    put(find('#containers .empty'), 'hidden', found.length > 0);
    if (!found.length) {
      say(find('#containers .empty'), this.#containers.length ? 'No container matches the filter.'
        : 'There are no containers. Each would be a line here, with its class, its CPUs, what it uses, and what is unusual about it.');
    }
    if (!this.#at?.isConnected) this.#reach(find('#table tbody button'));
  }

  // #count shows how many containers there are of each class and with each note. What was
  // seen once stays, so that buttons don't move when a count becomes 0.
  #count() {
    const counts = new Map();
    const add = (word) => counts.set(word, (counts.get(word) ?? 0) + 1);
    for (const c of this.#containers) {
      add(`class:${c.record.class}`);
      for (const flag of c.flags) add(`is:${flag}`);
    }
    for (const word of counts.keys()) this.#seen.add(word);
    this.#kinds.show(kinds.filter(({ word }) => this.#seen.has(word)).map((kind) => ({ ...kind, count: counts.get(kind.word) ?? 0 })), ({ word }) => word);
  }

  #words() {
    return find('#filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  }

  // #toggle adds a word to the filter, or takes it out. A container has only one class.
  #toggle(word) {
    const low = word.toLowerCase();
    const words = this.#words();
    const others = words.filter((other) => other !== low && !(low.startsWith('class:') && other.startsWith('class:')));
    this.ask((words.includes(low) ? others : [...others, word]).join(' '));
  }

  #order(found) {
    const way = this.#down ? -1 : 1;
    const { value } = this.#sort;
    found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return compare(x, y) || compare(a.record.ref, b.record.ref);
      return way * compare(x, y) || compare(a.record.ref, b.record.ref);
    });
    this.#places = new Map(found.map((c, i) => [c.record.id, i]));
    this.#sorted = this.#time;
  }

  // #reach makes a row's button the one that Tab reaches.
  #reach(button) {
    if (this.#at) this.#at.tabIndex = -1;
    this.#at = button;
    if (button) button.tabIndex = 0;
  }

  #pick(button, pick) {
    this.#reach(button);
    pick(button.dataset.id);
  }

  #key(event) {
    const row = event.target.closest('tr');
    const to = {
      ArrowDown: () => row.nextElementSibling,
      ArrowUp: () => row.previousElementSibling,
      Home: () => row.parentElement.firstElementChild,
      End: () => row.parentElement.lastElementChild,
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    const button = find('button', to);
    this.#reach(button);
    button.focus();
  }
}
