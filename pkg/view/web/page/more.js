// What else the plugin tells: a line for each matter, with a table behind it.
import { find, make, percent, plain, Rows, say } from './dom.js';

// The upper bounds of a handler's counts in ms, as status.LatencyBounds has them.
const bounds = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2000];

const sum = (counts) => counts.reduce((all, n) => all + n, 0);
const when = (time) => new Date(time).toLocaleString();

// within is the bound below which that share of the counts is.
function within(counts, share) {
  let left = share * sum(counts);
  if (left === 0) return '';
  const at = counts.findIndex((n) => (left -= n) <= 0);
  return at < bounds.length ? `≤ ${bounds[at]} ms` : `> ${bounds.at(-1)} ms`;
}

// waits is what a pod waits for beyond its calm.
function waits({ cpuFraction, memoryFraction, ioFraction, runDelayFraction, throttledFraction }) {
  const parts = [['CPU', cpuFraction], ['memory', memoryFraction], ['I/O', ioFraction], ['run delay', runDelayFraction], ['throttled', throttledFraction]];
  return parts.filter(([, share]) => share >= 0.005).map(([name, share]) => `${name} +${percent(share)}`).join(', ');
}

// Each of these makes a line and rows of texts from a snapshot; the columns from figures
// on are numbers.
const matters = [
  {
    id: 'disturbed', heads: ['LS pod', 'Waits beyond its calm', 'Perhaps by'],
    of({ loop }) {
      if (!loop) return ['Disturbed by batch work: not measured without the control loop', []];
      const { observed, suffering, worst } = loop.disturbed;
      const rows = worst.map((d) => [d.pod, waits(d.excess), d.suspects.map((s) => `${s.pod} ${percent(s.usageFraction)}`).join(', ')]);
      return [`Disturbed by batch work: ${suffering || 'none'} of ${observed} LS pods${suffering > rows.length ? `, the worst ${rows.length} here` : ''}`, rows];
    },
  },
  {
    id: 'advice', heads: ['For', 'What'],
    of({ loop }) {
      const rows = (loop?.advice ?? []).map((a) => [a.object, a.text]);
      return [`Advice: ${rows.length || 'none'}`, rows];
    },
  },
  {
    id: 'config', heads: ['Configuration', 'Is'],
    of({ config = {} }) {
      const { file, hash, loadedAt, reloads = 0, refused = 0, problem } = config;
      const rows = [['File', file || 'none: the shipped defaults'], ['SHA-256', hash], ['Reloads', `${reloads}, of which ${refused} refused`], ['Not in force', problem]];
      return [`Configuration: in force since ${when(loadedAt)}${problem ? '; the newest is refused' : ''}`, rows.filter(([, value]) => value)];
    },
  },
  {
    id: 'features', heads: ['Feature', 'State', 'File', 'Why'],
    of({ features = [] }) {
      const count = (state) => features.filter((f) => f.state === state).length;
      const rows = features.map((f) => [f.name, f.state, f.file, f.why]);
      return [`Features of this node: ${count('supported')} supported, ${count('unsupported')} unsupported, ${count('inconclusive')} inconclusive`, rows];
    },
  },
  {
    id: 'handlers', heads: ['Event', 'Answers', 'Half of them', '99 %'], figures: 1,
    of({ handlers = [] }) {
      const all = bounds.concat(Infinity).map((_, i) => sum(handlers.map((h) => h.counts[i])));
      const rows = handlers.map((h) => [h.event, sum(h.counts), within(h.counts, 0.5), within(h.counts, 0.99)]);
      return [`Answers to the runtime: ${sum(all) ? `${sum(all)}, 99 % in ${within(all, 0.99)}` : 'none'}`, rows];
    },
  },
  {
    id: 'errors', heads: ['Setting', 'Error', 'Times'], figures: 2,
    of({ errors = [] }) {
      const rows = errors.map((e) => [e.knob, e.errno, e.count]);
      return [`Refused by the kernel: ${sum(errors.map((e) => e.count)) || 'none'}`, rows];
    },
  },
];

const shows = matters.map(({ id, heads, figures = heads.length, of }) => {
  const kind = (i) => (i >= figures ? 'n' : null);
  const summary = make('summary', { id: `${id}-line` });
  const body = make('tbody');
  const table = make('table', { 'aria-labelledby': `${id}-line` },
    make('thead', {}, make('tr', {}, ...heads.map((head, i) => make('th', { scope: 'col', class: kind(i) }, head)))), body);
  const details = make('details', { id }, summary, table);
  find('#more').append(details);
  const rows = new Rows(body,
    () => make('tr', {}, ...heads.map((_, i) => make(i ? 'td' : 'th', { scope: i ? null : 'row', class: kind(i) }, make('bdi')))),
    (row, { texts }) => texts.forEach((text, i) => say(row.cells[i].firstChild, plain(text, 4000))));
  let found = [];
  const fill = () => {
    if (!details.open) return;
    table.hidden = !found.length;
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
