// One container: what it does, what it has, and why.
import { bytes, cpus, find, make, percent, plain, put } from './dom.js';

const pane = find('#details');
const long = (text) => plain(text, 4000);
const known = (value, words) => (value > 0 || value === 0 ? words(value) : null);

let shown = null; // the record

export function showDetails(container, gone) {
  put(pane, 'hidden', !container && !gone);
  if (!container) {
    if (gone) {
      shown = null;
      find('#details-title').replaceChildren('Container');
      find('#why').replaceChildren();
      find('#usage').replaceChildren(make('p', {}, 'It is not there at this time.'));
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
    ['CPU used', known(c.cpu, cpus)],
    ['CPU limit', known(c.limit, cpus)],
    ['CPU limit of the loop', known(c.loopLimit, cpus)],
    ['Throttled', known(c.throttled, (n) => `${percent(n)} of the periods`)],
    ['Memory', known(c.memory, bytes)],
    ['Memory limit', known(c.memoryLimit, bytes)],
    ['Waits for CPU', known(c.cpuPressure, percent)],
    ['Waits for memory', known(c.memoryPressure, percent)],
    ['Waits for I/O', known(c.ioPressure, percent)],
    ['Killed for want of memory', known(c.oomKills, (n) => `${n} times`)],
  ].filter(([, value]) => value !== null);
  const list = make('dl', {}, ...lines.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value))));
  if (!find('#usage').firstChild?.isEqualNode(list)) find('#usage').replaceChildren(list);
}

function why(r) {
  const parts = [
    words([
      ['Class', r.class], ['Pool', r.pool], ['CPUs', r.cpus || 'all'], ['Memory nodes', r.mems || 'all'], ['Why', r.why],
      ['State', r.state], ['Requested', `${cpus(r.requestedMilliCPU)} CPUs`], ['Quota', r.unlimited ? 'lifted' : null],
      ['Controlled', r.controlled ? null : 'no: counted, not placed'], ['Drift', r.drift ? `${r.drift} repairs of CPUs or memory nodes` : null],
      ['Pod', r.podUID], ['Cgroup', r.cgroup], ['ID', r.id],
    ]),
  ];
  if (r.warnings?.length) parts.push(title('Warnings'), make('ul', {}, ...r.warnings.map((text) => make('li', {}, long(text)))));
  if (r.lacks?.length) {
    parts.push(title('Done in another way, or not at all'), table(['Key', 'What'], r.lacks.map((l) => [l.key, (l.missing ? 'missing: ' : '') + l.text])));
  }
  if (r.keys?.length) parts.push(title('What it asks for'), table(['Key', 'Value', 'Said by'], r.keys.map((s) => [s.key, s.value, s.source])));
  if (r.settings?.length) {
    parts.push(title('What it has in the kernel'), table(['Setting', 'Value', 'Why', 'State'], r.settings.map((k) => [
      `${k.knob} (${k.level})`, k.value, k.why,
      [k.problem, k.contested && 'contested', k.drift && `${k.drift} repairs`, k.suspect && `suspect: ${k.suspect}`].filter(Boolean).join('; '),
    ])));
  }
  return parts;
}

const title = (text) => make('h3', {}, text);

const words = (lines) => make('dl', {}, ...lines.filter(([, value]) => value).map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, make('bdi', {}, long(value))))));

const table = (heads, rows) => make('table', {},
  make('thead', {}, make('tr', {}, ...heads.map((head) => make('th', { scope: 'col' }, head)))),
  make('tbody', {}, ...rows.map(([first, ...rest]) => make('tr', {}, make('th', { scope: 'row' }, make('bdi', {}, long(first))), ...rest.map((text) => make('td', {}, make('bdi', {}, long(text))))))));
