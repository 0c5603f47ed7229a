package report

import "time"

// Morning holds what a node sold around the daily rise of a service, with one mode of the forecasts.
type Morning struct {
	Prediction string // control.prediction.mode
	Phases     []MorningPhase

	Started, Done, Evicted, Refused                   int             // jobs
	DoneCPUSeconds, LostCPUSeconds, RunningCPUSeconds float64         // CPU time of jobs that ended, were evicted, and ran at the end
	Median, Longest                                   time.Duration   // of the times from start to end; those that run at the end count, too
	Warned                                            int             // evicted jobs that had a notice
	Warning                                           []time.Duration // from the notice to the eviction
	Notices, Squeezes                                 int             // notices by forecasts, and intervals in which the batch budget fell
}

// MorningPhase is a part of a morning. CPUs are means over its time.
type MorningPhase struct {
	Name            string
	Published       float64 // CPUs that the node published for batch work
	Requested, Used float64 // CPUs that jobs requested and used
	Evicted         int     // jobs
	P50, P99        time.Duration
}
