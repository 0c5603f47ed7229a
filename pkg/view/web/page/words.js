// What the words on the page mean. The page explains each word where it shows it, and
// lists all of them at its end.

// Classes: a few words, and a sentence.
export const classes = {
  LSE: ['whole cores of its own', 'Latency-sensitive, exclusive: whole cores that nobody else uses.'],
  LSR: ['CPUs of its own', 'Latency-sensitive, reserved: CPUs of its own; others may use the hyperthreads beside them.'],
  LS: ['service on shared CPUs', 'Latency-sensitive: a service that shares the CPUs of a pool. This is the default.'],
  BE: ['batch work', 'Best effort: batch work, which gets what services leave.'],
  SYSTEM: ['daemon of the node', 'A daemon of the node, on the CPUs that the configuration gives to class SYSTEM, if there are any.'],
};

// Notes about a container, by the word that the filter knows: what the table says, and a sentence.
export const notes = {
  throttled: ['throttled by its CPU limit', 'Its CPU limit stopped it in more than 1 % of the quota periods.'],
  limited: ['CPU limit set by Sluice', 'The control loop has set another CPU limit than the one that was requested.'],
  warned: ['setting without effect', 'Something that it asks for has no effect; its details say why.'],
  lacks: ['feature missing or replaced', 'This node lacks a feature that it asks for; its details say what takes its place, if anything does.'],
  drift: ['changed from outside, repaired', 'Another program changed a setting, and Sluice repaired it.'],
  contested: ['another program keeps changing it', 'Another program changes a setting again and again, so Sluice waits longer before each repair.'],
  problem: ['setting not in force', 'The kernel does not have a value that Sluice wants; its details say why.'],
  oom: ['process killed: out of memory', 'The kernel killed a process in it because memory ran out.'],
  uncontrolled: ['counted but not placed', 'Sluice counts its requests, but may not set its CPUs.'],
};

// States of a grant of CPUs.
export const states = {
  reserved: 'reserved: its CPUs are kept until it starts',
  held: 'held: it has started with its CPUs',
};

// What the node does with batch work.
export const batchStates = {
  open: 'it may use what services leave',
  'no-new': 'what runs may finish, and no new batch pod starts',
  squeezed: 'it gets less CPU than services leave',
  closed: 'it gets only its floor, and no new batch pod starts',
  evicting: 'batch pods are being evicted',
};

// What a controller does to an object, by its name and the action.
const deeds = {
  'pools grow': 'gets more CPUs',
  'pools shrink': 'gives up CPUs',
  'pools stale': 'keeps its CPUs, since measurements are missing',
  'pools share': 'all pools share all CPUs',
  'pools small': 'is too little loaded for a pool of its own',
  'pools large': 'is loaded enough for a pool of its own',
  'batch squeeze': 'batch work gets less CPU',
  'batch grow': 'batch work gets more CPU',
  'batch stale': 'measurements are missing, so services count with what they request',
  'batch fresh': 'measurements are back',
  'batch lend': 'lends its idle CPUs to batch work',
  'batch return': 'has its CPUs for itself again',
  'burst raise': 'gets a higher CPU limit for a while',
  'burst lower': 'gets a lower CPU limit, back towards its own',
  'burst advise': 'needs a larger CPU limit',
  'demotion demote': 'gets less CPU, since a higher pool is short of it',
  'demotion restore': 'gets its CPU time back',
  'culprit squeeze': 'gets less CPU, since a service waits while it uses most',
  'culprit confirm': 'keeps its lower CPU limit, since the service waits less with it',
  'culprit acquit': 'gets its CPU back, since the service waits nevertheless',
  'culprit unclear': 'answers later than its objective, and nothing tells what it lacks',
  'culprit ease': 'gets some of its CPU back',
  'culprit restore': 'has its whole CPU again',
  'slo squeeze': 'batch work gets less CPU, since a service waits longer than its bound',
  'slo grow': 'batch work gets some of its CPU back, since all services keep their bounds',
  'slo advise': 'waits longer than its bound without batch work, too',
  'memory limit': 'gets a memory limit',
  'memory raise': 'gets a higher memory limit',
  'memory lower': 'gets a lower memory limit',
  'memory reclaim': 'has memory reclaimed from it',
  'memory hold': 'batch work keeps its memory limit, since measurements are missing',
  'cache narrow cache': 'gets a smaller share of the cache',
  'cache widen cache': 'gets a larger share of the cache',
  'cache narrow bandwidth': 'gets a smaller share of the memory bandwidth',
  'cache widen bandwidth': 'gets a larger share of the memory bandwidth',
  'rules trigger': 'begins to act',
  'rules throttle': 'lowers CPU limits',
  'rules raise': 'raises CPU limits again',
  'rules restore': 'stops acting',
  'rules refused': 'cannot act on this kernel',
  'windows open': 'batch work may run',
  'windows close': 'batch work is closed',
  'windows take no new': 'no new batch work starts',
  'windows evict': 'batch work is evicted',
  'notices give': 'batch pods that ask for it get a notice',
  'notices withdraw': 'batch pods have no notice any more',
  'failsafe act': 'the failsafe gave services what they request',
  'eviction evict': 'is evicted',
  'eviction failed': 'could not be evicted',
  'eviction nobody': 'has no pod that may be evicted',
  'eviction still there': 'still runs after its eviction',
  'interference suffers': 'waits more because of batch work',
  'interference calm': 'no longer waits because of batch work',
  'noisy advise': 'has more running tasks than CPUs that it asked for',
  'noisy calm': 'fits into the CPUs that it asked for again',
};

// deed says in plain words what a decision does. A decision that is not listed has the name of its action.
export const deed = (d) => (Object.hasOwn(deeds, `${d.controller} ${d.action}`) ? deeds[`${d.controller} ${d.action}`] : d.action);

// glossary explains the other words.
export const glossary = {
  'batch work': 'Containers of class BE. The other classes are services.',
  band: 'The load between whose ends a pool keeps its size: above it the pool gets CPUs, below it it gives some up.',
  'requested-CPU fraction (RCF)': "A pool's CPUs in percent of the CPUs that its containers request. The key rcf bounds it.",
  short: 'A pool is short of CPUs if the control loop wants more for it than lower pools can give.',
  budget: 'The CPU that all batch work together may use now.',
  floor: 'What batch work always has, however busy services are.',
  goal: 'The memory that batch work may hold in the end.',
  pinned: 'CPUs that one container has for itself.',
  reserved: 'CPUs that the configuration withholds from all containers. Of a container: its CPUs are kept for it until it starts.',
  lent: 'Batch work runs on pinned CPUs of class LSR while these are idle.',
  waiting: "The kernel's pressure: the share of time in which at least one task waited for CPU, memory or I/O.",
  throttled: 'Stopped by a CPU limit until the next quota period, which begins every 100 ms unless set otherwise.',
  preview: 'A mode that decides and reports, and changes nothing.',
};
