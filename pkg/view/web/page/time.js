// The time line, and the decisions on it.
import { ago, clock, find, make, plain, put, Rows, say } from './dom.js';

const slider = find('#at');
const listed = 200; // decisions
const between = 5000; // ms, from one announcement to the next

export class TimeLine {
  lost = false; // the connection: the newest snapshot is not of now
  #past;
  #held = null; // the snapshot that is looked at; null the newest
  #said = 0;
  #unsaid = [];
  #list = new Rows(find('#decisions ol'), (d) => {
    const took = d.steps > 1 ? ` in ${ago(Date.parse(d.lastStepAt) - d.at)}, ${d.steps} steps${d.going ? ' so far' : ''}` : '';
    const change = [d.from, d.to].filter(Boolean).map((text) => plain(text)).join(' → ') + took;
    return make('li', { class: d.mode === 'preview' ? 'preview' : null },
      make('time', { datetime: d.time }, clock(d.at)), ' ',
      make('b', {}, `${plain(d.controller)}: ${plain(d.action)} `), make('bdi', {}, plain(d.object)), change && ` ${change}`,
      d.mode === 'preview' ? ' (preview: not done)' : '', make('span', {}, plain(d.why, 1000)));
  }, () => {});

  constructor(past, draw) {
    this.#past = past;
    slider.addEventListener('input', () => {
      this.#hold(past.near(Number(slider.value) * 1000 + 999));
      draw();
    });
    find('#live').addEventListener('click', () => {
      this.#hold(null);
      draw();
    });
  }

  // snapshot is the one to show.
  get snapshot() {
    const newest = this.#past.snapshots.at(-1);
    if (this.#held && !this.#past.snapshots.includes(this.#held)) this.#held = this.#past.snapshots[0];
    return this.#held ?? newest;
  }

  #hold(snapshot) {
    this.#held = snapshot === this.#past.snapshots.at(-1) ? null : snapshot;
  }

  show() {
    const { snapshots, decisions } = this.#past;
    const [first, last, { at }] = [snapshots[0].at, snapshots.at(-1).at, this.snapshot];
    put(slider, 'min', Math.floor(first / 1000));
    put(slider, 'max', Math.floor(last / 1000));
    if (!this.#held) slider.value = slider.max; // else it stays where it was put, between snapshots too
    const words = this.#held ? `${clock(at)}, ${ago(last - at)} ago` : `${clock(at)}, ${this.lost ? 'last seen' : 'live'}`;
    say(find('#shown'), words);
    put(slider, 'aria-valuetext', words);
    put(find('#live'), 'aria-pressed', String(!this.#held));
    document.documentElement.classList.toggle('past', Boolean(this.#held));
    const until = decisions.filter((d) => d.at <= (this.#held ? at : Infinity)).slice(-listed).toReversed();
    this.#list.show(until, (d) => [d.key, d.steps, d.going].join('\n')); // made anew at each step
    this.#strip(first, last);
  }

  // #strip draws the node's load and a line for each decision.
  #strip(first, last) {
    const { snapshots, decisions } = this.#past;
    const x = (at) => (last > first ? (1000 * (at - first)) / (last - first) : 1000).toFixed(1);
    const points = snapshots.map((s) => {
      const cpu = s.loop?.node.cpu;
      const share = cpu?.limitMilliCPU ? Math.min(1, cpu.usageMilliCPU / cpu.limitMilliCPU) : 0;
      return `${x(s.at)},${(38 - 36 * share).toFixed(1)}`;
    });
    put(find('#strip polyline'), 'points', points.join(' '));
    put(find('#strip path'), 'd', decisions.filter((d) => d.at >= first).map((d) => `M${x(d.at)} 0v8`).join(''));
  }

  // announce tells a screen reader what was decided, not too often.
  announce(decided) {
    this.#unsaid.push(...decided);
    const now = performance.now();
    if (!this.#unsaid.length || this.#held || (this.#said && now - this.#said < between)) return;
    this.#said = now;
    const d = this.#unsaid.at(-1);
    const more = this.#unsaid.length > 1 ? `${this.#unsaid.length} decisions, the last: ` : '';
    this.#unsaid = [];
    say(find('#said'), `${more}${plain(d.controller)}: ${plain(d.action)} ${plain(d.object)}. ${plain(d.why)}`);
  }
}
