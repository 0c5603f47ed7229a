package sim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Replay turns a recording into a scenario with the same machine, whose containers want what the
// recorded ones used, under another configuration. Each container is a pod of its own.
//
// What a container wanted but did not get can't be known. If its quota or other containers held it
// back, its usage is raised by the fraction of time in which it waited. Its memory follows its
// load between the lowest and the highest recorded amount. Response times are not recorded, so all
// online containers are assumed to be services of the same kind. In a recording of days, only the
// mean and the highest 5 s of each interval are known; see recorded.
func Replay(r *recording.Recording, cfg *config.Config, s Service) (*Scenario, error) {
	return ReplaySpan(r, Span{0, r.End.Sub(r.Start)}, cfg, s)
}

// Span is a part of a recording, as times since its start.
type Span struct{ From, To time.Duration }

// ReplaySpan replays a part of a recording; see Replay.
func ReplaySpan(r *recording.Recording, in Span, cfg *config.Config, s Service) (*Scenario, error) {
	out := &Scenario{machine: r.Machine, Config: cfg}
	out.defaults()
	out.About = "a recording"
	out.Start, out.Duration = Time(r.Start.Add(in.From).UTC()), (in.To - in.From).Truncate(time.Second)
	if out.Duration < time.Second || out.Duration > maxDuration {
		return nil, fmt.Errorf("it lasts %s; it must be 1s to %dh", in.To-in.From, int(maxDuration.Hours()))
	}
	for i := range r.Tracks {
		if p := pod(&r.Tracks[i], r.Interval, in, s); p != nil {
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

// pod returns a recorded container as a pod, or nil if it was never measured in the span.
func pod(t *recording.Track, interval time.Duration, in Span, s Service) *Pod {
	samples := t.Samples[find(t.Samples, in.From):find(t.Samples, in.To+1)]
	if len(samples) == 0 {
		return nil
	}
	p := &Pod{
		Name:        strings.NewReplacer("/", ".", "_", "-").Replace(t.Ref) + "." + prefix(t.ID),
		Annotations: map[string]string{},
		Requests:    Resources{Cores(t.Request) / 1000, Bytes(t.Memory)},
		Limits:      Resources{Cores(t.Limit) / 1000, Bytes(t.MemoryLimit)},
		Load:        Load{Curve: Trace},
		Start:       samples[0].At - in.From,
	}
	p.Requests.CPU, p.Requests.Memory = within(p.Requests.CPU, p.Limits.CPU), within(p.Requests.Memory, p.Limits.Memory)
	if t.Class == workload.LS || t.Class == workload.BE {
		p.Annotations["class.sluice.dev"] = t.Class.String()
	}
	if t.Pool != "" && t.Class == workload.LS {
		p.Annotations["pool.sluice.dev"] = t.Pool
	}
	if t.Class != workload.BE {
		p.Service = s
	}
	least, most := float32(math.MaxFloat32), float32(0)
	for i := range samples {
		o := &samples[i]
		if o.Anon > 0 {
			least, most = min(least, o.Anon), max(most, o.Anon)
			p.Memory.Cache = max(p.Memory.Cache, Bytes(o.Cache))
		}
		p.Load.CPU = max(p.Load.CPU, Cores(o.Peak)*Cores(waited(o)))
		if interval == 0 {
			p.Load.points = append(p.Load.points, point{o.At - samples[0].At, float64(o.CPU) * waited(o)})
		}
	}
	if interval > 0 {
		p.Load.recorded = &recorded{samples, samples[0].At, interval}
	}
	if end := samples[len(samples)-1].At + interval; end < in.To {
		p.End = max(end-in.From, p.Start+time.Second)
	}
	p.Memory.Anon, p.Memory.Low, p.Memory.Speed = Bytes(most), 1, 1<<30
	if most > 0 {
		p.Memory.Low = Percent(least / most)
	}
	return p
}

// find returns the index of the first sample at that time or later.
func find(samples []recording.Sample, at time.Duration) int {
	return sort.Search(len(samples), func(i int) bool { return samples[i].At >= at })
}

// waited returns the factor by which a container wanted more CPU than it used.
func waited(o *recording.Sample) float64 { return 1 + min(1, max(0, float64(o.Pressure))) }

// recorded is the load of a container of a recording of days. In each interval it is at the highest
// measurement for as long as that one took, and else as high as the mean leaves. When in the
// interval is unknown, and drawn from the seed for each container by itself: peaks that containers
// had together come apart.
type recorded struct {
	samples  []recording.Sample
	start    time.Duration // of the container, in the recording
	interval time.Duration
}

// at returns the load in CPUs at a time since the container's start. Where nothing was recorded it
// stays at the mean of before.
func (r *recorded) at(since time.Duration, seed uint64) float64 {
	at := r.start + since
	i := max(0, find(r.samples, at+1)-1)
	o := &r.samples[i]
	mean, peak := float64(o.CPU), float64(o.Peak)
	passed := at - o.At
	rest := r.interval - recording.PeakTime
	if passed >= r.interval || rest <= 0 {
		return mean * waited(o)
	}
	drawn := rand.New(rand.NewPCG(seed, uint64(o.At))).Float64()
	if begin := time.Duration(drawn * float64(rest)); passed >= begin && passed < begin+recording.PeakTime {
		return peak * waited(o)
	}
	base := (mean*r.interval.Seconds() - peak*recording.PeakTime.Seconds()) / rest.Seconds()
	return max(0, base) * waited(o)
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
	recorded, err := recording.Read(r)
	if err != nil {
		return nil, err
	}
	return Replay(recorded, cfg, s)
}

// read returns the scenario's machine and the host that the agent sees.
func (s *Scenario) read() (*topology.Machine, fs.FS, error) {
	if s.machine != nil {
		return s.machine, noFiles{}, nil
	}
	return readMachine(s.Machine)
}
