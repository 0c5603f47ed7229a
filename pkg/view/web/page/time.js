// The time line.
import { Decisions } from './decisions.js';
import { ago, clock, find, plain, put, say, zone } from './dom.js';
import { deed } from './words.js';

const slider = find('#at');
const between = 5000; // ms, from one announcement to the next

export class TimeLine {
  lost = false; // the connection: the newest snapshot is not of now
  #past;
  #held = null; // the snapshot that is looked at; null the newest
  #said = 0;
  #unsaid = [];
  #list = new Decisions();

  constructor(past, draw) {
    this.#past = past;
    slider.addEventListener('input', () => {
      this.#hold(past.near(Number(slider.value) * 1000 + 999));
      draw();
    });
    for (const back of ['#live', '#looking button']) {
      find(back).addEventListener('click', () => {
        this.#hold(null);
        draw();
        find('#live').focus();
      });
    }
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
    const time = `${clock(at)} ${zone(at)}`;
    const words = this.#held ? `${time}, ${ago(last - at)} ago` : `${time}, ${this.lost ? 'last seen' : 'live'}`;
    put(find('#looking'), 'hidden', !this.#held);
    if (this.#held) say(find('#looking span'), `You look at the past: ${words}.`);
    say(find('#shown'), words);
    put(slider, 'aria-valuetext', words);
    put(find('#live'), 'aria-pressed', String(!this.#held));
    document.documentElement.classList.toggle('past', Boolean(this.#held));
    this.#list.show(this.#held ? decisions.filter((d) => d.at <= at) : decisions, at);
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
    say(find('#said'), `${more}${plain(d.object)}: ${plain(deed(d))}. ${plain(d.why)}`);
  }
}
