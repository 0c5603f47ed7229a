// One container: what it does, what it has, and why.
import { classes, states } from './words.js';
import { bytes, cpus, find, make, percent, plain, put } from './dom.js';

const pane = find('#details');
const long = (text) => plain(text, 4000);
const known = (value, words) => (value > 0 || value === 0 ? words(value) : null);

const inCPUs = (milli) => `${cpus(milli)} CPUs`;
const ofTime = (share) => `${percent(share)} of the time`;

let shown = null; // the record

export function showDetails(container, gone) {
  put(pane, 'hidden', !container && !gone);
  if (!container) {
    if (gone) {
      shown = null;
      find('#details-title').replaceChildren('Container');
      find('#why').replaceChildren();
      find('#usage').replaceChildren(make('p', {}, 'This container does not run at the time that you look at.'));
    }
    return;
  }
  usage(container);
  if (container.record === shown) return;
  shown = container.record;
  find('#details-title').replaceChildren('Container ', make('bdi', {}, plain(shown.ref)));
  find('#why').replaceChildren(...why(shown));
}

function usage(c) {
  const lines = [
    ['CPU used', known(c.cpu, inCPUs)],
    ['CPU limit', known(c.limit, inCPUs)],
    ['CPU limit set by Sluice', known(c.loopLimit, inCPUs)],
    ['Throttled', known(c.throttled, (n) => `in ${percent(n)} of the quota periods`)],
    ['Memory', known(c.memory, bytes)],
    ['Memory limit', known(c.memoryLimit, bytes)],
    ['Waits for CPU', known(c.cpuPressure, ofTime)],
    ['Waits for memory', known(c.memoryPressure, ofTime)],
    ['Waits for I/O', known(c.ioPressure, ofTime)],
    ['Processes killed: out of memory', known(c.oomKills, String)],
  ].filter(([, value]) => value !== null);
  const list = make('dl', {}, ...lines.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value))));
  if (!find('#usage').firstChild?.isEqualNode(list)) find('#usage').replaceChildren(list);
}

function why(r) {
  const parts = [
    words([
      ['Class', Object.hasOwn(classes, r.class) ? `${r.class}: ${classes[r.class][1]}` : r.class], ['Tier of batch work', r.tier], ['Pool', r.pool], ['CPUs', r.cpus || 'all'], ['Memory from NUMA nodes', r.mems || 'all'], ['Why these', r.why],
      ['State', Object.hasOwn(states, r.state) ? states[r.state] : r.state], ['CPU requested', inCPUs(r.requestedMilliCPU)], ['CPU limit in the kernel', r.unlimited ? 'lifted, since all of its CPUs are its own' : null],
      ['Placed by Sluice', r.controlled ? null : 'no: Sluice counts its requests, but may not set its CPUs'], ['Changed from outside', r.drift ? `its CPUs or NUMA nodes, repaired ${times(r.drift)}` : null],
      ['Pod', r.podUID], ['Cgroup', r.cgroup], ['ID', r.id],
    ]),
  ];
  if (r.warnings?.length) parts.push(title('Warnings'), make('ul', {}, ...r.warnings.map((text) => make('li', {}, long(text)))));
  if (r.lacks?.length) {
    parts.push(title('What this node does in another way, or not at all'), table(['Key', 'What happens'], r.lacks.map((l) => [l.key, (l.missing ? 'missing: ' : '') + l.text])));
  }
  if (r.keys?.length) parts.push(title('What it asks for'), table(['Key', 'Value', 'Set by'], r.keys.map((s) => [s.key, s.value, s.source])));
  if (r.settings?.length) {
    parts.push(title('What it has in the kernel'), table(['Setting', 'Value', 'Why', 'State'], r.settings.map((k) => [
      `${k.knob} (${k.level})`, k.value, k.why,
      [k.problem && `not in force: ${k.problem}`, k.contested && 'another program keeps changing it', k.drift && `changed from outside, repaired ${times(k.drift)}`, k.suspect && `probably changed by ${k.suspect}`].filter(Boolean).join('; '),
    ])));
  }
  return parts;
}

const times = (n) => (n === 1 ? 'once' : `${n} times`);
const title = (text) => make('h3', {}, text);

const words = (lines) => make('dl', {}, ...lines.filter(([, value]) => value).map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, make('bdi', {}, long(value))))));

const table = (heads, rows) => make('table', {},
  make('thead', {}, make('tr', {}, ...heads.map((head) => make('th', { scope: 'col' }, head)))),
  make('tbody', {}, ...rows.map(([first, ...rest]) => make('tr', {}, make('th', { scope: 'row' }, make('bdi', {}, long(first))), ...rest.map((text) => make('td', {}, make('bdi', {}, long(text))))))));
