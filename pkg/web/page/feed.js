// What the plugin tells, while somebody looks.

const period = 1000; // ms

async function read(path) {
  const answer = await fetch(path, { cache: 'no-store' });
  if (answer.status === 401) {
    location.replace('login');
    return new Promise(() => {}); // the page goes
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  return answer.json();
}

// follow gives each status to show, with the machine, and each failure to fail. A page
// that nobody sees asks nothing.
export function follow(show, fail) {
  let waiting = false;
  let machine = null;
  let madeOf = '';

  async function look() {
    let status;
    try {
      status = await read('v1/status');
      const online = `${status.machine.online}/${status.machine.offline}`;
      if (!machine || online !== madeOf) {
        machine = await read('v1/topology');
        madeOf = online;
      }
    } catch (error) {
      fail(error);
      return;
    }
    show(status, machine);
  }
  async function run() {
    if (document.hidden || waiting) return;
    waiting = true;
    try {
      await look();
    } finally {
      setTimeout(() => {
        waiting = false;
        run();
      }, period);
    }
  }
  document.addEventListener('visibilitychange', run);
  run();
}
