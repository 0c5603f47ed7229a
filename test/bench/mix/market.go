package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/runtime"
)

// Each job computes for jobWork with one thread, and has jobCPU at most. It holds nine tenths of the
// memory that it requests.
const (
	jobCPU  workload.MilliCPU = 100
	jobWork                   = 30 * time.Second
)

// market publishes what the plugin offers, by the rules of sluice-kube, and starts a job whenever
// one fits into what is published, as a scheduler with a long queue would.
type market struct {
	bed      *bed
	sluice   *runtime.Sluice
	memory   int64 // that a job requests, in bytes
	progress func(format string, args ...any)

	seller  *selling.Seller
	object  selling.Object
	jobs    []*job        // that run
	refused time.Duration // no job is tried until then
	sum     report.Morning
	samples []sold
	times   []time.Duration // of the jobs that ended
}

// job is a batch job that runs.
type job struct {
	pod     *runtime.Pod
	pid     int
	begun   time.Duration
	done    time.Duration // CPU time
	noticed time.Duration // when it was told that pods will be evicted; 0 for never
}

// sold is the state of the market at one time. CPUs are those of jobs, except for published.
type sold struct {
	at                         time.Duration
	published, requested, used float64
	evicted                    int
}

func newMarket(b *bed, sluice *runtime.Sluice, memory int64, progress func(string, ...any)) *market {
	return &market{
		bed: b, sluice: sluice, memory: memory, progress: progress,
		seller: selling.NewSeller(map[selling.Kind]string{selling.BatchCPU: "cpu", selling.BatchMemory: "memory"}),
		object: selling.Object{UID: "node", Found: map[string]*selling.Condition{}},
	}
}

// step follows the node once a second.
func (m *market) step(at time.Duration) error {
	s, err := m.sluice.Status()
	if err != nil {
		return err
	}
	says, err := selling.NewReport(s)
	if err != nil {
		return err
	}
	now := sold{at: at, requested: float64(len(m.jobs)) * float64(jobCPU) / 1000}
	if err := m.follow(at, &now); err != nil {
		return err
	}
	m.publish(at, says)
	now.published = float64(m.object.Amounts[selling.BatchCPU]) / 1000
	m.samples = append(m.samples, now)
	if at%(30*time.Second) == 0 {
		m.progress("%6v  published %.2f CPUs, %5.1f GiB; %d jobs request %.2f and use %.2f CPUs, %d have ended, %d were evicted; offer %+v, closed: %v",
			at, now.published, float64(m.object.Amounts[selling.BatchMemory])/(1<<30), len(m.jobs), now.requested, now.used, m.sum.Done, m.sum.Evicted, s.Loop.Offer.ShortTerm, says.Closed)
	}
	if m.fits() && at >= m.refused {
		return m.start(at)
	}
	return nil
}

// publish lets the seller decide what the node object has.
func (m *market) publish(at time.Duration, says *selling.Report) {
	in := selling.Input{Now: at + time.Second, Heard: at + time.Second, Report: says, Connected: true, Object: &m.object}
	for _, j := range m.jobs {
		p := selling.Pod{UID: j.pod.UID, Admitted: true}
		p.Requests[selling.BatchCPU], p.Requests[selling.BatchMemory] = int64(jobCPU), m.memory
		in.Pods = append(in.Pods, p)
		in.Requested = nodereport.Amount{MilliCPU: in.Requested.MilliCPU + int64(jobCPU), MemoryBytes: in.Requested.MemoryBytes + m.memory}
	}
	if out := m.seller.Step(&in); out.Publish != nil {
		m.object.Amounts, m.object.Report = maps.Clone(out.Publish.Amounts), out.Publish.Report
		for _, c := range out.Publish.Conditions {
			m.object.Found[c.Type] = &c
		}
	}
}

// fits reports whether another job fits into what is published.
func (m *market) fits() bool {
	n := int64(len(m.jobs) + 1)
	open := m.object.Found[selling.BatchOpen]
	return open != nil && open.True &&
		n*int64(jobCPU) <= m.object.Amounts[selling.BatchCPU] && n*m.memory <= m.object.Amounts[selling.BatchMemory]
}

func (m *market) start(at time.Duration) error {
	grant := fmt.Sprintf("{c: {cpu: %dm, memory: %dMi}}", jobCPU, m.memory/mib)
	pod, err := m.bed.rt.Run(runtime.PodSpec{
		Name:        "job-" + strconv.Itoa(m.sum.Started+m.sum.Refused),
		Annotations: map[string]string{"grant.sluice.dev": grant, "notice.sluice.dev": "file"},
		Containers:  []runtime.ContainerSpec{{Name: "c", Args: []string{fmt.Sprintf("touch=%d", m.memory/mib*9/10), "spin=1"}}},
	})
	if err != nil && strings.Contains(err.Error(), "sluice") { // the node refuses it, and the kubelet would try again
		m.sum.Refused++
		m.refused = at + 10*time.Second
		return nil
	}
	if err != nil {
		return err
	}
	pids, err := pod.Container("c").PIDs()
	if err == nil && len(pids) != 1 {
		err = fmt.Errorf("job %s has the processes %v, want one", pod.UID, pids)
	}
	if err != nil {
		return errors.Join(err, pod.Remove())
	}
	m.jobs = append(m.jobs, &job{pod: pod, pid: pids[0], begun: at})
	m.sum.Started++
	return nil
}

// follow removes jobs that have ended, or were evicted.
func (m *market) follow(at time.Duration, now *sold) error {
	var running []*job
	for _, j := range m.jobs {
		pids, err := j.pod.Container("c").PIDs()
		if err != nil {
			return err
		}
		done := j.done
		if used, err := j.pod.Container("c").CPUTime(); err == nil && used > done {
			done = used
		}
		now.used += (done - j.done).Seconds()
		j.done = done
		j.listen(at)
		switch {
		case len(pids) == 0:
			m.sum.Evicted++
			m.sum.LostCPUSeconds += j.done.Seconds()
			if j.noticed > 0 {
				m.sum.Warned++
				m.sum.Warning = append(m.sum.Warning, at-j.noticed)
			}
		case j.done >= jobWork:
			m.sum.Done++
			m.sum.DoneCPUSeconds += j.done.Seconds()
			m.times = append(m.times, at-j.begun)
		default:
			running = append(running, j)
			continue
		}
		if err := j.pod.Remove(); err != nil {
			return err
		}
	}
	m.jobs = running
	now.evicted = m.sum.Evicted
	return nil
}

// listen reads the notice of a job's pod.
func (j *job) listen(at time.Duration) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(j.pid), "root/run/sluice-notice/notice.json"))
	switch told := strings.Contains(string(text), `"kind":"evict"`); {
	case err != nil: // the job has ended
	case !told:
		j.noticed = 0
	case j.noticed == 0:
		j.noticed = max(at, 1)
	}
}

// phase is what was sold between two times.
func (m *market) phase(from, to time.Duration) (p report.MorningPhase) {
	n := 0
	for i, s := range m.samples {
		if s.at < from || s.at >= to {
			continue
		}
		n++
		p.Published += s.published
		p.Requested += s.requested
		p.Used += s.used
		if i > 0 {
			p.Evicted += s.evicted - m.samples[i-1].evicted
		}
	}
	for _, sum := range []*float64{&p.Published, &p.Requested, &p.Used} {
		*sum /= float64(max(n, 1))
	}
	return p
}

// result is the sum of all phases. Jobs that run count with the time that they have had.
func (m *market) result(at time.Duration) report.Morning {
	for _, j := range m.jobs {
		m.sum.RunningCPUSeconds += j.done.Seconds()
		m.times = append(m.times, at-j.begun)
	}
	m.sum.Median, m.sum.Longest = load.Quantile(m.times, 0.5), load.Quantile(m.times, 1)
	return m.sum
}

// close removes the jobs that run.
func (m *market) close() error {
	var errs []error
	for _, j := range m.jobs {
		errs = append(errs, j.pod.Remove())
	}
	return errors.Join(errs...)
}
