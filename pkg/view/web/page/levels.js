// Levels: pools as tanks with their bands, batch work and memory as meters.
import { bytes, clock, cpus, find, make, percent, plain, put, Rows, say } from './dom.js';
import { numbers } from './owners.js';

const kind = (i) => `p${i % 8}`;
const bounded = (n) => Math.min(100, Math.max(0, n));

function tank(pool) {
  const element = make('div', { class: `tank ${kind(pool.index)}` },
    make('h3', {}, plain(pool.name, 63)),
    make('div', { class: 'water', role: 'meter', 'aria-valuemin': 0, 'aria-valuemax': 100 }, make('div', { class: 'band' }), make('div', { class: 'level' }), make('span', { 'aria-hidden': true })),
    make('p'));
  return element;
}

function fill(element, pool) {
  const { load } = pool;
  const [, water, words] = element.children;
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
  const text = [`${numbers(pool.cpus).length} CPUs`, `${pool.containers} containers request ${cpus(pool.requestedMilliCPU)}`];
  if (load) text.push(`in use ${cpus(load.usageMilliCPU)} of ${load.sizeCPUs}`);
  if (load?.bandHighPercent) text.push(`band ${load.bandLowPercent} to ${load.bandHighPercent} %`);
  if (load?.wantedCPUs) text.push(`wants ${load.wantedCPUs}`);
  if (load?.shortCPUs) text.push(`lacks ${load.shortCPUs}`);
  if (load?.pressureFraction) text.push(`waiting ${percent(load.pressureFraction)} of the time`);
  say(words, text.join(' · '));
}

function meter(m) {
  return make('div', { class: `meter ${m.look ?? ''}` },
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
  tanks.show((snapshot.pools ?? []).map((pool, index) => ({ ...pool, index })), (pool) => pool.name);
  const { loop } = snapshot;
  if (!loop) {
    say(find('#batch-state'), 'There is no control loop: control.mode is off.');
    meters.show([], (m) => m.name);
    return;
  }
  const { batch, memory, node } = loop;
  const words = [`Batch work is ${batch.state}`];
  if (batch.keptPercent) words[0] += ` to ${batch.keptPercent} %`;
  if (batch.why) words.push(plain(batch.why));
  if (batch.nextChangeAt) words.push(`this changes at ${clock(Date.parse(batch.nextChangeAt))}`);
  if (loop.refusal?.newBatch) words.push(`new batch pods are refused: ${plain(loop.refusal.why)}`);
  if (loop.problem) words.push(`the loop does not run: ${plain(loop.problem)}`);
  if (loop.mode !== 'on') words.push(`the loop is in mode ${loop.mode}`);
  say(find('#batch-state'), `${words.join('; ')}.`);

  const limit = node.cpu.limitMilliCPU;
  const all = [{ name: 'CPUs in use', value: node.cpu.usageMilliCPU, of: limit, text: `${cpus(node.cpu.usageMilliCPU)}${limit ? ` of ${cpus(limit)}` : ''}` }];
  if (batch.known && !batch.unlimited) {
    all.push({ name: 'Batch CPUs', look: 'be', value: batch.usedMilliCPU, of: Math.max(batch.budgetMilliCPU, batch.usedMilliCPU), mark: batch.budgetMilliCPU, text: `${cpus(batch.usedMilliCPU)} of a budget of ${cpus(batch.budgetMilliCPU)}, requested ${cpus(batch.requestedMilliCPU)}, always ${cpus(batch.floorMilliCPU)}` });
  } else {
    all.push({ name: 'Batch CPUs', look: 'be', value: batch.usedMilliCPU, of: limit, text: `${cpus(batch.usedMilliCPU)}, ${batch.unlimited ? 'without a limit' : 'budget not known'}` });
  }
  const total = node.memory.totalBytes;
  if (total > 0) {
    all.push({ name: 'Memory in use', value: total - node.memory.availableBytes, of: total, text: `${bytes(total - node.memory.availableBytes)} of ${bytes(total)}, ${bytes(node.memory.availableBytes)} available` });
    all.push({ name: 'Batch memory', look: 'be', value: memory.usedBytes, of: total, mark: memory.goalBytes, text: `${bytes(memory.usedBytes)} held, goal ${bytes(memory.goalBytes)}${memory.limitBytes ? `, limit ${bytes(memory.limitBytes)}` : ''}` });
  }
  const waiting = node.pressure;
  if (waiting.measuredAt) {
    const worst = Math.max(waiting.cpuFraction, waiting.memoryFraction, waiting.ioFraction);
    all.push({ name: 'Pressure', value: worst, of: 1, text: `CPU ${percent(waiting.cpuFraction)}, memory ${percent(waiting.memoryFraction)}, I/O ${percent(waiting.ioFraction)} of the time` });
  }
  meters.show(all, (m) => m.name);
}
