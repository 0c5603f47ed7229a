package selling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Report is what the node's plugin says of the offer.
type Report struct {
	MeasuredAt   time.Time     // time of the loop's latest measurement, by the node's clock
	Stall        time.Duration // a loop that does not measure for so long has stalled
	Connected    bool          // to the container runtime
	Offer        Amounts
	Known        bool                   // whether Offer is
	Used         *nodereport.Amount     // by the node now; nil if it is not known
	Scheduling   *nodereport.Scheduling // nil if it is not known
	NotActing    *Reason                // why the loop does not act on batch work; nil if it does
	Previews     bool                   // the configuration says so, and nothing else
	Closed       *Reason                // why nothing is sold; nil if the offer is
	Shortcomings *Reason                // what is wrong although the loop acts; nil if nothing is
	Pinnable     int64                  // CPUs that new pins could get together
	Held         map[string]int64       // CPUs that pods have for themselves, by UID of the pod
}

// Reason is why a condition of the node is as it is.
type Reason struct {
	Word string // reason of the condition, in CamelCase
	Text string // message of the condition
}

// These are the reasons of the conditions.
const (
	Preview             = "Preview"
	LoopOff             = "LoopOff"
	LoopStalled         = "LoopStalled"
	PluginSilent        = "PluginSilent"
	RuntimeDisconnected = "RuntimeDisconnected"
	StaticCPUManager    = "StaticCPUManager"
	ConfigRefused       = "ConfigRefused"
	Stopping            = "Stopping"
	PodsUnknown         = "PodsUnknown"

	Window         = "Window"
	Forecast       = "Forecast"
	Switch         = "Switch"
	CoolDown       = "CoolDown"
	Rule           = "Rule"
	OfferUnknown   = "OfferUnknown"
	NotReady       = "NotReady"
	Reopening      = "Reopening"
	OtherPublisher = "OtherPublisher"

	Acting  = "Acting"
	Selling = "Selling"
)

// NewReport reads a status. It fails if the status contains an amount that no node can have;
// such a status counts for nothing.
func NewReport(s *status.Status) (*Report, error) {
	r := &Report{Connected: s.Runtime.Connected, NotActing: notActing(s), Shortcomings: shortcomings(s), Held: Held(s), Scheduling: scheduling(&s.Scheduling)}
	if r.Pinnable = int64(s.Machine.PinnableCPUs); r.Pinnable < 0 || r.Pinnable > Most {
		return nil, fmt.Errorf("the status has machine.pinnableCPUs of %d: amounts are from 0 to %d; restart sluice, and report a bug if the amount comes back", r.Pinnable, Most)
	}
	r.Previews = r.NotActing != nil && r.NotActing.Word == Preview && s.Why == ""
	loop := s.Loop
	if loop == nil {
		return r, nil
	}
	r.MeasuredAt = loop.MeasuredAt
	r.Closed, r.Stall = whyClosed(loop), max(Stall, 3*loop.Interval)
	short, long := loop.Offer.ShortTerm, loop.Offer.LongTerm
	r.Offer = Amounts{BatchCPU: int64(short.CPU), BatchMemory: short.MemoryBytes, MidCPU: int64(long.CPU), MidMemory: long.MemoryBytes}
	for kind, amount := range r.Offer {
		if amount < 0 || amount > Most {
			return nil, fmt.Errorf("the status has loop.offer with an amount of %d: amounts are from 0 to %d; restart sluice, and report a bug if the amount comes back", amount, Most)
		}
		r.Offer[kind] = amount
	}
	r.Known, r.Used = loop.Offer.Known, used(&loop.Node)
	b := &loop.Batch
	if b.State == status.BatchSqueezed && b.KeptPercent >= 0 && b.KeptPercent < 100 {
		r.Offer[BatchCPU] = r.Offer[BatchCPU] * int64(b.KeptPercent) / 100
	}
	if b.BoundsPercent > 0 && b.BoundsPercent < 100 {
		r.Offer[BatchCPU] = r.Offer[BatchCPU] * int64(b.BoundsPercent) / 100
	}
	return r, nil
}

// Held returns the CPUs that pods have for themselves, by UID.
func Held(s *status.Status) map[string]int64 {
	cpus := map[string]int64{}
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Pool == "" {
			cpus[c.PodUID] += int64(c.CPUs.Size())
		}
	}
	return cpus
}

// used returns what a node uses; nil if that has not been measured, or no node can use it.
func used(n *status.NodeUsage) *nodereport.Amount {
	u := &nodereport.Amount{MilliCPU: int64(n.CPU.Usage), MemoryBytes: n.Memory.TotalBytes - n.Memory.AvailableBytes}
	if n.CPU.MeasuredAt.IsZero() || n.Memory.MeasuredAt.IsZero() || min(u.MilliCPU, u.MemoryBytes) < 0 || max(u.MilliCPU, u.MemoryBytes) > Most {
		return nil
	}
	return u
}

// scheduling returns what the node's containers request of its CPUs; nil if no node can have these
// numbers, or the plugin is of a version that does not send them.
func scheduling(s *status.Scheduling) *nodereport.Scheduling {
	is := &nodereport.Scheduling{AllocatableMilliCPU: int64(s.Allocatable), OvercommitRatio: math.Round(s.OvercommitRatio*1000) / 1000}
	if s.Room != nil {
		is.RoomMilliCPU = new(int64(*s.Room))
	}
	if s.Allocatable == 0 || !is.Possible() {
		return nil
	}
	return is
}

// notActing returns why nobody bounds batch work on the node.
func notActing(s *status.Status) *Reason {
	loop := s.Loop
	switch {
	case s.Mode == status.ModePreview:
		return &Reason{Preview, "The plugin is in preview and changes nothing: " + sentence(s.Why, "set mode: on in sluice.yaml")}
	case loop == nil:
		return &Reason{LoopOff, "The plugin runs without a control loop: set control.mode: on in sluice.yaml."}
	case loop.Problem != "":
		return &Reason{LoopOff, "The control loop does not run: " + sentence(loop.Problem, "")}
	}
	// Batch work's CPU is bounded by the controller "batch", or by "pools" if pools are exclusive.
	// The other one is off.
	cpu := firstOn(modeOf(loop, "batch"), modeOf(loop, "pools"))
	for _, c := range []struct {
		name string
		mode control.Mode
	}{{"batch", cpu}, {"memory", modeOf(loop, "memory")}} {
		switch c.mode {
		case control.On:
		case control.Preview:
			return &Reason{Preview, fmt.Sprintf("The controller %s of the control loop is in preview: set control.%s.mode: on in sluice.yaml.", c.name, c.name)}
		default:
			return &Reason{LoopOff, fmt.Sprintf("The controller %s of the control loop is off: set control.%s.mode: on in sluice.yaml.", c.name, c.name)}
		}
	}
	return nil
}

// sentence ends a text with one period.
func sentence(text, otherwise string) string {
	return strings.TrimRight(cmp.Or(text, otherwise), ".") + "."
}

// firstOn returns the first mode that is not off.
func firstOn(modes ...control.Mode) control.Mode {
	for _, m := range modes {
		if m != control.Off && m != "" {
			return m
		}
	}
	return control.Off
}

func modeOf(loop *status.Loop, name string) control.Mode {
	i := slices.IndexFunc(loop.Controllers, func(c status.Controller) bool { return c.Name == name })
	if i < 0 {
		return control.Off
	}
	return loop.Controllers[i].Mode
}

// whyClosed returns why a loop that acts sells nothing now.
func whyClosed(loop *status.Loop) *Reason {
	b := &loop.Batch
	shut := b.State == status.BatchNoNew || b.State == status.BatchClosed || b.State == status.BatchEvicting
	switch {
	case fleetIsOff(b, loop.MeasuredAt) && (shut || loop.Refusal != nil && loop.Refusal.NewBatch):
		return &Reason{Switch, "Batch work is switched off by the fleet's switch, the ConfigMap sluice-switch."}
	case b.Switch.State == control.SwitchOff && (shut || loop.Refusal != nil && loop.Refusal.NewBatch):
		return &Reason{Switch, "Batch work is switched off by 'sluice batch off'; 'sluice batch auto' ends it."}
	case b.State == status.BatchNoNew && loop.Notices.Active != nil && loop.Notices.Active.Cause == control.NoticeByForecast:
		return &Reason{Forecast, "A forecast of what services will need keeps new batch work away: " + sentence(b.Why, "it will end by itself")}
	case shut:
		return &Reason{Window, "A time window of sluice.yaml keeps batch work away: " + sentence(b.Why, "it will end by itself")}
	case !loop.Evictions.CoolDownEndsAt.IsZero():
		return &Reason{CoolDown, "No batch work is wanted during an eviction and for some time after it: " + sentence(loop.Evictions.CoolDownWhy, "the status gives no reason")}
	case loop.Refusal != nil && loop.Refusal.NewBatch && !loop.Refusal.EndsAt.IsZero():
		return &Reason{CoolDown, "No batch work starts after an eviction for some time: " + sentence(loop.Refusal.Why, "the status gives no reason")}
	case loop.Refusal != nil && loop.Refusal.NewBatch:
		return &Reason{Rule, "A rule of sluice.yaml keeps batch work away: " + sentence(loop.Refusal.Why, "the status gives no reason")}
	case !loop.Offer.Known:
		return &Reason{OfferUnknown, "The node's offer is not known: " + sentence(loop.Offer.Why, "it has not been measured yet")}
	}
	return nil
}

// fleetIsOff reports whether the fleet's switch keeps batch work away.
func fleetIsOff(b *status.Batch, now time.Time) bool {
	fleet := b.FleetSwitch
	return fleet != nil && fleet.State == control.SwitchOff && (fleet.EndsAt.IsZero() || now.Before(fleet.EndsAt))
}

// shortcomings returns what is wrong on a node whose loop acts.
func shortcomings(s *status.Status) *Reason {
	refused := slices.IndexFunc(s.Config.Parts, func(p status.ConfigPart) bool { return p.Problem != "" })
	i := slices.IndexFunc(s.Neighbours, func(n peers.Neighbour) bool { return n.Kind == peers.CPUManager })
	switch {
	case s.Config.Problem != "":
		return &Reason{ConfigRefused, "The newest sluice.yaml is not in force, the one before it is: " + sentence(s.Config.Problem, "")}
	case refused >= 0:
		p := &s.Config.Parts[refused]
		return &Reason{ConfigRefused, "The ConfigMap " + p.Name + " is not in force: " + sentence(p.Problem, "")}
	case s.Loop != nil && s.Loop.Batch.FleetSwitch != nil && s.Loop.Batch.FleetSwitch.Problem != "":
		return &Reason{ConfigRefused, "The fleet's switch stays as it was: " + sentence(s.Loop.Batch.FleetSwitch.Problem, "")}
	case i >= 0:
		return &Reason{StaticCPUManager, "The kubelet's static CPU manager sets CPUs, so that LSE and LSR pods are refused: " + sentence(s.Neighbours[i].Fix, "")}
	}
	return nil
}
