// What else the plugin tells: a line for each matter, with a table behind it.
import { find, make, moment, percent, plain, put, Rows, say } from './dom.js';
import { classes, glossary, notes } from './words.js';

// The upper bounds of a handler's counts in ms, as status.LatencyBounds has them.
const bounds = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2000];

const sum = (counts) => counts.reduce((all, n) => all + n, 0);

// within is the bound below which that share of the counts is.
function within(counts, share) {
  let left = share * sum(counts);
  if (left === 0) return '';
  const at = counts.findIndex((n) => (left -= n) <= 0);
  return at < bounds.length ? `≤ ${bounds[at]} ms` : `> ${bounds.at(-1)} ms`;
}

// waits is what a pod waits for beyond its calm.
function waits({ cpuFraction, memoryFraction, ioFraction, runDelayFraction, throttledFraction }) {
  const parts = [['CPU', cpuFraction], ['memory', memoryFraction], ['I/O', ioFraction], ['run queue', runDelayFraction], ['throttled', throttledFraction]];
  return parts.filter(([, share]) => share >= 0.005).map(([name, share]) => `${name} +${percent(share)}`).join(', ');
}

const meanings = [
  ...Object.entries(classes).map(([name, [, sentence]]) => [`class ${name}`, sentence]),
  ...Object.entries(glossary),
  ...Object.values(notes),
];

// Each of these makes a line and rows of texts from a snapshot; the columns from figures
// on are numbers. Without rows, empty says what would be there.
const matters = [
  {
    id: 'disturbed', heads: ['Service', 'Waits more than without batch work, for', 'Batch pods that used most meanwhile'],
    empty: 'Services would be here that wait longer while batch work runs, with the batch pods that used most of what they wait for.',
    of({ loop }) {
      if (!loop) return ['Services disturbed by batch work: not measured without the control loop', []];
      const { observed, suffering, worst } = loop.disturbed;
      const rows = worst.map((d) => [d.pod, waits(d.excess), d.suspects.map((s) => `${s.pod} ${percent(s.usageFraction)}`).join(', ')]);
      return [`Services disturbed by batch work: ${suffering || 'none'} of ${observed} pods of class LS${suffering > rows.length ? `, the worst ${rows.length} here` : ''}`, rows];
    },
  },
  {
    id: 'advice', heads: ['For', 'What'],
    empty: 'What Sluice cannot mend by itself would be here, for example a CPU limit that is too low.',
    of({ loop }) {
      const rows = (loop?.advice ?? []).map((a) => [a.object, a.text]);
      return [`Advice: ${rows.length || 'none'}`, rows];
    },
  },
  {
    id: 'config', heads: ['Configuration', 'Value'],
    of({ config = {} }) {
      const { file, hash, loadedAt, reloads = 0, refused = 0, problem } = config;
      const rows = [['File', file || 'none: the shipped defaults'], ['SHA-256', hash], ['Reloads', `${reloads}, of which ${refused} refused`], ['Not in force', problem]];
      return [`Configuration: in force since ${moment(Date.parse(loadedAt))}${problem ? '; a newer file is refused' : ''}`, rows.filter(([, value]) => value)];
    },
  },
  {
    id: 'features', heads: ['Feature', 'State', 'Kernel file', 'Why'],
    empty: 'What the kernel, the runtime and the hardware can do would be here.',
    of({ features = [] }) {
      const count = (state) => features.filter((f) => f.state === state).length;
      const rows = features.map((f) => [f.name, f.state, f.file, f.why]);
      return [`Features of this node: ${count('supported')} supported, ${count('unsupported')} unsupported, ${count('inconclusive')} inconclusive`, rows];
    },
  },
  {
    id: 'handlers', heads: ['Event', 'Answers', 'Half of them in', '99 % in'], figures: 1,
    empty: 'How long the container runtime waits for Sluice would be here, for each kind of event.',
    of({ handlers = [] }) {
      const all = bounds.concat(Infinity).map((_, i) => sum(handlers.map((h) => h.counts[i])));
      const rows = handlers.map((h) => [h.event, sum(h.counts), within(h.counts, 0.5), within(h.counts, 0.99)]);
      return [`Answers to the container runtime: ${sum(all) ? `${sum(all)}, 99 % in ${within(all, 0.99)}` : 'none'}`, rows];
    },
  },
  {
    id: 'errors', heads: ['Setting', 'Error', 'Times'], figures: 2,
    empty: 'Settings that the kernel refused would be here, with its error.',
    of({ errors = [] }) {
      const rows = errors.map((e) => [e.knob, e.errno, e.count]);
      return [`Writes refused by the kernel: ${sum(errors.map((e) => e.count)) || 'none'}`, rows];
    },
  },
  {
    id: 'words', heads: ['Word', 'Meaning'],
    of: () => ['What the words mean', meanings],
  },
];

const shows = matters.map(({ id, heads, figures = heads.length, empty = '', of }) => {
  const kind = (i) => (i >= figures ? 'n' : null);
  const summary = make('summary', { id: `${id}-line` });
  const body = make('tbody');
  const table = make('table', { 'aria-labelledby': `${id}-line` },
    make('thead', {}, make('tr', {}, ...heads.map((head, i) => make('th', { scope: 'col', class: kind(i) }, head)))), body);
  const nothing = make('p', { class: 'empty', hidden: true }, empty);
  const details = make('details', { id }, summary, nothing, table);
  find('#more').append(details);
  const rows = new Rows(body,
    () => make('tr', {}, ...heads.map((_, i) => make(i ? 'td' : 'th', { scope: i ? null : 'row', class: kind(i) }, make('bdi')))),
    (row, { texts }) => texts.forEach((text, i) => say(row.cells[i].firstChild, plain(text, 4000))));
  let found = [];
  const fill = () => {
    if (!details.open) return;
    put(table, 'hidden', !found.length);
    put(nothing, 'hidden', found.length > 0);
    rows.show(found.map((texts, i) => ({ texts, i })), (row) => row.i);
  };
  details.addEventListener('toggle', fill);
  return (snapshot) => {
    let line;
    [line, found] = of(snapshot);
    say(summary, line);
    fill();
  };
});

export function showMore(snapshot) {
  for (const show of shows) show(snapshot);
}
