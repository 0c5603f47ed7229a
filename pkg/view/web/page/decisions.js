// The decisions, those of one controller about one object together.
import { ago, count, find, make, plain, put, Rows, say, stamp } from './dom.js';
import { deed } from './words.js';

const listed = 100; // groups
const opened = 200; // decisions of an open group
const list = find('#decisions > ol');

// groupsOf are the groups of decisions, which are in the order of their times; the group
// of the newest decision is first.
function groupsOf(decisions) {
  const groups = new Map();
  for (const d of decisions) {
    const key = [d.controller, d.object, d.mode].join('\n');
    const group = groups.get(key) ?? { key, all: [] };
    groups.delete(key); // to the end
    groups.set(key, group);
    group.all.push(d);
  }
  return [...groups.values()].toReversed();
}

const change = (d) => [d.from, d.to].filter(Boolean).map((text) => plain(text)).join(' → ');
const took = (d) => (d.steps > 1 ? `${d.steps} steps in ${ago(Date.parse(d.lastStepAt) - d.at)}${d.ongoing ? ' so far' : ''}` : '');
const latest = (d) => (d.steps > 1 ? Date.parse(d.lastStepAt) : d.at);

export class Decisions {
  #now = 0; // the time that is looked at, in ms
  #places = []; // keys of the groups, as they stand
  #groups = new Rows(list, (group) => this.#make(group), (item, group) => this.#update(item, group));

  // show lists decisions, in the order of their times, as of that time in ms.
  show(decisions, now) {
    this.#now = now;
    put(find('#decisions .empty'), 'hidden', decisions.length > 0);
    put(list, 'hidden', decisions.length === 0);
    const groups = this.#ordered(groupsOf(decisions)).slice(0, listed);
    this.#places = groups.map((group) => group.key);
    this.#groups.show(groups, (group) => group.key);
  }

  // #ordered leaves the groups where they are while somebody points at the list or is in
  // it: what moves can be neither read nor opened. New groups are first.
  #ordered(groups) {
    if (!list.matches(':hover, :focus-within')) return groups;
    const places = new Map(this.#places.map((key, i) => [key, i]));
    return groups.toSorted((a, b) => (places.get(a.key) ?? -1) - (places.get(b.key) ?? -1));
  }

  #make({ all: [d] }) {
    const parts = {
      time: make('time'), what: make('bdi'), change: make('bdi'), many: make('span', { class: 'count' }), why: make('p'), singles: make('ol'),
    };
    const details = make('details', {},
      make('summary', {}, parts.time, ' ', make('b', {}, make('bdi', {}, plain(d.object)), ': ', parts.what), ' ', parts.change, ' ', parts.many),
      parts.singles);
    const item = make('li', { class: d.mode === 'preview' ? 'preview' : null }, details, parts.why);
    item.parts = parts;
    item.singles = new Rows(parts.singles, (single) => make('li', {},
      make('time', { datetime: single.time }), ' ', [plain(single.action), change(single), took(single)].filter(Boolean).join(', '), make('p', {}, plain(single.why, 1000))),
    (element, single) => say(element.firstChild, stamp(single.at, this.#now)));
    details.addEventListener('toggle', () => this.#open(item));
    return item;
  }

  #update(item, group) {
    const { parts } = item;
    const newest = group.all.at(-1);
    item.all = group.all;
    put(parts.time, 'datetime', new Date(latest(newest)).toISOString());
    say(parts.time, stamp(latest(newest), this.#now));
    say(parts.what, plain(deed(newest)));
    say(parts.change, change(newest));
    const words = [`${plain(newest.controller)} ${plain(newest.action)}`, took(newest)];
    if (group.all.length > 1) words.push(`${count(group.all.length, 'decision')} since ${stamp(group.all[0].at, this.#now)}`);
    if (newest.mode === 'preview') words.push('preview: not done');
    say(parts.many, `(${words.filter(Boolean).join('; ')})`);
    say(parts.why, plain(newest.why, 1000));
    this.#open(item);
  }

  // #open lists the single decisions of a group while it is open.
  #open(item) {
    if (!item.firstChild.open) return;
    item.singles.show(item.all.slice(-opened).toReversed(), (d) => [d.key, d.steps, d.ongoing].join('\n')); // made anew at each step
  }
}
