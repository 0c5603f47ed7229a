// Levels: the node and batch work as meters, pools as tanks with their bands.
import { bytes, count, cpus, find, make, percent, plain, put, Rows, say, stamp } from './dom.js';
import { numbers } from './owners.js';
import { batchStates, glossary } from './words.js';

const kind = (i) => `p${i % 8}`;
const bounded = (n) => Math.min(100, Math.max(0, n));

function tank(pool) {
  const element = make('div', { class: `tank ${kind(pool.index)}` },
    make('h3', {}, plain(pool.name, 63)),
    make('div', { class: 'water', role: 'meter', 'aria-valuemin': 0, 'aria-valuemax': 100 }, make('div', { class: 'band' }), make('div', { class: 'level' }), make('span', { 'aria-hidden': true })),
    make('ul'));
  element.words = new Rows(element.lastChild, (line) => make('li', { title: line.title ?? null, class: line.bad ? 'bad' : null }), (item, line) => say(item, line.text));
  return element;
}

function fill(element, pool) {
  const { load } = pool;
  const water = element.children[1];
  const [band, level, figure] = water.children;
  const full = load ? Math.round(100 * load.loadFraction) : 0;
  put(element, 'class', `tank ${kind(pool.index)}`);
  level.style.setProperty('--level', bounded(full));
  put(band, 'hidden', !load?.bandHighPercent);
  if (load?.bandHighPercent) {
    band.style.setProperty('--low', bounded(load.bandLowPercent));
    band.style.setProperty('--high', bounded(load.bandHighPercent));
  }
  const busy = load ? `${full} %` : 'not known';
  say(figure, busy);
  put(water, 'aria-label', `Load of pool ${plain(pool.name, 63)}`);
  put(water, 'aria-valuenow', bounded(full));
  put(water, 'aria-valuetext', load?.bandHighPercent ? `${busy}, band ${load.bandLowPercent} to ${load.bandHighPercent} %` : busy);
  element.words.show(sentences(pool, load), (line) => line.key);
}

// sentences say in words what a pool has, uses, and should have.
function sentences(pool, load) {
  const asked = `${cpus(pool.requestedMilliCPU)}\u00a0CPUs`;
  const size = count(numbers(pool.cpus).length, 'CPU');
  const all = [
    { key: 'cpus', text: load ? `${size}, ${cpus(load.usageMilliCPU)} in use` : size },
    { key: 'asked', text: pool.containers === 1 ? `1 container requests ${asked}` : `${pool.containers} containers request ${asked}` },
  ];
  if (pool.rcfRatio) all.push({ key: 'rcf', text: `CPUs are ${percent(pool.rcfRatio)} of those requested (RCF, requested-CPU fraction)` });
  if (load?.bandHighPercent) all.push({ key: 'band', title: glossary.band, text: `Aims at a load of ${load.bandLowPercent} to ${load.bandHighPercent}\u00a0% (band)` });
  if (load?.wantedCPUs && load.wantedCPUs !== load.sizeCPUs) all.push({ key: 'wants', text: `Should have ${count(load.wantedCPUs, 'CPU')}` });
  if (load?.shortCPUs) all.push({ key: 'short', title: glossary.short, bad: true, text: `Short of ${count(load.shortCPUs, 'CPU')}` });
  if (load?.pressureFraction) all.push({ key: 'waits', title: glossary.waiting, text: `A task waits for CPU ${percent(load.pressureFraction)} of the time` });
  return all;
}

function meter(m) {
  return make('div', { class: `meter ${m.look ?? ''}`, title: m.title ?? null },
    make('span'), make('div', { class: 'bar', role: 'meter', 'aria-valuemin': 0, 'aria-valuemax': 100 }, make('div', { class: 'level' }), make('div', { class: 'mark' })), make('span'));
}

function measure(element, m) {
  const [name, bar, words] = element.children;
  const [level, mark] = bar.children;
  const share = m.of > 0 ? bounded((100 * m.value) / m.of) : 0;
  say(name, m.name);
  say(words, m.text);
  level.style.setProperty('--level', share);
  put(mark, 'hidden', !(m.mark > 0 && m.of > 0));
  if (m.mark > 0 && m.of > 0) mark.style.setProperty('--level', bounded((100 * m.mark) / m.of));
  put(bar, 'aria-label', m.name);
  put(bar, 'aria-valuenow', Math.round(share));
  put(bar, 'aria-valuetext', m.text);
}

const tanks = new Rows(find('#pools .tanks'), tank, fill);
const meters = new Rows(find('#batch .meters'), meter, measure);

export function showLevels(snapshot) {
  put(find('#pools .empty'), 'hidden', Boolean(snapshot.pools?.length));
  tanks.show((snapshot.pools ?? []).map((pool, index) => ({ ...pool, index })), (pool) => pool.name);
  const { loop } = snapshot;
  if (!loop) {
    say(find('#batch-state'), 'There is no control loop (control.mode is off). With it, the CPU and memory that the node and batch work use would show here.');
    meters.show([], (m) => m.name);
    return;
  }
  const { batch, memory, node } = loop;
  const words = [`Batch work is ${batch.state}`];
  if (batch.keptPercent) words[0] += ` to ${batch.keptPercent} %`;
  if (Object.hasOwn(batchStates, batch.state)) words[0] += `: ${batchStates[batch.state]}`;
  if (batch.why) words.push(`the reason: ${plain(batch.why)}`);
  if (batch.boundsPercent) words.push(`bounds of services leave it ${batch.boundsPercent} % of its CPU budget: ${plain(batch.boundsWhy)}`);
  if (batch.nextChangeAt) words.push(`this changes at ${stamp(Date.parse(batch.nextChangeAt), snapshot.at)}`);
  if (loop.refusal?.newBatch) words.push(`new batch pods are refused: ${plain(loop.refusal.why)}`);
  if (loop.problem) words.push(`the control loop does not run: ${plain(loop.problem)}`);
  if (loop.mode === 'preview') words.push('the control loop is in mode preview: it decides and reports, and changes nothing');
  else if (loop.mode !== 'on') words.push(`the control loop is in mode ${loop.mode}`);
  say(find('#batch-state'), `${words.join('; ')}.`);

  const limit = node.cpu.limitMilliCPU;
  const all = [{ name: 'CPU of the node', value: node.cpu.usageMilliCPU, of: limit, text: `${cpus(node.cpu.usageMilliCPU)}${limit ? ` of ${cpus(limit)}` : ''} CPUs in use` }];
  const asked = `its pods request ${cpus(batch.requestedMilliCPU)}`;
  if (batch.known && !batch.unlimited) {
    all.push({ name: 'CPU of batch work', look: 'be', value: batch.usedMilliCPU, of: Math.max(batch.budgetMilliCPU, batch.usedMilliCPU), mark: batch.budgetMilliCPU, title: `${glossary.budget} ${glossary.floor}`, text: `${cpus(batch.usedMilliCPU)} of a budget of ${cpus(batch.budgetMilliCPU)} CPUs in use; ${asked}; it always has ${cpus(batch.floorMilliCPU)}` });
  } else {
    all.push({ name: 'CPU of batch work', look: 'be', value: batch.usedMilliCPU, of: limit, text: `${cpus(batch.usedMilliCPU)} CPUs in use, ${batch.unlimited ? 'without a limit' : 'budget not known'}; ${asked}` });
  }
  const total = node.memory.totalBytes;
  if (total > 0) {
    all.push({ name: 'Memory of the node', value: total - node.memory.availableBytes, of: total, text: `${bytes(total - node.memory.availableBytes)} of ${bytes(total)} in use, ${bytes(node.memory.availableBytes)} available` });
    all.push({ name: 'Memory of batch work', look: 'be', value: memory.usedBytes, of: total, mark: memory.goalBytes, title: glossary.goal, text: `${bytes(memory.usedBytes)} in use; it may hold ${bytes(memory.goalBytes)} (the mark)${memory.limitBytes ? `; its limit is ${bytes(memory.limitBytes)}` : ''}` });
  }
  const waiting = node.pressure;
  if (waiting.measuredAt) {
    const worst = Math.max(waiting.cpuFraction, waiting.memoryFraction, waiting.ioFraction);
    all.push({ name: 'Waiting (pressure)', value: worst, of: 1, title: glossary.waiting, text: `A task waits for CPU ${percent(waiting.cpuFraction)}, for memory ${percent(waiting.memoryFraction)}, for I/O ${percent(waiting.ioFraction)} of the time` });
  }
  meters.show(all, (m) => m.name);
}
