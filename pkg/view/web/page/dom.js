// Elements and texts. Whatever comes from the node becomes text, never markup.

// Signs that can't be seen, or turn the text around them: shown by their numbers.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// plain is a text from the node as it may be shown, cut where it is too long.
export function plain(text, most = 200) {
  text = String(text ?? '');
  if (text.length > most) text = `${text.slice(0, most)}… (${text.length} signs)`;
  return text.replace(unseen, (sign) => `⟨${sign.charCodeAt(0).toString(16).padStart(4, '0')}⟩`);
}

export const find = (selector, within = document) => within.querySelector(selector);

// make makes an element. Attributes that are null are left out; children are elements
// and texts.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) put(element, key, value);
  element.append(...children);
  return element;
}

// put sets an attribute where it differs; null takes it away.
export function put(element, key, value) {
  const text = value === true ? '' : String(value);
  if (value === null || value === false) {
    if (element.hasAttribute(key)) element.removeAttribute(key);
  } else if (element.getAttribute(key) !== text) {
    element.setAttribute(key, text);
  }
}

// say sets the text of an element that has nothing else, where it differs. To change
// the text that is there costs a third of putting another in its place.
export function say(element, text) {
  const there = element.firstChild;
  if (!there) element.append(text);
  else if (there.data !== text) there.data = text;
}

// Rows keeps one element for each key, in the order in which they are given.
export class Rows {
  #parent;
  #make;
  #update;
  #have = new Map();

  constructor(parent, make, update) {
    [this.#parent, this.#make, this.#update] = [parent, make, update];
  }

  show(items, keyOf) {
    const wanted = new Map(items.map((item) => [keyOf(item), item])); // of two alike, one
    for (const [key, element] of this.#have) {
      if (wanted.has(key)) continue;
      element.remove();
      this.#have.delete(key);
    }
    const focused = document.activeElement;
    let next = this.#parent.firstElementChild;
    for (const [key, item] of wanted) {
      let element = this.#have.get(key);
      if (!element) {
        element = this.#make(item);
        this.#have.set(key, element);
      }
      this.#update(element, item);
      if (element === next?.nextElementSibling) { // next comes later: it alone moves, not all that follow it
        next.remove();
        next = element;
      }
      if (element === next) {
        next = next.nextElementSibling;
      } else {
        this.#parent.insertBefore(element, next);
      }
    }
    // What is moved loses the focus.
    if (focused !== document.activeElement && this.#parent.contains(focused)) focused.focus({ preventScroll: true });
  }
}

export const count = (n, one) => `${n} ${one}${n === 1 ? '' : 's'}`;
// Units. CPU amounts come in thousandths of a CPU, memory in bytes.
const number = (n, digits) => String(Number(n.toFixed(digits)));
export const cpus = (milli) => number(milli / 1000, 2);
export const cpusAligned = (milli) => (milli / 1000).toFixed(2); // in a column
export const percent = (share) => `${number(100 * share, 0)}\u00a0%`; // one word
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  for (; Math.abs(n) >= 1024 && at < units.length - 1; at++) n /= 1024;
  return `${number(n, n < 10 && at > 0 ? 1 : 0)}\u00a0${units[at]}`;
}

// Times are the viewer's, or UTC as in most logs. Those of another day have their date.
let utc = false;
export const useUTC = (is) => {
  utc = is;
};
const shifted = (ms) => new Date(ms - (utc ? 0 : 60_000 * new Date(ms).getTimezoneOffset())).toISOString();
export const clock = (ms) => shifted(ms).slice(11, 19);
const date = (ms) => shifted(ms).slice(0, 10);
export const stamp = (ms, now) => (date(ms) === date(now) ? clock(ms) : `${date(ms)} ${clock(ms)}`);
export function zone(ms) {
  const east = utc ? 0 : -new Date(ms).getTimezoneOffset(); // minutes
  const two = (n) => String(Math.floor(n)).padStart(2, '0');
  return east ? `UTC${east < 0 ? '−' : '+'}${two(Math.abs(east) / 60)}:${two(Math.abs(east) % 60)}` : 'UTC';
}
export const moment = (ms) => `${date(ms)} ${clock(ms)} ${zone(ms)}`;
export function ago(ms) {
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  return s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${number(s / 3600, 1)} h`;
}
