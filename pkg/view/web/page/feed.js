// What the plugin tells, while somebody looks.
import { merge } from './patch.js';

const silence = 10_000; // ms: a line comes each second
const pauses = [1, 2, 4, 8, 15, 30]; // s, from one attempt to the next

async function ask(path, signal) {
  const answer = await fetch(path, { cache: 'no-store', signal });
  if (answer.status === 401) {
    location.replace('login');
    return new Promise(() => {}); // the page goes
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  return answer;
}

// remember parses a text, and gives what it gave before while the text is the same.
function remember() {
  let [last, value] = ['', null];
  return (text) => {
    if (text !== last) [last, value] = [text, JSON.parse(text)];
    return value;
  };
}

// read hands over each status of one connection, with the machine, until it fails.
async function read(control, machineOf, show) {
  const { signal } = control;
  let alarm;
  const hear = () => {
    clearTimeout(alarm);
    alarm = setTimeout(() => control.abort(new Error(`nothing came for ${silence / 1000} s`)), silence);
  };
  try {
    hear();
    const stream = await ask('v1/stream', signal);
    const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    let [status, machine, madeOf, begun] = [null, null, '', ''];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Error('the plugin has ended the connection');
      hear();
      const lines = (begun + value).split('\n');
      begun = lines.pop();
      if (!lines.length) continue;
      status = lines.reduce((before, line) => merge(before, JSON.parse(line)), status);
      const online = `${status.machine.online}/${status.machine.offline ?? ''}`;
      if (online !== madeOf) {
        machine = machineOf(await (await ask('v1/topology', signal)).text());
        madeOf = online;
      }
      signal.throwIfAborted();
      queueMicrotask(() => show(status, machine)); // its mistakes are none of the connection's
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    clearTimeout(alarm);
    control.abort();
  }
}

// follow gives each status to show, with the machine. Where it has lost the connection,
// it tells lost why, and in how many seconds it tries again; 0 is now. A page that nobody
// sees has no connection. What follow returns tries at once.
export function follow(show, lost) {
  const machineOf = remember();
  let current = null;
  let failures = 0;
  let why = '';
  let timer;

  function connect() {
    clearTimeout(timer);
    current?.abort();
    current = null;
    if (document.hidden) return;
    if (failures) lost(why, 0);
    const control = new AbortController();
    current = control;
    read(control, machineOf, (status, machine) => {
      failures = 0;
      show(status, machine);
    }).catch((error) => {
      if (control !== current) return; // it was ended here
      why = error instanceof TypeError ? `the plugin does not answer (${error.message})` : error.message;
      wait(pauses[Math.min(failures, pauses.length - 1)]);
      failures++;
    });
  }
  function wait(seconds) {
    lost(why, seconds);
    timer = setTimeout(() => (seconds > 1 ? wait(seconds - 1) : connect()), 1000);
  }
  document.addEventListener('visibilitychange', connect);
  connect();
  return connect;
}
