package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
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
	Object             string       `json:"object"`                    // What uses the resource: "node" for all but batch work, or a pool, for example "pool online".
	Resource           PeakResource `json:"resource"`                  // Resource that is used.
	Soon               Amount       `json:"soon"`                      // Expected peak of the next ten minutes; 0 if nothing is expected yet.
	Day                Amount       `json:"day"`                       // Expected peak of the next 24 hours; 0 if nothing is expected yet.
	Method             PeakMethod   `json:"method"`                    // Method that was best in the last days.
	ConfidenceFraction float64      `json:"confidenceFraction"`        // Part of the last days' windows of ten minutes whose peak was no higher than this method had forecast; 0 while too few were compared.
	Trusted            bool         `json:"trusted"`                   // Whether decisions may count with the forecast.
	LastHourForecast   Amount       `json:"lastHourForecast,omitzero"` // Peak that was forecast for the latest compared hour; absent before the first.
	LastHourPeak       Amount       `json:"lastHourPeak,omitzero"`     // Peak of that hour; absent before the first.
}

// Report returns the forecasts of the node and of its pools.
func (p *Prediction) Report(v *View) []PeakForecast {
	keys := []predict.Key{{Kind: predict.Node, Resource: predict.CPU}, {Kind: predict.Node, Resource: predict.Memory}}
	for i := range max(0, len(v.Pools)-1) {
		keys = append(keys, poolKey(v.Pools[i].Name))
	}
	var all []PeakForecast
	for _, key := range keys {
		if p.set.Has(key) {
			all = append(all, p.report(v.Now, key))
		}
	}
	return all
}

func (p *Prediction) report(now time.Time, key predict.Key) PeakForecast {
	object, resource := "node", PeakOfCPU
	if key.Kind == predict.Pool {
		object = "pool " + key.Name
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
