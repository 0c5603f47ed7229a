// Package load sends requests to the probe's service on a schedule that doesn't wait for answers
// (open loop), and measures each latency from the time at which its request was due.
package load

import (
	"math/rand/v2"
	"time"
)

// Phase is a time of constant load.
type Phase struct {
	Rate float64 // in requests per second
	For  time.Duration
}

// Schedule returns when requests are due, since the start. Arrivals are random (Poisson), and
// equal for equal seeds.
func Schedule(phases []Phase, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 0))
	var due []time.Duration
	var begin time.Duration
	for _, p := range phases {
		end := begin + p.For
		for at := begin; p.Rate > 0; {
			at += time.Duration(random.ExpFloat64() / p.Rate * float64(time.Second))
			if at >= end {
				break
			}
			due = append(due, at)
		}
		begin = end
	}
	return due
}

// Steps alternates between two rates of the given duration each, for the whole time.
func Steps(low, high float64, each, whole time.Duration) []Phase {
	var phases []Phase
	for at, rate := time.Duration(0), low; at < whole; at += each {
		phases = append(phases, Phase{Rate: rate, For: min(each, whole-at)})
		rate = low + high - rate
	}
	return phases
}
