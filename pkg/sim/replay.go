package sim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Replay turns a recording into a scenario with the same machine, whose containers want what the
// recorded ones used, under another configuration. Each container is a pod of its own.
//
// What a container wanted but did not get can't be known. If its quota or other containers held it
// back, its usage is raised by the fraction of time in which it waited. Its memory follows its
// load between the lowest and the highest recorded amount. Response times are not recorded, so all
// online containers are assumed to be services of the same kind.
func Replay(r *Recording, cfg *config.Config, s Service) (*Scenario, error) {
	first, last := r.Snapshots[0].Now, r.Snapshots[len(r.Snapshots)-1].Now
	out := &Scenario{machine: r.Machine, Config: cfg}
	out.defaults()
	out.About = "a recording"
	out.Start, out.Duration = Time(first.UTC()), last.Sub(first).Truncate(time.Second)
	if out.Duration < time.Second || out.Duration > maxDuration {
		return nil, fmt.Errorf("it lasts %s; it must be 1s to %dh", last.Sub(first), int(maxDuration.Hours()))
	}
	for _, c := range r.Known {
		if p := r.pod(c, s); p != nil {
			out.Pods = append(out.Pods, *p)
		}
	}
	if len(out.Pods) == 0 {
		return nil, errors.New("no container of it was ever looked at")
	}
	if len(out.Pods) > maxPods {
		return nil, fmt.Errorf("it has %d containers; %d are as many as can be", len(out.Pods), maxPods)
	}
	return out, nil
}

// pod returns a recorded container as a pod, or nil if it was never measured.
func (r *Recording) pod(c Recorded, s Service) *Pod {
	start := r.Snapshots[0].Now
	p := &Pod{
		Name:        strings.NewReplacer("/", ".", "_", "-").Replace(c.Ref) + "." + prefix(c.ID),
		Annotations: map[string]string{},
		Requests:    Resources{Cores(c.Request) / 1000, Bytes(c.Memory)},
		Limits:      Resources{Cores(c.Limit) / 1000, Bytes(c.MemoryLimit)},
		Load:        Load{Curve: Trace},
	}
	p.Requests.CPU, p.Requests.Memory = within(p.Requests.CPU, p.Limits.CPU), within(p.Requests.Memory, p.Limits.Memory)
	if c.Class == workload.LS || c.Class == workload.BE {
		p.Annotations["class.sluice.dev"] = c.Class.String()
	}
	if c.Pool != "" && c.Class == workload.LS {
		p.Annotations["pool.sluice.dev"] = c.Pool
	}
	if c.Class != workload.BE {
		p.Service = s
	}
	least, most := int64(math.MaxInt64), int64(0)
	seen := time.Duration(-1)
	for i := range r.Snapshots {
		for j := range r.Snapshots[i].Containers {
			o := &r.Snapshots[i].Containers[j]
			if o.ID != c.ID || o.CPU.At.IsZero() {
				continue
			}
			at := r.Snapshots[i].Now.Sub(start)
			if seen < 0 {
				p.Start = at
			}
			if seen = at; o.Memory.Anon > 0 {
				least, most = min(least, o.Memory.Anon), max(most, o.Memory.Anon)
				p.Memory.Cache = max(p.Memory.Cache, Bytes(o.Memory.Cache))
			}
			cpu := float64(o.CPU.Usage) / 1000 * (1 + min(1, o.Pressure.CPU))
			p.Load.points = append(p.Load.points, point{at - p.Start, cpu})
			p.Load.CPU = max(p.Load.CPU, Cores(cpu))
		}
	}
	if seen < 0 {
		return nil
	}
	if end := r.Snapshots[len(r.Snapshots)-1].Now.Sub(start); seen < end {
		p.End = max(seen, p.Start+time.Second)
	}
	p.Memory.Anon, p.Memory.Low, p.Memory.Speed = Bytes(most), 1, 1<<30
	if most > 0 {
		p.Memory.Low = Percent(float64(least) / float64(most))
	}
	return p
}

// within lowers a request to its limit; 0 stands for no limit.
func within[T Cores | Bytes](request, limit T) T {
	if limit > 0 {
		return min(request, limit)
	}
	return request
}

func prefix(id string) string { return id[:min(len(id), 8)] }

// noFiles is a host without /proc and /sys.
type noFiles struct{}

// Open finds no file.
func (noFiles) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// LoadRecording reads a recording and turns it into a scenario; see Replay.
func LoadRecording(r io.Reader, cfg *config.Config, s Service) (*Scenario, error) {
	recording, err := ReadRecording(r)
	if err != nil {
		return nil, err
	}
	return Replay(recording, cfg, s)
}

// read returns the scenario's machine and the host that the agent sees.
func (s *Scenario) read() (*topology.Machine, fs.FS, error) {
	if s.machine != nil {
		return s.machine, noFiles{}, nil
	}
	return readMachine(s.Machine)
}
