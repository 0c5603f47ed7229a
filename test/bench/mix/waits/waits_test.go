package waits

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// example is a trace of two CPUs. Thread 10 of the service wakes on CPU 0, which batch work (20) runs on for
// another 1 ms. It is preempted by the generator (30), and then waits for batch work, until it moves to CPU 1,
// whose idle task takes 0.5 ms to let it run. In the end, it twice wakes CPU 1 again, which traces no switch: the first
// time takes 0.1 ms, and the second one an unknown time.
const example = `# tracer: nop
   a b-19    [000] d..2.  5.000000: sched_switch: prev_comm=a b prev_pid=19 prev_prio=120 prev_state=S ==> next_comm=probe next_pid=20 next_prio=120
   x [1]-7   [001] d..2.  5.000500: sched_switch: prev_comm=x [1] prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
   mix-30    [001] d..4.  5.001000: sched_waking: comm=nginx pid=10 prio=120 target_cpu=000
   mix-30    [001] d..4.  5.001100: sched_waking: comm=other pid=11 prio=120 target_cpu=000
   mix-30    [001] d..2.  5.001200: sched_switch: prev_comm=mix prev_pid=30 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
   probe-20  [000] d..2.  5.002000: sched_switch: prev_comm=probe prev_pid=20 prev_prio=120 prev_state=R ==> next_comm=nginx next_pid=10 next_prio=120
   nginx-10  [000] d..4.  5.002500: sched_waking: comm=nginx pid=10 prio=120 target_cpu=000
   nginx-10  [000] d..2.  5.003000: sched_switch: prev_comm=nginx prev_pid=10 prev_prio=120 prev_state=R+ ==> next_comm=mix next_pid=30 next_prio=120
   mix-30    [000] d..2.  5.003100: sched_switch: prev_comm=mix prev_pid=30 prev_prio=120 prev_state=S ==> next_comm=probe next_pid=20 next_prio=120
   <idle>-0  [001] d..2.  5.005100: sched_migrate_task: comm=nginx pid=10 prio=120 orig_cpu=0 dest_cpu=1
   <idle>-0  [001] d..2.  5.005600: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=nginx next_pid=10 next_prio=120
   nginx-10  [001] d..2.  5.006000: sched_switch: prev_comm=nginx prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
   probe-20  [000] d..4.  5.007000: sched_waking: comm=nginx pid=10 prio=120 target_cpu=001
   <idle>-0  [001] dNh2.  5.007100: sched_wakeup: comm=nginx pid=10 prio=120 target_cpu=001
   nginx-10  [001] d..2.  5.009000: sched_switch: prev_comm=nginx prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
   probe-20  [000] d..4.  5.010000: sched_waking: comm=nginx pid=10 prio=120 target_cpu=001
   nginx-10  [001] d..2.  5.012000: sched_switch: prev_comm=nginx prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=probe next_pid=21 next_prio=120
`

func TestRead(t *testing.T) {
	t.Parallel()
	names := map[int]string{Idle: "idle", 10: "service", 20: "batch", 21: "batch", 30: "generator"}
	got, err := Read(strings.NewReader(example), []int{10}, func(t Task) string { return names[t.TID] })
	if err != nil {
		t.Fatal(err)
	}
	const us = time.Microsecond
	if want := (map[string]time.Duration{"batch": 3000 * us, "generator": 100 * us, "idle": 600 * us}); !maps.Equal(got.Sum, want) {
		t.Errorf("sums %v, want %v", got.Sum, want)
	}
	if want := (map[string]time.Duration{"batch": 2000 * us, "generator": 100 * us, "idle": 500 * us}); !maps.Equal(got.Longest, want) {
		t.Errorf("longest %v, want %v", got.Longest, want)
	}
	got.Add(Waits{Sum: map[string]time.Duration{"idle": us}, Longest: map[string]time.Duration{"idle": us}})
	if got.Sum["idle"] != 601*us || got.Longest["idle"] != 500*us {
		t.Errorf("added: %v, longest %v", got.Sum["idle"], got.Longest["idle"])
	}
}

func TestReadRefusesOtherFormats(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"sched_switch: prev_pid=x", "sched_waking: comm=nginx", "sched_migrate_task: pid=1"} {
		if _, err := Read(strings.NewReader("a-1 [000] d..2. 5.000000: "+event+"\n"), nil, nil); err == nil {
			t.Errorf("%q has no error", event)
		}
	}
}
