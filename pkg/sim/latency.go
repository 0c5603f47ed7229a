package sim

import (
	"math"
	"time"
)

// queue models a service as a queue with k servers.
type queue struct {
	service time.Duration // mean CPU time of a request at full speed
	speed   float64       // speed of its CPUs; 1 is full speed
	servers float64       // number of CPUs that it gets when it wants them
	offered float64       // arriving work, in CPUs at full speed
	backlog float64       // waiting work in CPU seconds
	blocked float64       // probability that a waking task does not get a CPU at once
}

// slice is how long in seconds a task keeps a CPU if it is not preempted: the fair scheduler's
// base slice on 8 and more CPUs (sysctl_sched_base_slice, 0.7 ms × (1 + log2 8), in
// kernel/sched/fair.c).
const slice = 2.8e-3

// p99 estimates the time in seconds in which 99 % of the requests are answered, or +Inf if more
// work arrives than can be done.
//
// Requests arrive at random (Poisson) and take exponentially distributed time, so this is an M/M/k
// queue. A request waits with probability P ≈ ρ^(√(2(k+1))−1) (Sakasegawa, "An approximation
// formula Lq = αρ^β/(1−ρ)", 1977, solved for the probability of waiting), and its wait is
// exponentially distributed with mean S/(k(1−ρ)). The percentile of the sum is taken as the sum of
// the percentiles, which is above the real one. The wait for a CPU that another task holds,
// uniform in one slice, and the waiting work are added.
//
// Limits: each step is treated as a steady state, so that only the backlog makes the estimate lag
// behind a change. Requests are independent; there are no locks and no network. For a k between
// whole numbers the formula is an interpolation.
func (q *queue) p99() float64 {
	k := max(1, q.servers)
	speed := q.speed * min(1, q.servers)
	if speed <= 0 {
		return math.Inf(1)
	}
	mean := q.service.Seconds() / speed
	load := q.offered / (q.speed * q.servers)
	if load >= 1 {
		return math.Inf(1)
	}
	const tail = 100 // 1 / (1 − 0.99)
	time := math.Log(tail) * mean
	wait := math.Pow(load, math.Sqrt(2*(k+1))-1)
	if wait*tail > 1 {
		time += math.Log(wait*tail) * mean / (k * (1 - load))
	}
	if q.blocked*tail > 1 {
		time += slice * (1 - 1/(q.blocked*tail))
	}
	return time + q.backlog/(q.speed*q.servers)
}
