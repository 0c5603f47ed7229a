// The node map.
import { clock, find, make, plain, put, Rows, say, stamp, useUTC, zone } from './dom.js';
import { follow } from './feed.js';
import { showDetails } from './details.js';
import { showLevels } from './levels.js';
import { NodeMap } from './map.js';
import { showMore } from './more.js';
import { numbers } from './owners.js';
import { containersOf, Past } from './past.js';
import { Table } from './table.js';
import { TimeLine } from './time.js';

const stale = 10_000; // ms without a measurement, and at least three intervals

const past = new Past();
const { title } = document;
let selected = null; // a container's id
let lostAt = null; // the connection, in ms; null: it is there

const pickContainer = (id) => {
  selected = selected === id ? null : id;
  draw();
};
const map = new NodeMap((cpu) => table.ask(`cpu:${cpu}`));
const table = new Table(pickContainer);
const line = new TimeLine(past, () => requestAnimationFrame(draw));
const notes = new Rows(find('#notes'), () => make('li'), (item, note) => say(item, note));

// draw shows the snapshot of the time that is looked at. How long it takes can be seen
// in the browser's performance view as "update".
function draw() {
  if (!past.snapshots.length) return;
  const begin = performance.now();
  const { snapshot } = line;
  const containers = containersOf(snapshot);
  const container = containers.find((c) => c.record.id === selected);
  head(snapshot);
  map.show(snapshot, numbers(container?.record.cpus));
  showLevels(snapshot);
  table.show(containers, selected, snapshot.at);
  showDetails(container, selected !== null);
  showMore(snapshot);
  line.show();
  performance.measure('update', { start: begin });
  performance.clearMeasures('update'); // who observes has it
}

function head(s) {
  const { runtime = {} } = s;
  const runs = runtime.connected ? plain(`${runtime.name ?? 'runtime'} ${runtime.version ?? ''}`) : 'no runtime';
  const does = s.mode === 'preview' ? ' (changes nothing)' : '';
  say(find('#plugin'), `${plain(s.version)} · mode ${plain(s.mode)}${does} · ${runs}`);
  say(find('#zone'), `Times: ${zone(s.at)}`);
  const all = [];
  const note = (...texts) => all.push(texts.map((text) => plain(text, 500)).join(''));
  if (s.why) note(s.why);
  if (!runtime.connected) note('The runtime is not connected.');
  if (s.config?.problem) note('The newest configuration is not in force: ', s.config.problem);
  if (runtime.recordUpdatesWhy) note('The container runtime\u2019s own record is not updated: ', runtime.recordUpdatesWhy);
  for (const text of s.contested ?? []) note('Another program keeps changing this setting, so Sluice waits longer before each repair: ', text);
  const measured = Date.parse(s.loop?.measuredAt);
  if (s.at - measured > Math.max(stale, (3 * s.loop?.intervalNanos) / 1e6)) note(`The control loop last measured at ${stamp(measured, s.at)}: loads and uses are as old as that.`);
  notes.show(all, (text) => text);
  put(find('#notes'), 'hidden', all.length === 0);
}

const connect = follow((status, machine) => {
  lostAt = null;
  line.lost = false;
  say(find('#state'), '');
  document.title = title;
  put(find('#again'), 'hidden', true);
  document.documentElement.classList.remove('silent');
  const { decided } = past.add(status, machine);
  draw();
  line.announce(decided);
}, (why, seconds) => {
  if (lostAt === null) {
    lostAt = Date.now();
    line.lost = true;
    draw();
  }
  const seen = past.snapshots.at(-1)?.at;
  document.title = `No connection · ${title}`;
  say(find('#state'), seen
    ? `Connection lost at ${clock(lostAt)}: ${plain(why, 500)}. What you see is from ${clock(seen)}`
    : `No connection: ${plain(why, 500)}`);
  say(find('#again span'), seconds ? `Trying again in ${seconds} s.` : 'Trying…'); // not for a screen reader to say each second
  put(find('#again'), 'hidden', false);
  document.documentElement.classList.add('silent');
});
find('#again button').addEventListener('click', connect);

find('#close').addEventListener('click', () => {
  pickContainer(selected);
  find('#table tbody button[tabindex="0"]')?.focus();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && selected !== null) find('#close').click();
});

// What the viewer has chosen is kept, where the browser keeps something.
function choice(key, values, button, use) {
  let stored = null;
  try {
    stored = localStorage.getItem(key);
  } catch {
    // this browser keeps nothing
  }
  let chosen = values.includes(stored) ? stored : values[0];
  use(chosen);
  button.addEventListener('click', () => {
    chosen = values[(values.indexOf(chosen) + 1) % values.length];
    use(chosen);
    try {
      localStorage.setItem(key, chosen);
    } catch {
      // for this visit alone
    }
  });
}
choice('theme', ['system', 'dark', 'light'], find('#theme'), (name) => {
  put(document.documentElement, 'data-theme', name);
  say(find('#theme'), `Theme: ${name}`);
});
choice('times', ['local', 'UTC'], find('#zone'), (name) => {
  useUTC(name === 'UTC');
  say(find('#zone'), `Times: ${zone(Date.now())}`);
  draw();
});
