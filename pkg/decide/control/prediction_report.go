package control

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// PeakResource is a resource that has peaks.
type PeakResource string

// The resources.
const (
	PeakOfCPU    PeakResource = "cpu"
	PeakOfMemory PeakResource = "memory"
)

// PeakMethod is how a peak is forecast.
type PeakMethod string

// The methods; see pkg/decide/predict.
const (
	PeakByHistogram PeakMethod = "histogram"
	PeakByProfile   PeakMethod = "profile"
	PeakByPeriod    PeakMethod = "period"
)

// PeakForecast is what is expected of the usage of one resource by one object. Amounts of the other
// resource are 0.
type PeakForecast struct {
	Object             string       `json:"object"`                    // What uses the resource: "node" for all but batch work, a pool, for example "pool online", a class, for example "class LS", or a workload that requests far more than it is expected to use, for example "workload shop/web".
	Resource           PeakResource `json:"resource"`                  // Resource that is used.
	Soon               Amount       `json:"soon"`                      // Expected peak of the next ten minutes; 0 if nothing is expected yet.
	Day                Amount       `json:"day"`                       // Expected peak of the next 24 hours; 0 if nothing is expected yet.
	Method             PeakMethod   `json:"method"`                    // Method that was best in the last days.
	ConfidenceFraction float64      `json:"confidenceFraction"`        // Part of the last days' windows of ten minutes whose peak was no higher than this method had forecast; 0 while too few were compared.
	Trusted            bool         `json:"trusted"`                   // Whether decisions may count with the forecast.
	LastHourForecast   Amount       `json:"lastHourForecast,omitzero"` // Peak that was forecast for the latest compared hour; absent before the first.
	LastHourPeak       Amount       `json:"lastHourPeak,omitzero"`     // Peak of that hour; absent before the first.
	Requested          Amount       `json:"requested,omitzero"`        // What the workload's pods on this node request; absent for the node and for pools.
}

// compareEvery is the time between two searches for workloads that over-ask.
const compareEvery = 10 * time.Minute

// compareRequests finds the workloads that over-ask: those whose pods request overAskFactor times
// the CPU that is expected in the next day, or more.
func (p *Prediction) compareRequests(now time.Time) {
	if since := now.Sub(p.comparedAt); since >= 0 && since < compareEvery {
		return
	}
	p.comparedAt = now
	p.overAsks = nil // a status may still have the former list
	for _, name := range slices.Sorted(maps.Keys(p.uses)) {
		key := predict.Key{Kind: predict.Workload, Name: name, Resource: predict.CPU}
		request := p.uses[name].request
		if request < overAskLeast || !p.set.Has(key) {
			continue
		}
		if f := p.report(now, key); f.Trusted && request >= overAskFactor*f.Day.CPU {
			f.Requested = Amount{CPU: request}
			p.overAsks = append(p.overAsks, f)
		}
	}
}

// Report returns the forecasts of the node, of its pools and classes, and of the workloads that
// over-ask.
func (p *Prediction) Report(v *View) []PeakForecast {
	keys := []predict.Key{{Kind: predict.Node, Resource: predict.CPU}, {Kind: predict.Node, Resource: predict.Memory}}
	for i := range max(0, len(v.Pools)-1) {
		keys = append(keys, poolKey(v.Pools[i].Name))
	}
	for i := range p.classes {
		keys = append(keys, classKey(workload.Class(i), predict.CPU), classKey(workload.Class(i), predict.Memory))
	}
	var all []PeakForecast
	for _, key := range keys {
		if p.set.Has(key) {
			all = append(all, p.report(v.Now, key))
		}
	}
	return append(all, p.overAsks...)
}

func (p *Prediction) report(now time.Time, key predict.Key) PeakForecast {
	object, resource := "node", PeakOfCPU
	switch key.Kind {
	case predict.Pool:
		object = "pool " + key.Name
	case predict.Workload:
		object = "workload " + key.Name
	case predict.Class:
		object = "class " + key.Name
	case predict.Node:
	}
	amount := func(peak float64) Amount { return Amount{CPU: milli(peak)} }
	if key.Resource == predict.Memory {
		resource, amount = PeakOfMemory, func(peak float64) Amount { return Amount{MemoryBytes: int64(peak)} }
	}
	near := p.set.Forecast(now, key, soon)
	r := PeakForecast{
		Object: object, Resource: resource, Soon: amount(near.Peak), Day: amount(p.set.Forecast(now, key, long).Peak),
		Method: [...]PeakMethod{PeakByHistogram, PeakByProfile, PeakByPeriod}[near.By], ConfidenceFraction: near.Confidence, Trusted: near.Trusted,
	}
	if hour := p.set.LastHour(key); hour.Known {
		r.LastHourForecast, r.LastHourPeak = amount(hour.Forecast), amount(hour.Peak)
	}
	return r
}
