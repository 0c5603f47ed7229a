// Package waits finds out from a kernel trace for whom the threads of a service waited.
package waits

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"
)

// Events are the trace events that Read needs, by their names in tracefs.
var Events = []string{"sched/sched_switch", "sched/sched_waking", "sched/sched_wakeup", "sched/sched_migrate_task"}

// Idle is the thread ID of the idle task of each CPU. If a thread waits while its CPU idles, the CPU
// is on its way out of sleep, or the hypervisor has not yet run it.
const Idle = 0

// Waits holds for how long threads of a service could run and did not, by what ran meanwhile on their CPU.
type Waits struct {
	Sum     map[string]time.Duration // of all waits, by group
	Longest map[string]time.Duration // of a single wait
}

// Add adds other waits.
func (w *Waits) Add(other Waits) {
	for group, d := range other.Sum {
		w.add(group, d, other.Longest[group])
	}
}

func (w *Waits) add(group string, sum, longest time.Duration) {
	if w.Sum == nil {
		w.Sum, w.Longest = map[string]time.Duration{}, map[string]time.Duration{}
	}
	w.Sum[group] += sum
	w.Longest[group] = max(w.Longest[group], longest)
}

var (
	lineFormat    = regexp.MustCompile(`^\s*(.*)-(\d+)\s+\[(\d+)\]\s+\S+\s+(\d+)\.(\d{6}): (sched_\w+): (.*)$`)
	switchFormat  = regexp.MustCompile(`^prev_comm=(.*) prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> next_comm=(.*) next_pid=(\d+) `)
	wakingFormat  = regexp.MustCompile(` pid=(\d+) prio=-?\d+ target_cpu=(\d+)`)
	migrateFormat = regexp.MustCompile(` pid=(\d+) prio=-?\d+ orig_cpu=\d+ dest_cpu=(\d+)`)
)

// Task is a thread as the trace names it.
type Task struct {
	TID  int
	Name string // at most 15 bytes; threads can change it
}

// wait is that of a thread that can run and does not.
type wait struct {
	cpu   int           // in whose queue it is
	since time.Duration // start of what is not yet in parts
	parts map[string]time.Duration
}

// reader follows the trace of a machine.
type reader struct {
	group   func(Task) string
	service map[int]bool          // threads of the service
	running map[int]Task          // by CPU
	last    map[int]time.Duration // time of the last event, by CPU
	waiting map[int]*wait
	waits   Waits
}

// Read reads the text of tracefs' file "trace" with Events. Service holds the threads of the service; group
// names to what a task belongs. What ran before the first switch of a CPU is not counted, and waits
// that have not ended are not either.
func Read(trace io.Reader, service []int, group func(Task) string) (Waits, error) {
	r := &reader{group: group, service: map[int]bool{}, running: map[int]Task{}, last: map[int]time.Duration{}, waiting: map[int]*wait{}}
	for _, tid := range service {
		r.service[tid] = true
	}
	lines := bufio.NewScanner(trace)
	for lines.Scan() {
		m := lineFormat.FindSubmatch(lines.Bytes())
		if m == nil {
			continue
		}
		task := Task{Name: string(m[1])}
		task.TID, _ = strconv.Atoi(string(m[2]))
		cpu, err := strconv.Atoi(string(m[3]))
		if err != nil {
			return r.waits, fmt.Errorf("trace line %.200q: %w", lines.Text(), err)
		}
		at, err := time.ParseDuration(string(m[4]) + "." + string(m[5]) + "s")
		if err != nil {
			return r.waits, fmt.Errorf("trace line %.200q: %w", lines.Text(), err)
		}
		r.seen(cpu, task)
		if err := r.event(at, cpu, string(m[6]), string(m[7])); err != nil {
			return r.waits, fmt.Errorf("trace line %.200q: %w", lines.Text(), err)
		}
		r.last[cpu] = at
	}
	return r.waits, lines.Err()
}

// seen handles that a task causes an event. Some kernels, as Linux 6.18 on virtual machines, trace no switch from the idle
// task, which follows at once the event that ended the sleep.
func (r *reader) seen(cpu int, task Task) {
	if before, known := r.running[cpu]; known && before.TID != task.TID {
		r.switched(r.last[cpu], cpu, before, task, false)
	}
}

func (r *reader) event(at time.Duration, cpu int, name, text string) error {
	switch name {
	case "sched_switch":
		m := switchFormat.FindStringSubmatch(text + " ")
		if m == nil {
			return fmt.Errorf("not a %s", name)
		}
		previous, next := Task{Name: m[1]}, Task{Name: m[4]}
		previous.TID, _ = strconv.Atoi(m[2])
		next.TID, _ = strconv.Atoi(m[5])
		r.switched(at, cpu, previous, next, m[3][0] == 'R')
	case "sched_waking", "sched_wakeup":
		tid, target, err := numbers(wakingFormat, text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if r.service[tid] && !r.runs(tid) {
			if r.waiting[tid] == nil {
				r.waiting[tid] = &wait{cpu: target, since: at, parts: map[string]time.Duration{}}
			}
			r.moves(at, tid, target)
		}
	case "sched_migrate_task":
		tid, target, err := numbers(migrateFormat, text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.moves(at, tid, target)
	}
	return nil
}

func numbers(format *regexp.Regexp, text string) (tid, cpu int, err error) {
	m := format.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, fmt.Errorf("no pid and CPU in %.100q", text)
	}
	tid, _ = strconv.Atoi(m[1])
	cpu, _ = strconv.Atoi(m[2])
	return tid, cpu, nil
}

// runs returns whether a CPU runs the thread.
func (r *reader) runs(tid int) bool {
	for _, running := range r.running {
		if running.TID == tid {
			return true
		}
	}
	return false
}

// moves puts a waiting thread into the queue of another CPU.
func (r *reader) moves(at time.Duration, tid, cpu int) {
	if w := r.waiting[tid]; w != nil {
		r.account(at, w)
		w.cpu = cpu
	}
}

// account adds the time since the last event to what ran on the thread's CPU.
func (r *reader) account(at time.Duration, w *wait) {
	if at < w.since { // the CPU's last event came before the thread woke, see seen
		return
	}
	if task, known := r.running[w.cpu]; known {
		w.parts[r.group(task)] += at - w.since
	}
	w.since = at
}

// switched handles the end of a task's time on a CPU, which then runs the next one. The first one could
// go on if it is runnable.
func (r *reader) switched(at time.Duration, cpu int, previous, next Task, runnable bool) {
	r.running[cpu] = previous
	for _, w := range r.waiting {
		if w.cpu == cpu {
			r.account(at, w)
		}
	}
	r.running[cpu] = next
	if w := r.waiting[next.TID]; w != nil {
		for group, d := range w.parts {
			r.waits.add(group, d, d)
		}
		delete(r.waiting, next.TID)
	}
	if r.service[previous.TID] && runnable {
		r.waiting[previous.TID] = &wait{cpu: cpu, since: at, parts: map[string]time.Duration{}}
	}
}
